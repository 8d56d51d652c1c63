"""ELMo's features for chunking: a tagger on a frozen biLM against the same tagger without it, on CoNLL-2000.

    python -m experiments.elmo_chunking --data DIR [--out runs/elmo_chunking]

The biLM is pre-trained for 20 minutes on IMDb's unlabelled reviews, and learns no more. Chunk F1 on all 2,012 test
sentences, learned from a random 10 % of the 8,936 training sentences (the same ones for both methods) and from all:

- **ELMo**: a biLSTM with a CRF that reads [own vector; γ Σ s_l h_l; own characters] of each token;
- **without**: the same biLSTM with a CRF, which reads [own vector; own characters].

Vectors and characters are learned with the tags in both. The taggers read words, not parts of speech. Epochs are fixed
and nothing is held out, so that the test chooses nothing; `--validate` scores a part of the training sentences in place
of the test, to choose settings by. Under the table stands how much of the mixture each layer is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import foretext as ft
from bench.common import arguments_for, commit, head_lines, need_data, table
from experiments.common import Log, check_settings, pretraining_lines
from experiments.results import Results, own_options, sets_for
from experiments.token_tasks import QUICK, VALID_PART, chosen, parted
from foretext.errors import Interrupted, UserError
from foretext.tasks.conll import TaggedSentence, read_conll
from foretext.tasks.recurrent_models import RecurrentTagging
from foretext.train.signals import Stopper, StopRequest

NAME = "conll2000"
METHODS = {"elmo": "ELMo", "without": "without"}
PART = 0.1  # of the training sentences, the fewer labels
SETTINGS = ("minutes", "size", "base", "pretrain_set", "set", "validate", "quick")
AGAIN = "give the same command again"
# What both taggers have; `without` takes the mixture away and nothing else.
TAGGER = (
    *("transfer.reader.vectors=50", "transfer.reader.characters=30", "transfer.reader.cells=128"),
    *("training.dropout=0.3", "training.rate=2e-3", "training.batch_size=32"),
)
WITHOUT = ("transfer.reader.mix=false",)
EPOCHS = {"few": 20, "all": 6}
QUICK_PRETRAINING = (
    *("model.cells=16", "model.words.width=8", "model.words.filter_widths=1,2", "model.words.filter_counts=8,8"),
    *("model.context=16", "tokenizer.size=2000"),
)
QUICK_TAGGER = ("task.epochs=1", "transfer.reader.cells=8")


@dataclass(frozen=True)
class Cell:
    labels: str  # "few" or "all"
    method: str


def plan() -> list[Cell]:
    """What a cut-off must not take first: few labels, where the floor is; then all."""
    return [Cell(labels, method) for labels in EPOCHS for method in METHODS]


# -- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    train: Mapping[str, list[TaggedSentence]]  # by `Cell.labels`
    test: list[TaggedSentence]


def sentences(given: argparse.Namespace) -> Rows:
    folder = given.data / NAME
    train, test = (read_conll(folder / name, format=NAME) for name in ("train.txt", "test.txt"))
    if given.quick:
        train, test = train[: QUICK["sentences"]], test[: QUICK["test"]]
    if given.validate:
        train, test = parted(train, [" ".join(row.words) for row in train], VALID_PART, f"{NAME} validation")
    few = [train[number] for number in chosen(len(train), round(PART * len(train)), f"{NAME} few labels")]
    return Rows({"few": few, "all": train}, test)


# -- one number ------------------------------------------------------------------------------------------------------


def settings_of(cell: Cell, given: argparse.Namespace) -> tuple[int, list[str]]:
    """Epochs, and what is set; `few:…` and `all:…` hold for one number of labels."""
    sets = [*TAGGER, *(WITHOUT if cell.method == "without" else ()), *sets_for(given.set, cell.labels, 0)]
    options, rest = own_options(sets)
    return int(options.get("task.epochs", EPOCHS[cell.labels])), rest


def measure(
    cell: Cell, rows: Rows, base: ft.LanguageModel, given: argparse.Namespace, log: Log, stopping: StopRequest
) -> dict[str, Any]:
    epochs, sets = settings_of(cell, given)
    model = base.finetune(
        rows.train[cell.labels],
        task="tagging",
        epochs=epochs,
        hold_out=0.0,
        sets=sets,
        reporter=log,
        stopping=stopping,
    )
    return {"scores": model.evaluate(rows.test, reporter=log).values, "mixture": mixture(model)}


def mixture(model: ft.TaskModel) -> list[float]:
    """s_l of each layer; nothing where none is read."""
    task = model.model.task
    assert isinstance(task, RecurrentTagging)
    mix = task.model.read.at_input
    return [] if mix is None else [round(share, 4) for share in mix.shares().tolist()]


# -- the run ---------------------------------------------------------------------------------------------------------


def pretrained(given: argparse.Namespace, results: Results, log: Log, stopping: StopRequest) -> ft.LanguageModel:
    """The biLM; one that was stopped goes on."""
    if given.base is not None:
        model = ft.load(given.base)
        assert isinstance(model, ft.LanguageModel)
        return model
    begun = time.perf_counter()
    try:
        return ft.pretrain(
            given.data / "imdb" / "unsup.txt.gz",
            system="elmo",
            size=given.size,
            minutes=given.minutes,
            out=given.out / "base",
            sets=given.pretrain_set,
            resume=True,
            reporter=log,
            stopping=stopping,
        )
    finally:
        results.add_part("pre-training", time.perf_counter() - begun, commit())


def measured(results: Results) -> dict[Cell, dict[str, Any]]:
    return {Cell(record["labels"], record["method"]): record for record in results.records if "scores" in record}


def expected_seconds(cell: Cell, results: Results) -> float:
    """What the other method took with as many labels."""
    like = [record["seconds"] for known, record in measured(results).items() if known.labels == cell.labels]
    return max(like, default=0.0)


def run_cells(given: argparse.Namespace, rows: Rows, results: Results, log: Log, stopping: StopRequest) -> list[Cell]:
    """Measures what is not measured yet; returns the cells that the time limit left over."""
    left: list[Cell] = []
    base = pretrained(given, results, log, stopping)
    given.base_lines = pretraining_lines({"elmo": base}, METHODS) if base.model.run is not None else []
    for cell in [cell for cell in plan() if cell not in measured(results)]:
        if results.seconds() + expected_seconds(cell, results) > 60 * given.limit:
            left.append(cell)
            continue
        if stopping.requested is not None:
            raise Interrupted(stopping.requested, str(given.out), AGAIN)
        begun = time.perf_counter()
        found = measure(cell, rows, base, given, log, stopping)
        took = time.perf_counter() - begun
        head = {"labels": cell.labels, "sentences": len(rows.train[cell.labels]), "method": cell.method}
        results.append(head | found | {"seconds": round(took, 2), "commit": commit()})
        log.note(f"{cell.labels} labels, {METHODS[cell.method]}: F1 {100 * found['scores']['f1']:.2f} in {took:.1f} s")
    return left


def result_table(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    rows = []
    for cell in [cell for cell in plan() if cell in found]:
        record = found[cell]
        figures = [f"{100 * record['scores'][key]:.2f}" for key in ("f1", "precision", "recall", "accuracy")]
        shares = " ".join(f"{share:.2f}" for share in record["mixture"]) or "–"
        rows.append([f"{record['sentences']:,}, {METHODS[cell.method]}", *figures, shares, f"{record['seconds']:.0f}"])
    columns = ["sentences, tagger; %", "F1", "precision", "recall", "accuracy of words", "s of layers 0 …", "seconds"]
    return table(columns, rows)


def report(given: argparse.Namespace, results: Results, left: Sequence[Cell], head: Sequence[str]) -> str:
    lines = [f"- {line}" for line in [*head, *given.base_lines] if not line.startswith("commit")]
    lines += [f"- measured at commit: {version}" for version in results.commits()]
    lines.append(f"- minutes: {results.seconds() / 60:.1f}")
    if left:
        names = ", ".join(f"{cell.labels} {METHODS[cell.method]}" for cell in left)
        lines.append(f"- **not measured**, for the limit of {given.limit:g} minutes: {names}")
    if given.validate:
        lines.append("- **--validate: scored on training sentences that were held out, not on the test**")
    if given.quick:
        lines.append("- **--quick: too short to mean anything**")
    return "\n".join([*lines, "", result_table(measured(results))]) + "\n"


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_for(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/elmo_chunking"), help="goes on if it is there")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--minutes", type=float, default=20.0, help="of pre-training")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--base", type=Path, help="a pre-trained run of elmo to use instead of pre-training")
    parser.add_argument("--validate", action="store_true", help="score held-out training sentences, not the test")
    parser.add_argument("--pretrain-set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--set", action="append", default=[], metavar="[few:|all:]SECTION.KEY=VALUE", help="of taggers")
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    if given.quick:
        given.minutes = 0.05
        given.pretrain_set = [*QUICK_PRETRAINING, *given.pretrain_set]
        given.set = [*QUICK_TAGGER, *given.set]
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        check_settings(given, given.out, SETTINGS)
        log = Log(given.out / "log.txt")
        head = head_lines(["torch"], "python -m experiments.elmo_chunking")
        for line in head:
            log.note(line)
        results = Results(given.out / "results.jsonl")
        with Stopper(log.note) as stopping:
            left = run_cells(given, sentences(given), results, log, stopping)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.code
    except Interrupted as error:
        print(Interrupted(error.code, str(given.out), AGAIN), file=sys.stderr)
        return error.code
    text = report(given, results, left, head)
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
