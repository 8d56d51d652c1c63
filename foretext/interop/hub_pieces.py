"""WordPiece and unigram vocabularies to and from a Hugging Face folder; special tokens of imported causal models.

We clean and split text like BERT and ALBERT only. A file that asks for anything else would silently give other ids, so
it is refused. The `tokenizers` library cannot do ALBERT's second cut of numbers before a comma
(`text/tokenizers/unigram.py`); as in transformers, such pieces are made too improbable to be chosen.

For causal models from elsewhere, three files may describe the special tokens: config.json by id, tokenizer_config.json
by name, tokenizer.json by both. If they disagree, the tokenizer belongs to another model. The end-of-text token is
renamed to `<|endoftext|>`: text never spells a special token, so its name does not matter, but its id does.
"""

import json
from pathlib import Path
from typing import Any, TypedDict

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from foretext.config import Json
from foretext.errors import UserError, refuse_if
from foretext.interop.hub_tensors import read_json
from foretext.text.tokenizers.base import END, Tokenizer, tokenizer_from_json
from foretext.text.tokenizers.published import numbered, read_pieces, read_sentencepiece
from foretext.text.tokenizers.unigram import SPACE, Unigram
from foretext.text.tokenizers.wordpiece import INSIDE, LONGEST_WORD, WordPiece, bert_normalizer
from foretext.text.tokenizers.wordpiece import UNKNOWN as UNKNOWN_WORD

LINES, SPM, ADDED = "vocab.txt", "spiece.model", "added_tokens.json"
IMPROBABLE = 100.0  # subtracted from a score
_QUOTES = ['Replace `` "', "Replace '' \""]
_SPACES = "Replace  {2,}  "  # merges spaces before splitting at white space, which has no effect


# -- out ---------------------------------------------------------------------------------------------------------------


def wordpiece_library(tokenizer: WordPiece) -> tokenizers.Tokenizer:
    ids = {piece: id for id, piece in enumerate(tokenizer.pieces)}
    model = models.WordPiece(vocab=ids, unk_token=UNKNOWN_WORD, max_input_chars_per_word=LONGEST_WORD)
    whole = tokenizers.Tokenizer(model)
    whole.normalizer = bert_normalizer(tokenizer.lower)
    whole.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    whole.decoder = decoders.WordPiece(prefix=INSIDE)
    return whole


def unigram_library(tokenizer: Unigram) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer for the library, and notes for the user."""
    cut = [piece[-1] == "," and piece[-2:-1].isdigit() for piece in tokenizer.pieces]
    scores = [score - IMPROBABLE * again for score, again in zip(tokenizer.scores, cut)]
    whole = tokenizers.Tokenizer(models.Unigram(list(zip(tokenizer.pieces, scores)), tokenizer.unknown, False))
    whole.normalizer = tokenizer.cleaning.normalizer()
    whole.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, "always")]
    )
    whole.decoder = decoders.Metaspace(SPACE, "always")
    note = "tokenizer.json cannot cut a number before a comma again: ids agree except for numbers such as 1,234"
    return whole, [note] if any(cut) else []


class _Cleaning(TypedDict):
    """How ALBERT's text is cleaned, by the keys of our own file."""

    lower: bool
    strip_accents: bool
    charmap: Any  # `Unigram.from_data` checks it


# -- in: tokenizer.json ------------------------------------------------------------------------------------------------


def added_tokens(data: Json, path: Path) -> Json:
    """The tokens that were added to the model's own, with their ids."""
    entries = data.get("added_tokens") or []
    refuse_if(
        not isinstance(entries, list)
        or not all(isinstance(entry, dict) and {"content", "id"} <= entry.keys() for entry in entries),
        f"{path}: field 'added_tokens' must be a list of tokens with content and id; get the file again",
    )
    return {str(entry["content"]): entry["id"] for entry in entries}


def put_together(ids: dict[str, int], more: Json, path: Path, gaps: int = 0) -> None:
    """Adds pieces to `ids`; together they must be 0, 1, 2 …, each once, with at most `gaps` missing."""
    for piece, number in more.items():
        known = ids.setdefault(piece, number)
        refuse_if(known != number, f"{path}: the token {piece!r} has id {known} and id {number}; get the file again")
    refuse_if(
        not numbered(list(ids.values()), gaps), f"{path}: ids are not 0 … {len(ids) - 1}, each once; get the file again"
    )


def wordpiece_of_library(data: Json, path: Path) -> WordPiece:
    model = data["model"]
    fixed = {"unk_token": UNKNOWN_WORD, "continuing_subword_prefix": INSIDE, "max_input_chars_per_word": LONGEST_WORD}
    for key, value in fixed.items():
        given = model.get(key, value)
        refuse_if(given != value, f"{path}: {key} is {given!r}, but only {value!r} is supported")
    cleaning = object_of(data.get("normalizer"))
    refuse_if(
        cleaning.get("type") != "BertNormalizer" or cleaning.get("clean_text", True) is not True,
        f"{path}: its normalizer is not BERT's, the only one supported for WordPiece",
    )
    refuse_if(
        object_of(data.get("pre_tokenizer")).get("type") != "BertPreTokenizer",
        f"{path}: its pre_tokenizer is not BERT's, the only one supported for WordPiece",
    )
    casing = {
        "do_lower_case": cleaning.get("lowercase", True),
        "strip_accents": cleaning.get("strip_accents"),
        "tokenize_chinese_chars": cleaning.get("handle_chinese_chars"),
    }
    lower = _lower_cased(casing, path)
    beside = json_in(path.parent / SETTINGS).get("do_lower_case")
    refuse_if(
        isinstance(beside, bool) and beside is not lower,
        f"{path}: lowercase differs from do_lower_case in {SETTINGS}; make them equal",
    )
    ids, added = _pieces(data, model.get("vocab"), path)
    return WordPiece.from_published(sorted(ids, key=ids.__getitem__), lower, str(path)).with_specials(added)


def unigram_of_library(data: Json, path: Path) -> Unigram:
    model = data["model"]
    vocabulary, unknown = model.get("vocab"), model.get("unk_id")
    pairs = isinstance(vocabulary, list) and all(isinstance(entry, list) and len(entry) == 2 for entry in vocabulary)
    refuse_if(
        not pairs or not all(isinstance(piece, str) for piece, _ in vocabulary),
        f"{path}: field 'vocab' must be a list of pieces with their scores; get the file again",
    )
    refuse_if(
        not isinstance(unknown, int) or not 0 <= unknown < len(vocabulary),
        f"{path}: field 'unk_id' must be the index of one of the pieces; get the file again",
    )
    refuse_if(model.get("byte_fallback"), f"{path}: it spells unknown characters in bytes, which is not supported")
    _check_words(data.get("pre_tokenizer"), path)
    cleaning = _albert_cleaning(data.get("normalizer"), path)
    plain = {piece: id for id, (piece, _) in enumerate(vocabulary)}
    refuse_if(len(plain) < len(vocabulary), f"{path}: field 'vocab' contains a piece twice; get the file again")
    ids, added = _pieces(data, plain, path)
    scores = [score for _, score in vocabulary]
    return Unigram.from_data(
        {
            **cleaning,
            "pieces": sorted(ids, key=ids.__getitem__),
            "scores": scores + [0.0] * (len(ids) - len(scores)),
            "specials": sorted({vocabulary[unknown][0], *added}, key=ids.__getitem__),
            "unknown": vocabulary[unknown][0],
        },
        str(path),
    )


def _pieces(data: Json, vocabulary: Any, path: Path) -> tuple[dict[str, int], list[str]]:
    """All pieces with their ids, and the names of the added ones, which are special tokens (`check_added`)."""
    refuse_if(
        not isinstance(vocabulary, dict), f"{path}: field 'vocab' must contain pieces and their ids; get the file again"
    )
    ids, added = dict(vocabulary), added_tokens(data, path)
    put_together(ids, added, path)
    return ids, sorted(added, key=ids.__getitem__)


def object_of(value: Any) -> Json:
    """The value if it is a JSON object; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def _steps(value: Any, name: str) -> list[Json]:
    """The steps of a sequence, or a single step."""
    outer = object_of(value)
    steps = outer.get(name) if outer.get("type") == "Sequence" else [outer]
    return [object_of(step) for step in steps] if isinstance(steps, list) else []


def _check_words(value: Any, path: Path) -> None:
    """Checks: split at white space, a ▁ before each word. Without the split a text's trailing spaces would become a
    piece, which no version of ALBERT's tokenizer produces."""
    steps = _steps(value, "pretokenizers")
    if steps and steps[0].get("type") == "WhitespaceSplit":
        steps = steps[1:]
    words = steps[0] if len(steps) == 1 else {}
    plain = words.get("type") == "Metaspace" and words.get("replacement") == SPACE and words.get("split") is not False
    refuse_if(
        not plain or words.get("prepend_scheme", "always") != "always" or words.get("add_prefix_space") is False,
        f"{path}: its pre_tokenizer is not ALBERT's, the only one supported for unigram pieces",
    )


def _albert_cleaning(value: Any, path: Path) -> _Cleaning:
    """Our settings for ALBERT's cleaning steps."""
    steps = _steps(value, "normalizers")
    named = [_named(step) for step in steps]
    named = named[:-1] if named and named[-1] == _SPACES else named
    lower, strip, table = "Lowercase" in named, "StripAccents" in named, "Precompiled" in named
    wanted = [*_QUOTES, *(["NFKD", "StripAccents"] * strip), *(["Lowercase"] * lower)]
    wanted += ["Precompiled"] if table else ["Nmt", "NFKC"]
    refuse_if(named != wanted, f"{path}: its normalizer is not ALBERT's, the only one supported for unigram pieces")
    charmap = steps[named.index("Precompiled")].get("precompiled_charsmap") if table else ""
    return {"lower": lower, "strip_accents": strip, "charmap": charmap}


def _named(step: Json) -> str:
    if step.get("type") != "Replace":
        return str(step.get("type"))
    pattern = object_of(step.get("pattern"))
    return f"Replace {pattern.get('String', pattern.get('Regex'))} {step.get('content')}"


# -- in: as published --------------------------------------------------------------------------------------------------


def wordpiece_of_lines(folder: Path) -> Tokenizer:
    """vocab.txt, with the settings of tokenizer_config.json."""
    lower = _lower_cased(json_in(folder / SETTINGS), folder / SETTINGS)
    return _with_added(WordPiece.from_published(read_pieces(folder / LINES), lower, str(folder / LINES)), folder)


def unigram_of_file(folder: Path) -> Tokenizer:
    """spiece.model, with the settings of tokenizer_config.json."""
    settings = json_in(folder / SETTINGS)
    lower, accents = (_flag(settings, name, folder / SETTINGS) for name in ("do_lower_case", "keep_accents"))
    tokenizer = Unigram.from_published(read_sentencepiece(folder / SPM), lower, str(folder / SPM))
    if accents:
        tokenizer = Unigram.from_data(json.loads(tokenizer.to_json()) | {"strip_accents": False}, str(folder / SPM))
    return _with_added(tokenizer, folder)


def _with_added(tokenizer: WordPiece | Unigram, folder: Path) -> Tokenizer:
    ids = {piece: id for id, piece in enumerate(tokenizer.pieces)}
    more = json_in(folder / ADDED)
    put_together(ids, more, folder / ADDED)
    return tokenizer.with_specials(sorted(more, key=ids.__getitem__))


def json_in(path: Path) -> Json:
    """The JSON object in a file; empty if there is no file."""
    return read_json(path) if path.is_file() else {}


def _flag(settings: Json, name: str, path: Path) -> bool | None:
    value = settings.get(name)
    refuse_if(
        value is not None and not isinstance(value, bool),
        f"{path}: {name} must be true or false, not {str(value)[:40]}; get the file again",
    )
    return value


def _lower_cased(settings: Json, path: Path) -> bool | None:
    """Whether texts are lower-cased and stripped of accents; None if the files do not say."""
    lower, strip = _flag(settings, "do_lower_case", path), _flag(settings, "strip_accents", path)
    for name in ("tokenize_chinese_chars", "do_basic_tokenize"):
        refuse_if(
            _flag(settings, name, path) is False,
            f"{path}: {name} is false, which is not supported: texts are always split like BERT's",
        )
    refuse_if(
        strip is not None and strip is not (True if lower is None else lower),
        f"{path}: strip_accents is {str(strip).lower()}, but texts are {'' if not strip else 'not '}lower-cased, "
        "which is not supported: both are done here, or neither",
    )
    return lower


SETTINGS = "tokenizer_config.json"
WHOLE = "tokenizer.json"
_OTHER = "the tokenizer is another model's: put the right one there, or correct config.json"
_ROLES = ("bos", "eos", "pad")


def with_end(
    tokenizer: Tokenizer,
    config: Json,
    settings: Json,
    rows: int,
    where: Path,
    notes: list[str],
) -> Tokenizer:
    """The tokenizer with its end-of-text token under our name. `config`: config.json, `settings`:
    tokenizer_config.json, `rows`: of the model's token table."""
    for role in _ROLES:
        _check_role(tokenizer, role, config.get(f"{role}_token_id"), _name(settings.get(f"{role}_token")), rows, where)
    if END in tokenizer.specials:
        return tokenizer
    end_id, name = config.get("eos_token_id"), _name(settings.get("eos_token"))
    by_id = {id: token for token, id in tokenizer.specials.items()}
    known = name if name in tokenizer.specials else by_id.get(end_id) if isinstance(end_id, int) else None
    if known is None:
        return tokenizer
    notes.append(f"{where}: its end-of-text token {known} is called {END} here")
    begins = _name(settings.get("bos_token"))
    if begins in tokenizer.specials and begins != known:
        notes.append(f"{where}: {begins} begins a text there; here {END} separates texts")
    data = json.loads(tokenizer.to_json())
    data["specials"] = [END if name == known else name for name in data["specials"]]
    return tokenizer_from_json(json.dumps(data), "the tokenizer")


def _check_role(tokenizer: Tokenizer, role: str, given: Any, name: str | None, rows: int, where: Path) -> None:
    key = f"{role}_token_id"
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < rows:
        return  # outside the table: a default that was never set
    for token in (name, END)[: 1 if role == "pad" else 2]:  # padding may have any id, since it is never looked at
        known = tokenizer.specials.get(token or "", given)
        refuse_if(known != given, f"{where}: {token} has id {known}, but config.json has {key} {given}; {_OTHER}")
    if role != "pad" and given not in tokenizer.specials.values():
        what = f"the piece {tokenizer.piece(given)!r}" if given < tokenizer.size else "beyond the vocabulary"
        raise UserError(f"{where}: config.json has {key} {given}, which is {what}, not a special token; {_OTHER}")


def _name(value: Any) -> str | None:
    """The name of a token, which these files write in two ways."""
    name = value.get("content") if isinstance(value, dict) else value
    return name if isinstance(name, str) else None


def check_added(folder: Path) -> None:
    """Refuses tokens that were added as ordinary text: there, text that spells one gets its id, but not here."""
    listed = json_in(folder / WHOLE).get("added_tokens")
    decoder = object_of(json_in(folder / SETTINGS).get("added_tokens_decoder"))
    for name, entries in ((WHOLE, listed if isinstance(listed, list) else []), (SETTINGS, list(decoder.values()))):
        words = [entry.get("content") for entry in entries if isinstance(entry, dict) and entry.get("special") is False]
        refuse_if(
            words,
            f"{folder / name}: the token {', '.join(map(repr, words[:1]))} was added as ordinary text, which is not "
            "supported: texts that spell it would get other ids here; import a folder whose added tokens are special",
        )


def note_begin(folder: Path, notes: list[str]) -> None:
    """Adds a note if the tokenizer puts special tokens around every text by itself, which ours does not."""
    step = object_of(json_in(folder / WHOLE).get("post_processor"))
    template = step.get("type") == "TemplateProcessing" and "SpecialToken" in str(step)
    if template or json_in(folder / SETTINGS).get("add_bos_token") is True:
        notes.append(
            f"{folder}: its tokenizer adds special tokens to every text; here only {END} is added, before a document, "
            "so the ids of a text differ by these tokens"
        )
