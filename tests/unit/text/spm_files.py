"""SentencePiece model files, written by hand: so many fields, each a number, a length and bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

Piece = tuple[str, float, int]

ALBERT_LIKE: list[Piece] = [
    ("<pad>", 0.0, 3),
    ("<unk>", 0.0, 2),
    ("[CLS]", 0.0, 3),
    ("[SEP]", 0.0, 3),
    ("[MASK]", 0.0, 3),
    ("(", 0.0, 4),
    ("<eop>", 0.0, 4),
    ("▁", -3.0, 1),
    ("▁the", -2.0, 1),
    ("▁cat", -4.0, 1),
    ("s", -3.5, 1),
    (",", -3.5, 1),
    ("▁2010", -9.0, 1),
    ("▁2010,", -6.0, 1),
    ("1", -8.0, 1),
    ("1,", -5.0, 1),
    ("q", -9.0, 1),
    ("cls", -9.0, 1),
    ("[", -9.0, 1),
    ("]", -9.0, 1),
    ("的", -7.0, 1),
]


def varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def piece(text: str, score: float, kind: int) -> bytes:
    fields = message(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)
    return message(1, fields if kind == 1 else fields + number(3, kind))


def model(
    pieces: Sequence[Piece] = ALBERT_LIKE, charmap: bytes = b"", trainer: bytes = b"", normalizer: bytes = b""
) -> bytes:
    """A whole file. `trainer`, `normalizer`: further fields of the settings."""
    settings = message(2, number(3, 1) + number(4, len(pieces)) + number(41, (1 << 64) - 1) + trainer)
    replaced = message(3, message(1, b"nmt_nfkc") + message(2, charmap) + number(3, 1) + normalizer)
    return b"".join(piece(*one) for one in pieces) + settings + replaced


def charmap(place: int = 0x50, value: int = 0, texts: bytes = b"q\0") -> bytes:
    """A table that replaces Q by q: the root leads to `place`, and from there to the place of the text."""
    units = [0] * 256
    units[0] = 1 << 10
    units[0x50] = 0x51 | 1 << 8 | (place ^ 0x60) << 10
    units[0x60] = 1 << 31 | value
    return struct.pack("<I256I", 1024, *units) + texts
