"""BERT's WordPiece: clean, split into words and signs, then take the longest known piece again and again.

Cleaning drops control characters, sets every Chinese character apart and, in a lower-cased vocabulary, lower-cases and
strips accents. A piece inside a word begins with `##`. A word that the pieces do not cover, or of over 100 characters,
is `[UNK]` as a whole, and case and spacing are lost: not `lossless`.

Ids are those of the `tokenizers` library, which does the work, and so of `transformers`. It differs from the released
`tokenization.py` in two small ways: a capital sigma at a word's end becomes σ, not ς, and private and unassigned
characters are dropped as control characters are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import regex
import tokenizers

from foretext.errors import UserError
from foretext.text.tokenizers.base import (
    Offsets,
    Tokenizer,
    WordBorders,
    checked_flag,
    checked_pieces,
    encodable,
    special_pieces,
    written_lower,
)
from foretext.text.tokenizers.engine import Engine

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # in the order that a trained vocabulary begins with
UNKNOWN, SEPARATOR = "[UNK]", "[SEP]"
INSIDE = "##"
LONGEST_WORD = 100

# Spaces that readable text does not have: before closing signs, after opening ones, between Chinese characters.
_NO_SPACE = regex.compile(
    r" (?=[.,!?;:%)\]}、。，！？；：）】》」』])"
    r"|(?<=[(\[{（【《「『]) "
    r"|(?<=[\p{Han}、。，！？；：）】》」』]) (?=[\p{Han}（【《「『])"
)
_APOSTROPHE = regex.compile(r"(?<=\w) ' (?=\w)")


class WordPiece(Tokenizer):
    """`pieces` in the order of their ids, the specials among them."""

    kind = "wordpiece"
    ends = (SEPARATOR,)

    def __init__(
        self, pieces: Sequence[str], specials: dict[str, int], lower: bool, engine: Engine | None = None
    ) -> None:
        super().__init__(pieces, specials, specials[UNKNOWN])
        self.lower = lower
        self._engine = engine or self._make_engine()

    def _make_engine(self) -> Engine:
        # A special is no piece to the engine, except the one that it gives by itself: no text has a word "[UNK]".
        ids = {piece: id for id, piece in enumerate(self.pieces) if id == self.unknown or id not in self._names}
        model = tokenizers.models.WordPiece(vocab=ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD)
        return Engine(model, bert_normalizer(self.lower), tokenizers.pre_tokenizers.BertPreTokenizer())

    def encode(self, text: str) -> list[int]:
        return self._engine.encode(text)

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array(ids, dtype=np.uint32) for ids in self._engine.encode_many(texts)]

    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        return self._engine.encode_with_offsets(text)

    @cached_property
    def _borders(self) -> WordBorders:
        ordinary = np.array([id not in self._names for id in range(self.size)])
        inside = np.array([_inside(piece) for piece in self.pieces])
        no_space = np.zeros(self.size, dtype=bool)
        return WordBorders(inside & ordinary, ordinary, no_space, no_space)

    def decode(self, ids: Iterable[int]) -> str:
        return readable(super().decode(ids))

    def _spelled(self, piece: str) -> str:
        return piece.removeprefix(INSIDE) if _inside(piece) else " " + piece

    def with_specials(self, names: Sequence[str]) -> WordPiece:
        pieces, specials = special_pieces(self.pieces, self.specials, names)
        appended = len(pieces) - len(self.pieces) == len(specials) - len(self.specials)
        return WordPiece(pieces, specials, self.lower, self._engine if appended else None)

    def _data(self) -> dict[str, Any]:
        return {"lower": self.lower, "pieces": list(self.pieces)}

    @classmethod
    def from_data(cls, data: dict[str, Any], where: str) -> WordPiece:
        pieces, specials = checked_pieces(data, where, SPECIALS)
        return cls(pieces, specials, checked_flag(data, "lower", where))

    @classmethod
    def from_published(cls, pieces: Sequence[str], lower: bool | None, where: str) -> WordPiece:
        """The lines of a published `vocab.txt`. `lower` None: lower-cased if no piece is changed by lower-casing, which
        is right for BERT's uncased, cased and Chinese ones."""
        ids: dict[str, int] = {}
        for id, piece in enumerate(pieces):
            if not piece or piece in ids:
                what = f"{piece!r} for the second time" if piece else "no piece"
                raise UserError(f"{where} line {id + 1}: {what}; get the published file again")
            ids[piece] = id
        missing = [name for name in SPECIALS if name not in ids]
        if missing:
            raise UserError(f"{where}: no {', '.join(missing)} in it; is this BERT's vocabulary?")
        specials = {name: ids[name] for name in SPECIALS}
        return cls(pieces, specials, written_lower(pieces) if lower is None else lower)


def wordpiece_from_pieces(pieces: Sequence[str], lower: bool) -> WordPiece:
    """A newly trained tokenizer: the specials, then the pieces."""
    whole = [*SPECIALS, *pieces]
    assert len(set(whole)) == len(whole)
    return WordPiece(whole, {name: id for id, name in enumerate(SPECIALS)}, lower)


def basic_splitter(lower: bool) -> Callable[[str], list[str]]:
    """The function that splits a text into the words that pieces are sought in; too long ones are left out."""
    normalizer, splitter = bert_normalizer(lower), tokenizers.pre_tokenizers.BertPreTokenizer()

    def split(text: str) -> list[str]:
        words = splitter.pre_tokenize_str(normalizer.normalize_str(encodable(text)))
        return [word for word, _ in words if len(word) <= LONGEST_WORD]

    return split


def bert_normalizer(lower: bool) -> tokenizers.normalizers.BertNormalizer:
    return tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=lower, lowercase=lower
    )


def readable(text: str) -> str:
    """Words with a space between each two of them as people would write them, as far as can be told."""
    return _APOSTROPHE.sub("'", _NO_SPACE.sub("", text))


def _inside(piece: str) -> bool:
    return piece.startswith(INSIDE) and len(piece) > len(INSIDE)
