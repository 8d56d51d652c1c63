"""`finetune ROWS --system views`: words and topics of text, and the head over them, in one command."""

from __future__ import annotations

import csv
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_harness import BAD, GOOD, KINDS, OTHER, fails, foretext, works
from complaints import names, refused

import foretext as ft
from foretext.cli.app import spread
from foretext.errors import Interrupted
from foretext.runs.model import model_of_state, model_state
from foretext.runs.report import StopRequest
from foretext.tasks.views.rows import viewed_rows
from foretext.train.finetuning import views_alone
from foretext.train.finetuning.views_alone import LEARNING

SMALL = ["--set", "model.width=8", "--set", "objective.lsa=5", "--set", "tokenizer.least=1"]
TASK = ["--system", "views", "--task", "classification"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty rows with a word each that only its own row has, so that n-grams alone are of no use."""
    folder = tmp_path_factory.mktemp("rows")
    draw = random.Random(1)
    words = {
        "pos": [f"{word}{i}" for word in GOOD for i in "xyz"],
        "neg": [f"{word}{i}" for word in BAD for i in "xyz"],
    }
    documents = [
        " ".join(draw.choices(words[side], k=4) + draw.choices(OTHER, k=4)) for side in words for _ in range(900)
    ]
    draw.shuffle(documents)
    (folder / "text.txt").write_text("\n".join(documents) + "\n")
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *((f"the film was {own}", side) for side in words for own in words[side])]
        )
    return folder


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short text is enough."""
    monkeypatch.setattr(views_alone, "LEAST_TEXT", 1000)


@pytest.fixture
def no_pretraining(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> Path:
        raise AssertionError("it learns again")

    monkeypatch.setattr(views_alone, "pretrain", never)


def test_one_command(rows: Path, tmp_path: Path, little: None) -> None:
    run = tmp_path / "run"
    said = works("finetune", rows / "rows.csv", *TASK, "--text", rows / "text.txt", *SMALL, "--out", run)
    assert "by cross-validation" in said.out and "held out" not in said.err
    index = json.loads((run / "views" / "views.json").read_text())
    assert set(index["views"]) - {"taught"} == {"ngrams", "lsa", "vectors"}, "the text may teach one more"
    assert index["scored"]["accuracy"] > 0.9 > index["baselines"]["TF-IDF + logistic regression"]
    assert not (run / LEARNING).exists(), "what it was learned from goes"
    works("predict", run, rows / "rows.csv", "--out", tmp_path / "said.csv", "--explain")
    assert json.loads(works("evaluate", run, rows / "rows.csv", "--json").out)["values"]["accuracy"] > 0.9
    assert "learned from text" in works("info", run).out
    again = ("finetune", rows / "rows.csv", *TASK, "--text", rows / "text.txt", *SMALL, "--out", run)
    assert "finished" in works(*again, "--resume").err
    names(fails(*again), "run", "--resume")
    (tmp_path / "other.csv").write_text((rows / "rows.csv").read_text().replace("the film", "a film"))
    names(fails(again[0], tmp_path / "other.csv", *again[2:], "--resume"), "rows")


def test_it_is_the_two_commands(rows: Path, tmp_path: Path, little: None) -> None:
    """And Python's one: the same words, topics and head. On one thread vectors are the same each time."""
    works("pretrain", rows / "text.txt", "--system", "word2vec", "--minutes", 1, *SMALL, "--out", tmp_path / "vectors")
    works("finetune", tmp_path / "vectors", rows / "rows.csv", "--task", "classification", "--out", tmp_path / "two")
    sets = SMALL[1::2]
    one = ft.finetune(rows / "rows.csv", task="classification", text=rows / "text.txt", sets=sets)
    two = ft.load(tmp_path / "two")
    texts = ["the film was goodx", "a sady story"]
    np.testing.assert_array_equal(one.predict_proba(texts), two.predict_proba(texts))  # type: ignore[union-attr]
    documents = (rows / "text.txt").read_text().splitlines()
    three = ft.finetune(rows / "rows.csv", task="classification", documents=documents, sets=sets)
    np.testing.assert_allclose(three.predict_proba(texts), one.predict_proba(texts), atol=1e-6)


def test_the_rows_own_texts(rows: Path, tmp_path: Path, little: None) -> None:
    said = works("finetune", rows / "rows.csv", *TASK, *SMALL, "--out", tmp_path / "run")
    assert "n-grams alone" in said.err
    long = tmp_path / "long.csv"
    with long.open("w", newline="") as file:
        lines = (rows / "text.txt").read_text().splitlines()
        csv.writer(file).writerows([("text", "label"), *((line, "ab"[line < "h"]) for line in lines[:200])])
    works("finetune", long, *TASK, *SMALL, "--out", tmp_path / "own")
    assert "vectors" in json.loads((tmp_path / "own" / "views" / "views.json").read_text())["views"]


def test_too_little_text(rows: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    said = works("finetune", rows / "rows.csv", *TASK, "--text", rows / "text.txt", "--out", run)
    said.note("200,000", "n-grams", "--text")
    assert json.loads((run / "views" / "views.json").read_text())["views"] == ["ngrams"]
    names(
        fails("finetune", rows / "rows.csv", *TASK, "--views", "ngrams,lsa", "--out", tmp_path / "x"),
        *("--views lsa", "200,000", "--text"),
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--text", "nowhere.txt"], ["nowhere.txt"]),
        (["--views", "states"], ["states", "run"]),
        (["--views", "none"], ["--views none"]),
        (["--epochs", "3"], ["--epochs"]),
        (["--vectors", "x"], ["--vectors", "RUN"]),
        (["--set", "nonsense.key=1"], ["nonsense"]),
        (["--minutes", "-1", "--text", "TEXT"], ["--minutes", "-1"]),
        (["--set", "model.width=0", "--text", "TEXT"], ["model.width"]),
        (["--size", "huge"], ["huge", "tiny"]),
        (["--views", "lsa", "--text", "TEXT", "--set", "objective.lsa=0"], ["--views lsa"]),
    ],
    ids=lambda one: one[0] if one[0].startswith("-") else "",
)
def test_mistakes(rows: Path, tmp_path: Path, little: None, options: list[str], parts: list[str]) -> None:
    given = [str(rows / "text.txt") if one == "TEXT" else one for one in options]
    names(fails("finetune", rows / "rows.csv", *TASK, *given, "--out", tmp_path / "run"), *parts)
    assert not (tmp_path / "run").exists()


def test_mistakes_in_what_is_named(rows: Path, files: Path, base: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.csv"
    one.write_text("text,label\n" + "a film,pos\n" * 8)
    names(fails("finetune", one, *TASK, "--out", tmp_path / "x"), "'pos'")
    classes = ("--task", "classification", "--out", tmp_path / "x")
    names(fails("finetune", base, files / "cls.csv", *classes, "--text", one), "--text", "--system views")
    names(fails("finetune", base, files / "cls.csv", *classes, "--minutes", 1), "--minutes", "--system views")
    names(fails("finetune", rows / "rows.csv", one, *TASK, "--text", one), "--text", str(rows / "rows.csv"))
    names(fails("finetune", rows / "rows.csv", "--system", "view", *classes), "views")
    names(fails("pretrain", one, "--system", "views", "--steps", 1), "finetune", "--system views")
    (tmp_path / "tags.txt").write_text("a A\nb B\n\nb B\na A\n" * 6)
    tags = ("finetune", tmp_path / "tags.txt", "--system", "views", "--task", "tagging", "--out", tmp_path / "x")
    names(fails(*tags), "--system views", "tagging")
    assert not (tmp_path / "x").exists()
    names(fails("finetune"), "--system views")


def test_stopped_between_and_gone_on(
    rows: Path, tmp_path: Path, little: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """What is learned of the text is kept, and is no run; going on learns nothing again."""
    run = tmp_path / "run"
    command = ("finetune", rows / "rows.csv", *TASK, "--text", rows / "text.txt", *SMALL, "--out", run)

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(viewed_rows, "fit_views", interrupted)
        assert foretext(*command).code == 130
    assert [path.name for path in run.iterdir()] == [LEARNING]
    names(fails("predict", run, "--text", "a"), "run")
    names(fails(*command), "run", "--resume")
    request.getfixturevalue("no_pretraining")
    other = tmp_path / "other.txt"
    other.write_text("another text\n" * 200)
    names(fails(*(other if part == rows / "text.txt" else part for part in command), "--resume"), "data.inputs")
    works(*command, "--resume")
    assert not (run / LEARNING).exists()
    works("predict", run, "--text", "a")


class _AtOnce(StopRequest):
    @property
    def requested(self) -> int | None:
        return 130


def test_a_signal_while_learning_names_the_run(rows: Path, tmp_path: Path, little: None) -> None:
    with pytest.raises(Interrupted) as stopped:
        ft.finetune(
            rows / "rows.csv",
            task="classification",
            text=rows / "text.txt",
            out=tmp_path / "run",
            sets=SMALL[1::2],
            stopping=_AtOnce(),
        )
    assert LEARNING not in str(stopped.value)


def test_other_rows_own_texts_are_refused(rows: Path, tmp_path: Path, little: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(views_alone, "LEAST_TEXT", 100)
    run = tmp_path / "run"

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(viewed_rows, "fit_views", interrupted)
        foretext("finetune", rows / "rows.csv", *TASK, *SMALL, "--out", run)
    other = tmp_path / "other.csv"
    other.write_text((rows / "rows.csv").read_text().replace("film", "play"))
    for _ in range(2):
        with refused(str(run), "rows"):
            ft.finetune(other, task="classification", out=run, sets=SMALL[1::2], resume=True)
    ft.finetune(rows / "rows.csv", task="classification", out=run, sets=SMALL[1::2], resume=True)


@pytest.mark.parametrize("kind", ["entailment", "similarity", "choice", "regression"])
def test_every_kind_of_rows(rows: Path, files: Path, tmp_path: Path, little: None, kind: str) -> None:
    run, own = tmp_path / "run", files / KINDS[kind]
    works("finetune", own, "--text", rows / "text.txt", "--system", "views", "--task", kind, *SMALL, "--out", run)
    assert "vectors" in json.loads((run / "views" / "views.json").read_text())["views"]
    works("predict", run, own, "--out", tmp_path / "said.csv", "--explain")
    assert json.loads(works("evaluate", run, own, "--json").out)


def test_text_of_several_files(rows: Path, tmp_path: Path, little: None) -> None:
    """As a shell writes a pattern out, as a pattern, and one by one."""
    lines = (rows / "text.txt").read_text().splitlines(keepends=True)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(3):
        (texts / f"part{number}.txt").write_text("".join(lines[number::3]))
    parts = [str(texts / f"part{number}.txt") for number in range(3)]
    given = {
        "shell": ["--text", *parts],
        "pattern": ["--text", str(texts / "part*.txt")],
        "folder": ["--text", str(texts)],
        "single": ["--text", parts[0], "--text", parts[1], "--text", parts[2]],
    }
    out = tmp_path / "runs"
    for name, options in given.items():
        works("finetune", rows / "rows.csv", *options, *TASK, *SMALL, "--out", out / name)
    found = [ft.load(out / name).predict_proba(["a sady story", "goodx"]) for name in given]  # type: ignore[union-attr]
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])
    behind = ("finetune", "--text", parts[0], rows / "rows.csv", *TASK, *SMALL, "--out", out / "behind")
    works(*behind)


def test_spread_leaves_other_commands_alone() -> None:
    assert spread(["predict", "RUN", "--text", "a", "b"]) == ["predict", "RUN", "--text", "a", "b"]
    assert spread(["finetune", "R", "--text", "a", "b", "--out", "o", "c"]) == [
        *("finetune", "R", "--text", "a", "--text", "b", "--out", "o", "c")
    ]
    assert spread([]) == [] and spread(["finetune"]) == ["finetune"]


def test_killed_while_learning(rows: Path, tmp_path: Path) -> None:
    """kill -9: no run is there, and `--resume` makes one."""
    text, run = tmp_path / "long.txt", tmp_path / "run"
    text.write_text((rows / "text.txt").read_text() * 3)
    command = ["finetune", str(rows / "rows.csv"), *TASK, "--text", str(text), *SMALL, "--out", str(run)]
    slow = ["--set", "objective.epochs=1000", "--minutes", "5"]
    start = [sys.executable, "-c", "from foretext.cli.app import main; main()", *command, *slow]
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    began = time.monotonic()
    while not (run / LEARNING / "run" / "manifest.json").exists() and time.monotonic() - began < 120:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    names(fails("predict", run, "--text", "a"), "run")
    works(*command, "--set", "objective.epochs=1000", "--minutes", "0.02", "--resume")
    works("predict", run, "--text", "a")
    assert not (run / LEARNING).exists()


def test_no_trunk_is_kept_where_none_is_read(rows: Path, tmp_path: Path, little: None) -> None:
    """Nor loaded: its weights take no memory."""
    run = tmp_path / "run"
    works("finetune", rows / "rows.csv", *TASK, "--text", rows / "text.txt", *SMALL, "--out", run)
    assert not (run / "model.safetensors").exists()
    model = ft.load(run)
    assert isinstance(model, ft.TaskModel)
    assert all(parameter.is_meta for parameter in model.model.trunk.parameters())
    kept = pickle.loads(pickle.dumps(model_state(model.model)))
    texts = ["the film was goodx", "the film was sady", ""]
    again = ft.TaskModel(model_of_state(kept), None)
    np.testing.assert_array_equal(again.predict_proba(texts[:2]), model.predict_proba(texts[:2]))


def test_rows_are_scored_some_at_a_time(
    rows: Path, tmp_path: Path, little: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ft.finetune(rows / "rows.csv", task="classification", text=rows / "text.txt", sets=SMALL[1::2])
    texts = [f"{word}x {word}y {word}z" for word in GOOD + BAD]
    whole, why = model.predict_proba(texts), model.explain(texts)
    monkeypatch.setattr(viewed_rows.ViewedRows, "at_a_time", 5)
    heard: list[tuple[int, int]] = []
    parts = model.predictions(texts, progress=lambda done, total: heard.append((done, total)))
    np.testing.assert_allclose(parts.probabilities, whole, atol=1e-6)
    assert heard == [(5, 12), (10, 12), (12, 12)]
    assert all(word in line for line, word in zip(why, GOOD + BAD)) and len(why) == len(texts)
    assert [line.count(";") for line in model.explain(texts)] == [line.count(";") for line in why]
