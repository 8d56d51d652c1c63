"""What the benchmarks share: the head of a report, markdown tables, the data folder, and workers that take turns.

Each side of a comparison lives in a process of its own, so that nothing process-wide that one side sets (the
allocator, threads, random numbers) reaches the other. The processes stay alive and are asked in turn, so that noise
of the machine hits both sides.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import multiprocessing
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents

ROOT = Path(__file__).resolve().parents[1]
T = TypeVar("T")


# -- the report ------------------------------------------------------------------------------------------------------


def arguments_for(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark and experiment has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes, to see that it runs")
    found = os.environ.get("FORETEXT_DATA")
    parser.add_argument("--data", type=Path, default=Path(found) if found else None, help="or FORETEXT_DATA")
    return parser


def draw(items: Sequence[T], n: int, seed: int) -> list[T]:
    """`n` of the items at random, in their order."""
    chosen = random.Random(f"foretext-split-{seed}").sample(range(len(items)), n)
    return [items[place] for place in sorted(chosen)]


def need_data(folder: Path | None) -> Path:
    if folder is None or not folder.is_dir():
        raise SystemExit(f"the data folder {folder} is not there: give --data DIR or set FORETEXT_DATA")
    return folder


def commit() -> str:
    """The commit that is measured, marked if the files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        dirty = " with uncommitted changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "HEAD") + dirty
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def head_lines(packages: Sequence[str], command: str) -> list[str]:
    """Machine, versions, commit, command."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    threads = os.environ.get("OMP_NUM_THREADS")
    return [
        f"machine: {processor()}, {cores()} cores" + (f", OMP_NUM_THREADS={threads}" if threads else ""),
        f"versions: Python {platform.python_version()}, {versions}",
        f"commit: {commit()}",
        f"command: {command} {' '.join(_own_words(sys.argv[1:]))}".rstrip(),
    ]


def print_head(title: str, packages: Sequence[str], quick: bool = False) -> None:
    print(f"\n## {title}\n")
    for line in head_lines(packages, f"python -m bench.{Path(sys.argv[0]).stem}"):
        print(f"- {line}")
    if quick:
        print("- **--quick: too short to mean anything**")
    print(flush=True)


def _own_words(words: Sequence[str]) -> list[str]:
    """The command line without the names of folders of this machine."""
    stand_ins = {"--data": "DIR", "--out": "RUN", "--base": "RUN"}
    found = []
    for before, word in zip(["", *words], words):
        name, equals, _ = word.partition("=")
        found.append(f"{name}={stand_ins[name]}" if equals and name in stand_ins else stand_ins.get(before, word))
    return found


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; the first column is text, the others are numbers."""
    marks = ["---"] + ["---:"] * (len(columns) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [columns, marks, *rows])


def ratio_cell(ratio: float, target: float, at_most: bool = False) -> tuple[str, str]:
    """The ratio, and the target with whether it is met."""
    met = ratio <= target if at_most else ratio >= target
    return f"{ratio:.2f}", f"{'≤' if at_most else '≥'} {target:g} {'met' if met else '**missed**'}"


# -- data ------------------------------------------------------------------------------------------------------------


def reviews(data: Path, count: int | None = None) -> Iterator[str]:
    """IMDb's unlabelled reviews."""
    files = find_files([data / "imdb" / "unsup.txt.gz"])
    return islice(read_documents(files, ReadOptions(), ReadReport()), count)


# -- sides that take turns ---------------------------------------------------------------------------------------------


class _NoMoreTurns(BaseException):
    """Ends a worker from inside whatever library it is running; not an Exception, so that none swallows it."""


class Turns:
    """A worker's view: `begin` waits to be asked, `end` answers with the seconds since and whatever else it has."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.asked: Any = None
        self._begun = 0.0

    def begin(self) -> Any:
        try:
            self.asked = self.connection.recv()
        except EOFError:
            raise _NoMoreTurns from None
        self._begun = time.perf_counter()
        return self.asked

    def end(self, answer: Any = None) -> None:
        self.connection.send(("done", time.perf_counter() - self._begun, answer))


Side = Callable[[Any, Turns], None]  # (specification, turns); never returns by itself


class Worker:
    """A side in a process of its own."""

    def __init__(self, side: Side, specification: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(side, specification, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, question: Any = None) -> tuple[float, Any]:
        """One turn: its seconds and its answer."""
        self.connection.send(question)
        try:
            kind, seconds, answer = self.connection.recv()
        except EOFError:
            raise SystemExit("a worker ended without an answer (out of memory?)") from None
        if kind == "failed":
            raise SystemExit(f"a worker failed:\n{answer}")
        return seconds, answer

    def close(self) -> None:
        self.connection.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.terminate()


def _work(side: Side, specification: Any, connection: Connection) -> None:
    try:
        side(specification, Turns(connection))
    except _NoMoreTurns:
        pass
    except BaseException:
        connection.send(("failed", 0.0, traceback.format_exc()))


def repeat(turns: Turns, once: Callable[[], object]) -> None:
    """The usual side: asked for n, it does `once` n times."""
    while True:
        for _ in range(turns.begin()):
            once()
        turns.end()


def alternate(sides: Mapping[str, tuple[Side, Any]], rounds: int, question: Any = None) -> dict[str, list[float]]:
    """Seconds of each turn of each side, the sides alternating; one more turn at the beginning is not counted."""
    workers = {name: Worker(*side) for name, side in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for number in range(rounds + 1):
            for name, worker in workers.items():
                took, _ = worker.ask(question)
                if number:
                    seconds[name].append(took)
    finally:
        for worker in workers.values():
            worker.close()
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in seconds.items()}
