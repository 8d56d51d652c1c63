"""CoVe's pre-training objective (McCann et al. 2017): translate, so that the encoder learns what words mean in context.

    −Σ_t log softmax(W_out h̃_t + b_out)[y_t]   over the words of a target and its end

The decoder (`nn/recurrent/cove.py`: two LSTM layers with input feeding and attention over the source) gets the correct
previous words (teacher forcing). It is this objective's head. The encoder is the trunk, and the only part that a task
model reads. The loss counts target words, end included. All unknown target words share one class, which is never
written.

With `start` and `decode_step` the objective serves `generate/many.py` as a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, LossSum, Outcome, padded
from foretext.errors import UserError
from foretext.nn.fused import TiedSoftmax
from foretext.nn.recurrent.cove import AttentionDecoder, CoveConfig, CoveTrunk, DecoderState
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Draw, Examples, Translator
from foretext.objectives.parallel_text import (
    Pair,
    ParallelText,
    ShardedPairs,
    TranslationSettings,
    encoded_pair,
    length_order,
    pair_ids,
)
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import SampleOrder
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.word_tokenizer import WordTokenizer
from foretext.text.words.word_list import START, WordList

NAME = "translation"


@dataclass(frozen=True)
class PairBatch(Batch):
    """Sources as `ids_BT`, targets as `targets_BT` with positions of their own; both count as read."""

    @property
    def real_tokens(self) -> int:
        assert self.targets_BT is not None
        return super().real_tokens + int((self.targets_BT != IGNORE).sum())


class TranslationObjective(Translator):
    perplexity = (NAME,)
    scored = "not at all"

    def __init__(self, model: CoveConfig, settings: TranslationSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        settings.check()
        if not isinstance(tokenizer, WordTokenizer):
            raise UserError(f"translation needs a vocabulary of words, not {tokenizer.kind}")
        self.settings, self.tokenizer, self.lower = settings, tokenizer, settings.lower
        self.weights = {NAME: 1.0}
        self.decoder = AttentionDecoder(model, tokenizer.target_words.size, settings.embedding)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -model.init_range, model.init_range)

    @property
    def words(self) -> WordList:
        """The words that translations are made of."""
        return self.tokenizer.target_words

    def ids(self, tokenizer: Tokenizer) -> int:
        return pair_ids(self.tokenizer)

    def translator(self) -> Translator:
        return self

    def pair(self, source: np.ndarray, target: np.ndarray) -> Pair:
        return Pair(source, target)

    def pairs_in(self, source: str | Path, target: str | Path, errors: str) -> tuple[list[Pair], list[str]]:
        """All pairs, however long."""
        texts = list(ParallelText(source, target, self.settings, errors, keep_all=True).pairs())
        return [encoded_pair(pair, self.tokenizer) for pair in texts], [pair.reference for pair in texts]

    def examples(self, shards: TokenShards, context: int, seed: int) -> ShardedPairs:
        return ShardedPairs(shards, self.tokenizer)

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        """Pairs of similar length together."""
        return length_order(cast(ShardedPairs, examples), batch_size, seed)

    def usual_length(self, examples: Examples, context: int) -> int:
        return max(1, int(np.add(*cast(ShardedPairs, examples).lengths()).mean()))

    def make(self, examples: Sequence[Pair], draw: Draw | None = None) -> Batch:
        ids_BS, real_BS = padded([pair.source for pair in examples])
        targets_BT, _ = padded([pair.target for pair in examples], fill=IGNORE)
        return PairBatch(ids_BS, real_BS, targets_BT=targets_BT)

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        assert batch.targets_BT is not None and isinstance(trunk, CoveTrunk)
        _, encoded = trunk.encode(batch)
        real_BT = batch.targets_BT != IGNORE
        read_BTD = self.decoder(words_before(batch.targets_BT), encoded, real_BT)
        output = self.decoder.output
        targets_N = batch.targets_BT[real_BT]
        total = TiedSoftmax(output.weight, output.bias).loss(read_BTD[real_BT], targets_N)
        return Outcome({NAME: LossSum(total, float(len(targets_N)))})

    def attention(self, trunk: Trunk, batch: Batch) -> Tensor:
        """α."""
        assert batch.targets_BT is not None and isinstance(trunk, CoveTrunk)
        real_BT = batch.targets_BT != IGNORE
        return self.decoder.attention(words_before(batch.targets_BT), trunk.encode(batch)[1], real_BT)

    # -- writing translations ----------------------------------------------------------------------------------------

    def start(self, trunk: Trunk, batch: Batch) -> DecoderState:
        """The sources, read, and the decoder before its first word."""
        assert isinstance(trunk, CoveTrunk)
        return self.decoder.start(trunk.encode(batch)[1])

    def decode_step(self, ids_B: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The logits [B, V] of the word after these, and the state that has read them."""
        read_BD, state = self.decoder.step(ids_B, state)
        return self.decoder.output(read_BD), state


def words_before(targets_BT: Tensor) -> Tensor:
    """The word before each target; before the first one, the start symbol."""
    before_BT = torch.cat([torch.full_like(targets_BT[:, :1], START), targets_BT[:, :-1]], dim=1)
    return before_BT.masked_fill(before_BT == IGNORE, START)
