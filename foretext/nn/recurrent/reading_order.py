"""The order in which a recurrent layer reads a padded batch: step by step, real tokens only, from either end.

A fused LSTM kernel goes on over padding: behind a row it would carry the state past the row's end, before it it would
not begin with the state that it was given. So padding is taken out. The longest sequences come first, so that those
that still go on at a step are the first `sizes[t]` of them, and the tokens of all steps lie end to end as one [N, D]
matrix (what torch calls packed; where all rows are equally long, a plain [T, B, D] block for the quicker kernel).
Padding, on whatever side, is nowhere in it and can change nothing; and what a layer does to all tokens alike is one
product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ReadingOrder:
    places_N: Tensor  # places in the batch, flattened to [B · T], of the tokens in the order of reading
    sizes: tuple[int, ...]  # how many sequences have a token at each step; never more than at the step before
    rows_B: Tensor  # the batch's rows, the longest first, empty ones last
    shape: tuple[int, int]  # B, T

    @property
    def kept(self) -> int:
        """Rows that hold a token."""
        return self.sizes[0] if self.sizes else 0

    @property
    def even(self) -> bool:
        """Whether those rows are all equally long."""
        return not self.sizes or self.sizes[-1] == self.sizes[0]

    def gather(self, x_BTD: Tensor) -> Tensor:
        """The tokens in the order of reading: [N, D], or [N] of [B, T]."""
        return x_BTD.flatten(0, 1)[self.places_N]

    def scatter(self, x_ND: Tensor) -> Tensor:
        """Back to [B, T, D], with zeros at the padding."""
        rows, columns = self.shape
        x_MD = x_ND.new_zeros(rows * columns, x_ND.shape[-1]).index_copy(0, self.places_N, x_ND)
        return x_MD.view(rows, columns, x_ND.shape[-1])

    def begin(self, state_BH: Tensor) -> Tensor:
        """The states of the rows that hold a token, in the order of a step: [R, H]."""
        return state_BH.index_select(0, self.rows_B[: self.kept])

    def end(self, before_BH: Tensor, after_RH: Tensor) -> Tensor:
        """Each row's own last state, in the batch's order; that of a row without a token is the one before."""
        return before_BH.index_copy(0, self.rows_B[: self.kept], after_RH)

    def times(self, x_ND: Tensor, factor_BD: Tensor | None) -> Tensor:
        """Each token times the factors of its row; None: as it is."""
        return x_ND if factor_BD is None else x_ND * factor_BD[self.places_N // max(1, self.shape[1])]


def reading_orders(mask_BT: Tensor) -> tuple[ReadingOrder, ReadingOrder]:
    """From the first real token of each row to the last, and from the last to the first."""
    return reading_order(mask_BT), reading_order(mask_BT, backward=True)


def reading_order(mask_BT: Tensor, backward: bool = False) -> ReadingOrder:
    """`backward`: from the last real token of each row to the first."""
    rows, columns = mask_BT.shape
    if rows and columns and bool(mask_BT.all()):
        places_BT = torch.arange(rows * columns, device=mask_BT.device).view(rows, columns)
        places_BT = places_BT.flip(1) if backward else places_BT
        each = torch.arange(rows, device=mask_BT.device)
        return ReadingOrder(places_BT.t().flatten(), (rows,) * columns, each, (rows, columns))
    lengths_B = mask_BT.sum(dim=1)
    rows_B = torch.argsort(lengths_B, descending=True, stable=True)
    rank_B = torch.empty_like(rows_B)
    rank_B[rows_B] = torch.arange(rows, device=mask_BT.device)
    steps = torch.arange(int(lengths_B.max()) if rows else 0, device=mask_BT.device)
    sizes = tuple((lengths_B[None, :] > steps[:, None]).sum(dim=1).tolist())
    real_N = mask_BT.flatten().nonzero().squeeze(1)
    step_BT = mask_BT.cumsum(dim=1) - 1
    if backward:
        step_BT = lengths_B[:, None] - 1 - step_BT
    key_N = (step_BT * rows + rank_B[:, None]).flatten()[real_N]
    return ReadingOrder(real_N[torch.argsort(key_N)], sizes, rows_B, (rows, columns))
