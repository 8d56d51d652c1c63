"""`finetune --views`, and every verb on the run that it makes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from cli_harness import KINDS, fails, works
from complaints import names
from safetensors.numpy import load_file, save_file

import foretext as ft


@pytest.fixture(scope="module")
def views(files: Path, base: Path) -> Path:
    run = files / "views"
    works("finetune", base, files / "cls.csv", "--task", "classification", "--views", "ngrams,states", "--out", run)
    return run


def test_the_plan_and_the_scores(files: Path, base: Path, tmp_path: Path) -> None:
    said = works(
        *("finetune", base, files / "cls.csv", "--task", "classification", "--views", "ngrams,states"),
        *("--out", tmp_path / "run"),
    )
    assert "by cross-validation" in said.out
    assert "TF-IDF" in said.out and "majority" in said.out
    assert "held out" not in said.err  # all rows are learned from
    written = {path.name for path in (tmp_path / "run" / "views").iterdir()}
    assert written == {"views.json", "head.safetensors", "ngrams.safetensors", "states.safetensors"}
    assert not (tmp_path / "run" / "loss.png").exists()


def test_all_verbs_take_it(files: Path, views: Path, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((files / "cls.csv").read_text())))
    works("predict", views, files / "cls.csv", "--out", tmp_path / "said.csv")
    said = list(csv.DictReader(io.StringIO((tmp_path / "said.csv").read_text())))
    assert len(said) == len(rows)
    right = np.mean([one["prediction"] == row["label"] for one, row in zip(said, rows)])
    found = json.loads(works("evaluate", views, files / "cls.csv", "--json").out)
    assert found["values"]["accuracy"] == pytest.approx(right)
    shown = works("info", views).out
    assert "ngrams" in shown and "states" in shown and "trunk is not fine-tuned" in shown
    assert works("tokens", views, "a text").out


def test_it_is_not_exported(views: Path, tmp_path: Path) -> None:
    """Its trunk's own head has learned nothing."""
    names(fails("export", views, "--out", tmp_path / "hf"), "--views none")
    assert not (tmp_path / "hf").exists()


def test_explain(views: Path) -> None:
    said = next(csv.DictReader(io.StringIO(works("predict", views, "--text", "a good film", "--explain").out)))
    assert "ngrams" in said["why"] and "states" in said["why"]


def test_explain_needs_views(clf: Path) -> None:
    names(fails("predict", clf, "--text", "a text", "--explain"), "--explain", "--views")


def test_python_gives_the_same(files: Path, base: Path, views: Path) -> None:
    made = ft.load(base).finetune(files / "cls.csv", task="classification", views=("ngrams", "states"))  # type: ignore[union-attr]
    loaded = ft.load(views)
    texts = ["a good film", "nothing at all", ""]
    assert np.allclose(made.predict_proba(texts[:2]), loaded.predict_proba(texts[:2]), atol=1e-5)  # type: ignore[union-attr]


def test_finished_is_said(files: Path, base: Path, views: Path) -> None:
    again = ("finetune", base, files / "cls.csv", "--task", "classification", "--views", "ngrams,states")
    assert "finished" in works(*again, "--out", views, "--resume").err


@pytest.mark.parametrize(
    ("options", "place", "remedy"),
    [
        (("--views", "nonsense"), "nonsense", "ngrams"),
        (("--views", "vectors"), "vectors", "--vectors"),
        (("--views", "lsa"), "lsa", "--vectors"),
        (("--views", ","), "--views", "none"),
    ],
)
def test_mistakes(files: Path, base: Path, tmp_path: Path, options: tuple[str, ...], place: str, remedy: str) -> None:
    said = fails("finetune", base, files / "cls.csv", "--task", "classification", *options, "--out", tmp_path / "run")
    names(said, place, remedy)
    assert not (tmp_path / "run").exists()


def test_files_that_do_not_fit_are_refused(views: Path, tmp_path: Path) -> None:
    """A head for other terms, its hash made to match."""
    import hashlib
    import shutil

    run = tmp_path / "run"
    shutil.copytree(views, run)
    head = run / "views" / "head.safetensors"
    tensors = load_file(head)
    save_file({name: own[:-1] if name.startswith("weight.ngrams") else own for name, own in tensors.items()}, head)
    manifest = json.loads((run / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        data = (run / name).read_bytes() if (run / name).exists() else None
        if data is not None:
            entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest))
    names(fails("predict", run, "--text", "a text"), "views", "restore")


@pytest.mark.parametrize("kind", ["entailment", "similarity", "choice", "regression"])
def test_every_kind_of_rows(files: Path, base: Path, tmp_path: Path, kind: str) -> None:
    run, rows = tmp_path / "run", files / KINDS[kind]
    works("finetune", base, rows, "--task", kind, "--views", "ngrams,states", "--out", run)
    works("predict", run, rows, "--out", tmp_path / "said.csv", "--explain")
    assert json.loads(works("evaluate", run, rows, "--json").out)


def test_a_tuned_trunk_among_the_views(files: Path, base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    asked = (
        "finetune",
        base,
        files / "cls.csv",
        "--task",
        "classification",
        "--views",
        "ngrams,tuned",
        "--epochs",
        "2",
    )
    said = works(*asked, "--out", run)
    assert "folds" in said.err and "by cross-validation" in said.out
    shown = works("info", run).out
    assert "tuned" in shown and "finished" in shown and "not fine-tuned" not in shown
    works("predict", run, files / "cls.csv", "--out", tmp_path / "said.csv", "--explain")
    assert "finished" in works(*asked, "--out", run, "--resume").err
    named = works(*asked, "--valid", files / "cls.csv", "--out", tmp_path / "named")
    assert "validation rows" in named.out
    both = works(*asked[:5], "--views", "states,tuned", "--epochs", "2", "--out", tmp_path / "both")
    assert "the trunk is" in both.err and "as pre-trained" in both.err, "cross-validation chooses one of them"


def test_spans_have_no_view_of_states(base: Path, tmp_path: Path) -> None:
    answers = [{"text": "cat", "answer_start": 2}]
    passage = {"context": "a cat sat", "qas": [{"id": "1", "question": "who sat?", "answers": answers}]}
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"title": "", "paragraphs": [passage]}]}))
    said = fails("finetune", base, tmp_path / "squad.json", "--task", "span", "--views", "states", "--out", "x")
    names(said, "--views states", "span", "ngrams,vectors")
