"""Padding at no cost: the real tokens of a batch are stored end to end, and similar lengths are grouped for attention.

With short sentences, most of the arithmetic on a padded batch is wasted. So a trunk works on the N real tokens as one
[N, D] matrix: embeddings, projections, norms and the feed-forward part do not depend on where a sequence ends. Only
attention sees sequences, in groups of similar length. Within a group, rows are padded on the right with copies of a
real row. A causal model never attends there, a bidirectional one has a mask (`Packing.hidden`), and the results there
are not read.

Positions count real tokens from the left of each row, so the side and the amount of padding have no effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foretext.batch import Batch

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
