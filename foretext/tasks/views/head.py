"""The one head over all views: weights for each of their blocks, whose sum gives each unit its outputs.

Each family fits it in its own way: a ridge-penalised regression for rows (`rows/linear.py`), a chain of tags
(`words/chain.py`), spans of a passage (`answers/spans.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from foretext.nn.task_models.crf import Chain
from foretext.tasks.views.base import Block, Tensors, Units, View


class Lengths(NamedTuple):
    """The scores of a head for spans besides those of words: of each length, and of "no answer"."""

    lengths: np.ndarray  # [longest]
    nothing: np.ndarray  # [1]
    threshold: np.ndarray  # [1]: the margin by which "no answer" must outscore the best span


@dataclass(eq=False)
class ViewHead:
    """Views, and weights for each of their blocks."""

    views: list[View]
    weights: Tensors
    bias: np.ndarray
    kind: str
    # each block's share of the variance of the scores on the training rows
    shares: dict[str, float] = field(default_factory=dict)
    texts: int = 1  # per unit
    chain: Chain | None = None  # for tags: the transition scores
    # For regression: the lowest and the highest score of the training rows; a text unlike all of these can otherwise
    # get a score far outside.
    limits: np.ndarray | None = None
    lengths: Lengths | None = None  # for answers: the scores of their lengths

    @property
    def names(self) -> list[str]:
        return [view.name for view in self.views]

    def scores(self, units: Units) -> list[np.ndarray]:
        """In the format of a trunk's head: for each row the logits of its classes or choices, or its score; for tags
        and answers those of each word."""
        outputs = self.bias + sum(block @ self.weights[name] for name, block in self.blocks(units).items())
        if self.limits is not None:
            outputs = np.clip(outputs, *self.limits)
        return by_row(np.asarray(outputs), units, self.kind)

    def blocks(self, units: Units) -> dict[str, Block]:
        return read_blocks(self.views, units)

    def contributions(self, units: Units) -> dict[str, np.ndarray]:
        """What each block adds to the units' outputs."""
        return contributions(self.blocks(units), self.weights)


def read_blocks(views: Sequence[View], units: Units) -> dict[str, Block]:
    """All blocks of all views, named `view.block`."""
    return {f"{view.name}.{name}": block for view in views for name, block in view.read(units).items()}


def contributions(blocks: Mapping[str, Block], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What each block adds to the units' outputs."""
    return {name: np.asarray(block @ weights[name]) for name, block in blocks.items()}


def shares_of(blocks: Mapping[str, Block], weights: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Each block's share of the variance of the scores."""
    spread = {name: float(added.var(0).mean()) for name, added in contributions(blocks, weights).items()}
    return {name: variance / max(sum(spread.values()), 1e-12) for name, variance in spread.items()}


def by_row(outputs: np.ndarray, units: Units, kind: str) -> list[np.ndarray]:
    """[units, outputs] as one array per row."""
    if kind == "regression":
        return list(outputs[:, 0])
    if kind != "choice" and units.places is None:
        return list(outputs)
    ends = np.flatnonzero(np.diff(units.rows)) + 1
    return np.split(outputs if units.places is not None else outputs[:, 0], ends)
