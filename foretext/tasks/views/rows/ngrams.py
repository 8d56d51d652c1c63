"""The view of n-grams: the words and pairs of words of a text, (1 + log tf)·idf, each row of unit length.

The terms are those of the training rows. For pairs of texts, the terms of each text are one block, and a third
describes their overlap (`overlap.py`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp

from foretext.tasks.views.base import Block, Tensors, Units, lines_of, text_tensor

MOST_TERMS = 500_000  # the most frequent ones are kept


def terms_of(words: Sequence[str]) -> list[str]:
    """Words, and pairs of neighbours."""
    return [*words, *(f"{first} {second}" for first, second in itertools.pairwise(words))]


class NGrams:
    name = "ngrams"

    def __init__(self, terms: Sequence[str], idf: np.ndarray) -> None:
        self.terms, self.idf = list(terms), idf.astype(np.float32, copy=False)
        self.columns = {term: column for column, term in enumerate(self.terms)}

    @classmethod
    def learned(cls, units: Units, least: int = 1, most: int = MOST_TERMS) -> Self:
        """Learned from the training rows. A term that only one text has carries no information besides its label, but
        the head must see that it is rare, so it stays. `least`: the number of texts that must have a term, if there are
        many texts."""
        documents = [words for texts in units.words for words in texts]
        counts = Counter(term for words in documents for term in set(terms_of(words)))
        frequent = (term for term, count in counts.items() if count >= least)
        terms = sorted(frequent, key=lambda term: (-counts[term], term))[:most]
        idf = np.log((1 + len(documents)) / (1 + np.array([counts[term] for term in terms], dtype=np.float64))) + 1
        return cls(terms, idf)

    def read(self, units: Units) -> dict[str, Block]:
        if not units.pairs:
            return {"words": self.matrix(units.side(0))}
        first, second = self.matrix(units.side(0)), self.matrix(units.side(1))
        if units.ordered:
            return {"first": first, "second": second}
        return {"both": (first + second).tocsr()}

    def matrix(self, documents: Sequence[Sequence[str]]) -> sp.csr_matrix:
        indices: list[int] = []
        values: list[float] = []
        ends = [0]
        for words in documents:
            counts = Counter(column for term in terms_of(words) if (column := self.columns.get(term)) is not None)
            columns = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
            frequencies = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))
            weights = (1 + np.log(frequencies)) * self.idf[columns]
            indices += columns.tolist()
            values += (weights / max(float(np.sqrt(weights @ weights)), 1e-9)).tolist()
            ends.append(len(indices))
        shape = len(documents), len(self.terms)
        return sp.csr_matrix((np.array(values, dtype=np.float32), indices, ends), shape=shape)

    def tensors(self) -> Tensors:
        return {"terms": text_tensor(self.terms), "idf": self.idf}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(lines_of(tensors["terms"]), tensors["idf"])
