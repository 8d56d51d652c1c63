"""A sentence's states as one vector: their maximum, mean and minimum, and a weighted mean whose weights are learned
(McCann et al. 2017, section 5).

    β = softmax(X v + d) over the words,   x_self = Xᵀ β,   pooled = [max X; mean X; min X; x_self]

Padding has no part in any of them. A sentence without words is zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from foretext.errors import UserError

Pool = Literal["max", "mean", "min", "attentive"]
POOLS: tuple[Pool, ...] = get_args(Pool)


def check_pools(pools: Sequence[Pool], where: str) -> None:
    wrong = [pool for pool in pools if pool not in POOLS]
    if wrong or not pools or len(set(pools)) != len(pools):
        raise UserError(f"{where} must be some of {', '.join(POOLS)}, each once, not {', '.join(pools) or 'none'}")


class Pooling(nn.Module):
    def __init__(self, width: int, pools: Sequence[Pool] = POOLS) -> None:
        super().__init__()
        self.pools = tuple(pools)
        self.width = width * len(self.pools)
        self.attend = nn.Linear(width, 1) if "attentive" in self.pools else None  # v, d

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """[B, pools · D]."""
        return torch.cat([self._pooled(pool, x_BTD, mask_BT) for pool in self.pools], dim=1)

    def _pooled(self, pool: Pool, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        if pool == "attentive":
            assert self.attend is not None
            weights_BT = masked_softmax(self.attend(x_BTD).squeeze(2), mask_BT)
            return torch.bmm(weights_BT[:, None], x_BTD).squeeze(1)
        if pool == "mean":
            return (x_BTD * mask_BT[..., None]).sum(dim=1) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        if not x_BTD.shape[1]:
            return x_BTD.new_zeros(len(x_BTD), x_BTD.shape[2])
        lowest = -torch.inf if pool == "max" else torch.inf
        hidden_BTD = x_BTD.masked_fill(~mask_BT[..., None], lowest)
        found_BD = hidden_BTD.amax(dim=1) if pool == "max" else hidden_BTD.amin(dim=1)
        return found_BD.masked_fill(~mask_BT.any(dim=1)[:, None], 0.0)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Over the last axis, of what the mask (of a shape that fits) names; zeros elsewhere, also where it names
    nothing."""
    lowest = torch.finfo(scores.dtype).min  # not −∞, of which alone a softmax is no number
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1) * mask
