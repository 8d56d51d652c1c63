"""The trunk of XLNet: two streams over relative positions, with a memory (Yang et al. 2019).

    h_0 = W_e[u],   g_0 = w,   (h_l, g_l) = block(h_{l−1}, g_{l−1}, memory of h_{l−1})

A plain batch is read by the content stream alone, and each token sees its whole sequence; tasks and features read like
this. An `OrderedBatch` gives ranks, which say what each token may see, and targets, which say where the query stream is
used. The top then has the query states there, and nothing elsewhere; the last block's content stream is not needed and
not computed.

Given a state, the trunk reads after its memory, and returns a memory of each block's input, the last `memory` tokens of
each row. Rows read from the right have their ids reversed, and their memory holds what follows them in the text; their
distances have the opposite sign.

A block is relative attention and a feed-forward part, for two streams that share all weights (section 2.3):

    content   h_i = block(h_i, keys and values of all that i may see, itself too)
    query     g_i = block(g_i, keys and values of h of all that i may see, without itself)

Keys and values come from the memory and the content stream alone. So a query state knows its position but not its
token, and can predict it. It is computed only where a token is predicted. Blocks work on packed tokens (see `packing`),
group by group: sequences of similar length, read in one direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import check_range
from foretext.nn.fused import Gelu, add_dropped, dropout, feed_forward
from foretext.nn.packing import Packing, chosen, pack, pick
from foretext.nn.relative.relative_attention import (
    LONGEST_MEMORY,
    RelativeAttention,
    behind,
    check_width,
    distances,
    remember,
    sinusoids,
)
from foretext.nn.relative.sights import OrderedBatch, QueryStream, Sight, sights_of
from foretext.nn.transformer.block import TransformerShape
from foretext.nn.trunk import TokenTrunk

MemoryState = tuple[tuple[Tensor, ...], Tensor]  # the input of each block, [B, M, D], and which positions are real


@dataclass(frozen=True)
class XLNetConfig(TransformerShape):
    context: int
    memory: int = 0  # earlier tokens that are seen too
    dropout: float = 0.1  # on embeddings, sinusoids and attention weights, and before each residual addition
    inner: int = 0  # width of the feed-forward part; 0: four times the width
    gelu: Gelu = "erf"
    epsilon: float = 1e-12
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        check_width(self.width)
        check_range("model", self, "at least 0", "inner")
        check_range("model", self, f"at least 0 and at most {LONGEST_MEMORY:,}", "memory")

    @property
    def feed_forward(self) -> int:
        return self.inner or 4 * self.width

    def carried(self, rows: int) -> int:
        """Every layer's states, and a flag per position."""
        return rows * self.memory * (self.layers * self.width + 1)

    def describe(self) -> str:
        return super().describe() + (f", memory {self.memory}" if self.memory else "")

    def parameters(self) -> int:
        # Per block: five matrices of attention, u, w, s and both segments; the feed-forward part; norms and biases.
        block = 5 * self.width**2 + 10 * self.width + self.feed_forward * (2 * self.width + 1)
        return (self.vocabulary + 1) * self.width + self.layers * block

    def activations(self, tokens: int) -> int:
        """Both streams (the query stream is a fraction of the content stream); the attention weights are kept."""
        weights = (3 if self.dropout else 2) * self.heads * (self.context + self.memory)
        return tokens * self.layers * (24 * self.width + 5 * self.feed_forward + weights)


# -- a block -----------------------------------------------------------------------------------------------------------


class _Placed(torch.autograd.Function):
    """For each row of scores by distance, the `keys` columns from its own offset on. Whole rows are copied, which is
    faster than indexing single numbers."""

    @staticmethod
    def forward(ctx: Any, scores_HNR: Tensor, offsets_N: Tensor, keys: int) -> Tensor:
        ctx.save_for_backward(offsets_N)
        ctx.columns = scores_HNR.shape[2]
        return scores_HNR.unfold(2, keys, 1)[:, torch.arange(len(offsets_N)), offsets_N]

    @staticmethod
    def backward(ctx: Any, grad_HNM: Tensor) -> tuple[Tensor, None, None]:
        (offsets_N,) = ctx.saved_tensors
        (heads, count, keys), columns = grad_HNM.shape, ctx.columns
        whole = grad_HNM.new_zeros(heads, count, columns)
        windows = whole.as_strided((heads, count, columns - keys + 1, keys), (count * columns, columns, 1, 1))
        windows[:, torch.arange(count), offsets_N] = grad_HNM
        return whole, None, None


def query_mix(
    attention: RelativeAttention, q_BGHK: Tensor, k_BMHK: Tensor, v_BMHK: Tensor, far_RHK: Tensor, stream: QueryStream
) -> Tensor:
    """What queries at chosen positions see, [B, G, H, K]; zeros for those that see nothing."""
    (rows, count, heads, width), keys = q_BGHK.shape, k_BMHK.shape[1]
    scale = width**-0.5
    content, position = (bias.view(heads, width) for bias in attention.own_biases())
    scores_BHGM = ((q_BGHK + content) * scale).transpose(1, 2) @ k_BMHK.permute(0, 2, 3, 1)
    by_distance_HNR = torch.bmm(((q_BGHK + position) * scale).flatten(0, 1).transpose(0, 1), far_RHK.permute(1, 2, 0))
    # The columns begin with the farthest key of the last position: see `by_key`.
    placed_HNM = _Placed.apply(by_distance_HNR, (len(far_RHK) - keys - stream.places_BG).flatten(), keys)
    scores_BHGM = scores_BHGM + placed_HNM.view(heads, rows, count, keys).transpose(0, 1)
    if stream.other_BGM is not None:
        scores_BHGM = scores_BHGM + attention.by_segment(q_BGHK, stream.other_BGM)
    weights_BHGM = dropout((scores_BHGM + stream.hidden).softmax(-1), attention.p, attention.training)
    mixed_BGHK = (weights_BHGM @ v_BMHK.transpose(1, 2)).transpose(1, 2)
    return mixed_BGHK if stream.blind_BG is None else mixed_BGHK.masked_fill(stream.blind_BG[..., None, None], 0.0)


class StreamBlock(nn.Module):
    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.p, self.gelu = config.dropout, config.gelu
        width, heads = config.width, config.heads
        self.attention = RelativeAttention(width, heads, width // heads, config.dropout, segments=True)
        self.norm1 = nn.LayerNorm(width, eps=config.epsilon)
        self.up = nn.Linear(width, config.feed_forward)
        self.down = nn.Linear(config.feed_forward, width)
        self.norm2 = nn.LayerNorm(width, eps=config.epsilon)

    def forward(
        self,
        x_ND: Tensor,
        g_AD: Tensor | None,
        packing: Packing,
        sights: Sequence[Sight],
        memory_BMD: Tensor | None,
        picked_R: Tensor | None = None,
        content: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Both streams: all packed tokens of the content stream, or only the picked ones. Without `content`, the
        content stream is not needed and stays unchanged."""
        grouped = packing.grouped(x_ND)
        mixed: list[Tensor] = []
        answers: list[Tensor] = []
        for sight in sights:
            own_BTD = grouped[sight.slots].unflatten(0, (-1, sight.length))
            seen_BMD = own_BTD if memory_BMD is None else behind(memory_BMD[sight.rows], own_BTD)
            keys, values = self.attention.read(seen_BMD)
            far_RHK = self.attention.distances(sight.waves_RD)
            if content:
                queries = self.attention.queries(own_BTD)
                mixed_BTHK = self.attention.mix(queries, keys, values, far_RHK, sight.hidden, sight.other_BTM)
                mixed.append(mixed_BTHK.flatten(2).flatten(0, 1))
            if sight.stream is not None:
                assert g_AD is not None
                answers.append(self._ask(g_AD, sight.stream, keys, values, far_RHK))
        if content and mixed:
            x_ND = self._finish(pick(x_ND, picked_R), pick(_joined(mixed), chosen(packing.from_groups, picked_R)))
        if g_AD is not None and answers:
            g_AD = self._finish(g_AD, _joined(answers))
        return x_ND, g_AD

    def _ask(self, g_AD: Tensor, stream: QueryStream, keys: Tensor, values: Tensor, far_RHK: Tensor) -> Tensor:
        """What the queries of one group see, [its queries, D]."""
        rows, count = stream.places_BG.shape
        own_AD = g_AD[stream.queries]
        if stream.slots_A is not None:
            own_AD = own_AD.new_zeros(rows * count, own_AD.shape[1]).index_copy(0, stream.slots_A, own_AD)
        queries = self.attention.queries(own_AD.unflatten(0, (rows, count)))
        mixed = query_mix(self.attention, queries, keys, values, far_RHK, stream).flatten(2).flatten(0, 1)
        return mixed if stream.slots_A is None else mixed[stream.slots_A]

    def _finish(self, before_ND: Tensor, mixed_ND: Tensor) -> Tensor:
        x = self.norm1(add_dropped(before_ND, self.attention.out(mixed_ND), self.p, self.training))
        inner = feed_forward(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias, self.gelu)
        return self.norm2(add_dropped(x, inner, self.p, self.training))


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


# -- the trunk ---------------------------------------------------------------------------------------------------------


class XLNet(TokenTrunk):
    attends = True

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.query = nn.Parameter(torch.empty(config.width))  # w: the initial query state
        self.blocks = nn.ModuleList(StreamBlock(config) for _ in range(config.layers))
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith(("up.bias", "down.bias")):
                nn.init.zeros_(parameter)
            elif "norm" not in name:
                self.draw(parameter)

    def new_state(self, rows: int) -> MemoryState:
        """An empty memory."""
        weight = self.tokens.weight
        empty = tuple(weight.new_zeros(rows, 0, self.config.width) for _ in range(self.config.layers))
        return empty, torch.zeros(rows, 0, dtype=torch.bool, device=weight.device)

    def forward(self, batch: Batch, state: MemoryState | None = None, keep_layers: bool = False) -> Hidden:
        ordered = (
            batch
            if isinstance(batch, OrderedBatch)
            else OrderedBatch(batch.ids_BT, batch.mask_BT, segments_BT=batch.segments_BT)
        )
        packing = pack(batch, ordered.ways)
        sights, queries_flat = sights_of(ordered, packing, None if state is None else state[1], self._waves)
        p, training = self.config.dropout, self.training
        x = dropout(self.tokens(packing.ids_N), p, training)
        g = None if queries_flat is None else dropout(self.query.expand(len(queries_flat), -1), p, training)
        assert g is None or not keep_layers, "the layers are the content's"
        memories = (None,) * len(self.blocks) if state is None else state[0]
        picked = None if keep_layers else packing.read_R
        given = [x]
        for number, (block, memory) in enumerate(zip(self.blocks, memories), 1):
            last = number == len(self.blocks)
            x, g = block(x, g, packing, sights, memory, picked if last else None, content=g is None or not last)
            given = [*given, x] if keep_layers or state is not None else [x]
        top = packing.unpack(x, picked) if g is None or queries_flat is None else packing.spread(g, queries_flat)
        layers = tuple(map(packing.unpack, given)) if keep_layers else ()
        return Hidden(top, layers, self._remembered(state, given[:-1], packing, ordered))

    def _waves(self, far_R: Tensor) -> Tensor:
        waves_RD = sinusoids(far_R, self.config.width).to(self.query.dtype)
        return dropout(waves_RD, self.config.dropout, self.training)

    def _remembered(
        self, state: MemoryState | None, given: list[Tensor], packing: Packing, ordered: OrderedBatch
    ) -> MemoryState | None:
        """The next state, if there is one; `given`: each block's input, packed."""
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
        weights = []
        for block, x_1TD in zip(self.blocks, layers):
            assert isinstance(block, StreamBlock)
            weights.append(block.attention.weights(x_1TD, waves_RD, None, other_1TT))
        return torch.stack(weights)
