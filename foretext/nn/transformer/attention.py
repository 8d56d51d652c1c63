"""Scaled dot-product attention over groups of sequences, causal or in both directions, with and without dropout on its
weights.

It takes the projection qkv as one tensor, [slots, 3, H, K], and gives its gradient as one tensor of the same layout:
queries, keys and values are views of it, and nothing is stacked or copied on the way back.

On a CPU without dropout the work is done by PyTorch's fused kernel. With dropout that kernel is not available and
PyTorch falls back to a chain of full [B, H, T, T] tensors. `_DroppedAttention` computes the same function in blocks
that stay in the cache: a few rows of a group at a time, query rows in strips, and for each strip only the keys that it
may see, so that the masked triangle is (mostly) never computed.

A group's rows are filled up to one length. A causal model never looks there; in both directions `hidden` says where
nothing is to be seen.

    S = Q Kᵀ / √K,   P = softmax(S + mask),   O = (P ∘ M) V        M: dropout mask, already scaled
    dV = (P ∘ M)ᵀ dO,   dP = (dO Vᵀ) ∘ M,   dS = P ∘ (dP − rowsum(dP ∘ P))
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.nn.fused import full_precision_on_cpu, keep_mask

STRIP = 128  # query positions a block
BLOCK = 1 << 17  # attention weights a block: half a megabyte

Groups = tuple[tuple[int, int, int], ...]  # (first slot, sequences, length), end to end over all slots
Hiding = tuple[Tensor | None, ...]  # for each group what is added to the scores of its keys, [rows, 1, 1, T]: 0 or −∞


def causal_attention(qkv_S3HK: Tensor, groups: Groups, p: float) -> Tensor:
    """Attention of each position over itself and its left, [slots, H, K]; `p`: dropout probability of the weights."""
    return _attention(qkv_S3HK, groups, p, True, (None,) * len(groups))


def full_attention(qkv_S3HK: Tensor, groups: Groups, p: float, hidden: Hiding) -> Tensor:
    """Attention of each position over all of its sequence, [slots, H, K]."""
    return _attention(qkv_S3HK, groups, p, False, hidden)


def _attention(qkv_S3HK: Tensor, groups: Groups, p: float, causal: bool, hidden: Hiding) -> Tensor:
    hidden = tuple(None if mask is None else mask.to(qkv_S3HK.dtype) for mask in hidden)
    if full_precision_on_cpu(qkv_S3HK):
        return (_DroppedAttention if p else _FusedAttention).apply(qkv_S3HK, groups, p, causal, hidden)
    parts = []
    for group, mask in zip(groups, hidden):
        q, k, v = _sequences(qkv_S3HK, group)
        parts.append(_slots(F.scaled_dot_product_attention(q, k, v, mask, dropout_p=p, is_causal=causal)))
    return _joined(parts, qkv_S3HK)


def _sequences(x: Tensor, group: tuple[int, int, int]) -> Tensor:
    """A group's slots [rows · T, …, H, K] as sequences […, rows, H, T, K]: a view."""
    first, rows, length = group
    cut = x[first : first + rows * length].unflatten(0, (rows, length))
    return cut.permute(2, 0, 3, 1, 4) if cut.dim() == 5 else cut.transpose(1, 2)


def _slots(mixed_BHTK: Tensor) -> Tensor:
    """Sequences back in a row, [rows · T, H, K]; a view where the kernel wrote them in that order."""
    return mixed_BHTK.transpose(1, 2).flatten(0, 1)


def _joined(parts: list[Tensor], qkv: Tensor) -> Tensor:
    """One after the other, one alone without a copy; without any (nothing in the batch is real) as empty as qkv."""
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
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                of_group, *_sequences(qkv, group), mixed, logsumexp, 0.0, ctx.causal, attn_mask=mask
            )
            for target, part in zip(_sequences(joint, group), found):
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
        """Whether the strip is all of the rows' length."""
        return bool(self.strip.stop - self.strip.start == self.rows[2])


def _blocks(groups: Groups, heads: int, causal: bool, hidden: Hiding) -> Iterator[_Block]:
    """As many short rows as make a block worth its calls; a long row alone, whose heads are then a batch of matrices
    that the products take as they lie, without a copy."""
    for (first, rows, length), mask in zip(groups, hidden):
        together = max(1, BLOCK // (heads * min(length, STRIP) * length))
        for row in range(0, rows, together):
            chosen = (first + row * length, min(together, rows - row), length)
            of_rows = None if mask is None else mask[row : row + together]
            for start in range(0, length, STRIP):
                stop = min(start + STRIP, length)
                yield _Block(chosen, slice(start, stop), slice(0, stop if causal else length), of_rows)


def _matrices(x: Tensor, chosen: tuple[int, int, int]) -> Tensor:
    """Some rows as one batch of matrices [rows · H, T, K], or three of qkv: a view of one row, a copy of several."""
    return _sequences(x, chosen).flatten(-4, -3)


class _Unseen:
    """What is added to a block's scores, so that no weight falls on what may not be seen."""

    def __init__(self, causal: bool, heads: int, dtype: torch.dtype) -> None:
        self.causal, self.heads, self.dtype = causal, heads, dtype
        self.triangles: dict[tuple[int, int], Tensor] = {}

    def of(self, block: _Block) -> Tensor | None:
        """[1 or rows · H, 1 or t, keys], or None."""
        if not self.causal:
            hidden = block.hidden
            return None if hidden is None else hidden.squeeze(1).repeat_interleave(self.heads, dim=0)
        place = (block.strip.start, block.strip.stop)
        if place not in self.triangles:
            ahead = torch.full((1, place[1] - place[0], place[1]), -math.inf, dtype=self.dtype)
            self.triangles[place] = ahead.triu_(place[0] + 1)
        return self.triangles[place]


class _DroppedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, groups: Groups, p: float, causal: bool, hidden: Hiding) -> Tensor:
        _, _, heads, width = qkv.shape
        out = qkv.new_empty(qkv.shape[0], heads, width)
        unseen = _Unseen(causal, heads, qkv.dtype)
        nothing = qkv.new_zeros(())
        saved: list[Tensor] = []
        for block in _blocks(groups, heads, causal, hidden):
            joint = _matrices(qkv, block.rows)
            q, k, v = joint.unbind()
            if not block.whole:
                q, k, v = q[:, block.strip], k[:, block.keys], v[:, block.keys]
            added = unseen.of(block)
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
            saved += [joint, weights, drop]
        ctx.save_for_backward(qkv, *saved)
        ctx.groups, ctx.causal, ctx.hidden = groups, causal, hidden
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, *saved = ctx.saved_tensors
        _, _, heads, width = qkv.shape
        joint = torch.empty_like(qkv)
        blocks = list(_blocks(ctx.groups, heads, ctx.causal, ctx.hidden))
        # Backwards: a row's last strip sees all keys and writes their gradients, the others add to them.
        for number in range(len(blocks) - 1, -1, -1):
            block = blocks[number]
            chosen, strip, keys = block.rows, block.strip, block.keys
            given, weights, drop = saved[3 * number : 3 * number + 3]
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
