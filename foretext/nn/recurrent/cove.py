"""CoVe's encoder as a trunk (McCann et al. 2017): fixed word vectors, and over them the bidirectional LSTM that a
translation model is trained with.

    layers: GloVe(x), then each layer of the biLSTM;   top: CoVe(x) = biLSTM(GloVe(x)), the last of them

A task model reads [GloVe(x); CoVe(x)]. Of two texts in a row, told apart by their segments, each is read by itself: the
paper's CoVe(x) and CoVe(y). The vectors are no parameters but are kept with the weights, so that a saved
encoder needs no file beside it; words without one have zeros, as in the paper (an id of their own, or −1). A new
encoder that is given none draws them, each number from N(0, .4²), about what GloVe's are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import UserError
from foretext.nn.model_config import ModelConfig, check_range
from foretext.nn.recurrent.lstm_layer import KEPT_PER_CELL
from foretext.nn.recurrent.translation import ContextEncoder, Encoded, FixedVectors, TranslationConfig
from foretext.nn.trunk import Trunk

DRAWN_STD = 0.4  # of vectors that nobody gives


@dataclass(frozen=True)
class CoveConfig(ModelConfig):
    vocabulary: int = 0  # words that have a vector
    vectors: int = 300  # numbers of a vector
    width: int = 600  # both directions of the encoder together
    layers: int = 2
    context: int = 200  # words of a text that are read; of a sentence to translate, `objective.longest`
    dropout: float = 0.2
    init_range: float = 0.1
    init_std: float = 0.02  # of what is put on top, such as a task's head; nothing in the trunk is drawn so

    def check(self) -> None:
        check_range("model", self, "at least 0", "vocabulary")
        check_range("model", self, "at least 1", "context")
        self.translation(1, 1).check()
        check_range("model", self, "above 0 and at most 10", "init_range", "init_std")

    def translation(self, words: int, embedding: int) -> TranslationConfig:
        """The shape of the whole translation model, with so many target words."""
        return TranslationConfig(words, self.vectors, embedding, self.width, self.layers, self.dropout, self.init_range)

    @property
    def lowest(self) -> int:
        return self.vectors

    def describe(self) -> str:
        return (
            f"{self.layers} bidirectional LSTM layers of {self.width // 2} cells a direction, on {self.vocabulary:,} "
            f"fixed vectors of {self.vectors}"
        )

    @property
    def fixed(self) -> int:
        """Numbers of the vectors, that of unknown words included."""
        return (self.vocabulary + 1) * self.vectors

    def parameters(self) -> int:
        cells = self.width // 2
        inputs = [self.vectors] + [self.width] * (self.layers - 1)
        return sum(2 * 4 * cells * (size + cells + 2) for size in inputs)

    def activations(self, tokens: int) -> int:
        return tokens * (2 * self.vectors + self.layers * self.width * (KEPT_PER_CELL + 1))


class CoveTrunk(Trunk):
    def __init__(self, config: CoveConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.vectors = FixedVectors(DRAWN_STD * torch.randn(config.vocabulary, config.vectors))
        self.encoder = ContextEncoder(config.translation(1, 1))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def put_vectors(self, matrix: np.ndarray) -> None:
        """The vectors of all words, as a lookup numbers them."""
        expected = (self.config.vocabulary, self.config.vectors)
        if matrix.shape != expected:
            raise UserError(
                f"{len(matrix):,} vectors of {matrix.shape[1]} numbers where the model has {expected[0]:,} of "
                f"{expected[1]}; give the vectors that it was made for, or --set model.vectors={matrix.shape[1]}"
            )
        self.vectors.table_VE[:-1].copy_(torch.from_numpy(np.ascontiguousarray(matrix)))

    def encode(self, batch: Batch, keep_layers: bool = False) -> tuple[Tensor, Encoded]:
        """The words' vectors, and what the decoder attends to and begins with."""
        x_BTE = self.vectors(batch.ids_BT)
        return x_BTE, self.encoder(x_BTE, batch.mask_BT, keep_layers)

    def forward(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden:
        """`layers`: the words' vectors and the states of each layer, zeros at padding."""
        if batch.segments_BT is not None:
            return self._forward_apart(batch, batch.segments_BT, keep_layers)
        x_BTE, encoded = self.encode(batch, keep_layers)
        if not keep_layers:
            return Hidden(encoded.states_BSD)
        return Hidden(encoded.states_BSD, (x_BTE * encoded.mask_BS[..., None], *encoded.layers))

    def _forward_apart(self, batch: Batch, segments_BT: Tensor, keep_layers: bool) -> Hidden:
        """The segments of a row as rows of their own, whose states, zeros elsewhere, are then added up."""
        real_BT = torch.ones_like(segments_BT, dtype=torch.bool) if batch.mask_BT is None else batch.mask_BT
        kinds = range(int(segments_BT.max()) + 1)
        apart = Batch(
            batch.ids_BT.repeat(len(kinds), 1), torch.cat([real_BT & (segments_BT == kind) for kind in kinds])
        )
        found = self(apart, keep_layers=keep_layers)

        def whole(x: Tensor) -> Tensor:
            return x.view(len(kinds), *segments_BT.shape, x.shape[-1]).sum(0)

        return Hidden(whole(found.top), tuple(map(whole, found.layers)))

    def layer_groups(self) -> list[list[str]]:
        """The vectors, which do not learn, are a group without names."""
        layers = range(self.config.layers)
        names = [name for name, _ in self.named_parameters()]
        return [[], *([name for name in names if name.startswith(f"encoder.layers.{layer}.")] for layer in layers)]

    def grow_vocabulary(self, size: int) -> None:
        """New words have zeros until their vectors are put."""
        table_VE = self.vectors.table_VE
        assert size >= len(table_VE) - 1
        self.vectors.table_VE = torch.cat([table_VE, table_VE.new_zeros(size - len(table_VE) + 1, table_VE.shape[1])])
