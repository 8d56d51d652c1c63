"""Words as cross-view training reads them: by the vector of their form, and by their characters as they are written.

A form is a word in lower case with every digit as 0 (`looked_up_as`). All words of a vocabulary that have one form
share the number of the first of them, so that a table with a row for each id serves; what the vocabulary does not have
is looked up by its form too, if it has a number of its own (`word_vocabulary.py`), and is unknown otherwise.
"""

from __future__ import annotations

import numpy as np

from foretext.text.characters import word_characters
from foretext.text.tokenizer import Tokenizer
from foretext.text.word_list import looked_up_as


class WordForms:
    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        """`length`: characters of a word that are read, its borders included."""
        self.tokenizer, self.length = tokenizer, length
        self.first: dict[str, int] = {}
        specials = set(tokenizer.specials.values())
        self.rows = np.arange(tokenizer.size, dtype=np.int64)
        for id in range(tokenizer.size):
            if id not in specials:
                self.rows[id] = self.first.setdefault(looked_up_as(tokenizer.piece(id)), id)

    def row(self, id: int) -> int:
        """The number of a word's form."""
        if id < len(self.rows):
            return int(self.rows[id])
        unknown = 0 if self.tokenizer.unknown is None else self.tokenizer.unknown
        return self.first.get(looked_up_as(self.tokenizer.piece(id)), unknown)

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The forms of these ids [U], and their characters [U, length]."""
        words = [self.tokenizer.piece(int(id)) for id in ids]
        return np.array([self.row(int(id)) for id in ids], dtype=np.int64), word_characters(words, self.length)
