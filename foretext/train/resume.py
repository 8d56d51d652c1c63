"""What may be set: what follows from something else is refused, and, when a run goes on, what cannot change; what can
is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretext.config import Change, Setting, difference, setting_of
from foretext.errors import UserError

# Keys of config.toml that follow from something else, and what says it.
DERIVED = {
    "model.vocabulary": "it follows from the tokenizer; use --set tokenizer.size=…",
    "model.dropout": "it follows from the training; use --set training.dropout=…",
    "data.inputs": "name the text before the options",
    "data.source": "use --source FILE",
    "data.target": "use --target FILE",
    "data.vectors": "use --vectors FILE",
    "data.starts_from": "use --from RUN",
}
# What may differ when a run goes on: nothing that its weights so far depend on.
CHANGEABLE = (
    "training.save_seconds",
    "training.evaluations",
    "training.log_samples",
    "training.bad_steps",
    "training.rate",
    "training.final_rate",
    "training.micro_batch",
    "budget.",
    "run.foretext",
    "task.texts",  # follow from the rows and the text, which are the same; runs of earlier versions do not have them
    "task.sentences",
)


def check_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 63:
        raise UserError(f"seed must be at least 0 and below 2**63, not {seed}")


def check_sets(sets: Sequence[str | Setting], options: Mapping[str, str] | None = None) -> None:
    """Refuses to set a key that follows from something else, or that one of `options` (key → its option) says."""
    for setting in map(setting_of, sets):
        if setting.key in DERIVED:
            raise UserError(f"{setting.where}: {DERIVED[setting.key]}")
        if options and setting.key in options:
            raise UserError(f"{setting.where}: {options[setting.key]} the same; leave one of them out")


def check_vectors(sets: Sequence[str | Setting], vectors: int, width: int, file: str | Path) -> None:
    """Refuses `model.vectors` (what it is with `sets` put in) where these say another than the width of the vectors in
    `file`, which it follows from."""
    for setting in map(setting_of, sets):
        if setting.key == "model.vectors" and vectors != width:
            raise UserError(f"{setting.where}: the vectors in {file} have {width} numbers; leave it out")


def agreed_sections(
    old: dict[str, Any], new: dict[str, Any], where: Path, note: Callable[[Change], None] | None = None
) -> dict[str, Any]:
    """`new` if it differs from `old` in changeable keys only; `note` gets each of these. The tokenizer's keys are known
    only once it is there."""
    new = dict(new)
    new["run"] = dataclasses.replace(new["run"], tokenizer=old["run"].tokenizer)
    new["model"] = dataclasses.replace(new["model"], vocabulary=old["model"].vocabulary)
    changes = difference(old, new)
    for change in changes:
        if not change.key.startswith(CHANGEABLE):
            raise UserError(
                f"{where}: {change.key} was {change.old!r} and cannot become {change.new!r} when going on; "
                "leave it out, or start a new run"
            )
    if note is not None:
        for change in changes:
            note(change)
    return new


def going_on(change: Change) -> str:
    return f"going on with a changed setting: {change}"


def finished(where: Path, changes: Sequence[Change], then: str = "") -> str:
    """What is said of a run that has nothing left to do, though settings may have been given that it would take."""
    given = ", ".join(str(change) for change in changes if change.key != "run.foretext")
    if not given:
        return f"{where} is finished; nothing to do{then}"
    return f"{where} is finished, so what is given now is not used ({given}){then}"
