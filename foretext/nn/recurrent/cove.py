"""CoVe's encoder as a trunk (McCann et al. 2017): fixed word vectors, and above them the bidirectional LSTM of a
translation model.

    layers: GloVe(x), then each layer of the biLSTM;   top: CoVe(x) = biLSTM(GloVe(x)), the last layer

A task model reads [GloVe(x); CoVe(x)]. Two texts in one row, marked by their segments, are read separately: the paper's
CoVe(x) and CoVe(y). The vectors are not parameters but are saved with the weights, so that a saved encoder needs no
other file. Words without a vector have zeros, as in the paper (an id of their own, or −1). An encoder without given
vectors draws them from N(0, .4²), similar to GloVe's.

CoVe's translation model (McCann et al. 2017): a two-layer bidirectional LSTM over fixed word vectors, and a decoder of
two LSTM layers with attention and input feeding. The decoder is discarded after training; the encoder's top states are
CoVe.

    H    = biLSTM(x_1 … x_S)                      both directions side by side, D numbers per word
    s_t  = LSTM([z_{t-1}; h̃_{t-1}], s_{t-1})       z: the vector of the previous target word, h̃_0 = 0
    α_t  = softmax(H (W₁ s_t + b₁))               over the real words of the source
    h̃_t  = tanh(W₂ [Hᵀ α_t; s_t] + b₂)
    p    = softmax(W_out h̃_t + b_out)

Where the paper is silent we follow the released code. The decoder's initial state, layer by layer, is the encoder's
last state of that layer (cells and outputs), forward beside backward, so the decoder is as wide as both together. All
learned weights start uniform in ±0.1. Dropout is on the inputs and outputs of all layers: x, between the layers, H, z,
and h̃, which has the same mask where it is read and where it is fed on. The released code applies dropout to the first
decoder layer's input two and three times, and has no b₁ and b₂; there we follow the paper.

Both sides compute only real words, so padding on either side changes nothing, not even dropout masks. S is the length
of a source, E the width of a word's vector; the other suffixes are those of `batch.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import UserError, check_range, refuse_if
from foretext.nn.fused import dropout
from foretext.nn.packing import unseen
from foretext.nn.recurrent.lstm_layer import KEPT_PER_CELL, BiLstmLayers, ReadingOrder, read_layer, reading_order
from foretext.nn.trunk import ModelConfig, Trunk

DRAWN_STD = 0.4  # for vectors that are not given


@dataclass(frozen=True)
class CoveConfig(ModelConfig):
    vocabulary: int = 0  # number of words with a vector
    vectors: int = 300  # width of a word's vector
    width: int = 600  # both directions of the encoder together; also the decoder's
    layers: int = 2  # of the encoder, and of the decoder
    context: int = 200  # words read per text; for sentences to translate, `objective.longest`
    dropout: float = 0.2
    init_range: float = 0.1
    init_std: float = 0.02  # for what is put on top, such as a task's head; the trunk does not use it

    def check(self) -> None:
        check_range("model", self, "at least 0", "vocabulary")
        check_range("model", self, "at least 1", "context", "vectors", "width", "layers")
        refuse_if(self.width % 2, f"model.width must be even, a half for each direction, not {self.width}")
        check_range("model", self, "at least 0 and below 1", "dropout")
        check_range("model", self, "above 0 and at most 10", "init_range", "init_std")

    @property
    def lowest(self) -> int:
        return self.vectors

    def describe(self) -> str:
        return (
            f"{self.layers} bidirectional LSTM layers of {self.width // 2} cells per direction, on {self.vocabulary:,} "
            f"fixed vectors of {self.vectors}"
        )

    @property
    def fixed(self) -> int:
        """Size of the vectors, including that of unknown words."""
        return (self.vocabulary + 1) * self.vectors

    def parameters(self) -> int:
        inputs = [self.vectors] + [self.width] * (self.layers - 1)
        return sum(4 * self.width * (size + self.width // 2 + 2) for size in inputs)

    def activations(self, tokens: int) -> int:
        return tokens * (2 * self.vectors + self.layers * self.width * (KEPT_PER_CELL + 1))


LayerState = tuple[Tensor, Tensor]  # output and cell, each [B, D]


@dataclass(frozen=True)
class Encoded:
    """A batch of sources after reading: the top states (zeros at padding), which of them are real, the last state per
    layer and, on request, the states of all layers."""

    states_BSD: Tensor
    mask_BS: Tensor
    last: tuple[LayerState, ...]
    layers: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class DecoderState:
    """Everything that the next step reads: sources, LSTM states per layer, h̃ of the previous step."""

    states_BSD: Tensor
    hidden_BS: Tensor  # added to the scores of source positions: −∞ at padding
    layers: tuple[LayerState, ...]
    fed_BD: Tensor

    def pick(self, rows: Tensor | slice) -> DecoderState:
        """The state of these rows; a row may be taken several times. A slice is not copied."""
        layers = tuple((h[rows], c[rows]) for h, c in self.layers)
        return DecoderState(self.states_BSD[rows], self.hidden_BS[rows], layers, self.fed_BD[rows])


class FixedVectors(nn.Module):
    """Vectors by number: unknown words (−1) have zeros; nothing is learned."""

    def __init__(self, table_VE: Tensor) -> None:
        super().__init__()
        self.table_VE = nn.Buffer(F.pad(table_VE, (0, 0, 0, 1)))

    def forward(self, ids_BS: Tensor) -> Tensor:
        return self.table_VE[ids_BS]  # −1 is the last row


class ContextEncoder(BiLstmLayers):
    """The bidirectional LSTM, one fused layer after the other."""

    def forward(self, x_BSE: Tensor, mask_BS: Tensor | None = None, keep_layers: bool = False) -> Encoded:
        if mask_BS is None:
            mask_BS = x_BSE.new_ones(x_BSE.shape[:2], dtype=torch.bool)
        order = reading_order(mask_BS)
        x_ND = dropout(order.gather(x_BSE), self.p, self.training)
        last: list[LayerState] = []
        layers: list[Tensor] = []
        for layer in self.layers:
            if order.sizes:
                x_ND, (h_2BK, c_2BK) = read_layer(layer, x_ND, order)
                last.append((self._both(h_2BK, order), self._both(c_2BK, order)))
                x_ND = dropout(x_ND, self.p, self.training)
            else:  # only empty rows
                weight = layer.weight_ih_l0
                assert isinstance(weight, Tensor)
                x_ND = x_ND @ weight.t()[:, : self.width]  # an empty result that gradients can flow through
                last.append((x_ND.new_zeros(len(mask_BS), self.width),) * 2)
            layers += [order.scatter(x_ND)] if keep_layers else []
        return Encoded(order.scatter(x_ND), mask_BS, tuple(last), tuple(layers))

    def _both(self, state_2BK: Tensor, order: ReadingOrder) -> Tensor:
        """The last states of both directions side by side, in the batch's order; zeros for empty rows."""
        return order.end(state_2BK.new_zeros(order.shape[0], self.width), torch.cat([*state_2BK], dim=1))


class AttentionDecoder(nn.Module):
    """The decoder up to h̃; `output` is W_out and b_out."""

    def __init__(self, config: CoveConfig, words: int, embedding: int) -> None:
        """`words` of the target, with vectors of width `embedding`."""
        super().__init__()
        self.p, width = config.dropout, config.width
        self.words = nn.Embedding(words, embedding)
        inputs = [embedding + width] + [width] * (config.layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(size, width) for size in inputs)
        self.query = nn.Linear(width, width)  # W₁, b₁
        self.merge = nn.Linear(2 * width, width)  # W₂, b₂
        self.output = nn.Linear(width, words)

    def start(self, source: Encoded) -> DecoderState:
        """The state before the first word."""
        assert bool(source.mask_BS.any(1).all()), "a source without a word has nothing to attend to"
        hidden_BS = unseen(source.mask_BS).to(source.states_BSD.dtype)
        return DecoderState(source.states_BSD, hidden_BS, source.last, torch.zeros_like(source.last[-1][0]))

    def step(self, ids_B: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """h̃ after one more word, and the next state."""
        read_BD, _, state = self._step(dropout(self.words(ids_B), self.p, self.training), state)
        return read_BD, state

    def _step(self, z_BE: Tensor, state: DecoderState) -> tuple[Tensor, Tensor, DecoderState]:
        """h̃, α, and the next state."""
        x_BD = torch.cat([z_BE, state.fed_BD], dim=1)
        layers: list[LayerState] = []
        for number, (cell, before) in enumerate(zip(self.cells, state.layers)):
            if number:
                x_BD = dropout(x_BD, self.p, self.training)
            layers.append(cell(x_BD, before))
            x_BD = layers[-1][0]
        scores_BS = torch.bmm(state.states_BSD, self.query(x_BD)[:, :, None]).squeeze(2) + state.hidden_BS
        weights_BS = torch.softmax(scores_BS, dim=1)
        context_BD = torch.bmm(weights_BS[:, None, :], state.states_BSD).squeeze(1)
        read_BD = dropout(torch.tanh(self.merge(torch.cat([context_BD, x_BD], dim=1))), self.p, self.training)
        return read_BD, weights_BS, DecoderState(state.states_BSD, state.hidden_BS, tuple(layers), read_BD)

    def forward(self, before_BT: Tensor, source: Encoded, mask_BT: Tensor | None = None) -> Tensor:
        """h̃ [B, T, D] at every real position, given the previous word (the start symbol before the first); zeros at
        padding. Step t computes only rows that have a position t."""
        if mask_BT is None:
            mask_BT = torch.ones_like(before_BT, dtype=torch.bool)
        order = reading_order(mask_BT)
        if not order.sizes:
            return source.states_BSD.new_zeros(*before_BT.shape, source.states_BSD.shape[2])
        return order.scatter(torch.cat([read_BD for read_BD, _ in self._steps(before_BT, source, order)]))

    def attention(self, before_BT: Tensor, source: Encoded, mask_BT: Tensor) -> Tensor:
        """α [B, T, S] at every real position, given the previous word; zeros at padding on either side."""
        order = reading_order(mask_BT)
        return order.scatter(torch.cat([weights_BS for _, weights_BS in self._steps(before_BT, source, order)]))

    def _steps(self, before_BT: Tensor, source: Encoded, order: ReadingOrder) -> Iterator[tuple[Tensor, Tensor]]:
        """h̃ and α of each step, for the rows that have it, in reading order."""
        z_NE = dropout(self.words(order.gather(before_BT)), self.p, self.training)
        state = self.start(source).pick(order.rows_B)
        for z_BE in z_NE.split(list(order.sizes)):
            read_BD, weights_BS, state = self._step(z_BE, state.pick(slice(len(z_BE))))
            yield read_BD, weights_BS


# -- the trunk ---------------------------------------------------------------------------------------------------------


class CoveTrunk(Trunk):
    def __init__(self, config: CoveConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.vectors = FixedVectors(DRAWN_STD * torch.randn(config.vocabulary, config.vectors))
        self.encoder = ContextEncoder(config.vectors, config.width // 2, config.layers, config.dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def put_vectors(self, matrix: np.ndarray) -> None:
        """Sets the vectors of all words."""
        expected = (self.config.vocabulary, self.config.vectors)
        if matrix.shape != expected:
            raise UserError(
                f"{len(matrix):,} vectors of {matrix.shape[1]} dimensions, but the model has {expected[0]:,} of "
                f"{expected[1]}; give the vectors that it was made for, or --set model.vectors={matrix.shape[1]}"
            )
        self.vectors.table_VE[:-1].copy_(torch.from_numpy(np.ascontiguousarray(matrix)))

    def encode(self, batch: Batch, keep_layers: bool = False) -> tuple[Tensor, Encoded]:
        """The words' vectors, and what the decoder attends to and starts from."""
        x_BTE = self.vectors(batch.ids_BT)
        return x_BTE, self.encoder(x_BTE, batch.mask_BT, keep_layers)

    def forward(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden:
        """`layers`: the words' vectors and the states of each layer, zeros at padding."""
        if batch.segments_BT is not None:
            return self._forward_apart(batch, batch.segments_BT, keep_layers)
        x_BTE, encoded = self.encode(batch, keep_layers)
        lowest = (x_BTE * encoded.mask_BS[..., None],) if keep_layers else ()
        return Hidden(encoded.states_BSD, lowest + encoded.layers)

    def _forward_apart(self, batch: Batch, segments_BT: Tensor, keep_layers: bool) -> Hidden:
        """Reads the segments of a row as separate rows, and adds up their states, which are zeros elsewhere."""
        real_BT = torch.ones_like(segments_BT, dtype=torch.bool) if batch.mask_BT is None else batch.mask_BT
        kinds = range(int(segments_BT.max()) + 1)
        masks = torch.cat([real_BT & (segments_BT == kind) for kind in kinds])
        hidden = self(Batch(batch.ids_BT.repeat(len(kinds), 1), masks), keep_layers=keep_layers)

        def whole(x: Tensor) -> Tensor:
            return x.view(len(kinds), *segments_BT.shape, x.shape[-1]).sum(0)

        return Hidden(whole(hidden.top), tuple(map(whole, hidden.layers)))

    def layer_names(self) -> list[tuple[str, ...]]:
        return [(f"encoder.layers.{n}.",) for n in range(self.config.layers)]

    def grow_vocabulary(self, size: int) -> None:
        """New words have zeros until their vectors are set."""
        assert size >= len(self.vectors.table_VE) - 1
        self.vectors.table_VE = nn.Buffer(
            F.pad(self.vectors.table_VE, (0, 0, 0, size - len(self.vectors.table_VE) + 1))
        )
