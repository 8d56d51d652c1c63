"""Tokenizers in and out of a Hugging Face folder.

Out: `tokenizer.json` for the `tokenizers` library, and beside it our own file, so that what comes back in is exactly
what went out. In: our own file if it is there, else `vocab.json` and `merges.txt`, else `tokenizer.json`.

What that library can express is written so that ids agree: byte-level BPE wholly; GPT's character BPE behind the
splitter `rules`, except where ftfy repairs broken text. spaCy's rules it cannot express: those runs get `rules` there,
and a note says that ids will differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from foretext.errors import UserError
from foretext.interop.foreign import read_json
from foretext.tasks.delimited import DELIMITER, EXTRACT, START
from foretext.text.byte_bpe import BYTE_TO_CHAR, ByteBPE
from foretext.text.char_bpe import UNKNOWN, WORD_END, CharBPE
from foretext.text.splitters import DASHES, PUNCTUATION, WORD
from foretext.text.tokenizer import END, Tokenizer, read_merges, read_vocabulary, tokenizer_from_json

OWN = "foretext_tokenizer.json"
MOST_UNUSED = 127  # rows that others append so that a table's height is a round number
_CURLY = {"ʼ": "'", "‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"'}  # as ftfy has


# -- out -------------------------------------------------------------------------------------------------------------


def tokenizer_files(tokenizer: Tokenizer, context: int, delimited: bool) -> tuple[dict[str, bytes], list[str]]:
    """Files by name, and what a user must know. `delimited`: texts get start, delimiter and extract tokens, as
    fine-tuning gave them."""
    notes = []
    if isinstance(tokenizer, ByteBPE):
        whole = _byte_level(tokenizer)
    else:
        assert isinstance(tokenizer, CharBPE)
        whole = _character_level(tokenizer)
        notes.append(
            "tokenizer.json cannot hold spaCy's rules: there the words are split by simpler ones, so ids will differ"
            if tokenizer.splitter == "spacy"
            else "tokenizer.json cannot hold ftfy: ids agree except where ftfy repairs broken text"
        )
    whole.add_special_tokens([tokenizers.AddedToken(n, special=True, normalized=False) for n in tokenizer.specials])
    if delimited:
        whole.post_processor = processors.TemplateProcessing(
            single=f"{START} $A {EXTRACT}",
            pair=f"{START} $A {DELIMITER} $B {EXTRACT}",
            special_tokens=[(name, tokenizer.specials[name]) for name in (START, DELIMITER, EXTRACT)],
        )
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],  # some versions would add token types, which are weights
        "split_special_tokens": True,  # text that spells a special token is text, here and there
    }
    if END in tokenizer.specials:
        settings |= {"eos_token": END, "bos_token": END}
    if tokenizer.unknown is not None:
        settings["unk_token"] = UNKNOWN
    if padding_of(tokenizer) is not None:
        settings["pad_token"] = padding_of(tokenizer)
    files = {
        "tokenizer.json": whole.to_str(pretty=True).encode(),
        "tokenizer_config.json": (json.dumps(settings, indent=1, ensure_ascii=False) + "\n").encode(),
        OWN: tokenizer.to_json().encode(),
    }
    return files, notes


def padding_of(tokenizer: Tokenizer) -> str | None:
    """A special that can stand for padding: never the last of a sequence that is scored."""
    return next((name for name in (END, START) if name in tokenizer.specials), None)


def _byte_level(tokenizer: ByteBPE) -> tokenizers.Tokenizer:
    pieces = [BYTE_TO_CHAR[byte] for byte in tokenizer.alphabet] + [left + right for left, right in tokenizer.merges]
    ids = {piece: number for number, piece in enumerate(pieces)} | tokenizer.specials
    whole = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=list(tokenizer.merges)))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    whole.decoder = decoders.ByteLevel()
    return whole


def _ftfy_table() -> dict[str, str]:
    """Characters that ftfy always writes otherwise: quotation marks, full-width and half-width forms, ligatures."""
    from ftfy.chardata import LIGATURES, WIDTH_MAP

    table = {chr(code): text for code, text in (WIDTH_MAP | LIGATURES).items()}
    return _CURLY | {old: new for old, new in table.items() if old != new}


def _character_level(tokenizer: CharBPE) -> tokenizers.Tokenizer:
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces)} | tokenizer.specials
    model = models.BPE(
        vocab=ids, merges=list(tokenizer.merges), unk_token=UNKNOWN, end_of_word_suffix=WORD_END, fuse_unk=False
    )
    whole = tokenizers.Tokenizer(model)
    replaced = [normalizers.Replace(old, new) for old, new in (_ftfy_table() | DASHES).items()]
    replaced.append(normalizers.Replace(Regex("\r\n?|\u2028|\u2029|\u0085"), "\n"))
    breaks = normalizers.Replace(Regex(r"\s*\n\s*"), "\n")
    sigma = normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς")  # as Python lower-cases a word's last one
    whole.normalizer = normalizers.Sequence(
        [*replaced, normalizers.NFC(), normalizers.Strip(), breaks, sigma, normalizers.Lowercase()]
    )
    whole.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PUNCTUATION), "isolated"),
            pre_tokenizers.Split(Regex(WORD), "removed", invert=True),
        ]
    )
    whole.decoder = decoders.BPEDecoder(suffix=WORD_END)
    return whole


# -- in --------------------------------------------------------------------------------------------------------------


def read_tokenizer(folder: Path, rows: int, config: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a folder whose token table has `rows` rows; `config`: its config.json."""
    if (folder / OWN).is_file():
        where = folder / OWN
        tokenizer = tokenizer_from_json(_text(where), str(where))
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        where = folder / "vocab.json"
        tokenizer = _of_vocabulary(folder)
    elif (folder / "tokenizer.json").is_file():
        where = folder / "tokenizer.json"
        tokenizer = _of_library(where)
    else:
        raise UserError(f"{folder}: no tokenizer here; it needs vocab.json and merges.txt, or tokenizer.json")
    unused = rows - tokenizer.size
    if unused < 0 or unused > MOST_UNUSED or (unused and rows % 8):
        raise UserError(
            f"{where}: {tokenizer.size:,} pieces, but the model's table has {rows:,} rows; this is another model's "
            "tokenizer: put the right one there"
        )
    for key in ("bos_token_id", "eos_token_id"):
        said = config.get(key)
        known = isinstance(said, int) and 0 <= said < rows  # beyond the table: a default that was never set
        if known and tokenizer.specials.get(END, said) != said:
            raise UserError(
                f"{where}: {END} is id {tokenizer.specials[END]}, but config.json has {key} {said}; this is another "
                "model's tokenizer: put the right one there"
            )
    return tokenizer.with_specials([f"<|unused{number}|>" for number in range(unused)])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); get the file again") from None


def _of_vocabulary(folder: Path) -> Tokenizer:
    """vocab.json and merges.txt, and what was added to them later."""
    ids = read_vocabulary(folder / "vocab.json")
    splitter, whole = "spacy", folder / "tokenizer.json"
    if whole.is_file():
        data = read_json(whole)
        splitter = _splitter_of(data, ids, whole)
        _add(ids, _added(data, whole), whole)
    if (folder / "added_tokens.json").is_file():
        _add(ids, read_json(folder / "added_tokens.json"), folder / "added_tokens.json")
    settings = folder / "tokenizer_config.json"
    if settings.is_file() and read_json(settings).get("add_prefix_space") is True:
        raise UserError(f"{settings}: add_prefix_space is true, which cannot be read: here a text begins as it is")
    return _of_pieces(ids, read_merges(folder / "merges.txt"), splitter, str(folder))


def _added(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    found = data.get("added_tokens") or []
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and {"content", "id"} <= one.keys() for one in found
    ):
        raise UserError(
            f"{path}: field 'added_tokens' must be a list of tokens with content and id; get the file again"
        )
    return {str(one["content"]): one["id"] for one in found}


def _add(ids: dict[str, int], more: Mapping[str, Any], path: Path) -> None:
    """Puts further pieces among `ids`, all of which must then be 0, 1, 2 …, each once."""
    for piece, number in more.items():
        ids.setdefault(piece, number)
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in ids.values())
    if not whole or sorted(ids.values()) != list(range(len(ids))):
        raise UserError(f"{path}: ids are not 0 … {len(ids) - 1}, each once; get the file again")


def _of_pieces(ids: dict[str, int], merges: list[tuple[str, str]], splitter: str, where: str) -> Tokenizer:
    if any(piece.endswith(WORD_END) for piece in ids):
        return CharBPE.from_published(ids, merges, splitter, where)
    return ByteBPE.from_published(ids, merges, where)


def _of_library(path: Path) -> Tokenizer:
    data = read_json(path)
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise UserError(f"{path}: only BPE vocabularies can be read for this system")
    ids: dict[str, int] = dict(model["vocab"])
    _add(ids, _added(data, path), path)
    merges = []
    for merge in model.get("merges") or []:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise UserError(f"{path}: a merge has two pieces, not {merge!r}; get the file again")
        merges.append((parts[0], parts[1]))
    return _of_pieces(ids, merges, _splitter_of(data, ids, path), str(path))


def _splitter_of(data: Mapping[str, Any], ids: Mapping[str, int], path: Path) -> str:
    """How tokenizer.json cuts text: one of our two ways for words that end in a mark; otherwise GPT-2's, or it is
    refused."""
    if not any(piece.endswith(WORD_END) for piece in ids):
        _check_byte_level(data, path)
    return "rules" if PUNCTUATION in _text_of(data.get("pre_tokenizer")) else "spacy"


def _text_of(value: Any) -> str:
    """All texts in a piece of JSON, one after the other."""
    if isinstance(value, dict):
        value = list(value.values())
    return "\n".join(map(_text_of, value)) if isinstance(value, list) else str(value)


def _check_byte_level(data: Mapping[str, Any], path: Path) -> None:
    """Only GPT-2's own way to cut text can be read; another would give other ids without a word."""
    if data.get("normalizer") is not None:
        raise UserError(f"{path}: it has a normalizer, which cannot be read: here byte-level BPE takes text as it is")
    found = data.get("pre_tokenizer")
    splitter = found if isinstance(found, dict) else {}
    plain = splitter.get("type") == "ByteLevel" and splitter.get("use_regex", True) is True
    if not plain or splitter.get("add_prefix_space") is not False:
        raise UserError(
            f"{path}: its pre_tokenizer is not GPT-2's (ByteLevel, no space before the text), which alone can be read"
        )
