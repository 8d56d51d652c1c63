"""Direct uses of word vectors: nearest words, analogies, and how well they agree with people.

    nearest       cosines; for several words together (king − man + woman), of the mean of their unit vectors
    similarity    Spearman's correlation of cosines with people's judgements: WordSim-353, SimLex-999, …
    analogies     for a : b = c : ?, how often the word nearest to b − a + c, other than these three, is right

The files have gensim's formats (tabs or spaces, # for comments, `: section` in analogies), and the scores are those of
its `evaluate_word_pairs` and `evaluate_word_analogies`: over the 300,000 most frequent words, ignoring case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from foretext.errors import UserError, did_you_mean, refuse_if
from foretext.text.corpus.text_files import read_text

MOST_WORDS = 300_000
_AT_A_TIME = 512  # questions
_ALIKE = 20_000  # number of frequent words that are searched for one like a misspelt word


@dataclass(frozen=True)
class Similarity:
    """Pairs of words with scores; both words of `known` pairs have vectors."""

    spearman: float
    pearson: float
    pairs: int
    known: int

    def to_dict(self) -> dict[str, object]:
        return {"kind": "similarity", **asdict(self)}

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"  Spearman  {self.spearman:.4f}  ({self.known:,} of {self.pairs:,} pairs are known)",
            f"  Pearson   {self.pearson:.4f}",
        ]


@dataclass(frozen=True)
class Section:
    name: str
    right: int
    known: int
    questions: int

    @property
    def accuracy(self) -> float:
        return self.right / self.known if self.known else 0.0


@dataclass(frozen=True)
class Analogies:
    sections: tuple[Section, ...]

    @property
    def whole(self) -> Section:
        numbers = zip(*((section.right, section.known, section.questions) for section in self.sections))
        return Section("all", *(sum(column) for column in numbers))

    def to_dict(self) -> dict[str, object]:
        sections = [asdict(section) | {"accuracy": section.accuracy} for section in (*self.sections, self.whole)]
        return {"kind": "analogies", "accuracy": self.whole.accuracy, "sections": sections}

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"  {part.accuracy:7.2%}  {part.name}  ({part.known:,} of {part.questions:,} questions are known)"
            for part in (*self.sections, self.whole)
        ]


class WordSpace:
    """`words` by frequency, and their unit vectors."""

    def __init__(self, words: Sequence[str], vectors_WD: np.ndarray, where: str = "this model") -> None:
        self.words, self.where = list(words), where
        norms = np.sqrt(np.einsum("wd,wd->w", vectors_WD, vectors_WD))
        self.units_WD = vectors_WD / np.where(norms > 0, norms, 1.0).astype(np.float32)[:, None]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def _folded(self) -> dict[str, int]:
        return {self.words[row].upper(): row for row in reversed(range(min(len(self.words), MOST_WORDS)))}

    def row(self, word: str) -> int:
        """The row of a word as written, or else in lower case; UserError if there is none."""
        rows = self._rows
        row = rows.get(word, rows.get(word.lower()))
        if row is None:
            near = did_you_mean(word, self.words[:_ALIKE])
            raise UserError(f"{self.where}: the word {word!r} has no vector{near}; choose another word, or more text")
        return row

    def nearest(self, words: Sequence[str], minus: Sequence[str] = (), n: int = 10) -> list[tuple[str, float]]:
        """The words nearest to all of these together, minus those of `minus`, with cosines, nearest first."""
        refuse_if(n < 1, f"--n must be at least 1, not {n}")
        plus = [self.row(word) for word in words]
        away = [self.row(word) for word in minus]
        refuse_if(not plus, "give a word to find its nearest words")
        target_D = self.units_WD[plus].sum(0) - self.units_WD[away].sum(0)
        cosines_W = self.units_WD @ target_D / max(float(np.linalg.norm(target_D)), 1e-12)
        cosines_W[plus + away] = -np.inf
        n = min(n, len(cosines_W) - len(set(plus + away)))
        best = np.argsort(-cosines_W, kind="stable")[:n]
        return [(self.words[row], float(cosines_W[row])) for row in best.tolist()]

    # -- what people say

    def similarity(self, pairs: Sequence[tuple[str, str, float]]) -> Similarity:
        from scipy import stats

        folded = self._folded
        known = [
            (folded[a.upper()], folded[b.upper()], score)
            for a, b, score in pairs
            if a.upper() in folded and b.upper() in folded
        ]
        refuse_if(
            len(known) < 2,
            f"{self.where} has vectors for only {len(known)} of the {len(pairs)} pairs; train on more text",
        )
        cosines = np.einsum(
            "nd,nd->n", self.units_WD[[a for a, _, _ in known]], self.units_WD[[b for _, b, _ in known]]
        )
        judged = [score for _, _, score in known]
        spearman, pearson = stats.spearmanr(judged, cosines), stats.pearsonr(judged, cosines)
        return Similarity(float(spearman.statistic), float(pearson.statistic), len(pairs), len(known))

    def analogies(self, sections: Sequence[tuple[str, Sequence[tuple[str, str, str, str]]]]) -> Analogies:
        scored = []
        for name, questions in sections:
            rows = [tuple(self._folded.get(word.upper(), -1) for word in question) for question in questions]
            known = np.array([row for row in rows if min(row) >= 0], dtype=np.int64).reshape(-1, 4)
            parts = np.split(known, range(_AT_A_TIME, len(known), _AT_A_TIME))
            right = sum(int((self._answers(part) == part[:, 3]).sum()) for part in parts)
            scored.append(Section(name, right, len(known), len(questions)))
        whole = Analogies(tuple(scored))
        refuse_if(
            not whole.whole.known, f"{self.where} has no vectors for the words of the analogies; train on more text"
        )
        return whole

    def _answers(self, known_N4: np.ndarray) -> np.ndarray:
        a_ND, b_ND, c_ND = (self.units_WD[known_N4[:, place]] for place in range(3))
        cosines_NW = (b_ND - a_ND + c_ND) @ self.units_WD[:MOST_WORDS].T
        np.put_along_axis(cosines_NW, known_N4[:, :3], -np.inf, axis=1)
        return cosines_NW.argmax(axis=1)


# -- files -------------------------------------------------------------------------------------------------------------


def judged_file(space: WordSpace, path: Path) -> Similarity | Analogies:
    """The scores of vectors on a file of word pairs or of analogies; the file's lines tell which."""
    lines = [line.strip() for line in read_text(path).splitlines()]
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    if any(line.startswith(":") for _, line in numbered) or all(len(line.split()) == 4 for _, line in numbered):
        return space.analogies(_questions(path, numbered))
    return space.similarity(_pairs(path, numbered))


def _questions(path: Path, lines: Sequence[tuple[int, str]]) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    sections: list[tuple[str, list[tuple[str, str, str, str]]]] = []
    for number, line in lines:
        if line.startswith(":"):
            sections.append((line[1:].strip(), []))
            continue
        words = line.split()
        refuse_if(len(words) != 4, f"{path} line {number}: {len(words)} words, but an analogy has four: a b c d")
        if not sections:
            sections.append((path.name, []))
        sections[-1][1].append((words[0], words[1], words[2], words[3]))
    return sections


def _pairs(path: Path, lines: Sequence[tuple[int, str]]) -> list[tuple[str, str, float]]:
    pairs: list[tuple[str, str, float]] = []
    for number, line in lines:
        fields = [field.strip() for field in line.split("\t")] if "\t" in line else line.split()
        try:
            first, second, score = fields
            pairs.append((first, second, float(score)))
        except ValueError:
            if not pairs and len(fields) == 3:  # a header
                continue
            raise UserError(
                f"{path} line {number}: expected a word pair (word1 word2 score) or an analogy (four words), not "
                f"{line[:40]!r}"
            ) from None
    return pairs
