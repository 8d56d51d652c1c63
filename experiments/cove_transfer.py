"""CoVe on real data: a translation model of 30 minutes on Multi30k, and what its encoder is worth on TREC-6.

    python -m experiments.cove_transfer --data DIR [--out runs/cove_transfer]

- **Multi30k**, English to German: 29,000 captions to train on, GloVe's 50,000 most frequent vectors of 50. Scored on
  the 1,000 captions of `test_2016_flickr`: perplexity of a target word and BLEU (sacrebleu), greedy and with 5 beams.
- **TREC-6**: the same task model (a biLSTM with pooling) over [GloVe; CoVe] and over GloVe alone, on a tenth of the
  5,452 questions (three draws) and on all of them; 500 test questions. TF-IDF and logistic regression beside them. A
  tenth of the labels of a draw is held out to choose the epoch by; nothing is chosen on test.

The floor that is asked for: BLEU of at least 15; CoVe above GloVe alone with a tenth of the labels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import foretext as ft
from bench.common import commit, table
from experiments.common import accuracy, drawn_rows, pretraining_lines, texts_of, tfidf
from experiments.course import Course, conduct, options, settled
from experiments.results import own_options, sets_for, spread
from foretext.tasks.files.rows import Row, read_rows
from foretext.tasks.scores.text_metrics import bleu_metric

SETTINGS = ("minutes", "size", "pretrain_set", "set", "quick")
TENTH, ALL = 545, 5452
DRAWS = {TENTH: 3, ALL: 1}
METHODS = {"cove": "GloVe and CoVe", "glove": "GloVe", "tfidf": "TF-IDF"}
# What the task model reads of the encoder: the words' vectors and its states, or the vectors alone.
READ = {"cove": ("transfer.reader.beside=ends",), "glove": ("transfer.reader.beside=lowest",)}
BEAMS = {"greedy": 1, "5 beams": 5}
QUICK_PRETRAINING = ("model.width=32", "objective.embedding=16", "tokenizer.size=2000")


class Cell(NamedTuple):
    method: str
    labels: int
    draw: int


def pretrained(course: Course) -> ft.LanguageModel:
    """Stopped, it goes on."""
    given = course.given
    folder = given.data / "multi30k"
    return course.part(
        "pre-training",
        lambda: ft.pretrain(
            system="cove",
            size=given.size,
            source=folder / "train.en",
            target=folder / "train.de",
            vectors=given.data / "glove" / "glove.6B.50d.top50k.txt.gz",
            minutes=given.minutes,
            out=given.out / "base",
            sets=given.pretrain_set,
            resume=True,
            reporter=course.log,
            stopping=course.stopping,
        ),
    )


def translation_record(name: str, base: ft.LanguageModel, given: argparse.Namespace) -> dict[str, Any]:
    folder = given.data / "multi30k"
    begun = time.perf_counter()
    scores = base.translation_scores(folder / "test_2016_flickr.en", folder / "test_2016_flickr.de", BEAMS[name])
    return {
        "search": name,
        "scores": {"bleu": scores.bleu, "perplexity": scores.perplexity, "pairs": scores.pairs},
        "signature": scores.signature,
        "seconds": round(time.perf_counter() - begun, 2),
        "commit": commit(),
    }


def plan(given: argparse.Namespace) -> list[Cell]:
    """What is asked for first."""
    numbers = [40] if given.quick else [TENTH, ALL]
    return [
        Cell(method, labels, draw) for labels in numbers for draw in range(DRAWS.get(labels, 1)) for method in METHODS
    ]


def measure(
    cell: Cell, train: Sequence[Row], test: Sequence[Row], base: ft.LanguageModel, given: argparse.Namespace
) -> float:
    method, labels, draw = cell
    rows = list(train) if labels >= len(train) else drawn_rows(train, labels, draw)
    if method == "tfidf":
        return accuracy(tfidf(rows, test, "word"), test)
    options, sets = own_options(sets_for(given.set, "trec", labels))
    epochs = options.get("task.epochs")
    model = base.finetune(
        rows,
        task="classification",
        seed=draw,
        hold_out=0.1,
        epochs=None if epochs is None else int(epochs),
        sets=(*READ[method], *sets),
    )
    return accuracy(model.predict(texts_of(test)), test)


def translated(base: ft.LanguageModel, course: Course) -> list[dict[str, Any]]:
    """The scores of both searches; what is there is not done again."""
    known = {record["search"]: record for record in course.results.records if "search" in record}
    for name in BEAMS:
        if name not in known:
            course.go_on()
            known[name] = translation_record(name, base, course.given)
            course.results.append(known[name])
            course.log.note(f"{name}: BLEU {known[name]['scores']['bleu']:.2f} in {known[name]['seconds']:.0f} s")
    return list(known.values())


def run(course: Course) -> str:
    given = course.given
    base = pretrained(course)
    searched = translated(base, course)
    train = read_rows(given.data / "trec" / "train_5500.label", "classification", format="trec")
    test = read_rows(given.data / "trec" / "TREC_10.label", "classification", format="trec")[
        : 40 if given.quick else None
    ]
    left = course.measure(
        plan(given),
        ("method", "labels"),
        lambda cell: {"scores": {"accuracy": measure(cell, train, test, base, given)}},
        "accuracy",
    )
    facts = pretraining_lines({"cove": base}, {"cove": "CoVe"})
    facts += [f"BLEU: {searched[0]['signature']}"]
    return course.page([search_table(searched), task_table(course.measured(Cell))], facts, left)


def search_table(searched: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for record in searched:
        scores = record["scores"]
        figures = [f"{scores['bleu']:.2f}", f"{scores['perplexity']:.2f}", f"{record['seconds']:.0f}"]
        rows.append([record["search"], *figures])
    return table(["Multi30k, en → de", "BLEU", "perplexity", "seconds"], rows)


def task_table(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    rows = []
    for labels in dict.fromkeys(cell.labels for cell in found):
        row = [f"{labels:,} labels"]
        for method in METHODS:
            own = [record["scores"]["accuracy"] for cell, record in found.items() if cell[:2] == (method, labels)]
            row.append(spread(own))
        rows.append(row)
    return table(["TREC-6, accuracy %", *METHODS.values()], rows)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = options(__doc__, "cove_transfer", minutes=30.0)
    parser.add_argument("--pretrain-set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="for fine-tuning")
    return settled(parser, words, {"pretrain_set": QUICK_PRETRAINING, "set": ("task.epochs=1",)})


def _check_bleu() -> tuple[str, ...]:
    """UserError, before the half hour of training, if translations could not be scored."""
    bleu_metric()
    return ()


def main(words: Sequence[str] | None = None) -> int:
    return conduct(parse(words), "cove_transfer", SETTINGS, run, ("torch", "scikit-learn", "sacrebleu"), _check_bleu)


if __name__ == "__main__":
    raise SystemExit(main())
