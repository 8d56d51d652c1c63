"""Learning rate as a function of how much of the budget is spent, so that a budget in minutes ends like one in steps.

Linear warm-up to the peak, then from the peak down to the end of the budget. Nothing is remembered from step to step:
the rate depends on the position alone, so that a run that goes on has the rates of one that was never stopped.

Two schedules of the recurrent systems do not look at the budget. `halving` (CoVe's): the rate stays until a validation
loss is higher than the one before it, is halved then, and once more after every epoch; how often it has been is part of
the position. `root` (cross-view training's released code): 1 / (1 + .005 √step) of the rate, the warm-up on top.
"""

from __future__ import annotations

import math

from foretext.systems.base import TrainingConfig

ROOT_DECAY = 0.005


def rate_at(config: TrainingConfig, progress: float, step: int, halvings: int = 0) -> float:
    """The rate at `progress` (0 … 1 of the budget). Warm-up counts steps if `warmup_steps` is set, the budget
    otherwise."""
    progress = min(max(progress, 0.0), 1.0)
    peak = config.rate * 0.5**halvings
    if config.schedule == "root":
        peak /= 1.0 + ROOT_DECAY * math.sqrt(step)
    if config.warmup_steps:
        warm = min(1.0, (step + 1) / config.warmup_steps)
        rest = _rest_after_steps(progress, step, config.warmup_steps - 1)
    else:
        # The first step of a budget in minutes stands at progress 0; a rate of exactly 0 would waste it.
        warm = min(1.0, max(progress, 1e-3) / config.warmup) if config.warmup else 1.0
        rest = max(0.0, (progress - config.warmup) / (1.0 - config.warmup)) if config.warmup < 1.0 else 0.0
    return peak * min(warm, _shape(config, rest))


def _rest_after_steps(progress: float, step: int, peak: int) -> float:
    """The part (0 … 1) of the way from the step `peak` to the end of the budget.

    Where that step stood in the budget is reckoned from the steps so far, at progress · peak / step: exactly for a
    budget in steps; for tokens and minutes as if steps had been equally long. It is 0 at the peak, 1 when the budget
    is spent, and never falls, however long the steps are.
    """
    return progress * (step - peak) / (step - progress * peak) if step > peak else 0.0


def _shape(config: TrainingConfig, rest: float) -> float:
    if config.schedule in ("constant", "halving", "root"):
        falling = 1.0
    elif config.schedule == "linear":
        falling = 1.0 - rest
    else:
        falling = 0.5 * (1.0 + math.cos(math.pi * rest))
    return config.final_rate + (1.0 - config.final_rate) * falling
