"""The memory of Transformer-XL and XLNet: what the last tokens left behind, layer by layer, and which places of it hold
anything.

Places hold something at the right end of each row, so that the newest stands beside the first token that is read next,
and a key's column says how far it is from a query whatever the length of the rows. A memory is kept as a tuple of
[B, M, …] tensors, one or several a layer, and `real_BM`, true where a token was. Without gradients: what is kept was
computed, and is no longer learned from.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LONGEST_MEMORY = 1_000_000  # far beyond what fits


def remember(
    kept: tuple[Tensor, ...], real_BM: Tensor, new: tuple[Tensor, ...], mask_BT: Tensor | None, length: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The last `length` real places of what was kept, [B, M, …], and of what is new, [B, T, …], in each row. Padding of
    what is new may stand anywhere; it is left out. `mask_BT` None: all of it is real."""
    return last_of(tuple(behind(old, added) for old, added in zip(kept, new, strict=True)), real_BM, mask_BT, length)


def behind(old_BM: Tensor, new_BT: Tensor) -> Tensor:
    """What is new behind what was kept, [B, M + T, …]."""
    return torch.cat([old_BM, new_BT], dim=1) if old_BM.shape[1] else new_BT


def last_of(
    joined: tuple[Tensor, ...], real_BM: Tensor, mask_BT: Tensor | None, length: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The same of what has been put together already, [B, M + T, …]."""
    joined = tuple(states.detach() for states in joined)
    rows, width = real_BM.shape[0], joined[0].shape[1] - real_BM.shape[1]
    real = F.pad(real_BM, (0, width), value=True) if mask_BT is None else torch.cat([real_BM, mask_BT], dim=1)
    if mask_BT is not None and not bool(mask_BT.all()):
        # Real places behind the others, in their order.
        order = torch.argsort(real.int(), dim=1, stable=True)
        real = real.gather(1, order)
        joined = tuple(states[torch.arange(rows, device=order.device)[:, None], order] for states in joined)
    first = max(0, real.shape[1] - length)
    if not bool(real[:, first:].all()):
        first = max(first, int((~real).all(0).sum()))  # what no row has is not kept
    return tuple(states[:, first:] for states in joined), real[:, first:]


def hidden_memory(real_BM: Tensor) -> Tensor | None:
    """What is added to the scores of the memory's places, [B, 1, 1, M]: −∞ where it holds nothing; None: all hold
    something."""
    if bool(real_BM.all()):
        return None
    empty = torch.zeros(real_BM.shape, device=real_BM.device).masked_fill_(~real_BM, -torch.inf)
    return empty[:, None, None, :]
