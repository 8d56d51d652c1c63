"""Texts as means of their words' vectors.

    sif_means     Σ a / (a + p(w)) · v_w / |text|     smooth inverse frequency (Arora, Liang, Ma 2017), a = .001
    first_words   Σ e^(−i / decay) · v_i / Σ e^(−i / decay)     i: a word's place, from 0: how a text begins

Vectors count with unit length, as the size of a word's vector says mostly how frequent it is. Words without one
(specials, unknown words: a row of zeros, or no row) are left out; a text without any known word is zeros. Not followed:
Arora's removal of the first principal component, which whoever reads rows of a task does by centring them.

A text is an array of ids. All texts are one sparse product.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

SMOOTHING = 1e-3


def sif_means(
    matrix_VD: np.ndarray, counts_V: np.ndarray, documents: Sequence[np.ndarray], smoothing: float = SMOOTHING
) -> np.ndarray:
    """float32 [documents, D]. `counts_V`: how often each word stands in the text that the vectors are of."""
    texts = _Texts(matrix_VD, documents)
    share_V = counts_V / max(1, int(counts_V.sum()))
    weights = (smoothing / (smoothing + share_V))[texts.ids]
    return texts.sums(weights) / np.maximum(texts.totals(np.ones(len(weights))), 1.0)


def first_words(matrix_VD: np.ndarray, documents: Sequence[np.ndarray], decay: float) -> np.ndarray:
    """float32 [documents, D]."""
    texts = _Texts(matrix_VD, documents)
    weights = np.exp(-texts.places / decay)
    totals = texts.totals(weights)
    return texts.sums(weights) / np.where(totals > 0, totals, np.float32(1))


def joined(documents: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All ids one after the other, and how many each document has."""
    lengths = np.fromiter((len(one) for one in documents), dtype=np.int64, count=len(documents))
    flat = np.concatenate(list(documents)).astype(np.int64) if len(documents) else np.zeros(0, dtype=np.int64)
    return flat, lengths


class _Texts:
    """The words of documents that have a vector, one document after the other."""

    def __init__(self, matrix_VD: np.ndarray, documents: Sequence[np.ndarray]) -> None:
        flat, lengths = joined(documents)
        norms_V = np.sqrt(np.einsum("vd,vd->v", matrix_VD, matrix_VD))
        inside = (flat >= 0) & (flat < len(matrix_VD))
        known = inside & (norms_V[np.where(inside, flat, 0)] > 0)
        before = np.concatenate([[0], np.cumsum(known)])
        ends = np.concatenate([[0], np.cumsum(lengths)])
        self.matrix_VD = matrix_VD
        self.ids = flat[known]
        self.places = (np.arange(len(flat)) - np.repeat(ends[:-1], lengths))[known]  # in their documents
        self._starts = before[ends]  # where each document begins among `ids`
        self._scale = 1.0 / norms_V[self.ids]

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Σ weight · unit vector of each document."""
        shape = (len(self._starts) - 1, len(self.matrix_VD))
        data = (weights * self._scale).astype(np.float32)
        table = sparse.csr_matrix((data, self.ids, self._starts), shape=shape)
        return np.asarray(table @ self.matrix_VD, dtype=np.float32)

    def totals(self, weights: np.ndarray) -> np.ndarray:
        """Σ weight of each document, float32 [documents, 1]."""
        before = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])[self._starts]
        return np.diff(before).astype(np.float32)[:, None]
