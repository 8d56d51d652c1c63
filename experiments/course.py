"""The course of an experiment that is a list of numbers to measure: it begins or goes on, measures cell by cell within
a limit of time, and ends in a page. What an experiment measures, and what its tables say, is its own.

A cell is a named tuple; its fields, with the scores, the seconds and the commit, are its line of `results.jsonl`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bench.common import arguments_for, commit, head_lines, need_data
from experiments.common import Log, check_settings
from experiments.results import Results
from foretext.cli.output import Stopper
from foretext.errors import Interrupted, UserError
from foretext.runs.report import StopRequest

AGAIN = "give the same command again"
T = TypeVar("T")
C = TypeVar("C", bound=NamedTuple)  # a cell


def options(doc: str | None, name: str, minutes: float | None = None) -> argparse.ArgumentParser:
    """What every such experiment can be told; `minutes`: of its pre-training, if it has one."""
    parser = arguments_for(doc)
    parser.add_argument("--out", type=Path, default=Path("runs") / name, help="goes on if it is there")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--size", default="tiny")
    if minutes is not None:
        parser.add_argument("--minutes", type=float, default=minutes, help="of pre-training")
    return parser


def settled(
    parser: argparse.ArgumentParser, words: Sequence[str] | None, quick: Mapping[str, Sequence[str]]
) -> argparse.Namespace:
    """The options, and where the data is. With --quick a minute pre-training, and the settings of each option that
    `quick` names come before the user's."""
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    if given.quick:
        given.minutes = 0.05
        for name, sets in quick.items():
            setattr(given, name, [*sets, *getattr(given, name)])
    return given


@dataclass(frozen=True)
class Course:
    given: argparse.Namespace  # has `out` and `quick`; `limit`, in minutes, where cells are measured by `measure`
    head: tuple[str, ...]
    results: Results
    log: Log
    stopping: StopRequest

    def go_on(self) -> None:
        """Interrupted, if someone has asked to stop."""
        if self.stopping.requested is not None:
            raise Interrupted(self.stopping.requested, str(self.given.out), AGAIN)

    def measured(self, kind: type[C]) -> dict[C, dict[str, Any]]:
        """The line of each cell that has been measured."""
        wanted = {*kind._fields, "scores"}
        lines = [record for record in self.results.records if wanted <= record.keys()]
        return {kind._make(record[name] for name in kind._fields): record for record in lines}

    def part(self, name: str, work: Callable[[], T]) -> T:
        """What takes time beside the cells, and counts too when it is stopped."""
        begun = time.perf_counter()
        try:
            return work()
        finally:
            self.results.add_part(name, time.perf_counter() - begun, commit())

    def measure(
        self,
        cells: Sequence[C],
        like: Sequence[str],
        score: Callable[[C], dict[str, Any]],
        said: str,
        times: float = 100.0,
    ) -> list[C]:
        """Measures what is not measured yet; returns the cells that the limit left over. `score` gives what a line
        has beside the cell, among it `scores`, of which `said` is told, so many `times` (100: per cent); cells that
        agree in the fields `like` take about as long as one another."""
        left: list[C] = []
        for cell in cells:
            known = self.measured(type(cell))
            if cell in known:
                continue
            if self.results.seconds() + self._expected(cell, like) > 60 * self.given.limit:
                left.append(cell)
                continue
            self.go_on()
            begun = time.perf_counter()
            found = score(cell)
            took = time.perf_counter() - begun
            self.results.append(cell._asdict() | found | {"seconds": round(took, 2), "commit": commit()})
            self.log.note(f"{named(cell)}: {said} {times * found['scores'][said]:.2f} in {took:.1f} s")
        return left

    def _expected(self, cell: C, like: Sequence[str]) -> float:
        same = [
            record["seconds"]
            for known, record in self.measured(type(cell)).items()
            if all(getattr(known, name) == getattr(cell, name) for name in like)
        ]
        return max(same, default=0.0)

    def page(self, tables: Iterable[str], facts: Iterable[str] = (), left: Sequence[NamedTuple] = ()) -> str:
        """What was measured, where and how long, and the tables."""
        lines = [line for line in self.head if not line.startswith("commit")]
        lines += [f"measured at commit: {version}" for version in self.results.commits()]
        lines += facts
        parts: dict[str, float] = {}
        for record in self.results.records:
            if "part" in record:
                parts[record["part"]] = parts.get(record["part"], 0.0) + record["seconds"]
        listed = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in parts.items())
        lines.append(f"minutes: {self.results.seconds() / 60:.1f}" + (f" ({listed})" if listed else ""))
        if left:
            names = "; ".join(named(cell) for cell in left)
            lines.append(f"**not measured**, for the limit of {self.given.limit:g} minutes: {names}")
        if getattr(self.given, "validate", False):
            lines.append("**--validate: scored on training rows that were held out, not on the test**")
        if self.given.quick:
            lines.append("**--quick: too short to mean anything**")
        return "\n".join([*(f"- {line}" for line in lines), *(f"\n{text}" for text in tables)]) + "\n"


def conduct(
    given: argparse.Namespace,
    name: str,
    settings: Sequence[str],
    work: Callable[[Course], str],
    packages: Sequence[str] = ("torch",),
    head: Callable[[], Sequence[str]] = tuple,
) -> int:
    """An experiment from its options to its page, which `work` gives; the exit code. `head`: what else is said at the
    top; it may raise a UserError, before anything is written."""
    try:
        more = head()
        given.out.mkdir(parents=True, exist_ok=True)
        check_settings(given, given.out, settings)
        log = Log(given.out / "log.txt")
        lines = (*head_lines(packages, f"python -m experiments.{name}"), *more)
        for line in lines:
            log.note(line)
        with Stopper(log.note) as stopping:
            text = work(Course(given, lines, Results(given.out / "results.jsonl"), log, stopping))
    except UserError as error:
        print(error, file=sys.stderr)
        return error.code
    except Interrupted as error:
        print(Interrupted(error.code, str(given.out), AGAIN), file=sys.stderr)
        return error.code
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def named(cell: NamedTuple) -> str:
    return ", ".join(str(value) for value in cell)
