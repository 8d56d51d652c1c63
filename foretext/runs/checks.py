"""Settings that no run can work with, refused before any work is done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretext.config import Setting, setting_of
from foretext.errors import UserError
from foretext.plan import TransferPlan
from foretext.systems.base import StartConfig, TokenizerConfig, TrainingConfig
from foretext.tasks.families import KINDS

LEAST = {"batch_size": 1, "micro_batch": 0, "warmup_steps": 0, "evaluations": 0, "bad_steps": 0}
MOST_PIECES = 10_000_000
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


def check_tokenizer(tokenizer: TokenizerConfig) -> None:
    if tokenizer.size > MOST_PIECES:  # the least depends on the kind and is checked where it is known
        raise UserError(f"tokenizer.size must be at most {MOST_PIECES:,}, not {tokenizer.size}")
    if tokenizer.sample_megabytes < 1:
        raise UserError(f"tokenizer.sample_megabytes must be at least 1, not {tokenizer.sample_megabytes}")


def check_training(training: TrainingConfig) -> None:
    """All but `dropout`, which the model it is of checks: `ModelConfig.check`."""
    for name, least in LEAST.items():
        if getattr(training, name) < least:
            raise UserError(f"training.{name} must be at least {least}, not {getattr(training, name)}")
    for name in ("weight_decay", "clip", "save_seconds"):
        if not 0.0 <= getattr(training, name) < math.inf:
            raise UserError(f"training.{name} must be 0 or more, not {getattr(training, name)}")
    for name in ("beta1", "beta2", "warmup"):
        if not 0.0 <= getattr(training, name) < 1.0:
            raise UserError(f"training.{name} must be at least 0 and below 1, not {getattr(training, name)}")
    for name in ("rate", "epsilon"):
        if not 0.0 < getattr(training, name) < math.inf:
            raise UserError(f"training.{name} must be above 0, not {getattr(training, name)}")
    if not 0.0 <= training.final_rate <= 1.0:
        raise UserError(f"training.final_rate must be between 0 and 1, not {training.final_rate}")


def check_start(start: StartConfig) -> None:
    if not 0.0 < start.rate_decay < math.inf:
        raise UserError(f"start.rate_decay must be above 0, not {start.rate_decay}")


def check_valid_fraction(fraction: float) -> None:
    if not 0.0 < fraction < 1.0:
        raise UserError(f"data.valid_fraction must be above 0 and below 1, not {fraction}")


def check_transfer(transfer: TransferPlan) -> None:
    if not 0.0 <= transfer.lm_weight < math.inf:
        raise UserError(f"lm_weight must be 0 or more, not {transfer.lm_weight}")
    if not 0.0 < transfer.rate_decay < math.inf:
        raise UserError(f"transfer.rate_decay must be above 0, not {transfer.rate_decay}")
    reader = transfer.reader
    for name, least in {"penalty": 0, "vectors": 0, "characters": 0, "cells": 1, "layers": 1}.items():
        if not least <= getattr(reader, name) < math.inf:
            raise UserError(f"transfer.reader.{name} must be at least {least}, not {getattr(reader, name)}")
    if transfer.model == "recurrent" and not (
        reader.mix or reader.vectors or reader.characters or reader.beside != "none"
    ):
        raise UserError(
            "transfer.reader: the task's model reads nothing; take mix=true or beside=ends, or vectors or characters "
            "above 0"
        )
    if reader.twice and not reader.mix:
        raise UserError("transfer.reader.twice: another mixture needs a first one; take mix=true, or twice=false")
    if transfer.pooling == "concat" and transfer.head != "random":
        raise UserError(
            f"transfer.pooling=concat has a head of two blocks, which starts at random: transfer.head={transfer.head} "
            "cannot be; give transfer.head=random"
        )


def check_task(kind: str) -> None:
    if kind not in KINDS:
        raise UserError(f"task.kind {kind!r} is none of {', '.join(KINDS)}")


def check_saved(sections: Mapping[str, Any], where: str) -> None:
    """The same for the configuration of a run, which may have been altered since; `where` is its file."""
    try:
        sections["model"].check()
        if sections["model"].vocabulary < 1:
            raise UserError(f"model.vocabulary must be at least 1, not {sections['model'].vocabulary}")
        check_training(sections["training"])
        if "task" in sections:
            check_transfer(sections["transfer"])
            check_task(sections["task"].kind)
        if "start" in sections:
            check_start(sections["start"])
        if "pooling" in sections:
            sections["pooling"].check()
    except UserError as error:
        raise UserError(f"{where}: {error}; restore it from a copy") from None
