"""From two files of parallel text and a file of word vectors to the pairs that CoVe's translation learns from.

    texts = read_texts(source, target, settings)            lines split into words, overlong ones left out
    words = settings.target_list(texts)                     the targets' vocabulary, by frequency
    vectors = source_vectors(glove, texts)                  of the words that the sources have, and no others
    pairs = Pairs.of(texts, vectors, words)

A source is the numbers of its words' vectors; a word is looked up as it is written, else in lower case, and one that
has no vector is −1, which the encoder reads as zeros (the paper's treatment of unknown words). A target is the ids of
its words and the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from foretext.errors import UserError
from foretext.text.buckets import LengthOrder
from foretext.text.parallel import ParallelReport, read_parallel
from foretext.text.vectors import UNKNOWN, WordVectors, read_vectors
from foretext.text.word_list import END, WordList, marked_words, plain_words


@dataclass(frozen=True)
class TranslationSettings:
    """[objective] of CoVe."""

    vocabulary: int = 0  # the target's ids; filled in from its words
    most_words: int = 50_000  # that the target's vocabulary may have
    least_count: int = 1  # times that a target word must occur to have an id
    embedding: int = 300  # numbers of a target word's vector
    longest: int = 75  # words; pairs with a longer side are left out
    lower: bool = False  # whether targets are learned in lower case

    def check(self) -> None:
        for name in ("most_words", "least_count", "embedding", "longest"):
            if getattr(self, name) < 1:
                raise UserError(f"objective.{name} must be at least 1, not {getattr(self, name)}")
        if self.vocabulary < 0:
            raise UserError(f"objective.vocabulary must be at least 0, not {self.vocabulary}")

    def target_list(self, texts: Texts) -> WordList:
        return WordList.by_frequency((pair.target for pair in texts.pairs), self.most_words, self.least_count)


@dataclass(frozen=True)
class TextPair:
    """Words of a source, marked words of its translation, and the translation as it stands in the file."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    reference: str


@dataclass(frozen=True)
class Texts:
    pairs: list[TextPair]
    overlong: int = 0  # pairs left out because a side has too many words
    report: ParallelReport = field(default_factory=ParallelReport)


def read_texts(
    source: str | Path,
    target: str | Path,
    settings: TranslationSettings,
    errors: str = "strict",
    keep_all: bool = False,
) -> Texts:
    """The pairs of two files. `keep_all`: also overlong ones, as where translations are to be scored."""
    report, pairs, overlong = ParallelReport(), list[TextPair](), 0
    for one, other in read_parallel(source, target, report, errors):
        words, marked = plain_words(one), marked_words(other.lower() if settings.lower else other)
        if not keep_all and max(len(words), len(marked)) > settings.longest:
            overlong += 1
        elif words and marked:
            pairs.append(TextPair(tuple(words), tuple(marked), other))
    if not pairs:
        raise UserError(
            f"{source}, {target}: all {report.pairs:,} pairs have a side of more than {settings.longest} words; give "
            "files with a sentence a line, or --set objective.longest=…"
        )
    return Texts(pairs, overlong, report)


def source_vectors(path: str | Path, texts: Texts) -> WordVectors:
    """The vectors that the sources' words have."""
    words = {word for pair in texts.pairs for word in pair.source}
    vectors = read_vectors(path, only=words)
    if not vectors.words:
        raise UserError(
            f"{path}: has no vector for any of the {len(words):,} words of the source; give vectors of its language"
        )
    return vectors


@dataclass(frozen=True)
class Pair:
    source: np.ndarray  # numbers of vectors; −1: none
    target: np.ndarray  # ids, the end last


class Pairs:
    """`Examples` of translation; `order` puts those of like length together."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        assert pairs
        self.pairs = list(pairs)

    @classmethod
    def of(cls, texts: Texts, vectors: WordVectors, words: WordList) -> Pairs:
        end = np.array([END], dtype=np.int64)
        pairs = (
            Pair(vectors.lookup(pair.source), np.concatenate([words.encode(pair.target), end])) for pair in texts.pairs
        )
        return cls(list(pairs))

    def __len__(self) -> int:
        return len(self.pairs)

    def example(self, epoch: int, index: int) -> Pair:
        return self.pairs[index]

    def order(self, batch_size: int, seed: int) -> LengthOrder:
        """By the source's length, then the target's: both sides take their steps one by one."""
        longest = max(len(pair.target) for pair in self.pairs)
        return LengthOrder(
            [len(pair.source) * (longest + 1) + len(pair.target) for pair in self.pairs], batch_size, seed
        )

    @property
    def known(self) -> float:
        """The part of the sources' words that have a vector."""
        ids = np.concatenate([pair.source for pair in self.pairs])
        return float((ids != UNKNOWN).mean())
