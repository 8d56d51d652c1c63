"""GPT's character BPE: clean, standardise, split the *cased* text into words, lower-case, merge characters.

A word's last character carries `</w>`. A character outside the vocabulary is `<unk>`, and case and spacing are lost, so
this tokenizer is not `lossless`: do not compare its perplexities with those of a reversible one. The `tokenizers`
library merges one word at a time, behind a cache, since most words occur again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import tokenizers

from foretext.errors import UserError, refuse_if
from foretext.text.tokenizers.base import (
    END,
    CharBPEForm,
    Fields,
    Offsets,
    SplitterForm,
    Tokenizer,
    WordBorders,
    append_specials,
    checked_names,
    checked_pairs,
)
from foretext.text.tokenizers.splitters import make_splitter, standardise, words_with_spans

WORD_END = "</w>"
UNKNOWN = "<unk>"
NEWLINE = "\n" + WORD_END
_CACHE_WORDS = 200_000
_CACHE_LENGTH = 64  # longer words rarely occur twice


class CharBPE(Tokenizer):
    """`pieces` in the order of their ids, including `<unk>` and the line break; special tokens follow."""

    kind = "char-bpe"

    def __init__(
        self,
        pieces: Sequence[str],
        merges: Sequence[tuple[str, str]],
        specials: dict[str, int],
        splitter: str,
        *,
        version: str | None = None,
        where: str = "tokenizer",
    ) -> None:
        ids = {piece: id for id, piece in enumerate(pieces)}
        super().__init__(pieces, specials, ids[UNKNOWN])
        self.merges = merges
        self.splitter = splitter
        self._split, self.splitter_version = make_splitter(splitter, version, where)
        self._newline = [ids[NEWLINE]]
        self._model = tokenizers.models.BPE(
            vocab=ids, merges=list(merges), unk_token=UNKNOWN, end_of_word_suffix=WORD_END, fuse_unk=False
        )
        self._cache: dict[str, list[int]] = {}
        assert sorted(self._names) == list(range(len(pieces), self.size))

    @property
    def size(self) -> int:
        return len(self.pieces) + len(self.specials)

    def words(self, text: str) -> list[str]:
        """The lower-cased words that are merged one by one; a line break is a word."""
        return [word.lower() for word in self._split(standardise(text))]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        cache = self._cache
        for word in self.words(text):
            known = cache.get(word)
            ids.extend(self._encode_word(word) if known is None else known)
        return ids

    def _encode_word(self, word: str) -> list[int]:
        # The original sees "\n " here, since spaCy keeps the space after a line break in the token.
        ids = self._newline if word.strip(" ") == "\n" else [token.id for token in self._model.tokenize(word)]
        if len(word) <= _CACHE_LENGTH:
            if len(self._cache) >= _CACHE_WORDS:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        """Offsets are exact unless ftfy repairs the text. A repaired stretch is aligned by character if its length is
        unchanged, otherwise by word, and then pieces may share their characters."""
        ids: list[int] = []
        offsets: Offsets = []
        for word, spans in words_with_spans(text, self._split):
            lowered = word.lower()
            known = self._cache.get(lowered)
            word_ids = self._encode_word(lowered) if known is None else known
            ids += word_ids
            if word.isspace():
                offsets += [spans[0]] * len(word_ids)
                continue
            letters = [span for letter, span in zip(word, spans) for _ in letter.lower()]
            place = 0
            for id in word_ids:
                length = 1 if id == self.unknown else len(self.pieces[id].removesuffix(WORD_END))
                offsets.append((letters[place][0], letters[place + length - 1][1]))
                place += length
        return ids, offsets

    @cached_property
    def _borders(self) -> WordBorders:
        """A word begins after `</w>`, and after an unknown character, which may have ended one."""
        ordinary = np.array([id not in self._names for id in range(self.size)])
        ends = [self.ends_word(id) or id == self.unknown for id in range(self.size)]
        no_space = np.zeros(self.size, dtype=bool)
        return WordBorders(ordinary, ordinary & ~np.array(ends), no_space, no_space)

    def piece(self, id: int) -> str:
        return self._names.get(id) or self.pieces[id]

    def ends_word(self, id: int) -> bool:
        return id not in self._names and self.pieces[id].endswith(WORD_END)

    def _spelled(self, piece: str) -> str:
        return piece.removesuffix(WORD_END) + " " if piece.endswith(WORD_END) else piece

    def with_specials(self, names: Sequence[str]) -> CharBPE:
        specials = append_specials(self.specials, names, self.size)
        return CharBPE(self.pieces, self.merges, specials, self.splitter, version=self.splitter_version)

    def _data(self) -> CharBPEForm:
        splitter: SplitterForm = {"name": self.splitter}
        if self.splitter_version:
            splitter["spacy"] = self.splitter_version
        merges = [f"{left} {right}" for left, right in self.merges]
        return {"splitter": splitter, "pieces": list(self.pieces), "merges": merges}

    @classmethod
    def from_data(cls, data: Fields, where: str) -> CharBPE:
        pieces = data.get("pieces")
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            raise UserError(f"{where}: field 'pieces' must be a list of texts")
        merges = checked_pairs(data, where)
        _check_pieces(pieces, merges, where)
        splitter = data.get("splitter")
        if not isinstance(splitter, dict) or not isinstance(splitter.get("name"), str):
            raise UserError(f"{where}: field 'splitter' must name the word splitter")
        specials = {name: len(pieces) + number for number, name in enumerate(checked_names(data, where))}
        return cls(pieces, merges, specials, splitter["name"], version=splitter.get("spacy"), where=where)

    @classmethod
    def from_published(
        cls, ids: dict[str, int], merges: Sequence[tuple[str, str]], splitter: str, where: str
    ) -> CharBPE:
        pieces = sorted(ids, key=ids.__getitem__)
        _check_pieces(pieces, merges, where)
        merged = {left + right for left, right in merges}
        plain = len(pieces)
        while not _is_symbol(pieces[plain - 1]) and pieces[plain - 1] not in merged:
            plain -= 1
        specials = {name: plain + number for number, name in enumerate(pieces[plain:])}
        return cls(pieces[:plain], merges, specials, splitter, where=where)


def char_bpe_from_merges(symbols: Sequence[str], merges: Sequence[tuple[str, str]], splitter: str) -> CharBPE:
    """A newly trained tokenizer in the published layout: `<unk>`, symbols, merges, the line break; then END."""
    pieces = [UNKNOWN, *symbols, *(left + right for left, right in merges), NEWLINE]
    _check_pieces(pieces, merges, "trained merges")
    return CharBPE(pieces, merges, {END: len(pieces)}, splitter)


def _is_symbol(piece: str) -> bool:
    """Whether a text can produce the piece without a merge. Names after the last such piece or merge are special
    tokens."""
    return piece == UNKNOWN or len(piece.removesuffix(WORD_END)) == 1


def _check_pieces(pieces: Sequence[str], merges: Sequence[tuple[str, str]], where: str) -> None:
    known = set(pieces)
    refuse_if(
        len(known) != len(pieces) or UNKNOWN not in known or NEWLINE not in known,
        f"{where}: the pieces must all differ and include {UNKNOWN} and the line break with {WORD_END}",
    )
    for number, (left, right) in enumerate(merges, start=1):
        if left not in known or right not in known or left + right not in known:
            raise UserError(f"{where}: merge {number} ({left} {right}) uses a piece that is not in the vocabulary")
