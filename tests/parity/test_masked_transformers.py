"""BERT, RoBERTa and ALBERT against `transformers` with the same random weights: every head, every layer, attention,
padding on both sides, segments, and the gradient of the pre-training loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from masked_references import (
    MASKED,
    SHAPES,
    copy_of,
    masked_logits,
    ordinary_ids,
    our_logits,
    pair_logits,
    reference,
    same_logits,
    segments_of,
    tokenizer_of,
)
from tolerance import close
from torch import Tensor
from transformer_terms import gradient_terms

from foretext.batch import IGNORE, Batch
from foretext.interop.hub import TABLES
from foretext.interop.hub_tensors import parts_of
from foretext.text.tokenizers.base import Tokenizer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("in_float64")

LENGTHS = (9, 3, 14, 1, 14, 6)


@pytest.fixture(scope="module", params=MASKED)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tokenizer(system: str) -> Tokenizer:
    return tokenizer_of(system)


def telling(ours: Tensor, theirs: Tensor, shape: tuple[int, ...] = SHAPES[0]) -> None:
    assert theirs.std() > 0.05
    same_logits(ours, theirs, shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_head_and_layer(system: str, tokenizer: Tokenizer, shape: tuple[int, ...]) -> None:
    theirs = reference(system, shape, tokenizer.size)
    trunk, objective = copy_of(system, theirs, tokenizer)
    ids = ordinary_ids(tokenizer, 3, shape[4])
    segments = segments_of(system, ids)
    with torch.no_grad():
        expected = theirs(input_ids=ids, token_type_ids=segments, output_hidden_states=True)
        states = trunk(Batch(ids, segments_BT=segments), keep_layers=True)
    tokens, pairs = our_logits(trunk, objective, Batch(ids, segments_BT=segments))
    telling(tokens, masked_logits(expected), shape)
    if system == "roberta":
        assert pairs is None and pair_logits(expected) is None
    else:
        assert pairs is not None
        same_logits(pairs, pair_logits(expected), shape)
        assert pairs.abs().max() > 0.01
    assert len(states.layers) == len(expected.hidden_states) == shape[0] + 1
    for mine, other in zip(states.layers, expected.hidden_states):
        telling(mine, other, shape)


def test_the_other_gelu(system: str, tokenizer: Tokenizer) -> None:
    """The form is read from config.json, for the blocks and the head. The two differ by little, so it is asked for."""
    if system == "roberta":
        pytest.skip("its head has one form of GELU")
    other = {"bert": "gelu_new", "albert": "gelu"}[system]
    theirs = reference(system, SHAPES[0], tokenizer.size, hidden_act=other)
    trunk, objective = copy_of(system, theirs, tokenizer)
    assert trunk.config.gelu == {"gelu_new": "tanh", "gelu": "erf"}[other]
    assert objective.head.approximate == {"gelu_new": "tanh", "gelu": "none"}[other]
    ids = ordinary_ids(tokenizer, 2, 20)
    with torch.no_grad():
        telling(our_logits(trunk, objective, Batch(ids))[0], masked_logits(theirs(input_ids=ids)))


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding(system: str, tokenizer: Tokenizer, side: str) -> None:
    theirs = reference(system, SHAPES[0], tokenizer.size)
    trunk, objective = copy_of(system, theirs, tokenizer)
    rows = [ordinary_ids(tokenizer, 1, length)[0] for length in LENGTHS]
    parts = [segments_of(system, row) for row in rows]
    ids = torch.full((len(rows), 20), theirs.config.pad_token_id)
    mask, segments = torch.zeros(ids.shape, dtype=torch.bool), torch.zeros_like(ids)
    for number, (row, part) in enumerate(zip(rows, parts)):
        place = slice(0, len(row)) if side == "right" else slice(20 - len(row), 20)
        ids[number, place], mask[number, place] = row, True
        if part is not None:
            segments[number, place] = part
    with torch.no_grad():
        ours = our_logits(trunk, objective, Batch(ids, mask, segments_BT=segments))[0]
        alone = [_alone(theirs, row, part) for row, part in zip(rows, parts)]
        for number, output in enumerate(alone):
            same_logits(ours[number, mask[number]], masked_logits(output)[0])
        if side == "right":
            together = theirs(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments)
            telling(ours[mask], masked_logits(together)[mask])


def _alone(theirs: Any, row: Tensor, part: Tensor | None) -> Any:
    return theirs(input_ids=row[None], token_type_ids=None if part is None else part[None])


def test_attention(system: str, tokenizer: Tokenizer) -> None:
    theirs = reference(system, SHAPES[0], tokenizer.size)
    trunk, _ = copy_of(system, theirs, tokenizer)
    theirs.set_attn_implementation("eager")
    ids = ordinary_ids(tokenizer, 1, 15)
    with torch.no_grad():
        expected = torch.stack(theirs(input_ids=ids, output_attentions=True).attentions)[:, 0]
    assert expected.std() > 0.005
    same_logits(trunk.attention_weights(ids[0]), expected)


@pytest.mark.parametrize("side", ["right", "left"])
def test_loss_and_gradients(system: str, tokenizer: Tokenizer, side: str) -> None:
    """Of the objective as it is trained, against sums over the reference's logits, a sequence at a time."""
    theirs = reference(system, SHAPES[0], tokenizer.size)
    trunk, objective = copy_of(system, theirs, tokenizer)
    rows = [ordinary_ids(tokenizer, 1, length)[0] for length in (9, 4, 14)]
    labels = torch.tensor([1, 0, 1])
    ids = torch.full((3, 16), theirs.config.pad_token_id)
    mask, targets = torch.zeros(ids.shape, dtype=torch.bool), torch.full_like(ids, IGNORE)
    token_losses, pair_losses = [], []
    for number, row in enumerate(rows):
        start = 0 if side == "right" else 16 - len(row)
        wanted = ordinary_ids(tokenizer, 1, 2)[0]
        ids[number, start : start + len(row)], mask[number, start : start + len(row)] = row, True
        targets[number, [start + 1, start + 3]] = wanted
        output = theirs(input_ids=row[None])
        token_losses.append(F.cross_entropy(masked_logits(output)[0, [1, 3]], wanted, reduction="sum"))
        if pair_logits(output) is not None:
            pair_losses.append(F.cross_entropy(pair_logits(output), labels[number : number + 1]))
    losses = objective(trunk, Batch(ids, mask, targets_BT=targets, labels=labels)).losses
    ours = sum(loss.total / loss.count for loss in losses.values())
    expected = torch.stack(token_losses).sum() / 6
    if pair_losses:
        expected = expected + torch.stack(pair_losses).mean()
    assert len(losses) == 1 + bool(pair_losses)
    layers, width, _, inner, _, _ = SHAPES[0]
    terms = gradient_terms(layers, width, inner, 16, tokenizer.size, batch=int(mask.sum()))
    close(ours, expected, terms=terms)
    ours.backward()
    expected.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    names = TABLES.get(system)
    assert names is not None
    wanted_names = names.names(SHAPES[0][0]) | names.head_names()
    mine = dict(trunk.named_parameters()) | {f"task.{n}": p for n, p in objective.named_parameters()}
    assert mine.keys() == wanted_names.keys()
    whole = {
        name: torch.cat([gradients[names.whole(name, part)] for part in parts_of(other)])
        for name, other in wanted_names.items()
    }
    close({name: mine[name].grad for name in whole}, whole, terms=terms)
