"""Padding that costs nothing: the real tokens of a batch end to end, and like lengths together for attention.

A padded batch wastes most of its arithmetic on short sentences. A trunk therefore works on the N real tokens as one
[N, D] matrix (embeddings, projections, norms and the feed-forward part do not care where a sequence ends) and only
attention sees sequences, in groups of similar length. Inside a group rows are filled up at the right end with copies
of some real row: a causal model never looks there, one that looks both ways is told not to (`Packing.hidden`), and
nobody reads what comes out there.

Positions count real tokens from the left of each row, so the side and the amount of padding change nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foretext.batch import Batch

Groups = tuple[tuple[int, int, int], ...]  # (first slot, sequences, length)
OfRows = tuple[tuple[int, ...], ...]  # for each group a number for each of its rows
WASTE = 1.25  # a group may hold at most this many times its real tokens
GROUP_COST = 64  # tokens that one more group must save to be worth its overhead
FEW = 0.75  # part of the tokens below which it is worth picking those that are read


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of a batch are. `groups` holds (first row, rows, length) in the grouped order."""

    rows: int
    length: int
    ids_N: Tensor
    positions_N: Tensor
    flat_N: Tensor | None  # index of each packed token in the flattened [B · T]; None if nothing is padded
    to_groups: Tensor | None  # packed index for each grouped slot
    from_groups: Tensor | None  # grouped slot of each packed token
    groups: tuple[tuple[int, int, int], ...]  # (first slot, sequences, length), none of them empty
    lengths: tuple[tuple[int, ...], ...]  # for each group the real tokens of each of its sequences
    members: tuple[tuple[int, ...], ...]  # for each group the rows of the batch that its sequences are
    segments_N: Tensor | None = None
    read_R: Tensor | None = None  # packed index of each token whose top state is read; None: all, or nearly all

    def hidden(self) -> tuple[Tensor | None, ...]:
        """For each group what is added to the scores of its keys, [rows, 1, 1, T]: −∞ where a row is filled up; None
        where none is."""
        found: list[Tensor | None] = []
        for (_, _, longest), lengths in zip(self.groups, self.lengths):
            real = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
            found.append(None if min(lengths) == longest else unseen(real.to(self.ids_N.device))[:, None, None, :])
        return tuple(found)

    def grouped(self, x_N: Tensor) -> Tensor:
        """The tokens' rows in the order of the groups, filled up."""
        if self.to_groups is None or self.from_groups is None:
            return x_N
        return MoveRows.apply(x_N, self.to_groups, self.from_groups)

    def unpack(self, x_ND: Tensor, picked_R: Tensor | None = None) -> Tensor:
        """Back to [B, T, D], zeros at the padding. `picked_R`: `x_ND` has only these of the packed tokens."""
        places = chosen(self.flat_N, picked_R)
        return x_ND.view(self.rows, self.length, x_ND.shape[-1]) if places is None else self.spread(x_ND, places)

    def spread(self, x_ND: Tensor, flat_N: Tensor) -> Tensor:
        """[B, T, D] with these rows at these indices of the flattened [B · T], zeros elsewhere."""
        wide = x_ND.new_zeros(self.rows * self.length, x_ND.shape[-1])
        return wide.index_copy(0, flat_N, x_ND).view(self.rows, self.length, x_ND.shape[-1])


def unseen(seen: Tensor) -> Tensor:
    """What is added to scores: 0 where something may be seen, −∞ elsewhere."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -torch.inf)


def pack(batch: Batch, kinds: Sequence[int] | None = None) -> Packing:
    """Finds the real tokens of `batch` and sorts its sequences into groups of like length; with `kinds`, one for each
    row, also of one kind."""
    rows, length = batch.ids_BT.shape
    device = batch.ids_BT.device
    mask = None if batch.mask_BT is None or bool(batch.mask_BT.all()) else batch.mask_BT
    positions, flat_N, to_groups, from_groups = batch.positions_BT, None, None, None
    if mask is None:
        members = _alike(kinds or [0] * rows) if rows * length else ()
        groups = tuple((own[0] * length, len(own), length) for own in members)
        lengths: OfRows = tuple((length,) * len(own) for own in members)
        positions = torch.arange(length, device=device).expand(rows, length) if positions is None else positions
    else:
        flat_N = mask.reshape(-1).nonzero().squeeze(1)
        groups, lengths, members, there, back = _group(mask.sum(1).tolist(), kinds)
        to_groups, from_groups = there.to(device), back.to(device)
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
    """Where it is true; None where that is nearly everywhere."""
    found = read_N.nonzero().squeeze(1)
    return found if len(found) < FEW * len(read_N) else None


def _alike(kinds: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Rows that stand next to each other and are of one kind."""
    return tuple(tuple(rows) for _, rows in itertools.groupby(range(len(kinds)), key=kinds.__getitem__))


def _group(lengths: Sequence[int], kinds: Sequence[int] | None = None) -> tuple[Groups, OfRows, OfRows, Tensor, Tensor]:
    """The groups, their sequences' lengths and rows, the packed index for each slot, the slot of each packed token."""
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
    """The rows of each group, longest first; a new group begins where filling up to the group's length would waste too
    much, and where the kind is another."""
    order = sorted((row for row in range(len(lengths)) if lengths[row]), key=lambda row: (kinds[row], -lengths[row]))
    found: list[list[int]] = []
    for row in order:
        if found and kinds[found[-1][0]] == kinds[row]:
            slots = lengths[found[-1][0]] * (len(found[-1]) + 1)
            real = sum(lengths[member] for member in found[-1]) + lengths[row]
            if slots <= WASTE * real or slots - real < GROUP_COST:
                found[-1].append(row)
                continue
        found.append([row])
    return tuple(map(tuple, found))


def chosen(places_N: Tensor | None, picked_R: Tensor | None) -> Tensor | None:
    """These of the places; None: all, or each its own."""
    return places_N if picked_R is None else picked_R if places_N is None else places_N[picked_R]


class MoveRows(torch.autograd.Function):
    """x[there], with x's gradient taken by `back` instead of a scattered addition.

    Valid because each row of x is read at one place that matters; the other copies fill up a group's right end, where
    every gradient is zero.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(there, back)
        return x.index_select(0, there)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        _, back = ctx.saved_tensors
        return grad.index_select(0, back), None, None


class MoveRowsBack(torch.autograd.Function):
    """Picks slots, each at most once; those that nobody reads get a zero gradient. The reverse of `MoveRows`."""

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
    """These rows of x, each taken at most once; None: x as it is."""
    return x_ND if picked_R is None else MoveRowsBack.apply(x_ND, picked_R)
