"""BERT's WordPiece: clean, split into words and signs, then repeatedly take the longest known piece.

Cleaning drops control characters, separates every Chinese character and, in a lower-cased vocabulary, lower-cases and
strips accents. A piece inside a word begins with `##`. A word that the pieces cannot cover, or of over 100 characters,
becomes one `[UNK]`, and case and spacing are lost: not `lossless`.

The `tokenizers` library does the work, so ids are those of `transformers`. It differs from the released
`tokenization.py` in two small ways: a capital sigma at a word's end becomes σ, not ς, and private and unassigned
characters are dropped like control characters.

`Engine` is the pipeline that WordPiece and unigram share: cleaning, splitting, and the model. No special token is
registered in it, so text that spells one stays text. Long texts are cut where a word follows a space or a line break.
This changes no id, because both models see one word at a time, and it bounds memory: the library keeps some hundred
bytes per character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import regex
import tokenizers

from foretext.errors import UserError, refuse_if
from foretext.text.tokenizers.base import (
    Fields,
    Offsets,
    Tokenizer,
    WordBorders,
    WordPieceForm,
    checked_flag,
    checked_pieces,
    encodable,
    in_original,
    special_pieces,
    written_lower,
)

STRETCH = 100_000  # characters at a time, plus the rest up to the next word
_BORDER = re.compile(r"(?<=[ \n])(?=\w)")
# Characters that cleaning drops at the beginning of a text. The library's alignment is off if it drops them itself.
_DROPPED = re.compile(r"[\x01-\x1f\x7f\s]*")


class Engine:
    """`normalizer` cleans, `pre_tokenizer` splits into words, `model` turns each into ids."""

    def __init__(
        self,
        model: tokenizers.models.Model,
        normalizer: tokenizers.normalizers.Normalizer,
        pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer,
    ) -> None:
        self._pipeline = tokenizers.Tokenizer(model)
        self._pipeline.normalizer = normalizer
        self._pipeline.pre_tokenizer = pre_tokenizer

    def encode(self, text: str) -> list[int]:
        if len(text) > STRETCH:
            return self.encode_many([text])[0]
        return self._pipeline.encode(encodable(text), add_special_tokens=False).ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text. The library uses all cores, unless TOKENIZERS_PARALLELISM says otherwise."""
        cut = [[part for _, part in stretches(encodable(text))] for text in texts]
        every = [part for parts in cut for part in parts]
        encodings = iter(self._pipeline.encode_batch_fast(every, add_special_tokens=False))
        return [[id for _ in parts for id in next(encodings).ids] for parts in cut]

    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        clean = encodable(text)
        ids: list[int] = []
        offsets: Offsets = []
        for start, part in stretches(clean):
            skip = next(_DROPPED.finditer(part)).end()
            encoding = self._pipeline.encode(part[skip:], add_special_tokens=False)
            ids += encoding.ids
            offsets += [(start + skip + first, start + skip + last) for first, last in encoding.offsets]
        return ids, in_original(_tidied(offsets, clean), text, clean)


def stretches(text: str) -> Iterator[tuple[int, str]]:
    """Parts of a text that can be encoded separately, each with the place where it begins."""
    start = 0
    while len(text) - start > STRETCH:
        border = _BORDER.search(text, start + STRETCH)
        if border is None:
            break
        yield start, text[start : border.start()]
        start = border.start()
    yield start, text[start:]


def _tidied(offsets: Offsets, text: str) -> Offsets:
    """Fixes offsets: combining marks that cleaning dropped belong to the piece before them, and starts and ends never
    decrease, even where cleaning replaced characters."""
    tidy = []
    low = high = 0
    for number, (start, end) in enumerate(offsets):
        low, high = max(low, start), max(high, low, start, end)
        following = offsets[number + 1][0] if number + 1 < len(offsets) else len(text)
        while high < following and unicodedata.category(text[high]).startswith("M"):
            high += 1
        tidy.append((low, high))
    return tidy


# -- the engine --------------------------------------------------------------------------------------------------------


SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # in the order of a trained vocabulary
UNKNOWN, SEPARATOR = "[UNK]", "[SEP]"
INSIDE = "##"
LONGEST_WORD = 100

# Spaces that do not occur in normal text: before closing signs, after opening ones, between Chinese characters.
_NO_SPACE = regex.compile(
    r" (?=[.,!?;:%)\]}、。，！？；：）】》」』])"
    r"|(?<=[(\[{（【《「『]) "
    r"|(?<=[\p{Han}、。，！？；：）】》」』]) (?=[\p{Han}（【《「『])"
)
_APOSTROPHE = regex.compile(r"(?<=\w) ' (?=\w)")


class WordPiece(Tokenizer):
    """`pieces` in the order of their ids, special tokens included."""

    kind = "wordpiece"
    ends = (SEPARATOR,)

    def __init__(
        self, pieces: Sequence[str], specials: dict[str, int], lower: bool, engine: Engine | None = None
    ) -> None:
        super().__init__(pieces, specials, specials[UNKNOWN])
        self.lower = lower
        self._engine = engine or self._make_engine()

    def _make_engine(self) -> Engine:
        # To the engine, no special token is a piece, except the unknown one, which it produces itself: the text "[UNK]"
        # is not a piece.
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

    def _data(self) -> WordPieceForm:
        return {"lower": self.lower, "pieces": list(self.pieces)}

    @classmethod
    def from_data(cls, data: Fields, where: str) -> WordPiece:
        pieces, specials = checked_pieces(data, where, SPECIALS)
        return cls(pieces, specials, checked_flag(data, "lower", where))

    @classmethod
    def from_published(cls, pieces: Sequence[str], lower: bool | None, where: str) -> WordPiece:
        """The lines of a published `vocab.txt`. `lower` None: lower-cased if lower-casing changes no piece, which is
        right for BERT's uncased, cased and Chinese vocabularies."""
        ids: dict[str, int] = {}
        for id, piece in enumerate(pieces):
            if not piece or piece in ids:
                what = f"{piece!r} occurs twice" if piece else "an empty piece"
                raise UserError(f"{where} line {id + 1}: {what}; get the published file again")
            ids[piece] = id
        missing = [name for name in SPECIALS if name not in ids]
        refuse_if(missing, f"{where}: {', '.join(missing)} is missing; is this BERT's vocabulary?")
        lower = written_lower(pieces) if lower is None else lower
        return cls(pieces, {name: ids[name] for name in SPECIALS}, lower)


def wordpiece_from_pieces(pieces: Sequence[str], lower: bool) -> WordPiece:
    """A newly trained tokenizer: the special tokens, then the pieces."""
    whole = [*SPECIALS, *pieces]
    assert len(set(whole)) == len(whole)
    return WordPiece(whole, {name: id for id, name in enumerate(SPECIALS)}, lower)


def basic_splitter(lower: bool) -> Callable[[str], list[str]]:
    """A function that splits a text into the words to cut into pieces; words that are too long are left out."""
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
    """Joins words with spaces as people would write them, as far as can be told."""
    return _APOSTROPHE.sub("'", _NO_SPACE.sub("", text))


def _inside(piece: str) -> bool:
    return piece.startswith(INSIDE) and len(piece) > len(INSIDE)
