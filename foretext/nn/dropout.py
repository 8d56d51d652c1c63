"""Dropout that does not cost a third of a step on a CPU.

PyTorch draws one Bernoulli number for each element on a CPU, which takes longer than the layer it protects. Here
sixteen random bits decide each element: one draw of the generator serves four. The probability of dropping is
therefore the nearest multiple of 1/65536 (.1 becomes .100006) and the survivors are scaled by that exact probability,
so the expectation is unchanged. The generator is torch's own, so a seed fixes the masks. Other devices use their own
fused kernels.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.nn.cpu import full_precision_on_cpu

_LEVELS = 1 << 16


def keep_mask(shape: tuple[int, ...] | torch.Size, p: float, dtype: torch.dtype | None = None) -> Tensor:
    """A float mask of zeros (probability p) and 1 / (1 − p), on the CPU."""
    threshold = min(round(p * _LEVELS), _LEVELS - 1)
    mask = torch.empty(shape, dtype=dtype)
    words = torch.empty((mask.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: mask.numel()].view(shape)
    return torch.ge(bits, threshold - _LEVELS // 2, out=mask).mul_(_LEVELS / (_LEVELS - threshold))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask = keep_mask(x.shape, p, x.dtype)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grad * mask, None


class _AddDropped(torch.autograd.Function):
    """residual + dropout(x) in one pass over memory."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, p: float) -> Tensor:
        mask = keep_mask(x.shape, p, x.dtype)
        ctx.save_for_backward(mask)
        return torch.addcmul(residual, x, mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grad, grad * mask, None


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    if not training or p == 0.0:
        return x
    return _Dropout.apply(x, p) if full_precision_on_cpu(x) else F.dropout(x, p)


def add_dropped(residual: Tensor, x: Tensor, p: float, training: bool) -> Tensor:
    """residual + dropout(x)."""
    if not training or p == 0.0:
        return residual + x
    if full_precision_on_cpu(x):
        return _AddDropped.apply(residual, x, p)
    return residual + F.dropout(x, p)
