"""The view `tuned`: what a fine-tuned trunk says of a row, learned from trunks that have not seen the row."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from complaints import refused
from systems_under_test import base_model, stopping_after

from foretext.errors import Interrupted
from foretext.runs.directory import RunDirectory
from foretext.runs.model import encode, example_scores, load_model
from foretext.runs.report import Reporter
from foretext.runs.views import view_scores
from foretext.task_model import TaskModel
from foretext.tasks.family import TaskConfig, family_of
from foretext.tasks.files.rows import Row
from foretext.tasks.views.base import Fold
from foretext.train.finetuning import finetune_views as module
from foretext.train.finetuning.finetune import FinetuneRequest, finetune

VIEWS = ("ngrams", "tuned")
SETS = ("training.batch_size=8", "training.micro_batch=3", "training.save_seconds=0.0")


def classified(count: int = 24) -> list[Row]:
    draw = random.Random(0)
    rows = []
    for number in range(count):
        word = draw.choice(["good", "bad"])
        rows.append(Row((f"it is {draw.choice('abcdefgh')} {word}",), word, f"row {number + 1}"))
    return rows


def asked(rows: list[Row], kind: str = "classification", system: str = "gpt", **more: Any) -> FinetuneRequest:
    return FinetuneRequest(base_model(system), rows, kind, views=VIEWS, epochs=2, sets=SETS, **more)


ROWS = {
    "classification": classified(),
    "similarity": [Row((f"a {n}", f"b {n}"), "yes" if n % 2 else "no", f"row {n}") for n in range(16)],
    "choice": [Row(("which", "one", f"two {n}", *(["three"] if n % 3 else [])), n % 2, f"row {n}") for n in range(12)],
    "regression": [Row((f"number {n}",), float(n), f"row {n}") for n in range(12)],
}


@pytest.mark.parametrize(("system", "kind"), [*(("gpt", kind) for kind in ROWS), ("bert", "classification")])
def test_a_run_with_it_says_the_same_when_loaded(system: str, kind: str, tmp_path: Path) -> None:
    rows = ROWS[kind]
    made = finetune(asked(rows, kind, system, out=tmp_path / "run"))
    assert made.how == f"{len(rows)} rows by cross-validation" and made.validated is not None
    loaded = load_model(tmp_path / "run")
    assert loaded.views is not None and loaded.views.names[-1] == "tuned"
    for own, other in zip(view_scores(made.model, rows), view_scores(loaded, rows)):
        assert np.array_equal(own, other)
    assert len(TaskModel(loaded, None).predict(rows)) == len(rows)
    assert "tuned" in TaskModel(loaded, None).explain(rows)[0]


def test_each_row_is_scored_by_a_trunk_that_was_fine_tuned_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to fine-tunings of the other rows alone, bit for bit."""
    seen: list[tuple[Fold, list[np.ndarray]]] = []

    def kept(folds: Any, fold_scores: Any, writer: Any) -> list[np.ndarray]:
        seen.extend((fold, fold_scores(number, fold)) for number, fold in enumerate(folds))
        return real(folds, fold_scores, writer)

    real = module.out_of_fold
    monkeypatch.setattr("foretext.train.finetuning.finetune.out_of_fold", kept)
    rows = ROWS["classification"]
    request = asked(rows)
    finetune(request)
    assert sorted(np.concatenate([fold[1] for fold, _ in seen])) == list(range(len(rows)))
    (learned, left), said = seen[0]
    alone = finetune(replace(request, rows=[rows[row] for row in learned], valid=[], views=())).model
    examples = encode([rows[row] for row in left], alone, Reporter()).examples
    assert np.array_equal(np.array(example_scores(alone, examples)), np.array(said))


def test_the_trunk_of_the_run_has_learned_all_rows() -> None:
    rows = ROWS["classification"]
    own = finetune(asked(rows)).model.trunk.state_dict()
    plain = finetune(replace(asked(rows), views=(), valid=[])).model.trunk.state_dict()
    assert all(np.array_equal(own[name], plain[name]) for name in plain)


def test_folds_share_out_classes_and_never_part_copies() -> None:
    labels = ["a", "b", "b", "b"] * 10
    groups = [n // 2 for n in range(40)]
    config = TaskConfig("classification", labels=("a", "b"))

    def rows_of(texts: list[int]) -> list[Row]:
        return [Row((f"text {text}",), label, "") for text, label in zip(texts, labels)]

    folds = module.folds_for(rows_of(groups), config, seed=3)
    assert len(folds) == module.FOLDS
    for learned, left in folds:
        assert not set(learned) & set(left) and len(learned) + len(left) == 40
        assert not {groups[n] for n in learned} & {groups[n] for n in left}
        assert Counter(labels[n] for n in left)["a"] in (2, 3)
    with refused("tuned"):
        module.folds_for(rows_of([0] * 40), config, seed=3)


def test_outputs_of_units() -> None:
    logits = [np.array([3.0, 1.0]), np.array([0.0, 4.0])]
    unit_outputs = family_of("classification").view_task().outputs
    assert unit_outputs(logits, ROWS["classification"][:2], "classification").tolist() == [[1, -1], [-2, 2]]
    rows = [Row(("c", "x", "y"), 0, "1"), Row(("c", "x", "y", "z"), 0, "2")]
    scores = [np.array([1.0, 3.0, -1e9]), np.array([0.0, 3.0, 6.0])]  # the first has no third choice
    assert unit_outputs(scores, rows, "choice").ravel().tolist() == [-1, 1, -3, 0, 3]
    assert unit_outputs([np.array(2.0)], rows[:1], "regression").tolist() == [[2.0]]


@pytest.mark.parametrize("steps", [2, 8, 13, 27])  # in the first fold, in the second, in the third, in the run's own
def test_stopped_and_gone_on_with_it_is_the_run_that_was_never_stopped(steps: int, tmp_path: Path) -> None:
    rows = ROWS["classification"]
    whole = finetune(asked(rows, out=tmp_path / "whole"))
    request = asked(rows, out=tmp_path / "stopped", resume=True)
    with stopping_after(steps) as stop, pytest.raises(Interrupted):
        finetune(request, stopping=stop)
    notes: list[int] = []

    class Steps(Reporter):
        def work(self, title: str, done: int, total: int) -> None:
            notes.append(done if title.startswith("fine-tuning, fold") else 0)

    made = finetune(request, Steps())
    assert made.validated == whole.validated
    first, second = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "stopped")
    assert first.names() == second.names()
    for name in first.names():
        if name.endswith(".safetensors"):
            assert first.read(name) == second.read(name), name


@pytest.mark.parametrize("better", ["states", "tuned"])
def test_states_or_tuned_whichever_cross_validation_finds_better(
    better: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One side is made to say the labels, the other to say nothing."""
    rows = ROWS["classification"]
    truth = np.array([[1.0, -1.0] if row.label == "bad" else [-1.0, 1.0] for row in rows])
    monkeypatch.setattr(
        "foretext.train.finetuning.finetune.out_of_fold", lambda *_: list(truth if better == "tuned" else 0 * truth)
    )
    if better == "states":
        place = {row.texts[0]: said for row, said in zip(rows, truth)}
        monkeypatch.setattr(
            "foretext.runs.views.text_states", lambda model, texts, progress: np.array([place[text] for text in texts])
        )
    asked_both = replace(asked(rows, out=tmp_path / "run"), views=("states", "tuned"))
    notes: list[str] = []

    class Notes(Reporter):
        def note(self, text: str) -> None:
            notes.append(text)

    made = finetune(asked_both, Notes())
    assert made.model.views is not None and made.model.views.names == [better]
    kept = {"states": "the trunk is as pre-trained", "tuned": "the trunk is fine-tuned"}[better]
    assert sum(text.startswith(kept) for text in notes) == 1
    loaded = load_model(tmp_path / "run").finetuned
    assert loaded.views is not None and loaded.views.kinds == (better,) and loaded.trains == (better == "tuned")
    again = finetune(replace(asked_both, resume=True), Notes())
    assert "finished" in notes[-1] and again.model.views is not None and again.model.views.names == [better]


@pytest.mark.parametrize("looked_at", ["states", "states and tuned"])
def test_a_trunk_that_adds_nothing_is_left_out(looked_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-grams say the labels. A user who says how the trunk is trained gets one that is."""
    rows = ROWS["classification"]
    monkeypatch.setattr(
        "foretext.runs.views.text_states", lambda model, texts, progress: np.ones((len(texts), 4), np.float32)
    )
    request = replace(asked(rows, out=tmp_path / "run"), views=("ngrams", "states", "tuned"))
    with monkeypatch.context() as patch:
        place = "foretext.train.finetuning.finetune."
        if looked_at == "states":
            patch.setattr(place + "out_of_fold", lambda *_: pytest.fail("fine-tuned"))
        else:  # as if the states had looked promising
            patch.setattr(module.ViewsFitting, "worth_tuning", lambda *_: True)
            patch.setattr(place + "out_of_fold", lambda *_: [np.zeros(2)] * len(rows))
        made = finetune(request).model
    assert made.views is not None and made.views.names == ["ngrams"]
    loaded = load_model(tmp_path / "run")
    assert loaded.finetuned.trains is False and loaded.views is not None and loaded.views.names == ["ngrams"]
    assert not RunDirectory(tmp_path / "run").has("model.safetensors")
    assert finetune(replace(request, resume=True)).model.views is not None
    trained = finetune(replace(asked(rows), views=("ngrams", "tuned"))).model
    assert trained.views is not None and trained.views.names == ["ngrams", "tuned"]


def test_where_rare_classes_count_they_are_predicted() -> None:
    """A word says a little of the label, too little to predict the rare class of any row by its probability."""
    draw = random.Random(2)
    rows = []
    for number in range(150):
        rare = number % 5 == 0
        hint = "hint" if draw.random() < (0.95 if rare else 0.3) else "none"
        text = " ".join([hint, *(draw.choice("abcdefghij") for _ in range(5))])
        rows.append(Row((text,), "rare" if rare else "often", f"row {number}"))
    request = replace(asked(rows), views=("ngrams",), epochs=None, sets=())
    plain, counted = (finetune(replace(request, metric=metric)).model for metric in (None, "matthews"))
    said = [TaskModel(model, None).predict(rows).count("rare") for model in (plain, counted)]
    assert said[0] < said[1] < 90
