"""Causal scaled dot-product attention, with and without dropout on its weights.

Without dropout it is PyTorch's fused kernel. With dropout that kernel is not available on a CPU and PyTorch falls
back to a chain of full [B, H, T, T] tensors. `_DroppedAttention` computes the same function in blocks that stay in
the cache: a few rows of the batch at a time, query rows in strips, and for each strip only the keys that it may see,
so that the masked triangle is (mostly) never computed.

    S = Q Kᵀ / √K,   P = softmax(S + mask),   O = (P ∘ M) V        M: dropout mask, already scaled
    dV = (P ∘ M)ᵀ dO,   dP = (dO Vᵀ) ∘ M,   dS = P ∘ (dP − rowsum(dP ∘ P))
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.nn.dropout import keep_mask

STRIP = 128  # query positions a block


def causal_attention(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, p: float) -> Tensor:
    """Attention of each position over itself and its left; `p` is the dropout probability of the weights."""
    if p == 0.0:
        return F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
    if q_BHTK.device.type == "cpu" and q_BHTK.dtype == torch.float32:
        return _DroppedAttention.apply(q_BHTK, k_BHTK, v_BHTK, p)
    return F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True, dropout_p=p)


def _blocks(rows: int, length: int) -> Iterator[tuple[int, slice]]:
    """A row of the batch and a strip of its query positions at a time.

    One row, because its heads are then a batch of matrices that the product takes as they lie, without a copy.
    """
    for row in range(rows):
        for start in range(0, length, STRIP):
            yield row, slice(start, min(start + STRIP, length))


def _triangle(strip: slice) -> Tensor:
    """Additive mask [1, t, keys] for a strip of queries over the keys up to its end."""
    ahead = torch.full((1, strip.stop - strip.start, strip.stop), -math.inf)
    return ahead.triu_(strip.start + 1)


class _DroppedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, p: float) -> Tensor:
        rows, heads, length, width = q.shape
        scale = 1.0 / math.sqrt(width)
        out = q.new_empty(rows, length, heads, width).transpose(1, 2)
        triangles: dict[int, Tensor] = {}
        saved: list[Tensor] = []
        for row, strip in _blocks(rows, length):
            mask = triangles.setdefault(strip.start, _triangle(strip))
            keys = slice(0, strip.stop)
            scores = torch.baddbmm(mask, q[row, :, strip], k[row, :, keys].transpose(1, 2), alpha=scale)
            weights = torch.softmax(scores, dim=-1)
            drop = keep_mask(weights.shape, p)
            out[row, :, strip] = torch.bmm(torch.mul(weights, drop, out=scores), v[row, :, keys])
            saved += [weights, drop]
        ctx.save_for_backward(q, k, v, *saved)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, *saved = ctx.saved_tensors
        rows, heads, length, width = q.shape
        scale = 1.0 / math.sqrt(width)
        # One buffer in the layout of the projection that q, k and v came from: their gradients are views of it.
        joint = q.new_zeros(rows, length, 3, heads, width)
        dq, dk, dv = (joint[:, :, part].transpose(1, 2) for part in range(3))
        for block, (row, strip) in enumerate(_blocks(rows, length)):
            weights, drop = saved[2 * block], saved[2 * block + 1]
            keys = slice(0, strip.stop)
            grad_out = grad[row, :, strip]
            grad_weights = torch.bmm(grad_out, v[row, :, keys].transpose(1, 2)).mul_(drop)
            dv[row, :, keys] += torch.bmm(drop.mul_(weights).transpose(1, 2), grad_out)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            dq[row, :, strip] = torch.bmm(grad_scores, k[row, :, keys])
            dk[row, :, keys] += torch.bmm(grad_scores.transpose(1, 2), q[row, :, strip])
        joint[:, :, :2].mul_(scale)
        return dq, dk, dv, None
