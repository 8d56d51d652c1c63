"""The view learned from unlabelled text: the logits of a student, a logistic regression on n-grams.

It was trained on the classes that a teacher gave to unlabelled texts (`self_training.py`), and so knows words that no
labelled row has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from foretext.tasks.views.base import Block, Tensors, Units
from foretext.tasks.views.rows.ngrams import NGrams

STRENGTH = 10.0  # C of scikit-learn's LogisticRegression; larger: less regularisation
_ITERATIONS = 80


class Taught:
    name = "taught"

    def __init__(self, ngrams: NGrams, weight: np.ndarray, bias: np.ndarray) -> None:
        """`weight`: [terms, classes]."""
        self.ngrams, self.weight, self.bias = ngrams, weight.astype(np.float32), bias.astype(np.float32)

    @classmethod
    def learned(
        cls, ngrams: NGrams, matrix: sp.csr_matrix, classes: np.ndarray, weights: np.ndarray, count: int
    ) -> Self:
        """From the n-grams of texts, their classes (`count` in all), and the weight of each text."""
        return cls(ngrams, *_fitted(matrix, np.eye(count)[classes], weights))

    def read(self, units: Units) -> dict[str, Block]:
        return {"logits": self.logits(self.ngrams.matrix(units.side(0)))}

    def logits(self, matrix: sp.csr_matrix) -> np.ndarray:
        """The logits of texts given as n-grams, minus each text's mean, since adding a constant to them means
        nothing."""
        logits = np.asarray(matrix @ self.weight) + self.bias
        return np.asarray(logits - logits.mean(1, keepdims=True))

    def tensors(self) -> Tensors:
        return self.ngrams.tensors() | {"weight": self.weight, "bias": self.bias}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(NGrams.of_tensors(tensors), tensors["weight"], tensors["bias"])


def _fitted(matrix: sp.csr_matrix, targets_NC: np.ndarray, weights_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias that minimise Σ weight · cross-entropy + |W|²/(2·STRENGTH); with two classes, the first has
    logit 0. The products with a sparse matrix in float32 are several times faster, and sum in one order whatever the
    number of threads."""
    texts, turned = matrix.astype(np.float32), matrix.T.tocsr().astype(np.float32)
    terms, free = matrix.shape[1], 1 if targets_NC.shape[1] == 2 else targets_NC.shape[1]
    zeros = np.zeros((len(targets_NC), targets_NC.shape[1] - free))

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = flat[: terms * free].reshape(terms, free), flat[terms * free :]
        logits = np.concatenate([zeros, (texts @ weight.astype(np.float32)).astype(np.float64) + bias], axis=1)
        logits -= logits.max(1, keepdims=True)
        chances = np.exp(logits)
        sums = chances.sum(1, keepdims=True)
        loss = (weights_N * (np.log(sums) - (targets_NC * logits).sum(1, keepdims=True))[:, 0]).sum()
        wrong = ((chances / sums - targets_NC) * weights_N[:, None])[:, -free:]
        pull = (turned @ wrong.astype(np.float32)).astype(np.float64) + weight / STRENGTH
        whole = float(loss + np.square(weight).sum() / (2 * STRENGTH))
        return whole, np.concatenate([pull.ravel(), wrong.sum(0)])

    options = {"maxiter": _ITERATIONS, "ftol": 1e-7}
    solution = minimize(objective, np.zeros((terms + 1) * free), jac=True, method="L-BFGS-B", options=options).x
    table = np.zeros((terms + 1, targets_NC.shape[1]))
    table[:, -free:] = solution.reshape(terms + 1, free)
    return table[:-1], table[-1]
