"""The linear layer x Wᵀ + b, whose gradients cost less on a CPU than PyTorch's own.

Over many rows the gradient of a weight is taken the way round that has its narrow side first (a tenth faster where the
layer widens; over few rows it is not, and what comes out has to be turned), the gradient of a bias as a product with
ones (half the time of a sum over rows).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.nn.cpu import full_precision_on_cpu

MANY_ROWS = 3000


def linear(x_ND: Tensor, layer: nn.Linear) -> Tensor:
    """What `layer` computes."""
    if full_precision_on_cpu(x_ND) and x_ND.dim() == 2 and x_ND.dtype == layer.weight.dtype:
        return _Linear.apply(x_ND, layer.weight, layer.bias)
    return F.linear(x_ND, layer.weight, layer.bias)


def weight_gradient(grad_NO: Tensor, x_NI: Tensor) -> Tensor:
    """gradᵀ x, [O, I]."""
    if grad_NO.shape[1] > x_NI.shape[1] and len(x_NI) >= MANY_ROWS:
        return torch.mm(x_NI.t(), grad_NO).t()
    return torch.mm(grad_NO.t(), x_NI)


def bias_gradient(grad_NO: Tensor) -> Tensor:
    """The sum over rows, [O]."""
    return torch.mm(grad_NO.new_ones(1, grad_NO.shape[0]), grad_NO).squeeze(0)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        grad = grad.contiguous()
        return (
            torch.mm(grad, weight) if to_x else None,
            weight_gradient(grad, x) if to_weight else None,
            bias_gradient(grad) if to_bias else None,
        )
