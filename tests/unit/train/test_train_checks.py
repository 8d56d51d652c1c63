"""A configuration that was altered by hand is refused where it is read, naming the file."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from foretext.errors import UserError
from foretext.systems.gpt import SIZES
from foretext.train.checks import check_saved
from foretext.train.saved import TaskConfig

SIZE = SIZES["tiny"]
SOUND: dict[str, Any] = {
    "model": dataclasses.replace(SIZE.model, vocabulary=300),
    "training": SIZE.finetuning,
    "transfer": SIZE.transfer,
    "task": TaskConfig(kind="classification", labels=("a", "b")),
}


@pytest.mark.parametrize(
    ("section", "changes", "words"),
    [
        ("model", {"heads": 0}, "model.heads must be at least 1"),
        ("model", {"vocabulary": 0}, "model.vocabulary must be at least 1"),
        ("training", {"batch_size": 0}, "training.batch_size must be at least 1"),
        ("transfer", {"rate_decay": 0.0}, "transfer.rate_decay must be above 0"),
        ("task", {"kind": "zzz"}, "task.kind 'zzz' is none of classification, entailment"),
    ],
    ids=str,
)
def test_an_altered_configuration(section: str, changes: dict[str, Any], words: str) -> None:
    check_saved(SOUND, "run/config.toml")
    altered = SOUND | {section: dataclasses.replace(SOUND[section], **changes)}
    with pytest.raises(UserError, match=rf"^run/config\.toml: {words}.*; restore it from a copy$"):
        check_saved(altered, "run/config.toml")
