"""What a tokenizer is, and how one is loaded: from a run's `tokenizer.json` or from a published vocabulary.

Two kinds exist: `byte-bpe` (GPT-2: any text, exactly reversible) and `char-bpe` (GPT: cleaned, split into words,
lower-cased, so not reversible). `tokenizer.json` is plain data and names its splitter, because the same merges behind
another splitter give other ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from foretext.errors import UserError

END = "<|endoftext|>"  # the special that stands after each document; the last id of every trained tokenizer
FORMAT = 1
KINDS = ("byte-bpe", "char-bpe")


class Tokenizer(Protocol):
    """Text to ids and back. Specials are never the result of encoding, whatever the text spells."""

    kind: str
    specials: dict[str, int]
    lossless: bool
    unknown: int | None  # the id of characters that the vocabulary does not have; None: it has them all

    @property
    def size(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def encode_array(self, text: str) -> np.ndarray: ...
    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def piece(self, id: int) -> str: ...
    def piece_bytes(self, id: int) -> bytes: ...
    def ends_word(self, id: int) -> bool:
        """Whether the piece stands for a word's end and no space, so that its text has one that is not in the text."""

    def with_specials(self, names: Sequence[str]) -> Tokenizer: ...
    def to_json(self) -> str: ...
    def fingerprint(self) -> str: ...


def tokenizer_from_json(text: str, where: str) -> Tokenizer:
    """The tokenizer that `Tokenizer.to_json` wrote; `where` names the file in messages."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a tokenizer file ({error}); restore it from the run that made it") from None
    if not isinstance(data, dict) or data.get("kind") not in KINDS:
        raise UserError(f"{where}: not a tokenizer file of Foretext (field 'kind' must be one of {', '.join(KINDS)})")
    if data.get("format") != FORMAT:
        raise UserError(f"{where}: tokenizer format {data.get('format')!r} is not known here; update foretext")
    if data["kind"] == "byte-bpe":
        from foretext.text.byte_bpe import ByteBPE

        return ByteBPE.from_data(data, where)
    from foretext.text.char_bpe import CharBPE

    return CharBPE.from_data(data, where)


def tokenizer_from_published(folder: str | Path, *, splitter: str = "spacy") -> Tokenizer:
    """GPT's (`encoder_bpe_40000.json`, `vocab_40000.bpe`) or GPT-2's (`encoder.json`, `vocab.bpe`) vocabulary.

    GPT's ids are only the published ones behind spaCy's rules; `splitter="rules"` is a stated approximation. GPT's
    vocabulary has no special at all: add them by `with_specials`.
    """
    folder = Path(folder)
    for encoder, merges, kind in (
        ("encoder_bpe_40000.json", "vocab_40000.bpe", "char-bpe"),
        ("encoder.json", "vocab.bpe", "byte-bpe"),
    ):
        if not (folder / encoder).is_file() or not (folder / merges).is_file():
            continue
        ids = read_vocabulary(folder / encoder)
        pairs = read_merges(folder / merges)
        if kind == "byte-bpe":
            from foretext.text.byte_bpe import ByteBPE

            return ByteBPE.from_published(ids, pairs, str(folder))
        from foretext.text.char_bpe import CharBPE

        return CharBPE.from_published(ids, pairs, splitter, str(folder))
    raise UserError(
        f"{folder}: no published vocabulary here; it needs encoder_bpe_40000.json and vocab_40000.bpe (GPT) "
        "or encoder.json and vocab.bpe (GPT-2)"
    )


def canonical_json(data: dict[str, Any]) -> str:
    """One text for one content, so that the fingerprint of a tokenizer is a fingerprint of what it does."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n"


def fingerprint_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def encodable(text: str) -> str:
    """Half a surrogate pair, which a Python text can hold, becomes U+FFFD as it does when encoding."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def append_specials(specials: dict[str, int], names: Sequence[str], size: int) -> dict[str, int]:
    """The specials with the missing names appended from id `size` on."""
    result = dict(specials)
    for name in names:
        if name not in result:
            result[name] = size
            size += 1
    return result


def checked_specials(data: dict[str, Any], first: int, where: str) -> dict[str, int]:
    """The list of specials of a tokenizer file as name → id, the first of them at id `first`."""
    names = data.get("specials")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise UserError(f"{where}: field 'specials' must be a list of different names")
    return {name: first + i for i, name in enumerate(names)}


def checked_pairs(data: dict[str, Any], where: str) -> list[tuple[str, str]]:
    """The merges of a tokenizer file, each a text of two pieces with a space between."""
    merges = data.get("merges")
    if not isinstance(merges, list) or not all(isinstance(m, str) and m.count(" ") == 1 for m in merges):
        raise UserError(f"{where}: field 'merges' must be a list of texts of two pieces each")
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        pairs.append((left, right))
    return pairs


def read_vocabulary(path: Path) -> dict[str, int]:
    """A JSON file of pieces and their ids, as GPT and GPT-2 were published with."""
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: cannot be read as a vocabulary ({error}); get the published file again") from None
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise UserError(f"{path}: must hold pieces and their ids; get the published file again")
    if sorted(ids.values()) != list(range(len(ids))):
        raise UserError(f"{path}: ids are not 0 … {len(ids) - 1}, each once; get the published file again")
    return ids


def read_merges(path: Path) -> list[tuple[str, str]]:
    """A file with a merge a line, perhaps after a line that names its version."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read as merges ({error}); get the published file again") from None
    pairs = []
    for number, line in enumerate(lines):
        if not line or (number == 0 and line.startswith("#version")):
            continue
        parts = line.split()
        if len(parts) != 2:
            raise UserError(f"{path} line {number + 1}: a merge has two pieces; get the published file again")
        pairs.append((parts[0], parts[1]))
    return pairs
