"""`finetune --task span` by views, and every verb on the run that it makes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from cli_harness import fails, works
from complaints import names
from safetensors.numpy import load_file, save_file

SPAN = ("--task", "span")
VECTORS = ("--set", "model.width=8", "--set", "objective.lsa=3", "--set", "training.batch_size=300", "--threads", 1)


def squad(path: Path, count: int, impossible: bool = False) -> Path:
    """A passage with a name and a year, and a question for each; of every third nobody knows where it was."""
    paragraphs = []
    for number in range(count):
        who, year = ("Ann Stone", "Bob", "Cid")[number % 3], str(1900 + number)
        context = f"{'The old ' * (number % 2)}{who} saw it in {year} again. It rained."
        qas = [
            {"id": f"who{number}", "question": "Who saw it?", "answers": [at(who, context)]},
            {"id": f"when{number}", "question": "When was it seen?", "answers": [at(year, context)]},
        ]
        if impossible:
            qas.append({"id": f"where{number}", "question": "Where did Zoe go?", "answers": [], "is_impossible": True})
        paragraphs.append({"context": context, "qas": qas})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return path


def at(text: str, context: str) -> dict[str, object]:
    return {"text": text, "answer_start": context.index(text)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spans")
    squad(folder / "qa.json", 24)
    text = [f"the old {who} saw it in 19{year} ." for who in ("ann", "bob", "cid") for year in range(10, 40)] * 8
    (folder / "text.txt").write_text("\n".join(text) + "\n")
    works("pretrain", folder / "text.txt", "--system", "word2vec", "--minutes", 1, *VECTORS, "--out", folder / "words")
    return folder


@pytest.fixture(scope="module")
def views(folder: Path) -> Path:
    said = works("finetune", folder / "words", folder / "qa.json", *SPAN, "--out", folder / "run")
    assert "by cross-validation" in said.out
    return folder / "run"


def test_a_word2vec_run_has_views_without_being_asked(views: Path) -> None:
    written = {path.name for path in (views / "views").iterdir()}
    assert written == {"views.json", "head.safetensors", "ngrams.safetensors", "vectors.safetensors"}
    assert not (views / "model.safetensors").exists()
    shown = works("info", views).out
    assert "ngrams" in shown and "vectors" in shown and "f1" in shown


def test_predict_and_evaluate(folder: Path, views: Path, tmp_path: Path) -> None:
    found = json.loads(works("evaluate", views, folder / "qa.json", "--json").out)
    assert found["values"]["f1"] > 0.9
    works("predict", views, folder / "qa.json", "--out", tmp_path / "said.json")
    assert json.loads((tmp_path / "said.json").read_text())["when7"] == "1907"
    works("predict", views, folder / "qa.json", "--out", tmp_path / "said.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert sum(one["probability"] for one in rows[0]["candidates"]) == pytest.approx(1, abs=1e-4)


def test_a_long_passage_and_its_places(views: Path) -> None:
    passage = "Nothing was there. " * 2000 + "Bob saw it in 1931 again. " + "It rained. " * 2000
    said = json.loads(works("predict", views, "--text", "When was it seen?", "--text", passage, "--json").out)
    assert said["prediction"] == "1931" == passage[said["start"] : said["end"]]


def test_explain(folder: Path, views: Path, tmp_path: Path) -> None:
    works("predict", views, folder / "qa.json", "--explain", "--out", tmp_path / "why.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "why.csv").read_text())))
    assert len(rows) == 48
    assert all(name in row["why"] for row in rows for name in ("ngrams", "vectors", "length"))
    names(fails("predict", views, folder / "qa.json", "--explain", "--out", tmp_path / "why.json"), "--explain", ".csv")


def test_views_alone_and_questions_without_an_answer(tmp_path: Path) -> None:
    rows, run = squad(tmp_path / "qa.json", 12, impossible=True), tmp_path / "run"
    works("finetune", rows, "--system", "views", *SPAN, "--out", run)
    found = json.loads(works("evaluate", run, rows, "--json").out)["values"]
    assert found["has_answer_f1"] > 0.8 and found["no_answer_f1"] > 0.8
    assert "a question may have no answer" in works("info", run).out
    assert "finished" in works("finetune", rows, "--system", "views", *SPAN, "--out", run, "--resume").err


def test_a_trunk_with_words_beside_it(folder: Path, base: Path, tmp_path: Path) -> None:
    own = tmp_path / "base"
    shutil.copytree(base, own)
    shutil.rmtree(own / "words", ignore_errors=True)
    shutil.copytree(folder / "words", own / "words")
    works("finetune", own, folder / "qa.json", *SPAN, "--out", tmp_path / "views")
    assert (tmp_path / "views" / "views" / "vectors.safetensors").exists()
    works("finetune", own, folder / "qa.json", *SPAN, "--epochs", 1, "--out", tmp_path / "trunk")
    assert not (tmp_path / "trunk" / "views").exists()


@pytest.mark.parametrize("view", ["lsa", "states", "tuned"])
def test_mistakes(folder: Path, tmp_path: Path, view: str) -> None:
    run = tmp_path / "run"
    said = fails("finetune", folder / "words", folder / "qa.json", *SPAN, "--views", view, "--out", run)
    names(said, f"--views {view}", "span", "ngrams,vectors")
    assert not run.exists()


def test_files_that_do_not_fit_are_refused(views: Path, tmp_path: Path) -> None:
    import hashlib

    for name, key in (("vectors", "groups"), ("head", "spans.nothing"), ("ngrams", "counts")):
        run = tmp_path / name
        shutil.copytree(views, run)
        file = run / "views" / f"{name}.safetensors"
        tensors = load_file(file)
        save_file({other: own[:-1].copy() if own.ndim else own for other, own in tensors.items() if other != key}, file)
        manifest = json.loads((run / "manifest.json").read_text())
        entry = manifest["files"][f"views/{name}.safetensors"]
        entry |= {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        (run / "manifest.json").write_text(json.dumps(manifest))
        names(fails("predict", run, "--text", "Who?", "--text", "Ann saw it."), "views", "restore")
