"""The causal transformer trunk: h_0 = U W_e + W_p, h_l = block(h_{l-1}).

One trunk for the post-norm GPT and the pre-norm GPT-2: the papers differ in where the norm stands and in a final
norm, nothing else. Later decoders are other choices of the same configuration (see `block`): Llama's is norm=pre,
norm_kind=rms, activation=silu, gated, without bias, positions=rotary. The trunk works on packed tokens (see `packing`),
never sees a loss, and carries a decoding cache as its state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import UserError, check_range
from foretext.nn.fused import dropout
from foretext.nn.packing import pack
from foretext.nn.transformer.block import Activation, Block, BlockShape, SideInputs, TransformerShape, rotation
from foretext.nn.trunk import Trunk, grown

MOST_BASE = 1_000_000_000  # of rotary positions: far beyond what any model has


@dataclass(frozen=True)
class TransformerConfig(TransformerShape):
    context: int
    dropout: float = 0.1  # after the embeddings, on the attention weights, before each residual addition
    norm: Literal["post", "pre"] = "post"
    epsilon: float = 1e-5
    init_std: float = 0.02
    scale_residuals: bool = False  # whether projections onto the residual stream start 1/√(2 × layers) as large
    norm_kind: Literal["layer", "rms"] = "layer"
    activation: Activation = "gelu-tanh"
    gated: bool = False  # whether the feed-forward part has a gate
    inner: int = 0  # width of the feed-forward part; 0: four times the width
    bias: bool = True  # of linear layers and layer norms
    positions: Literal["learned", "rotary", "none"] = "learned"
    rotary_base: float = 10000.0
    query_key_norm: bool = False
    values: Literal["own", "first", "embeddings"] = "own"  # what a block's values are mixed with, if not own alone

    def check(self) -> None:
        super().check()
        check_range("model", self, "at least 0", "inner")
        check_range("model", self, f"at least 1 and at most {MOST_BASE:,}", "rotary_base")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise UserError(
                f"model.positions=rotary turns pairs of numbers, and a head has {self.width // self.heads}; "
                "choose model.width or model.heads so that it is even"
            )

    def block(self, layer: int = 0) -> BlockShape:
        values: Literal["own", "kept", "mixed"] = "mixed" if self.has_value_table(layer) else "own"
        if self.values == "first":
            values = "mixed" if layer else "kept"
        return BlockShape(
            width=self.width,
            heads=self.heads,
            inner=self.inner or 4 * self.width,
            dropout=self.dropout,
            norm=self.norm,
            epsilon=self.epsilon,
            activation=self.activation,
            norm_kind=self.norm_kind,
            gated=self.gated,
            bias=self.bias,
            query_key_norm=self.query_key_norm,
            values=values,
        )

    def has_value_table(self, layer: int) -> bool:
        """Every second block, the last among them."""
        return self.values == "embeddings" and (self.layers - layer) % 2 == 1

    def parameters(self) -> int:
        rows = self.vocabulary * (1 + sum(map(self.has_value_table, range(self.layers))))
        rows += self.context if self.positions == "learned" else 0
        final = self.block().norm_parameters(self.width) if self.norm == "pre" else 0
        return rows * self.width + sum(self.block(layer).parameters() for layer in range(self.layers)) + final

    def activations(self, tokens: int) -> int:
        weights = 4 * self.heads * self.context if self.dropout else 0  # of attention: fused, none is kept
        plain = self.positions != "rotary" and not self.query_key_norm and self.values == "own"
        states = (18 if plain else 26) * self.width + (7 if self.gated else 4) * self.block().inner
        return tokens * self.layers * (states + weights)


@dataclass(frozen=True)
class DecodingCache:
    """Keys and values of everything read so far, one pair a layer, each [B, H, T, K]."""

    pairs: tuple[tuple[Tensor, Tensor], ...]
    length: int
    padding_B: Tensor | None = None  # places at the left of each row that hold nothing; None: none do


class Transformer(Trunk):
    """Token and position embeddings and a stack of causal blocks."""

    attends = branches = True
    above = ("final_norm.",)

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width) if config.positions == "learned" else None
        self.blocks = nn.ModuleList(Block(config.block(layer)) for layer in range(config.layers))
        self.final_norm = config.block().build_norm(config.width) if config.norm == "pre" else nn.Identity()
        own = filter(config.has_value_table, range(config.layers))
        self.value_tables = nn.ModuleDict({str(n): nn.Embedding(config.vocabulary, config.width) for n in own})
        self.apply(self._initialise)
        if config.scale_residuals:
            self._scale_residuals()

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.init_std)
        if isinstance(module, nn.Linear) and self.config.bias:
            nn.init.zeros_(module.bias)

    @torch.no_grad()
    def _scale_residuals(self) -> None:
        """Each block adds two terms to the residual stream; scaled so, the sum has one term's variance at the start."""
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.out.weight", "down.weight")):
                parameter.mul_((2 * self.config.layers) ** -0.5)

    def new_state(self, rows: int) -> DecodingCache:
        """An empty decoding cache; pass it as `state` to have it filled."""
        return DecodingCache((), 0)

    def room(self, state: DecodingCache) -> int:
        """Tokens that can still be read after `state`."""
        return self.config.context - state.length

    def pick(self, state: DecodingCache, rows: Tensor) -> DecodingCache:
        """The cache of these rows, in this order."""
        padding = None if state.padding_B is None else state.padding_B[rows]
        return DecodingCache(tuple((k[rows], v[rows]) for k, v in state.pairs), state.length, padding)

    def forward(self, batch: Batch, state: DecodingCache | None = None, keep_layers: bool = False) -> Hidden:
        if state is not None:
            return self._continue(batch, state, keep_layers)
        packing = pack(batch)
        x = dropout(self._embed(packing.ids_N, packing.positions_N), self.config.dropout, self.training)
        side = self._side_inputs(packing.positions_N)
        layers = [packing.unpack(x)] if keep_layers else []
        for layer, block in enumerate(self.blocks, 1):
            picked = packing.read_R if layer == self.config.layers and not keep_layers else None
            self._give_values(side, layer - 1, packing.ids_N)
            x = block(x, packing, side, picked)
            if keep_layers:
                layers.append(packing.unpack(x))
        return Hidden(packing.unpack(self.final_norm(x), picked), tuple(layers))

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.tokens(ids) if self.positions is None else self.tokens(ids) + self.positions(positions)

    def _side_inputs(self, positions: Tensor) -> SideInputs:
        if self.config.positions != "rotary":
            return SideInputs()
        head = self.config.width // self.config.heads
        return SideInputs(rotation=rotation(positions, head, self.config.rotary_base, self.tokens.weight.dtype))

    def _give_values(self, side: SideInputs, layer: int, ids: Tensor) -> None:
        """What the tokens' own rows say, to a block that has a table."""
        if str(layer) in self.value_tables:
            side.values = self.value_tables[str(layer)](ids).unflatten(-1, (self.config.heads, -1))

    def _continue(self, batch: Batch, state: DecodingCache, keep_layers: bool) -> Hidden:
        """Reads new tokens after those in the cache. What is read first may be padded, on the left; later tokens not.
        After tokens that do not all see each other nothing can follow: they leave no state. Nothing is dropped out."""
        padding = state.padding_B
        if batch.mask_BT is not None:
            assert not state.length, "padding stands before everything else"
            padding = (~batch.mask_BT).sum(1)
        length = batch.ids_BT.shape[1]
        places = torch.arange(state.length, state.length + length, device=batch.ids_BT.device)
        positions, attend = batch.positions_BT, batch.attend_BTT
        if positions is None:
            positions = places if padding is None else (places - padding[:, None]).clamp(min=0)
        if padding is not None:
            assert attend is None
            attend = _attend_real(places, state.length + length, padding)
        elif attend is not None:
            attend = F.pad(attend, (state.length, 0), value=True)
        x, side = self._embed(batch.ids_BT, positions), self._side_inputs(positions)
        layers = [x] if keep_layers else []
        pairs = []
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            self._give_values(side, index, batch.ids_BT)
            x, pair = block.step(x, state.pairs[index] if state.pairs else None, attend, side)
            if batch.attend_BTT is None:
                pairs.append(pair)
            if keep_layers:
                layers.append(x)
        after = DecodingCache(tuple(pairs), state.length + length, padding) if pairs else None
        return Hidden(self.final_norm(x), tuple(layers), after)

    @torch.no_grad()
    def attention_weights(self, ids_T: Tensor, segments_T: Tensor | None = None) -> Tensor:
        """The attention of every block and head over one sequence: [blocks, H, T, T]."""
        layers = self(Batch(ids_T[None]), keep_layers=True).layers
        found, side = [], self._side_inputs(torch.arange(len(ids_T), device=ids_T.device))
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            self._give_values(side, layer, ids_T)
            found.append(block.attention_weights(layers[layer][0], side))
        return torch.stack(found)

    def output_table(self) -> Tensor:
        """W_e, which is also the output layer."""
        return self.tokens.weight

    def grow_vocabulary(self, size: int) -> None:
        """Adds embedding rows, drawn like new ones, up to `size` (fine-tuning's start, delimiter and extract)."""

        def draw(rows_VD: Tensor) -> None:
            nn.init.normal_(rows_VD, std=self.config.init_std)

        self.tokens = grown(self.tokens, size, draw)
        for layer, table in self.value_tables.items():
            assert isinstance(table, nn.Embedding)
            self.value_tables[layer] = grown(table, size, draw)


def _attend_real(places_T: Tensor, seen: int, padding_B: Tensor) -> Tensor:
    """[B, T, S]: a new place sees those up to itself that hold something; one that holds nothing sees itself."""
    all_S = torch.arange(seen, device=places_T.device)
    before, itself = all_S <= places_T[:, None], all_S == places_T[:, None]
    return (before & (all_S >= padding_B[:, None])[:, None]) | itself
