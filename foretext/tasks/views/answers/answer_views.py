"""Views of a passage's words given the question: evidence for a span as the answer.

ngrams   matches   how many words of the question are in the word's sentence, and how near, before and after; rare words
                   count more, and a word with the same beginning counts too
         asked     words and pairs of words of the question, each with the kind of this word and of its neighbours:
                   "how many" with figures, "谁" with what names look like
         …         the n-grams as for tagged words (`word_views.py`): where answers begin and end
vectors  asked     the same words and pairs, with the clusters of words with similar vectors that this word and its
                   neighbours are in: "when" with months, though the training rows have only some of them

Nothing here is learned from answers, only which question words are frequent. A unit is a word of the passage.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Self

import numpy as np
import scipy.sparse as sp
from scipy.signal import lfilter

from foretext.tasks.views.base import Block, Tensors, Terms, Units, lines_of, scaled, text_tensor, unit_rows, word_units
from foretext.tasks.views.words.word_views import WordNGrams, grouped, shape_of
from foretext.text.words.splitting import split_with_places, split_words

DECAYS = (1.5, 4.0, 12.0)  # distance in words at which a match counts 1/e
# letters that two words must share at their beginning, and their share of the longer word
LEAST_PREFIX, LEAST_PART = 3, 0.55
ENDS = frozenset(".!?;。！？；")
SHORT = 2  # letters of an abbreviation, whose full stop does not end a sentence
LEAST_ASKED = 3  # questions that must contain a word for it to be used
KINDS, COMMON = 40, 25  # kinds of words, and frequent words that are their own kind
GROUPS = 64  # of words with similar vectors
ASKED, WORDS = 0.3, 0.3  # factors on these blocks
_KIND = 6  # characters of a shape


def passage_words(passage: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The words as written, and their character offsets; if there is none, one empty word."""
    places = split_with_places(passage)[1] or [(0, 0)]
    return [passage[start:end] for start, end in places], places


def question_units(questions: Iterable[tuple[str, str]]) -> Units:
    """The words of each passage with the question, given questions and their passages."""
    pairs = list(questions)
    known = {passage: passage_words(passage)[0] for passage in dict.fromkeys(passage for _, passage in pairs)}
    texts = [known[passage] for _, passage in pairs]
    units = word_units(texts)
    split = [split_words(question) for question, _ in pairs]
    return replace(units, words=[(texts[row], split[row]) for row in units.rows.tolist()])


def _questions(units: Units) -> Iterator[tuple[list[str], list[str]]]:
    """For each row the words of the passage and of the question."""
    for first in np.flatnonzero(np.diff(units.rows, prepend=-1)).tolist():
        passage, question = units.words[first]
        yield passage, question


class AnswerNGrams:
    name = "ngrams"

    def __init__(
        self,
        words: WordNGrams,
        counts: Mapping[str, int],
        sentences: int,
        asked: Sequence[str],
        kinds: Sequence[str],
        common: Iterable[str],
    ) -> None:
        """`counts`: how many of the `sentences` have a word. `asked`: words and pairs of words of questions."""
        self.words, self.counts, self.sentences = words, dict(counts), sentences
        self.asked = Asked(asked)
        self.kinds = Terms(kinds)
        self.common = frozenset(common)

    @classmethod
    def learned(cls, units: Units) -> Self:
        rows = list(_questions(units))
        passages = [list(distinct) for distinct in dict.fromkeys(tuple(words) for words, _ in rows)]
        low = [[word.lower() for word in words] for words in passages]
        counts: Counter[str] = Counter()
        sentences = 0
        for words in low:
            ids = sentence_ids(words)
            counts.update(word for word, _ in set(zip(words, ids.tolist())))
            sentences += int(ids[-1]) + 1
        common = [word for word, _ in Counter(word for words in low for word in words).most_common(COMMON)]
        kinds = Counter(kind_of(word, common) for words in passages for word in words)
        ngrams, terms = WordNGrams.learned(word_units(passages)), Asked.learned(rows)
        return cls(ngrams, counts, sentences, [*terms], [kind for kind, _ in kinds.most_common(KINDS)], common)

    def read(self, units: Units) -> dict[str, Block]:
        rows = list(_questions(units))
        matches = np.concatenate([self.matches(passage, question) for passage, question in rows])
        words = {name: scaled(block, WORDS) for name, block in self.words.read(units).items()}
        unknown = len(self.kinds)
        kinds = (np.array([self.kinds.get(kind_of(word, self.common), unknown) for word in text]) for text, _ in rows)
        asked = self.asked.crossed([question for _, question in rows], kinds, unknown + 1)
        return {"matches": matches.astype(np.float32), "asked": asked} | words

    # -- matches -------------------------------------------------------------------------------------------------------

    def matches(self, passage: Sequence[str], question: Sequence[str]) -> np.ndarray:
        """[words, numbers]"""
        low = [word.lower() for word in passage]
        content = [word for word in question if any(sign.isalnum() for sign in word)]
        distinct = list(dict.fromkeys(content)) or [""]
        weights = np.array([self._rarity(word) for word in distinct])
        exact = np.array([[float(word == other) for other in distinct] for word in low])
        like = np.array([[likeness(word, other) for other in distinct] for word in low])
        ids = sentence_ids(low)
        numbers = [column for table in (exact, like) for column in _of_table(table * weights, weights, ids)]
        pairs = set(itertools.pairwise(content))
        pair = np.array([float(neighbours in pairs) for neighbours in zip(low, [*low[1:], ""])])
        shared = np.bincount(ids, pair) / max(len(pairs), 1)
        numbers += [pair, shared[ids], *_near(pair, 2.0)]
        numbers += [np.log(np.bincount(ids))[ids] / 4, ids == 0, ids / (ids[-1] + 1)]
        return np.column_stack(numbers)

    def _rarity(self, word: str) -> float:
        return math.log((self.sentences + 1) / (self.counts.get(word, 0) + 0.5))

    # -- files ---------------------------------------------------------------------------------------------------------

    def tensors(self) -> Tensors:
        lists = {"words": self.counts, "asked": self.asked, "kinds": self.kinds, "common": sorted(self.common)}
        tensors = {name: text_tensor(list(lines)) for name, lines in lists.items()}
        tensors |= {"counts": np.array([*self.counts.values(), self.sentences], dtype=np.int64)}
        return tensors | {f"word.{name}": tensor for name, tensor in self.words.tensors().items()}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        inner = {name.removeprefix("word."): tensor for name, tensor in tensors.items() if name.startswith("word.")}
        words, asked, kinds, common = (lines_of(tensors[name]) for name in ("words", "asked", "kinds", "common"))
        *counts, sentences = tensors["counts"].tolist()
        return cls(WordNGrams.of_tensors(inner), dict(zip(words, counts, strict=True)), sentences, asked, kinds, common)


class AnswerVectors:
    name = "vectors"

    def __init__(self, words: Sequence[str], groups: np.ndarray, asked: Sequence[str]) -> None:
        """`groups`: [words]."""
        self.words = Terms(words)
        self.groups, self.asked = groups, Asked(asked)
        assert len(self.words) == len(groups)

    @classmethod
    def learned(cls, units: Units, words: Sequence[str], matrix: np.ndarray, seed: int = 0) -> Self:
        groups = grouped(unit_rows(matrix).astype(np.float32), seed, (GROUPS,))[:, 0]
        known = np.flatnonzero(groups >= 0)
        return cls([words[place] for place in known.tolist()], groups[known], [*Asked.learned(_questions(units))])

    def read(self, units: Units) -> dict[str, Block]:
        rows = list(_questions(units))
        known = np.append(self.groups, -1)  # the last entry is for words outside the passage
        groups = (known[self.words.numbers(word.lower() for word in passage)] for passage, _ in rows)
        kinds = (np.where(of_words < 0, GROUPS, of_words) for of_words in groups)
        return {"asked": self.asked.crossed([question for _, question in rows], kinds, GROUPS + 1)}

    def tensors(self) -> Tensors:
        return {
            "words": self.words.tensor(),
            "groups": self.groups,
            "asked": self.asked.tensor(),
        }

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(lines_of(tensors["words"]), tensors["groups"], lines_of(tensors["asked"]))


class Asked(Terms):
    """Words and pairs of words that occur in enough questions."""

    @classmethod
    def learned(cls, rows: Iterable[tuple[list[str], list[str]]]) -> Self:
        counts = Counter(term for _, question in rows for term in asked_terms(question))
        return cls(sorted(term for term, count in counts.items() if count >= LEAST_ASKED))

    def crossed(self, questions: Iterable[Sequence[str]], kinds: Iterable[np.ndarray], count: int) -> sp.csr_matrix:
        """[words, columns]: one column for each term (and one for all questions) with each kind of the word itself, of
        the previous and of the next word. `kinds`: of the words of each passage, below `count`."""
        width = 3 * (count + 1)  # `count` itself stands for outside
        columns, lengths = [], []
        for question, of_words in zip(questions, kinds, strict=True):
            around = np.concatenate([[count], of_words, [count]])
            places = np.stack([of_words, around[:-2] + count + 1, around[2:] + 2 * (count + 1)], axis=1)
            terms = np.array([-1, *sorted(self[term] for term in asked_terms(question) if term in self)])
            crossings = (terms[:, None] + 1) * width + places[:, None, :]
            columns.append(crossings.ravel())
            lengths += [crossings[0].size] * len(of_words)
        every = np.concatenate(columns)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        values = np.full(len(every), ASKED, dtype=np.float32)
        return sp.csr_matrix((values, every, ends), shape=(len(lengths), (len(self) + 1) * width))


def asked_terms(question: Sequence[str]) -> set[str]:
    return {*question, *map(" ".join, itertools.pairwise(question))}


def _of_table(table: np.ndarray, weights: np.ndarray, ids: np.ndarray) -> list[np.ndarray]:
    """`table`: [words of the passage, words of the question], their similarity times the latter's weight."""
    best, whole = table.max(1), max(float(weights.sum()), 1e-9)
    has = np.zeros((int(ids[-1]) + 1, table.shape[1]))
    np.maximum.at(has, ids, table)
    cover = has.sum(1) / whole
    most = max(float(cover.max()), 1e-9)
    beside = np.concatenate([[0.0], cover, [0.0]])
    sentences = (cover, cover / most, cover == cover.max(), beside[:-2], beside[2:])
    near = [sums / whole for decay in DECAYS for sums in _near(best, decay)]
    return [best / max(float(weights.max()), 1e-9), *near, *(of_sentence[ids] for of_sentence in sentences)]


def _near(values: np.ndarray, decay: float) -> tuple[np.ndarray, np.ndarray]:
    """The values before and after each position, decaying with distance."""
    kept = math.exp(-1 / decay)
    before, behind = (np.asarray(lfilter([0.0, kept], [1.0, -kept], way)) for way in (values, values[::-1]))
    return before, behind[::-1]


def sentence_ids(words: Sequence[str]) -> np.ndarray:
    """The sentence number of each word."""
    ends = [
        word in ENDS and not (word == "." and place and len(words[place - 1]) <= SHORT)
        for place, word in enumerate(words)
    ]
    return np.cumsum([0, *ends[:-1]])


@lru_cache(1 << 16)
def likeness(a: str, b: str) -> float:
    """1 for the same word; for words with the same beginning, the share of it: `invaded`, `invade`."""
    if a == b:
        return 1.0
    shared = next((place for place, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    part = shared / max(len(a), len(b), 1)
    return part if shared >= LEAST_PREFIX and part >= LEAST_PART else 0.0


def kind_of(word: str, common: Iterable[str]) -> str:
    """A frequent word itself, a number by its length, another word by its shape."""
    low = word.lower()
    if low in common:
        return f"={low}"
    return f"d{min(len(word), 5)}" if word.isdigit() else shape_of(word)[:_KIND]
