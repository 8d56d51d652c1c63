"""The causal transformer trunk: h_0 = U W_e + W_p, h_l = block(h_{l-1}).

One trunk for the post-norm GPT and the pre-norm GPT-2: the papers differ in where the norm stands and in a final
norm, nothing else. It works on packed tokens (see `packing`), never sees a loss, and carries a decoding cache as its
state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.nn.dropout import dropout
from foretext.nn.model_config import ModelConfig
from foretext.nn.packing import pack
from foretext.nn.transformer.block import Block, BlockShape, check_shape
from foretext.nn.trunk import Trunk
from foretext.nn.vocabulary_rows import grown


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    vocabulary: int
    layers: int
    width: int
    heads: int
    context: int
    dropout: float = 0.1  # after the embeddings, on the attention weights, before each residual addition
    norm: Literal["post", "pre"] = "post"
    epsilon: float = 1e-5
    init_std: float = 0.02
    scale_residuals: bool = False  # whether projections onto the residual stream start 1/√(2 × layers) as large

    def check(self) -> None:
        check_shape(self)

    def block(self) -> BlockShape:
        return BlockShape(self.width, self.heads, 4 * self.width, self.dropout, self.norm, self.epsilon)

    def describe(self) -> str:
        return f"{self.layers} blocks, width {self.width}, {self.heads} heads, context {self.context}"

    def parameters(self) -> int:
        width = self.width
        final = 2 * width if self.norm == "pre" else 0
        return (self.vocabulary + self.context) * width + self.layers * self.block().parameters() + final

    def activations(self, tokens: int) -> int:
        weights = 4 * self.heads * self.context if self.dropout else 0  # of attention: fused, none is kept
        return tokens * self.layers * (34 * self.width + weights)


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
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config.block()) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, eps=config.epsilon) if config.norm == "pre" else nn.Identity()
        self.apply(self._initialise)
        if config.scale_residuals:
            self._scale_residuals()

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.init_std)
        if isinstance(module, nn.Linear):
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
        x = self.tokens(packing.ids_N) + self.positions(packing.positions_N)
        x = dropout(x, self.config.dropout, self.training)
        layers = [packing.unpack(x)] if keep_layers else []
        picked = None
        for layer, block in enumerate(self.blocks, 1):
            if layer == self.config.layers and not keep_layers:
                picked = packing.read_R
            x = block(x, packing, (), picked)
            if keep_layers:
                layers.append(packing.unpack(x))
        return Hidden(packing.unpack(self.final_norm(x), picked), tuple(layers))

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
        x = self.tokens(batch.ids_BT) + self.positions(positions)
        layers = [x] if keep_layers else []
        pairs = []
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x, pair = block.step(x, state.pairs[index] if state.pairs else None, attend)
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
        found = []
        for block, x_1TD in zip(self.blocks, layers):
            assert isinstance(block, Block)
            found.append(block.attention_weights(x_1TD[0]))
        return torch.stack(found)

    def output_table(self) -> Tensor:
        """W_e, which is also the output layer."""
        return self.tokens.weight

    def grow_vocabulary(self, size: int) -> None:
        """Adds embedding rows, drawn like new ones, up to `size` (fine-tuning's start, delimiter and extract)."""
        self.tokens = grown(self.tokens, size, lambda rows_VD: nn.init.normal_(rows_VD, std=self.config.init_std))


def _attend_real(places_T: Tensor, seen: int, padding_B: Tensor) -> Tensor:
    """[B, T, S]: a new place sees those up to itself that hold something; one that holds nothing sees itself."""
    all_S = torch.arange(seen, device=places_T.device)
    before = all_S[None, :] <= places_T[:, None]
    real = all_S[None, :] >= padding_B[:, None]
    itself = all_S[None, :] == places_T[:, None]
    return (before[None] & real[:, None]) | itself[None]
