"""What an AWD-LSTM is regularised by (Merity, Keskar and Socher 2017): its dropouts and two penalties.

Ordinary dropout draws anew at every time step, which wears a recurrent memory away. AWD-LSTM's dropouts do not:

- embedding rows: a token's whole row of the table is zero, wherever it occurs in the batch;
- locked (variational): one mask for a sequence, the same at all of its time steps; on the input, between the layers and
  on the output;
- weights: single entries of the hidden-to-hidden matrix are zero for a whole forward pass, so the recurrence itself is
  thinned out and the fused kernel still runs it.

What is kept is scaled by 1 / (1 − p). Everything is drawn from torch's own generator, and in an amount that depends on
rows, widths and vocabulary but not on the padding, so that padding cannot change a mask.

The penalties are the paper's activation regularisation (AR), on the dropped states of the top layer, and temporal
activation regularisation (TAR), on the step from one of its undropped states to the next. As in the released code, and
in fastai, they are means of squares, here as sums and counts; the factors α and β are the objective's weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.batch import Batch, LossSum
from foretext.nn.fused import dropout, full_precision_on_cpu, keep_mask

LEAST_SQUARE = 1e-8  # added to a row's mean square, so that one of zeros stays as it is


def kept(shape: tuple[int, ...], p: float, like: Tensor) -> Tensor:
    """Zeros (probability p) and 1 / (1 − p), of the kind and on the device of `like`."""
    if full_precision_on_cpu(like):
        return keep_mask(shape, p, like.dtype)
    return F.dropout(torch.ones(shape, dtype=like.dtype, device=like.device), p)


def embed_dropped(table_VD: Tensor, ids_N: Tensor, p: float, training: bool, level: bool = False) -> Tensor:
    """The rows of these ids, where each row of the whole table is dropped or not. The table itself is not copied: only
    the rows that are read are scaled. `level`: each row divided by its own root mean square first."""
    x_ND = F.embedding(ids_N, table_VD)
    if level:
        x_ND = F.rms_norm(x_ND, x_ND.shape[1:], eps=LEAST_SQUARE)
    if not training or p == 0.0:
        return x_ND
    return x_ND * kept((len(table_VD),), p, table_VD)[ids_N, None]


def locked_mask(rows: int, width: int, p: float, training: bool, like: Tensor) -> Tensor | None:
    """[B, D], one mask for all time steps of a sequence; None where nothing is dropped."""
    return kept((rows, width), p, like) if training and p > 0.0 else None


def locked_dropout(x_BTD: Tensor, p: float, training: bool) -> Tensor:
    """The same mask at all time steps of a sequence."""
    mask_BD = locked_mask(x_BTD.shape[0], x_BTD.shape[2], p, training, x_BTD)
    return x_BTD if mask_BD is None else x_BTD * mask_BD[:, None]


def drop_weights(weight: Tensor, p: float, training: bool) -> Tensor:
    """The matrix with single entries dropped; the gradient of what is kept reaches `weight`."""
    return dropout(weight, p, training)


# -- the penalties ---------------------------------------------------------------------------------------------------


def activation_penalty(dropped_BTD: Tensor, mask_BT: Tensor | None = None) -> LossSum:
    """AR: the squares of the top states after the output dropout. Padding is zero in them, and is not counted."""
    flat = dropped_BTD.reshape(-1)
    tokens = dropped_BTD.shape[0] * dropped_BTD.shape[1] if mask_BT is None else int(mask_BT.sum())
    return LossSum(torch.dot(flat, flat), float(tokens * dropped_BTD.shape[2]))


def temporal_penalty(top_BTD: Tensor, mask_BT: Tensor | None = None) -> LossSum:
    """TAR: the squares of h_t − h_{t−1} of the top states before the output dropout, over neighbours in this batch (not
    over the border to the piece before, which the released code leaves out too)."""
    steps = top_BTD[:, 1:] - top_BTD[:, :-1]
    if mask_BT is not None:
        steps = steps * _neighbours(mask_BT)[:, :, None]
    flat = steps.reshape(-1)
    return LossSum(torch.dot(flat, flat), _steps(top_BTD.shape[:2], mask_BT) * top_BTD.shape[2])


def penalty_counts(batch: Batch, width: int) -> tuple[float, float]:
    """What the two penalties, AR and TAR, of this batch will be divided by, before anything is computed."""
    return float(batch.real_tokens * width), _steps(batch.ids_BT.shape, batch.mask_BT) * width


def _neighbours(mask_BT: Tensor) -> Tensor:
    """[B, T − 1]: whether a place and the one before it are both real."""
    return mask_BT[:, 1:] & mask_BT[:, :-1]


def _steps(shape: torch.Size, mask_BT: Tensor | None) -> float:
    if mask_BT is None:
        return float(shape[0] * max(0, shape[1] - 1))
    return float(_neighbours(mask_BT).sum())
