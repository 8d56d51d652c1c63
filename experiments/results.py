"""Cells of an experiment, their results as JSON lines, and the table made of them. Nothing here trains.

A cell is one number: a task, how many labels, which draw of them, which method. Each finished one is a line of
`results.jsonl`; a killed run goes on by skipping the cells that have one. A line that was cut off by a kill is passed
over, and so is its cell: it is measured again.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.common import table

TITLES = {"pretrained": "pre-trained", "scratch": "from scratch", "tfidf": "TF-IDF"}  # of methods; the first is ours
LAST = ("scratch",)  # what a cut-off may take
TEXT = "bits per byte"  # the part in which a pre-trained model is asked about texts that it has not seen
OPTIONS = ("task.epochs", "task.hold_out", "task.words")  # written like settings, but none of fine-tuning's


@dataclass(frozen=True)
class Cell:
    task: str
    labels: int
    draw: int
    method: str


def plan_cells(
    tasks: Mapping[str, Sequence[int]], draws: Mapping[str, int], methods: Iterable[str] = tuple(TITLES)
) -> list[Cell]:
    """All cells of `tasks` (name → numbers of labels): what a cut-off must not take first, draw by draw."""
    names = list(methods)
    first, last = [name for name in names if name not in LAST], [name for name in names if name in LAST]
    return [
        Cell(task, count, draw, method)
        for group in (first, last)
        for draw in range(max(draws.values()))
        for task, counts in tasks.items()
        if draw < draws[task]
        for count in counts
        for method in group
    ]


class Results:
    """`results.jsonl`: one line for each finished cell, and one for each other part that took time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_bytes().splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict) and "seconds" in record:
                    self.records.append(record)

    def append(self, record: dict[str, Any]) -> None:
        """Writes and syncs a line; an unfinished line before it is ended first."""
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)

    def add_cell(self, cell: Cell, accuracy: float, seconds: float, commit: str) -> None:
        self.append(asdict(cell) | {"accuracy": accuracy, "seconds": round(seconds, 2), "commit": commit})

    def add_part(self, name: str, seconds: float, commit: str, figures: Mapping[str, Any] | None = None) -> None:
        """`figures`: what was found in it, if anything was."""
        found = {} if figures is None else {"figures": dict(figures)}
        self.append({"part": name, "seconds": round(seconds, 2), "commit": commit} | found)

    def figures(self, part: str) -> dict[str, Any] | None:
        """What was found in a part; None: it has not been made yet, or nothing was."""
        found = (record["figures"] for record in self.records if record.get("part") == part and "figures" in record)
        return next(found, None)

    def accuracies(self) -> dict[Cell, float]:
        cells = (record for record in self.records if "accuracy" in record)
        return {
            Cell(record["task"], record["labels"], record["draw"], record["method"]): record["accuracy"]
            for record in cells
        }

    def seconds(self) -> float:
        return sum(record["seconds"] for record in self.records)

    def expected_seconds(self, cell: Cell) -> float:
        """What the cell will take: the longest like it so far, from scratch and pre-trained being alike."""
        training = cell.method != "tfidf"
        like = [
            record["seconds"]
            for record in self.records
            if (record.get("task"), record.get("labels")) == (cell.task, cell.labels)
            and (record["method"] != "tfidf") == training
        ]
        return max(like, default=0.0)

    def seconds_by_part(self, methods: Mapping[str, str] = TITLES) -> dict[str, float]:
        """By the names of parts, and of cells by task and title of the method."""
        parts: dict[str, float] = {}
        for record in self.records:
            name = record.get("part") or f"{record['task']}, {methods.get(record['method'], record['method'])}"
            parts[name] = parts.get(name, 0.0) + record["seconds"]
        return parts

    def commits(self) -> list[str]:
        return list(dict.fromkeys(record["commit"] for record in self.records))


def spread(values: Sequence[float], sign: bool = False) -> str:
    """Mean ± standard deviation over draws, in per cent."""
    if not values:
        return "–"
    mean = 100 * statistics.fmean(values)
    text = f"{mean:+.1f}".replace("-", "−") if sign else f"{mean:.1f}"
    return f"{text} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else text


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Differences over the draws that both have."""
    return [first[draw] - second[draw] for draw in sorted(first.keys() & second.keys())]


def result_table(
    accuracies: Mapping[Cell, float], titles: Mapping[str, str], methods: Mapping[str, str] = TITLES
) -> str:
    """Accuracy in per cent by task and number of labels, and paired differences of the first method and each other.

    `titles` and `methods`: what to call tasks and methods, in the order in which they come.
    """
    ours, *others = methods
    groups: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    for cell, accuracy in accuracies.items():
        group = groups.setdefault((cell.task, cell.labels), {name: {} for name in methods})
        group[cell.method][cell.draw] = accuracy
    rows = []
    for (task, labels), found in sorted(groups.items(), key=lambda item: (list(titles).index(item[0][0]), item[0][1])):
        rows.append(
            [f"{titles[task]}, {labels:,}", str(max(len(draws) for draws in found.values()))]
            + [spread(list(found[method].values())) for method in methods]
            + [spread(paired(found[ours], found[other]), sign=True) for other in others]
        )
    differences = [f"{methods[ours]} − {methods[other]}" for other in others]
    return table(["accuracy, %; labels", "draws", *methods.values(), *differences], rows)


def text_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """How far each pre-training came, and what it makes of texts that it has not seen: figures by title."""
    rows = [
        [
            title,
            f"{one['updates']:,}",
            f"{one['tokens']:,}",
            f"{one['per_token']:.1f}",
            f"{one['bits_per_byte']:.3f}",
            "yes" if one["comparable"] else "no: its vocabulary loses something of the text",
        ]
        for title, one in found.items()
    ]
    return table(["pre-training", "updates", "tokens", "perplexity per token", TEXT, "comparable"], rows)


def sets_for(given: Iterable[str], task: str, labels: int) -> tuple[str, ...]:
    """The settings that hold for a cell: `section.key=value` for all, `task:…` for a task, `task@100:…` for one size.

    More particular ones come later, so that they win.
    """
    ranked: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for text in given:
        head, colon, rest = text.partition(":")
        if not colon or "=" in head:
            ranked[0].append(text)
        elif head == task:
            ranked[1].append(rest)
        elif head == f"{task}@{labels}":
            ranked[2].append(rest)
    return tuple(setting for level in (0, 1, 2) for setting in ranked[level])


def own_options(sets: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """What of a cell's settings is for the experiment itself (`OPTIONS`; the last counts), and what for fine-tuning."""
    options: dict[str, str] = {}
    rest = []
    for text in sets:
        name, _, value = text.partition("=")
        if name in OPTIONS:
            options[name] = value
        else:
            rest.append(text)
    return options, rest


def first_words(text: str, count: int) -> str:
    """The first `count` words of a longer text; a shorter one as it is."""
    words = text.split(maxsplit=count)
    return text if len(words) <= count else " ".join(words[:count])
