"""Vocabularies that others published, read from their own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foretext.errors import UserError
from foretext.text.tokenizers.base import Tokenizer


def tokenizer_from_published(source: str | Path, *, splitter: str = "spacy", lower: bool | None = None) -> Tokenizer:
    """The vocabulary that others published: a folder that holds one, or the file itself.

    GPT: `encoder_bpe_40000.json` beside `vocab_40000.bpe`; GPT-2: `encoder.json` beside `vocab.bpe`; RoBERTa:
    `…vocab.json` beside `vocab.bpe` or `merges.txt`; BERT: `…vocab.txt`; ALBERT and XLNet: `….model`.

    GPT's ids are only the published ones behind spaCy's rules; `splitter="rules"` is a stated approximation. GPT's
    vocabulary has no special at all: add them by `with_specials`. `lower` says whether BERT's, ALBERT's and XLNet's
    texts are lower-cased; None: they are if the vocabulary has no piece that lower-casing changes.
    """
    path = _published_file(Path(source))
    if path.suffix == ".json":
        return _of_merges(path, splitter)
    if path.suffix == ".txt":
        from foretext.text.tokenizers.wordpiece import WordPiece

        return WordPiece.from_published(read_pieces(path), lower, str(path))
    from foretext.text.tokenizers.sentencepiece_file import read_sentencepiece
    from foretext.text.tokenizers.unigram import Unigram

    return Unigram.from_published(read_sentencepiece(path), lower, str(path))


def _published_file(source: Path) -> Path:
    """The one file that a published vocabulary is read from; what stands beside it is found from there."""
    if source.suffix == ".bpe" and source.is_file():
        source = source.parent
    if source.suffix in (".json", ".txt", ".model") and source.is_file():
        return source
    for name, merges in _MERGES_BESIDE.items():
        if (source / name).is_file() and (source / merges).is_file():
            return source / name
    found = [path for path in sorted(source.glob("*vocab.json")) if _merges_beside(path) is not None]
    found += [*sorted(source.glob("*vocab.txt")), *sorted(source.glob("*.model"))]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UserError(f"{source}: several published vocabularies here; name one of the files: {names}")
    if not found:
        raise UserError(
            f"{source}: no published vocabulary here; it needs encoder_bpe_40000.json and vocab_40000.bpe (GPT), "
            "encoder.json and vocab.bpe (GPT-2), vocab.json and vocab.bpe or merges.txt (RoBERTa), vocab.txt (BERT) "
            "or spiece.model (ALBERT, XLNet)"
        )
    return found[0]


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
    """A JSON file of pieces and their ids, as GPT and GPT-2 were published with; at most `gaps` ids are left out."""
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: cannot be read as a vocabulary ({error}); get the published file again") from None
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise UserError(f"{path}: must hold pieces and their ids; get the published file again")
    if not numbered(list(ids.values()), gaps):
        raise UserError(f"{path}: ids are not 0 … {len(ids) - 1}, each once; get the published file again")
    return ids


def numbered(ids: list[Any], gaps: int) -> bool:
    """Whether they are whole numbers from 0 on, none of them twice, of which at most `gaps` are left out."""
    whole = all(isinstance(id, int) and not isinstance(id, bool) and id >= 0 for id in ids)
    return whole and len(set(ids)) == len(ids) and max(ids, default=-1) < len(ids) + gaps


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


def read_pieces(path: Path) -> list[str]:
    """A file with a piece a line, its number being its id, as BERT's vocabularies were published."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read as a vocabulary ({error}); get the published file again") from None
    pieces = [line.removesuffix("\r") for line in lines]
    return pieces[:-1] if pieces[-1] == "" else pieces
