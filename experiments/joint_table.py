"""One table from several transfer experiments: a column for each folder of results, TF-IDF before them.

    python -m experiments.joint_table GPT=runs/imdb_transfer BERT=runs/masked_transfer/bert ... [--out FILE]

The cells are those of `results.jsonl`, and so are bits per byte where an experiment measures them; nothing is measured
and nothing is copied by hand. Of each row only the draws count that every column has: `imdb_transfer` has five of
SST-2, `masked_transfer` three, so the first three. TF-IDF learns from the same labels in all of them, and must have
come out the same: if it did not, the draws or the test rows are others, and the columns do not compare.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.common import table
from experiments import chnsenticorp, imdb_transfer
from experiments.common import PRETRAINED
from experiments.results import TEXT, TITLES, Results, paired, spread, text_table
from foretext.errors import UserError

TFIDF = "tfidf"
TASKS = imdb_transfer.TASKS | chnsenticorp.EXPERIMENT.tasks  # their titles, and the order of rows

Row = tuple[str, int]  # task, labels
Scores = dict[Row, dict[int, float]]  # accuracy by draw


@dataclass(frozen=True)
class Column:
    """A folder of results: what its pre-trained model scored, and what TF-IDF scored beside it."""

    title: str
    scores: Scores
    tfidf: Scores
    said: str  # of the run, for the head of the table
    text: dict[str, Any] | None = None  # what it makes of texts that it has not seen, where that was measured


def read_column(title: str, folder: Path) -> Column:
    file = folder / "results.jsonl"
    if not file.is_file():
        raise UserError(f"{folder}: no results.jsonl in it; give the --out of a transfer experiment")
    results = Results(file)
    scores: dict[str, Scores] = {PRETRAINED: {}, TFIDF: {}}
    for cell, accuracy in results.accuracies().items():
        if cell.method in scores:
            scores[cell.method].setdefault((cell.task, cell.labels), {})[cell.draw] = accuracy
    if not scores[PRETRAINED]:
        raise UserError(f"{file}: no cell of a pre-trained model in it; give the --out of imdb_transfer or alike")
    settings = folder / "settings.json"
    quick = settings.is_file() and json.loads(settings.read_text(encoding="utf-8")).get("quick")
    said = f"{title}: commit {', '.join(results.commits())}; {results.seconds() / 60:.1f} minutes"
    said += "; **--quick**" if quick else ""
    return Column(title, scores[PRETRAINED], scores[TFIDF], said, results.figures(TEXT))


def common_tfidf(columns: Sequence[Column]) -> Scores:
    """TF-IDF's scores, which all folders must agree on."""
    found: Scores = {}
    for column in columns:
        for row, own in column.tfidf.items():
            for draw, accuracy in own.items():
                known = found.setdefault(row, {}).setdefault(draw, accuracy)
                if abs(known - accuracy) > 1e-9:
                    raise UserError(
                        f"{row[0]}, {row[1]} labels, draw {draw}: TF-IDF has {100 * known:.2f} in one folder and "
                        f"{100 * accuracy:.2f} in that of {column.title}: other labels or test rows; leave it out"
                    )
    return found


def joint_table(columns: Sequence[Column]) -> str:
    """Accuracy in per cent by row and column, and the differences from TF-IDF, paired by draw; then what is known of
    the columns' bits per byte."""
    every: dict[str, Scores] = {TITLES[TFIDF]: common_tfidf(columns)} | {one.title: one.scores for one in columns}
    order = list(TASKS)
    known = sorted({row for one in columns for row in one.scores}, key=lambda row: (order.index(row[0]), row[1]))
    accuracies, differences = [], []
    for row in known:
        own = common_draws({title: scores[row] for title, scores in every.items() if row in scores})
        head = [f"{TASKS[row[0]].title}, {row[1]:,}", str(len(next(iter(own.values()), {})))]
        accuracies.append([*head, *(spread(list(own.get(title, {}).values())) for title in every)])
        base = own.get(TITLES[TFIDF], {})
        differences.append(
            [*head, *(spread(paired(own.get(one.title, {}), base), sign=True) for one in columns)],
        )
    first = table(["accuracy, %; labels", "draws", *every], accuracies)
    second = table(["above TF-IDF", "draws", *(one.title for one in columns)], differences)
    texts = {one.title: one.text for one in columns if one.text is not None}
    return "\n\n".join([first, second, *([text_table(texts)] if texts else [])]) + "\n"


def common_draws(scores: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """What all of them have, draw by draw."""
    draws = sorted(set.intersection(*(set(own) for own in scores.values())))
    return {title: {draw: own[draw] for draw in draws} for title, own in scores.items()}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("columns", nargs="+", metavar="TITLE=FOLDER")
    parser.add_argument("--out", type=Path, help="a file to write the table to, beside printing it")
    given = parser.parse_args(words)
    pairs = [text.partition("=") for text in given.columns]
    try:
        for text, (title, _, folder) in zip(given.columns, pairs, strict=True):
            if not title or not folder:
                raise UserError(f"{text}: write TITLE=FOLDER, as in BERT=runs/masked_transfer/bert")
        columns = [read_column(title, Path(folder)) for title, _, folder in pairs]
        text = "\n".join([*(f"- {one.said}" for one in columns), "", joint_table(columns)])
    except UserError as error:
        print(error, file=sys.stderr)
        return error.code
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
