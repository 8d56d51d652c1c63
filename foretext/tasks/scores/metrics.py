"""Metrics for each kind of task, with per-class values and a confusion matrix.

| kind | values | main |
|---|---|---|
| classification, entailment, similarity | accuracy, f1_macro, matthews; f1 with two classes | accuracy |
| choice | accuracy | accuracy |
| regression | pearson, spearman, rmse | pearson |

- `f1` is that of the *positive* class of two: the one whose name is among `POSITIVE` (1, yes, true, positive, …) if
  exactly one is, otherwise the second of the label set. `Scores.positive` names it.
- `f1_macro` is the plain mean over the classes that occur in the gold labels or the predictions.
- An undefined value is 0 with a warning, never NaN: a correlation (Pearson, Spearman, Matthews) with a
  constant, an F1 of a class that neither occurs nor is predicted.
- `--metric` sets `main` to another of the values: CoLA is scored by `matthews`, MRPC and QQP by `f1`, as their
  layouts in `tasks/files/formats.py` say.

Values from the confusion matrix are computed here and equal scikit-learn's bit for bit. Validation follows each epoch,
and loading and calling scikit-learn takes longer than a short epoch.

The interval of a score contains the true value for 95 of 100 such samples of rows.

For accuracies it is Wilson's (1927), which stays within 0 … 1 and works with a dozen rows. For other scores it is the
bootstrap over rows (Efron 1979): rows are drawn with replacement from a seeded generator and scored a hundred times,
and the interval is between the 2.5th and 97.5th percentile. If there are too many rows for this, fewer are drawn, and
the interval is narrowed by the square root of the ratio.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from foretext.config import Json
from foretext.errors import EXIT_NOT_FINITE, counted, refuse_if
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.labelled import LabelSet

POSITIVE = (
    *("1", "yes", "y", "true", "t", "positive", "pos", "entailment", "entails", "duplicate", "paraphrase"),
    *("equivalent", "acceptable", "spam", "是", "正面"),
)
_HIGHER_IS_WORSE = ("rmse",)
Z = 1.959964  # 95 % of a normal distribution lie within ±Z
DRAWS = 100
MOST_ROWS = 400  # per draw
_OF_ROWS = ("classification", "entailment", "similarity", "choice")  # one label per row, right or wrong
_MEANS = ("span",)  # kinds whose score is the mean over rows


@dataclass(frozen=True)
class ClassScore:
    label: str
    precision: float
    recall: float
    f1: float
    support: int  # gold rows of this class; for tags, gold entities of this type or words with this tag


@dataclass(frozen=True)
class Scores:
    """`confusion[i][j]` counts rows of class i predicted as class j, in the order of `per_class`."""

    main: str
    values: dict[str, float]
    rows: int
    per_class: list[ClassScore] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)
    positive: str | None = None
    warnings: list[str] = field(default_factory=list)
    # 95 % interval of the main value (`with_interval`); None: not computed, or only one row. Not part of equality.
    interval: tuple[float, float] | None = field(default=None, compare=False)

    @property
    def main_value(self) -> float:
        return self.values[self.main]

    def to_dict(self) -> Json:
        fields = asdict(self)
        if self.interval is None:
            del fields["interval"]
        return fields

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)


def score(
    kind: str,
    gold: Sequence[Any],
    predicted: Sequence[Any],
    labels: LabelSet | None = None,
    *,
    main: str | None = None,
) -> Scores:
    """Scores predictions. Classes: indices into `labels`, or their names; choices: indices; regression: numbers."""
    refuse_if(not len(gold), "no rows to score; give a file with labelled rows")
    if kind == "regression":
        scores = _score_regression([float(x) for x in gold], [float(x) for x in predicted])
    elif kind == "choice":
        right = sum(int(a) == int(b) for a, b in zip(gold, predicted, strict=True))
        scores = Scores("accuracy", {"accuracy": right / len(gold)}, len(gold))
    else:
        assert labels is not None, f"{kind} needs its labels"
        scores = _score_classes(_indices(gold, labels, "gold"), _indices(predicted, labels, "predicted"), labels)
    return with_main(scores, main) if main is not None else scores


def with_main(scores: Scores, main: str) -> Scores:
    """The same scores with another main metric, which must be one where higher is better."""
    check_metric(main, [name for name in scores.values if name not in _HIGHER_IS_WORSE])
    return Scores(**{**vars(scores), "main": main})


def merit(scores: Scores, loss: float) -> float:
    """The score of an epoch. With few rows, equal scores are frequent; then the lower loss is better."""
    return scores.main_value - 1e-6 * min(loss, 1e3)


def metrics_of(kind: str, classes: int = 0) -> tuple[str, ...]:
    """The metrics that can be the main one, the kind's own first."""
    if kind == "regression":
        return ("pearson", "spearman")
    if kind == "choice":
        return ("accuracy",)
    return ("accuracy", "f1_macro", "matthews", *(("f1",) if classes == 2 else ()))


def check_metric(metric: str, allowed: Sequence[str]) -> None:
    refuse_if(metric not in allowed, f"--metric {metric}: not available here; choose one of {', '.join(allowed)}")


def positive_label(labels: LabelSet) -> str | None:
    """The positive one of two classes by the rule in the module's docstring; None unless there are two."""
    if len(labels) != 2:
        return None
    known = [name for name in labels.names if name.strip().casefold() in POSITIVE]
    return known[0] if len(known) == 1 else labels.names[1]


def _indices(values: Sequence[Any], labels: LabelSet, what: str) -> list[int]:
    indices = [labels.index(v, f"{what} label {i}") if isinstance(v, str) else int(v) for i, v in enumerate(values)]
    assert all(0 <= index < len(labels) for index in indices), f"{what}: a class index outside the label set"
    return indices


def _score_classes(gold: list[int], predicted: list[int], labels: LabelSet) -> Scores:
    confusion = [[0] * len(labels) for _ in labels.names]
    for right, guess in zip(gold, predicted, strict=True):
        confusion[right][guess] += 1
    gold_counts, predicted_counts = [sum(line) for line in confusion], [sum(column) for column in zip(*confusion)]
    hits = [line[i] for i, line in enumerate(confusion)]
    per_class = [
        ClassScore(name, _part(hit, by), _part(hit, of), _part(2 * hit, of + by), of)
        for name, hit, of, by in zip(labels.names, hits, gold_counts, predicted_counts)
    ]
    occurring = sorted(set(gold) | set(predicted))
    values = {
        "accuracy": sum(a == b for a, b in zip(gold, predicted)) / len(gold),
        "f1_macro": sum(per_class[i].f1 for i in occurring) / len(occurring),
        "matthews": _matthews(gold_counts, predicted_counts, sum(hits)),
    }
    positive = positive_label(labels)
    if positive is not None:
        values["f1"] = per_class[labels.names.index(positive)].f1
    return Scores(
        "accuracy", values, len(gold), per_class, confusion, positive, _class_warnings(gold, predicted, labels)
    )


def _part(count: int, of: int) -> float:
    return count / of if of else 0.0


def _matthews(gold_counts: list[int], predicted_counts: list[int], right: int) -> float:
    """The correlation of gold and predicted classes (Gorodkin 2004), from the class counts."""
    rows = sum(gold_counts)
    together = rows * right - sum(a * b for a, b in zip(gold_counts, predicted_counts))
    apart = float(rows**2 - sum(b * b for b in predicted_counts)) * float(rows**2 - sum(a * a for a in gold_counts))
    return together / math.sqrt(apart) if apart else 0.0


def _class_warnings(gold: list[int], predicted: list[int], labels: LabelSet) -> list[str]:
    never = LabelSet(tuple(name for number, name in enumerate(labels.names) if number not in set(gold)))
    only = labels.names[predicted[0]]
    warnings = {
        f"every row was predicted as {only!r}: the model does not distinguish the classes": len(set(predicted)) == 1,
        f"no gold row has the label {never.listing()}: its recall is meaningless": bool(never.names),
    }
    return [text for text, holds in warnings.items() if holds]


def _score_regression(gold: list[float], predicted: list[float]) -> Scores:
    wrong = sum(not math.isfinite(x) for x in predicted)
    refuse_if(
        wrong,
        f"{wrong:,} of {len(predicted):,} predicted scores are not finite; train with a lower rate",
        EXIT_NOT_FINITE,
    )
    rmse = math.sqrt(sum((a - b) ** 2 for a, b in zip(gold, predicted, strict=True)) / len(gold))
    constant = [what for what, values in (("gold", gold), ("predicted", predicted)) if _constant(values)]
    if constant:
        warning = f"all {' and '.join(constant)} scores are equal, so the correlation is undefined and reported as 0"
        return Scores("pearson", {"pearson": 0.0, "spearman": 0.0, "rmse": rmse}, len(gold), warnings=[warning])
    from scipy.stats import pearsonr, spearmanr

    values = {
        "pearson": float(pearsonr(gold, predicted).statistic),
        "spearman": float(spearmanr(gold, predicted).statistic),
        "rmse": rmse,
    }
    return Scores("pearson", values, len(gold))


def _constant(values: list[float]) -> bool:
    """Whether values are equal up to rounding: correlations of such values measure noise (scipy warns and returns
    anything from -1 to 1)."""
    middle = sum(values) / len(values)
    return max(abs(value - middle) for value in values) <= 1e-12 * max(abs(value) for value in values)


# -- how sure they are -------------------------------------------------------------------------------------------------


Score = Callable[[Sequence[Any], Predictions], Scores]


def wilson(accuracy: float, rows: int) -> tuple[float, float]:
    """Wilson's interval for this share of right rows out of so many."""
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
        row_scores = np.array([of([place]) for place in range(len(rows))])
        resampled = [float(row_scores[picked].mean()) for picked in drawn]
    else:
        resampled = [of(picked) for picked in drawn]
    low, high = np.quantile(resampled, [0.025, 0.975])
    narrower = math.sqrt(count / len(rows))
    middle = float(np.mean(resampled))
    return scores.main_value - (middle - float(low)) * narrower, scores.main_value + (float(high) - middle) * narrower


# -- for a terminal ----------------------------------------------------------------------------------------------------


def format_scores(scores: Scores) -> str:
    """The scores as lines for a terminal: the main metric first, then the others, classes, warnings."""
    lines = [counted(scores.rows, "row")]
    wide = max(10, *map(len, scores.values))
    for name in sorted(scores.values, key=lambda name: name != scores.main):
        star = "  (main)" if name == scores.main else ""
        of = f"  (of {scores.positive!r})" if name == "f1" and scores.positive is not None else ""
        lines.append(f"{name:<{wide}} {scores.values[name]:.4f}{of}{star}")
        if star and scores.interval is not None:
            lines.append(f"{'95 %':<{wide}} {scores.interval[0]:.4f} … {scores.interval[1]:.4f}")
    if scores.per_class:
        body = [
            (item.label, f"{item.precision:.3f}", f"{item.recall:.3f}", f"{item.f1:.3f}", f"{item.support:,}")
            for item in scores.per_class
        ]
        lines += ["", *_aligned([("class", "precision", "recall", "f1", "gold"), *body])]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in scores.warnings)])


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns of equal width on a terminal, where a Chinese character takes two cells; the first is left-aligned."""
    from rich.cells import cell_len, set_cell_size

    clean = [tuple(" ".join(cell.split()) or repr(cell) for cell in row) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*clean)]
    return [
        "  ".join([set_cell_size(first, widths[0]), *map(str.rjust, figures, widths[1:])]) for first, *figures in clean
    ]
