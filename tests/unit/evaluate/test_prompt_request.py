"""Options of `prompt` and `evaluate`: which apply to what, before a model is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from complaints import refused

from foretext.evaluate.options import (
    CHOSEN,
    TASKS,
    Concern,
    EvaluatedOn,
    EvaluationOptions,
    PromptRequest,
    check_options,
    kind_of_rows,
    task_of_columns,
)
from foretext.evaluate.prompting import questions_of
from foretext.tasks.files.rows import Row

NONE = dict.fromkeys(
    ("--template", "--words", "--seeds", "--shots", "--examples", "--good", "--format", "--language", "--out")
)


@pytest.mark.parametrize(
    ("columns", "named", "task"),
    [
        (("text", "label"), (), "classification"),
        (("review", "label"), ("text",), "classification"),
        (("text", "summary", "label"), (), "summary"),
        (("premise", "hypothesis"), (), "entailment"),
        (("text",), (), "last-word"),
        (("text", "other"), (), None),
    ],
)
def test_columns_tell_the_task(columns: tuple[str, ...], named: tuple[str, ...], task: str | None) -> None:
    assert task_of_columns(columns, named) == task


def test_options_that_a_task_does_not_have() -> None:
    for task in TASKS:
        check_options(task, NONE)
    check_options("choice", NONE | {"--out": Path("a.jsonl"), "--shots": "1"})
    with refused("--words", "classification", "choice"):
        check_options("choice", NONE | {"--words": "1=good"})
    with refused("'poem'", "last-word"):
        check_options("poem", NONE)


def test_numbers_of_examples() -> None:
    assert PromptRequest("choice", "0,2,0,1").numbers == [0, 2, 1]
    for wrong in ("", "1,x", "0,-1"):
        with refused("--shots", "0,1,5"):
            PromptRequest("choice", wrong)
    assert kind_of_rows("winograd") == "choice" and kind_of_rows("answer") is kind_of_rows("last-word") is None


def test_rows_are_drawn_in_their_order_and_others_stay() -> None:
    rows = [Row((f"text {number}",), "ab"[number % 2], f"row {number}") for number in range(20)]
    questions = questions_of(PromptRequest("classification", rows=5), rows)
    numbers = [rows.index(row) for row in questions.rows]
    assert len(set(numbers)) == 5 and numbers == sorted(numbers)
    assert questions.others == rows and not questions.others_given
    assert "classification" in CHOSEN and questions.template is not None
    assert questions_of(PromptRequest("acceptability", rows=50), rows, rows[:3]).rows == rows


class _Run:
    """A run that is evaluated on something."""

    path = Path("run")

    def __init__(self, evaluated_on: EvaluatedOn, inapplicable: dict[Concern, str]) -> None:
        self.evaluated_on, self.inapplicable = evaluated_on, inapplicable


def options(translations: dict[str, object] | None = None, **concerns: Any) -> EvaluationOptions:
    given: dict[Concern, dict[str, object]] = {"text": {}, "rows": {}, "tasks": {}, "classes": {}}
    return EvaluationOptions({**given, **concerns}, translations or {})


def test_options_that_a_run_does_not_have() -> None:
    run = _Run("rows", {"text": "is for text, but run reads rows"})
    options(text={"--stride": None}, rows={"--format": "sst2"}).check(run, "a.csv")
    with refused("--stride", "run"):
        options(text={"--stride": 3}).check(run, "a.csv")
    with refused("--source", "--target", "a.txt"):
        options().check(_Run("translations", {}), "a.txt")


def test_files_of_translations() -> None:
    source, target = Path("a.en"), Path("a.de")
    assert options().translation_files([], source, target) == (source, target)
    assert options().translation_files(["a.txt"], None, None) is None
    with refused("--target"):
        options().translation_files([], source, None)
    with refused("a.txt", "--source"):
        options().translation_files(["a.txt"], source, target)
    with refused("--metric", "translations"):
        options(tasks={"--metric": "f1"}).translation_files([], source, target)
    with refused("--beams", "--source"):
        options({"--beams": 2}).translation_files(["a.txt"], None, None)
