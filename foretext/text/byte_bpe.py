"""Byte-level BPE (GPT-2): every text has ids, and the ids give exactly that text back.

Encoding is done by tiktoken, which ranks a pair by the id of what it makes. That equals applying the merges in their
order if ids rise in that order: when the k-th product is about to be made, a stretch of text that spells it, with piece
borders at both ends, has been through the first k-1 merges on its own and so is always cut in the one way that the
k-th merge has. So tiktoken works with ranks by merge order, two merges with one product are refused, and where ids are
not ranks (special tokens that come first, as in vocabularies others trained) each rank is replaced by its id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tiktoken

from foretext.errors import UserError
from foretext.text.tokenizer import (
    END,
    FORMAT,
    append_specials,
    canonical_json,
    checked_names,
    checked_pairs,
    encodable,
    fingerprint_of,
)

# GPT-2's published pattern, with possessive quantifiers where nothing can be given back: the same pieces, faster.
PATTERNS = {"gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""}

# A run of white space before a word is matched with backtracking, whose stack ends at about a million characters.
# Longer runs are cut where the pattern cuts them anyway: before their last character.
_LONG_RUN = 50_000
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # White_Space, as in the pattern
_LONG_SPACE = re.compile(f"[{_SPACE}]{{{_LONG_RUN},}}")
_NO_SPECIAL = "\x00\x01foretext: never matched\x01\x00"  # tiktoken is slower with no special token than with one


def _printable_bytes() -> dict[int, str]:
    """GPT-2's way to write bytes as visible characters, which its published files use and ours keep."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {byte: chr(byte) for byte in visible}
    hidden = [byte for byte in range(256) if byte not in table]
    return table | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


BYTE_TO_CHAR = _printable_bytes()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


def _to_bytes(written: str) -> bytes:
    return bytes(CHAR_TO_BYTE[char] for char in written)


class ByteBPE:
    """`alphabet` gives the 256 bytes in the order of their ranks; merges follow. `places`: the id of each of these
    pieces; None: its rank, and the specials come after them."""

    kind = "byte-bpe"
    lossless = True
    unknown: int | None = None

    def __init__(
        self,
        alphabet: bytes,
        merges: Sequence[tuple[str, str]],
        specials: dict[str, int],
        splitter: str = "gpt2",
        core: tiktoken.Encoding | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        assert sorted(alphabet) == list(range(256))
        self.alphabet = alphabet
        self.merges = merges
        self.specials = specials
        self.splitter = splitter
        self.places = places
        ranked = [bytes([byte]) for byte in alphabet] + [_to_bytes(left + right) for left, right in merges]
        ids = range(len(ranked)) if places is None else places
        assert sorted([*ids, *specials.values()]) == list(range(len(ranked) + len(specials)))
        self._places = None if places is None else np.array(places, dtype=np.uint32)
        self._bytes = [b""] * (len(ranked) + len(specials))  # by id; specials have none
        for id, piece in zip(ids, ranked):
            self._bytes[id] = piece
        self._core = core or tiktoken.Encoding(
            "foretext",
            pat_str=PATTERNS[splitter],
            mergeable_ranks={piece: rank for rank, piece in enumerate(ranked)},
            special_tokens={_NO_SPECIAL: len(ranked)},
        )
        self._names = {id: name for name, id in specials.items()}

    @property
    def size(self) -> int:
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        return self.encode_array(text).tolist()

    def encode_array(self, text: str) -> np.ndarray:
        if len(text) > _LONG_RUN and _LONG_SPACE.search(text):
            return np.concatenate([self._encode(part) for part in _cut_long_space(text)])
        return self._encode(text)

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [self.encode_array(text) for text in texts]

    def _encode(self, text: str) -> np.ndarray:
        try:
            ranks = self._core.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError:
            ranks = self._core.encode_to_numpy(encodable(text), disallowed_special=())
        return ranks if self._places is None else self._places[ranks]

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join([self._bytes[id] for id in ids]).decode("utf-8", errors="replace")

    def piece(self, id: int) -> str:
        return self._names.get(id) or self._bytes[id].decode("utf-8", errors="backslashreplace")

    def piece_bytes(self, id: int) -> bytes:
        return self._bytes[id]

    def ends_word(self, id: int) -> bool:
        return False  # spaces are part of the text, and of the pieces

    def written(self) -> dict[str, int]:
        """The pieces as GPT-2's files write them, with their ids; without specials."""
        ranked = [BYTE_TO_CHAR[byte] for byte in self.alphabet] + [left + right for left, right in self.merges]
        return dict(zip(ranked, range(len(ranked)) if self.places is None else self.places))

    def with_specials(self, names: Sequence[str]) -> ByteBPE:
        specials = append_specials(self.specials, names, self.size)
        return ByteBPE(self.alphabet, self.merges, specials, self.splitter, self._core, self.places)

    def to_json(self) -> str:
        data = {
            "format": FORMAT,
            "kind": self.kind,
            "splitter": {"name": self.splitter},
            "alphabet": "".join(BYTE_TO_CHAR[byte] for byte in self.alphabet),
            "merges": [f"{left} {right}" for left, right in self.merges],
            "specials": sorted(self.specials, key=self.specials.__getitem__),
        }
        return canonical_json(data if self.places is None else data | {"places": list(self.places)})

    def fingerprint(self) -> str:
        return fingerprint_of(self.to_json())

    @classmethod
    def from_data(cls, data: dict[str, Any], where: str) -> ByteBPE:
        splitter = data.get("splitter")
        name = splitter.get("name") if isinstance(splitter, dict) else None
        if not isinstance(name, str) or name not in PATTERNS:
            raise UserError(f"{where}: splitter {name!r} is not known for byte-bpe; update foretext")
        written = data.get("alphabet")
        if not isinstance(written, str) or len(written) != 256 or set(written) != set(CHAR_TO_BYTE):
            raise UserError(f"{where}: field 'alphabet' must hold each of the 256 bytes once")
        merges = checked_pairs(data, where)
        _check_merges(merges, where)
        names = checked_names(data, where)
        count = 256 + len(merges)
        places = _checked_places(data, count, count + len(names), where)
        free = sorted(set(range(count + len(names))).difference(range(count) if places is None else places))
        return cls(_to_bytes(written), merges, dict(zip(names, free)), name, places=places)

    @classmethod
    def from_published(cls, ids: dict[str, int], merges: Sequence[tuple[str, str]], where: str) -> ByteBPE:
        """Pieces with their ids, which are 0, 1, 2 …, each once. What no merge makes is a special."""
        _check_merges(merges, where)
        in_order = sorted(ids, key=ids.__getitem__)
        alphabet = in_order[:256] if set(in_order[:256]) == set(CHAR_TO_BYTE) else sorted(CHAR_TO_BYTE)
        ranked = [*alphabet, *(left + right for left, right in merges)]
        if not ids.keys() >= set(ranked):
            raise UserError(
                f"{where}: pieces and merges do not belong together (each of the 256 bytes and what each merge makes "
                "must be a piece); get the files again"
            )
        places, made = [ids[piece] for piece in ranked], set(ranked)
        specials = {name: ids[name] for name in in_order if name not in made}
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
            raise UserError(f"{where}: merge {number} ({left} {right}) does not make a new piece out of earlier ones")
        known.add(left + right)


def _checked_places(data: dict[str, Any], count: int, size: int, where: str) -> list[int] | None:
    """The ids of the pieces of a tokenizer file, if they are not simply 0, 1, 2 …"""
    places = data.get("places")
    if places is None:
        return None
    whole = isinstance(places, list) and all(isinstance(id, int) and not isinstance(id, bool) for id in places)
    if not whole or len(places) != count or len(set(places)) != count or not 0 <= min(places) <= max(places) < size:
        raise UserError(f"{where}: field 'places' must hold a different id below {size} for each of {count} pieces")
    return list(places)


def _cut_long_space(text: str) -> list[str]:
    parts, start = [], 0
    for run in _LONG_SPACE.finditer(text):
        if run.end() < len(text):
            parts += [text[start : run.start()], text[run.start() : run.end() - 1]]
            start = run.end() - 1
    return [*parts, text[start:]]
