"""Static word vectors as a trunk: a token's state is its vector, whatever its context.

It also stores what was counted and learned from the same text, so that a run is self-contained: how often each word
occurs and, if there is one, a latent semantic analysis (`text/words/latent_semantics.py`). `systems/word2vec.py` reads
them. Vectors that are not given are drawn, with about unit length.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from foretext.batch import Batch, Hidden
from foretext.errors import check_range, refuse_if
from foretext.nn.trunk import ModelConfig, Trunk

READS = 1 << 20  # tokens of a text read at once: effectively all


@dataclass(frozen=True)
class StaticVectorsConfig(ModelConfig):
    vocabulary: int = 0
    width: int = 300
    lsa_dimensions: int = 0  # of the latent semantic analysis; 0: none. Both values follow from the text
    lsa_pairs: int = 0  # 2-grams among its terms
    context: int = 1  # a word's vector depends on the word alone
    dropout: float = 0.0
    init_std: float = 0.02  # for what is put on top, such as a task's head

    def check(self) -> None:
        check_range("model", self, "at least 1 and at most 100,000", "width")
        check_range("model", self, "at least 0", "vocabulary", "lsa_dimensions", "lsa_pairs")
        check_range("model", self, "at least 1", "context")
        check_range("training", self, "at least 0 and below 1", "dropout")

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
        self.counts_V = nn.Buffer(torch.zeros(config.vocabulary, dtype=torch.int64))
        self.lsa_pairs_P = nn.Buffer(torch.zeros(config.lsa_pairs, dtype=torch.int64))
        self.lsa_idf_T = nn.Buffer(torch.zeros(config.lsa_terms))
        self.lsa_components_TK = nn.Buffer(torch.zeros(config.lsa_terms, config.lsa_dimensions))

    def forward(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden:
        """Zeros at padding."""
        top_BTD = F.embedding(batch.ids_BT, self.vectors)
        if batch.mask_BT is not None:
            top_BTD = top_BTD * batch.mask_BT[..., None]
        return Hidden(top_BTD, (top_BTD,) if keep_layers else ())

    # -- what is read without a batch

    def matrix(self) -> np.ndarray:
        """The vectors, float32 [V, D]."""
        return self.vectors.detach().float().cpu().numpy()

    def counts(self) -> np.ndarray:
        return self.counts_V.cpu().numpy()

    # -- weights

    def layer_groups(self) -> list[list[str]]:
        return [["vectors"]]

    def put_vectors(self, matrix: np.ndarray) -> None:
        refuse_if(
            matrix.shape != tuple(self.vectors.shape),
            f"{len(matrix):,} vectors of {matrix.shape[1]} dimensions, but the model has {len(self.vectors):,} of "
            f"{self.config.width}; give the vectors that it was made for",
        )
        with torch.no_grad():
            self.vectors.copy_(torch.from_numpy(np.ascontiguousarray(matrix)))
