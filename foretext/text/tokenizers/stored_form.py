"""The fields of `tokenizer.json`: those that each kind of tokenizer writes, and the checks when a file is read.

Every file also has `format`, `kind` and `specials`, the special tokens in the order of their ids. What is written has
the types below. What is read may be anything (`Fields`), so each field is checked, and a message names the file and the
field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from foretext.errors import UserError, refuse_if

Fields = Mapping[str, object]  # of a file, before its checks


class SplitterForm(TypedDict):
    """How a text is split into words before merging."""

    name: str
    spacy: NotRequired[str]  # the version, if spaCy's rules split


class ByteBPEForm(TypedDict):
    splitter: SplitterForm
    alphabet: str  # the 256 bytes as visible characters, in the order of their ranks
    merges: list[str]  # each two pieces with a space between them
    places: NotRequired[list[int]]  # the ids of the bytes and products, if they are not their ranks


class CharBPEForm(TypedDict):
    splitter: SplitterForm
    pieces: list[str]
    merges: list[str]


class WordPieceForm(TypedDict):
    lower: bool
    pieces: list[str]


class UnigramForm(TypedDict):
    lower: bool
    strip_accents: bool
    charmap: str  # SentencePiece's replacements, in base64
    pieces: list[str]
    scores: list[float]
    unknown: str  # the special token for unknown text


class WordsForm(TypedDict):
    lower: bool
    pieces: list[str]
    split: str


class WordListForm(TypedDict):
    pieces: list[str]
    targets: list[str] | None  # the words of the other language; None: there is none


def checked_names(data: Fields, where: str) -> list[str]:
    """The list of special tokens in a tokenizer file."""
    names = data.get("specials")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise UserError(f"{where}: field 'specials' must be a list of different names")
    return names


def checked_pieces(data: Fields, where: str, needed: Sequence[str] = ()) -> tuple[list[str], dict[str, int]]:
    """The pieces of a tokenizer file, which must include the special tokens and those `needed`; and the special tokens
    as name → id."""
    pieces = data.get("pieces")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece for piece in pieces):
        raise UserError(f"{where}: field 'pieces' must be a list of texts, none of them empty")
    ids: dict[str, int] = {piece: id for id, piece in enumerate(pieces)}
    refuse_if(len(ids) != len(pieces), f"{where}: field 'pieces' contains a piece twice")
    names = checked_names(data, where)
    other = next((name for name in names if name not in ids), None)
    refuse_if(other is not None, f"{where}: field 'specials' contains {other!r}, which is not among the pieces")
    missing = [name for name in needed if name not in names]
    refuse_if(missing, f"{where}: field 'specials' does not name {', '.join(missing)}")
    return pieces, {name: ids[name] for name in names}


def checked_flag(data: Fields, name: str, where: str) -> bool:
    value = data.get(name)
    if not isinstance(value, bool):
        raise UserError(f"{where}: field '{name}' must be true or false")
    return value


def checked_pairs(data: Fields, where: str) -> list[tuple[str, str]]:
    """The merges of a tokenizer file."""
    merges = data.get("merges")
    if not isinstance(merges, list) or not all(isinstance(m, str) and m.count(" ") == 1 for m in merges):
        raise UserError(f"{where}: field 'merges' must be a list of texts with two pieces each")
    return [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
