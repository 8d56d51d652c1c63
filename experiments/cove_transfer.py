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
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import foretext as ft
from bench.common import arguments_for, commit, head_lines, need_data, table
from experiments.common import Log, accuracy, check_settings, drawn_rows, texts_of, tfidf
from experiments.results import Results, own_options, sets_for
from foretext.errors import Interrupted, UserError
from foretext.tasks.rows import Row, read_rows
from foretext.train.loop import read_position
from foretext.train.signals import Stopper, StopRequest

SETTINGS = ("minutes", "size", "pretrain_set", "set", "quick")
AGAIN = "give the same command again"
TENTH, ALL = 545, 5452
DRAWS = {TENTH: 3, ALL: 1}
METHODS = {"cove": "GloVe and CoVe", "glove": "GloVe", "tfidf": "TF-IDF"}
# What the task model reads of the encoder: the words' vectors and its states, or the vectors alone.
READ = {"cove": ("transfer.reader.beside=ends",), "glove": ("transfer.reader.beside=lowest",)}
BEAMS = {"greedy": 1, "5 beams": 5}
QUICK_PRETRAINING = ("model.width=32", "objective.embedding=16", "tokenizer.size=2000")

Cell = tuple[str, int, int]  # method, labels, draw


def pretrained(given: argparse.Namespace, results: Results, log: Log, stopping: StopRequest) -> ft.LanguageModel:
    """Stopped, it goes on."""
    begun = time.perf_counter()
    folder = given.data / "multi30k"
    try:
        return ft.pretrain(
            system="cove",
            size=given.size,
            source=folder / "train.en",
            target=folder / "train.de",
            vectors=given.data / "glove" / "glove.6B.50d.top50k.txt.gz",
            minutes=given.minutes,
            out=given.out / "base",
            sets=given.pretrain_set,
            resume=True,
            reporter=log,
            stopping=stopping,
        )
    finally:
        results.add_part("pre-training", time.perf_counter() - begun, commit())


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
    return [(method, labels, draw) for labels in numbers for draw in range(DRAWS.get(labels, 1)) for method in METHODS]


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


def run(given: argparse.Namespace, results: Results, log: Log, stopping: StopRequest) -> list[Cell]:
    """Measures what is not measured yet; returns the cells that the time limit left over."""
    base = pretrained(given, results, log, stopping)
    position = read_position(base.model.run) if base.model.run is not None else None
    given.trained = f"pre-training: {position.step:,} updates, {position.tokens:,} tokens" if position else ""
    for name in BEAMS:
        if not any(record.get("search") == name for record in results.records):
            record = translation_record(name, base, given)
            results.append(record)
            log.note(f"{name}: BLEU {record['scores']['bleu']:.2f} in {record['seconds']:.0f} s")
    train = read_rows(given.data / "trec" / "train_5500.label", "classification", format="trec")
    test = read_rows(given.data / "trec" / "TREC_10.label", "classification", format="trec")
    done = {tuple(record["cell"]) for record in results.records if "cell" in record}
    left: list[Cell] = []
    for cell in [cell for cell in plan(given) if cell not in done]:
        same = [record["seconds"] for record in results.records if record.get("cell", [None])[:2] == list(cell[:2])]
        if results.seconds() + max(same, default=0.0) > 60 * given.limit:
            left.append(cell)
            continue
        if stopping.requested is not None:
            raise Interrupted(stopping.requested, str(given.out), AGAIN)
        begun = time.perf_counter()
        found = measure(cell, train, test[: 40 if given.quick else None], base, given)
        took = round(time.perf_counter() - begun, 2)
        results.append({"cell": list(cell), "accuracy": found, "seconds": took, "commit": commit()})
        log.note(f"{cell[0]}, {cell[1]} labels, draw {cell[2]}: {100 * found:.1f} % in {took:.1f} s")
    return left


def tables(results: Results) -> list[str]:
    searched = [record for record in results.records if "search" in record]
    rows = []
    for record in searched:
        scores = record["scores"]
        rows.append(
            [record["search"], f"{scores['bleu']:.2f}", f"{scores['perplexity']:.2f}", f"{record['seconds']:.0f}"]
        )
    text = ["", table(["Multi30k, en → de", "BLEU", "perplexity", "seconds"], rows)]
    text += [f"\nBLEU: {searched[0]['signature']}"] if searched else []
    cells = [record for record in results.records if "cell" in record]
    lines = []
    for labels in dict.fromkeys(record["cell"][1] for record in cells):
        line = [f"{labels:,} labels"]
        for method in METHODS:
            found = [100 * one["accuracy"] for one in cells if one["cell"][:2] == [method, labels]]
            spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
            line.append(f"{statistics.fmean(found):.1f}{spread}" if found else "–")
        lines.append(line)
    return [*text, "", table(["TREC-6, accuracy %", *METHODS.values()], lines)]


def report(given: argparse.Namespace, results: Results, left: Sequence[Cell], head: Sequence[str]) -> str:
    lines = [f"- {line}" for line in [*head, given.trained] if line and not line.startswith("commit")]
    lines += [f"- measured at commit: {version}" for version in results.commits()]
    lines.append(f"- minutes: {results.seconds() / 60:.1f}")
    if left:
        names = ", ".join(f"{method} {labels} {draw}" for method, labels, draw in left)
        lines.append(f"- **not measured**, for the limit of {given.limit:g} minutes: {names}")
    if given.quick:
        lines.append("- **--quick: too short to mean anything**")
    return "\n".join([*lines, *tables(results)]) + "\n"


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_for(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/cove_transfer"), help="goes on if it is there")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--minutes", type=float, default=30.0, help="of pre-training")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--pretrain-set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="for fine-tuning")
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    if given.quick:
        given.minutes = 0.05
        given.pretrain_set = [*QUICK_PRETRAINING, *given.pretrain_set]
        given.set = ["task.epochs=1", *given.set]
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        check_settings(given, given.out, SETTINGS)
        log = Log(given.out / "log.txt")
        head = head_lines(["torch", "scikit-learn", "sacrebleu"], "python -m experiments.cove_transfer")
        for line in head:
            log.note(line)
        results = Results(given.out / "results.jsonl")
        with Stopper(log.note) as stopping:
            left = run(given, results, log, stopping)
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
