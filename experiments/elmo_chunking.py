"""ELMo's features for chunking: a tagger on a frozen biLM against the same tagger without it, on CoNLL-2000.

    python -m experiments.elmo_chunking --data DIR [--out runs/elmo_chunking]

The biLM is pre-trained for 20 minutes on IMDb's unlabelled reviews, and learns no more. Chunk F1 on all 2,012 test
sentences, learned from a random 10 % of the 8,936 training sentences (three draws, the same ones for both methods) and
from all:

- **ELMo**: a biLSTM with a CRF that reads [own vector; γ Σ s_l h_l; own characters] of each token;
- **without**: the same biLSTM with a CRF, which reads [own vector; own characters].

Vectors and characters are learned with the tags in both; words that the training sentences do not have share a vector,
which is learned too. The taggers read words, not parts of speech. Epochs are fixed
and nothing is held out, so that the test chooses nothing; `--validate` scores a part of the training sentences in place
of the test, to choose settings by. The second table has each tagger, and how much of its
mixture each layer is.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import foretext as ft
from bench.common import table
from experiments.chunks import by_method, few_sentences
from experiments.common import pretraining_lines
from experiments.course import Course, conduct, options, settled
from experiments.results import own_options, paired, sets_for, spread
from experiments.token_tasks import QUICK, VALID_PART, parted
from foretext.api import load_language_model
from foretext.tasks.files.conll import TaggedSentence, read_conll
from foretext.tasks.heads.recurrent_models import RecurrentTagging

NAME = "conll2000"
METHODS = {"elmo": "ELMo", "without": "without"}
PART = 0.1  # of the training sentences, the fewer labels
SETTINGS = ("minutes", "size", "base", "pretrain_set", "set", "validate", "quick")
# What both taggers have; `without` takes the mixture away and nothing else.
TAGGER = (
    *("transfer.reader.vectors=50", "transfer.reader.characters=30", "transfer.reader.cells=128"),
    *("training.dropout=0.3", "training.rate=2e-3", "training.batch_size=32"),
)
WITHOUT = ("transfer.reader.mix=false",)
EPOCHS = {"few": 20, "all": 6}
DRAWS = {"few": 3, "all": 1}
QUICK_PRETRAINING = (
    *("model.cells=16", "model.words.width=8", "model.words.filter_widths=1,2", "model.words.filter_counts=8,8"),
    *("model.context=16", "tokenizer.size=2000"),
)
QUICK_TAGGER = ("task.epochs=1", "transfer.reader.cells=8")


class Cell(NamedTuple):
    labels: str  # "few" or "all"
    draw: int  # of the few
    method: str


def plan() -> list[Cell]:
    """What a cut-off must not take first: few labels, where the floor is, draw by draw; then all."""
    return [Cell(labels, draw, method) for labels in EPOCHS for draw in range(DRAWS[labels]) for method in METHODS]


# -- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    train: list[TaggedSentence]
    test: list[TaggedSentence]

    def of(self, cell: Cell) -> list[TaggedSentence]:
        """What the cell's tagger learns from."""
        return few_sentences(self.train, PART, cell.draw)[0] if cell.labels == "few" else self.train


def sentences(given: argparse.Namespace) -> Rows:
    folder = given.data / NAME
    train, test = (read_conll(folder / name, format=NAME) for name in ("train.txt", "test.txt"))
    if given.quick:
        train, test = train[: QUICK["sentences"]], test[: QUICK["test"]]
    if given.validate:
        train, test = parted(train, [" ".join(row.words) for row in train], VALID_PART, f"{NAME} validation")
    return Rows(train, test)


# -- one number ------------------------------------------------------------------------------------------------------


def settings_of(cell: Cell, given: argparse.Namespace) -> tuple[int, list[str]]:
    """Epochs, and what is set; `few:…` and `all:…` hold for one number of labels."""
    sets = [*TAGGER, *(WITHOUT if cell.method == "without" else ()), *sets_for(given.set, cell.labels, 0)]
    options, rest = own_options(sets)
    return int(options.get("task.epochs", EPOCHS[cell.labels])), rest


def measure(cell: Cell, rows: Rows, base: ft.LanguageModel, course: Course) -> dict[str, Any]:
    epochs, sets = settings_of(cell, course.given)
    train = rows.of(cell)
    model = base.finetune(
        train,
        task="tagging",
        seed=cell.draw,
        epochs=epochs,
        hold_out=0.0,
        sets=sets,
        reporter=course.log,
        stopping=course.stopping,
    )
    scores = model.evaluate(rows.test, reporter=course.log).values
    return {"sentences": len(train), "scores": scores, "mixture": mixture(model)}


def mixture(model: ft.TaskModel) -> list[float]:
    """s_l of each layer; nothing where none is read."""
    task = model.model.task
    assert isinstance(task, RecurrentTagging)
    mix = task.model.read.at_input
    return [] if mix is None else [round(share, 4) for share in mix.shares().tolist()]


# -- the run ---------------------------------------------------------------------------------------------------------


def pretrained(course: Course) -> ft.LanguageModel:
    """The biLM; one that was stopped goes on."""
    given = course.given
    if given.base is not None:
        return load_language_model(given.base)
    return course.part(
        "pre-training",
        lambda: ft.pretrain(
            given.data / "imdb" / "unsup.txt.gz",
            system="elmo",
            vectors="none",
            size=given.size,
            minutes=given.minutes,
            out=given.out / "base",
            sets=given.pretrain_set,
            resume=True,
            reporter=course.log,
            stopping=course.stopping,
        ),
    )


def result_table(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    """F1 over the draws, and what the features add to it, paired."""
    rows = []
    for labels in EPOCHS:
        count, scores = by_method(found, labels, METHODS)
        if not count:
            continue
        rows.append(
            [f"{count:,}", str(max(map(len, scores.values())))]
            + [spread(list(scores[method].values())) for method in METHODS]
            + [spread(paired(scores["elmo"], scores["without"]), sign=True)]
        )
    titles = list(METHODS.values())
    return table(["chunk F1, %; sentences", "draws", *titles, " − ".join(titles)], rows)


def tagger_table(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    rows = []
    for cell in [cell for cell in plan() if cell in found]:
        record = found[cell]
        figures = [f"{100 * record['scores'][key]:.2f}" for key in ("f1", "precision", "recall", "accuracy")]
        shares = " ".join(f"{share:.2f}" for share in record["mixture"]) or "–"
        draw = f", draw {cell.draw}" if DRAWS[cell.labels] > 1 else ""
        name = f"{record['sentences']:,}, {METHODS[cell.method]}{draw}"
        rows.append([name, *figures, shares, f"{record['seconds']:.0f}"])
    columns = ["sentences, tagger; %", "F1", "precision", "recall", "accuracy of words", "s of layers 0 …", "seconds"]
    return table(columns, rows)


def run(course: Course) -> str:
    rows, base = sentences(course.given), pretrained(course)
    left = course.measure(plan(), ("labels",), lambda cell: measure(cell, rows, base, course), "f1")
    facts = pretraining_lines({"elmo": base}, METHODS) if base.model.run is not None else []
    found = course.measured(Cell)
    return course.page([result_table(found), tagger_table(found)], facts, left)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = options(__doc__, "elmo_chunking", minutes=20.0)
    parser.add_argument("--base", type=Path, help="a pre-trained run of elmo to use instead of pre-training")
    parser.add_argument("--validate", action="store_true", help="score held-out training sentences, not the test")
    parser.add_argument("--pretrain-set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--set", action="append", default=[], metavar="[few:|all:]SECTION.KEY=VALUE", help="of taggers")
    return settled(parser, words, {"pretrain_set": QUICK_PRETRAINING, "set": QUICK_TAGGER})


def main(words: Sequence[str] | None = None) -> int:
    return conduct(parse(words), "elmo_chunking", SETTINGS, run)


if __name__ == "__main__":
    raise SystemExit(main())
