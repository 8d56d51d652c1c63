"""A configuration that was altered by hand is refused where it is read, naming the file."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from foretext.errors import UserError
from foretext.nn.awd_lstm import AwdLstmConfig
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
        ("model", {"dropout": 1.0}, "training.dropout must be at least 0 and below 1"),
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


def test_what_dropout_may_be_is_the_models_to_say() -> None:
    """An AWD-LSTM's is a multiplier; what its head drops of a state is what its language model drops."""
    model = AwdLstmConfig(vocabulary=300, dropout=1.0)
    check_saved(SOUND | {"model": model, "training": dataclasses.replace(SIZE.finetuning, dropout=1.0)}, "config.toml")
    assert (model.head_dropout, SIZE.model.head_dropout) == (0.4, SIZE.model.dropout)
    with pytest.raises(UserError, match=r"training\.dropout=2\.0 times model\.weight_dropout=0\.5 is 1: nothing"):
        check_saved(SOUND | {"model": dataclasses.replace(model, dropout=2.0)}, "config.toml")
