"""Tags and answers without a model: what counting gives, on the same rows.

- **Tags**: each word gets the most frequent tag of its key in training, the key being its part of speech (CoNLL-2000's
  own baseline) or the word itself.
- **Answers**: a run of a fixed number of words, none of them in the question, that stands closest to words of the
  question, rare words counting more. Which number of words does best is settled on the training questions.

A word is a run of letters and digits, or one ideograph: Chinese has no spaces to find words by.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from foretext.tasks.files.squad import Question
from foretext.tasks.scores.text_metrics import score_answers

NEAR = 8  # words before and behind an answer that speak for it
LENGTHS = range(1, 9)  # words of an answer that are tried
_IDEOGRAPH = "[\u3400-\u4dbf\u4e00-\u9fff]"
_WORD = re.compile(rf"{_IDEOGRAPH}|(?:(?!{_IDEOGRAPH})[^\W_])+")

Words = list[tuple[str, int, int]]  # each word, lower-cased, and its characters [start, end)


# -- tags ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TagTable:
    """The most frequent tag of each key, and of all, for keys that training did not have."""

    tags: Mapping[str, str]
    fallback: str

    def tag(self, sentences: Iterable[Sequence[str]]) -> list[list[str]]:
        return [[self.tags.get(key, self.fallback) for key in keys] for keys in sentences]


def tag_table(keys: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> TagTable:
    """From sentences of keys and their tags; among equally frequent tags the first by name."""
    counts: dict[str, Counter[str]] = {}
    every: Counter[str] = Counter()
    for own_keys, own_tags in zip(keys, tags, strict=True):
        for key, tag in zip(own_keys, own_tags, strict=True):
            counts.setdefault(key, Counter())[tag] += 1
            every[tag] += 1
    return TagTable({key: _most_frequent(found) for key, found in counts.items()}, _most_frequent(every))


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))


# -- answers ---------------------------------------------------------------------------------------------------------


def words_of(text: str) -> Words:
    return [(match[0].lower(), match.start(), match.end()) for match in _WORD.finditer(text)]


@dataclass(frozen=True)
class Rarity:
    """How much each word tells: log(1 + passages / passages that have it)."""

    weights: Mapping[str, float]
    unseen: float

    def of(self, word: str) -> float:
        return self.weights.get(word, self.unseen)


def rarity(passages: Iterable[str]) -> Rarity:
    counts: Counter[str] = Counter()
    number = 0
    for passage in dict.fromkeys(passages):
        counts.update({word for word, _, _ in words_of(passage)})
        number += 1
    return Rarity({word: math.log(1 + number / count) for word, count in counts.items()}, math.log(1 + number))


def pulls_of(question: str, words: Words, rare: Rarity) -> list[float]:
    """What each word of the passage adds to answers near it: its rarity if the question has it, otherwise nothing."""
    asked = {word for word, _, _ in words_of(question)}
    return [rare.of(word) if word in asked else 0.0 for word, _, _ in words]


def overlap_answer(passage: str, words: Words, pulls: Sequence[float], length: int) -> str:
    """The best run of `length` words; the passage's first ones if every run has a word of the question."""
    length = min(length, len(words))
    best, place = -1.0, 0
    for first in range(len(words) - length + 1):
        end = first + length
        if any(pulls[first:end]):
            continue
        before = sum(pulls[at] / (first - at) for at in range(max(0, first - NEAR), first))
        behind = sum(pulls[at] / (at - end + 1) for at in range(end, min(len(words), end + NEAR)))
        if before + behind > best:
            best, place = before + behind, first
    return passage[words[place][1] : words[place + length - 1][2]] if words else ""


def overlap_answers(questions: Sequence[Question], rare: Rarity, length: int) -> list[str]:
    known: dict[str, Words] = {}
    answers = []
    for one in questions:
        words = known.setdefault(one.passage, words_of(one.passage))
        answers.append(overlap_answer(one.passage, words, pulls_of(one.question, words, rare), length))
    return answers


def best_length(questions: Sequence[Question], rare: Rarity) -> int:
    """The length whose answers have the highest F1 on these questions; of equal ones the shortest."""

    def f1(length: int) -> float:
        return score_answers(questions, overlap_answers(questions, rare, length)).values["f1"]

    return max(LENGTHS, key=f1)
