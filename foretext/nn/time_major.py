"""The real tokens of a batch step by step, as a recurrent layer reads them.

A fused LSTM kernel goes on over padding: right of a row it would carry the state past the row's end, left of it it
would not begin with the state that it was given. So padding is taken out here: the first real token of each row that
has one, then the second of each, and so on, rows with more tokens first. That order is what torch's kernel for packed
sequences wants, it leaves each row's own last state behind, and where all rows are equally long it is a plain
[T, B, D] block for the quicker kernel. The side and the amount of padding then cannot change anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foretext.batch import Batch


@dataclass(frozen=True)
class TimeMajor:
    """Where the N real tokens of a batch are, in the order of their time steps."""

    rows: int
    length: int
    ids_N: Tensor
    kept: int  # rows that hold a token
    sizes_S: Tensor  # on the CPU: for each time step, how many rows have a token there
    even: bool  # whether those rows are all equally long
    flat_N: Tensor | None = None  # index of each token in the flattened [B · T]; None if nothing is padded
    row_N: Tensor | None = None  # row of each token
    kept_R: Tensor | None = None  # the rows that hold a token, in the order of a time step

    def begin(self, state_BH: Tensor) -> Tensor:
        """The states [1, R, H] that the kernel starts from."""
        return (state_BH if self.kept_R is None else state_BH.index_select(0, self.kept_R))[None]

    def end(self, before_BH: Tensor, after_1RH: Tensor) -> Tensor:
        """Each row's own last state; that of a row without a token is the one before."""
        return after_1RH[0] if self.kept_R is None else before_BH.index_copy(0, self.kept_R, after_1RH[0])

    def times(self, x_ND: Tensor, factor_BD: Tensor | None) -> Tensor:
        """Each token times the factors of its row; None: as it is."""
        if factor_BD is None:
            return x_ND
        if self.row_N is not None:
            return x_ND * factor_BD[self.row_N]
        return (x_ND.view(self.length, self.rows, -1) * factor_BD).flatten(0, 1)

    def unpack(self, x_ND: Tensor) -> Tensor:
        """Back to [B, T, D], zeros at the padding."""
        width = x_ND.shape[-1]
        if self.flat_N is None:
            return x_ND.view(self.length, self.rows, width).transpose(0, 1).contiguous()
        padded = x_ND.new_zeros(self.rows * self.length, width)
        return padded.index_copy(0, self.flat_N, x_ND).view(self.rows, self.length, width)


def time_major(batch: Batch) -> TimeMajor:
    """Finds the real tokens of `batch`, and their order."""
    rows, length = batch.ids_BT.shape
    if batch.mask_BT is None or bool(batch.mask_BT.all()):
        return TimeMajor(rows, length, batch.ids_BT.t().reshape(-1), rows, torch.full((length,), rows), even=True)
    mask = batch.mask_BT
    lengths_B = mask.sum(1)
    order_B = lengths_B.argsort(descending=True, stable=True)
    lengths = lengths_B[order_B].cpu()
    kept = int((lengths > 0).sum())
    sizes_S = (lengths[:, None] > torch.arange(int(lengths[0]))).sum(0)

    place_B = torch.empty_like(order_B)
    place_B[order_B] = torch.arange(rows, device=mask.device)
    step_BT = mask.long().cumsum(1) - 1
    flat = mask.reshape(-1).nonzero().squeeze(1)
    row = flat // max(1, length)
    sorting = (step_BT.reshape(-1)[flat] * rows + place_B[row]).argsort()
    return TimeMajor(
        rows,
        length,
        batch.ids_BT.reshape(-1)[flat[sorting]],
        kept,
        sizes_S,
        kept == 0 or int(lengths[kept - 1]) == int(lengths[0]),
        flat[sorting],
        row[sorting],
        order_B[:kept],
    )
