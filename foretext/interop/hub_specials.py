"""The special tokens of a causal model from elsewhere: which of them ends a text, and what is done with them.

Three files may speak of them: config.json by id, tokenizer_config.json by name, tokenizer.json by both. What they say
must agree, or the tokenizer is another model's. The token that ends a text is called `<|endoftext|>` here, whatever its
name was: a special is never spelled by a text, so that its name is free and its id is what counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretext.errors import UserError
from foretext.interop.foreign import read_json
from foretext.text.tokenizers.base import END, Tokenizer, tokenizer_from_json

SETTINGS = "tokenizer_config.json"
WHOLE = "tokenizer.json"
_OTHER = "this is another model's tokenizer: put the right one there, or correct config.json"
_ROLES = ("bos", "eos", "pad")


@dataclass(frozen=True)
class Said:
    """What a folder says of its tokenizer beside the vocabulary; empty where a file is not there."""

    folder: Path
    settings: Mapping[str, Any]  # tokenizer_config.json
    whole: Mapping[str, Any]  # tokenizer.json


def said_in(folder: Path) -> Said:
    settings, whole = (read_json(folder / name) if (folder / name).is_file() else {} for name in (SETTINGS, WHOLE))
    return Said(folder, settings, whole)


def with_end(
    tokenizer: Tokenizer, config: Mapping[str, Any], beside: Said, rows: int, where: Path, notes: list[str]
) -> Tokenizer:
    """The tokenizer with its end of text known by our name for it; `config`: config.json, `rows`: of the model's token
    table."""
    settings = beside.settings
    for role in _ROLES:
        _check_role(tokenizer, role, config.get(f"{role}_token_id"), _name(settings.get(f"{role}_token")), rows, where)
    if END in tokenizer.specials:
        return tokenizer
    said, name = config.get("eos_token_id"), _name(settings.get("eos_token"))
    by_id = {id: one for one, id in tokenizer.specials.items()}
    known = name if name in tokenizer.specials else by_id.get(said) if isinstance(said, int) else None
    if known is None:
        return tokenizer
    notes.append(f"{where}: {known} ends a text there, and is called {END} here")
    begins = _name(settings.get("bos_token"))
    if begins in tokenizer.specials and begins != known:
        notes.append(f"{where}: {begins} begins a text there; here {END} stands between texts")
    return _renamed(tokenizer, known, END)


def _check_role(tokenizer: Tokenizer, role: str, said: Any, name: str | None, rows: int, where: Path) -> None:
    key = f"{role}_token_id"
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said < rows:
        return  # beyond the table: a default that was never set
    if name in tokenizer.specials and tokenizer.specials[name] != said:
        raise UserError(f"{where}: {name} is id {tokenizer.specials[name]}, but config.json has {key} {said}; {_OTHER}")
    if role == "pad":
        return  # often any id at all: it is never looked at
    if tokenizer.specials.get(END, said) != said:
        raise UserError(f"{where}: {END} is id {tokenizer.specials[END]}, but config.json has {key} {said}; {_OTHER}")
    if said not in tokenizer.specials.values():
        what = f"the piece {tokenizer.piece(said)!r}" if said < tokenizer.size else "beyond the vocabulary"
        raise UserError(f"{where}: config.json has {key} {said}, which is {what}, not a special token; {_OTHER}")


def _name(value: Any) -> str | None:
    """The name of a token, which these files write in two ways."""
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else None


def _renamed(tokenizer: Tokenizer, old: str, new: str) -> Tokenizer:
    data = json.loads(tokenizer.to_json())
    data["specials"] = [new if name == old else name for name in data["specials"]]
    return tokenizer_from_json(json.dumps(data), "the tokenizer")


def check_added(beside: Said) -> None:
    """Refuses tokens that were added as ordinary text: there a text that spells one has its id, here it has not."""
    listed, decoder = beside.whole.get("added_tokens"), beside.settings.get("added_tokens_decoder")
    found = {
        WHOLE: listed if isinstance(listed, list) else [],
        SETTINGS: list(decoder.values()) if isinstance(decoder, dict) else [],
    }
    for name, entries in found.items():
        for one in entries:
            if isinstance(one, dict) and one.get("special") is False:
                raise UserError(
                    f"{beside.folder / name}: the token {one.get('content')!r} was added as ordinary text, which "
                    "cannot be read: texts that spell it would get other ids here; import a folder whose added tokens "
                    "are special"
                )


def note_begin(beside: Said, notes: list[str]) -> None:
    """Says if the tokenizer puts a token before every text by itself, which ours does not."""
    step = beside.whole.get("post_processor")
    template = isinstance(step, dict) and step.get("type") == "TemplateProcessing" and "SpecialToken" in str(step)
    if template or beside.settings.get("add_bos_token") is True:
        notes.append(
            f"{beside.folder}: its tokenizer puts special tokens round every text by itself; here {END} stands before "
            "a document and nothing else is added, so the ids of a text alone differ by them"
        )
