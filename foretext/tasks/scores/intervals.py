"""How sure a score is: an interval that has the true value of 95 of 100 such samples of rows.

Accuracies of rows: Wilson's interval (1927), which stays inside 0 … 1 and holds for a dozen rows. Other scores: the
bootstrap over rows (Efron 1979): rows are drawn with replacement, by a seed, and scored; the interval is between the
2.5th and 97.5th of a hundred. What costs too much on all rows is drawn on fewer, and the interval narrowed by the
square root of how many fewer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretext.tasks.files.predictions import Predictions
from foretext.tasks.scores.metrics import Scores

Z = 1.959964  # of a normal distribution, 95 % within ±Z
DRAWS = 100
MOST_ROWS = 400  # of one draw
_OF_ROWS = ("classification", "entailment", "similarity", "choice")  # one label a row, right or wrong
_MEANS = ("span",)  # whose score is the mean of the rows' own

Score = Callable[[Sequence[Any], Predictions], Scores]


def wilson(accuracy: float, rows: int) -> tuple[float, float]:
    """Of so many rows, of which this part is right."""
    spread = Z * math.sqrt(accuracy * (1 - accuracy) / rows + Z * Z / (4 * rows * rows))
    middle, scale = accuracy + Z * Z / (2 * rows), 1 + Z * Z / rows
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def with_interval(scores: Scores, rows: Sequence[Any], predictions: Predictions, score: Score, seed: int = 0) -> Scores:
    """The scores with the interval of the main one. `score`: how rows and predictions are scored."""
    if scores.main == "accuracy" and predictions.kind in _OF_ROWS:
        return dataclasses.replace(scores, interval=wilson(scores.main_value, len(rows)))
    return dataclasses.replace(scores, interval=_bootstrap(scores, rows, predictions, score, seed))


def _bootstrap(
    scores: Scores, rows: Sequence[Any], predictions: Predictions, score: Score, seed: int
) -> tuple[float, float] | None:
    if len(rows) < 2:
        return None
    draw = np.random.default_rng(seed)

    def of(places: Sequence[int] | np.ndarray) -> float:
        values = [predictions.values[place] for place in places]
        return score([rows[place] for place in places], dataclasses.replace(predictions, values=values)).values[
            scores.main
        ]

    count = len(rows) if predictions.kind in _MEANS else min(len(rows), MOST_ROWS)
    drawn = [draw.integers(len(rows), size=count) for _ in range(DRAWS)]
    if predictions.kind in _MEANS:
        own = np.array([of([place]) for place in range(len(rows))])
        found = [float(own[picked].mean()) for picked in drawn]
    else:
        found = [of(picked) for picked in drawn]
    low, high = np.quantile(found, [0.025, 0.975])
    narrower = math.sqrt(count / len(rows))
    middle = float(np.mean(found))
    return scores.main_value - (middle - float(low)) * narrower, scores.main_value + (float(high) - middle) * narrower
