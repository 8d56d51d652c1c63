"""What a task's own model reads of a trunk: for each token γ Σ s_l h_l of the layers, a learned vector, its characters.

Only layers of one width can be added up: those that are as wide as the top are mixed (of an AWD-LSTM the embeddings and
the top, of most trunks all). Layers may also be read as they are, beside the vector: the lowest, or that and the top
(CoVe's [GloVe; CoVe]).

A vector of a word's own is learned from the training rows alone. A word that none of them has would bring what was
drawn for it, so all such words read one vector, the last row (`meet` counts the rows' tokens). It is learned by reading
words as unknown in training, rare ones more often, with probability α / (α + count) (Kiperwasser and Goldberg 2016);
without dropout none are, and it stays 0.

Vectors that were learned elsewhere (`finetune --vectors`: published ones, or those of a word2vec run) are read beside,
and do not learn: [word vector; ELMo's mixture], as in Peters et al. (2018). A word without one has zeros.

The mixture's weights belong to the task model (`nn/task_models/word_inputs.py`). A trunk of which nothing learns
(`transfer.thaw` "never": ELMo, CoVe) gives features: it is read without gradients and, also in training, without its
own dropout. One that learns is read as any other is. A task model that takes nothing of the trunk (`reader.mix` false)
is what features are compared with; only the characters are then asked of the trunk, where they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch
from foretext.errors import UserError
from foretext.nn.task_models.word_inputs import WordInput, WordInputConfig
from foretext.nn.trunk import ModelConfig, Trunk
from foretext.plan import ReaderPlan
from foretext.tasks.heads.supervised import real_places
from foretext.text.words.characters import WORD_LENGTH

ALPHA = 0.25  # how often words are read as unknown in training


class TrunkWords(nn.Module):
    """`inputs`: the shape of what it gives."""

    def __init__(self, plan: ReaderPlan, model: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.beside = plan.beside
        fixed = {"none": 0, "lowest": model.lowest, "ends": model.lowest + model.width}[plan.beside]
        self.mixed = [layer for layer, width in enumerate(model.layer_widths) if plan.mix and width == model.width]
        self.inputs = WordInputConfig(
            vectors=plan.vectors + plan.given + fixed,
            layers=len(self.mixed),
            layer_width=model.width if plan.mix else 0,
            at_output=plan.twice,
            mix_norm=plan.norm,
            mix_penalty=plan.penalty,
            characters=plan.characters,
            word_length=model.word_length or WORD_LENGTH,
            dropout=dropout,
        )
        # The last row is for words that the training rows do not have, or that have a number past the vocabulary.
        self.vectors = nn.Embedding(model.vocabulary + 1, plan.vectors) if plan.vectors else None
        if self.vectors is not None:
            most = math.sqrt(3.0 / plan.vectors)  # so that their variance is 1/width (Lample et al. 2016)
            nn.init.uniform_(self.vectors.weight, -most, most)
            nn.init.zeros_(self.vectors.weight[-1])
            self.counts_V: Tensor
            self.register_buffer("counts_V", torch.zeros(model.vocabulary + 1))
        self.given_VE: Tensor | None
        self.register_buffer("given_VE", torch.zeros(model.vocabulary + 1, plan.given) if plan.given else None)

    def put_vectors(self, matrix_VE: np.ndarray) -> None:
        """The vectors of the vocabulary's words; zeros where there is none."""
        assert self.given_VE is not None and matrix_VE.shape[1] == self.given_VE.shape[1]
        self.given_VE[: len(matrix_VE)].copy_(torch.from_numpy(matrix_VE))

    def meet(self, sequences: Iterable[Sequence[int]]) -> None:
        """Counts the tokens of what is learned from."""
        if self.vectors is None:
            return
        last = self.vectors.num_embeddings - 1
        ids = torch.tensor([id for sequence in sequences for id in sequence], dtype=torch.long).clamp(max=last)
        self.counts_V.copy_(torch.bincount(ids, minlength=last + 1))

    def check(self, trunk: Trunk) -> None:
        """UserError if it would read characters of a trunk that has none."""
        if self.inputs.characters and not trunk.spells:
            raise UserError(
                "transfer.reader.characters: this model reads tokens by their ids and has no characters of them; take 0"
            )

    def forward(self, trunk: Trunk, batch: Batch) -> WordInput:
        layers = self._layers(trunk, batch)
        vectors = [*layers[:1], *(layers[-1:] if self.beside == "ends" else ())] if self.beside != "none" else []
        if self.vectors is not None:
            vectors.append(self.vectors(self._rows(batch.ids_BT)))
        if self.given_VE is not None:
            vectors.append(F.embedding(batch.ids_BT.clamp(max=len(self.given_VE) - 1), self.given_VE))
        vectors_BTD = torch.cat(vectors, dim=-1) if vectors else None
        characters_UC, places_BT = self._characters(trunk, batch)
        mixed = tuple(layers[layer] for layer in self.mixed)
        return WordInput(real_places(batch), vectors_BTD, mixed, characters_UC, places_BT)

    def _rows(self, ids_BT: Tensor) -> Tensor:
        """Which vector each token reads."""
        last = len(self.counts_V) - 1
        ids_BT = ids_BT.clamp(max=last)
        counts_BT = self.counts_V[ids_BT]
        unknown_BT = counts_BT == 0
        if self.training and self.inputs.dropout:
            unknown_BT = torch.rand_like(counts_BT) < ALPHA / (ALPHA + counts_BT)  # always, where the count is 0
        return ids_BT.masked_fill(unknown_BT, last)

    def _layers(self, trunk: Trunk, batch: Batch) -> tuple[Tensor, ...]:
        if not self.inputs.layers and self.beside == "none":
            return ()
        learns = any(parameter.requires_grad for parameter in trunk.parameters())
        if not learns:
            trunk.eval()
        with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
            return trunk(batch, keep_layers=True).layers

    def _characters(self, trunk: Trunk, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        return trunk.spelled(batch) if self.inputs.characters else (None, None)
