"""Where words begin in a sequence of ids, for masks of whole words and of several words.

A piece goes on with the word before it if words can go on into it and out of the piece before it. Two tables with an
entry for each id say so for every kind of tokenizer: WordPiece's `##` is about the first, GPT's `</w>` about the
second, and where neither is written the letters at a piece's two ends decide. A space that is a piece by itself goes
with what follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import regex

# Scripts that are written without spaces, for a class of a regular expression.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー々\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_IN_WORD = regex.compile(rf"(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}]")


@dataclass(frozen=True)
class WordBorders:
    into: np.ndarray  # whether a word can go on into the piece of this id
    out: np.ndarray  # whether it can go on out of it
    space: np.ndarray  # whether it is a space alone
    behind: np.ndarray  # whether it can be what such a space belongs to

    def starts(self, ids: np.ndarray) -> np.ndarray:
        """Which ids of sequences [..., length] begin a word."""
        ids = np.asarray(ids, dtype=np.int64)
        here, before = ids[..., 1:], ids[..., :-1]
        starts = np.ones(ids.shape, dtype=bool)
        starts[..., 1:] = ~((self.into[here] & self.out[before]) | (self.behind[here] & self.space[before]))
        return starts


def in_word(character: str) -> bool:
    """Whether neighbours like this one make a word: letters, marks and digits do, except in scripts without spaces,
    where every piece counts as a word."""
    return _IN_WORD.match(character) is not None
