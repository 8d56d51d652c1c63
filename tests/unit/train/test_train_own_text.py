"""The text of pre-training teaches beside labelled rows, without being named again."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from complaints import refused
from noting import Notes
from systems_under_test import pretrain_request, write_text

from foretext.runs.model import load_model
from foretext.tasks.files.rows import Row
from foretext.train.finetuning import finetune_knowledge, views_alone
from foretext.train.finetuning.finetune import Finetuned, finetune
from foretext.train.finetuning.finetune_knowledge import texts_of
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest
from foretext.train.pretraining.pretrain import pretrain

DRAW = random.Random(0)
ROWS = [
    Row((f"The {who} sees {DRAW.choice(['fish', 'the sun', 'a red ball'])}.",), who, f"row {number}")
    for number, who in enumerate(["cat", "dog"] * 12)
]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"), 230)


@pytest.fixture(scope="module", params=["word2vec", "gpt", "bert"])
def base(text: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return pretrain(pretrain_request(request.param, text, tmp_path_factory.mktemp(request.param) / "run", 2, threads=1))


def taught(base: Path, notes: Notes, **asked: Any) -> Finetuned:
    """By a head over views: of a trunk, because vectors are given."""
    model = load_model(base)
    if model.system.name != "word2vec":
        asked = {"views": ("ngrams",)} | asked
    return finetune(FinetuneRequest(model, ROWS, "classification", own_text=True, **asked), notes)


def test_texts_are_those_that_the_run_has_read(base: Path, text: Path) -> None:
    texts = texts_of(load_model(base), seed=0)
    spaced = {" ".join(line.lower().replace(".", " .").split()) for line in text.read_text().splitlines()}
    assert len(texts) >= 200, "all but those held out for validation"
    assert {" ".join(own.lower().replace(".", " .").split()) for own in texts} <= spaced
    assert texts == texts_of(load_model(base), seed=0)


def test_views_learn_from_them(base: Path) -> None:
    notes = Notes()
    made = taught(base, notes)
    assert made.model.finetuned.task.sentences == len(texts_of(load_model(base), 0))
    assert any("--unlabelled none" in said for said in notes.notes)
    assert sum(said.startswith("unlabelled text:") for said in notes.notes) == 1
    left_out = taught(base, Notes(), unlabelled=("a text",))
    assert left_out.model.finetuned.task.sentences == 1, "what is named counts"


@pytest.mark.parametrize("asked", [{"kind": "regression"}, {"own_text": False}], ids=str)
def test_nothing_is_learned_from_it_where_it_cannot_or_shall_not(base: Path, asked: dict[str, Any]) -> None:
    rows = [replace(row, label=float(number)) for number, row in enumerate(ROWS)] if "kind" in asked else ROWS
    request = FinetuneRequest(load_model(base), rows, "classification", own_text=True, views=("ngrams",))
    assert finetune(replace(request, **asked)).model.finetuned.task.sentences == 0


def test_without_shards_or_with_few_texts_there_is_none(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    with monkeypatch.context() as patch:
        patch.setattr(finetune_knowledge, "LEAST_TEXTS", 1000)
        assert taught(copy, Notes()).model.finetuned.task.sentences == 0
    shutil.rmtree(copy / "tokens")
    assert taught(copy, Notes()).model.finetuned.task.sentences == 0


def test_a_damaged_shard_is_named(base: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    shard = next((copy / "tokens").glob("train-*.bin"))
    data = bytearray(shard.read_bytes())
    data[10] ^= 1
    shard.write_bytes(data)
    with refused(shard.name, "--unlabelled none"):
        taught(copy, Notes())


def test_gone_on_with_it_is_the_same_run(base: Path, tmp_path: Path) -> None:
    made = taught(base, Notes(), out=tmp_path / "run")
    notes = Notes()
    again = taught(base, notes, out=tmp_path / "run", resume=True)
    assert made.model.views is not None and again.model.views is not None
    assert np.array_equal(made.model.views.bias, again.model.views.bias)
    assert not any("sentences" in said for said in notes.notes)


def test_views_alone_learn_from_the_text_that_they_are_given(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_alone, "LEAST_TEXT", 1000)
    base = Base(system="views", text=(str(text),), minutes=0.05)
    sets = ("tokenizer.least=1", "objective.lsa=0", "model.width=8")
    request = FinetuneRequest(base, ROWS, "classification", out=tmp_path / "run", own_text=True, sets=sets)
    assert finetune(request).model.finetuned.task.sentences >= 200
    notes = Notes()
    finetune(replace(request, resume=True), notes)
    assert not any("sentences" in said or "unlabelled" in said for said in notes.notes), notes.notes
    alone = replace(request, base=replace(base, text=()), out=None)
    assert finetune(alone).model.finetuned.task.sentences == 0, "the rows' own texts have labels"
