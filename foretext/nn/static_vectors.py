"""Static word vectors as a trunk: a token's state is its vector, whatever stands beside it.

Beside the vectors it keeps what is counted and learned from the same text, so that a run is whole without it: how often
each word occurs (for `text/words/sif.py`) and a latent semantic analysis (`text/words/latent_semantics.py`), if there
is one. `objectives/static_vectors.py` reads them. Vectors that nobody gives are drawn, of about unit length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import UserError
from foretext.nn.model_config import ModelConfig
from foretext.nn.trunk import Trunk

READS = 1 << 20  # tokens of a text that are read at a time: any that there is


@dataclass(frozen=True)
class StaticVectorsConfig(ModelConfig):
    vocabulary: int = 0
    width: int = 300
    lsa_dimensions: int = 0  # of the latent semantic analysis; 0: there is none. Both follow from the text
    lsa_pairs: int = 0  # 2-grams among its terms
    context: int = 1  # a word's vector depends on the word alone
    dropout: float = 0.0
    init_std: float = 0.02  # of what is put on top, such as a task's head

    def check(self) -> None:
        if self.vocabulary < 0 or not 1 <= self.width <= 100_000:
            raise UserError(f"model.width must be from 1 to 100000, not {self.width}")
        if self.lsa_dimensions < 0 or self.lsa_pairs < 0:
            raise UserError("model.lsa_dimensions and model.lsa_pairs must be 0 or more")
        if self.context < 1:
            raise UserError(f"model.context must be at least 1, not {self.context}")
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"training.dropout must be at least 0 and below 1, not {self.dropout}")

    @property
    def layers(self) -> int:
        return 0

    @property
    def reads(self) -> int:
        return READS

    @property
    def lsa_terms(self) -> int:
        return self.vocabulary + self.lsa_pairs if self.lsa_dimensions else 0

    def describe(self) -> str:
        lsa = f", and an LSA of {self.lsa_dimensions} dimensions" if self.lsa_dimensions else ""
        return f"{self.vocabulary:,} word vectors of {self.width}{lsa}"

    def parameters(self) -> int:
        return self.vocabulary * self.width

    @property
    def fixed(self) -> int:
        return self.vocabulary + self.lsa_pairs + self.lsa_terms * (1 + self.lsa_dimensions)

    def activations(self, tokens: int) -> int:
        return tokens * self.width


class StaticVectors(Trunk):
    def __init__(self, config: StaticVectorsConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.vectors = nn.Parameter(torch.randn(config.vocabulary, config.width) * config.width**-0.5)
        self.counts_V: Tensor
        self.lsa_pairs_P: Tensor
        self.lsa_idf_T: Tensor
        self.lsa_components_TK: Tensor
        self.register_buffer("counts_V", torch.zeros(config.vocabulary, dtype=torch.int64))
        self.register_buffer("lsa_pairs_P", torch.zeros(config.lsa_pairs, dtype=torch.int64))
        self.register_buffer("lsa_idf_T", torch.zeros(config.lsa_terms))
        self.register_buffer("lsa_components_TK", torch.zeros(config.lsa_terms, config.lsa_dimensions))

    def forward(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden:
        """Zeros at padding."""
        top_BTD = F.embedding(batch.ids_BT, self.vectors)
        if batch.mask_BT is not None:
            top_BTD = top_BTD * batch.mask_BT[..., None]
        return Hidden(top_BTD, (top_BTD,) if keep_layers else ())

    # -- what is read without a batch

    def matrix(self) -> np.ndarray:
        """The vectors, float32 [V, D]."""
        found: np.ndarray = self.vectors.detach().float().cpu().numpy()
        return found

    def counts(self) -> np.ndarray:
        found: np.ndarray = self.counts_V.cpu().numpy()
        return found

    # -- weights

    def layer_groups(self) -> list[list[str]]:
        return [["vectors"]]

    def put_vectors(self, matrix: np.ndarray) -> None:
        if matrix.shape != tuple(self.vectors.shape):
            raise UserError(
                f"{len(matrix):,} vectors of {matrix.shape[1]} numbers where the model has {len(self.vectors):,} of "
                f"{self.config.width}; give the vectors that it was made for"
            )
        with torch.no_grad():
            self.vectors.copy_(torch.from_numpy(np.ascontiguousarray(matrix)))
