"""Padding at no cost: the real tokens of a batch are stored end to end, and similar lengths are grouped for attention.

With short sentences, most of the arithmetic on a padded batch is wasted. So a trunk works on the N real tokens as one
[N, D] matrix: embeddings, projections, norms and the feed-forward part do not depend on where a sequence ends. Only
attention sees sequences, in groups of similar length. Within a group, rows are padded on the right with copies of a
real row. A causal model never attends there, a bidirectional one has a mask (`Packing.hidden`), and the results there
are not read.

Positions count real tokens from the left of each row, so the side and the amount of padding have no effect.

The second half is scaled dot-product attention over these groups, causal or in both directions, with and without
dropout on its weights.

`attend` takes the projection qkv as one tensor, [slots, 3, H, K], and returns its gradient as one tensor of the same
layout: queries, keys and values are views of it, and the backward pass stacks or copies nothing.

On a CPU without dropout, PyTorch's fused kernel does the work. With dropout that kernel is not available, and PyTorch
falls back to several full [B, H, T, T] tensors. `_DroppedAttention` computes the same function in blocks that fit the
cache: a few rows of a group at a time, queries in strips, and for each strip only the keys that it may see, so most of
the masked triangle is never computed.

    S = Q Kᵀ / √K,   P = softmax(S + mask),   O = (P ∘ M) V        M: dropout mask, already scaled
    dV = (P ∘ M)ᵀ dO,   dP = (dO Vᵀ) ∘ M,   dS = P ∘ (dP − rowsum(dP ∘ P))
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.batch import Batch
from foretext.nn.fused import full_precision_on_cpu, keep_mask

Groups = tuple[tuple[int, int, int], ...]  # (first slot, sequences, length), end to end over all slots
Hiding = tuple[Tensor | None, ...]  # per group, what is added to the scores of its keys, [rows, 1, 1, T]: 0 or −∞
OfRows = tuple[tuple[int, ...], ...]  # per group, one number for each of its rows
WASTE = 1.25  # a group may hold at most this many times its real tokens
GROUP_COST = 64  # tokens that another group must save to be worth its overhead
FEW = 0.75  # if fewer than this share of the tokens are read, picking them pays


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of a batch are. `groups` has (first row, rows, length) in grouped order."""

    rows: int
    length: int
    ids_N: Tensor
    positions_N: Tensor
    flat_N: Tensor | None  # index of each packed token in the flattened [B · T]; None if there is no padding
    to_groups: Tensor | None  # packed index for each grouped slot
    from_groups: Tensor | None  # grouped slot of each packed token
    groups: Groups  # none of them is empty
    lengths: OfRows  # per group, the number of real tokens of each sequence
    members: OfRows  # per group, the batch row of each sequence
    segments_N: Tensor | None = None
    read_R: Tensor | None = None  # packed index of each token whose top state is read; None: all, or nearly all

    def hidden(self) -> Hiding:
        """Per group, what is added to the scores of its keys, [rows, 1, 1, T]: −∞ at padding; None if there is none."""
        masks: list[Tensor | None] = []
        for (_, _, longest), lengths in zip(self.groups, self.lengths):
            real = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
            masks.append(None if min(lengths) == longest else unseen(real.to(self.ids_N.device))[:, None, None, :])
        return tuple(masks)

    def grouped(self, x_N: Tensor) -> Tensor:
        """The tokens' rows in grouped order, padded."""
        if self.to_groups is None or self.from_groups is None:
            return x_N
        return MoveRows.apply(x_N, self.to_groups, self.from_groups)

    def unpack(self, x_ND: Tensor, picked_R: Tensor | None = None) -> Tensor:
        """Back to [B, T, D], with zeros at padding. `picked_R`: `x_ND` has only these of the packed tokens."""
        places = chosen(self.flat_N, picked_R)
        return x_ND.view(self.rows, self.length, x_ND.shape[-1]) if places is None else self.spread(x_ND, places)

    def spread(self, x_ND: Tensor, flat_N: Tensor) -> Tensor:
        """[B, T, D] with these rows at these indices of the flattened [B · T], zeros elsewhere."""
        wide = x_ND.new_zeros(self.rows * self.length, x_ND.shape[-1])
        return wide.index_copy(0, flat_N, x_ND).view(self.rows, self.length, x_ND.shape[-1])


def unseen(seen: Tensor) -> Tensor:
    """What is added to scores: 0 where attention is allowed, −∞ elsewhere."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -torch.inf)


def pack(batch: Batch, kinds: Sequence[int] | None = None) -> Packing:
    """Finds the real tokens of `batch` and sorts its sequences into groups of similar length; with `kinds`, one per
    row, groups also have a single kind."""
    rows, length = batch.ids_BT.shape
    device = batch.ids_BT.device
    mask = None if batch.mask_BT is None or bool(batch.mask_BT.all()) else batch.mask_BT
    positions, flat_N, to_groups, from_groups = batch.positions_BT, None, None, None
    if mask is None:
        members = _alike(kinds or [0] * rows) if rows * length else ()
        groups = tuple((group[0] * length, len(group), length) for group in members)
        lengths: OfRows = tuple((length,) * len(group) for group in members)
        positions = torch.arange(length, device=device).expand(rows, length) if positions is None else positions
    else:
        flat_N = mask.reshape(-1).nonzero().squeeze(1)
        groups, lengths, members, order, inverse = _group(mask.sum(1).tolist(), kinds)
        to_groups, from_groups = order.to(device), inverse.to(device)
        positions = mask.long().cumsum(1) - 1 if positions is None else positions

    def real(x_BT: Tensor) -> Tensor:
        return x_BT.reshape(-1) if flat_N is None else x_BT.reshape(-1)[flat_N]

    return Packing(
        rows,
        length,
        real(batch.ids_BT),
        real(positions),
        flat_N,
        to_groups,
        from_groups,
        groups,
        lengths,
        members,
        None if batch.segments_BT is None else real(batch.segments_BT),
        None if batch.read_BT is None else _few(real(batch.read_BT)),
    )


def _few(read_N: Tensor) -> Tensor | None:
    """The indices of true entries; None if nearly all are true."""
    indices = read_N.nonzero().squeeze(1)
    return indices if len(indices) < FEW * len(read_N) else None


def _alike(kinds: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Splits consecutive rows into runs of one kind."""
    return tuple(tuple(rows) for _, rows in itertools.groupby(range(len(kinds)), key=kinds.__getitem__))


def _group(lengths: Sequence[int], kinds: Sequence[int] | None = None) -> tuple[Groups, OfRows, OfRows, Tensor, Tensor]:
    """The groups, their sequences' lengths and rows, the packed index for each slot, and the slot of each packed
    token."""
    starts = list(itertools.accumulate(lengths, initial=0))
    members = _members(lengths, kinds or [0] * len(lengths))
    groups: list[tuple[int, int, int]] = []
    to_groups: list[Tensor] = []
    from_groups = torch.empty(starts[-1], dtype=torch.long)
    slot = 0
    for rows in members:
        longest = lengths[rows[0]]
        groups.append((slot, len(rows), longest))
        for row in rows:
            steps = torch.arange(longest)
            to_groups.append(torch.clamp(steps, max=lengths[row] - 1) + starts[row])
            from_groups[starts[row] : starts[row + 1]] = slot + steps[: lengths[row]]
            slot += longest
    of_rows = tuple(tuple(lengths[row] for row in rows) for rows in members)
    return tuple(groups), of_rows, members, torch.cat(to_groups) if to_groups else from_groups, from_groups


def _members(lengths: Sequence[int], kinds: Sequence[int]) -> OfRows:
    """The rows of each group, longest first. A new group begins where padding to the group's length would waste too
    much, and where the kind changes."""
    order = sorted((row for row in range(len(lengths)) if lengths[row]), key=lambda row: (kinds[row], -lengths[row]))
    groups: list[list[int]] = []
    for row in order:
        if groups and kinds[groups[-1][0]] == kinds[row]:
            slots = lengths[groups[-1][0]] * (len(groups[-1]) + 1)
            real = sum(lengths[member] for member in groups[-1]) + lengths[row]
            if slots <= WASTE * real or slots - real < GROUP_COST:
                groups[-1].append(row)
                continue
        groups.append([row])
    return tuple(map(tuple, groups))


def chosen(places_N: Tensor | None, picked_R: Tensor | None) -> Tensor | None:
    """The rows at these indices; None: all, unchanged."""
    return places_N if picked_R is None else picked_R if places_N is None else places_N[picked_R]


class MoveRows(torch.autograd.Function):
    """x[order], where x's gradient is gathered by `inverse` instead of scattered with addition.

    This is valid because each row of x is read at one place that matters; the other copies pad a group's right end,
    where every gradient is zero.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        _, inverse = ctx.saved_tensors
        return grad.index_select(0, inverse), None, None


class MoveRowsBack(torch.autograd.Function):
    """Picks slots, each at most once; slots that are not picked get a zero gradient. The inverse of `MoveRows`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        ctx.slots = x.shape[0]
        return x.index_select(0, back)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (back,) = ctx.saved_tensors
        return grad.new_zeros(ctx.slots, grad.shape[1]).index_copy_(0, back, grad), None


def pick(x_ND: Tensor, picked_R: Tensor | None) -> Tensor:
    """These rows of x, each at most once; None: x unchanged."""
    return x_ND if picked_R is None else MoveRowsBack.apply(x_ND, picked_R)


# -- attention over the groups -----------------------------------------------------------------------------------------
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
