"""One layer of LSTM without bounds over tokens in a `ReadingOrder`, by torch's fused kernel wherever that is quickest.

The kernel has two forms. A plain [T, B, D] block serves rows that are all equally long (on a CPU not where the state is
projected, which that kernel leaves to a slower one, with a warning). Other rows are read packed; on a CPU the backward
pass of that form makes a product for U's gradient in each step, so there rows that learn take the steps of
`lstm_steps`, which makes one for all of them. (64 rows of up to 40 steps, 175 → 128, milliseconds of the steps and of
the kernel: unequal rows that learn 21.5 and 27.8, that do not 8.6 and 6.9; equal rows 33.4 and 20.2, 12.3 and 6.9.)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.nn.recurrent.lstm_steps import lstm_steps
from foretext.nn.recurrent.reading_order import ReadingOrder


def lstm_layer(
    x_ND: Tensor, order: ReadingOrder, first_h: Tensor, first_c: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """h of all tokens, of which there is at least one, and the last h and c of the rows that hold a token; the first
    ones are those rows', too. `weights` are torch's: W, U, both biases, and P if the state is projected."""
    # To the kernel, training means that a backward pass may follow; evaluation mode may have one too.
    learning, on_cpu = torch.is_grad_enabled(), x_ND.device.type == "cpu"
    block = order.even and not (on_cpu and len(weights) > 4)
    if learning and on_cpu and not block:
        weight_ih, weight_hh, bias_ih, bias_hh, *projection = weights
        inputs_N4C = F.linear(x_ND, weight_ih, bias_ih + bias_hh)
        return lstm_steps(inputs_N4C, weight_hh, projection[0] if projection else None, first_h, first_c, order.sizes)
    first = [first_h[None], first_c[None]]
    if block:
        x_SRD = x_ND.view(-1, order.kept, x_ND.shape[1])
        h_SRH, h, c = torch.lstm(x_SRD, first, weights, True, 1, 0.0, learning, False, False)
        return h_SRH.flatten(0, 1), h[0], c[0]
    h_NH, h, c = torch.lstm(x_ND, torch.tensor(order.sizes), first, weights, True, 1, 0.0, learning, False)
    return h_NH, h[0], c[0]
