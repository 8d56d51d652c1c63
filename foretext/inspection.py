"""Looking into a run directory without loading its weights: `info` and `tokens`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from foretext.config import to_plain
from foretext.errors import UserError
from foretext.systems import system_named
from foretext.train.rundir import RunDirectory
from foretext.train.saved import load_tokenizer, read_config

Pieces = list[tuple[int, str]]


def pieces_of(run: RunDirectory, text: str) -> Pieces:
    """Ids and pieces of a text."""
    tokenizer = load_tokenizer(run, read_config(run)["run"])
    return [(number, tokenizer.piece(number)) for number in tokenizer.encode(text)]


def sequences_of(run: RunDirectory, texts: Sequence[str]) -> list[Pieces]:
    """The transformed sequences that a fine-tuned run makes of `texts`; none for a pre-trained run."""
    sections = read_config(run)
    info = sections["run"]
    if info.kind != "finetune":
        return []
    kind = sections["task"].kind
    wanted = {"classification": "one text", "entailment": "two texts", "similarity": "two texts"}
    fits = {"classification": (1, 1), "entailment": (2, 2), "similarity": (2, 2), "regression": (1, 2)}
    least, most = fits.get(kind, (3, len(texts)))
    if not least <= len(texts) <= max(least, most):
        raise UserError(f"{kind} takes {wanted.get(kind, 'a context and its choices')}, not {len(texts)}")
    tokenizer = load_tokenizer(run, info)
    layout = system_named(info.system).build_layout(dict(tokenizer.specials), sections["model"].context, info.direction)
    made = layout.sequences(kind, [tokenizer.encode(text) for text in texts])
    return [[(number, tokenizer.piece(number)) for number in sequence.ids] for sequence in made]


def describe_run(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """Configuration, progress and files of a run."""
    sections = read_config(run)
    described = {name: to_plain(section) for name, section in sections.items()}
    if run.has("training/position.json"):
        described["position"] = json.loads(run.read("training/position.json"))
    validations = [record["validation"] for record in run.metrics() if "validation" in record]
    if validations:
        described["last validation"] = {name: value for name, value in validations[-1].items() if name != "main"}
    described["files"] = run.sizes()
    return described
