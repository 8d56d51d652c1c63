"""Cross-view training on CoNLL-2000's chunks: what unlabelled text adds to the same tagger.

    python -m experiments.cvt_chunking --data DIR [--out runs/cvt_chunking]

The tagger of `cvt` at size `tiny`, with and without unlabelled text: the same encoder, modules, settings, vocabulary
and averaged weights, as many labelled updates. The vocabulary has the words of the labelled sentences that are trained
on and the most frequent words of GloVe, whose vectors of 50 both start with. Labelled: a random tenth of the 8,936
training sentences, in three draws, and all of them. Unlabelled: with a tenth the words of the other nine, with all of
them IMDb's unlabelled reviews, a sentence a line. F1 of chunks on all 2,012 test sentences; the model reads words, not
parts of speech. Beside them the most frequent chunk of a word. A tenth of the labelled sentences is held out to choose
the epoch by; nothing is chosen on test.

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

from bench.common import need_data, table
from experiments.chunks import few_sentences
from experiments.course import Course, conduct, options
from experiments.results import own_options, paired, sets_for, spread
from experiments.token_baselines import tag_table
from foretext.api import new_model
from foretext.tasks.family import family_of
from foretext.tasks.files.conll import TaggedSentence, read_conll
from foretext.tasks.scores.tag_metrics import score_tags

SETTINGS = ("size", "lines", "validate", "set", "quick")
TENTH, ALL = "a tenth", "all"
METHODS = {"cvt": "with unlabelled text", "alone": "without", "word": "tag of the word"}
DRAWS = {TENTH: 3, ALL: 1}
EPOCHS = {TENTH: 30, ALL: 12}  # with text there are as many unlabelled updates again
VECTORS = ("glove", "glove.6B.50d.top50k.txt.gz")
LINES = 40_000  # of reviews
HELD_OUT = 0.1
VALIDATED, VALIDATION_SEED = 2000, 7  # training sentences that --validate scores
PART = 0.1  # of the training sentences, the fewer labels
SCORES = ("f1", "precision", "recall", "accuracy")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


class Cell(NamedTuple):
    labels: str
    draw: int
    method: str


def plan(validate: bool = False) -> list[Cell]:
    """What is asked for first, draw by draw; of a validation the tenth alone."""
    wanted = {TENTH: DRAWS[TENTH]} if validate else DRAWS
    return [
        Cell(labels, draw, method) for labels, draws in wanted.items() for draw in range(draws) for method in METHODS
    ]


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
    (labels, draw, method), given, log = cell, course.given, course.log
    few, rest = few_sentences(train, PART, draw)
    if given.validate:
        random.Random(VALIDATION_SEED).shuffle(rest)
        scored_ones = min(VALIDATED, len(rest) // 2)
        test, rest = rest[:scored_ones], rest[scored_ones:]
    rows = few if labels == TENTH else list(train)
    if method == "word":
        counted = tag_table([row.words for row in rows], [row.tags or () for row in rows])
        return scored(test, counted.tag([row.words for row in test]))
    text: list[str] = []
    if method == "cvt":
        text = [" ".join(row.words) for row in rest] if labels == TENTH else review_lines(given.data, given.lines)
    options, sets = own_options(sets_for(given.set, "conll2000", len(rows)))
    epochs = int(options.get("task.epochs", EPOCHS[labels]))
    learned = family_of("tagging").hold_out(rows, HELD_OUT, draw).train
    vectors = given.data.joinpath(*VECTORS)
    base = new_model(learned, "cvt", given.size, draw, given.shape, log, "tagging", vectors=vectors)
    model = base.finetune(
        rows,
        hold_out=HELD_OUT,  # the same ones
        task="tagging",
        seed=draw,
        from_scratch=True,
        epochs=epochs,
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
    left = course.measure(
        plan(given.validate), ("labels", "method"), lambda cell: {"scores": measure(cell, train, test, course)}, "f1"
    )
    found = course.measured(Cell)
    return course.page([result_table(found), difference_table(found)], left=left)


def result_table(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    """Mean ± standard deviation over draws."""
    rows = []
    for labels, method in dict.fromkeys((cell.labels, cell.method) for cell in found):
        own = [record for cell, record in found.items() if (cell.labels, cell.method) == (labels, method)]
        scores = [spread([record["scores"][name] for record in own]) for name in SCORES]
        seconds = sum(record["seconds"] for record in own) / len(own)
        rows.append([f"{labels} of the labels, {METHODS[method]}", str(len(own)), *scores, f"{seconds:.0f}"])
    heads = ["CoNLL-2000 chunks, %", "draws", "F1", "precision", "recall", "accuracy of words", "seconds each"]
    return table(heads, rows)


def difference_table(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    """What unlabelled text adds to F1, over the draws that both have."""
    rows = []
    for labels in dict.fromkeys(cell.labels for cell in found):
        f1 = {
            method: {
                cell.draw: record["scores"]["f1"]
                for cell, record in found.items()
                if (cell.labels, cell.method) == (labels, method)
            }
            for method in METHODS
        }
        rows.append([f"{labels} of the labels", spread(paired(f1["cvt"], f1["alone"]), sign=True)])
    return table(["F1, with − without unlabelled text", "difference"], rows)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = options(__doc__, "cvt_chunking")
    parser.add_argument("--lines", type=int, default=LINES, help="sentences of reviews beside all labels")
    parser.add_argument(
        "--validate",
        action="store_true",
        help="a tenth alone; scores 2,000 training sentences that are neither labelled nor read, not the test",
    )
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
