"""What is kept for each piece of a vocabulary (embeddings, an output bias), for another vocabulary.

As in ULMFiT's released code (Howard and Ruder 2018): a piece that was known keeps its row, a new one gets the mean of
all old rows, so that it begins as a piece of no particular meaning and not as noise. fastai does the same with the
bias of the output layer.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def carried_rows(rows_V: Tensor, old_ids: np.ndarray) -> Tensor:
    """[new size, …] of [old size, …]: the rows of `old_ids`, and the mean of all where that is negative."""
    ids = torch.from_numpy(np.asarray(old_ids, dtype=np.int64)).to(rows_V.device)
    assert int(ids.max()) < len(rows_V), f"row {int(ids.max())} of {len(rows_V)}"
    rows_V = rows_V.detach()
    taken = rows_V[ids.clamp(min=0)]
    taken[ids < 0] = rows_V.mean(0)
    return taken
