"""The head over views of words: a conditional random field, linear in all blocks, that chooses the tags of a sentence
together.

    score(y) = starts[y_1] + Σ_t (bias + Σ_v X_v W_v)[t, y_t] + Σ_t transitions[y_{t−1}, y_t] + ends[y_n]

`field.py` fits it, with a closed-form gradient (`nn/task_models/crf.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from foretext.nn.task_models.crf import Allowed, Chain, LinearChainCrf, Sentences, iob2_allowed
from foretext.tasks.heads.token_tasks import ChainTagger
from foretext.tasks.scores.tag_metrics import are_chunk_tags
from foretext.tasks.views.base import Units, View
from foretext.tasks.views.field import Extra, FieldTask, FittedField, Progress, fit_field

TAGS = FieldTask("tagging", texts=1, most_words=12_000, strengths=(0.3, 1.0, 3.0, 10.0))


@dataclass(frozen=True)
class Tags:
    """The class of each unit, the number of classes, and which may follow which."""

    values: np.ndarray
    classes: int
    allowed: Allowed | None = None

    def chain(self, transitions: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Chain:
        """With −∞ for forbidden tags."""
        if self.allowed is None:
            return Chain(transitions, starts, ends)
        allowed = self.allowed
        parts = zip((transitions, starts, ends), (allowed.next_CC, allowed.first_C, allowed.last_C))
        return Chain(*(np.where(may.numpy(), weights, -np.inf) for weights, may in parts))


def allowed_of(labels: Sequence[str]) -> Allowed | None:
    """Chunk tags are learned as IOB2, which restricts what follows what."""
    return iob2_allowed(labels) if are_chunk_tags(labels) else None


def tagger(chain: Chain, labels: Sequence[str]) -> ChainTagger:
    """Chooses tags from the words' scores with this chain."""
    crf = LinearChainCrf(len(labels), allowed_of(labels))
    with torch.no_grad():
        for parameter, weights in zip((crf.transitions, crf.starts, crf.ends), chain):
            parameter.copy_(torch.from_numpy(np.asarray(weights)))
    return ChainTagger(crf)


class Paths:
    """Sentences with their tags, in the form that `field.py` learns from."""

    def __init__(self, tags: Tags, units: np.ndarray, rows: np.ndarray) -> None:
        """`units`: those of these sentences; `rows`: of all units."""
        self.tags, self.values = tags, tags.values[units]
        self.sentences = Sentences.of_lengths(np.unique(rows[units], return_counts=True)[1])
        self.outputs, self.labels = tags.classes, len(units)
        self.shapes: Sequence[tuple[int, ...]] = ((tags.classes, tags.classes), (tags.classes,), (tags.classes,))

    def loss(self, scores: np.ndarray, extra: Extra) -> tuple[float, np.ndarray, Extra]:
        return self.sentences.loss(scores, self.values, self.tags.chain(*extra))


def fit_chain(
    views: Sequence[View],
    units: Units,
    tags: Tags,
    seed: int,
    groups: Sequence[int] = (),
    progress: Progress | None = None,
) -> FittedField:
    """`groups`: sentences with the same number (copies) stay together in folds; empty: each by itself."""

    def paths_of(rows: np.ndarray) -> Paths:
        return Paths(tags, units.picked(rows), units.rows)

    fitted, extra = fit_field(TAGS, views, units, paths_of, seed, groups, progress)
    fitted.head.chain = Chain(*extra)
    return fitted
