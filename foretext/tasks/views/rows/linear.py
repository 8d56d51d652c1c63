"""Fits the head over views of rows: a ridge-penalised logistic regression (regression: least squares) on their blocks.

Learned in this order: the views themselves from the training rows, how much each block counts, how strongly the head is
regularised (`relevance.py`), the weights. Every minimum is unique, so the seed affects only the folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from foretext.errors import refuse_if
from foretext.tasks.heads.supervised import arranged, loss_of_labels
from foretext.tasks.views.base import Block, Matrix, Tensors, Units, View, deal
from foretext.tasks.views.head import ViewHead, read_blocks, shares_of
from foretext.tasks.views.rows.relevance import (
    MOST_UNITS,
    Chosen,
    choose_strength,
    fit_linear,
    gram,
    relevances,
    scale_factors,
)

FOLDS = 5


@dataclass(frozen=True)
class Labels:
    """Of rows: class numbers, choice numbers, or standardised scores."""

    kind: str
    values: np.ndarray
    classes: int

    @property
    def outputs(self) -> int:
        return 1 if self.kind in ("choice", "regression") else self.classes


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
    total = torch.stack([variance * kernel for variance, kernel in zip(relevance, kernels)]).sum(0) / noise
    loss = partial(_loss, units=units, labels=labels, picked=picked)
    folds = folds_of(units, picked, labels, seed, np.asarray(groups) if len(groups) else rows)
    chosen = choose_strength(total, folds, labels.outputs, loss)
    factors = scale_factors({name: block[picked] for name, block in blocks.items()}, relevance, noise)
    weights, bias = _solve(blocks, factors, units, labels, chosen.strength)
    limits = None
    if labels.kind == "regression":
        limits = np.array([labels.values.min(), labels.values.max()], dtype=np.float32)
    shares = shares_of(blocks, weights)
    head = ViewHead([*views], weights, bias, labels.kind, shares, len(units.words[0]), limits=limits)
    return Fitted(head, chosen, some, dict(zip(blocks, relevance)), noise)


def _most_rows(units: Units, most: int) -> int:
    return max(1, most * len(np.unique(units.rows)) // len(units.rows))


def _targets(units: Units, labels: Labels) -> Tensor:
    """Real-valued targets of the units: one 0/1 column per class, 1 for the right alternative, or the scores."""
    values = labels.values[units.rows]
    if labels.kind == "regression":
        return torch.from_numpy(values.astype(np.float64))[:, None]
    if labels.kind == "choice":
        firsts = np.searchsorted(units.rows, units.rows)
        return torch.from_numpy((np.arange(len(values)) - firsts == values).astype(np.float64))[:, None]
    columns = np.eye(labels.classes)[values.astype(int)]
    return torch.from_numpy(columns[:, :1] if labels.classes == 2 else columns)


def _loss(outputs: Tensor, places: Tensor, *, units: Units, labels: Labels, picked: np.ndarray) -> Tensor:
    """The loss over the rows of the units `picked[places]`, which are whole rows, in order."""
    rows = units.rows[picked[places.numpy()]]
    names, group = np.unique(rows, return_inverse=True)
    scores = arranged(outputs, torch.from_numpy(group), labels.kind)
    values = torch.from_numpy(labels.values[names])
    values = values.to(scores.dtype) if labels.kind == "regression" else values.long()
    return loss_of_labels(scores, values, labels.kind)


def folds_of(
    units: Units, picked: np.ndarray, labels: Labels, seed: int, groups: np.ndarray
) -> list[tuple[Tensor, Tensor]]:
    """Stratified by class, copies together; as many as the rarest class allows, at least two if possible."""
    rows = np.unique(units.rows[picked])
    values, places = labels.values[rows], units.rows[picked]
    classes = labels.kind not in ("regression", "choice")
    least = min(np.unique(values, return_counts=True)[1]) if classes else len(rows)
    folds = deal(values if classes else None, groups[rows], min(FOLDS, max(2, int(least))), seed)
    return [(_of_rows(places, rows[learn]), _of_rows(places, rows[score])) for learn, score in folds]


def _of_rows(places: np.ndarray, rows: np.ndarray) -> Tensor:
    """The indices of the units of these rows."""
    return torch.from_numpy(np.flatnonzero(np.isin(places, rows)))


def _solve(
    blocks: dict[str, Block], factors: dict[str, float], units: Units, labels: Labels, strength: float
) -> tuple[Tensors, np.ndarray]:
    """The weights of each block, and the bias, fitted on all rows."""
    scaled = [cast("Matrix", block).astype(np.float64) * factors[name] for name, block in blocks.items()]
    loss = partial(
        _loss, places=torch.arange(len(units.rows)), units=units, labels=labels, picked=np.arange(len(units.rows))
    )
    table = fit_linear(scaled, labels.outputs, loss, strength)
    refuse_if(
        not np.isfinite(table).all(),
        "the loss of the head over the views is not finite; train without views: --views none",
    )
    *weights, bias = np.split(table.astype(np.float32), np.cumsum([block.shape[1] for block in scaled]))
    return {name: table * np.float32(factors[name]) for name, table in zip(blocks, weights)}, bias[0]
