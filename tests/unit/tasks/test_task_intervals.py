"""Intervals of scores: against scikit-learn-free formulas, simulation, and the right number of rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from foretext.tasks.files.predictions import Predictions
from foretext.tasks.labelled import LabelSet
from foretext.tasks.scores.metrics import MOST_ROWS, Scores, score, wilson, with_interval

LABELS = LabelSet(("no", "yes"))


@pytest.mark.parametrize(("right", "rows"), [(0, 12), (12, 12), (9, 15), (411, 500), (1, 2)])
def test_wilson_is_scipys(right: int, rows: int) -> None:
    expected = binomtest(right, rows).proportion_ci(method="wilson")
    assert wilson(right / rows, rows) == pytest.approx((expected.low, expected.high), abs=1e-6)


def classes(rows: int, seed: int, main: str = "accuracy") -> tuple[list[str], Predictions, Scores]:
    draw = np.random.default_rng(seed)
    gold = [LABELS.names[one] for one in draw.integers(2, size=rows)]
    said = [one if right else LABELS.names[one == "no"] for one, right in zip(gold, draw.random(rows) < 0.8)]
    return gold, Predictions("classification", said), score("classification", gold, said, LABELS, main=main)


def scored(gold: object, predictions: Predictions) -> Scores:
    return score("classification", list(gold), predictions.values, LABELS, main="f1")  # type: ignore[call-overload]


def test_accuracy_has_wilsons() -> None:
    gold, said, scores = classes(200, 0)
    assert with_interval(scores, gold, said, scored).interval == wilson(scores.values["accuracy"], 200)


@pytest.mark.parametrize("rows", [200, 4 * MOST_ROWS])
def test_bootstrap_is_as_wide_as_scores_of_other_samples_vary(rows: int) -> None:
    """The deviation of F1 over other samples, and that which the interval claims, within a third; and it is seeded."""
    values = [classes(rows, seed, "f1")[2].main_value for seed in range(60)]
    gold, said, scores = classes(rows, 0, "f1")
    interval = with_interval(scores, gold, said, scored).interval
    assert interval is not None and interval[0] < scores.main_value < interval[1]
    assert (interval[1] - interval[0]) / (2 * 1.96) == pytest.approx(float(np.std(values)), rel=0.34)
    assert with_interval(scores, gold, said, scored).interval == interval
    assert with_interval(scores, gold, said, scored, seed=1).interval != interval


def test_words_are_no_rows() -> None:
    """The accuracy of tags is of words, which stand in sentences together: the bootstrap draws sentences."""
    gold = [("A", "B", "A", "B")] * 10 + [("A", "A", "A", "A")] * 10
    said = Predictions("tagging", [("A", "B", "A", "B")] * 10 + [("B", "B", "B", "B")] * 10)

    def tags(rows: object, predictions: Predictions) -> Scores:
        pairs = [one == other for a, b in zip(rows, predictions.values) for one, other in zip(a, b)]  # type: ignore[call-overload]
        return Scores("accuracy", {"accuracy": float(np.mean(pairs))}, len(pairs))

    interval = with_interval(tags(gold, said), gold, said, tags).interval
    assert interval is not None
    assert interval[1] - interval[0] > 1.5 * np.diff(wilson(0.5, 80)).item()


def test_one_row_says_nothing() -> None:
    scores = Scores("f1", {"f1": 1.0}, 1)
    assert with_interval(scores, ["yes"], Predictions("classification", ["yes"]), scored).interval is None
