"""Going on with a changed configuration: the difference is shown, and what cannot change is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foretext.config import Change, difference
from foretext.errors import UserError

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
