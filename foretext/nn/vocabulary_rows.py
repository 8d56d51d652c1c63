"""What is kept for each piece of a vocabulary (embeddings, an output bias), for another vocabulary, or for more pieces.

As in ULMFiT's released code (Howard and Ruder 2018): a piece that was known keeps its row, a new one gets the mean of
all old rows, so that it begins as a piece of no particular meaning and not as noise. fastai does the same with the
bias of the output layer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn


def carried_rows(rows_V: Tensor, old_ids: np.ndarray) -> Tensor:
    """[new size, …] of [old size, …]: the rows of `old_ids`, and the mean of all where that is negative."""
    ids = torch.from_numpy(np.asarray(old_ids, dtype=np.int64)).to(rows_V.device)
    assert int(ids.max()) < len(rows_V), f"row {int(ids.max())} of {len(rows_V)}"
    rows_V = rows_V.detach()
    taken = rows_V[ids.clamp(min=0)]
    taken[ids < 0] = rows_V.mean(0)
    return taken


def grown(tokens: nn.Embedding, size: int, draw: Callable[[Tensor], object]) -> nn.Embedding:
    """The embeddings with rows added up to `size`, which `draw` fills as a trunk draws its own; the old ones stay."""
    old_VD = tokens.weight.detach()
    fresh_VD = torch.empty(size - len(old_VD), old_VD.shape[1], dtype=old_VD.dtype, device=old_VD.device)
    draw(fresh_VD)
    return nn.Embedding.from_pretrained(torch.cat([old_VD, fresh_VD]), freeze=False)
