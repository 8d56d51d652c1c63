"""Cross-view training on CoNLL-2000's chunks: what unlabelled text adds to the same tagger.

    python -m experiments.cvt_chunking --data DIR [--out runs/cvt_chunking]

The tagger of `cvt` at size `tiny`, with and without unlabelled text: the same encoder, modules, settings and averaged
weights, as many labelled updates. Labelled: a random tenth of the 8,936 training sentences, and all of them.
Unlabelled: with a tenth the words of the other nine, with all of them IMDb's unlabelled reviews, a sentence a line. F1
of chunks on all 2,012 test sentences; the model reads words, not parts of speech. Beside them the most frequent chunk
of a word. A tenth of the labelled sentences is held out to choose the epoch by; nothing is chosen on test.

The floor that is asked for: with a tenth of the labels, above the same tagger without unlabelled text.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.common import arguments_for, need_data, table
from experiments.course import Course, conduct
from experiments.results import own_options, sets_for
from experiments.token_baselines import tag_table
from foretext.api import new_model
from foretext.tasks.conll import TaggedSentence, read_conll
from foretext.tasks.tag_metrics import score_tags

SETTINGS = ("size", "lines", "set", "quick")
TENTH, ALL = "a tenth", "all"
METHODS = {"cvt": "with unlabelled text", "alone": "without", "word": "tag of the word"}
EPOCHS = {TENTH: 30, ALL: 6}  # with text there are as many unlabelled updates again
LINES = 40_000  # of reviews
HELD_OUT = 0.1
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


class Cell(NamedTuple):
    labels: str
    method: str


def parted(rows: Sequence[TaggedSentence]) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """A random tenth, always the same, and the rest."""
    chosen = set(random.Random("cvt chunking").sample(range(len(rows)), len(rows) // 10))
    return [row for i, row in enumerate(rows) if i in chosen], [row for i, row in enumerate(rows) if i not in chosen]


def review_lines(data: Path, most: int) -> list[str]:
    """Sentences of IMDb's unlabelled reviews, from the first on."""
    found: list[str] = []
    with gzip.open(data / "imdb" / "unsup.txt.gz", "rt", encoding="utf-8") as file:
        for line in file:
            found += [text for text in _SENTENCE.split(line.replace("<br />", " ").strip()) if text]
            if len(found) >= most:
                break
    return found[:most]


def scored(test: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]) -> dict[str, float]:
    return score_tags([row.tags or () for row in test], tags).values


def measure(
    cell: Cell, train: Sequence[TaggedSentence], test: Sequence[TaggedSentence], course: Course
) -> dict[str, float]:
    (labels, method), given, log = cell, course.given, course.log
    few, rest = parted(train)
    rows = few if labels == TENTH else list(train)
    if method == "word":
        counted = tag_table([row.words for row in rows], [row.tags or () for row in rows])
        return scored(test, counted.tag([row.words for row in test]))
    text: list[str] = []
    if method == "cvt":
        text = [" ".join(row.words) for row in rest] if labels == TENTH else review_lines(given.data, given.lines)
    options, sets = own_options(sets_for(given.set, "conll2000", len(rows)))
    epochs = int(options.get("task.epochs", EPOCHS[labels]))
    base = new_model(rows, "cvt", given.size, 0, given.shape, log, "tagging", text)
    model = base.finetune(
        rows,
        task="tagging",
        from_scratch=True,
        epochs=epochs,
        hold_out=HELD_OUT,
        unlabelled=text,
        sets=sets,
        reporter=log,
        stopping=course.stopping,
    )
    return dict(model.evaluate(test, reporter=log).values)


def run(course: Course) -> str:
    given = course.given
    folder = given.data / "conll2000"
    train, test = (read_conll(folder / name, format="conll2000") for name in ("train.txt", "test.txt"))
    if given.quick:
        train, test = train[:100], test[:20]
    cells = [Cell(labels, method) for labels in EPOCHS for method in METHODS]
    left = course.measure(cells, ("labels",), lambda cell: {"scores": measure(cell, train, test, course)}, "f1")
    return course.page([result_table(course.measured(Cell))], left=left)


def result_table(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    rows = []
    for (labels, method), record in found.items():
        scores = [f"{100 * record['scores'][name]:.2f}" for name in ("f1", "precision", "recall", "accuracy")]
        rows.append([f"{labels} of the labels, {METHODS[method]}", *scores, f"{record['seconds']:.0f}"])
    return table(["CoNLL-2000 chunks, %", "F1", "precision", "recall", "accuracy of words", "seconds"], rows)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_for(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/cvt_chunking"), help="goes on if it is there")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--lines", type=int, default=LINES, help="sentences of reviews beside all labels")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    given = parser.parse_args(words)
    given.data, given.shape = need_data(given.data), ()
    if given.quick:
        given.set = ["task.epochs=1", *given.set]
        given.lines, given.shape = 200, ("model.cells=16", "model.upper_cells=16", "model.direction=16")
    return given


def main(words: Sequence[str] | None = None) -> int:
    return conduct(parse(words), "cvt_chunking", SETTINGS, run)


if __name__ == "__main__":
    raise SystemExit(main())
