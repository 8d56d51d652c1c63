"""The transfer plan: how pre-trained weights become a fine-tuned model.

GPT trains everything at one rate at once; ULMFiT lowers the rate by depth and thaws one group of layers an epoch.
Both are settings of one plan, so either way of transfer works on any trunk. A trunk names its layer groups from the
bottom (embeddings) to the top; the task's head is one group more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TransferPlan:
    """What is carried over, what is frozen and when it thaws, the rate of each layer group, and the auxiliary
    weight."""

    layers: int = -1  # blocks taken from the pre-trained model, counted from the bottom; −1 takes all
    rate_decay: float = 1.0  # each group learns at 1/rate_decay of the rate of the group above (ULMFiT: 2.6)
    thaw: Literal["all", "gradual"] = "all"  # gradual: the head first, then one group more each epoch
    lm_weight: float = 0.5  # λ in L3 = L2 + λ·L1
    pooling: Literal["extract", "mean"] = "extract"  # mean: the mean of all states is added to the extract token's
    head: Literal["random", "probe"] = "random"  # W_y at the start; probe: fitted to the states before anything learns

    def rate_factor(self, group: int, groups: int) -> float:
        """Factor on the learning rate of layer group `group` of `groups` (the head is the last one)."""
        return float(self.rate_decay ** -(groups - 1 - group))

    def thaws_at(self, group: int, groups: int) -> int:
        """Epoch from which `group` learns."""
        return 0 if self.thaw == "all" else groups - 1 - group
