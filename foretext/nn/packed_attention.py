"""Scaled dot-product attention over the groups of packed sequences (`packing`), causal or in both directions, with and
without dropout on its weights.

`attend` takes the projection qkv as one tensor, [slots, 3, H, K], and returns its gradient as one tensor of the same
layout: queries, keys and values are views of it, and the backward pass stacks or copies nothing.

On a CPU without dropout, PyTorch's fused kernel does the work. With dropout that kernel is not available, and PyTorch
falls back to several full [B, H, T, T] tensors. `_DroppedAttention` computes the same function in blocks that fit the
cache: a few rows of a group at a time, queries in strips, and for each strip only the keys that it may see, so most of
the masked triangle is never computed.

    S = Q Kᵀ / √K,   P = softmax(S + mask),   O = (P ∘ M) V        M: dropout mask, already scaled
    dV = (P ∘ M)ᵀ dO,   dP = (dO Vᵀ) ∘ M,   dS = P ∘ (dP − rowsum(dP ∘ P))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.nn.fused import full_precision_on_cpu, keep_mask
from foretext.nn.packing import Groups, Hiding

STRIP = 128  # query positions per block
BLOCK = 1 << 17  # attention weights per block: half a megabyte


def attend(qkv_S3HK: Tensor, groups: Groups, p: float, hidden: Hiding | None = None) -> Tensor:
    """Attention of each position to itself and everything to its left, [slots, H, K]; with `hidden`, to its whole
    sequence except what that masks. `p`: dropout probability of the weights."""
    causal = hidden is None
    masks = tuple(None if mask is None else mask.to(qkv_S3HK.dtype) for mask in hidden or (None,) * len(groups))
    if full_precision_on_cpu(qkv_S3HK):
        return (_DroppedAttention if p else _FusedAttention).apply(qkv_S3HK, groups, p, causal, masks)
    parts = []
    for group, mask in zip(groups, masks):
        q, k, v = _sequences(qkv_S3HK, group)
        parts.append(_slots(F.scaled_dot_product_attention(q, k, v, mask, dropout_p=p, is_causal=causal)))
    return _joined(parts, qkv_S3HK)


def _sequences(x: Tensor, group: tuple[int, int, int]) -> Tensor:
    """A group's slots [rows · T, …, H, K] as sequences […, rows, H, T, K]: a view."""
    first, rows, length = group
    cut = x[first : first + rows * length].unflatten(0, (rows, length))
    return cut.permute(2, 0, 3, 1, 4) if cut.dim() == 5 else cut.transpose(1, 2)


def _slots(mixed_BHTK: Tensor) -> Tensor:
    """Sequences end to end again, [rows · T, H, K]; a view if the kernel wrote them in that order."""
    return mixed_BHTK.transpose(1, 2).flatten(0, 1)


def _joined(parts: list[Tensor], qkv: Tensor) -> Tensor:
    """Concatenates the parts; a single part is not copied. If there are none (nothing in the batch is real), the result
    is as empty as qkv."""
    return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else qkv[:, 0].clone()


class _FusedAttention(torch.autograd.Function):
    """PyTorch's fused kernel for a CPU, group by group, with the gradients of q, k and v in one buffer."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, groups: Groups, p: float, causal: bool, hidden: Hiding) -> Tensor:
        parts, sums = [], []
        for group, mask in zip(groups, hidden):
            q, k, v = _sequences(qkv, group)
            mixed, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, causal, attn_mask=mask
            )
            parts.append(_slots(mixed))
            sums.append(logsumexp)
        out = _joined(parts, qkv)
        ctx.save_for_backward(qkv, out, *sums)
        ctx.groups, ctx.causal, ctx.hidden = groups, causal, hidden
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, out, *sums = ctx.saved_tensors
        joint = torch.empty_like(qkv)
        for group, logsumexp, mask in zip(ctx.groups, sums, ctx.hidden):
            of_group, mixed = _sequences(grad, group), _sequences(out, group)
            gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                of_group, *_sequences(qkv, group), mixed, logsumexp, 0.0, ctx.causal, attn_mask=mask
            )
            for target, part in zip(_sequences(joint, group), gradients):
                target.copy_(part)
        return joint, None, None, None, None


@dataclass(frozen=True)
class _Block:
    """Some rows of a group, as a smaller group, with a strip of query positions and the keys that it may see."""

    rows: tuple[int, int, int]
    strip: slice
    keys: slice
    hidden: Tensor | None

    @property
    def whole(self) -> bool:
        """Whether the strip covers the full length of the rows."""
        return bool(self.strip.stop - self.strip.start == self.rows[2])


def _blocks(groups: Groups, heads: int, causal: bool, hidden: Hiding) -> Iterator[_Block]:
    """Short rows are combined until a block is worth its calls. A long row is a block by itself; its heads are then a
    batch of matrices that the products use without a copy."""
    for (first, rows, length), mask in zip(groups, hidden):
        together = max(1, BLOCK // (heads * min(length, STRIP) * length))
        for row in range(0, rows, together):
            chosen = (first + row * length, min(together, rows - row), length)
            of_rows = None if mask is None else mask[row : row + together]
            for start in range(0, length, STRIP):
                stop = min(start + STRIP, length)
                yield _Block(chosen, slice(start, stop), slice(0, stop if causal else length), of_rows)


def _matrices(x: Tensor, chosen: tuple[int, int, int]) -> Tensor:
    """Some rows as one batch of matrices [rows · H, T, K], or three of them for qkv: a view for one row, a copy for
    several."""
    return _sequences(x, chosen).flatten(-4, -3)


def _unseen(
    block: _Block, like: Tensor, causal: bool, heads: int, triangles: dict[tuple[int, int], Tensor]
) -> Tensor | None:
    """What is added to a block's scores, [1 or rows · H, 1 or t, keys], to mask what it may not see; None: nothing.
    `triangles`: cache of the strips' masks."""
    if not causal:
        return None if block.hidden is None else block.hidden.squeeze(1).repeat_interleave(heads, dim=0)
    start, stop = block.strip.start, block.strip.stop
    if (start, stop) not in triangles:
        triangles[start, stop] = like.new_full((1, stop - start, stop), -torch.inf).triu_(start + 1)
    return triangles[start, stop]


class _DroppedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, groups: Groups, p: float, causal: bool, hidden: Hiding) -> Tensor:
        _, _, heads, width = qkv.shape
        out = qkv.new_empty(qkv.shape[0], heads, width)
        nothing = qkv.new_zeros(())
        triangles: dict[tuple[int, int], Tensor] = {}
        for_backward: list[Tensor] = []
        for block in _blocks(groups, heads, causal, hidden):
            joint = _matrices(qkv, block.rows)
            q, k, v = joint.unbind()
            if not block.whole:
                q, k, v = q[:, block.strip], k[:, block.keys], v[:, block.keys]
            added = _unseen(block, q, causal, heads, triangles)
            scores = torch.baddbmm(
                nothing if added is None else added,
                q,
                k.transpose(1, 2),
                beta=0 if added is None else 1,
                alpha=width**-0.5,
            )
            weights = torch.softmax(scores, dim=-1)
            drop = keep_mask(weights.shape, p, weights.dtype)
            mixed = torch.bmm(torch.mul(weights, drop, out=scores), v)
            _sequences(out, block.rows)[:, :, block.strip] = mixed.unflatten(0, (-1, heads))
            for_backward += [joint, weights, drop]
        ctx.save_for_backward(qkv, *for_backward)
        ctx.groups, ctx.causal, ctx.hidden = groups, causal, hidden
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, *for_backward = ctx.saved_tensors
        _, _, heads, width = qkv.shape
        joint = torch.empty_like(qkv)
        blocks = list(_blocks(ctx.groups, heads, ctx.causal, ctx.hidden))
        # Backwards: a row's last strip sees all keys and writes their gradients; the others add to them.
        for number in range(len(blocks) - 1, -1, -1):
            block = blocks[number]
            chosen, strip, keys = block.rows, block.strip, block.keys
            given, weights, drop = for_backward[3 * number : 3 * number + 3]
            (q, k, v), grad_out = given.unbind(), _matrices(grad, chosen)
            if not block.whole:
                q, k, v, grad_out = q[:, strip], k[:, keys], v[:, keys], grad_out[:, strip]
            grad_weights = torch.bmm(grad_out, v.transpose(1, 2)).mul_(drop)
            values = torch.bmm(drop.mul_(weights).transpose(1, 2), grad_out)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype).mul_(width**-0.5)
            dq, dk, dv = _sequences(joint, chosen)
            dq[:, :, strip] = torch.bmm(grad_scores, k).unflatten(0, (-1, heads))
            for total, term in ((dk, torch.bmm(grad_scores.transpose(1, 2), q)), (dv, values)):
                part = term.unflatten(0, (-1, heads))
                if strip.stop == chosen[2]:
                    total.copy_(part)
                else:
                    total[:, :, keys] += part
        return joint, None, None, None, None
