"""What `finetune` says of its own score: that it was chosen by, how sure it is, and what is cheap beside it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_harness import works

from foretext.cli.output import show_baselines
from foretext.tasks.family import TaskConfig
from foretext.tasks.files.rows import Row
from foretext.tasks.scores.metrics import Scores, wilson
from foretext.tasks.views import baselines as module
from foretext.tasks.views.baselines import Baseline, baselines, watched_baselines

CONFIG = TaskConfig(kind="classification", labels=("a", "b"))
ROWS = [Row((f"{'good' if i % 2 else 'bad'} film {i}",), "ab"[i % 2], f"row {i}") for i in range(40)]


def test_the_best_of_several_epochs_is_called_so(files: Path, base: Path, tmp_path: Path) -> None:
    command = ("finetune", base, files / "cls.csv", "--task", "classification")
    said = works(*command, "--epochs", 3, "--out", tmp_path / "three").out
    assert "3 epochs" in said and "optimistic" in said
    assert "majority class" in said and "TF-IDF" in said and "95 %" in said
    assert "optimistic" not in works(*command, "--epochs", 1, "--out", tmp_path / "one").out
    none = works(*command, "--epochs", 2, "--hold-out", 0, "--out", tmp_path / "none").out
    assert "optimistic" not in none and "TF-IDF" not in none, "there is no score"


def test_json_has_it_too(files: Path, base: Path, tmp_path: Path) -> None:
    command = ("finetune", base, files / "cls.csv", "--task", "classification", "--epochs", 2, "--json")
    found = json.loads(works(*command, "--out", tmp_path / "run").out)
    assert found["epochs_compared"] == 2
    assert found["interval"] == pytest.approx(wilson(found["values"]["accuracy"], found["rows"]))
    assert set(found["baselines"]) == {"majority class", "TF-IDF + logistic regression"}
    again = json.loads(works(*command, "--out", tmp_path / "run", "--resume").out)
    assert again["interval"] == found["interval"] and again["epochs_compared"] == 2


def test_views_compare_no_epochs(files: Path, base: Path, tmp_path: Path) -> None:
    command = ("finetune", base, files / "cls.csv", "--task", "classification", "--views", "ngrams")
    found = json.loads(works(*command, "--json", "--out", tmp_path / "run").out)
    assert found["epochs_compared"] == 1 and "cross-validation" in found["of"]
    assert found["interval"] == pytest.approx(wilson(found["values"]["accuracy"], found["rows"]))
    assert json.loads((tmp_path / "run" / "views" / "views.json").read_text())["interval"] == found["interval"]


def test_other_metrics_have_an_interval(files: Path, base: Path, tmp_path: Path) -> None:
    command = ("finetune", base, "--task", "regression", "--views", "ngrams", "--json")
    found = json.loads(works(*command[:2], files / "reg.csv", *command[2:], "--out", tmp_path / "run").out)
    low, high = found["interval"]
    assert low < found["values"]["pearson"] < high and found["baselines"] == {}


@pytest.mark.parametrize(
    ("best", "words"),
    [(0.90, "better"), (0.80, "within the interval"), (0.79, "within the interval"), (0.70, "")],
)
def test_a_baseline_that_is_as_good_is_said(best: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 rows .80 are right: the interval begins at .739."""
    lines: list[str] = []
    monkeypatch.setattr(typer, "echo", lines.append)
    scores = Scores("f1", {"f1": 0.2, "accuracy": 0.8}, 200)
    show_baselines(scores, [Baseline("majority class", 0.5, "accuracy"), Baseline("TF-IDF", best, "accuracy")])
    assert len(lines) == (3 if words else 2)
    assert words in lines[-1] and ("within" in lines[-1]) == (words == "within the interval")


def test_long_texts_have_no_tfidf(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [one.name for one in baselines(CONFIG, ROWS, ROWS[:10], 0)]
    assert names == ["majority class", "TF-IDF + logistic regression"]
    characters = sum(len(row.texts[0]) for row in ROWS)
    monkeypatch.setattr(module, "MOST_CHARACTERS", characters)
    assert [one.name for one in baselines(CONFIG, ROWS, ROWS[:10], 0)] == names
    assert [one.name for one in baselines(CONFIG, ROWS, [], 0)] == names[:1], "five folds read it five times"


class _Stop(Exception):
    pass


def test_a_signal_does_not_wait_for_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "baselines", lambda *given: time.sleep(60))
    monkeypatch.setattr(module, "_LOOK", 0.01)
    heard: list[Any] = []

    def work(title: str, done: int, total: int) -> None:
        heard.append(title)
        if len(heard) == 3:
            raise _Stop

    with pytest.raises(_Stop):
        watched_baselines(CONFIG, ROWS, [], 0, work)
    assert len(heard) == 3


def test_what_goes_wrong_in_a_baseline_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> list[Baseline]:
        raise ValueError("broken")

    assert watched_baselines(CONFIG, ROWS, [], 0, lambda *given: None) == baselines(CONFIG, ROWS, [], 0)
    monkeypatch.setattr(module, "baselines", broken)
    with pytest.raises(ValueError, match="broken"):
        watched_baselines(CONFIG, ROWS, [], 0, lambda *given: None)
