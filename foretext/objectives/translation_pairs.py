"""From two files of parallel text and a file of word vectors to the pairs that CoVe's translation learns from.

    text = ParallelText(source, target, settings)                lines split into words, overlong ones left out
    counts = count_words(text)                                             how often each word occurs
    tokenizer, matrix = vocabularies(glove, counts, settings, size)        both vocabularies, and the sources' vectors
    write_documents(pair_documents(text.pairs(), tokenizer, seed), …)      pairs as token shards
    pairs = ShardedPairs(shards, tokenizer)                                and back

The files are read twice, for the words and for the pairs, so that memory holds words and never the text.

A source is the ids of its words; a word is looked up as it is written, else in lower case, and one that has no vector
is `<unk>`, whose vector is zeros (the paper's treatment of unknown words). A target is the ids of its words and the
end, in a vocabulary of their own.

In shards a pair is a document: the source's ids, then the target's behind all ids that sources have. Which is which is
told by the number, so that shards of pairs are read, checked and divided into training and validation as all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from foretext.errors import check_range, refuse_if
from foretext.text.corpus.readers import ParallelReport, read_parallel
from foretext.text.corpus.shards import EncodedDocument, TokenShards, encoded_document
from foretext.text.order import LengthOrder
from foretext.text.tokenizers.word_tokenizer import SPECIALS, WordTokenizer, word_tokenizer
from foretext.text.words.vectors import WordVectors, read_vectors
from foretext.text.words.word_list import END, WordList, marked_words, plain_words

COUNTED = 1 << 20  # ids that are looked at together
BYTES_A_WORD = 4  # of a pair, in shards, at most
FEW_KNOWN = 0.5  # part of the source's words: with fewer the user is told


@dataclass(frozen=True)
class TranslationSettings:
    """[objective] of CoVe."""

    shapes: ClassVar[tuple[str, ...]] = ("embedding",)

    most_words: int = 50_000  # that the target's vocabulary may have
    least_count: int = 1  # times that a target word must occur to have an id
    embedding: int = 300  # numbers of a target word's vector
    longest: int = 75  # words; pairs with a longer side are left out
    lower: bool = False  # whether targets are learned in lower case

    def check(self) -> None:
        check_range("objective", self, "at least 1", "most_words", "least_count", "embedding", "longest")

    def check_vocabulary(self, kind: str, size: int, system: str) -> None:
        """UserError for a vocabulary that is not of words with vectors, the only one that pairs are read with."""
        refuse_if(
            kind != "word-list",
            f"tokenizer.kind={kind}: {system} reads the words that --vectors has (word-list) and no other "
            "vocabulary; leave it out",
        )
        refuse_if(
            size <= len(SPECIALS),
            f"tokenizer.size={size}: there must be room for a word beside {' and '.join(SPECIALS)}; give at least "
            f"{len(SPECIALS) + 1}",
        )

    def corpus(self, source: str, target: str, errors: str) -> WordCounts:
        """The files, read once and counted; UserError if they are too little to learn from."""
        counts = count_words(ParallelText(source, target, self, errors))
        refuse_if(
            not counts.different,
            f"{source}, {target}: one pair is too little to train on and to validate with; give more",
        )
        return counts

    def vectors(self, path: str | Path | WordVectors, tokenizer: WordTokenizer) -> np.ndarray:
        """Those of a vocabulary that was made from this file, [ids, width]."""
        return vectors_of(path, tokenizer)

    def target_list(self, counts: WordCounts) -> WordList:
        return WordList.of_counts(counts.targets, self.most_words, self.least_count)


@dataclass(frozen=True)
class TextPair:
    """Words of a source, marked words of its translation, and the translation as it stands in the file."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    reference: str


@dataclass
class PairReport(ParallelReport):
    overlong: int = 0  # pairs left out because a side has too many words


@dataclass(frozen=True)
class ParallelText:
    """The pairs of two files. `keep_all`: also overlong ones, as where translations are to be scored."""

    source: str | Path
    target: str | Path
    settings: TranslationSettings
    errors: str = "strict"
    keep_all: bool = False

    def pairs(self, report: PairReport | None = None) -> Iterator[TextPair]:
        """One after the other, read anew each time; UserError, at the end, if there is none."""
        report = report or PairReport()
        longest, lower, empty = self.settings.longest, self.settings.lower, True
        for one, other in read_parallel(self.source, self.target, report, self.errors):
            words, marked = plain_words(one), marked_words(other.lower() if lower else other)
            if not self.keep_all and max(len(words), len(marked)) > longest:
                report.overlong += 1
            elif words and marked:
                empty = False
                yield TextPair(tuple(words), tuple(marked), other)
        refuse_if(
            empty,
            f"{self.source}, {self.target}: all {report.pairs:,} pairs have a side of more than {longest} words; "
            "give files with a sentence a line, or --set objective.longest=…",
        )


@dataclass(frozen=True)
class WordCounts:
    """Two files, read once: how often each word occurs on either side, and what is made of that."""

    sources: Counter[str]
    targets: Counter[str]
    pairs: int
    different: bool  # whether there are two pairs that differ
    report: PairReport
    text: ParallelText

    @property
    def replaced(self) -> int:
        """Bytes that are not UTF-8."""
        return self.report.source.replaced + self.report.target.replaced

    @property
    def octets(self) -> int:
        """Of shards, at most."""
        return BYTES_A_WORD * (self.sources.total() + self.targets.total() + self.pairs)

    def vocabularies(self, path: str | Path | WordVectors, size: int) -> tuple[WordTokenizer, np.ndarray, str]:
        """Both, the sources' vectors, and what to say of them."""
        tokenizer, matrix = vocabularies(path, self, self.text.settings, size)
        said = f"{tokenizer.size:,} words with vectors of {matrix.shape[1]}"
        return tokenizer, matrix, f"vocabulary: {said}, {tokenizer.target_words.size:,} to translate into"

    def ids(self, tokenizer: WordTokenizer) -> int:
        return pair_ids(tokenizer)

    def documents(self, tokenizer: WordTokenizer, seed: int) -> Iterator[EncodedDocument]:
        return pair_documents(self.text.pairs(), tokenizer, seed)

    def remarks(self, train: int, valid: int, tokenizer: WordTokenizer) -> list[str]:
        """What to say of so many pairs to learn from and to validate on."""
        known = known_words(self.sources, tokenizer)
        said = (
            f"text: {train:,} pairs to train on, {valid:,} to validate{_left_out(self.report)}; {known:.1%} of the "
            "source's words, signs aside, have a vector"
        )
        few = (
            f"only {known:.1%} of the source's words have a vector and all others are read as nothing: little can be "
            "learned; give --vectors of the source's language (of single characters where it has no spaces)"
        )
        return [said, few] if known < FEW_KNOWN else [said]


def count_words(text: ParallelText) -> WordCounts:
    report, sources, targets = PairReport(), Counter[str](), Counter[str]()
    first: TextPair | None = None
    different, pairs = False, 0
    for pair in text.pairs(report):
        pairs += 1
        first = first or pair
        different = different or pair != first
        sources.update(pair.source)
        targets.update(pair.target)
    return WordCounts(sources, targets, pairs, different, report, text)


def known_words(counts: Counter[str], tokenizer: WordTokenizer) -> float:
    """The part of the words, those without a letter or a digit aside, that have a vector."""
    told = {word: count for word, count in counts.items() if any(map(str.isalnum, word))}
    known = sum(count for number, count in zip(tokenizer.lookup(told), told.values()) if number != tokenizer.unknown)
    return known / max(1, sum(told.values()))


def _left_out(report: PairReport) -> str:
    reasons = [("too long", report.overlong), ("with nothing on one side", report.blank)]
    said = " and ".join(f"{count:,} {reason}" for reason, count in reasons if count)
    return f" ({said} were left out)" if said else ""


# -- vocabularies ------------------------------------------------------------------------------------------------------


def vocabularies(
    path: str | Path | WordVectors, words: WordCounts, settings: TranslationSettings, size: int
) -> tuple[WordTokenizer, np.ndarray]:
    """The words of sources and targets, and the vectors of the former, [ids, width].

    A source's vocabulary has at most `size` ids: its own words that have a vector, the most frequent first, then the
    first words of the file, so that texts of a later task are known too. What is not there has zeros, as the paper's
    unknown words have.
    """
    counts = words.sources
    room = size - len(SPECIALS)
    vectors = read_vectors(path, only=counts, first=room)
    numbers = vectors.lookup(word for word, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0])))
    own = dict.fromkeys(numbers[numbers >= 0].tolist())
    refuse_if(
        not own,
        f"{path}: has no vector for any of the {len(counts):,} words of the source; give vectors of its language",
    )
    chosen = list(own | dict.fromkeys(range(len(vectors.words))))[:room]
    tokenizer = word_tokenizer((vectors.words[number] for number in chosen), settings.target_list(words))
    return tokenizer, _behind_specials(vectors.rows(tokenizer.pieces[len(SPECIALS) :]))


def vectors_of(path: str | Path | WordVectors, tokenizer: WordTokenizer) -> np.ndarray:
    """The vectors of a vocabulary that was made from this file, [ids, width]."""
    words = tokenizer.pieces[len(SPECIALS) :]
    vectors = read_vectors(path, only=words)
    missing = next((word for word in words if word not in vectors.ids), None)
    refuse_if(
        missing is not None,
        f"{path}: has no vector for {missing!r}, which it had when the run was begun; put the file back that was "
        "there then, or start a new run",
    )
    return _behind_specials(vectors.rows(words))


def _behind_specials(rows: np.ndarray) -> np.ndarray:
    """[ids, width]: the specials have zeros."""
    return np.pad(rows, ((len(SPECIALS), 0), (0, 0)))


# -- pairs of ids ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    source: np.ndarray  # ids
    target: np.ndarray  # ids, the end last


def encoded_pair(pair: TextPair, tokenizer: WordTokenizer) -> Pair:
    target = [*tokenizer.target_words.encode(pair.target).tolist(), END]
    return Pair(np.array(tokenizer.lookup(pair.source), dtype=np.int64), np.array(target, dtype=np.int64))


def length_order(pairs: ShardedPairs, batch_size: int, seed: int) -> LengthOrder:
    """By the source's length, then the target's: both sides take their steps one by one."""
    sources, targets = pairs.lengths()
    return LengthOrder(sources * (int(targets.max()) + 1) + targets, batch_size, seed)


def pair_documents(pairs: Iterable[TextPair], tokenizer: WordTokenizer, seed: int) -> Iterator[EncodedDocument]:
    """What `write_documents` takes; copies of a pair are all learned from or all validated on."""
    for pair in pairs:
        encoded = encoded_pair(pair, tokenizer)
        ids = np.concatenate([encoded.source, encoded.target[:-1] + tokenizer.size])
        yield encoded_document(" ".join(pair.source) + "\n" + pair.reference, ids, seed)


def pair_ids(tokenizer: WordTokenizer) -> int:
    """How many ids there are in shards of pairs."""
    return tokenizer.size + tokenizer.target_words.size


class ShardedPairs:
    """Pairs that are on disk, as `pair_documents` made them."""

    def __init__(self, shards: TokenShards, tokenizer: WordTokenizer) -> None:
        assert tokenizer.end is not None
        self.shards, self.first_target = shards, tokenizer.size
        self.ends = shards.places(tokenizer.end)
        refuse_if(
            not len(self.ends), f"{shards.folder}: no pairs to {'train' if shards.split == 'train' else 'validate'} on"
        )
        self.starts = np.concatenate([[0], self.ends[:-1] + 1])
        before = self._source_ids_before(self.ends)
        self.sources = before - np.concatenate([[0], before[:-1] + 1])  # an end is among a source's ids too

    def __len__(self) -> int:
        return len(self.ends)

    def example(self, epoch: int, index: int) -> Pair:
        start, words = int(self.starts[index]), int(self.sources[index])
        ids = self.shards.window(start, int(self.ends[index]) - start)
        return Pair(ids[:words], np.append(ids[words:] - self.first_target, END))

    def _source_ids_before(self, places: np.ndarray) -> np.ndarray:
        """How many ids of sources, ends included, stand before each place; the ids are read a part at a time."""
        found, before = np.zeros(len(places), dtype=np.int64), 0
        for start in range(0, len(self.shards), COUNTED):
            ids = self.shards.window(start, min(COUNTED, len(self.shards) - start))
            counts = np.concatenate([[0], np.cumsum(ids < self.first_target)])
            here = slice(*np.searchsorted(places, [start, start + len(ids)]).tolist())
            found[here] = before + counts[places[here] - start]
            before += int(counts[-1])
        return found

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Of all sources, of all targets."""
        return self.sources, self.ends - self.starts - self.sources + 1
