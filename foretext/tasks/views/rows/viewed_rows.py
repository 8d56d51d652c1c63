"""Views of rows with one label: their units, how the views are learned, and the head over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from foretext.plan import STATES, TUNED
from foretext.tasks.family import Progress, TaskConfig, family_of, silent
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.files.rows import UNORDERED, Row
from foretext.tasks.row_family import number_of
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.views.base import FittedHead, Fold, Tensors, Units, View, ViewHead, by_row, deal, units_of
from foretext.tasks.views.baselines import Baseline, watched_baselines
from foretext.tasks.views.explain import reasons
from foretext.tasks.views.rows.linear import Fitted, Labels, fit_views
from foretext.tasks.views.rows.ngrams import NGrams, Overlap
from foretext.tasks.views.rows.text_knowledge import LatentSemantics, States, Tuned, Vectors
from foretext.tasks.views.self_training import Gain, Taught, text_units, with_text
from foretext.tasks.views.viewed import Learning, Reads, ViewTask, numbered, views_to_read

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead

LIMITS = "limits"
# metrics that are 0 or near it for predicting only the most frequent class
OF_RARE_CLASSES = ("matthews", "f1", "f1_macro")
PARTS = (0.0, 0.25, 0.5, 0.75, 1.0)


class ViewedRows(ViewTask):
    views: Mapping[str, type[View]] = {
        view.name: view for view in (NGrams, Overlap, LatentSemantics, Vectors, States, Taught, Tuned)
    }

    # -- rows ----------------------------------------------------------------------------------------------------------

    def groups(self, rows: Sequence[Row]) -> list[int]:
        """Rows with the same texts stay together."""
        return numbered(tuple(text.strip() for text in row.texts) for row in rows)

    def folds(self, rows: Sequence[Row], config: TaskConfig, count: int, seed: int) -> list[Fold]:
        return deal([row.label for row in rows] if config.labels else None, self.groups(rows), count, seed)

    def outputs(self, scores: Sequence[np.ndarray], rows: Sequence[Row], kind: str) -> np.ndarray:
        """The mean is subtracted from each row's logits, since adding a constant to them means nothing."""
        if kind == "regression":
            return np.asarray(scores, dtype=np.float64).reshape(-1, 1)
        if kind != "choice":
            table = np.asarray(scores, dtype=np.float64)
            return np.asarray(table - table.mean(1, keepdims=True))
        logits = [np.asarray(table[: len(row.texts) - 1], dtype=np.float64) for table, row in zip(scores, rows)]
        return np.concatenate([of_row - of_row.mean() for of_row in logits])[:, None]

    def units(
        self,
        rows: Sequence[Row],
        kind: str,
        names: Collection[str] = (),
        trunk: Reads | None = None,
        progress: Progress | None = None,
    ) -> Units:
        units = units_of([row.texts for row in rows], kind, kind not in UNORDERED)
        if TUNED in names:
            assert trunk is not None
            units = dataclasses.replace(units, tuned=self.outputs(trunk.row_scores(rows, progress), rows, kind))
        if STATES not in names:
            return units
        assert trunk is not None
        distinct = list(dict.fromkeys(text for row in rows for text in row.texts))
        states = trunk.text_states(distinct, progress)
        place = {text: number for number, text in enumerate(distinct)}
        sides = [[place[texts[side]] for texts in _unit_texts(rows, kind)] for side in range(len(units.words[0]))]
        return dataclasses.replace(units, states=tuple(states[places] for places in sides))

    # -- the head ------------------------------------------------------------------------------------------------------

    def fit(self, learning: Learning, units: Units) -> tuple[Fitted, Gain | None]:
        config, rows = learning.config, learning.rows
        labels = Labels(config.kind, np.array([number_of(row, config) for row in rows]), len(config.labels))
        groups, views = self.groups(rows), _learned(learning, units)
        fitted, gain = fit_views(views, units, labels, learning.seed, groups), None
        learning.work("fitting the head", 1, 1)
        if learning.unlabelled:
            # Reading all the text with a trunk would take hours.
            teaching = [view for view in views if view.name not in (STATES, TUNED)]
            text = text_units(learning.unlabelled, teaching, learning.seed)
            fitted, gain = with_text(fitted, teaching, units, labels, text, learning.seed, groups, learning.work)
        if config.metric in OF_RARE_CLASSES and config.labels and not np.isnan(fitted.chosen.outputs).any():
            fitted = _for_rare_classes(config, rows, fitted, labels.values)
        return fitted, gain

    def cross_validated(
        self, fitted: FittedHead, rows: Sequence[Row], config: TaskConfig, decoder: TaskHead
    ) -> Scores | None:
        outputs = cast("Fitted", fitted).chosen.outputs
        if np.isnan(outputs).any():
            return None
        left_out = [rows[number] for number in fitted.rows]
        scores = by_row(outputs, self.units(left_out, config.kind), config.kind)
        family = family_of(config.kind)
        return family.scored(family.whole(left_out, config, False, silent), scores, config, decoder)

    def baselines(
        self, fitted: FittedHead, train: Sequence[Row], valid: Sequence[Row], learning: Learning
    ) -> list[Baseline]:
        return watched_baselines(learning.config, train, valid, learning.seed, learning.work)

    def reasons(self, head: ViewHead, units: Units, rows: Sequence[Row], config: TaskConfig) -> list[str]:
        return reasons(head, units)

    # -- files ---------------------------------------------------------------------------------------------------------

    def extra(self, head: ViewHead) -> Tensors:
        return {} if head.limits is None else {LIMITS: head.limits}

    def with_extra(self, head: ViewHead, tensors: Tensors) -> ViewHead:
        return dataclasses.replace(head, limits=tensors.get(LIMITS))

    def empty(self, kind: str, texts: int, stored: Mapping[str, Tensors]) -> Units:
        # A unit of a choice is the context and one alternative.
        sides, arrangement = (2, "") if kind == "choice" else (texts, kind)
        units = units_of([("",) * sides], arrangement, kind not in UNORDERED)
        if Tuned.name in stored:
            units = dataclasses.replace(units, tuned=np.zeros((1, len(stored[Tuned.name]["mean"]))))
        if States.name not in stored:
            return units
        width = len(stored[States.name]["mean"])
        return dataclasses.replace(units, states=(np.zeros((1, width), dtype=np.float32),) * sides)


def _unit_texts(rows: Sequence[Row], kind: str) -> list[tuple[str, ...]]:
    if kind != "choice":
        return [row.texts for row in rows]
    return [(row.texts[0], choice) for row in rows for choice in row.texts[1:]]


def _learned(learning: Learning, units: Units) -> list[View]:
    """For pairs, their overlap stands beside the n-grams."""
    ways: dict[str, Callable[[], View]] = {
        NGrams.name: lambda: NGrams.learned(units),
        Overlap.name: lambda: Overlap.learned(units),
        LatentSemantics.name: lambda: LatentSemantics.learned(learning.known),
        Vectors.name: lambda: Vectors.learned(
            units, learning.known.words, learning.known.matrix, learning.known.counts
        ),
        States.name: lambda: States.learned(units),
        Tuned.name: lambda: Tuned.learned(units),
    }
    overlap = [Overlap.name] if units.pairs and NGrams.name in learning.names else []
    return views_to_read(ways, [*learning.names, *overlap])


def _for_rare_classes(config: TaskConfig, rows: Sequence[Row], fitted: Fitted, values: np.ndarray) -> Fitted:
    """Subtracts a share of the classes' log frequencies from the head's bias. Cross-validation chooses the share with
    the best score. A weak head predicts the most frequent class for every row, which scores badly on metrics that count
    rare classes too."""
    left_out, family = [rows[number] for number in fitted.rows], family_of(config.kind)
    frequency = np.bincount(values.astype(int), minlength=len(config.labels)) / len(values)
    logarithms = np.log(np.maximum(frequency, 1 / (2 * len(values))))
    outputs = {part: fitted.chosen.outputs - part * logarithms for part in PARTS}

    def value_of(part: float) -> float:
        predicted = [config.labels[number] for number in outputs[part].argmax(1).tolist()]
        return family.score(left_out, Predictions(config.kind, predicted, None, config.labels), config).main_value

    best = max(PARTS, key=value_of)
    fitted.head.bias = fitted.head.bias - (best * logarithms).astype(fitted.head.bias.dtype)
    return dataclasses.replace(fitted, chosen=dataclasses.replace(fitted.chosen, outputs=outputs[best]))
