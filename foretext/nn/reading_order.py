"""The order in which a recurrent layer reads a padded batch: step by step, real tokens only, from either end.

The longest sequences come first, so that the sequences that still go on at a step are the first `sizes[t]` of them, and
the tokens of all steps lie end to end as one [N, D] matrix (what torch calls packed). Padding, on whatever side, is
nowhere in it and can change nothing; and what a layer does to all tokens alike is one product.
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

    def gather(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.flatten(0, 1).index_select(0, self.places_N)  # whose gradient is quicker than an index's

    def scatter(self, x_ND: Tensor) -> Tensor:
        """Back to [B, T, D], with zeros at the padding."""
        rows, columns = self.shape
        x_MD = x_ND.new_zeros(rows * columns, x_ND.shape[-1]).index_copy(0, self.places_N, x_ND)
        return x_MD.view(rows, columns, -1)


def reading_orders(mask_BT: Tensor) -> tuple[ReadingOrder, ReadingOrder]:
    """From the first real token of each row to the last, and from the last to the first."""
    rows, columns = mask_BT.shape
    lengths_B = mask_BT.sum(dim=1)
    rows_B = torch.argsort(lengths_B, descending=True, stable=True)
    rank_B = torch.empty_like(rows_B)
    rank_B[rows_B] = torch.arange(rows, device=mask_BT.device)
    steps = torch.arange(int(lengths_B.max()) if rows else 0, device=mask_BT.device)
    sizes = tuple((lengths_B[None, :] > steps[:, None]).sum(dim=1).tolist())
    real_N = mask_BT.flatten().nonzero().squeeze(1)
    number_BT = mask_BT.cumsum(dim=1) - 1  # of each real token in its row, from the left
    orders = []
    for step_BT in (number_BT, lengths_B[:, None] - 1 - number_BT):
        key_N = (step_BT * rows + rank_B[:, None]).flatten()[real_N]
        orders.append(ReadingOrder(real_N[torch.argsort(key_N)], sizes, rows_B, (rows, columns)))
    return orders[0], orders[1]
