"""What the tokens of a batch may see in XLNet's two streams, group by group of packed sequences.

An `OrderedBatch` gives each token a rank. From the ranks follow the masks of both streams, and the positions at which
the query stream is computed: those with a target. The keys of a group are the memory's positions, then its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from foretext.batch import IGNORE, Batch
from foretext.nn.packing import Packing, unseen
from foretext.nn.relative.relative_attention import distances


@dataclass(frozen=True)
class OrderedBatch(Batch):
    """`ids_BT` in reading order. A token sees those of no higher rank than its own, a query those of a lower one; there
    is a query wherever there is a target."""

    ranks_BT: Tensor | None = None
    backward_B: Tensor | None = None  # rows that are read from the right; None: none
    kept: int | None = None  # how many columns, from the first, are remembered; None: all
    memory: int | None = None  # how many tokens are remembered, if not as configured

    @property
    def ways(self) -> list[int] | None:
        """1 for a row that is read from the right, 0 for others; None: there is none."""
        return None if self.backward_B is None else self.backward_B.int().tolist()


@dataclass(frozen=True)
class QueryStream:
    """The query stream of a group: `G` positions per row; rows with fewer have fillers that nothing reads."""

    queries: slice  # among all queries, which are in the order of the groups
    slots_A: Tensor | None  # where these are in [rows · G]; None: each row has G
    places_BG: Tensor  # position within the row, without the memory
    hidden: Tensor  # [rows, 1, G, M + T]: −∞ where a query may not attend
    blind_BG: Tensor | None  # queries that see nothing; None: none
    other_BGM: Tensor | None  # true where a key is in another segment


@dataclass(frozen=True)
class Sight:
    """What the sequences of a group see: `rows` of the batch, after their memory of M positions."""

    rows: Tensor | slice  # of the batch
    slots: slice  # of the grouped tokens
    length: int  # T
    waves_RD: Tensor  # the sinusoids of distances, farthest first
    hidden: Tensor | None  # [rows, 1, 1 or T, M + T]: −∞ where attention is not allowed; None: everything is allowed
    other_BTM: Tensor | None = None  # true where a key is in another segment than a query
    stream: QueryStream | None = None


def sights_of(
    batch: OrderedBatch, packing: Packing, remembered_BM: Tensor | None, waves: Callable[[Tensor], Tensor]
) -> tuple[list[Sight], Tensor | None]:
    """What each group sees, and the positions of the queries in the flattened [B · T], group by group; None: there is
    no query stream. `waves`: the sinusoids of distances."""
    device = packing.ids_N.device
    assert remembered_BM is None or len(remembered_BM) == packing.rows, "a memory of other rows"
    memory = 0 if remembered_BM is None else remembered_BM.shape[1]
    sights, places = [], []
    count = 0
    for (first, rows, length), lengths, members in zip(packing.groups, packing.lengths, packing.members):
        slots = slice(first, first + rows * length)
        flat_BT = _flat(packing, slots, device).view(rows, length)
        members_B = torch.tensor(members, device=device)
        lengths_B1 = torch.tensor(lengths, device=device)[:, None]
        real_BT = torch.arange(length, device=device) < lengths_B1 if min(lengths) < length else None
        seen = _Seen(rows, length, real_BT, None if remembered_BM is None else remembered_BM[members_B])
        parts = (batch.segments_BT, batch.ranks_BT, batch.targets_BT)
        segments_BT, ranks_BT, targets_BT = (None if x_BT is None else x_BT.reshape(-1)[flat_BT] for x_BT in parts)
        backward = batch.backward_B is not None and bool(batch.backward_B[members[0]])
        far_R = distances(length, memory + length, device, ahead=True)
        waves_RD = waves(-far_R if backward else far_R)
        stream = None
        if ranks_BT is not None and targets_BT is not None:
            stream, at = _query_stream(targets_BT != IGNORE, ranks_BT, segments_BT, seen, count)
            places.append(flat_BT[at])
            count += len(places[-1])
        ordered_BTT = None if ranks_BT is None else ranks_BT[:, None, :] <= ranks_BT[:, :, None]
        sights.append(
            Sight(
                _rows(members, members_B),
                slots,
                length,
                waves_RD,
                seen.hidden(ordered_BTT),
                None if segments_BT is None else seen.others(segments_BT, segments_BT),
                stream,
            )
        )
    return sights, torch.cat(places) if places else None


def _rows(members: tuple[int, ...], members_B: Tensor) -> slice | Tensor:
    """A group's rows of the batch, as a slice if they are consecutive."""
    rows = slice(members[0], members[-1] + 1)
    return rows if members == tuple(range(rows.start, rows.stop)) else members_B


def _flat(packing: Packing, slots: slice, device: torch.device) -> Tensor:
    """Where the tokens of these slots are in the flattened [B · T]."""
    if packing.flat_N is None or packing.to_groups is None:
        return torch.arange(slots.start, slots.stop, device=device)
    return packing.flat_N[packing.to_groups[slots]]


@dataclass(frozen=True)
class _Seen:
    """The keys of a group: the memory's positions, then its own."""

    rows: int
    length: int
    real_BT: Tensor | None  # None: all are
    remembered_BM: Tensor | None  # None: there is no memory

    def hidden(self, allowed_BQT: Tensor | None) -> Tensor | None:
        """[rows, 1, 1 or Q, M + T]: −∞ at unused positions, and at its own positions that a query may not see."""
        visible = self.visible(allowed_BQT)
        return None if visible is None else unseen(visible)[:, None]

    def visible(self, allowed_BQT: Tensor | None) -> Tensor | None:
        """[rows, 1 or Q, M + T]; None: all are visible."""
        memory = self.remembered_BM
        if allowed_BQT is None and self.real_BT is None and (memory is None or bool(memory.all())):
            return None
        here_BQT = allowed_BQT
        if self.real_BT is not None:
            here_BQT = self.real_BT[:, None] if here_BQT is None else here_BQT & self.real_BT[:, None]
        if here_BQT is None:
            assert memory is not None
            here_BQT = memory.new_ones(self.rows, 1, self.length)
        if memory is None:
            return here_BQT
        return torch.cat([memory[:, None].expand(-1, here_BQT.shape[1], -1), here_BQT], dim=2)

    def others(self, queries_BQ: Tensor, segments_BT: Tensor) -> Tensor:
        """[rows, Q, M + T]: true where a key is in another segment than the query. The memory is in the first
        segment."""
        keys_BM = segments_BT
        if self.remembered_BM is not None:
            keys_BM = torch.cat([torch.zeros_like(self.remembered_BM, dtype=segments_BT.dtype), segments_BT], dim=1)
        return queries_BQ[:, :, None] != keys_BM[:, None, :]


def _query_stream(
    wanted_BT: Tensor, ranks_BT: Tensor, segments_BT: Tensor | None, seen: _Seen, before: int
) -> tuple[QueryStream | None, tuple[Tensor, Tensor]]:
    """The query stream of a group, after `before` queries of others, and the rows and positions of its queries."""
    wanted_BT = wanted_BT if seen.real_BT is None else wanted_BT & seen.real_BT
    counts_B = wanted_BT.sum(1)
    most = int(counts_B.max())
    places_BG = torch.argsort(wanted_BT.int(), dim=1, descending=True, stable=True)[:, :most]
    valid_BG = torch.arange(most, device=counts_B.device) < counts_B[:, None]
    rows_A, numbers_A = valid_BG.nonzero(as_tuple=True)
    at = rows_A, places_BG[rows_A, numbers_A]
    if not most:
        return None, at
    visible = seen.visible(ranks_BT[:, None, :] < ranks_BT.gather(1, places_BG)[:, :, None])
    assert visible is not None
    blind_BG = ~visible.any(2)
    others = None if segments_BT is None else seen.others(segments_BT.gather(1, places_BG), segments_BT)
    stream = QueryStream(
        slice(before, before + len(rows_A)),
        None if len(rows_A) == valid_BG.numel() else valid_BG.flatten().nonzero().squeeze(1),
        places_BG,
        unseen(visible | blind_BG[..., None])[:, None],
        blind_BG if bool(blind_BG.any()) else None,
        others,
    )
    return stream, at
