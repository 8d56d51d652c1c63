"""The course of an experiment: each cell once, the limit, what is left over, stopping, and the page."""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from complaints import names

from experiments.course import AGAIN, Course, conduct
from experiments.results import Results
from foretext.errors import UserError


class Cell(NamedTuple):
    task: str
    method: str


CELLS = [Cell(task, method) for task in ("a", "b") for method in ("ours", "theirs")]
SCORES = {"scores": {"f1": 0.5}}


def options(out: Path, limit: float = 45.0) -> argparse.Namespace:
    return argparse.Namespace(out=out, quick=False, limit=limit, size="tiny")


def measuring(
    asked: list[Cell], score: Callable[[Cell], dict[str, Any]] = lambda cell: SCORES
) -> Callable[[Course], str]:
    def work(course: Course) -> str:
        def noted(cell: Cell) -> dict[str, Any]:
            asked.append(cell)
            return score(cell)

        left = course.measure(CELLS, ("task",), noted, "f1")
        return course.page([f"{len(course.measured(Cell))} cells"], ["a fact"], left)

    return work


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    asked: list[Cell] = []

    def broken(cell: Cell) -> dict[str, Any]:
        if cell == CELLS[2]:
            raise UserError("the third cell fails")
        return SCORES

    assert conduct(options(tmp_path), "test", ("size",), measuring(asked, broken)) == 2
    assert asked == CELLS[:3] and not (tmp_path / "table.md").exists()
    asked.clear()
    assert conduct(options(tmp_path), "test", ("size",), measuring(asked)) == 0
    assert asked == CELLS[2:]
    records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [Cell(record["task"], record["method"]) for record in records] == CELLS
    page = (tmp_path / "table.md").read_text()
    assert "- a fact\n" in page and page.endswith("\n\n4 cells\n")


def test_cells_that_would_pass_the_limit_are_left_and_named(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.append({**CELLS[0]._asdict(), **SCORES, "seconds": 50.0, "commit": "c"})
    asked: list[Cell] = []
    assert conduct(options(tmp_path, limit=1.5), "test", ("size",), measuring(asked)) == 0
    assert asked == CELLS[2:], "one like the first would pass the limit"
    names((tmp_path / "table.md").read_text(), " 1.5 minutes", ": a, theirs\n")


def test_a_part_that_is_stopped_has_taken_its_time(tmp_path: Path) -> None:
    def work(course: Course) -> str:
        def fails() -> None:
            raise UserError("stopped")

        course.part("pre-training", fails)
        return ""

    assert conduct(options(tmp_path), "test", ("size",), work) == 2
    assert [record["part"] for record in Results(tmp_path / "results.jsonl").records] == ["pre-training"]


def test_stopping_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(cell: Cell) -> dict[str, Any]:

        os.kill(os.getpid(), signal.SIGTERM)
        return SCORES

    asked: list[Cell] = []
    assert conduct(options(tmp_path), "test", ("size",), measuring(asked, stopped)) == 143
    assert asked == CELLS[:1], "the cell that was begun is finished and kept"
    assert AGAIN in capsys.readouterr().err
    assert len(Results(tmp_path / "results.jsonl").records) == 1


def test_what_is_missing_is_said_before_anything_is_written(tmp_path: Path) -> None:
    def missing() -> list[str]:
        raise UserError("not installed")

    assert conduct(options(tmp_path / "out"), "test", ("size",), lambda course: "", head=missing) == 2
    assert not (tmp_path / "out").exists()
