"""How much each block of the views counts, and how strongly the head is held back: learned from the labels.

**Relevance.** The prior of a linear head whose weights for block v have the variance s_v is a Gaussian process with the
kernel Σ s_v K_v, K_v = X_v X_vᵀ. With the labels as real targets (one column a class, centred) and noise σ² the
likelihood of all labels, weights integrated out, is a formula, and the s_v that make it largest are found by its
gradient: a handful of numbers, so that a hundred labels are enough, and no row has to be held out (Rasmussen and
Williams 2006, chapter 5; MacKay's automatic relevance determination, a group of columns at a time). Without it n-grams
drown the word vectors of a hundred reviews, or vectors the first words of a question.

**Strength.** The head itself is a logistic regression, so one factor on all s_v/σ² is left, chosen by cross-validation.
In the basis of the kernel's eigenvectors a fold costs milliseconds, whatever the widths of the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from foretext.tasks.views.base import Matrix, is_sparse

MOST_UNITS = 1500  # the time goes by their cube; relevance of more would not be known better
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
USUAL = 3.0  # where the folds cannot tell
_PRIOR_DEVIATION = 2.0  # of the logarithm of each s_v and of σ², around e⁻¹ of the labels' variance
_ITERATIONS = 60
# A search for the least may try anything, and labels that a block tells without fault want a noise of 0: what is tried
# stays where a kernel can be factorised.
_MOST_LOG = 20.0
_ROUNDING = 1e-9

Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs of units, which units) → summed over their rows


def gram(block: Matrix) -> Tensor:
    """K_v of a block, centred, with a mean of 1 on its diagonal; zeros if its rows are all alike."""
    own = block.astype(np.float64)  # in float32 a kernel of few directions has eigenvalues well below 0
    product = own @ own.T
    kernel = torch.from_numpy(np.asarray(product.todense() if is_sparse(product) else product))
    centred = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
    size = float(centred.diagonal().mean())
    return centred / size if size > 1e-9 else torch.zeros_like(centred)


def relevances(kernels: Sequence[Tensor], targets_NC: Tensor) -> tuple[list[float], float]:
    """s_v of each kernel and σ², in units of the targets' variance."""
    targets = targets_NC.double() - targets_NC.double().mean(0)
    targets = targets / targets.std().clamp(min=1e-9)
    eye = torch.eye(len(targets), dtype=torch.float64)
    logs = torch.full((len(kernels) + 1,), -1.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logs], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    @torch.no_grad()
    def evidence() -> Tensor:
        """Its gradient is written out: ∂/∂s_v = (C·tr(K⁻¹K_v) − Σ αᵀK_v α) / 2, α = K⁻¹y, from one inverse for all."""
        scales = logs.clamp(-_MOST_LOG, _MOST_LOG).exp()
        scales[-1].clamp_(min=1e-6)
        total = scales[-1] * eye
        for scale, kernel in zip(scales, kernels):
            total += scale * kernel
        total += _ROUNDING * float(scales[:-1].sum()) * eye
        factor = torch.linalg.cholesky(total)
        inverse = torch.cholesky_inverse(factor)
        told = inverse @ targets
        volume = targets.shape[1] * factor.diagonal().log().sum()
        loss = (targets * told).sum() / 2 + volume + ((logs + 1.0) / _PRIOR_DEVIATION).square().sum() / 2
        slope = (targets.shape[1] * inverse - told @ told.T) / 2
        slopes = torch.stack([(slope * kernel).sum() for kernel in (*kernels, eye)])
        logs.grad = scales * slopes + (logs + 1.0) / _PRIOR_DEVIATION**2
        return loss

    optimizer.step(evidence)
    found = logs.detach().exp().tolist()
    return found[:-1], found[-1]


def minimise(
    features_ND: Tensor, outputs: int, loss: Callable[[Tensor], Tensor], strength: float
) -> tuple[Tensor, Tensor]:
    """Weights and bias that make loss(features·W + b) + |W|²/(2·strength) least. The bias is free."""
    weight = torch.zeros(features_ND.shape[1], outputs, dtype=features_ND.dtype, requires_grad=True)
    bias = torch.zeros(outputs, dtype=features_ND.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, tolerance_grad=1e-5, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        total = loss(features_ND @ weight + bias) + weight.square().sum() / (2 * strength)
        total.backward()
        return total

    optimizer.step(objective)
    return weight.detach(), bias.detach()


def _of_units(loss: Loss, units: Tensor, outputs: Tensor) -> Tensor:
    return loss(outputs, units)


@dataclass(frozen=True)
class Chosen:
    """What cross-validation says."""

    strength: float
    outputs: np.ndarray  # [units, outputs], each unit by a head that has not seen its row; NaN where none was left out
    losses: dict[float, float]  # summed over all rows


def choose_strength(kernel: Tensor, folds: Sequence[tuple[Tensor, Tensor]], outputs: int, loss: Loss) -> Chosen:
    """`kernel`: Σ s_v K_v / σ². `folds`: units to learn from and units to score, of other rows."""
    values, vectors = torch.linalg.eigh(kernel)
    kept = values > values[-1] * 1e-8
    basis = vectors[:, kept] * values[kept].sqrt()
    losses: dict[float, float] = {}
    found: dict[float, Tensor] = {}
    for strength in STRENGTHS:
        scores = torch.full((len(kernel), outputs), torch.nan, dtype=torch.float64)
        total = 0.0
        for learn, score in folds:
            weight, bias = minimise(basis[learn], outputs, partial(_of_units, loss, learn), strength)
            scores[score] = basis[score] @ weight + bias
            total += float(loss(scores[score], score))
        losses[strength], found[strength] = total, scores
    best = min(STRENGTHS, key=lambda strength: losses[strength]) if folds else USUAL
    return Chosen(best, found[best].numpy(), losses)


def scale_factors(kernels: Mapping[str, Matrix], relevance: Sequence[float], noise: float) -> dict[str, float]:
    """What each block is multiplied by, so that weights of one variance serve all."""
    factors = {}
    for (name, block), own in zip(kernels.items(), relevance):
        mean = np.asarray(block.mean(0)).ravel()
        squares = block.multiply(block).sum() if is_sparse(block) else np.square(block).sum()
        size = float(squares) / block.shape[0] - float(mean @ mean)
        factors[name] = float(np.sqrt(own / (noise * size))) if size > 1e-9 else 0.0
    return factors
