"""The trunk of XLNet: two streams over relative positions, with a memory (Yang et al. 2019).

    h_0 = W_e[u],   g_0 = w,   (h_l, g_l) = block(h_{l−1}, g_{l−1}, memory of h_{l−1})

A plain batch is read by the content stream alone, each token seeing all of its sequence: so tasks and features read. An
`OrderedBatch` says by ranks what each token may see, and by its targets where the query stream is asked: the top then
has the query states there, and nothing elsewhere. The last block's content is nobody's input and is not computed.

Given a state, the trunk reads after what it remembers, and returns a memory of what each block was given, the last
`memory` tokens of each row. Rows that are read from the right have their ids turned round, and their memory holds what
stands behind them in the text; their distances count the other way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, Hidden
from foretext.errors import check_range
from foretext.nn.fused import Gelu, dropout
from foretext.nn.packing import Packing, pack, unseen
from foretext.nn.relative.relative_attention import LONGEST_MEMORY, check_width, distances, remember, sinusoids
from foretext.nn.relative.two_stream import Asked, Sight, StreamBlock, StreamShape
from foretext.nn.transformer.transformer import TransformerShape
from foretext.nn.trunk import TokenTrunk

MemoryState = tuple[tuple[Tensor, ...], Tensor]  # what each block was given, [B, M, D], and what of it is real


@dataclass(frozen=True)
class OrderedBatch(Batch):
    """`ids_BT` in the order of reading. A token sees those of no higher rank than its own, a query those of a lower
    one; queries are asked where there are targets."""

    ranks_BT: Tensor | None = None
    backward_B: Tensor | None = None  # rows that are read from the right; None: none
    kept: int | None = None  # how many columns, from the first, are remembered; None: all
    memory: int | None = None  # how many tokens are remembered, if not as many as the trunk is configured with

    @property
    def ways(self) -> list[int] | None:
        """1 for a row that is read from the right, 0 for others; None: there is none."""
        return None if self.backward_B is None else self.backward_B.int().tolist()


@dataclass(frozen=True)
class XLNetConfig(TransformerShape):
    context: int
    memory: int = 0  # tokens before those that are read, that are seen too
    dropout: float = 0.1  # of embeddings, sinusoids and attention weights, and before each residual addition
    inner: int = 0  # width of the feed-forward part; 0: four times the width
    gelu: Gelu = "erf"
    epsilon: float = 1e-12
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        check_width(self.width)
        check_range("model", self, "at least 0", "inner")
        check_range("model", self, f"at least 0 and at most {LONGEST_MEMORY:,}", "memory")

    def block(self) -> StreamShape:
        return StreamShape(self.width, self.heads, self.inner or 4 * self.width, self.dropout, self.epsilon, self.gelu)

    def carried(self, rows: int) -> int:
        """Every layer's states, and a mark for each place."""
        return rows * self.memory * (self.layers * self.width + 1)

    def describe(self) -> str:
        return super().describe() + (f", memory {self.memory}" if self.memory else "")

    def parameters(self) -> int:
        return (self.vocabulary + 1) * self.width + self.layers * self.block().parameters()

    def activations(self, tokens: int) -> int:
        """Both streams, the query stream being a part of the other; the attention weights are kept."""
        weights = (3 if self.dropout else 2) * self.heads * (self.context + self.memory)
        return tokens * self.layers * (24 * self.width + 5 * self.block().inner + weights)


class XLNet(TokenTrunk):
    attends = True

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.query = nn.Parameter(torch.empty(config.width))  # w: what a query is before it has seen anything
        self.blocks = nn.ModuleList(StreamBlock(config.block()) for _ in range(config.layers))
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith(("up.bias", "down.bias")):
                nn.init.zeros_(parameter)
            elif "norm" not in name:
                self.draw(parameter)

    def new_state(self, rows: int) -> MemoryState:
        """Nothing has been read."""
        weight = self.tokens.weight
        empty = tuple(weight.new_zeros(rows, 0, self.config.width) for _ in range(self.config.layers))
        return empty, torch.zeros(rows, 0, dtype=torch.bool, device=weight.device)

    def forward(self, batch: Batch, state: MemoryState | None = None, keep_layers: bool = False) -> Hidden:
        ordered = batch if isinstance(batch, OrderedBatch) else OrderedBatch(batch.ids_BT, batch.mask_BT)
        packing = pack(batch, ordered.ways)
        sights, asked_flat = _sights(self, batch, ordered, packing, None if state is None else state[1])
        p, training = self.config.dropout, self.training
        x = dropout(self.tokens(packing.ids_N), p, training)
        g = None if asked_flat is None else dropout(self.query.expand(len(asked_flat), -1), p, training)
        assert g is None or not keep_layers, "the layers are the content's"
        memories = (None,) * len(self.blocks) if state is None else state[0]
        picked = None if keep_layers else packing.read_R
        given = [x]
        for number, (block, memory) in enumerate(zip(self.blocks, memories), 1):
            last = number == len(self.blocks)
            x, g = block(x, g, packing, sights, memory, picked if last else None, content=g is None or not last)
            given = [*given, x] if keep_layers or state is not None else [x]
        top = packing.unpack(x, picked) if g is None or asked_flat is None else packing.spread(g, asked_flat)
        layers = tuple(map(packing.unpack, given)) if keep_layers else ()
        return Hidden(top, layers, self._remembered(state, given[:-1], packing, ordered))

    def _remembered(
        self, state: MemoryState | None, given: list[Tensor], packing: Packing, ordered: OrderedBatch
    ) -> MemoryState | None:
        """What follows a state, if there is one; `given`: what each block read, packed."""
        if state is None:
            return None
        length = self.config.memory if ordered.memory is None else ordered.memory
        kept = tuple(packing.unpack(states.detach())[:, : ordered.kept] for states in given)
        mask_BT = None if ordered.mask_BT is None else ordered.mask_BT[:, : ordered.kept]
        return remember(state[0], state[1], kept, mask_BT, length)

    def memory_length(self) -> int:
        return self.config.memory

    @torch.no_grad()
    def attention_weights(self, ids_T: Tensor, segments_T: Tensor | None = None) -> Tensor:
        """The attention of every block and head over one sequence, read by the content stream: [blocks, H, T, T]."""
        length, segments_1T = len(ids_T), None if segments_T is None else segments_T[None]
        layers = self(Batch(ids_T[None], segments_BT=segments_1T), keep_layers=True).layers
        waves_RD = sinusoids(distances(length, length, ids_T.device, ahead=True), self.config.width)
        waves_RD = waves_RD.to(self.query.dtype)
        other_1TT = None if segments_1T is None else segments_1T[:, :, None] != segments_1T[:, None, :]
        found = []
        for block, x_1TD in zip(self.blocks, layers):
            assert isinstance(block, StreamBlock)
            found.append(block.attention.weights(x_1TD, waves_RD, None, other_1TT))
        return torch.stack(found)


# -- what is seen ------------------------------------------------------------------------------------------------------


def _sights(
    trunk: XLNet, batch: Batch, ordered: OrderedBatch, packing: Packing, remembered_BM: Tensor | None
) -> tuple[list[Sight], Tensor | None]:
    """What each group sees, and where in the flattened [B · T] the queries stand, group after group; None: there is no
    query stream."""
    device = packing.ids_N.device
    assert remembered_BM is None or len(remembered_BM) == packing.rows, "a memory of other rows"
    memory = 0 if remembered_BM is None else remembered_BM.shape[1]
    config, found, places = trunk.config, [], []
    count = 0
    for (first, rows, length), lengths, members in zip(packing.groups, packing.lengths, packing.members):
        slots = slice(first, first + rows * length)
        flat_BT = _flat(packing, slots, device).view(rows, length)
        members_B = torch.tensor(members, device=device)
        lengths_B1 = torch.tensor(lengths, device=device)[:, None]
        real_BT = torch.arange(length, device=device) < lengths_B1 if min(lengths) < length else None
        seen = _Seen(rows, length, real_BT, None if remembered_BM is None else remembered_BM[members_B])
        parts = (batch.segments_BT, ordered.ranks_BT, batch.targets_BT)
        segments_BT, ranks_BT, targets_BT = (None if x_BT is None else x_BT.reshape(-1)[flat_BT] for x_BT in parts)
        backward = ordered.backward_B is not None and bool(ordered.backward_B[members[0]])
        far_R = distances(length, memory + length, device, ahead=True)
        waves_RD = sinusoids(-far_R if backward else far_R, config.width).to(trunk.query.dtype)
        asked = None
        if ranks_BT is not None and targets_BT is not None:
            asked, own = _asked(targets_BT != IGNORE, ranks_BT, segments_BT, seen, count)
            places.append(flat_BT[own])
            count += len(places[-1])
        ordered_BTT = None if ranks_BT is None else ranks_BT[:, None, :] <= ranks_BT[:, :, None]
        found.append(
            Sight(
                _rows(members, members_B),
                slots,
                length,
                dropout(waves_RD, config.dropout, trunk.training),
                seen.hidden(ordered_BTT),
                None if segments_BT is None else seen.others(segments_BT, segments_BT),
                asked,
            )
        )
    return found, torch.cat(places) if places else None


def _rows(members: tuple[int, ...], members_B: Tensor) -> slice | Tensor:
    """A group's rows of the batch, as a slice if they follow each other."""
    found = slice(members[0], members[-1] + 1)
    return found if members == tuple(range(found.start, found.stop)) else members_B


def _flat(packing: Packing, slots: slice, device: torch.device) -> Tensor:
    """Where the tokens of these slots stand in the flattened [B · T]."""
    if packing.flat_N is None or packing.to_groups is None:
        return torch.arange(slots.start, slots.stop, device=device)
    return packing.flat_N[packing.to_groups[slots]]


@dataclass(frozen=True)
class _Seen:
    """The keys of a group: the memory's places, then its own."""

    rows: int
    length: int
    real_BT: Tensor | None  # None: all are
    remembered_BM: Tensor | None  # None: there is no memory

    def hidden(self, allowed_BQT: Tensor | None) -> Tensor | None:
        """[rows, 1, 1 or Q, M + T]: −∞ at keys that hold nothing, and at its own that are not allowed to a query."""
        visible = self.visible(allowed_BQT)
        return None if visible is None else unseen(visible)[:, None]

    def visible(self, allowed_BQT: Tensor | None) -> Tensor | None:
        """[rows, 1 or Q, M + T]; None: all."""
        memory = self.remembered_BM
        if allowed_BQT is None and self.real_BT is None and (memory is None or bool(memory.all())):
            return None
        own = allowed_BQT
        if self.real_BT is not None:
            own = self.real_BT[:, None] if own is None else own & self.real_BT[:, None]
        if own is None:
            assert memory is not None
            own = memory.new_ones(self.rows, 1, self.length)
        return own if memory is None else torch.cat([memory[:, None].expand(-1, own.shape[1], -1), own], dim=2)

    def others(self, queries_BQ: Tensor, segments_BT: Tensor) -> Tensor:
        """[rows, Q, M + T]: where a key is of another segment than the query. What is remembered is of the first."""
        keys_BM = segments_BT
        if self.remembered_BM is not None:
            keys_BM = torch.cat([torch.zeros_like(self.remembered_BM, dtype=segments_BT.dtype), segments_BT], dim=1)
        return queries_BQ[:, :, None] != keys_BM[:, None, :]


def _asked(
    wanted_BT: Tensor, ranks_BT: Tensor, segments_BT: Tensor | None, seen: _Seen, before: int
) -> tuple[Asked | None, tuple[Tensor, Tensor]]:
    """The query stream of a group, after `before` queries of others, and the rows and places of its queries."""
    wanted_BT = wanted_BT if seen.real_BT is None else wanted_BT & seen.real_BT
    counts_B = wanted_BT.sum(1)
    most = int(counts_B.max())
    places_BG = torch.argsort(wanted_BT.int(), dim=1, descending=True, stable=True)[:, :most]
    valid_BG = torch.arange(most, device=counts_B.device) < counts_B[:, None]
    rows_A, numbers_A = valid_BG.nonzero(as_tuple=True)
    own = rows_A, places_BG[rows_A, numbers_A]
    if not most:
        return None, own
    visible = seen.visible(ranks_BT[:, None, :] < ranks_BT.gather(1, places_BG)[:, :, None])
    assert visible is not None
    blind_BG = ~visible.any(2)
    others = None if segments_BT is None else seen.others(segments_BT.gather(1, places_BG), segments_BT)
    asked = Asked(
        slice(before, before + len(rows_A)),
        None if len(rows_A) == valid_BG.numel() else valid_BG.flatten().nonzero().squeeze(1),
        places_BG,
        unseen(visible | blind_BG[..., None])[:, None],
        blind_BG if bool(blind_BG.any()) else None,
        others,
    )
    return asked, own
