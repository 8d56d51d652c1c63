"""`finetune --unlabelled` beside views, and every verb on the run that it makes."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from cli_harness import KINDS, fails, works
from complaints import names, refused

import foretext as ft
from foretext.errors import Interrupted
from foretext.runs.report import StopRequest
from foretext.tasks.views import self_training

TEXTS = [f"a {own} film of a {other} story" for own in ("good", "bad", "great") for other in ("lovely", "ugly")]
TEXTS += ["the actor was awful and the scene was poor", "the actor was fine and the scene was bright"]


@pytest.fixture(scope="module")
def text(files: Path) -> Path:
    file = files / "more.txt"
    file.write_text("".join(f"{text}\n" for text in TEXTS * 3))
    return file


@pytest.fixture(scope="module")
def taught(files: Path, base: Path, text: Path) -> Path:
    """A run that keeps what the text has taught, whatever it is worth."""
    run = files / "taught"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_training, "ALLOWED", 1e9)
        works(*asked(files, base), "--unlabelled", text, "--out", run)
    return run


def asked(files: Path, base: Path, views: str = "ngrams") -> tuple[object, ...]:
    return ("finetune", base, files / "cls.csv", "--task", "classification", "--views", views)


def test_what_is_said_and_written(files: Path, base: Path, text: Path, tmp_path: Path) -> None:
    said = works(*asked(files, base), "--unlabelled", text, "--out", tmp_path / "run")
    assert "24 texts;" in said.err
    gained = said.note("unlabelled", "→", "%", "loss")
    kept = gained.endswith(", kept")
    assert kept or gained.endswith(", left out")
    assert (tmp_path / "run" / "views" / "taught.safetensors").exists() == kept
    index = json.loads((tmp_path / "run" / "views" / "views.json").read_text())
    assert index["unlabelled"]["kept"] == kept
    assert ("taught" in index["views"]) == kept


def test_all_verbs_take_it(files: Path, taught: Path, tmp_path: Path) -> None:
    assert "taught" in works("info", taught).out
    said = next(csv.DictReader(io.StringIO(works("predict", taught, "--text", "a good film", "--explain").out)))
    assert "taught" in said["why"] and "ngrams" in said["why"]
    found = json.loads(works("evaluate", taught, files / "cls.csv", "--json").out)
    assert 0 <= found["values"]["accuracy"] <= 1


def test_python_gives_the_same(files: Path, base: Path, taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_training, "ALLOWED", 1e9)
    rows = files / "cls.csv"
    made = ft.load(base).finetune(rows, task="classification", views=["ngrams"], unlabelled=TEXTS * 3)  # type: ignore[union-attr]
    asked_for = ["a good film", "an ugly scene"]
    assert np.allclose(made.predict_proba(asked_for), ft.load(taught).predict_proba(asked_for), atol=1e-5)  # type: ignore[union-attr]


def test_texts_are_read_as_pretrain_reads_them(files: Path, base: Path, tmp_path: Path) -> None:
    """A packed file with blank lines between documents, a table, JSON lines, in a folder."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"a good film\nin two lines\n\na bad film\n"))
    (folder / "b.csv").write_text("number,body\n1,a lovely story\n2,an ugly story\n")
    (folder / "c.jsonl").write_text('{"text": "the actor was fine"}\n')
    said = works(*asked(files, base), "--unlabelled", folder, "--out", tmp_path / "run")
    assert "5 texts;" in said.err
    (folder / "b.csv").write_text("title,body\nOne,a lovely story\nTwo,an ugly story\n")
    given = (*asked(files, base), "--unlabelled", folder / "b.csv")
    names(fails(*given, "--out", tmp_path / "other"), "b.csv", "--text-column")
    assert "2 texts;" in works(*given, "--text-column", "body", "--out", tmp_path / "other").err


def test_going_on(files: Path, base: Path, text: Path, taught: Path) -> None:
    again = (*asked(files, base), "--out", taught, "--resume")
    assert "finished" in works(*again, "--unlabelled", text).err
    names(fails(*again), str(taught), "--unlabelled")


class _Stop(StopRequest):
    """Asked for once the texts are being learned from."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def requested(self) -> int | None:
        self.looks += 1
        return 130 if self.looks > 6 else None


def test_stopped_on_the_way_it_leaves_nothing_and_is_done_again(files: Path, base: Path, tmp_path: Path) -> None:
    model, run = ft.load(base), tmp_path / "run"
    given = {"task": "classification", "views": ["ngrams"], "unlabelled": TEXTS, "out": run}
    with pytest.raises(Interrupted):
        model.finetune(files / "cls.csv", **given, stopping=_Stop())  # type: ignore[union-attr,arg-type]
    assert not (run / "views").exists() and not (run / "config.toml").exists()
    model.finetune(files / "cls.csv", **given, resume=True)  # type: ignore[union-attr,arg-type]
    assert (run / "views" / "head.safetensors").exists()


@pytest.mark.parametrize("kind", ["entailment", "similarity", "choice", "regression"])
def test_other_kinds_are_refused(files: Path, base: Path, text: Path, tmp_path: Path, kind: str) -> None:
    given = ("finetune", base, files / KINDS[kind], "--task", kind, "--views", "ngrams", "--unlabelled", text)
    names(fails(*given, "--out", tmp_path / "run"), "--unlabelled", "classification", kind)
    assert not (tmp_path / "run").exists()


def test_mistakes(files: Path, base: Path, text: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run")
    plain = ("finetune", base, files / "cls.csv", "--task", "classification", "--unlabelled", text)
    names(fails(*plain, *out), "--unlabelled", "--views", "cvt")
    names(fails(*asked(files, base, "states"), "--unlabelled", text, *out), "--unlabelled", "states", "ngrams")
    names(fails(*asked(files, base), "--text-column", "body", *out), "--text-column", "--unlabelled")
    (tmp_path / "signs.txt").write_text("屏幕\n\n价格\n")
    names(fails(*asked(files, base), "--unlabelled", tmp_path / "signs.txt", *out), "--unlabelled")
    (tmp_path / "empty.txt").write_text("")
    names(fails(*asked(files, base), "--unlabelled", tmp_path / "empty.txt", *out), "empty.txt", "empty")
    with refused("unlabelled"):
        ft.load(base).finetune(files / "cls.csv", task="classification", views=["ngrams"], unlabelled="a text")  # type: ignore[union-attr]
    assert not (tmp_path / "run" / "views").exists()
