"""Words as cross-view training reads them: by the vector of their form, and by their characters as they are written.

A form is a word in lower case with every digit as 0 (`looked_up_as`). All words of a vocabulary that have one form
share the number of the first of them, so that a table with a row for each id serves; what the vocabulary does not have
is looked up by its form too, if it has a number of its own (`text/tokenizers/word_vocabulary.py`), and is unknown
otherwise.

The unknown words' vector is only learned if some words are read so in training: `seldom` says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from foretext.text.tokenizers.base import Tokenizer
from foretext.text.words.characters import word_characters
from foretext.text.words.word_list import looked_up_as


class WordForms:
    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        """`length`: characters of a word that are read, its borders included."""
        self.tokenizer, self.length = tokenizer, length
        self.first: dict[str, int] = {}
        self.unknown = tokenizer.unknown  # None: the vocabulary has everything
        specials = set(tokenizer.specials.values())
        self.rows = np.arange(tokenizer.size, dtype=np.int64)
        for id in range(tokenizer.size):
            if id not in specials:
                self.rows[id] = self.first.setdefault(looked_up_as(tokenizer.piece(id)), id)

    def row(self, id: int) -> int:
        """The number of a word's form."""
        if id < len(self.rows):
            return int(self.rows[id])
        return self.first.get(looked_up_as(self.tokenizer.piece(id)), self.unknown or 0)

    def seldom(self, sequences: Iterable[Iterable[int]]) -> set[int]:
        """The ids, specials aside, whose form stands in these sequences once."""
        counts = Counter(id for ids in sequences for id in ids)
        specials = set(self.tokenizer.specials.values())
        forms = {id: self.row(id) for id in counts if id not in specials}
        of_form: Counter[int] = Counter()
        for id, form in forms.items():
            of_form[form] += counts[id]
        return {id for id, form in forms.items() if of_form[form] == 1}

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The forms of these ids [U], and their characters [U, length]."""
        words = [self.tokenizer.piece(int(id)) for id in ids]
        return np.array([self.row(int(id)) for id in ids], dtype=np.int64), word_characters(words, self.length)
