"""Word vectors that were learned elsewhere as where those of cross-view training's words start (`word_forms.py`).

The vocabulary grows by the first words of the vectors' file, as many as there is room for, so that words of later texts
are known though no labelled row has them. A form's vector is that of its first word that the file has, as the form is
written or else as the word is (1990 for 0000).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foretext.errors import UserError
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.tokenizers.wordpiece import basic_splitter
from foretext.text.words.vectors import WordVectors, read_vectors
from foretext.text.words.word_forms import WordForms
from foretext.text.words.word_list import looked_up_as


def with_vectors(tokenizer: Tokenizer, path: str | Path, size: int) -> tuple[Words, np.ndarray]:
    """The vocabulary, grown to at most `size` words, and a row for each, [size, width]; zeros where there is none."""
    if not isinstance(tokenizer, Words):
        raise UserError(
            f"--vectors are of words, and tokenizer.kind={tokenizer.kind} has pieces; leave one of them out"
        )
    own = [piece for id, piece in enumerate(tokenizer.pieces) if id not in set(tokenizer.specials.values())]
    wanted = {word for piece in own for word in (piece, looked_up_as(piece))}
    vectors = read_vectors(path, only=wanted, first=size if size > tokenizer.size else 0)
    grown = _grown(tokenizer, vectors, size)
    matrix = np.zeros((grown.size, vectors.width), dtype=np.float32)
    forms = WordForms(grown, 1)
    found: dict[int, int] = {}  # the row of a form → the number of its vector
    specials = set(grown.specials.values())
    for id, piece in enumerate(grown.pieces):
        if id not in specials:
            known = [int(one) for one in vectors.lookup([looked_up_as(piece), piece]) if one >= 0]
            if known:
                found.setdefault(forms.row(id), known[0])
    matrix[list(found)] = vectors.matrix[list(found.values())]
    return grown, matrix


def _grown(tokenizer: Words, vectors: WordVectors, size: int) -> Words:
    """With words of the file whose form it does not have and that text is split into."""
    split = basic_splitter(tokenizer.lower)
    forms = set(WordForms(tokenizer, 1).first)
    more: list[str] = []
    for word in vectors.words:
        if tokenizer.size + len(more) >= size:
            break
        form = looked_up_as(word)
        if form not in forms and split(word) == [word]:
            forms.add(form)
            more.append(word)
    return Words([*tokenizer.pieces, *more], tokenizer.specials, tokenizer.lower, tokenizer.split)
