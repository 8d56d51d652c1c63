"""The causal language model: maximise Σ log P(u_i | u_{i-k} … u_{i-1}) (GPT's L1).

An example is a window of consecutive token ids; each id but the first is a target. Right to left is the same
objective over the reversed window, so a model of one direction differs from the other in nothing but the order in
which it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from foretext.batch import IGNORE, Batch, LossSum, Outcome, padded
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Direction, Draw, Objective


@dataclass(frozen=True)
class CausalConfig:
    """[objective] of a causal system: there is nothing to set."""

    def check(self) -> None:
        pass


class CausalObjective(Objective):
    """L1 over windows of text, left to right or right to left."""

    perplexity = ("lm",)

    def __init__(self, direction: Direction = "forward") -> None:
        super().__init__()
        self.direction = direction
        self.weights = {"lm": 1.0}

    def make(self, examples: Sequence[np.ndarray], draw: Draw | None = None) -> Batch:
        """Windows (shorter ones are padded) into inputs and shifted targets."""
        windows = [window if self.direction == "forward" else window[::-1] for window in examples]
        ids, real = padded(windows)
        targets = ids[:, 1:].masked_fill(~real[:, 1:], IGNORE)
        mask = None if bool(real.all()) else real[:, 1:]
        return Batch(ids[:, :-1].contiguous(), mask, targets_BT=targets)

    def counts(self, batch: Batch) -> dict[str, float]:
        assert batch.targets_BT is not None
        return {"lm": float((batch.targets_BT != IGNORE).sum())}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        hidden = trunk(batch, state)
        return Outcome({"lm": self.lm_loss(trunk, batch, hidden.top)}, hidden.state)

    def lm_loss(self, trunk: Trunk, batch: Batch, top_BTD: Tensor) -> LossSum:
        """Of the targets, each told from its state."""
        assert batch.targets_BT is not None
        targets, top = batch.targets_BT.reshape(-1), top_BTD.flatten(0, 1)
        wanted = targets != IGNORE
        if not bool(wanted.all()):
            targets, top = targets[wanted], top[wanted]
        return LossSum(trunk.output_layer().loss(top, targets), float(len(targets)))
