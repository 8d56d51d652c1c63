"""Transformer-XL as its paper and its released code have it, and each kind of vocabulary from text to scores."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from complaints import refused
from systems_under_test import TERMS, pretrain_request, stopping_after, write_text
from tolerance import close, doubles, terms_of

import foretext as ft
from foretext.batch import Batch
from foretext.errors import Interrupted
from foretext.nn.relative.transformer_xl import TransformerXL
from foretext.runs.run_config import Budget
from foretext.systems.transformer_xl import SIZES, TRANSFORMER_XL, WORDS
from foretext.train.optim import make_optimizer, rate_at
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest

PAPER = SIZES["paper"]


def test_the_papers_model() -> None:
    """Table 1: 151M parameters for the standard model of WikiText-103."""
    shape = replace(PAPER.model, vocabulary=WORDS)
    shape.check()
    block = 5 * 410 * 410 + 2 * 410 * 2100 + 2100 + 5 * 410
    tables = WORDS * 410 + WORDS + 3 * 411  # with biases, and a row and a bias for each tail
    assert shape.parameters() == tables + 16 * block + 2 * 410
    assert round(shape.parameters() / 1e6) == 151
    assert (shape.context, shape.memory, shape.evaluation_memory, shape.clamp) == (150, 150, 640, 400)
    training = PAPER.pretraining
    assert rate_at(training, 0.0, 0) == 2.5e-4 and rate_at(training, 1.0, 200_000) == pytest.approx(0.0, abs=1e-12)
    assert rate_at(training, 0.5, 100_000) == pytest.approx(1.25e-4)


@pytest.mark.parametrize("name", SIZES)
def test_every_size_can_be_built_on(name: str) -> None:
    size = SIZES[name]
    size.objective.check()
    replace(size.model, vocabulary=WORDS, dropout=size.finetuning.dropout).check()
    assert isinstance(size.objective, TRANSFORMER_XL.objective_config) and isinstance(size.model, TRANSFORMER_XL.config)
    assert size.model.reads == size.model.context + size.model.memory


def test_muon_takes_matrices_and_not_u_and_v() -> None:
    trunk = TransformerXL(replace(SIZES["tiny"].model, vocabulary=30, width=12))
    optimizer = make_optimizer(SIZES["tiny"].pretraining, trunk, torch.nn.Identity())
    inside = {name.removeprefix("trunk.blocks.0.") for name in optimizer.muon if ".blocks.0." in name}
    projections = {f"attention.{part}.weight" for part in ("query", "key", "value", "distance", "out")}
    assert inside == {*projections, "up.weight", "down.weight"}
    assert all(".blocks." in name for name in optimizer.muon)


VOCABULARIES = {
    "words": ("tokenizer.kind=word-list", "tokenizer.size=16", "model.cutoffs=4,9", "model.divisor=2"),
    "words, as wide": ("tokenizer.kind=word-list", "tokenizer.size=16", "model.cutoffs=6"),
    "pieces": ("tokenizer.size=300",),
    "bytes": ("tokenizer.size=257",),
}


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_each_kind_of_vocabulary_is_pretrained_scored_and_taught(kind: str, tmp_path: Path) -> None:
    """Stopped and gone on with bit for bit, memory and adaptive softmax included."""
    text = write_text(tmp_path)
    request = pretrain_request("transformer_xl", text, tmp_path / "straight", 4, *VOCABULARIES[kind])
    pretrain(request)
    stopped = replace(request, out=tmp_path / "stopped")
    with stopping_after(2) as stop, pytest.raises(Interrupted):
        pretrain(stopped, stopping=stop)
    pretrain(replace(stopped, resume=True))
    model = ft.load(request.out)
    whole, resumed = (ft.load(path).model.trunk.state_dict() for path in (request.out, stopped.out))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert model.perplexity("The cat sees the sun.", memory=3).tokens
    assert isinstance(model.generate("The", max_tokens=4, seed=1), str)
    rows = [("The cat eats fish.", "cat"), ("The dog eats fish.", "dog")] * 4
    taught = model.finetune(rows, task="classification", hold_out=0.0, epochs=1, sets=["training.batch_size=4"])
    assert taught.predict(["The cat sees the sun."])[0] in {"cat", "dog"}
    if "cutoffs" in " ".join(VOCABULARIES[kind]):
        again = PretrainRequest((str(text),), tmp_path / "new", budget=Budget(steps=1), start=request.out)
        with refused("--new-vocabulary", "adaptive"):
            pretrain(replace(again, new_vocabulary=True))


@doubles()
def test_right_to_left(tmp_path: Path) -> None:
    """A text is scored as its ids are that are turned round, after end-of-text."""
    pretrain(pretrain_request("transformer_xl", write_text(tmp_path), tmp_path / "run", 3, direction="backward"))
    lm = ft.load(tmp_path / "run")
    trunk, tokenizer = lm.model.trunk.eval(), lm.model.tokenizer
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trunk.parameters():  # so that the order matters
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
    text = "The old man likes a red ball. The cat sees the sun."
    ids = tokenizer.encode(text)
    assert tokenizer.end is not None

    @torch.no_grad()
    def by_hand(order: list[int]) -> float:
        ids_T = torch.tensor([tokenizer.end, *order])
        logs = trunk.output_layer().logits(trunk(Batch(ids_T[None, :-1])).top[0]).log_softmax(-1)
        return float(-logs.gather(1, ids_T[1:, None]).mean())

    found = lm.perplexity(text)
    assert found.tokens == len(ids)
    terms = terms_of(TERMS, 32 + 300, len(ids))  # a minute model, the softmax, all tokens
    close(math.log(found.per_token), by_hand(ids[::-1]), terms=terms)
    assert abs(math.log(found.per_token) - by_hand(ids)) > 1e-3
