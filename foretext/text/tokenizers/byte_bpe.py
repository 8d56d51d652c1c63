"""Byte-level BPE (GPT-2, RoBERTa): every text has ids, and the ids decode to exactly that text.

tiktoken does the encoding. It ranks a pair by the rank of its product, which equals applying the merges in order if
ranks increase in that order: when the k-th product is about to be made, any stretch of text that spells it, with piece
borders at both ends, has been through the first k-1 merges by itself, so it is always split as the k-th merge needs it.
The constructor therefore assigns ranks by merge order, and refuses two merges with the same product.

A piece's id is its rank, unless `places` says otherwise: RoBERTa has GPT-2's merges, with ids by frequency in its
training text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import count as count_up

import numpy as np
import tiktoken

from foretext.errors import UserError, refuse_if
from foretext.text.tokenizers.base import (
    END,
    ByteBPEForm,
    Fields,
    Offsets,
    Tokenizer,
    WordBorders,
    append_specials,
    checked_names,
    checked_pairs,
    encodable,
    in_original,
    in_word,
)

# RoBERTa's own special tokens, for a trained vocabulary: `with_specials(ROBERTA_SPECIALS)`.
ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

# GPT-2's published pattern, with possessive quantifiers where backtracking cannot change the match: same pieces, but
# faster.
PATTERNS = {"gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""}

# Runs of white space before a word are matched with backtracking, whose stack overflows at about a million characters.
# Longer runs are cut where the pattern cuts them anyway: before their last character.
_LONG_RUN = 50_000
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # Unicode White_Space, as in the pattern
_LONG_SPACE = re.compile(f"[{_SPACE}]{{{_LONG_RUN},}}")
_NO_SPECIAL = "\x00\x01foretext: never matched\x01\x00"  # tiktoken is slower with no special token than with one


def _printable_bytes() -> dict[int, str]:
    """GPT-2's way to write bytes as visible characters, used in its published files and in ours."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {byte: chr(byte) for byte in visible}
    return table | {byte: chr(256 + i) for i, byte in enumerate(sorted(set(range(256)) - set(visible)))}


BYTE_TO_CHAR = _printable_bytes()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


def _to_bytes(written: str) -> bytes:
    return bytes(CHAR_TO_BYTE[char] for char in written)


class ByteBPE(Tokenizer):
    """`alphabet`: the 256 bytes in the order of their ranks; the merges follow. `places`: the id of each of these
    pieces; None: its rank, with the special tokens after them."""

    kind = "byte-bpe"
    lossless = True
    ends = ("</s>", END)

    def __init__(
        self,
        alphabet: bytes,
        merges: Sequence[tuple[str, str]],
        specials: dict[str, int],
        splitter: str = "gpt2",
        core: tiktoken.Encoding | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        super().__init__((), specials, unknown=None)
        assert sorted(alphabet) == list(range(256))
        self.alphabet = alphabet
        self.merges = merges
        self.splitter = splitter
        self.places = places
        ranked = [bytes([byte]) for byte in alphabet] + [_to_bytes(left + right) for left, right in merges]
        ids = range(len(ranked)) if places is None else places
        assert sorted([*ids, *specials.values()]) == list(range(len(ranked) + len(specials)))
        self._places = None if places is None else np.array(places, dtype=np.uint32)
        self._bytes = [b""] * (len(ranked) + len(specials))  # by id; empty for special tokens
        for id, piece in zip(ids, ranked):
            self._bytes[id] = piece
        self._core = core or tiktoken.Encoding(
            "foretext",
            pat_str=PATTERNS[splitter],
            mergeable_ranks={piece: rank for rank, piece in enumerate(ranked)},
            special_tokens={_NO_SPECIAL: len(ranked)},
        )

    @property
    def size(self) -> int:
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        return self.encode_array(text).tolist()

    def encode_array(self, text: str) -> np.ndarray:
        if len(text) > _LONG_RUN and _LONG_SPACE.search(text):
            return np.concatenate([self._encode(part) for part in _cut_long_space(text)])
        return self._encode(text)

    def _encode(self, text: str) -> np.ndarray:
        try:
            ranks = self._core.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError:
            ranks = self._core.encode_to_numpy(encodable(text), disallowed_special=())
        return ranks if self._places is None else self._places[ranks]

    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        clean = encodable(text)
        ids = self.encode_array(clean)
        data = np.frombuffer(clean.encode("utf-8"), dtype=np.uint8)
        character = np.cumsum((data & 0xC0) != 0x80) - 1  # the character that each byte belongs to
        lengths = self._lengths[ids]
        ends = np.cumsum(lengths)
        starts, lasts = character[ends - lengths], character[ends - 1] + 1
        return ids.tolist(), in_original(list(zip(starts.tolist(), lasts.tolist())), text, clean)

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.array([len(piece) for piece in self._bytes], dtype=np.int64)

    @cached_property
    def _borders(self) -> WordBorders:
        """A piece continues a word if letters, digits or the bytes of one character meet at its beginning."""
        into, out = zip(*map(_borders_of, self._bytes))
        space = np.array([piece == b" " for piece in self._bytes])
        behind = np.array([piece.strip() != b"" and piece[:1] != b" " for piece in self._bytes])
        return WordBorders(np.array(into), np.array(out), space, behind)

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join([self._bytes[id] for id in ids]).decode("utf-8", errors="replace")

    def piece(self, id: int) -> str:
        return self._names.get(id) or self._bytes[id].decode("utf-8", errors="backslashreplace")

    def piece_bytes(self, id: int) -> bytes:
        return self._bytes[id]

    def written(self) -> dict[str, int]:
        """The pieces as written in GPT-2's files, with their ids; without special tokens."""
        ranked = [BYTE_TO_CHAR[byte] for byte in self.alphabet] + [left + right for left, right in self.merges]
        return dict(zip(ranked, range(len(ranked)) if self.places is None else self.places))

    def with_specials(self, names: Sequence[str]) -> ByteBPE:
        specials = append_specials(self.specials, names, self.size)
        return ByteBPE(self.alphabet, self.merges, specials, self.splitter, self._core, self.places)

    def _data(self) -> ByteBPEForm:
        data: ByteBPEForm = {
            "splitter": {"name": self.splitter},
            "alphabet": "".join(BYTE_TO_CHAR[byte] for byte in self.alphabet),
            "merges": [f"{left} {right}" for left, right in self.merges],
        }
        if self.places is not None:
            data["places"] = list(self.places)
        return data

    @classmethod
    def from_data(cls, data: Fields, where: str) -> ByteBPE:
        splitter = data.get("splitter")
        name = splitter.get("name") if isinstance(splitter, dict) else None
        if not isinstance(name, str) or name not in PATTERNS:
            raise UserError(f"{where}: unknown splitter {name!r} for byte-bpe; update foretext")
        written = data.get("alphabet")
        if not isinstance(written, str) or len(written) != 256 or set(written) != set(CHAR_TO_BYTE):
            raise UserError(f"{where}: field 'alphabet' must contain each of the 256 bytes once")
        merges = checked_pairs(data, where)
        _check_merges(merges, where)
        names = checked_names(data, where)
        count = 256 + len(merges)
        places = _checked_places(data, count, count + len(names), where)
        free = sorted(set(range(count + len(names))).difference(range(count) if places is None else places))
        return cls(_to_bytes(written), merges, dict(zip(names, free)), name, places=places)

    @classmethod
    def from_published(cls, ids: dict[str, int], merges: Sequence[tuple[str, str]], where: str) -> ByteBPE:
        """Pieces with their ids. Ids that are left out become special tokens that no text contains."""
        _check_merges(merges, where)
        in_order = sorted(ids, key=ids.__getitem__)
        alphabet = in_order[:256] if set(in_order[:256]) == set(CHAR_TO_BYTE) else sorted(CHAR_TO_BYTE)
        ranked = [*alphabet, *(left + right for left, right in merges)]
        refuse_if(
            not ids.keys() >= set(ranked),
            f"{where}: pieces and merges do not match (each of the 256 bytes and the product of each merge must be a "
            "piece); get the files again",
        )
        places = [ids[piece] for piece in ranked]
        names = {id: name for name, id in ids.items()}
        for place in places:
            del names[place]
        left_out = sorted(set(range(max(ids.values()) + 1)).difference(ids.values()))
        spare = (name for number in count_up() if (name := f"madeupword{number:04}") not in ids)  # RoBERTa's fillers
        specials = {name: id for id, name in sorted((names | dict(zip(left_out, spare))).items())}
        ordinary = places == list(range(len(ranked)))
        return cls(_to_bytes("".join(alphabet)), merges, specials, places=None if ordinary else places)


def byte_bpe_from_merges(merges: Sequence[tuple[str, str]]) -> ByteBPE:
    """A newly trained tokenizer: bytes by value, then the merges in order, then END."""
    _check_merges(merges, "trained merges")
    return ByteBPE(bytes(range(256)), merges, {END: 256 + len(merges)})


def _check_merges(merges: Sequence[tuple[str, str]], where: str) -> None:
    known = set(CHAR_TO_BYTE)
    for number, (left, right) in enumerate(merges, start=1):
        if left not in known or right not in known or left + right in known:
            raise UserError(f"{where}: merge {number} ({left} {right}) does not join two earlier pieces into a new one")
        known.add(left + right)


def _checked_places(data: Fields, count: int, size: int, where: str) -> list[int] | None:
    """The ids of the pieces of a tokenizer file, if they are not simply 0, 1, 2 …"""
    places = data.get("places")
    if places is None:
        return None
    if (
        not isinstance(places, list)
        or not all(isinstance(id, int) and not isinstance(id, bool) for id in places)
        or not len(places) == len(set(places)) == count
        or not 0 <= min(places) <= max(places) < size
    ):
        raise UserError(f"{where}: field 'places' must have {count} different ids below {size}, one per piece")
    return list(places)


def _borders_of(piece: bytes) -> tuple[bool, bool]:
    """Whether a word can continue into a piece, and out of it.

    A piece that begins or ends within a character continues there. If only the first bytes of a character are known, it
    is assumed to be a letter below U+2000, and otherwise a symbol or a word of its own.
    """
    whole = piece.lstrip(_LATER_BYTES)
    text = whole.decode("utf-8", errors="ignore")
    cut = text.encode("utf-8") != whole
    into = len(whole) < len(piece) or (in_word(text[0]) if text else cut and whole[0] < 0xE2)
    return into, cut or (in_word(text[-1]) if text else piece != b"")


_LATER_BYTES = bytes(range(0x80, 0xC0))  # the bytes of a UTF-8 character after its first


def _cut_long_space(text: str) -> list[str]:
    parts, start = [], 0
    for run in _LONG_SPACE.finditer(text):
        if run.end() < len(text):
            parts += [text[start : run.start()], text[run.start() : run.end() - 1]]
            start = run.end() - 1
    return [*parts, text[start:]]
