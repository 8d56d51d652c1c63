"""Fits the head over views of rows: a ridge-penalised logistic regression (regression: least squares) on their blocks.

Learned in this order: the views themselves from the training rows, how much each block counts, how strongly the head is
regularised, the weights. Every minimum is unique, so the seed affects only the folds.

**Relevance.** If the weights for block v have prior variance s_v, a linear head is a Gaussian process with the kernel Σ
s_v K_v, K_v = X_v X_vᵀ. With the labels as real targets (one centred column per class) and noise σ², the likelihood of
all labels, with the weights integrated out, has a closed form, and its gradient leads to the s_v that maximise it.
These are a handful of numbers, so a hundred labels are enough and no row has to be held out (Rasmussen and Williams
2006, chapter 5; MacKay's automatic relevance determination, for groups of columns). Without it, n-grams drown the word
vectors of a hundred reviews, or vectors drown the first words of a question.

**Strength.** The head itself is a logistic regression, so one factor on all s_v/σ² remains; cross-validation chooses
it. In the basis of the kernel's eigenvectors a fold takes milliseconds, whatever the widths of the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from foretext.errors import refuse_if
from foretext.tasks.heads.supervised import arranged, loss_of_labels
from foretext.tasks.views.base import (
    Block,
    ChosenStrength,
    FittedHead,
    Matrix,
    Tensors,
    Units,
    View,
    ViewHead,
    deal,
    is_sparse,
    read_blocks,
    shares_of,
)

MOST_UNITS = 1500  # time grows with their cube, and more units would not improve the estimate
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
FOLDS = 5
USUAL = 3.0  # where the folds cannot tell
_PRIOR_DEVIATION = 2.0  # of the logarithm of each s_v and of σ², around e⁻¹ of the labels' variance
# Of the labels' variance. Numbers 0 and 1 can often be told without fault, and the head would then be far too sure: on
# questions of TREC-6 the loss of unseen rows was 1.41 without this and is 1.04 with it, at the same accuracy.
LEAST_NOISE = 0.1
_ITERATIONS = 500
_FIRST_UNITS = 400
# The search may try any value; these bounds keep the kernel factorisable.
_MOST_LOG = 20.0
_ROUNDING = 1e-9

Loss = Callable[[Tensor, Tensor], Tensor]  # (indices of units, their outputs) → the loss, summed over their rows


# -- relevance and strength --------------------------------------------------------------------------------------------


def gram(block: Matrix) -> Tensor:
    """K_v of a block, centred, with mean 1 on its diagonal; zeros if its rows are all equal."""
    exact = block.astype(np.float64)  # in float32 a kernel of low rank has eigenvalues well below 0
    product = exact @ exact.T
    kernel = torch.from_numpy(np.asarray(product.todense() if is_sparse(product) else product))
    centred = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
    size = float(centred.diagonal().mean())
    return centred / size if size > 1e-9 else torch.zeros_like(centred)


def relevances(kernels: Sequence[Tensor], targets_NC: Tensor) -> tuple[list[float], float]:
    """s_v of each kernel, and σ², in units of the targets' variance."""
    logs = np.full(len(kernels) + 1, -1.0)
    every = max(1, len(targets_NC) // _FIRST_UNITS)
    for step in dict.fromkeys((every, 1)):  # a search on some of the units quickly finds a starting point for all
        some = [kernel[::step, ::step] for kernel in kernels]
        logs = descend(partial(_evidence, some, targets_NC[::step].double()), logs, 1e-6)
    *variances, noise = np.exp(logs).tolist()
    return variances, noise + LEAST_NOISE


@torch.no_grad()
def _evidence(kernels: Sequence[Tensor], targets_NC: Tensor, flat: np.ndarray) -> tuple[float, np.ndarray]:
    """−log likelihood of the targets, given the logs of s_v and σ², and its gradient in closed form: ∂/∂s_v =
    (C·tr(K⁻¹K_v) − Σ αᵀK_v α) / 2, α = K⁻¹y, with one inverse for all."""
    targets = targets_NC - targets_NC.mean(0)
    targets = targets / targets.std().clamp(min=1e-9)
    eye = torch.eye(len(targets), dtype=torch.float64)
    logs = torch.from_numpy(flat)
    scales = logs.clamp(-_MOST_LOG, _MOST_LOG).exp()
    total = (scales[-1] + LEAST_NOISE + _ROUNDING * float(scales[:-1].sum())) * eye
    for scale, kernel in zip(scales, kernels):
        total += scale * kernel
    factor = torch.linalg.cholesky(total)
    inverse = torch.cholesky_inverse(factor)
    solved = inverse @ targets
    volume = targets.shape[1] * factor.diagonal().log().sum()
    loss = (targets * solved).sum() / 2 + volume + ((logs + 1.0) / _PRIOR_DEVIATION).square().sum() / 2
    slope = (targets.shape[1] * inverse - solved @ solved.T) / 2
    slopes = torch.stack([*((slope * kernel).sum() for kernel in kernels), slope.diagonal().sum()])
    return float(loss), (scales * slopes + (logs + 1.0) / _PRIOR_DEVIATION**2).numpy()


def descend(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]], begin: np.ndarray, tolerance: float
) -> np.ndarray:
    """The minimum of a smooth function, found by L-BFGS starting at `begin`. `objective` returns its value and
    gradient. It stops when a step gains less than `tolerance` of the value."""
    options = {"maxiter": _ITERATIONS, "ftol": tolerance, "gtol": 1e-7}
    return np.asarray(minimize(objective, begin, jac=True, method="L-BFGS-B", options=options).x)


def fit_linear(
    blocks: Sequence[Matrix],
    outputs: int,
    loss: Callable[[Tensor], Tensor],
    strength: float,
    begin: np.ndarray | None = None,
    tolerance: float = 1e-11,
) -> np.ndarray:
    """The weights of all blocks [columns, outputs], one block below the other and the bias last, that minimise loss(Σ
    block·W + b) + |W|²/(2·strength). The bias is not penalised."""
    widths = [block.shape[1] for block in blocks]
    ends = np.cumsum(widths)
    turned = [block.T.tocsr() if is_sparse(block) else np.asarray(block).T for block in blocks]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        table = flat.reshape(-1, outputs)
        *weights, bias = np.split(table, ends)
        added = sum(block @ weight for block, weight in zip(blocks, weights))
        scores = torch.from_numpy(bias + added).requires_grad_()
        total = loss(scores)
        (slope,) = torch.autograd.grad(total, scores)
        pull = np.concatenate([*(block @ slope.numpy() for block in turned), slope.numpy().sum(0, keepdims=True)])
        pull[:-1] += table[:-1] / strength
        return float(total.detach()) + float(np.square(table[:-1]).sum()) / (2 * strength), pull.ravel()

    start = np.zeros((ends[-1] + 1) * outputs) if begin is None else begin.ravel()
    return descend(objective, start, tolerance).reshape(-1, outputs)


@dataclass(frozen=True)
class Chosen(ChosenStrength):
    """The result of cross-validation over rows."""

    # [units, outputs], each unit scored by a head that has not seen its row; NaN where no fold left it out
    outputs: np.ndarray


def choose_strength(kernel: Tensor, folds: Sequence[tuple[Tensor, Tensor]], outputs: int, loss: Loss) -> Chosen:
    """`kernel`: Σ s_v K_v / σ². `folds`: units to learn from and units to score, of different rows."""
    values, vectors = torch.linalg.eigh(kernel)
    kept = values > values[-1] * 1e-8
    basis = (vectors[:, kept] * values[kept].sqrt()).numpy()
    losses: dict[float, float] = dict.fromkeys(STRENGTHS, 0.0)
    scores = {strength: np.full((len(kernel), outputs), np.nan) for strength in STRENGTHS}
    for learn, score in folds:
        table = None
        for strength in STRENGTHS:  # each search starts where the previous one ended
            table = fit_linear([basis[learn]], outputs, partial(loss, learn), strength, table, 1e-7)
            left_out = basis[score] @ table[:-1] + table[-1]
            scores[strength][score] = left_out
            losses[strength] += float(loss(score, torch.from_numpy(left_out)))
    best = min(STRENGTHS, key=lambda strength: losses[strength]) if folds else USUAL
    return Chosen(best, losses, scores[best])


def scale_factors(kernels: Mapping[str, Matrix], relevance: Sequence[float], noise: float) -> dict[str, float]:
    """The factor for each block, so that one variance fits all weights."""
    factors = {}
    for (name, block), variance in zip(kernels.items(), relevance):
        mean = np.asarray(block.mean(0)).ravel()
        squares = block.multiply(block).sum() if is_sparse(block) else np.square(block).sum()
        size = float(squares) / block.shape[0] - float(mean @ mean)
        factors[name] = float(np.sqrt(variance / (noise * size))) if size > 1e-9 else 0.0
    return factors


# -- the head ----------------------------------------------------------------------------------------------------------


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
class Fitted(FittedHead):
    """`relevance`: s_v of each block."""

    chosen: Chosen
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
    some = np.sort(np.random.default_rng(seed).permutation(len(rows))[: max(1, most * len(rows) // len(units.rows))])
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


def _loss(places: Tensor, outputs: Tensor, *, units: Units, labels: Labels, picked: np.ndarray) -> Tensor:
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
    loss = partial(_loss, torch.arange(len(units.rows)), units=units, labels=labels, picked=np.arange(len(units.rows)))
    table = fit_linear(scaled, labels.outputs, loss, strength)
    refuse_if(
        not np.isfinite(table).all(),
        "the loss of the head over the views is not finite; train without views: --views none",
    )
    *weights, bias = np.split(table.astype(np.float32), np.cumsum([block.shape[1] for block in scaled]))
    return {name: table * np.float32(factors[name]) for name, table in zip(blocks, weights)}, bias[0]
