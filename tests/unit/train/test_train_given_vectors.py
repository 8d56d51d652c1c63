"""Word vectors beside a pre-trained trunk's states, as ELMo's task models read them: [word vector; ELMo's mixture]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import refused
from systems_under_test import SMALL_READER, base_model, pretrain_request, write_text

import foretext as ft
from foretext.batch import Batch
from foretext.runs.model import load_model
from foretext.runs.reading import given_vectors
from foretext.text.words.vectors import WordVectors
from foretext.train.finetuning.finetune import finetune
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest, as_rows
from foretext.train.pretraining.pretrain import pretrain

ROWS = [("The cat likes fish.", "a"), ("The zebra eats grass.", "b"), ("A child sees the sun.", "a"), ("Dog.", "b")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """ELMo, and vectors, of one text."""
    folder = tmp_path_factory.mktemp("runs")
    text = write_text(folder)
    vectors = pretrain(pretrain_request("word2vec", text, folder / "vectors", 5, "model.width=7", "tokenizer.least=1"))
    return pretrain(pretrain_request("elmo", text, folder / "elmo", 2)), vectors


def request_of(elmo: Path, vectors: Path | None, out: Path | None = None, **changes: Any) -> FinetuneRequest:
    given = {"sets": SMALL_READER["elmo"], "epochs": 1, "valid": []} | changes
    rows = as_rows(ROWS, "classification")
    return FinetuneRequest(Base(elmo, vectors=vectors), rows, "classification", out, **given)  # type: ignore[arg-type]


def test_a_task_model_reads_a_words_vector_beside_elmos_mixture(runs: tuple[Path, Path], tmp_path: Path) -> None:
    elmo, vectors = runs
    model = finetune(request_of(elmo, vectors, tmp_path / "run")).model
    own = given_vectors(vectors)
    assert isinstance(own, WordVectors) and model.finetuned.transfer.reader.given == 7
    ids = model.tokenizer.encode("the cat The zebra")
    assert ids[-1] >= model.tokenizer.size, "an unknown word has a number of its own"
    head: Any = model.task
    with torch.no_grad():
        read = head.words(model.trunk.eval(), Batch(torch.tensor([ids])))
    expected = own.rows(["the", "cat", "the", "zebra"])
    np.testing.assert_array_equal(read.vectors_BTD[0].numpy(), expected)
    assert expected[1].any() and not expected[3].any() and len(read.layers) == 3
    texts = [text for text, _ in ROWS]
    again = ft.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(texts), ft.TaskModel(model, None).predict_proba(texts))
    stored: Any = load_model(tmp_path / "run").task
    assert torch.equal(stored.words.given_VE, head.words.given_VE) and not stored.words.given_VE[-1].any()
    other = finetune(request_of(elmo, None)).model
    assert other.finetuned.transfer.reader.given == 0
    assert other.task is not None and not any("given" in name for name in other.task.state_dict())


def test_a_file_does_as_well_and_python_too(runs: tuple[Path, Path], tmp_path: Path) -> None:
    elmo, vectors = runs
    own = given_vectors(vectors)
    assert isinstance(own, WordVectors)
    file = tmp_path / "vectors.txt"
    file.write_text(
        "".join(f"{word} {' '.join(map(repr, row.tolist()))}\n" for word, row in zip(own.words, own.matrix))
    )
    of_run, of_file = (finetune(request_of(elmo, given)).model.task for given in (vectors, file))
    assert of_run is not None and of_file is not None
    for name, tensor in of_run.state_dict().items():
        assert torch.equal(tensor, of_file.state_dict()[name])
    lm = ft.load(elmo)
    assert isinstance(lm, ft.LanguageModel)
    made = lm.finetune(ROWS, task="classification", vectors=vectors, epochs=1, hold_out=0, sets=SMALL_READER["elmo"])
    assert torch.equal(made.model.task.state_dict()["words.given_VE"], of_run.state_dict()["words.given_VE"])


def test_vectors_that_cannot_be_read_are_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    elmo, vectors = runs
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("酒店 0.5 1\n电影 1 2\n")
    for request, parts in (
        (request_of(elmo, foreign), ["foreign.txt"]),
        (request_of(elmo, elmo), [str(elmo), "elmo", "--system word2vec"]),
        (
            request_of(elmo, vectors, sets=("transfer.model=linear",)),
            ["--vectors", "transfer.model=recurrent", "--views ngrams,lsa,vectors,states", "leave --vectors out"],
        ),
        (request_of(elmo, foreign, views=("vectors",)), ["foreign.txt", "--views", "word2vec"]),
        (request_of(elmo, elmo, views=("ngrams",)), [str(elmo), "--views", "word2vec", "elmo;"]),
        (request_of(elmo, None, sets=("transfer.reader.given=3",)), ["transfer.reader.given=3", "--vectors"]),
    ):
        with refused(*parts):
            finetune(request)
    lm = ft.LanguageModel(base_model("gpt"), Path())
    with refused("--vectors", "byte-bpe", "--views ngrams,lsa,vectors,states", "leave --vectors out"):
        lm.finetune(ROWS, task="classification", vectors=foreign)


def test_a_trunk_that_reads_pieces_is_stacked_with_given_vectors(runs: tuple[Path, Path]) -> None:
    lm = ft.LanguageModel(base_model("gpt"), Path())
    stacked = lm.finetune(ROWS, task="classification", vectors=runs[1], epochs=1).model
    assert stacked.views is not None and stacked.finetuned.trains
    assert stacked.views.names == ["ngrams", *(["lsa"] if "lsa" in stacked.views.names else []), "vectors", "tuned"]
    with refused("--vectors"):  # the trunk alone has no use for them
        lm.finetune(ROWS, task="classification", vectors=runs[1], views=())


def test_named_views_are_of_the_vectors_and_no_task_model_reads_them(runs: tuple[Path, Path]) -> None:
    elmo, vectors = runs
    for model in (
        finetune(request_of(elmo, vectors, views=("vectors", "states"), epochs=None, sets=())).model,
        ft.LanguageModel(load_model(elmo), elmo)
        .finetune(ROWS, task="classification", views=("vectors", "states"), vectors=vectors)
        .model,
    ):
        assert model.finetuned.transfer.reader.given == 0 and model.vectors is None
        assert model.views is not None and [view.name for view in model.views.views] == ["vectors", "states"]
    none = finetune(request_of(elmo, vectors, views=())).model
    assert none.views is None and none.finetuned.transfer.reader.given == 7


def test_a_run_of_vectors_reads_others_by_a_task_model(runs: tuple[Path, Path]) -> None:
    """Without --vectors its head is over views, which read none but their own."""
    _, vectors = runs
    made = finetune(request_of(vectors, vectors, sets=("transfer.reader.cells=2",))).model
    assert made.views is None and made.finetuned.transfer.reader.given == 7
    assert finetune(request_of(vectors, None, epochs=None, sets=())).model.views is not None
