"""Tokenizers to and from a Hugging Face folder.

Export: `tokenizer.json` for the `tokenizers` library, and beside it our own file, so that a later import restores
exactly what was exported. Import: our own file if present, else `vocab.json` and `merges.txt`, else `tokenizer.json`,
else BERT's `vocab.txt` or ALBERT's `spiece.model`.

The export gives the same ids wherever that library allows it: for byte-level BPE and WordPiece always; for unigram
pieces except some numbers (`hub_pieces.py`); for GPT's character BPE with the splitter `rules`, except where ftfy
repairs broken text. The library cannot express spaCy's rules: such runs get `rules` there, and a note says that ids
will differ.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from foretext.config import Json
from foretext.errors import UserError, refuse_if
from foretext.interop.hub_decoders import OPENAI_IDS
from foretext.interop.hub_names import HubNames
from foretext.interop.hub_pieces import (
    ADDED,
    LINES,
    SETTINGS,
    SPM,
    WHOLE,
    added_tokens,
    check_added,
    json_in,
    note_begin,
    object_of,
    put_together,
    unigram_library,
    unigram_of_file,
    unigram_of_library,
    with_end,
    wordpiece_library,
    wordpiece_of_library,
    wordpiece_of_lines,
)
from foretext.interop.hub_tensors import read_json
from foretext.tasks.layouts.base import AT_END, DELIMITER, EXTRACT, START, FramedLayout
from foretext.text.corpus.text_files import read_text
from foretext.text.tokenizers.base import END, Tokenizer, tokenizer_from_json
from foretext.text.tokenizers.byte_bpe import ByteBPE
from foretext.text.tokenizers.char_bpe import UNKNOWN, WORD_END, CharBPE
from foretext.text.tokenizers.published import MOST_GAPS, read_merges, read_vocabulary
from foretext.text.tokenizers.splitters import DASHES, PUNCTUATION, WORD
from foretext.text.tokenizers.unigram import Unigram
from foretext.text.tokenizers.wordpiece import WordPiece

OWN = "foretext_tokenizer.json"
MOST_UNUSED = 127  # rows that others append to round up a table's height
# The purposes of a masked system's special tokens, as in tokenizer_config.json, and their names.
ROLES = {
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "pad": ("[PAD]", "<pad>"),
    "mask": ("[MASK]", "<mask>"),
    "unk": ("[UNK]", "<unk>"),
}
_CURLY = {"ʼ": "'", "‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"'}  # as ftfy does


def name_of(tokenizer: Tokenizer, role: str) -> str | None:
    """A vocabulary's special token for one of `ROLES`."""
    return next((name for name in ROLES[role] if name in tokenizer.specials), None)


def special_of(tokenizer: Tokenizer, role: str) -> int | None:
    """The id of the special token for one of `ROLES`, or for the `end` of a document."""
    return tokenizer.end if role == "end" else tokenizer.specials.get(name_of(tokenizer, role) or "")


# -- out ---------------------------------------------------------------------------------------------------------------


def tokenizer_files(
    tokenizer: Tokenizer, context: int, delimited: bool, framed: FramedLayout | None = None
) -> tuple[dict[str, bytes], list[str]]:
    """Files by name, and notes for the user. `delimited`: texts get start, delimiter and extract tokens, as in
    fine-tuning. `framed`: they get a masked system's tokens, as always."""
    whole, notes = _library(tokenizer)
    # If pieces include their space, so does the blank.
    blank = name_of(tokenizer, "mask") if tokenizer.lossless else None
    whole.add_special_tokens(
        [AddedToken(name, special=True, normalized=False, lstrip=name == blank) for name in tokenizer.specials]
    )
    if delimited:
        whole.post_processor = processors.TemplateProcessing(
            single=f"{START} $A {EXTRACT}",
            pair=f"{START} $A {DELIMITER} $B {EXTRACT}",
            special_tokens=[(name, tokenizer.specials[name]) for name in (START, DELIMITER, EXTRACT)],
        )
    if framed is not None:
        whole.post_processor = _frame(tokenizer, framed)
    settings = _settings(tokenizer, context, framed)
    files = {
        WHOLE: whole.to_str(pretty=True).encode(),
        SETTINGS: (json.dumps(settings, indent=1, ensure_ascii=False) + "\n").encode(),
        OWN: tokenizer.to_json().encode(),
    }
    return files, notes


def _library(tokenizer: Tokenizer) -> tuple[tokenizers.Tokenizer, list[str]]:
    if isinstance(tokenizer, ByteBPE):
        return _byte_level(tokenizer), []
    if isinstance(tokenizer, WordPiece):
        return wordpiece_library(tokenizer), []
    if isinstance(tokenizer, Unigram):
        return unigram_library(tokenizer)
    if not isinstance(tokenizer, CharBPE):
        raise UserError("a vocabulary of words has no counterpart in transformers to export to")
    note = (
        "tokenizer.json cannot express spaCy's rules: words are split by simpler rules there, so ids will differ"
        if tokenizer.splitter == "spacy"
        else "tokenizer.json cannot include ftfy: ids agree except where ftfy repairs broken text"
    )
    return _character_level(tokenizer), [note]


def _frame(tokenizer: Tokenizer, framed: FramedLayout) -> processors.TemplateProcessing:
    """A text, and a pair of texts, between a masked system's special tokens, each with its segment."""
    names = {id: name for name, id in tokenizer.specials.items()}
    speaker, between = names[framed.speaker], [names[id] for id in framed.between]
    second = int(framed.segments)
    middle = " ".join(f"{name}:0" for name in between)
    single, pair = f"$A:0 {between[0]}:0", f"$A:0 {middle} $B:{second} {between[0]}:{second}"
    if framed.at_end:
        single, pair = (f"{texts} {speaker}:{AT_END if framed.segments else 0}" for texts in (single, pair))
    else:
        single, pair = (f"{speaker}:0 {texts}" for texts in (single, pair))
    return processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(name, tokenizer.specials[name]) for name in dict.fromkeys([speaker, *between])],
    )


def _settings(tokenizer: Tokenizer, context: int, framed: FramedLayout | None) -> Json:
    """tokenizer_config.json."""
    inputs = ["input_ids", "attention_mask"]  # some versions would add token types, which would become weights of GPT
    settings: Json = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "model_input_names": inputs if framed is None or not framed.segments else [*inputs, "token_type_ids"],
    }
    if framed is not None:  # blanks are written as text there, so text may spell special tokens
        if framed.at_end:
            settings["padding_side"] = "left"  # their classes read the last column
        named = {f"{role}_token": name_of(tokenizer, role) for role in ROLES}
        return settings | {role: name for role, name in named.items() if name is not None}
    settings["split_special_tokens"] = True  # text that spells a special token is ordinary text, there as here
    if END in tokenizer.specials:
        settings |= {"eos_token": END, "bos_token": END}
    if tokenizer.unknown is not None:
        settings["unk_token"] = tokenizer.piece(tokenizer.unknown)
    if padding_of(tokenizer) is not None:
        settings["pad_token"] = padding_of(tokenizer)
    return settings


def padding_of(tokenizer: Tokenizer) -> str | None:
    """A special token for padding; it must not be the last token of a scored sequence."""
    return next((name for name in (*ROLES["pad"], END, START) if name in tokenizer.specials), None)


def _byte_level(tokenizer: ByteBPE) -> tokenizers.Tokenizer:
    ids = tokenizer.written() | tokenizer.specials
    whole = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=list(tokenizer.merges)))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    whole.decoder = decoders.ByteLevel()
    return whole


def _ftfy_table() -> dict[str, str]:
    """Characters that ftfy always replaces: quotation marks, full-width and half-width forms, ligatures."""
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
    sigma = normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς")  # Python lower-cases a word's last sigma like this
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


# -- in ----------------------------------------------------------------------------------------------------------------


def read_tokenizer(
    folder: Path,
    rows: int,
    config: Json,
    names: HubNames,
    notes: list[str],
) -> Tokenizer:
    """The tokenizer of a folder whose token table has `rows` rows; `config`: its config.json; `names`: the table of its
    system. `notes` collects what the user must know."""
    is_ours = (folder / OWN).is_file()
    if not is_ours:
        check_added(folder)
    tokenizer, where = _read(folder, names.vocabularies)
    _check_pieces(tokenizer, names, rows, where)
    unused = [f"<|unused{number}|>" for number in range(rows - tokenizer.size)]
    if names.ids != OPENAI_IDS:
        _check_roles(tokenizer, names.ids, config, rows, where)
        return tokenizer.with_specials(unused)
    if not is_ours:
        note_begin(folder, notes)
        if isinstance(tokenizer, CharBPE) and tokenizer.splitter == "spacy":
            notes.append(
                f"{where}: words are split by spaCy's rules, as in GPT's training; transformers uses simpler rules"
            )
    return with_end(tokenizer, config, json_in(folder / SETTINGS), rows, where, notes).with_specials(unused)


def _check_pieces(tokenizer: Tokenizer, names: HubNames, rows: int, where: Path) -> None:
    """Refuses a tokenizer that lacks special tokens, or whose size does not match the token table."""
    missing = [name for name in names.needs if name not in tokenizer.specials]
    refuse_if(
        missing,
        f"{where}: has no {', '.join(missing)}, which {names.model_type} needs; the tokenizer is another model's: put "
        "the right one there",
    )
    unused = rows - tokenizer.size
    refuse_if(
        not 0 <= unused <= MOST_UNUSED or (unused and rows % 8),
        f"{where}: {tokenizer.size:,} pieces, but the model's table has {rows:,} rows; the tokenizer is another "
        "model's: put the right one there",
    )


def _check_roles(tokenizer: Tokenizer, ids: Mapping[str, str], config: Json, rows: int, where: Path) -> None:
    """Refuses a tokenizer whose special tokens have other ids than config.json says."""
    for key, role in ids.items():
        given, actual = config.get(key), special_of(tokenizer, role)
        known = isinstance(given, int) and 0 <= given < rows  # outside the table: a default that was never set
        refuse_if(
            known and actual not in (None, given),
            f"{where}: {name_of(tokenizer, role)} has id {actual}, but config.json has {key} {given}; the tokenizer is "
            "another model's: put the right one there",
        )


def _read(folder: Path, kinds: tuple[str, ...]) -> tuple[Tokenizer, Path]:
    """The tokenizer of one of these `kinds`, and the file that it is in."""
    if (folder / OWN).is_file():
        return tokenizer_from_json(read_text(folder / OWN), str(folder / OWN)), folder / OWN
    if "BPE" in kinds and (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _of_vocabulary(folder), folder / "vocab.json"
    if (folder / WHOLE).is_file():
        return _of_library(folder / WHOLE, kinds), folder / WHOLE
    if "WordPiece" in kinds and (folder / LINES).is_file():
        return wordpiece_of_lines(folder), folder / LINES
    if "Unigram" in kinds and (folder / SPM).is_file():
        return unigram_of_file(folder), folder / SPM
    files = {"BPE": "vocab.json and merges.txt", "WordPiece": LINES, "Unigram": SPM}
    needed = ", or ".join([*(files[kind] for kind in kinds), WHOLE])
    raise UserError(f"{folder}: it has no tokenizer; it needs {needed}")


def _of_vocabulary(folder: Path) -> Tokenizer:
    """vocab.json and merges.txt, and tokens that were added later."""
    ids = read_vocabulary(folder / "vocab.json", MOST_GAPS)
    gaps = 0 if any(piece.endswith(WORD_END) for piece in ids) else MOST_GAPS  # only byte-level BPE fills gaps
    splitter, whole = "spacy", folder / WHOLE
    if whole.is_file():
        data = read_json(whole)
        splitter = _splitter_of(data, ids, whole)
        put_together(ids, added_tokens(data, whole), whole, gaps)
    added = folder / ADDED
    put_together(ids, json_in(added), added if added.is_file() else folder / "vocab.json", gaps)
    settings = folder / SETTINGS
    refuse_if(
        json_in(settings).get("add_prefix_space") is True,
        f"{settings}: add_prefix_space is true, which is not supported: here nothing is added before a text",
    )
    return _of_pieces(ids, read_merges(folder / "merges.txt"), splitter, str(folder))


def _of_pieces(ids: dict[str, int], merges: list[tuple[str, str]], splitter: str, where: str) -> Tokenizer:
    if any(piece.endswith(WORD_END) for piece in ids):
        return CharBPE.from_published(ids, merges, splitter, where)
    return ByteBPE.from_published(ids, merges, where)


def _of_library(path: Path, kinds: tuple[str, ...]) -> Tokenizer:
    data = read_json(path)
    kind = _kind_of(data.get("model"))
    refuse_if(kind not in kinds, f"{path}: only {' and '.join(kinds)} vocabularies are supported for this system")
    if kind == "WordPiece":
        return wordpiece_of_library(data, path)
    return unigram_of_library(data, path) if kind == "Unigram" else _of_merges(data, path)


def _kind_of(model: Any) -> str | None:
    """The kind of a model in the library; older files do not name it."""
    if not isinstance(model, dict):
        return None
    merged = "WordPiece" if "max_input_chars_per_word" in model else "BPE"
    kind = str(model.get("type") or ("Unigram" if isinstance(model.get("vocab"), list) else merged))
    return kind if kind != "BPE" or isinstance(model.get("vocab"), dict) else None


def _of_merges(data: Json, path: Path) -> Tokenizer:
    model = data["model"]
    ids: dict[str, int] = dict(model["vocab"])
    put_together(ids, added_tokens(data, path), path)
    listed = model.get("merges") or []
    refuse_if(not isinstance(listed, list), f"{path}: field 'merges' must be a list; get the file again")
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in listed]
    for merge, parts in zip(listed, merges):
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise UserError(f"{path}: a merge has two pieces, not {merge!r}; get the file again")
    return _of_pieces(ids, [(left, right) for left, right in merges], _splitter_of(data, ids, path), str(path))


def _splitter_of(data: Json, ids: Mapping[str, int], path: Path) -> str:
    """How tokenizer.json splits text: one of our two ways for words that end in a mark; otherwise it must be
    GPT-2's."""
    if not any(piece.endswith(WORD_END) for piece in ids):
        _check_byte_level(data, path)
    return "rules" if json.dumps(PUNCTUATION) in json.dumps(data.get("pre_tokenizer")) else "spacy"


def _check_byte_level(data: Json, path: Path) -> None:
    """Only GPT-2's way to split text is supported; another would silently give other ids."""
    refuse_if(
        data.get("normalizer") is not None,
        f"{path}: it has a normalizer, which is not supported: byte-level BPE takes text unchanged",
    )
    splitter = object_of(data.get("pre_tokenizer"))
    plain = splitter.get("type") == "ByteLevel" and splitter.get("use_regex", True) is True
    refuse_if(
        not plain or splitter.get("add_prefix_space") is not False,
        f"{path}: its pre_tokenizer is not GPT-2's (ByteLevel, no space before the text), the only one supported",
    )
