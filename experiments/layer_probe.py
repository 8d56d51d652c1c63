"""What the layers of pre-trained runs know of a task before anything is fine-tuned.

    python -m experiments.layer_probe RUN [RUN ...] --data DIR [--task sst2] [--labels 500,2000]

A logistic regression on the mean of a text's states, layer by layer (0: the embeddings), with few labels: accuracy, the
mean of three draws. Its strength C is chosen by cross-validation among the labels, so that the test chooses nothing.
Draws of labels and test rows are those of `imdb_transfer`. Where fine-tuning disappoints, this tells a model that knows
nothing from one that is badly fine-tuned.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import foretext as ft
from bench.common import arguments_for, head_lines, need_data, table
from experiments import imdb_transfer
from experiments.common import Data, accuracy, drawn_rows, read_task, texts_of
from foretext.api import load_language_model
from foretext.errors import UserError

DRAWS = 3
STRENGTHS = (1e-3, 1e-2, 1e-1)


def told_by_probe(train: np.ndarray, labels: Sequence[str], test: np.ndarray) -> list[str]:
    """What a regression on standardised vectors says of `test`."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    search = GridSearchCV(model, {"logisticregression__C": STRENGTHS}, cv=5)
    return [str(label) for label in search.fit(train, labels).predict(test)]


def layer_scores(lm: ft.LanguageModel, data: Data, labels: Sequence[int]) -> list[list[float]]:
    """Accuracy in per cent, a list for each layer from the embeddings on, of each number of labels."""
    draws = {(many, number): drawn_rows(data.train, many, number) for many in labels for number in range(DRAWS)}
    texts = sorted({text for rows in draws.values() for text in texts_of(rows)})
    place = {text: index for index, text in enumerate(texts)}
    scores = []
    for layer in range(lm.model.model_config.layers + 1):
        known = lm.features(texts, layers=(layer,))
        asked = lm.features(texts_of(data.test), layers=(layer,))
        row = []
        for many in labels:
            found = []
            for number in range(DRAWS):
                rows = draws[many, number]
                vectors = known[[place[text] for text in texts_of(rows)]]
                told = told_by_probe(vectors, [str(one.label) for one in rows], asked)
                found.append(100 * accuracy(told, data.test))
            row.append(statistics.mean(found))
        scores.append(row)
    return scores


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments_for(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--task", choices=list(imdb_transfer.TASKS), default="sst2")
    parser.add_argument("--labels", default="500,2000", help="how many, separated by commas")
    given = parser.parse_args(words)
    task = imdb_transfer.TASKS[given.task]
    labels = [100] if given.quick else [int(many) for many in given.labels.split(",")]
    try:
        data = read_task(task, need_data(given.data))
        print("\n".join(head_lines(["torch", "scikit-learn"], "python -m experiments.layer_probe")), flush=True)
        rows = []
        for run in given.runs:
            lm = load_language_model(run)
            for layer, scores in enumerate(layer_scores(lm, data, labels)):
                rows.append([f"{run}, layer {layer}", *(f"{score:.1f}" for score in scores)])
    except UserError as error:
        print(error, file=sys.stderr)
        return error.code
    print("\n" + table([f"{task.title}, {DRAWS} draws", *(f"{many:,} labels" for many in labels)], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
