"""The view of n-grams: the words and pairs of words of a text, (1 + log tf)·idf, each row of unit length.

The terms are those of the training rows. For pairs of texts, the terms of each text are one block, and a second view
describes their overlap: some seventeen numbers per pair, such as how many words of each the other has.

    premise     a man is playing the guitar
    hypothesis  a man plays no instrument         2 of 5 words shared, 1 pair of neighbours, a "no" that only one has

The effect of such numbers is rarely linear (nothing shared, some, all), and rarely independent. So the head gets linear
splines of each, with knots at the quartiles of the training rows, and smooth functions of all of them together.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp

from foretext.tasks.views.base import Block, Tensors, Terms, Units, lines_of, of_pairs, text_tensor

MOST_TERMS = 500_000  # the most frequent ones are kept
# English negations; in other languages the n-grams must tell.
NEGATIONS = frozenset(("no", "not", "n't", "never", "nobody", "nothing", "none", "nor", "neither", "without"))
_QUARTILES = (25, 50, 75)
WAVES = 200


def terms_of(words: Sequence[str]) -> list[str]:
    """Words, and pairs of neighbours."""
    return [*words, *(f"{first} {second}" for first, second in itertools.pairwise(words))]


def inverse_frequencies(terms: Sequence[str], counts: Mapping[str, int], documents: int) -> np.ndarray:
    """The idf of each term, given how many of the documents have it."""
    return np.asarray(np.log((1 + documents) / (1 + np.array([counts[term] for term in terms], dtype=np.float64))) + 1)


class NGrams:
    name = "ngrams"

    def __init__(self, terms: Sequence[str], idf: np.ndarray) -> None:
        self.terms, self.idf = Terms(terms), idf.astype(np.float32, copy=False)

    @classmethod
    def learned(cls, units: Units, least: int = 1, most: int = MOST_TERMS) -> Self:
        """Learned from the training rows. A term that only one text has carries no information besides its label, but
        the head must see that it is rare, so it stays. `least`: the number of texts that must have a term, if there are
        many texts."""
        documents = [words for texts in units.words for words in texts]
        counts = Counter(term for words in documents for term in set(terms_of(words)))
        terms = list(Terms.counted(counts, least, most))
        return cls(terms, inverse_frequencies(terms, counts, len(documents)))

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
            counts = Counter(column for term in terms_of(words) if (column := self.terms.get(term)) is not None)
            columns = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
            frequencies = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))
            weights = (1 + np.log(frequencies)) * self.idf[columns]
            indices += columns.tolist()
            values += (weights / max(float(np.sqrt(weights @ weights)), 1e-9)).tolist()
            ends.append(len(indices))
        shape = len(documents), len(self.terms)
        return sp.csr_matrix((np.array(values, dtype=np.float32), indices, ends), shape=shape)

    def tensors(self) -> Tensors:
        return {"terms": self.terms.tensor(), "idf": self.idf}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(lines_of(tensors["terms"]), tensors["idf"])


class Numbers:
    """Numbers of a pair in a form that suits a linear head: splines of each, and waves of all together."""

    def __init__(self, mean: np.ndarray, deviation: np.ndarray, knots: np.ndarray, directions: np.ndarray) -> None:
        """For N numbers: [N], [N], [3, N], and for W waves [N + 1, W], with the phases last; runs made before waves
        existed have none."""
        self.mean, self.deviation, self.knots, self.directions = mean, deviation, knots, directions

    @classmethod
    def learned(cls, numbers: np.ndarray) -> Self:
        mean, deviation = numbers.mean(0), numbers.std(0)
        deviation = np.where(deviation > 1e-9, deviation, 1.0)
        knots = np.percentile((numbers - mean) / deviation, _QUARTILES, axis=0)
        draw, count = np.random.default_rng(0), len(mean)
        directions = draw.standard_normal((count, WAVES)) / math.sqrt(count)
        return cls(mean, deviation, knots, np.vstack([directions, draw.uniform(0, 2 * math.pi, WAVES)]))

    def read(self, numbers: np.ndarray, name: str) -> dict[str, Block]:
        """A block with this name, and one of waves. Numbers that an older run did not have come last and are left
        out."""
        standard = (numbers[:, : len(self.mean)] - self.mean) / self.deviation
        above = [np.maximum(standard - knot, 0.0) for knot in self.knots]
        splines = np.clip(np.concatenate([standard, *above], axis=1), -10.0, 10.0).astype(np.float32)
        return {name: splines} | ({"waves": self._waves(standard)} if self.directions.size else {})

    def _waves(self, standard: np.ndarray) -> np.ndarray:
        """Random Fourier features of a Gaussian kernel (Rahimi and Recht 2007): a linear function of them is a smooth
        function of all numbers."""
        *directions, phases = self.directions
        return np.cos(np.clip(standard, -4.0, 4.0) @ np.array(directions) + phases).astype(np.float32)

    def tensors(self) -> Tensors:
        return {name: getattr(self, name) for name in ("mean", "deviation", "knots", "directions")}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        none = np.zeros((0, 0))
        return cls(tensors["mean"], tensors["deviation"], tensors["knots"], tensors.get("directions", none))


class Overlap:
    name = "overlap"

    def __init__(self, words: Sequence[str], idf: np.ndarray, reader: Numbers | None = None) -> None:
        self.words, self.weights = list(words), idf
        self.idf = dict(zip(self.words, idf.tolist()))
        self.rare = max(self.idf.values(), default=1.0)  # for a word that does not occur in the training rows
        self.reader = reader

    @classmethod
    def learned(cls, units: Units) -> Self:
        documents = [set(words) for texts in units.words for words in texts]
        counts = Counter(word for words in documents for word in words)
        kept = sorted(counts)
        view = cls(kept, inverse_frequencies(kept, counts, len(documents)))
        view.reader = Numbers.learned(of_pairs(units, view.numbers))
        return view

    def read(self, units: Units) -> dict[str, Block]:
        assert self.reader is not None
        return self.reader.read(of_pairs(units, self.numbers), "overlap")

    def numbers(self, units: Units) -> np.ndarray:
        return np.array([self._pair(first, second) for first, second in units.words], dtype=np.float64)

    def _pair(self, a: list[str], b: list[str]) -> list[float]:
        words_a, words_b = set(a), set(b)
        shared = words_a & words_b
        pairs_a, pairs_b = set(itertools.pairwise(a)), set(itertools.pairwise(b))
        letters_a, letters_b = _trigrams(a), _trigrams(b)
        weight_a, weight_b, weight = self._weight(words_a), self._weight(words_b), self._weight(shared)
        return [
            math.log1p(len(a)),
            math.log1p(len(b)),
            len(shared) / max(len(words_a), 1),
            len(shared) / max(len(words_b), 1),
            weight / max(weight_a, 1e-9),
            weight / max(weight_b, 1e-9),
            weight / max(weight_a + weight_b - weight, 1e-9),
            len(pairs_a & pairs_b) / max(len(pairs_b), 1),
            len(letters_a & letters_b) / max(len(letters_a | letters_b), 1),
            _longest_run(a, b) / max(len(b), 1),
            math.log1p(len(shared)),
            float(bool(NEGATIONS & words_a) != bool(NEGATIONS & words_b)),
            float(bool(NEGATIONS & words_b - words_a)),
            float({word for word in words_a if word[0].isdigit()} != {word for word in words_b if word[0].isdigit()}),
            float(a == b),
            self._cosine(Counter(a), Counter(b)),
            _likeness(_runs_of_letters(a), _runs_of_letters(b)),
        ]

    def _cosine(self, a: Counter[str], b: Counter[str]) -> float:
        """The cosine of the TF-IDF vectors."""
        tf_idf = ({w: (1 + math.log(n)) * self.idf.get(w, self.rare) for w, n in c.items()} for c in (a, b))
        return _likeness(*tf_idf)

    def _weight(self, words: set[str]) -> float:
        return math.fsum(self.idf.get(word, self.rare) for word in words)

    def tensors(self) -> Tensors:
        assert self.reader is not None
        return {"words": text_tensor(self.words), "idf": self.weights} | self.reader.tensors()

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(lines_of(tensors["words"]), tensors["idf"], Numbers.of_tensors(tensors))


def _likeness(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """The cosine of two sparse vectors."""
    if len(a) > len(b):
        a, b = b, a
    sizes = math.fsum(value * value for value in a.values()) * math.fsum(value * value for value in b.values())
    return math.fsum(value * b.get(key, 0.0) for key, value in a.items()) / math.sqrt(sizes) if sizes else 0.0


def _runs_of_letters(words: Sequence[str]) -> dict[str, float]:
    """Log counts of the runs of two to four letters within words, including word borders."""
    runs = Counter(
        marked[i : i + n]
        for marked in (f" {word} " for word in words)
        for n in (2, 3, 4)
        for i in range(len(marked) - n + 1)
    )
    return {run: 1 + math.log(count) for run, count in runs.items()}


def _trigrams(words: Sequence[str]) -> set[str]:
    text = " ".join(words)
    return {text[i : i + 3] for i in range(len(text) - 2)}


def _longest_run(a: Sequence[str], b: Sequence[str]) -> int:
    """The longest run of words that both share. Each text is cut to 300 words, since the time grows with the
    product."""
    a, b = a[:300], b[:300]
    best, before = 0, [0] * (len(b) + 1)
    for word in a:
        now = [0] * (len(b) + 1)
        for place, other in enumerate(b, 1):
            if word == other:
                now[place] = before[place - 1] + 1
        best, before = max(best, *now), now
    return best
