"""Learning rate as a function of how much of the budget is spent, so that a budget in minutes ends like one in
steps."""

from __future__ import annotations

import math

from foretext.systems.base import TrainingConfig


def rate_at(config: TrainingConfig, progress: float, step: int) -> float:
    """The rate at `progress` (0 … 1 of the budget). Warm-up counts steps if `warmup_steps` is set, the budget
    otherwise."""
    progress = min(max(progress, 0.0), 1.0)
    if config.warmup_steps:
        warm = min(1.0, (step + 1) / config.warmup_steps)
    elif config.warmup:
        # The first step of a budget in minutes stands at progress 0; a rate of exactly 0 would waste it.
        warm = min(1.0, max(progress, 1e-3) / config.warmup)
    else:
        warm = 1.0
    return config.rate * min(warm, _shape(config, progress))


def _shape(config: TrainingConfig, progress: float) -> float:
    start = 0.0 if config.warmup_steps else config.warmup
    rest = max(0.0, (progress - start) / (1.0 - start)) if start < 1.0 else 0.0
    if config.schedule == "constant":
        falling = 1.0
    elif config.schedule == "linear":
        falling = 1.0 - rest
    else:
        falling = 0.5 * (1.0 + math.cos(math.pi * rest))
    return config.final_rate + (1.0 - config.final_rate) * falling
