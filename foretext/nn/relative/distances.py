"""Relative positions by distance, as Transformer-XL (Dai et al. 2019) has them and XLNet after it: the sinusoids of
distances, and the shift that turns a score for each distance into one for each key.

A query at place i among Q, after M places of memory, is M + i − j from key j among K = M + Q. Scores against distances
are one product for all queries, whose columns stand for distances from the farthest to the nearest; row by row they
are then moved into place. Moving is a view over the same numbers, where gathering would read and write a list of
places as large as the scores.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretext.errors import UserError


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
    wide = nn.functional.pad(scores_BHQR, (1, 0))
    moved = wide.view(batch, heads, columns + 1, queries)[:, :, 1:].reshape(batch, heads, queries, columns)
    return moved[..., :keys]
