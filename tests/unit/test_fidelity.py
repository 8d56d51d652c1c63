"""The page of claims is true: all of them in order, files and tests that exist, states with their reasons, counts."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "fidelity.md"
CLAIMS = 67
STATES = ("done", "in part", "not done")


@dataclass(frozen=True)
class Row:
    number: str
    claim: str
    code: str
    held_by: str
    state: str

    @property
    def paths(self) -> list[str]:
        return re.findall(r"\]\(\.\./([^)\s]+)\)", self.code)

    @property
    def tests(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.held_by)

    @property
    def word(self) -> str:
        return self.state.partition(":")[0].strip()

    @property
    def reason(self) -> str:
        return self.state.partition(":")[2].strip()


def rows_of(text: str) -> list[Row]:
    """The rows of the table, without its head; `\\|` is no border."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert cells[0] == ["number", "claim", "code", "held by", "state"]
    assert all(len(row) == 5 for row in cells), "each row has five cells"
    return [Row(*row) for row in cells[2:]]


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))


@cache
def functions_of(path: str) -> frozenset[str]:
    """The functions at the top of a file of tests."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_claim_stands_once_and_in_order() -> None:
    assert [row.number for row in ROWS] == [str(number) for number in range(1, CLAIMS + 1)]
    assert len({row.claim for row in ROWS}) == CLAIMS and all(row.claim for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_a_row_names_what_exists(row: Row) -> None:
    assert row.word in STATES
    assert bool(row.reason) == (row.word != "done"), "what is missing is said, and nothing else"
    assert row.word == "not done" or (row.paths and row.tests), "code, and a test that holds it"
    assert len(row.paths) == row.code.count("`") / 2, "every file is a link"
    for path in row.paths:
        assert (ROOT / path).is_file(), f"{row.number}: {path} does not exist"
    for test in row.tests:
        named = re.fullmatch(r"(tests/[\w/]+\.py)::(test_\w+)", test)
        assert named, f"{row.number}: {test} is no tests/path.py::test_function"
        assert (ROOT / named[1]).is_file(), f"{row.number}: {named[1]} does not exist"
        assert named[2] in functions_of(named[1]), f"{row.number}: {named[1]} has no {named[2]}"


def test_the_counts_are_right() -> None:
    said = re.search(r"(\d+) claims: (\d+) are done, (\d+) in part, (\d+) not done", PAGE.read_text(encoding="utf-8"))
    assert said
    counts = [sum(row.word == state for row in ROWS) for state in STATES]
    assert [int(number) for number in said.groups()] == [CLAIMS, *counts] and sum(counts) == CLAIMS


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_it_is_found_from_the_first_page(page: str) -> None:
    assert "(docs/fidelity.md)" in (ROOT / page).read_text(encoding="utf-8")
