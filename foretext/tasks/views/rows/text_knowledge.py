"""The views from a word2vec run, word vectors and latent semantics, and those from a trunk.

vectors  mean     the mean of a text's vectors, with less weight on frequent words (SIF)
         first    the vectors of its first words, weights e^(−i/1) and e^(−i/3): useful for kinds of question
         for pairs: product and difference of the means, and how similar each word is to some word of the other
lsa      a text's position among the topics of the unlabelled text; for pairs the product and the difference
states   the mean states of the pre-trained trunk
tuned    the fine-tuned trunk's scores for a row: logits of its classes or choices, or its score

A trunk that was trained on a row is very confident about it, and a head fitted on such logits would trust them far too
much. So the head is fitted on logits of trunks that have not seen the row (out of fold). A new row is scored by the
trunk that was fine-tuned on all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from foretext.tasks.views.base import Block, Tensors, Terms, Units, lines_of, of_pairs, unit_rows
from foretext.tasks.views.rows.ngrams import Numbers
from foretext.text.words.latent_semantics import Lsa, first_words, sif_means
from foretext.text.words.word_list import TextKnowledge

DECAYS = (1.0, 3.0)


class Vectors:
    name = "vectors"

    def __init__(
        self, words: Sequence[str], matrix: np.ndarray, counts: np.ndarray, means: Tensors, reader: Numbers | None
    ) -> None:
        """`matrix`: [words, width], rows of unit length. `counts`: word counts in the unlabelled text. `means`: each
        block's mean over the training rows, which is subtracted."""
        self.words, self.counts, self.means, self.reader = Terms(words), counts, means, reader
        self.matrix = matrix.astype(np.float32, copy=False)

    @classmethod
    def learned(cls, units: Units, words: Sequence[str], matrix: np.ndarray, counts: np.ndarray) -> Self:
        view = cls(words, unit_rows(matrix), counts, {}, None)
        if units.pairs:
            view.reader = Numbers.learned(of_pairs(units, view.likeness))
        view.means = {
            name: np.asarray(block).mean(0)
            for name, block in view.read(units).items()
            if name not in ("likeness", "waves")
        }
        return view

    def read(self, units: Units) -> dict[str, Block]:
        if units.pairs:
            assert self.reader is not None
            a, b = self._means(units.side(0)), self._means(units.side(1))
            blocks = {"product": a * b, "difference": np.abs(a - b)}
            if units.ordered:
                blocks["second"] = b
        else:
            ids = [*map(self.words.numbers, units.side(0))]
            blocks = {"mean": unit_rows(sif_means(self.matrix, self.counts, ids))}
            blocks |= {f"first {decay:g}": unit_rows(first_words(self.matrix, ids, decay)) for decay in DECAYS}
        centred: dict[str, Block] = {name: block - self.means.get(name, 0.0) for name, block in blocks.items()}
        if units.pairs:
            assert self.reader is not None
            centred |= self.reader.read(of_pairs(units, self.likeness), "likeness")
        return centred

    def _means(self, documents: Sequence[Sequence[str]]) -> np.ndarray:
        return unit_rows(sif_means(self.matrix, self.counts, [*map(self.words.numbers, documents)]))

    def likeness(self, units: Units) -> np.ndarray:
        """For each pair: the cosine of the means, and the similarity of each text's words to their most similar word in
        the other."""
        a, b = [*map(self.words.numbers, units.side(0))], [*map(self.words.numbers, units.side(1))]
        cosines = (self._means(units.side(0)) * self._means(units.side(1))).sum(1)
        share = self.counts / max(float(self.counts.sum()), 1.0)
        weights = 1e-3 / (1e-3 + share)
        rows = [self._aligned(x[x >= 0], y[y >= 0], weights) for x, y in zip(a, b)]
        return np.column_stack([cosines, np.array(rows, dtype=np.float64)])

    def _aligned(self, a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> tuple[float, float, float, float]:
        if not len(a) or not len(b):
            return 0.0, 0.0, 0.0, 0.0
        likeness = self.matrix[a] @ self.matrix[b].T
        of_a, of_b = likeness.max(1), likeness.max(0)
        mean_a = float(np.average(of_a, weights=weights[a]))
        return mean_a, float(np.average(of_b, weights=weights[b])), float(of_a.min()), float(of_b.min())

    def tensors(self) -> Tensors:
        tensors = {"words": self.words.tensor(), "matrix": self.matrix, "counts": self.counts}
        tensors |= {f"mean.{name}": mean for name, mean in self.means.items()}
        return tensors | (self.reader.tensors() if self.reader else {})

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        means = {name.removeprefix("mean."): mean for name, mean in tensors.items() if name.startswith("mean.")}
        reader = Numbers.of_tensors(tensors) if "knots" in tensors else None
        return cls(lines_of(tensors["words"]), tensors["matrix"], tensors["counts"], means, reader)


class LatentSemantics:
    name = "lsa"

    def __init__(self, words: Sequence[str], lsa: Lsa) -> None:
        self.words, self.lsa = Terms(words), lsa

    @classmethod
    def learned(cls, known: TextKnowledge) -> Self:
        assert known.lsa is not None
        return cls(known.words, known.lsa)

    def read(self, units: Units) -> dict[str, Block]:
        a = self.lsa.read([*map(self.words.numbers, units.side(0))])
        if not units.pairs:
            return {"topics": a}
        b = self.lsa.read([*map(self.words.numbers, units.side(1))])
        return {"product": a * b, "difference": np.abs(a - b)}

    def tensors(self) -> Tensors:
        names = ("pairs", "idf", "components")
        return {"words": self.words.tensor()} | {name: getattr(self.lsa, name) for name in names}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        words = lines_of(tensors["words"])
        return cls(words, Lsa(len(words), tensors["pairs"], tensors["idf"], tensors["components"]))


class _Standardised:
    """Numbers that are standardised over the training rows."""

    def __init__(self, mean: np.ndarray, deviation: np.ndarray) -> None:
        self.mean, self.deviation = mean, deviation

    def tensors(self) -> Tensors:
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(tensors["mean"], tensors["deviation"])


class States(_Standardised):
    """The pre-trained trunk's mean states of the texts, each dimension standardised over the training rows; for pairs
    the product and the difference of both."""

    name = "states"

    @classmethod
    def learned(cls, units: Units) -> Self:
        states = np.concatenate(units.states)
        return cls(states.mean(0), np.maximum(states.std(0), 1e-3))

    def read(self, units: Units) -> dict[str, Block]:
        sides = [unit_rows((states - self.mean) / self.deviation) for states in units.states]
        if not units.pairs:
            return {"states": sides[0]}
        a, b = sides
        cosine = (a * b).sum(1, keepdims=True)
        return {
            "product": a * b,
            "difference": np.abs(a - b),
            "cosine": cosine,
            **({"second": b} if units.ordered else {}),
        }


class Tuned(_Standardised):
    """The fine-tuned trunk's scores. The mean is per output, over the training rows; the deviation is a single number,
    so that outputs stay comparable."""

    name = "tuned"

    @classmethod
    def learned(cls, units: Units) -> Self:
        assert units.tuned is not None
        mean = units.tuned.mean(0)
        return cls(mean, np.maximum(np.sqrt(np.square(units.tuned - mean).mean(keepdims=True))[0], 1e-6))

    def read(self, units: Units) -> dict[str, Block]:
        assert units.tuned is not None
        return {"logits": (units.tuned - self.mean) / self.deviation}
