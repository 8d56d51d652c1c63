"""From two files of parallel text and a file of word vectors to the training pairs of CoVe:

    text = ParallelText(source, target, settings)                 lines split into words, long ones left out
    counts = count_words(text)                                    how often each word occurs
    tokenizer, matrix, note = counts.vocabularies(glove, size)    both vocabularies, and the sources' vectors
    write_documents(counts.documents(tokenizer, seed), …)         pairs as token shards
    pairs = ShardedPairs(shards, tokenizer)                       and back

The files are read twice, for the words and for the pairs, so that memory never holds the text.

A source is the ids of its words. A word is looked up as written, otherwise in lower case; a word without a vector is
`<unk>`, whose vector is zeros, as in the paper. A target is the ids of its words and the end, in their own vocabulary.

In shards a pair is one document: the source's ids, then the target's ids, shifted above all source ids. The number
tells them apart, so shards of pairs are read, checked and split into training and validation like others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from foretext.errors import check_range, refuse_if
from foretext.text.corpus.readers import ParallelReport, read_parallel
from foretext.text.corpus.shard_writing import EncodedDocument, encoded_document
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import LengthOrder
from foretext.text.tokenizers.word_tokenizer import SPECIALS, WordTokenizer, word_tokenizer
from foretext.text.words.vectors import WordVectors, read_vectors
from foretext.text.words.word_list import END, WordList, marked_words, plain_words

COUNTED = 1 << 20  # ids processed at once
BYTES_A_WORD = 4  # per pair in shards, at most
FEW_KNOWN = 0.5  # share of the source's words with vectors; below this the user is warned


@dataclass(frozen=True)
class TranslationSettings:
    """[objective] of CoVe."""

    shapes: ClassVar[tuple[str, ...]] = ("embedding",)

    most_words: int = 50_000  # size limit of the target vocabulary
    least_count: int = 1  # occurrences that a target word needs to get an id
    embedding: int = 300  # width of a target word's vector
    longest: int = 75  # words; pairs with a longer side are left out
    lower: bool = False  # whether targets are lower-cased

    def check(self) -> None:
        check_range("objective", self, "at least 1", "most_words", "least_count", "embedding", "longest")

    def check_vocabulary(self, kind: str, size: int, system: str) -> None:
        """UserError for a vocabulary other than words with vectors, the only kind that pairs can be read with."""
        refuse_if(
            kind != "word-list",
            f"tokenizer.kind={kind}: {system} reads words with the vectors of --vectors (word-list) and no other "
            "vocabulary; leave it out",
        )
        refuse_if(
            size <= len(SPECIALS),
            f"tokenizer.size={size}: there must be room for a word besides {' and '.join(SPECIALS)}; give at least "
            f"{len(SPECIALS) + 1}",
        )

    def corpus(self, source: str, target: str, errors: str) -> WordCounts:
        """The files, read once and counted; UserError if there is too little to learn from."""
        counts = count_words(ParallelText(source, target, self, errors))
        refuse_if(
            not counts.different,
            f"{source}, {target}: one pair is too little to train and validate on; give more",
        )
        return counts

    def vectors(self, path: str | Path | WordVectors, tokenizer: WordTokenizer) -> np.ndarray:
        """The vectors of a vocabulary that was made from this file, [ids, width]."""
        words = tokenizer.pieces[len(SPECIALS) :]
        vectors = read_vectors(path, only=words)
        missing = next((word for word in words if word not in vectors.ids), None)
        refuse_if(
            missing is not None,
            f"{path}: has no vector for {missing!r}, but had one when the run was started; restore that file, or "
            "start a new run",
        )
        return _behind_specials(vectors.rows(words))


@dataclass(frozen=True)
class TextPair:
    """Words of a source, marked words of its translation, and the translation as in the file."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    reference: str


@dataclass
class PairReport(ParallelReport):
    overlong: int = 0  # pairs left out because a side is too long


@dataclass(frozen=True)
class ParallelText:
    """The pairs of two files. `keep_all`: long pairs too, for scoring translations."""

    source: str | Path
    target: str | Path
    settings: TranslationSettings
    errors: str = "strict"
    keep_all: bool = False

    def pairs(self, report: PairReport | None = None) -> Iterator[TextPair]:
        """One pair after the other, read anew each time; UserError, at the end, if there is none."""
        report = report or PairReport()
        longest, lower, empty = self.settings.longest, self.settings.lower, True
        for source, target in read_parallel(self.source, self.target, report, self.errors):
            words, marked = plain_words(source), marked_words(target.lower() if lower else target)
            if not self.keep_all and max(len(words), len(marked)) > longest:
                report.overlong += 1
            elif words and marked:
                empty = False
                yield TextPair(tuple(words), tuple(marked), target)
        refuse_if(
            empty,
            f"{self.source}, {self.target}: all {report.pairs:,} pairs have a side of more than {longest} words; give "
            "files with one sentence per line, or --set objective.longest=…",
        )


@dataclass(frozen=True)
class WordCounts:
    """Word counts of both files, from one pass, and what is made from them."""

    sources: Counter[str]
    targets: Counter[str]
    pairs: int
    different: bool  # whether there are two different pairs
    report: PairReport
    text: ParallelText

    @property
    def replaced(self) -> int:
        """Bytes that are not UTF-8."""
        return self.report.source.replaced + self.report.target.replaced

    @property
    def octets(self) -> int:
        """The maximum size of the shards in bytes."""
        return BYTES_A_WORD * (self.sources.total() + self.targets.total() + self.pairs)

    def vocabularies(self, path: str | Path | WordVectors, size: int) -> tuple[WordTokenizer, np.ndarray, str]:
        """The words of sources and targets, the vectors of the source words, [ids, width], and a note about them.

        The source vocabulary has at most `size` ids: its own words that have a vector, most frequent first, then the
        first words of the file, so that texts of a later task are known too. Other words get zeros, like the paper's
        unknown words.
        """
        room, settings = size - len(SPECIALS), self.text.settings
        vectors = read_vectors(path, only=self.sources, first=room)
        frequent = sorted(self.sources.items(), key=lambda entry: (-entry[1], entry[0]))
        numbers = vectors.lookup(word for word, _ in frequent)
        of_text = dict.fromkeys(numbers[numbers >= 0].tolist())
        refuse_if(
            not of_text,
            f"{path}: has no vector for any of the {len(self.sources):,} source words; give vectors of the source's "
            "language",
        )
        chosen = list(of_text | dict.fromkeys(range(len(vectors.words))))[:room]
        targets = WordList.of_counts(self.targets, settings.most_words, settings.least_count)
        tokenizer = word_tokenizer((vectors.words[number] for number in chosen), targets)
        matrix = _behind_specials(vectors.rows(tokenizer.pieces[len(SPECIALS) :]))
        summary = f"{tokenizer.size:,} words with vectors of {matrix.shape[1]} dimensions"
        return tokenizer, matrix, f"vocabulary: {summary}, {targets.size:,} to translate into"

    def ids(self, tokenizer: WordTokenizer) -> int:
        return pair_ids(tokenizer)

    def documents(self, tokenizer: WordTokenizer, seed: int) -> Iterator[EncodedDocument]:
        """The documents for `write_documents`; copies of a pair are on one side of the split."""
        for pair in self.text.pairs():
            encoded = encoded_pair(pair, tokenizer)
            ids = np.concatenate([encoded.source, encoded.target[:-1] + tokenizer.size])
            yield encoded_document(" ".join(pair.source) + "\n" + pair.reference, ids, seed)

    def remarks(self, train: int, valid: int, tokenizer: WordTokenizer) -> list[str]:
        """Notes about the numbers of training and validation pairs."""
        known = known_words(self.sources, tokenizer)
        summary = (
            f"text: {train:,} pairs to train on, {valid:,} to validate on{_left_out(self.report)}; {known:.1%} of the "
            "source's words (without punctuation) have a vector"
        )
        few = (
            f"only {known:.1%} of the source's words have a vector and all others are read as zeros: little can be "
            "learned; give --vectors of the source's language (for scripts without spaces, of single characters)"
        )
        return [summary, few] if known < FEW_KNOWN else [summary]


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
    """The share of words with a vector, ignoring words without a letter or digit."""
    words = {word: count for word, count in counts.items() if any(map(str.isalnum, word))}
    known = sum(count for number, count in zip(tokenizer.lookup(words), words.values()) if number != tokenizer.unknown)
    return known / max(1, sum(words.values()))


def _left_out(report: PairReport) -> str:
    reasons = [("too long", report.overlong), ("with nothing on one side", report.blank)]
    listed = " and ".join(f"{count:,} {reason}" for reason, count in reasons if count)
    return f" ({listed} were left out)" if listed else ""


def _behind_specials(rows: np.ndarray) -> np.ndarray:
    """[ids, width]: zeros for the special tokens."""
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
    """By the source's length, then the target's: both sides are processed step by step."""
    sources, targets = pairs.lengths()
    return LengthOrder(sources * (int(targets.max()) + 1) + targets, batch_size, seed)


def pair_ids(tokenizer: WordTokenizer) -> int:
    """The number of ids in shards of pairs."""
    return tokenizer.size + tokenizer.target_words.size


class ShardedPairs:
    """Pairs on disk, as `WordCounts.documents` made them."""

    def __init__(self, shards: TokenShards, tokenizer: WordTokenizer) -> None:
        assert tokenizer.end is not None
        self.shards, self.first_target = shards, tokenizer.size
        self.ends = shards.places(tokenizer.end)
        refuse_if(
            not len(self.ends), f"{shards.folder}: no pairs to {'train' if shards.split == 'train' else 'validate'} on"
        )
        self.starts = np.concatenate([[0], self.ends[:-1] + 1])
        before = self._source_ids_before(self.ends)
        self.sources = before - np.concatenate([[0], before[:-1] + 1])  # the end is among the source ids too

    def __len__(self) -> int:
        return len(self.ends)

    def example(self, epoch: int, index: int) -> Pair:
        start, words = int(self.starts[index]), int(self.sources[index])
        ids = self.shards.window(start, int(self.ends[index]) - start)
        return Pair(ids[:words], np.append(ids[words:] - self.first_target, END))

    def _source_ids_before(self, places: np.ndarray) -> np.ndarray:
        """How many source ids, ends included, precede each position; the ids are read in parts."""
        totals, before = np.zeros(len(places), dtype=np.int64), 0
        for start in range(0, len(self.shards), COUNTED):
            ids = self.shards.window(start, min(COUNTED, len(self.shards) - start))
            counts = np.concatenate([[0], np.cumsum(ids < self.first_target)])
            here = slice(*np.searchsorted(places, [start, start + len(ids)]).tolist())
            totals[here] = before + counts[places[here] - start]
            before += int(counts[-1])
        return totals

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Of all sources, and of all targets."""
        return self.sources, self.ends - self.starts - self.sources + 1
