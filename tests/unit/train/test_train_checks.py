"""A configuration that was altered by hand is refused where it is read, naming the file."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from complaints import refused

from foretext.nn.recurrent.awd_lstm import AwdLstmConfig
from foretext.runs.run_config import FinetuneConfig, RunConfig, check_saved
from foretext.systems.gpt import SIZES
from foretext.tasks.family import TaskConfig

SIZE = SIZES["tiny"]
SOUND = FinetuneConfig(
    RunConfig("finetune"),
    dataclasses.replace(SIZE.model, vocabulary=300),
    training=SIZE.finetuning,
    transfer=SIZE.transfer,
    task=TaskConfig(kind="classification", labels=("a", "b")),
)


@pytest.mark.parametrize(
    ("section", "changes", "parts"),
    [
        ("model", {"heads": 0}, ("model.heads", "0")),
        ("model", {"vocabulary": 0}, ("model.vocabulary", "0")),
        ("model", {"dropout": 1.0}, ("training.dropout", "1.0")),
        ("training", {"batch_size": 0}, ("training.batch_size", "0")),
        ("transfer", {"rate_decay": 0.0}, ("transfer.rate_decay", "0.0")),
        ("task", {"kind": "zzz"}, ("task.kind", "'zzz'", "classification, entailment")),
    ],
    ids=str,
)
def test_an_altered_configuration(section: str, changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    check_saved(SOUND, "run/config.toml")
    altered = dataclasses.replace(SOUND, **{section: dataclasses.replace(getattr(SOUND, section), **changes)})
    with refused("run/config.toml", "copy", *parts):
        check_saved(altered, "run/config.toml")


def test_what_dropout_may_be_is_the_models_to_say() -> None:
    """An AWD-LSTM's is a multiplier; what its head drops of a state is what its language model drops."""
    model = AwdLstmConfig(vocabulary=300, dropout=1.0)
    training = dataclasses.replace(SIZE.finetuning, dropout=1.0)
    check_saved(dataclasses.replace(SOUND, model=model, training=training), "config.toml")
    assert (model.head_dropout, SIZE.model.head_dropout) == (0.4, SIZE.model.dropout)
    with refused("config.toml", "training.dropout=2.0", "model.weight_dropout=0.5"):
        check_saved(dataclasses.replace(SOUND, model=dataclasses.replace(model, dropout=2.0)), "config.toml")
