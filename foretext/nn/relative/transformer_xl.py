"""The Transformer-XL trunk (Dai et al. 2019): a causal transformer whose layers also attend to the states of earlier
tokens, kept as a memory, and whose positions are distances only.

Without a state, a segment is read as by any transformer. With one, every layer's keys and values are those of a memory
and the segment, and the segment's own states become the memory of the next. Gradients stop at the memory.

In training a token sees all of the memory and what precedes it in its segment, so the first tokens of a segment see
less. In evaluation each token sees itself and the `evaluation_memory` tokens before it (the released code's
`same_length`), so that the result does not depend on the pieces in which a text is read: one token at a time, or all at
once.

In training the state (`State`) has the input states of each layer. In evaluation it has their keys and values and the
projected distances, so that a new token needs no recomputation; there are as many distances as the text has needed so
far, not as many as the memory could need. Rows may have tokens at different positions (see `relative_attention`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import check_range
from foretext.nn.adaptive_softmax import AdaptiveVocabulary, adaptive_parameters, check_cutoffs
from foretext.nn.fused import TiedSoftmax, add_dropped, dropout, linear
from foretext.nn.packing import Packing, chosen, pack, pick
from foretext.nn.relative.relative_attention import (
    LONGEST_MEMORY,
    RelativeAttention,
    behind,
    check_width,
    distances,
    hidden_memory,
    last_columns,
    last_of,
    put_back,
    sinusoids,
    to_the_left,
)
from foretext.nn.transformer.block import TransformerShape
from foretext.nn.trunk import OutputLayer, Trunk, grown

Biases = tuple[Tensor, Tensor] | None  # u and w, if all blocks share them


class State(TypedDict):
    """A memory of M positions: `layers` in training, the others in evaluation."""

    real: Tensor  # [B, M], true where there is a token
    layers: NotRequired[tuple[Tensor, ...]]  # the input of each layer, [B, M, D]
    keys: NotRequired[tuple[Tensor, ...]]  # of each layer, [B, M, H, K]
    values: NotRequired[tuple[Tensor, ...]]
    far: NotRequired[tuple[Tensor, ...]]  # the projected distances of each layer, [R, H, K]; after the first token


@dataclass(frozen=True)
class TransformerXLConfig(TransformerShape):
    """The defaults are those of the released base model for WikiText-103, except `inner` (2100 there), the vocabulary's
    cutoffs, and `evaluation_memory`: 640 there includes the token itself, here it does not."""

    layers: int = 16
    width: int = 410
    heads: int = 10
    inner: int = 0  # width of the feed-forward part; 0: four times the width
    context: int = 150  # tokens per segment, which gradients flow through
    memory: int = 150  # earlier states that are seen in pre-training
    evaluation_memory: int = 640  # tokens before each that are seen afterwards
    clamp: int = 400  # larger distances are treated as this one; 0: no limit
    dropout: float = 0.1  # on embeddings, distances, feed-forward units, residual branches, and the top
    attention_dropout: float = 0.0  # on the attention weights
    untied: bool = False  # whether each layer has its own u and w
    # ids at which an adaptive softmax is cut, most frequent first; empty: a plain softmax
    cutoffs: tuple[int, ...] = ()
    divisor: int = 1  # each part of it is narrower than the previous one by this factor
    epsilon: float = 1e-5
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        check_width(self.width)
        most = f"at most {LONGEST_MEMORY:,}"
        check_range("model", self, f"at least 0 and {most}", "inner", "memory", "evaluation_memory", "clamp")
        check_range("model", self, f"at least 1 and {most}", "divisor")
        check_range("model", self, "at least 0 and below 1", "attention_dropout")
        check_cutoffs(self.vocabulary, self.width, self.cutoffs, self.divisor)

    @property
    def feed_forward(self) -> int:
        return self.inner or 4 * self.width

    @property
    def reads(self) -> int:
        """Tokens that a task reads at once: as many as distances were trained for, and as evaluation sees."""
        return min(self.context + self.memory, self.evaluation_memory + 1)

    def remarks(self) -> tuple[str, ...]:
        """Warnings about settings that were not raised together with the segments or the memory."""
        farthest = self.context + self.memory - 1
        warnings = []
        if self.evaluation_memory < farthest:
            warnings.append(
                f"model.evaluation_memory={self.evaluation_memory}: training sees up to {farthest} tokens back, but "
                f"scoring and writing do not, and a task reads only {self.reads} tokens of a text; to see as far: "
                f"--set model.evaluation_memory={farthest}"
            )
        if 0 < self.clamp < farthest:
            warnings.append(
                f"model.clamp={self.clamp}: training sees up to {farthest} tokens back, but treats all distances "
                f"beyond {self.clamp} as equal; to distinguish them: --set model.clamp={farthest}"
            )
        return tuple(warnings)

    def carried(self, rows: int) -> int:
        """Every layer's states, and a flag per position."""
        return rows * self.memory * (self.layers * self.width + 1)

    def describe(self) -> str:
        return (
            f"{self.layers} blocks, width {self.width}, {self.heads} heads, segments of {self.context} "
            f"after a memory of {self.memory}"
        )

    def parameters(self) -> int:
        width, inner = self.width, self.feed_forward
        adaptive = self.cutoffs and adaptive_parameters(self.vocabulary, width, self.cutoffs, self.divisor)
        tables = adaptive or (width + 1) * self.vocabulary
        block = 5 * width * width + inner * (2 * width + 1) + 5 * width
        return tables + self.layers * block + 2 * width * (self.layers if self.untied else 1)

    def activations(self, tokens: int) -> int:
        memory = self.memory / self.context  # memory positions per token
        weights = self.heads * (self.context + self.memory) * (3 if self.attention_dropout else 1)
        states = (16 + 3 * memory) * self.width + (3 if self.dropout else 2) * self.feed_forward
        return int(tokens * self.layers * (states + weights))


class TransformerXLBlock(nn.Module):
    """Relative attention and a feed-forward part with ReLU, each with a residual connection and a norm after it."""

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        width, inner, heads = config.width, config.feed_forward, config.heads
        self.p = config.dropout
        self.attention = RelativeAttention(width, heads, width // heads, config.attention_dropout, biased=config.untied)
        self.norm1 = nn.LayerNorm(width, eps=config.epsilon)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.norm2 = nn.LayerNorm(width, eps=config.epsilon)

    def forward(
        self,
        x_ND: Tensor,
        packing: Packing,
        far_RHK: Tensor,
        unseen: tuple[Tensor | None, ...],
        biases: Biases,
        picked_R: Tensor | None = None,
    ) -> Tensor:
        """The states of all packed tokens of a segment without memory. `unseen`: what is added to the scores of each
        group."""
        attention = self.attention
        weights = torch.cat([attention.query.weight, attention.key.weight, attention.value.weight])
        qkv_N3HK = packing.grouped(F.linear(x_ND, weights).unflatten(1, (3, attention.heads, attention.head_width)))
        parts = []
        for (first, rows, length), hidden in zip(packing.groups, unseen):
            q, k, v = qkv_N3HK[first : first + rows * length].unflatten(0, (rows, length)).unbind(2)
            parts.append(attention.mix(q, k, v, far_RHK[len(far_RHK) - length :], hidden, biases=biases).flatten(0, 1))
        mixed = parts[0] if len(parts) == 1 else torch.cat([*parts, qkv_N3HK[:0, 0]])  # these may be the only ones
        return self._after(pick(x_ND, picked_R), pick(mixed.flatten(1), chosen(packing.from_groups, picked_R)))

    def read_on(
        self, x_BTD: Tensor, keys: Tensor, values: Tensor, far_RHK: Tensor, hidden: Tensor | None, biases: Biases
    ) -> Tensor:
        """The states of a segment whose keys and values follow those of a memory."""
        q = self.attention.query(x_BTD).unflatten(2, keys.shape[2:])
        mixed = self.attention.mix(q, keys, values, far_RHK, hidden, biases=biases)
        return self._after(x_BTD.flatten(0, 1), mixed.flatten(2).flatten(0, 1)).view(x_BTD.shape)

    def _after(self, x_ND: Tensor, mixed_NI: Tensor) -> Tensor:
        x = self.norm1(add_dropped(x_ND, self.attention.out(mixed_NI), self.p, self.training))
        inner = dropout(linear(x, self.up).relu_(), self.p, self.training)
        return self.norm2(add_dropped(x, linear(inner, self.down), self.p, self.training))


class TransformerXL(Trunk):
    """Token embeddings and a stack of blocks with a memory."""

    attends = True
    evaluation_memory: int

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.config = config
        self.evaluation_memory = config.evaluation_memory
        cut, words, width = config.cutoffs, config.vocabulary, config.width
        self.tokens = None if cut else nn.Embedding(words, width)
        self.adaptive = AdaptiveVocabulary(words, width, cut, config.divisor, config.init_std) if cut else None
        self.output_bias = None if cut else nn.Parameter(torch.zeros(words))
        self.content, self.position = (None if config.untied else nn.Parameter(torch.empty(width)) for _ in range(2))
        self.blocks = nn.ModuleList(TransformerXLBlock(config) for _ in range(config.layers))
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        std = self.config.init_std
        for table in (None if self.tokens is None else self.tokens.weight, self.content, self.position):
            if table is not None:
                nn.init.normal_(table, std=std)
        for block in self._blocks():
            block.attention.draw(std)
            for layer in (block.up, block.down):
                nn.init.normal_(layer.weight, std=std)
                nn.init.zeros_(layer.bias)

    def _blocks(self) -> Iterator[TransformerXLBlock]:
        for block in self.blocks:
            assert isinstance(block, TransformerXLBlock)
            yield block

    @property
    def _biases(self) -> Biases:
        return None if self.content is None or self.position is None else (self.content, self.position)

    # -- reading

    def forward(self, batch: Batch, state: State | None = None, keep_layers: bool = False) -> Hidden:
        """`layers`, on request: the embeddings, and each block's states. A state of one row serves all rows."""
        assert batch.attend_BTT is None, "each token sees those before it"
        rows, length = batch.ids_BT.shape
        before = None if state is None else self._for_rows(state, rows)
        if not self.training and not torch.is_grad_enabled() and length > self.config.reads:
            hidden = self._read_pieces(batch, before or self.new_state(rows), keep_layers)
            return hidden if state is not None else replace(hidden, state=None)
        return self._read_at_once(batch, keep_layers) if before is None else self._read_on(batch, before, keep_layers)

    def _read_at_once(self, batch: Batch, keep_layers: bool) -> Hidden:
        packing = pack(batch)
        longest = max((length for _, _, length in packing.groups), default=0)
        x = dropout(self._embed(packing.ids_N), self.config.dropout, self.training)
        layers = [packing.unpack(x)] if keep_layers else []
        waves = self._waves(longest, longest)
        unseen = tuple(self._unseen(length, 0) for _, _, length in packing.groups)
        picked = None
        for number, block in enumerate(self._blocks(), 1):
            if number == self.config.layers and not keep_layers:
                picked = packing.read_R
            x = block(x, packing, block.attention.distances(waves), unseen, self._biases, picked)
            if keep_layers:
                layers.append(packing.unpack(x))
        return Hidden(packing.unpack(x, picked), tuple(layers))

    def _read_pieces(self, batch: Batch, state: State, keep_layers: bool) -> Hidden:
        """A long text in segments: the same result as at once, without the scores of all pairs of tokens."""
        parts = []
        for start in range(0, batch.ids_BT.shape[1], self.config.context):
            piece = slice(start, start + self.config.context)
            mask_BT = None if batch.mask_BT is None else batch.mask_BT[:, piece]
            parts.append(self._read_on(Batch(batch.ids_BT[:, piece], mask_BT), state, keep_layers))
            state = parts[-1].state
        layers = (torch.cat(each, dim=1) for each in zip(*(part.layers for part in parts)))
        return Hidden(torch.cat([part.top for part in parts], dim=1), tuple(layers), state)

    def _read_on(self, batch: Batch, state: State, keep_layers: bool) -> Hidden:
        """A segment after a memory. Rows are moved to the left end, so that each starts right after its memory."""
        order, mask_BT = to_the_left(batch.mask_BT)
        ids_BT = batch.ids_BT if order is None else batch.ids_BT.gather(1, order)
        rows, length = ids_BT.shape
        if not length:
            nothing = next(self.parameters()).new_zeros(*batch.ids_BT.shape, self.config.width)
            return Hidden(nothing, (nothing,) * (self.config.layers + 1) if keep_layers else (), state)
        x = dropout(self._embed(ids_BT.reshape(-1)), self.config.dropout, self.training).view(rows, length, -1)
        layers, seen = [x], []
        real_BM = state["real"]
        far = self._far(state, length, real_BM.shape[1])
        hidden, empty = self._unseen(length, real_BM.shape[1]), hidden_memory(real_BM)
        if empty is not None:
            hidden = F.pad(empty, (0, length)) + (0.0 if hidden is None else hidden)
        for number, block in enumerate(self._blocks()):
            if self.training:
                seen.append(behind(state["layers"][number].detach(), x))
                keys, values = block.attention.read(seen[-1])
            else:
                keys, values = block.attention.read(x)
                keys, values = behind(state["keys"][number], keys), behind(state["values"][number], values)
                seen += [keys, values]
            x = block.read_on(x, keys, values, last_columns(far[number], keys.shape[1]), hidden, self._biases)
            layers.append(x)
        after = self._remembered(tuple(seen), real_BM, mask_BT, far)
        given = layers if keep_layers else layers[-1:]
        given = [put_back(states, order, mask_BT, batch.ids_BT.shape[1]) for states in given]
        return Hidden(given[-1], tuple(given) if keep_layers else (), after)

    def _embed(self, ids_N: Tensor) -> Tensor:
        embed = self.adaptive or self.tokens
        assert embed is not None
        return embed(ids_N) * self.config.width**0.5

    def _waves(self, queries: int, keys: int) -> Tensor:
        far_R = distances(queries, keys, next(self.parameters()).device)
        if self.config.clamp:
            far_R = far_R.clamp(max=self.config.clamp)
        return dropout(sinusoids(far_R, self.config.width), self.config.dropout, self.training)

    def _far(self, state: State, length: int, memory: int) -> tuple[Tensor, ...]:
        """The projected distances for each layer: in training for all positions, in evaluation for those that are seen.
        When a text outgrows them, twice as many are computed, so this happens rarely however long the text is."""
        places = memory + length
        if not self.training:
            places = min(places, self.evaluation_memory + 1)
            kept = state.get("far")
            if kept is not None and len(kept[0]) >= places:
                return kept
            if kept is not None:
                places = max(places, min(2 * len(kept[0]), self.evaluation_memory + 1))
        waves = self._waves(1, places)
        return tuple(block.attention.distances(waves) for block in self._blocks())

    def _unseen(self, queries: int, memory: int) -> Tensor | None:
        """What is added to scores, [1, 1, Q, memory + Q]: −∞ ahead of a token, and in evaluation beyond its reach. A
        single token after a memory sees everything."""
        if queries == 1:
            return None
        device = next(self.parameters()).device
        hidden = torch.full((queries, memory + queries), -torch.inf, device=device).triu_(memory + 1)
        if not self.training and memory + queries > self.evaluation_memory + 1:
            hidden = hidden + torch.full_like(hidden, -torch.inf).tril_(memory - self.evaluation_memory - 1)
        return hidden[None, None]

    # -- memory

    def new_state(self, rows: int) -> State:
        """An empty memory."""
        like, config = next(self.parameters()), self.config
        real = torch.zeros(rows, 0, dtype=torch.bool, device=like.device)
        if self.training:
            return {"layers": tuple(like.new_zeros(rows, 0, config.width) for _ in self.blocks), "real": real}
        empty = like.new_zeros(rows, 0, config.heads, config.width // config.heads)
        return {"keys": (empty,) * config.layers, "values": (empty,) * config.layers, "real": real}

    def _remembered(
        self, seen: tuple[Tensor, ...], real_BM: Tensor, mask_BT: Tensor | None, far: tuple[Tensor, ...]
    ) -> State:
        """The end of what was seen: in training the states, otherwise the keys and values of each layer."""
        length = self.config.memory if self.training else self.evaluation_memory
        kept, real = last_of(seen, real_BM, mask_BT, length)
        if self.training:
            return {"layers": kept, "real": real}
        return {"keys": kept[::2], "values": kept[1::2], "far": far, "real": real}

    def _for_rows(self, state: State, rows: int) -> State:
        kept = "layers" if self.training else "keys"
        assert kept in state, "training and evaluation keep different states"
        if len(state["real"]) == rows:
            return state
        assert len(state["real"]) == 1, f"the state has {len(state['real'])} rows, but the batch has {rows}"
        return self.pick(state, torch.zeros(rows, dtype=torch.long, device=state["real"].device))

    def room(self, state: State) -> None:
        """Any number of tokens can follow."""

    def pick(self, state: State, rows: Tensor) -> State:
        """The state of these rows, in this order."""
        real_BM = state["real"][rows]
        if "layers" in state:
            return {"layers": tuple(states[rows] for states in state["layers"]), "real": real_BM}
        keys, values = (tuple(each[rows] for each in layers) for layers in (state["keys"], state["values"]))
        picked: State = {"keys": keys, "values": values, "real": real_BM}
        if "far" in state:
            picked["far"] = state["far"]
        return picked

    # -- what others ask

    @torch.no_grad()
    def attention_weights(self, ids_T: Tensor, segments_T: Tensor | None = None) -> Tensor:
        """The attention of every block and head over one sequence, without memory: [blocks, H, T, T]."""
        layers = self(Batch(ids_T[None]), keep_layers=True).layers
        waves, hidden = self._waves(len(ids_T), len(ids_T)), self._unseen(len(ids_T), 0)
        read = zip(self._blocks(), layers)
        return torch.stack([block.attention.weights(x, waves, hidden, biases=self._biases) for block, x in read])

    def output_dropout(self, top_BTD: Tensor) -> Tensor:
        """For predicting tokens from `Hidden.top`, which is the last block's states without dropout."""
        return dropout(top_BTD, self.config.dropout, self.training)

    def output_table(self) -> Tensor:
        """The embeddings, which are also the output layer, together with `output_bias`. An adaptive softmax has no
        single table."""
        assert self.tokens is not None, "an adaptive softmax has several tables"
        return self.tokens.weight

    def output_layer(self) -> OutputLayer:
        return self.adaptive or TiedSoftmax(self.output_table(), self.output_bias)

    def memory_length(self) -> int:
        return self.config.memory

    def grow_vocabulary(self, size: int) -> None:
        """Adds randomly drawn embedding rows, up to `size`."""
        if self.adaptive is not None:
            self.adaptive.grow(size)
            return
        assert self.tokens is not None and self.output_bias is not None
        bias = self.output_bias
        self.tokens = grown(self.tokens, size, lambda rows_VD: nn.init.normal_(rows_VD, std=self.config.init_std))
        self.output_bias = nn.Parameter(torch.cat([bias.detach(), bias.new_zeros(size - len(bias))]))
