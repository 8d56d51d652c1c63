"""Settings that no run can work with, refused before any work is done."""

from __future__ import annotations

import math

from foretext.errors import UserError
from foretext.systems.base import TrainingConfig

LEAST = {"batch_size": 1, "micro_batch": 0, "warmup_steps": 0, "evaluations": 0, "bad_steps": 0}


def check_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 63:
        raise UserError(f"--seed must be at least 0 and below 2**63, not {seed}")


def check_training(training: TrainingConfig) -> None:
    for name, least in LEAST.items():
        if getattr(training, name) < least:
            raise UserError(f"training.{name} must be at least {least}, not {getattr(training, name)}")
    for name in ("weight_decay", "clip", "save_seconds"):
        if not 0.0 <= getattr(training, name) < math.inf:
            raise UserError(f"training.{name} must be 0 or more, not {getattr(training, name)}")
    for name in ("beta1", "beta2", "warmup", "dropout"):
        if not 0.0 <= getattr(training, name) < 1.0:
            raise UserError(f"training.{name} must be at least 0 and below 1, not {getattr(training, name)}")
    for name in ("rate", "epsilon"):
        if not 0.0 < getattr(training, name) < math.inf:
            raise UserError(f"training.{name} must be above 0, not {getattr(training, name)}")
    if not 0.0 <= training.final_rate <= 1.0:
        raise UserError(f"training.final_rate must be between 0 and 1, not {training.final_rate}")
