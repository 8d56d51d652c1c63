"""One direction of ELMo's biLM as a trunk that goes on with a text, for the decoder and for completions.

A biLM is two language models that read the same words apart (Peters et al. 2018): each word from those before it, and
each word from those after it. So either can write: the forward one goes on behind a prompt, the backward one before it.
A word that the softmax has no row for counts as the unknown one where it is scored, and is never written.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.nn.recurrent.bilm import StackState
from foretext.nn.recurrent.bilm_trunk import BilmTrunk
from foretext.nn.recurrent.reading_order import reading_order
from foretext.objectives.bidirectional import BilmObjective


class OneWay:
    """What it is given is read from left to right, whatever the direction: the words of a text that is read from its
    end come in that order."""

    def __init__(self, trunk: BilmTrunk, objective: BilmObjective, backward: bool) -> None:
        self.trunk, self.softmax = trunk.eval(), objective.head
        self.stack = trunk.bilm.backwards if backward else trunk.bilm.forwards
        self.unknown = objective.tokenizer.unknown
        self.output_bias = objective.head.bias_V

    def __call__(self, batch: Batch, state: StackState) -> Hidden:
        characters_UC, ids_BT = self.trunk.characters(batch)
        words_UD = self.trunk.bilm.words(characters_UC)
        real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if batch.mask_BT is None else batch.mask_BT
        order = reading_order(real_BT, backward=False)
        layers, after = self.stack(F.embedding(order.gather(ids_BT), words_UD), order, state)
        return Hidden(order.scatter(layers[-1]), (), after)

    def told(self, targets_N: Tensor) -> Tensor:
        """The words as the softmax knows them."""
        words = len(self.output_bias)
        return targets_N if self.unknown is None else torch.where(targets_N < words, targets_N, self.unknown)

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.trunk.parameters()

    def output_table(self) -> Tensor:
        return self.softmax.table_VD

    def new_state(self, rows: int) -> StackState:
        return self.stack.new_state(rows)

    def room(self, state: StackState) -> None:
        """It reads on for ever."""

    def pick(self, state: StackState, rows: Tensor) -> StackState:
        return tuple((h[rows], c[rows]) for h, c in state)
