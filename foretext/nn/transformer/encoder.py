"""The bidirectional transformer trunk of BERT, RoBERTa and ALBERT.

    h_0 = norm(W_e[u] + W_p[i] + W_s[segment]),   h_l = block(h_{l-1}),   each token sees all of its sequence

The three papers are settings of it: ALBERT's embedding table is narrower than the blocks and projected up, and all
layers share one block; RoBERTa has one segment and counts positions from 2. It works on packed tokens (see `packing`),
never sees a loss, and has no state: such a model reads a text at once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import check_range
from foretext.nn.fused import Gelu, dropout
from foretext.nn.packing import Packing, pack
from foretext.nn.transformer.block import GELUS, Block, SideInputs, StackedTrunk, TransformerConfig, TransformerShape


@dataclass(frozen=True)
class EncoderConfig(TransformerShape):
    context: int
    dropout: float = 0.1  # after the embeddings, on the attention weights, before each residual addition
    inner: int = 0  # width of the feed-forward part; 0: four times the width
    embedding: int = 0  # width of the embedding tables, which are then projected (ALBERT); 0: the width
    segments: int = 2
    first_position: int = 0  # unused rows of the position table before that of the first token (RoBERTa: 2)
    shared: bool = False  # whether all layers share one block (ALBERT)
    pooler: bool = True  # a tanh layer on the first token's state, for predictions about the whole sequence
    gelu: Gelu = "erf"
    epsilon: float = 1e-12
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        check_range("model", self, "at least 0", "inner", "embedding", "first_position")
        check_range("model", self, "at least 1", "segments")

    def block(self) -> TransformerConfig:
        """The shape of a block, as in a causal trunk of the same blocks."""
        return TransformerConfig(
            self.vocabulary,
            self.layers,
            self.width,
            self.heads,
            self.context,
            dropout=self.dropout,
            epsilon=self.epsilon,
            init_std=self.init_std,
            activation=GELUS[self.gelu],
            inner=self.inner,
        )

    @property
    def table_width(self) -> int:
        return self.embedding or self.width

    @property
    def blocks(self) -> int:
        """The number of blocks with their own weights."""
        return 1 if self.shared else self.layers

    def describe(self) -> str:
        shared = ", one shared" if self.shared else ""
        return f"{self.layers} blocks{shared}, width {self.width}, {self.heads} heads, context {self.context}"

    def parameters(self) -> int:
        tables = (self.vocabulary + self.first_position + self.context + self.segments + 2) * self.table_width
        projection = (self.embedding + 1) * self.width if self.embedding else 0
        pooler = (self.width + 1) * self.width if self.pooler else 0
        return tables + projection + self.blocks * self.block().block_parameters() + pooler

    def activations(self, tokens: int) -> int:
        # attention is fused without dropout, and keeps no weights
        weights = 4 * self.heads * self.context if self.dropout else 0
        return tokens * self.layers * (18 * self.width + 4 * self.block().feed_forward + weights)


class Encoder(StackedTrunk):
    """Token, position and segment embeddings and a stack of bidirectional blocks."""

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
        self.blocks = nn.ModuleList(Block(config.block(), causal=False) for _ in range(config.blocks))
        self.final_norm = nn.Identity()  # a block ends with its norm
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None
        self.apply(self._initialise)

    def draw(self, weights: Tensor) -> None:
        draw_truncated(weights, self.config.init_std)

    def forward(self, batch: Batch, state: None = None, keep_layers: bool = False) -> Hidden:
        assert state is None, "a masked model reads a text at once"
        packing = pack(batch)
        return self.read(self.rows(packing), packing, keep_layers)

    def read(self, rows_NE: Tensor, packing: Packing, keep_layers: bool = False) -> Hidden:
        """The blocks' output for rows of the tables."""
        x_ND = self.project(dropout(rows_NE, self.config.dropout, self.training))
        return self._read(x_ND, packing, SideInputs(packing.hidden()), keep_layers)

    def _stack(self) -> list[Block]:
        return super()._stack() * (self.config.layers if self.config.shared else 1)

    def rows(self, packing: Packing) -> Tensor:
        """The embeddings from all tables, added up and normalised."""
        x = self.tokens(packing.ids_N) + self.positions(packing.positions_N + self.config.first_position)
        single = packing.segments_N is None or self.config.segments == 1
        return self.norm(x + (self.segments.weight[0] if single else self.segments(packing.segments_N)))

    def summary(self, states_BD: Tensor) -> Tensor:
        """The pooled state of a sequence, from its first token's state."""
        return states_BD if self.pooler is None else torch.tanh(self.pooler(states_BD))


def draw_truncated(tensor: Tensor, deviation: float) -> None:
    """BERT's initialisation: normal, redrawn if more than two deviations from 0."""
    nn.init.trunc_normal_(tensor, std=deviation, a=-2.0 * deviation, b=2.0 * deviation)
