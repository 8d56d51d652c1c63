"""Reads published vocabularies from their own files.

SentencePiece's `.model` files are protocol buffers, parsed here field by field, within bounds, and nothing else.

Only the pieces with their scores and types, the table of character replacements, and the switches that affect ids
matter. A file that is damaged, cut short, too large, or needs an unsupported feature is refused in one line. The table
is passed to a library that walks it without checks, so every path through it is checked first.
"""

import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretext.errors import UserError, refuse_if
from foretext.text.tokenizers.base import Tokenizer


def tokenizer_from_published(source: str | Path, *, splitter: str = "spacy", lower: bool | None = None) -> Tokenizer:
    """A published vocabulary: its folder, or the file itself.

    GPT: `encoder_bpe_40000.json` beside `vocab_40000.bpe`; GPT-2: `encoder.json` beside `vocab.bpe`; RoBERTa:
    `…vocab.json` beside `vocab.bpe` or `merges.txt`; BERT: `…vocab.txt`; ALBERT and XLNet: `….model`.

    GPT's ids match the published ones only with spaCy's rules; `splitter="rules"` is an approximation. GPT's vocabulary
    has no special tokens: add them with `with_specials`. `lower` says whether BERT's, ALBERT's and XLNet's texts are
    lower-cased; None: yes if lower-casing changes no piece.
    """
    path = _published_file(Path(source))
    if path.suffix == ".json":
        return _of_merges(path, splitter)
    if path.suffix == ".txt":
        from foretext.text.tokenizers.wordpiece import WordPiece

        return WordPiece.from_published(read_pieces(path), lower, str(path))
    from foretext.text.tokenizers.unigram import Unigram

    return Unigram.from_published(read_sentencepiece(path), lower, str(path))


def _published_file(source: Path) -> Path:
    """The one file that a published vocabulary is read from; files beside it are found from there."""
    if source.suffix == ".bpe" and source.is_file():
        source = source.parent
    if source.suffix in (".json", ".txt", ".model") and source.is_file():
        return source
    for name, merges in _MERGES_BESIDE.items():
        if (source / name).is_file() and (source / merges).is_file():
            return source / name
    candidates = [path for path in sorted(source.glob("*vocab.json")) if _merges_beside(path) is not None]
    candidates += [*sorted(source.glob("*vocab.txt")), *sorted(source.glob("*.model"))]
    if len(candidates) > 1:
        names = ", ".join(path.name for path in candidates)
        raise UserError(f"{source}: several published vocabularies in this folder; name one of the files: {names}")
    refuse_if(
        not candidates,
        f"{source}: no published vocabulary in it; it needs encoder_bpe_40000.json and vocab_40000.bpe (GPT), "
        "encoder.json and vocab.bpe (GPT-2), vocab.json and vocab.bpe or merges.txt (RoBERTa), vocab.txt (BERT) or "
        "spiece.model (ALBERT, XLNet)",
    )
    return candidates[0]


_MERGES_BESIDE = {"encoder_bpe_40000.json": "vocab_40000.bpe", "encoder.json": "vocab.bpe"}


def _merges_beside(path: Path) -> Path | None:
    """The merges that belong to a JSON file of pieces."""
    names = [_MERGES_BESIDE[path.name]] if path.name in _MERGES_BESIDE else ["vocab.bpe", "merges.txt"]
    return next((path.with_name(name) for name in names if path.with_name(name).is_file()), None)


def _of_merges(path: Path, splitter: str) -> Tokenizer:
    merges = _merges_beside(path)
    if merges is None:
        raise UserError(f"{path}: its merges are missing; put vocab.bpe or merges.txt beside it")
    from foretext.text.tokenizers.byte_bpe import ByteBPE
    from foretext.text.tokenizers.char_bpe import WORD_END, CharBPE

    pairs = read_merges(merges)
    ids = read_vocabulary(path, gaps=MOST_GAPS)
    if any(piece.endswith(WORD_END) for piece in ids):
        return CharBPE.from_published(read_vocabulary(path), pairs, splitter, str(path.parent))
    return ByteBPE.from_published(ids, pairs, str(path.parent))


MOST_GAPS = 64  # ids that a published file may leave out; RoBERTa's leaves out three fillers before its `<mask>`


def read_vocabulary(path: Path, gaps: int = 0) -> dict[str, int]:
    """A JSON file of pieces and their ids, as published for GPT and GPT-2; at most `gaps` ids are missing."""
    ids = _read(path, "a vocabulary", json.loads)
    refuse_if(
        not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()),
        f"{path}: must contain pieces and their ids; get the published file again",
    )
    refuse_if(
        not numbered(list(ids.values()), gaps),
        f"{path}: ids are not 0 … {len(ids) - 1}, each once; get the published file again",
    )
    return ids


def numbered(ids: list[Any], gaps: int) -> bool:
    """Whether these are integers from 0 on, without repeats and with at most `gaps` missing."""
    whole = all(isinstance(id, int) and not isinstance(id, bool) and id >= 0 for id in ids)
    return whole and len(set(ids)) == len(ids) and max(ids, default=-1) < len(ids) + gaps


def read_merges(path: Path) -> list[tuple[str, str]]:
    """A file with one merge per line, optionally after a version line."""
    pairs = []
    for number, line in enumerate(_read(path, "merges", _lines)):
        if not line or (number == 0 and line.startswith("#version")):
            continue
        parts = line.split()
        if len(parts) != 2:
            raise UserError(f"{path} line {number + 1}: a merge has two pieces; get the published file again")
        pairs.append((parts[0], parts[1]))
    return pairs


def read_pieces(path: Path) -> list[str]:
    """A file with one piece per line, where the line number is the id, as published for BERT."""
    pieces = _read(path, "a vocabulary", _lines)
    return pieces[:-1] if pieces[-1] == "" else pieces


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")]


def _read(path: Path, what: str, taken_apart: Callable[[str], Any]) -> Any:
    try:
        return taken_apart(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: cannot be read as {what} ({error}); get the published file again") from None


# -- SentencePiece -----------------------------------------------------------------------------------------------------


NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces

MOST_BYTES = 16_000_000  # per file; the largest published ones have 5 million
MOST_PIECES = 1_000_000
MOST_CHARMAP = 8_000_000
_UNIGRAM = 1  # the model type
_BLOCK = 256  # units that lie together in the table's trie: one for each byte that can follow
_AT_ONCE = 4_096

# Field numbers of the messages, from sentencepiece_model.proto.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _SPACE_BEHIND, _BYTE_FALLBACK = 3, 24, 35
_CHARMAP, _SPACE_BEFORE, _ONE_SPACE, _SPACE_MARKED = 2, 3, 4, 5


class _Damaged(Exception):
    """The file is damaged; the message says how."""


class _Unsupported(Exception):
    """The file needs an unsupported feature; the message says which."""


@dataclass(frozen=True)
class SentencePieceModel:
    pieces: tuple[str, ...]
    scores: tuple[float, ...]  # log probabilities
    types: tuple[int, ...]
    charmap: bytes  # compiled character replacements; empty: none


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """The unigram model in the file at `path`."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    refuse_if(
        len(data) > MOST_BYTES,
        f"{path}: over {MOST_BYTES:,} bytes, too much for a SentencePiece model; get the file again",
    )
    try:
        return _model(data)
    except _Unsupported as error:
        raise UserError(f"{path}: {error}, which is not supported; only models like ALBERT's and XLNet's are") from None
    except (_Damaged, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a complete SentencePiece model ({error}); get the published file again") from None


def _model(data: bytes) -> SentencePieceModel:
    pieces: list[tuple[str, float, int]] = []
    charmap: bytes | None = None
    trained = False
    for number, value in _fields(data):
        if number == _PIECE:
            pieces.append(_piece(_message(value)))
            if len(pieces) > MOST_PIECES:
                raise _Damaged(f"over {MOST_PIECES:,} pieces")
        elif number == _TRAINER:
            _check_trainer(_message(value))
            trained = True
        elif number == _NORMALIZER:
            charmap = _charmap(_message(value))
    if not pieces or not trained or charmap is None:
        raise _Damaged(f"it has no {'pieces' if not pieces else 'replacements' if trained else 'settings'}")
    texts, scores, types = zip(*pieces)
    if len(set(texts)) != len(texts):
        raise _Damaged("a piece occurs twice")
    if types.count(UNKNOWN) != 1:
        raise _Damaged(f"{types.count(UNKNOWN)} unknown pieces instead of one")
    return SentencePieceModel(texts, scores, types, charmap)


def _piece(data: bytes) -> tuple[str, float, int]:
    fields = dict(_fields(data))
    text, raw = _message(fields.get(_TEXT, b"")).decode("utf-8"), _message(fields.get(_SCORE, bytes(4)))
    if len(raw) != 4:
        raise _Damaged("a score that is not a number")
    score, kind = struct.unpack("<f", raw)[0], _number(fields.get(_TYPE, NORMAL))
    if not text or not math.isfinite(score) or not NORMAL <= kind <= BYTE:
        raise _Damaged(f"a piece {text!r} with score {score} and type {kind}")
    if kind == BYTE:
        raise _Unsupported("it spells unknown characters in bytes")
    return text, score, kind


def _check_trainer(data: bytes) -> None:
    fields = dict(_fields(data))
    if _number(fields.get(_MODEL_TYPE, _UNIGRAM)) != _UNIGRAM:
        raise _Unsupported("it is not a unigram model")
    if _number(fields.get(_SPACE_BEHIND, 0)):
        raise _Unsupported("it puts spaces after words")
    if _number(fields.get(_BYTE_FALLBACK, 0)):
        raise _Unsupported("it spells unknown characters in bytes")


def _charmap(data: bytes) -> bytes:
    fields = dict(_fields(data))
    charmap = _message(fields.get(_CHARMAP, b""))
    if not all(_number(fields.get(switch, 1)) for switch in (_SPACE_BEFORE, _ONE_SPACE, _SPACE_MARKED)):
        raise _Unsupported("it treats spaces as other models do not")
    try:
        check_charmap(charmap)
    except ValueError as error:
        raise _Damaged(str(error)) from None
    return charmap


# -- the wire ----------------------------------------------------------------------------------------------------------


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: integers as they are, everything else as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if number == 0 or wire not in (0, 1, 2, 5):
            raise _Damaged(f"no field begins with {key} before byte {place} of {len(data)}")
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire, 0)
        if wire == 2:
            size, place = _varint(data, place)
        if size > len(data) - place:
            raise _Damaged(f"cut short: {size} bytes are needed from byte {place}, but {len(data) - place} are left")
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """An integer, seven bits per byte, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise _Damaged("cut short within a number")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise _Damaged(f"a number of more than ten bytes before byte {place}")


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Damaged("a number instead of text")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise _Damaged("text instead of a number")
    return value


# -- the table of replacements -----------------------------------------------------------------------------------------


def check_charmap(charmap: bytes) -> None:
    """Raises ValueError unless every path through the table's trie stays inside it and ends at a text.

    The table consists of the trie's size, the trie, and the texts, each ended by a zero byte. The trie is a double
    array: each unit holds the byte that leads to it, whether a key ends there, and where to continue. An empty table
    means no replacements.
    """
    if not charmap:
        return
    size = int.from_bytes(charmap[:4], "little")
    if len(charmap) > MOST_CHARMAP or size == 0 or size % (4 * _BLOCK) or size > len(charmap) - 4:
        raise ValueError("its replacement table has an invalid size")
    units = np.frombuffer(charmap, dtype="<u4", count=size // 4, offset=4).astype(np.int64)
    texts = np.frombuffer(charmap, dtype=np.uint8, offset=4 + size)
    try:
        charmap[4 + size :].decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("its replacement texts are not UTF-8") from None
    steps = (units >> 10) << ((units & 0x200) >> 6)
    following = np.arange(1, _BLOCK)
    seen = np.zeros(len(units), dtype=bool)
    waiting = steps[:1]
    while len(waiting):
        here, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        if here.max() >= len(units):
            raise ValueError("its replacement table points outside itself")
        nodes = here[:, None] ^ following
        reached = np.unique(nodes[(units[nodes] & 0x800000FF) == following])
        reached = reached[~seen[reached]]
        seen[reached] = True
        places = reached ^ steps[reached]
        _check_ends(places[(units[reached] >> 8) & 1 == 1], units, texts)
        waiting = np.concatenate([waiting, places])


def _check_ends(ends: np.ndarray, units: np.ndarray, texts: np.ndarray) -> None:
    """At the end of a key is the place of its replacement, which begins with a whole character."""
    if not len(ends):
        return
    if ends.max() >= len(units):
        raise ValueError("its replacement table points outside itself")
    places = units[ends] & 0x7FFFFFFF
    if places.max() >= len(texts) or ((texts[places] & 0xC0) == 0x80).any():
        raise ValueError("its replacement table refers to a missing text")
