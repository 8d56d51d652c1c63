"""Words as cross-view training reads them: by the vector of their form, and by their characters as written.

A form is a word in lower case with every digit replaced by 0 (`looked_up_as`). All vocabulary words with one form share
the number of the first of them, so that a table with one row per id suffices. Words outside the vocabulary are looked
up by their form too, if they have a number of their own (`text/tokenizers/word_vocabulary.py`); otherwise they are
unknown.

The unknown vector is trained only if some words are read as unknown in training: `seldom` says which.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from foretext.errors import UserError
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.tokenizers.wordpiece import basic_splitter
from foretext.text.words.characters import word_characters
from foretext.text.words.vectors import WordVectors, read_vectors
from foretext.text.words.word_list import looked_up_as


class WordForms:
    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        """`length`: characters read per word, borders included."""
        self.tokenizer, self.length = tokenizer, length
        self.first: dict[str, int] = {}
        self.unknown = tokenizer.unknown  # None: the vocabulary covers everything
        specials = set(tokenizer.specials.values())
        self.rows = np.arange(tokenizer.size, dtype=np.int64)
        for id in range(tokenizer.size):
            if id not in specials:
                self.rows[id] = self.first.setdefault(looked_up_as(tokenizer.piece(id)), id)

    def row(self, id: int) -> int:
        """The number of a word's form."""
        known = id < len(self.rows)
        return (
            int(self.rows[id]) if known else self.first.get(looked_up_as(self.tokenizer.piece(id)), self.unknown or 0)
        )

    def seldom(self, sequences: Iterable[Iterable[int]]) -> set[int]:
        """The ids, special tokens aside, whose form occurs once in these sequences."""
        specials = set(self.tokenizer.specials.values())
        ids = [id for sequence in sequences for id in sequence if id not in specials]
        forms = {id: self.row(id) for id in set(ids)}
        counts = Counter(forms[id] for id in ids)
        return {id for id, form in forms.items() if counts[form] == 1}

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The forms of these ids [U], and their characters [U, length]."""
        words = [self.tokenizer.piece(int(id)) for id in ids]
        return np.array([self.row(int(id)) for id in ids], dtype=np.int64), word_characters(words, self.length)


def with_vectors(tokenizer: Tokenizer, path: str | Path | WordVectors, size: int) -> tuple[Words, np.ndarray]:
    """The vocabulary, extended to at most `size` words, and a vector for each, [size, width]; zeros if it has none.

    Cross-view training starts from these given vectors. The vocabulary is extended by the first words of the vector
    file, as many as there is room for, so that words of later texts are known although no labelled row has them. A form
    gets the vector of its first word in the file, looked up by the form or else by the word itself (1990 for 0000).
    """
    if not isinstance(tokenizer, Words):
        raise UserError(
            f"--vectors are for words, but tokenizer.kind={tokenizer.kind} has pieces; leave one of them out"
        )
    pieces = set(tokenizer.pieces).difference(tokenizer.specials)
    wanted = {word for piece in pieces for word in (piece, looked_up_as(piece))}
    vectors = read_vectors(path, only=wanted, first=size if size > tokenizer.size else 0)
    grown = _grown(tokenizer, vectors, size)
    matrix = np.zeros((grown.size, vectors.width), dtype=np.float32)
    forms = WordForms(grown, 1)
    vector_of_row: dict[int, int] = {}  # the row of a form → the number of its vector
    for id, piece in enumerate(grown.pieces):
        known = [int(number) for number in vectors.lookup([looked_up_as(piece), piece]) if number >= 0]
        if known and piece not in grown.specials:
            vector_of_row.setdefault(forms.row(id), known[0])
    matrix[list(vector_of_row)] = vectors.matrix[list(vector_of_row.values())]
    return grown, matrix


def _grown(tokenizer: Words, vectors: WordVectors, size: int) -> Words:
    """Extends the vocabulary by words of the file that text can be split into and whose form is new."""
    split = basic_splitter(tokenizer.lower)
    forms = set(WordForms(tokenizer, 1).first)
    more: dict[str, str] = {}  # form → the first word with it
    for word in vectors.words:
        if tokenizer.size + len(more) >= size:
            break
        if looked_up_as(word) not in forms and split(word) == [word]:
            more.setdefault(looked_up_as(word), word)
    return Words([*tokenizer.pieces, *more.values()], tokenizer.specials, tokenizer.lower, tokenizer.split)
