"""The causal language model: maximise Σ log P(u_i | u_{i-k} … u_{i-1}) (GPT's L1).

An example is a window of consecutive token ids; each id except the first is a target. Right to left is the same
objective over the reversed window, so models of the two directions differ only in the order of reading.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from foretext.batch import IGNORE, Batch, LossSum, Outcome, padded
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Direction, Draw, GrowingConfig, Objective, at_targets, growing_lengths

LEAST_WINDOW = 8  # tokens in the shortest of growing windows


@dataclass(frozen=True)
class CausalConfig(GrowingConfig):
    """[objective] of a causal system."""


class CausalObjective(Objective):
    """L1 over windows of text, left to right or right to left."""

    perplexity = ("lm",)

    def __init__(self, direction: Direction = "forward", growing: GrowingConfig | None = None) -> None:
        super().__init__()
        self.direction = direction
        self.growing = growing or CausalConfig()
        self.weights = {"lm": 1.0}

    def lengths(self, context: int) -> list[tuple[float, int]]:
        return growing_lengths(self.growing, context, LEAST_WINDOW)

    def make(self, examples: Sequence[np.ndarray], draw: Draw | None = None) -> Batch:
        """Windows (shorter ones are padded) as inputs and shifted targets."""
        ids, real = padded([window[:: 1 if self.direction == "forward" else -1] for window in examples])
        targets = ids[:, 1:].masked_fill(~real[:, 1:], IGNORE)
        return Batch(ids[:, :-1].contiguous(), None if bool(real.all()) else real[:, 1:], targets_BT=targets)

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        hidden = trunk(batch, state)
        return Outcome({"lm": self.lm_loss(trunk, batch, hidden.top)}, hidden.state)

    def lm_loss(self, trunk: Trunk, batch: Batch, top_BTD: Tensor) -> LossSum:
        """The loss of the targets, each predicted from its state."""
        states_ND, targets_N = at_targets(batch, top_BTD)
        return LossSum(trunk.output_layer().loss(states_ND, targets_N), float(len(targets_N)))
