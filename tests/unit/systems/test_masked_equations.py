"""The equations of BERT, RoBERTa and ALBERT: the encoder, the masked tokens, the pair, and the head on `[CLS]`. Each is
computed in numpy, a head and a place at a time in float64, from nothing but the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dense_gpt import softmax
from systems_under_test import MASKING, TERMS, TINY, objective_of, shaken_model, trunk_of, unlabelled, windows
from tolerance import close, doubles, terms_of

from foretext.api import LanguageModel
from foretext.batch import IGNORE, Batch
from foretext.nn.transformer.encoder import EncoderConfig
from foretext.objectives.base import Draw, growing_lengths
from foretext.objectives.masked import MaskedObjective
from foretext.systems import SYSTEMS
from foretext.train.loop import Loop

TOLD = terms_of(TERMS, TINY["bert"].vocabulary, 20)  # the model, the softmax over all pieces, and the chosen ones


@pytest.fixture(autouse=True)
def _in_doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And nothing is trained: everything is that of the weights as drawn, which are large."""
    monkeypatch.setattr(Loop, "run", lambda self: self.position)
    with doubles():
        yield


def weights_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def linear(w: dict[str, np.ndarray], x: np.ndarray, part: str) -> np.ndarray:
    return x @ w[f"{part}.weight"].T + w[f"{part}.bias"]


def norm(w: dict[str, np.ndarray], x: np.ndarray, part: str, epsilon: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * w[f"{part}.weight"] + w[f"{part}.bias"]


def gelu(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def dense(trunk: Any, ids: Sequence[int], segments: Sequence[int]) -> list[np.ndarray]:
    """Every layer's states, the embeddings first. ALBERT's table is projected, and its one block is used for each."""
    w, config = weights_of(trunk), trunk.config
    assert isinstance(config, EncoderConfig)
    places = np.arange(len(ids)) + config.first_position
    summed = w["tokens.weight"][ids] + w["positions.weight"][places] + w["segments.weight"][segments]
    h = norm(w, summed, "norm", config.epsilon)
    if config.embedding:
        h = linear(w, h, "project")
    layers, width = [h], config.width // config.heads
    for layer in range(config.layers):
        name = f"blocks.{0 if config.shared else layer}"
        q, k, v = np.split(linear(w, h, f"{name}.attention.qkv"), 3, axis=-1)
        mixed = np.zeros_like(h)
        for head in range(config.heads):
            own = slice(head * width, (head + 1) * width)
            for place in range(len(ids)):
                mixed[place, own] = softmax(k[:, own] @ q[place, own] / math.sqrt(width)) @ v[:, own]
        h = norm(w, h + linear(w, mixed, f"{name}.attention.out"), f"{name}.norm1", config.epsilon)
        inner = gelu(linear(w, h, f"{name}.up"), config.gelu)
        h = norm(w, h + linear(w, inner, f"{name}.down"), f"{name}.norm2", config.epsilon)
        layers.append(h)
    return layers


@pytest.mark.parametrize("system", MASKING)
def test_states_are_those_of_the_encoder(system: str) -> None:
    """Token, position and segment added; then blocks in which every token sees both sides."""
    trunk, ids = trunk_of(system), windows((12,))[0]
    segments = np.arange(12) > 6 if trunk.config.segments == 2 else np.zeros(12, dtype=int)  # type: ignore[union-attr]
    batch = Batch(torch.from_numpy(ids)[None], segments_BT=torch.from_numpy(segments.astype(int))[None])
    found = trunk(batch, keep_layers=True).layers
    close([layer[0] for layer in found], dense(trunk, ids.tolist(), segments.astype(int).tolist()), terms=TERMS)


def test_alberts_table_is_narrow() -> None:
    """V×E and E×H in place of V×H, for reading and for the softmax: at its published size 30,000 × 128."""
    trunk, config = trunk_of("albert"), SYSTEMS["albert"].sizes["paper"].model
    assert trunk.tokens.weight.shape == (262, 16) and trunk.output_table() is trunk.tokens.weight  # type: ignore[operator]
    assert trunk.project.weight.shape == (32, 16)
    assert (config.embedding, config.width, SYSTEMS["albert"].sizes["paper"].tokenizer.size) == (128, 768, 30_000)


def test_alberts_layers_have_one_set_of_weights() -> None:
    shared, own = (trunk_of("albert", layers=3, shared=shared) for shared in (True, False))
    counts = [
        sum(p.numel() for name, p in one.named_parameters() if name.startswith("blocks.")) for one in (shared, own)
    ]
    assert 3 * counts[0] == counts[1]
    known = shared.state_dict()
    own.load_state_dict({name: known[_of_block_0(name)] for name in own.state_dict()})
    batch = Batch(torch.from_numpy(np.stack(windows((9, 9)))))
    close(shared(batch).top, own(batch).top, terms=TERMS)
    assert SYSTEMS["albert"].sizes["paper"].model.shared


def _of_block_0(name: str) -> str:
    return ".".join(["blocks", "0", *name.split(".")[2:]]) if name.startswith("blocks.") else name


@pytest.mark.parametrize("system", MASKING)
def test_the_loss_is_that_of_the_masked_tokens_and_of_the_pair(system: str) -> None:
    """−Σ log softmax(norm(gelu(W h_i + b)) We^T + b_v)[u_i] over what was chosen, h read off the noisy text; and
    −log softmax(W tanh(W_p h_[CLS] + b_p) + b) of the label of two spans (BERT, ALBERT)."""
    trunk, objective = trunk_of(system), objective_of(system)
    assert isinstance(objective, MaskedObjective)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    batch = objective.make(unlabelled(system, (20, 9, 15)), Draw(1, 0, (0, 1, 2)))
    assert batch.mask_BT is not None and batch.targets_BT is not None
    w, of_trunk, config = weights_of(objective), weights_of(trunk), trunk.config
    told: list[float] = []
    pairs: list[float] = []
    for row, real in enumerate(batch.mask_BT):
        segments = torch.zeros_like(batch.ids_BT) if batch.segments_BT is None else batch.segments_BT
        states = dense(trunk, batch.ids_BT[row][real].tolist(), segments[row][real].tolist())[-1]
        for state, target in zip(states, batch.targets_BT[row][real].tolist()):
            if target != IGNORE:
                read = norm(w, gelu(linear(w, state, "head.dense"), config.gelu), "head.norm", config.epsilon)  # type: ignore[union-attr,arg-type]
                told.append(-float(np.log(softmax(of_trunk["tokens.weight"] @ read + w["head.bias"])[target])))
        if batch.labels is not None:
            scores = linear(w, np.tanh(linear(of_trunk, states[0], "pooler")), "relation")
            pairs.append(-float(np.log(softmax(scores)[batch.labels[row]])))
    losses = objective(trunk, batch).losses
    expected = {"masked": sum(told)} | ({{"bert": "next", "albert": "order"}[system]: sum(pairs)} if pairs else {})
    close({name: loss.total for name, loss in losses.items()}, expected, terms=TOLD)
    assert losses["masked"].count == len(told) and bool(pairs) == (system != "roberta")


@pytest.mark.parametrize(("pooling", "paper"), [("pooler", True), ("extract", False)])
def test_labels_are_told_from_cls(pooling: str, paper: bool) -> None:
    """softmax(h_L^[CLS] W_cls), with `transfer.pooling=extract` word for word; BERT itself has its tanh layer between,
    which is what `--plan paper` gives on any size. One text, and a pair in two segments."""
    base = LanguageModel(shaken_model("bert", 0.2), Path())
    sets = () if paper else ("transfer.pooling=extract", "transfer.head=random")
    for kind, rows in (
        ("classification", [("so good", "a"), ("bad", "b"), ("it is", "c")]),
        ("entailment", [("a man eats", "he eats", "a"), ("a dog", "two men sing", "b"), ("sun", "up", "c")]),
    ):
        made = base.finetune(rows, task=kind, plan="paper" if paper else None, hold_out=0.0, sets=sets)
        task, tokenizer = made.model.task, made.model.tokenizer
        assert task is not None and made.model.config.transfer.pooling == pooling
        with torch.no_grad():
            for parameter in task.parameters():
                parameter.add_(torch.randn_like(parameter))
        w, head = weights_of(made.model.trunk), weights_of(task)
        cls, sep = tokenizer.specials["[CLS]"], tokenizer.specials["[SEP]"]
        for row, found in zip(rows, made.predict_proba([row[0] if len(row) == 2 else row[:2] for row in rows])):
            texts = [tokenizer.encode(text) for text in row[:-1]]
            ids = [cls, *(id for text in texts for id in (*text, sep))]
            segments = [0] * (len(texts[0]) + 2) + [1] * (len(ids) - len(texts[0]) - 2)
            state = dense(made.model.trunk, ids, segments)[-1][0]
            state = np.tanh(linear(w, state, "pooler")) if paper else state
            # Scores of at most some tens are rounded to float32 on their way out.
            close(found, softmax(linear(head, state, "head")), terms=2, size=32.0, precision=torch.float32)


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_albert_begins_with_sixteen_tokens(size: str) -> None:
    """With 32, as the other masked systems have, it does not find which token is next to which (docs/log.md)."""
    albert, bert = (growing_lengths(SYSTEMS[name].sizes[size].objective, 256, 8) for name in ("albert", "bert"))
    assert [length for _, length in albert] == [16, 32, 64, 128, 256]
    assert [part for part, _ in albert] == pytest.approx([0.5, 0.6, 0.7, 0.8, 1.0])
    assert bert[0] == (0.15, 32)
