"""Whole words as ids, by frequency, for systems older than subword pieces: the targets of CoVe's translation and the
words of cross-view training.

Lines are split by the rules of `text/tokenizers/splitters.py`; in scripts without spaces (Chinese, Japanese, Thai, …)
each character is a word. Target words are marked so that the line can be joined again: a word without a space before it
begins with ￭ (`Hut`, `￭.`). So a translation is a line of normal text, which BLEU needs. A ￭ in the text becomes ■.

Ids 0, 1 and 2 are the start, the end and unknown words; then come the words, most frequent first, ties in alphabetical
order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretext.text.tokenizers.splitters import WORD_OR_CHARACTER

if TYPE_CHECKING:
    from foretext.text.words.latent_semantics import Lsa

START, END, UNKNOWN = 0, 1, 2
FIRST_WORD = 3
JOINED = "￭"
_DIGIT = re.compile(r"\d")


def plain_words(line: str) -> list[str]:
    return [match.group() for match in WORD_OR_CHARACTER.finditer(line)]


def marked_words(line: str) -> list[str]:
    """Marked words, which `marked_text` joins again."""
    words: list[str] = []
    end = 0
    for match in WORD_OR_CHARACTER.finditer(line.strip().replace(JOINED, "■")):
        words.append(JOINED + match.group() if words and match.start() == end else match.group())
        end = match.end()
    return words


def marked_text(words: Iterable[str]) -> str:
    """The line, with single spaces between its words."""
    text = ""
    for word in words:
        text += word.removeprefix(JOINED) if word.startswith(JOINED) or not text else " " + word
    return text


def looked_up_as(word: str) -> str:
    """Cross-view training's form of a word: lower case, every digit replaced by 0."""
    return _DIGIT.sub("0", word.lower())


def counted_words(
    texts: Sequence[str], split: Callable[[str], Iterable[str]], progress: Callable[[str, int, int], None]
) -> Counter[str]:
    """How often each word occurs in all texts. `progress` is called before each; if it raises, the work ends."""
    counts: Counter[str] = Counter()
    for number, text in enumerate(texts):
        progress("counting words", number, len(texts))
        counts.update(split(text))
    return counts


@dataclass(frozen=True)
class WordList:
    """`words[i]` has the id `FIRST_WORD` + i."""

    words: tuple[str, ...]

    @classmethod
    def of_counts(cls, counts: Counter[str], most: int, least: int = 1) -> WordList:
        """The `most` most frequent words among those that occur at least `least` times."""
        often = [(-count, word) for word, count in counts.items() if count >= least]
        return cls(tuple(word for _, word in sorted(often)[: max(0, most)]))

    @property
    def size(self) -> int:
        return FIRST_WORD + len(self.words)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, FIRST_WORD)}

    def encode(self, words: Iterable[str]) -> np.ndarray:
        ids = self.ids
        return np.fromiter((ids.get(word, UNKNOWN) for word in words), dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words; unknown ones as `<unk>`, start and end as nothing."""
        shown = {START: None, END: None, UNKNOWN: "<unk>"}
        words = (shown[id] if id < FIRST_WORD else self.words[id - FIRST_WORD] for id in ids)
        return [word for word in words if word is not None]


@dataclass(frozen=True)
class TextKnowledge:
    """What was learned from a text about its words: their vectors, their counts, and the text's topics."""

    words: Sequence[str]  # as `split_words` gives them; the row of a word without a vector is zeros
    matrix: np.ndarray  # [words, width]
    counts: np.ndarray  # [words]
    lsa: Lsa | None = None
