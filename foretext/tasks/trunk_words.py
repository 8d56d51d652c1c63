"""What a task's own model reads of a trunk: for each token γ Σ s_l h_l of the layers, a learned vector, its characters.

Only layers of one width can be added up: those that are as wide as the top are mixed (of an AWD-LSTM the embeddings and
the top, of most trunks all). Layers may also be read as they are, beside the vector: the lowest, or that and the top
(CoVe's [GloVe; CoVe]).

The mixture's weights belong to the task model (`nn/word_inputs.py`). A trunk of which nothing learns (`transfer.thaw`
"never": ELMo, CoVe) gives features: it is read without gradients and, also in training, without its own dropout. One
that learns is read as any other is. A task model that takes nothing of the trunk (`reader.mix` false) is what features
are compared with; only the characters are then asked of the trunk, where they are read.
"""

from __future__ import annotations

import math
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from foretext.batch import Batch
from foretext.errors import UserError
from foretext.nn.model_config import ModelConfig, layer_widths, lowest
from foretext.nn.word_inputs import WordInput, WordInputConfig
from foretext.objectives.base import Trunk
from foretext.plan import ReaderPlan, TransferPlan
from foretext.tasks.sequences import real_places


class SpelledTrunk(Protocol):
    """A trunk that reads tokens by their characters."""

    def characters(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The characters of the batch's distinct tokens [U, C], and its tokens' rows there [B, T]."""


def check_reader(plan: TransferPlan, trunk: nn.Module) -> None:
    """UserError if a task's own model would read of the trunk what that does not have."""
    if plan.model == "recurrent" and plan.reader.characters and not hasattr(trunk, "characters"):
        raise UserError(
            "transfer.reader.characters: this model reads tokens by their ids and has no characters of them; take 0"
        )


class TrunkWords(nn.Module):
    """`inputs`: the shape of what it gives."""

    def __init__(self, plan: ReaderPlan, model: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.beside = plan.beside
        fixed = {"none": 0, "lowest": lowest(model), "ends": lowest(model) + model.width}[plan.beside]
        self.mixed = [layer for layer, width in enumerate(layer_widths(model)) if plan.mix and width == model.width]
        self.inputs = WordInputConfig(
            vectors=plan.vectors + fixed,
            layers=len(self.mixed),
            layer_width=model.width if plan.mix else 0,
            at_output=plan.twice,
            mix_norm=plan.norm,
            mix_penalty=plan.penalty,
            characters=plan.characters,
            dropout=dropout,
        )
        # The last row is for words that have a number past the vocabulary.
        self.vectors = nn.Embedding(model.vocabulary + 1, plan.vectors) if plan.vectors else None
        if self.vectors is not None:
            most = math.sqrt(3.0 / plan.vectors)  # so that their variance is 1/width (Lample et al. 2016)
            nn.init.uniform_(self.vectors.weight, -most, most)

    def forward(self, trunk: Trunk, batch: Batch) -> WordInput:
        layers = self._layers(trunk, batch)
        vectors = [*layers[:1], *(layers[-1:] if self.beside == "ends" else ())] if self.beside != "none" else []
        if self.vectors is not None:
            vectors.append(self.vectors(batch.ids_BT.clamp(max=self.vectors.num_embeddings - 1)))
        vectors_BTD = torch.cat(vectors, dim=-1) if vectors else None
        characters_UC, places_BT = self._characters(trunk, batch)
        mixed = tuple(layers[layer] for layer in self.mixed)
        return WordInput(real_places(batch), vectors_BTD, mixed, characters_UC, places_BT)

    def _layers(self, trunk: Trunk, batch: Batch) -> tuple[Tensor, ...]:
        if not self.inputs.layers and self.beside == "none":
            return ()
        module = cast(nn.Module, trunk)
        learns = any(parameter.requires_grad for parameter in module.parameters())
        if not learns:
            module.eval()
        with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
            return trunk(batch, keep_layers=True).layers

    def _characters(self, trunk: Trunk, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        if not self.inputs.characters:
            return None, None
        assert hasattr(trunk, "characters"), "check_reader has refused it"
        return cast(SpelledTrunk, trunk).characters(batch)
