"""SentencePiece's unigram model, as in ALBERT and XLNet: of all ways to cut a word into pieces, the most probable.

A text is cleaned (`` and '' become ", compatibility characters become plain ones, accents are stripped, and letters are
lower-cased if the vocabulary is) and split at white space; each word gets a leading `▁`. Characters outside the
vocabulary are `<unk>`, adjacent ones together. This cannot be undone, so it is not `lossless`.

The `tokenizers` library does the work, in the same order as `transformers`. A piece that ends in a digit and a comma
(`▁2010,`) is cut again without its comma, as in the released code: `▁2010` and `,`. transformers' converter instead
makes such pieces too improbable to be chosen, which gives other ids for a few numbers (1,234); its plain
`AlbertTokenizer` does neither.

The special tokens of a file are its control symbols, its unknown symbol, and user symbols in brackets; other user
symbols (ALBERT has ( ) " - . – £ €) are ordinary pieces. Encoding produces no special token except `<unk>`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from tokenizers import models, normalizers, pre_tokenizers

from foretext.errors import UserError, refuse_if
from foretext.text.tokenizers.base import (
    END,
    Fields,
    Offsets,
    Tokenizer,
    UnigramForm,
    WordBorders,
    checked_flag,
    checked_pieces,
    in_brackets,
    in_word,
    special_pieces,
    written_lower,
)
from foretext.text.tokenizers.published import NORMAL, USER_DEFINED, SentencePieceModel, check_charmap
from foretext.text.tokenizers.published import UNKNOWN as UNKNOWN_TYPE
from foretext.text.tokenizers.wordpiece import Engine

SPACE = "▁"
SPECIALS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")  # ALBERT's; a trained vocabulary begins with them too
XLNET_SPECIALS = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
UNKNOWN = "<unk>"


@dataclass(frozen=True)
class Cleaning:
    lower: bool
    strip_accents: bool
    charmap: bytes  # SentencePiece's own table of replacements; empty: the library's NFKC and rules for spaces

    def normalizer(self) -> normalizers.Normalizer:
        steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if self.strip_accents:
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if self.lower:
            steps.append(normalizers.Lowercase())
        if self.charmap:
            steps.append(normalizers.Precompiled(self.charmap))
        else:
            steps += [normalizers.Nmt(), normalizers.NFKC()]
        return normalizers.Sequence(steps)


class Unigram(Tokenizer):
    """`pieces` in the order of their ids, special tokens included, each with its log probability."""

    kind = "unigram"
    ends = ("[SEP]", "<sep>", "</s>", END)

    def __init__(
        self,
        pieces: Sequence[str],
        scores: Sequence[float],
        specials: dict[str, int],
        cleaning: Cleaning,
        unknown: str = UNKNOWN,
        engine: Engine | None = None,
    ) -> None:
        assert len(pieces) == len(scores)
        super().__init__(pieces, specials, specials[unknown])
        self.scores = scores
        self.cleaning = cleaning
        self._unknown = specials[unknown]
        self._engine = engine or self._make_engine()
        self._recut = self._numbers_before_commas()

    def _make_engine(self) -> Engine:
        # Words contain no spaces, so no text ever contains one of the special tokens.
        pieces = [f" {piece}" if id in self._names else piece for id, piece in enumerate(self.pieces)]
        model = models.Unigram(list(zip(pieces, self.scores)), self._unknown, False)
        split = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, "always")]
        return Engine(model, self.cleaning.normalizer(), pre_tokenizers.Sequence(split))

    def _numbers_before_commas(self) -> dict[int, list[int]]:
        """The replacement of each piece that ends in a digit and a comma: the number cut again, and the comma."""
        replacements: dict[int, list[int]] = {}
        chosen = [id for id, piece in enumerate(self.pieces) if piece[-1] == "," and piece[-2:-1].isdigit()]
        if not chosen:
            return replacements
        ids = {piece: id for id, piece in enumerate(self.pieces) if id not in self._names}
        for id in chosen:
            piece = self.pieces[id]
            number = self._engine.encode(piece[:-1].replace(SPACE, ""))
            first = self.pieces[number[0]] if number else ""
            if not piece.startswith(SPACE) and first.startswith(SPACE):
                number[:1] = [ids.get(first[1:], self._unknown)] if len(first) > 1 else []
            replacements[id] = [*number, ids.get(",", self._unknown)]
        return replacements

    def encode(self, text: str) -> list[int]:
        return self._cut_numbers(self._engine.encode(text))

    def _cut_numbers(self, ids: list[int]) -> list[int]:
        known = self._recut
        return ids if known.keys().isdisjoint(ids) else [new for id in ids for new in known.get(id, (id,))]

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array(self._cut_numbers(ids), dtype=np.uint32) for ids in self._engine.encode_many(texts)]

    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        """`▁` stands for no character: as a piece by itself its span is empty, just before its word."""
        engine_ids, spans = self._engine.encode_with_offsets(text)
        ids: list[int] = []
        offsets: Offsets = []
        for id, (start, end) in zip(engine_ids, spans):
            parts = self._recut.get(id, [id])
            ids += parts
            for part in parts[:-1]:
                middle = max(start, min(start + len(self.pieces[part].removeprefix(SPACE)), end - 1))
                offsets.append((start, middle))
                start = middle
            alone = max(start, offsets[-1][1] if offsets else 0)
            offsets.append((start, alone if self.pieces[id] == SPACE else end))
        return ids, offsets

    @cached_property
    def _borders(self) -> WordBorders:
        ordinary = np.array([id not in self._names for id in range(self.size)])
        into = np.array([in_word(piece[0]) for piece in self.pieces])
        out = np.array([in_word(piece[-1]) for piece in self.pieces])
        space = np.array([piece == SPACE for piece in self.pieces])
        behind = np.array([piece[0] != SPACE for piece in self.pieces])
        return WordBorders(into & ordinary, out & ordinary, space & ordinary, behind & ordinary)

    def _spelled(self, piece: str) -> str:
        return piece.replace(SPACE, " ")

    def with_specials(self, names: Sequence[str]) -> Unigram:
        pieces, specials = special_pieces(self.pieces, self.specials, names)
        scores = [*self.scores, *(0.0 for _ in range(len(pieces) - len(self.pieces)))]
        appended = len(pieces) - len(self.pieces) == len(specials) - len(self.specials)
        return Unigram(
            pieces, scores, specials, self.cleaning, self._names[self._unknown], self._engine if appended else None
        )

    def _data(self) -> UnigramForm:
        return {
            "lower": self.cleaning.lower,
            "strip_accents": self.cleaning.strip_accents,
            "charmap": base64.b64encode(self.cleaning.charmap).decode("ascii"),
            "pieces": list(self.pieces),
            "scores": list(self.scores),
            "unknown": self._names[self._unknown],
        }

    @classmethod
    def from_data(cls, data: Fields, where: str) -> Unigram:
        pieces, specials = checked_pieces(data, where)
        scores = data.get("scores")
        if not isinstance(scores, list) or len(scores) != len(pieces) or not all(map(_score, scores)):
            raise UserError(f"{where}: field 'scores' must be a list with one number for each piece")
        unknown = data.get("unknown")
        if not isinstance(unknown, str) or unknown not in specials:
            raise UserError(f"{where}: field 'unknown' must name one of the special tokens")
        try:
            charmap = base64.b64decode(cast(str, data["charmap"]), validate=True)  # refuses what is not a text
            check_charmap(charmap)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: field 'charmap' is damaged ({error})") from None
        lower, strip = checked_flag(data, "lower", where), checked_flag(data, "strip_accents", where)
        return cls(pieces, scores, specials, Cleaning(lower, strip, charmap), unknown)

    @classmethod
    def from_published(cls, model: SentencePieceModel, lower: bool | None, where: str) -> Unigram:
        """The model in a published `.model` file. `lower` None: lower-cased if lower-casing changes no piece, which is
        right for ALBERT (lower-cased) and XLNet (cased); both strip accents."""
        specials = {
            piece: id
            for id, (piece, kind) in enumerate(zip(model.pieces, model.types))
            if kind != NORMAL and (kind != USER_DEFINED or in_brackets(piece))
        }
        unknown = model.pieces[model.types.index(UNKNOWN_TYPE)]
        refuse_if(
            len(specials) == len(model.pieces),
            f"{where}: none of its pieces can occur in a text; get the published file again",
        )
        chosen = written_lower(piece for piece in model.pieces if piece not in specials) if lower is None else lower
        return cls(model.pieces, model.scores, specials, Cleaning(chosen, True, model.charmap), unknown)


def unigram_from_pieces(
    pieces: Sequence[tuple[str, float]], cleaning: Cleaning, specials: Sequence[str] = SPECIALS
) -> Unigram:
    """A newly trained tokenizer: the special tokens, then the pieces."""
    texts = [*specials, *(piece for piece, _ in pieces)]
    scores = [*(0.0 for _ in specials), *(score for _, score in pieces)]
    assert len(set(texts)) == len(texts)
    return Unigram(texts, scores, {name: id for id, name in enumerate(specials)}, cleaning)


def _score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e9 < value < 1e9
