"""The bidirectional transformer trunk of BERT, RoBERTa and ALBERT.

    h_0 = norm(W_e[u] + W_p[i] + W_s[segment]),   h_l = block(h_{l-1}),   each token sees all of its sequence

The three papers are settings of it: ALBERT's table is narrower than the blocks and projected up to them, and one block
does the work of all layers; RoBERTa has one segment and counts positions from 2. It works on packed tokens (see
`packing`), never sees a loss, and has no state: such a model reads a text at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import check_range
from foretext.nn.fused import Gelu, dropout
from foretext.nn.packing import Packing, pack
from foretext.nn.transformer.block import GELUS, Block, BlockShape, SideInputs, TransformerShape
from foretext.nn.trunk import Trunk, grown


@dataclass(frozen=True)
class EncoderConfig(TransformerShape):
    context: int
    dropout: float = 0.1  # after the embeddings, on the attention weights, before each residual addition
    inner: int = 0  # width of the feed-forward part; 0: four times the width
    embedding: int = 0  # width of the tables, which are then projected (ALBERT); 0: the width
    segments: int = 2
    first_position: int = 0  # rows of the position table before that of the first token (RoBERTa: 2)
    shared: bool = False  # whether one block does the work of all layers (ALBERT)
    pooler: bool = True  # a tanh layer on the first token's state, for what is said of the whole sequence
    gelu: Gelu = "erf"
    epsilon: float = 1e-12
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        check_range("model", self, "at least 0", "inner", "embedding", "first_position")
        check_range("model", self, "at least 1", "segments")

    def block(self) -> BlockShape:
        inner, activation = self.inner or 4 * self.width, GELUS[self.gelu]
        return BlockShape(self.width, self.heads, inner, self.dropout, "post", self.epsilon, False, activation)

    @property
    def table_width(self) -> int:
        return self.embedding or self.width

    @property
    def blocks(self) -> int:
        """Blocks with weights of their own."""
        return 1 if self.shared else self.layers

    def describe(self) -> str:
        one = ", one for all" if self.shared else ""
        return f"{self.layers} blocks{one}, width {self.width}, {self.heads} heads, context {self.context}"

    def parameters(self) -> int:
        tables = (self.vocabulary + self.first_position + self.context + self.segments + 2) * self.table_width
        projection = (self.embedding + 1) * self.width if self.embedding else 0
        pooler = (self.width + 1) * self.width if self.pooler else 0
        return tables + projection + self.blocks * self.block().parameters() + pooler

    def activations(self, tokens: int) -> int:
        weights = 4 * self.heads * self.context if self.dropout else 0  # of attention: fused, none is kept
        return tokens * self.layers * (18 * self.width + 4 * self.block().inner + weights)


class Encoder(Trunk):
    """Token, position and segment embeddings and a stack of blocks that look both ways."""

    attends = True
    above = ("pooler.",)

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.table_width
        self.tokens = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Embedding(config.first_position + config.context, width)
        self.segments = nn.Embedding(config.segments, width)
        self.norm = nn.LayerNorm(width, eps=config.epsilon)
        self.project = nn.Linear(width, config.width) if config.embedding else nn.Identity()
        self.blocks = nn.ModuleList(Block(config.block()) for _ in range(config.blocks))
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            draw_truncated(module.weight, self.config.init_std)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, batch: Batch, state: None = None, keep_layers: bool = False) -> Hidden:
        assert state is None, "a masked model reads a text at once"
        packing = pack(batch)
        side = SideInputs(packing.hidden())
        x = self._embed(packing)
        layers = [packing.unpack(x)] if keep_layers else []
        for layer, block in enumerate(self._stack(), 1):
            picked = packing.read_R if layer == self.config.layers and not keep_layers else None
            x = block(x, packing, side, picked)
            if keep_layers:
                layers.append(packing.unpack(x))
        return Hidden(packing.unpack(x, picked), tuple(layers))

    def _stack(self) -> list[Block]:
        """The block of each layer."""
        blocks = [block for block in self.blocks if isinstance(block, Block)]
        return blocks * self.config.layers if self.config.shared else blocks

    def _embed(self, packing: Packing) -> Tensor:
        x = self.tokens(packing.ids_N) + self.positions(packing.positions_N + self.config.first_position)
        one = packing.segments_N is None or self.config.segments == 1
        x = x + (self.segments.weight[0] if one else self.segments(packing.segments_N))
        return self.project(dropout(self.norm(x), self.config.dropout, self.training))

    def summary(self, states_BD: Tensor) -> Tensor:
        """What is said of a whole sequence, from its first token's state."""
        return states_BD if self.pooler is None else torch.tanh(self.pooler(states_BD))

    @torch.no_grad()
    def attention_weights(self, ids_T: Tensor, segments_T: Tensor | None = None) -> Tensor:
        """The attention of every layer and head over one sequence: [layers, H, T, T]."""
        layers = self(Batch(ids_T[None]), keep_layers=True).layers
        return torch.stack([block.attention_weights(x[0], SideInputs()) for block, x in zip(self._stack(), layers)])

    def output_table(self) -> Tensor:
        """W_e, which is also the output layer, behind the head of the masked objective."""
        return self.tokens.weight

    def grow_vocabulary(self, size: int) -> None:
        """Adds embedding rows, drawn like new ones, up to `size`."""
        self.tokens = grown(self.tokens, size, lambda rows_VD: draw_truncated(rows_VD, self.config.init_std))


def draw_truncated(tensor: Tensor, deviation: float) -> None:
    """BERT's initialisation: normal, drawn again where it lies more than two deviations from 0."""
    nn.init.trunc_normal_(tensor, std=deviation, a=-2.0 * deviation, b=2.0 * deviation)
