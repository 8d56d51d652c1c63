"""Encoder and decoder of CoVe's translation put together, as the trunk and the objective do between them; and a whole
model of float64 that translates."""

from __future__ import annotations

import numpy as np
import torch
from tolerance import doubles
from torch import Tensor, nn

from foretext.nn.recurrent.cove import (
    AttentionDecoder,
    ContextEncoder,
    CoveConfig,
    CoveTrunk,
    DecoderState,
)
from foretext.objectives.parallel_text import TranslationSettings
from foretext.objectives.translation import TranslationObjective
from foretext.runs.model import SavedModel
from foretext.runs.run_config import ModelSections, RunConfig
from foretext.systems.cove import COVE
from foretext.text.tokenizers.word_tokenizer import word_tokenizer
from foretext.text.words.word_list import WordList

WORDS = ["the", "dog", "cat", "sees", "eats", "a", "."]
TARGETS = ["Der", "Hund", "Katze", "sieht", "die", "￭.", "￭,"]
EMBEDDING = 4
SHAPE = CoveConfig(vocabulary=len(WORDS) + 2, vectors=5, width=6, layers=2, dropout=0.5)


class TranslationModel(nn.Module):
    """Encoder and decoder."""

    def __init__(self, config: CoveConfig, words: int, embedding: int = EMBEDDING) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.encoder = ContextEncoder(config.vectors, config.width // 2, config.layers, config.dropout)
        self.decoder = AttentionDecoder(config, words, embedding)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def encode(self, x_BSE: Tensor, mask_BS: Tensor | None = None) -> DecoderState:
        """The sources read, and the decoder before its first word."""
        return self.decoder.start(self.encoder(x_BSE, mask_BS))

    def decode_step(self, ids_B: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits [B, V] of the word after these, and the state with them read."""
        read_BD, state = self.decoder.step(ids_B, state)
        return self.decoder.output(read_BD), state

    def forward(
        self, x_BSE: Tensor, before_BT: Tensor, mask_BS: Tensor | None = None, mask_BT: Tensor | None = None
    ) -> Tensor:
        """h̃ [B, T, D] of the decoder that is told the right words; see `AttentionDecoder.forward`."""
        return self.decoder(before_BT, self.encoder(x_BSE, mask_BS), mask_BT)


def translating_model(settings: TranslationSettings | None = None) -> SavedModel:
    """Untrained, between `WORDS` and `TARGETS`, its weights so large that it does not look at all words alike."""
    tokenizer = word_tokenizer(WORDS, WordList(tuple(TARGETS)))
    with doubles():
        trunk = CoveTrunk(SHAPE)
        objective = TranslationObjective(SHAPE, settings or TranslationSettings(embedding=EMBEDDING), tokenizer)
    draw = np.random.default_rng(1)
    with torch.no_grad():
        for tensor in (trunk.vectors.table_VE[2:-1], *trunk.parameters(), *objective.parameters()):
            tensor.copy_(torch.from_numpy(draw.normal(0.0, 1.4, tuple(tensor.shape))))
        trunk.vectors.table_VE[:2] = 0.0
    info = RunConfig("pretrain", "cove", "tiny", tokenizer=tokenizer.fingerprint())
    return SavedModel(None, ModelSections(info, SHAPE), COVE, tokenizer, trunk.train(), objective=objective.train())
