"""The one head over all views: a ridge-penalised logistic regression (regression: least squares) on their blocks.

Learned in this order: the views themselves from the training rows, how much each block counts, how strongly the head is
regularised (`relevance.py`), the weights. Every minimum is unique, so the seed affects only the folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from foretext.errors import UserError
from foretext.nn.task_models.crf import Chain
from foretext.tasks.heads.supervised import arranged, loss_of_labels
from foretext.tasks.views.base import Block, Matrix, Tensors, Units, View, deal
from foretext.tasks.views.relevance import (
    MOST_UNITS,
    Chosen,
    choose_strength,
    fit_linear,
    gram,
    relevances,
    scale_factors,
)

FOLDS = 5
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Labels:
    """Of rows: class numbers, choice numbers, or standardised scores."""

    kind: str
    values: np.ndarray
    classes: int

    @property
    def outputs(self) -> int:
        return 1 if self.kind in ("choice", "regression") else self.classes


class Lengths(NamedTuple):
    """The scores of a head for spans besides those of words: of each length, and of "no answer"."""

    lengths: np.ndarray  # [longest]
    nothing: np.ndarray  # [1]
    threshold: np.ndarray  # [1]: the margin by which "no answer" must outscore the best span


class ViewHead:
    """Views, and weights for each of their blocks."""

    def __init__(
        self,
        views: Sequence[View],
        weights: Tensors,
        bias: np.ndarray,
        kind: str,
        shares: dict[str, float],
        texts: int = 1,
        chain: Chain | None = None,
        limits: np.ndarray | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        """`shares`: each block's share of the variance of the scores on the training rows. `texts`: per unit. `chain`:
        for tags, the transition scores; `lengths`: for answers, the scores of their lengths. `limits`: the lowest and
        the highest score of the training rows, for regression; a text unlike all of these can otherwise get a score far
        outside."""
        self.views, self.weights, self.bias = list(views), weights, bias
        self.kind, self.shares, self.texts, self.chain = kind, shares, texts, chain
        self.limits, self.lengths = limits, lengths

    @property
    def names(self) -> list[str]:
        return [view.name for view in self.views]

    def scores(self, units: Units) -> list[np.ndarray]:
        """In the format of a trunk's head: for each row the logits of its classes or choices, or its score."""
        outputs = self.bias + sum(block @ self.weights[name] for name, block in self.blocks(units).items())
        if self.limits is not None:
            outputs = np.clip(outputs, *self.limits)
        return by_row(np.asarray(outputs), units, self.kind)

    def blocks(self, units: Units) -> dict[str, Block]:
        return read_blocks(self.views, units)

    def contributions(self, units: Units) -> dict[str, np.ndarray]:
        """What each block adds to the units' outputs."""
        return {name: np.asarray(block @ self.weights[name]) for name, block in self.blocks(units).items()}


def read_blocks(views: Sequence[View], units: Units) -> dict[str, Block]:
    """All blocks of all views, named `view.block`."""
    return {f"{view.name}.{name}": block for view in views for name, block in view.read(units).items()}


def by_row(outputs: np.ndarray, units: Units, kind: str) -> list[np.ndarray]:
    """[units, outputs] as one array per row."""
    if kind == "regression":
        return list(outputs[:, 0])
    if kind != "choice" and units.places is None:
        return list(outputs)
    ends = np.flatnonzero(np.diff(units.rows)) + 1
    return np.split(outputs if units.places is not None else outputs[:, 0], ends)


@dataclass(frozen=True)
class Fitted:
    head: ViewHead
    chosen: Chosen  # by cross-validation, on `rows`
    rows: np.ndarray  # the rows of the folds
    relevance: dict[str, float]  # s_v of each block
    noise: float  # σ²


def fit_views(
    views: Sequence[View],
    units: Units,
    labels: Labels,
    seed: int,
    groups: Sequence[int] | np.ndarray = (),
    most: int = MOST_UNITS,
) -> Fitted:
    """`groups`: rows with the same number (copies) stay together in folds; empty: each row by itself. `most`: how many
    units are used to choose relevance and strength."""
    blocks = read_blocks(views, units)
    rows = np.unique(units.rows)
    some = np.sort(np.random.default_rng(seed).permutation(len(rows))[: _most_rows(units, most)])
    picked = units.picked(some)
    kernels = [gram(block[picked]) for block in blocks.values()]
    relevance, noise = relevances(kernels, _targets(units, labels)[picked])
    total = torch.stack([own * kernel for own, kernel in zip(relevance, kernels)]).sum(0) / noise
    loss = partial(_loss, units=units, labels=labels, picked=picked)
    folds = folds_of(units, picked, labels, seed, np.asarray(groups) if len(groups) else rows)
    chosen = choose_strength(total, folds, labels.outputs, loss)
    factors = scale_factors({name: block[picked] for name, block in blocks.items()}, relevance, noise)
    weights, bias = _solve(blocks, factors, units, labels, chosen.strength)
    limits = None
    if labels.kind == "regression":
        limits = np.array([labels.values.min(), labels.values.max()], dtype=np.float32)
    head = ViewHead(views, weights, bias, labels.kind, {}, len(units.words[0]), limits=limits)
    said = {name: np.asarray(block @ weights[name]) for name, block in blocks.items()}
    spread = {name: float(own.var(0).mean()) for name, own in said.items()}
    head.shares = {name: own / max(sum(spread.values()), 1e-12) for name, own in spread.items()}
    return Fitted(head, chosen, some, dict(zip(blocks, relevance)), noise)


def _most_rows(units: Units, most: int) -> int:
    return max(1, most * len(np.unique(units.rows)) // len(units.rows))


def _targets(units: Units, labels: Labels) -> Tensor:
    """Real-valued targets of the units: one 0/1 column per class, 1 for the right alternative, or the scores."""
    own = labels.values[units.rows]
    if labels.kind == "regression":
        return torch.from_numpy(own.astype(np.float64))[:, None]
    if labels.kind == "choice":
        firsts = np.searchsorted(units.rows, units.rows)
        return torch.from_numpy((np.arange(len(own)) - firsts == own).astype(np.float64))[:, None]
    columns = np.eye(labels.classes)[own.astype(int)]
    return torch.from_numpy(columns[:, :1] if labels.classes == 2 else columns)


def _loss(outputs: Tensor, own: Tensor, *, units: Units, labels: Labels, picked: np.ndarray) -> Tensor:
    """The loss over the rows of the units `picked[own]`, which are whole rows, in order."""
    rows = units.rows[picked[own.numpy()]]
    names, group = np.unique(rows, return_inverse=True)
    said = arranged(outputs, torch.from_numpy(group), labels.kind)
    values = torch.from_numpy(labels.values[names])
    return loss_of_labels(said, values.to(said.dtype) if labels.kind == "regression" else values.long(), labels.kind)


def folds_of(
    units: Units, picked: np.ndarray, labels: Labels, seed: int, groups: np.ndarray
) -> list[tuple[Tensor, Tensor]]:
    """Stratified by class, copies together; as many as the rarest class allows, at least two if possible."""
    rows = np.unique(units.rows[picked])
    own_groups, values, places = groups[rows], labels.values[rows], units.rows[picked]
    classes = labels.kind not in ("regression", "choice")
    least = min(np.unique(values, return_counts=True)[1]) if classes else len(rows)
    found = deal(values if classes else None, own_groups, min(FOLDS, max(2, int(least))), seed)
    return [(_of_rows(places, rows[learn]), _of_rows(places, rows[score])) for learn, score in found]


def _of_rows(places: np.ndarray, rows: np.ndarray) -> Tensor:
    """The indices of the units of these rows."""
    return torch.from_numpy(np.flatnonzero(np.isin(places, rows)))


def _solve(
    blocks: dict[str, Block], factors: dict[str, float], units: Units, labels: Labels, strength: float
) -> tuple[Tensors, np.ndarray]:
    """The weights of each block, and the bias, fitted on all rows."""
    scaled = [cast("Matrix", block).astype(np.float64) * factors[name] for name, block in blocks.items()]
    loss = partial(
        _loss, own=torch.arange(len(units.rows)), units=units, labels=labels, picked=np.arange(len(units.rows))
    )
    table = fit_linear(scaled, labels.outputs, loss, strength)
    if not np.isfinite(table).all():
        raise UserError("the loss of the head over the views is not finite; train without views: --views none")
    *weights, bias = np.split(table.astype(np.float32), np.cumsum([own.shape[1] for own in scaled]))
    return {name: own * np.float32(factors[name]) for name, own in zip(blocks, weights)}, bias[0]
