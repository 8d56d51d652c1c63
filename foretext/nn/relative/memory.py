"""What Transformer-XL and XLNet attend to beside the text at hand: a memory, by distance.

The memory is what the last tokens left behind, layer by layer, and which places of it hold anything. Places hold
something at the right end of each row, so that the newest stands beside the first token that is read next, and a key's
column says how far it is from a query whatever the length of the rows. A memory is kept as a tuple of [B, M, …]
tensors, one or several a layer, and `real_BM`, true where a token was. Without gradients: what is kept was computed,
and is no longer learned from.

Relative positions by distance are as Transformer-XL (Dai et al. 2019) has them and XLNet after it: the sinusoids of
distances, and the shift that turns a score for each distance into one for each key. A query at place i among Q, after M
places of memory, is M + i − j from key j among K = M + Q. Scores against distances are one product for all queries,
whose columns stand for distances from the farthest to the nearest; row by row they are then moved into place. Moving is
a view over the same numbers, where gathering would read and write a list of places as large as the scores.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.errors import UserError

LONGEST_MEMORY = 1_000_000  # far beyond what fits


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── distances ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_width(width: int) -> None:
    """UserError for one that `sinusoids` cannot have."""
    if width % 2:
        raise UserError(f"model.width must be even, half of it for sines of distances, half for cosines, not {width}")


def distances(queries: int, keys: int, device: torch.device, *, ahead: bool = False) -> Tensor:
    """What the columns of the scores stand for: keys − 1, …, 0, and where queries see what is ahead of them, on to
    −(queries − 1)."""
    return torch.arange(keys - 1, -queries if ahead else -1, -1, device=device)


def sinusoids(distances_R: Tensor, width: int) -> Tensor:
    """[R, width], which is even: sin(distance · f) of half as many frequencies f, then cos of them, as both papers'
    code has them (the Transformer's paper has them in turn)."""
    dtype = torch.get_default_dtype()
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, device=distances_R.device, dtype=dtype) / width)
    angles_RF = distances_R.to(dtype)[:, None] * frequencies
    return torch.cat((angles_RF.sin(), angles_RF.cos()), dim=-1)


def by_key(scores_BHQR: Tensor, keys: int) -> Tensor:
    """[B, H, Q, keys] out of [B, H, Q, R]: row i, column j is row i, column Q − 1 − i + j, the distance of key j from
    query i, if the columns are those of `distances`. Where they end at 0, places ahead of a query hold numbers of no
    meaning, which the caller masks."""
    batch, heads, queries, columns = scores_BHQR.shape
    # With one column before it, a row begins one place later in the row above: read with one column less, from the
    # second row on, each row has moved by one place more than the last.
    wide = F.pad(scores_BHQR, (1, 0))
    moved = wide.view(batch, heads, columns + 1, queries)[:, :, 1:].reshape(batch, heads, queries, columns)
    return moved[..., :keys]
