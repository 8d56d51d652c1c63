"""Going on with a changed configuration: the difference is shown, and what cannot change is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foretext.config import difference
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
    "task.texts",  # follows from the rows, which are the same; runs of earlier versions do not have it
)


def agreed_sections(
    old: dict[str, Any], new: dict[str, Any], where: Path, note: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """`new` if it differs from `old` in changeable keys only; `note` gets a line for each of these, old → new. The
    tokenizer's keys are known only once it is there."""
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
            note(f"going on with a changed setting: {change}")
    return new
