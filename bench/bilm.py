"""Both sides of the benchmark of ELMo's bidirectional language model; `bench.recurrent` runs it.

Ours is a step of the product's loop. The plain loop has `torch.nn.LSTM` layers with their own projection, one a layer
and direction, without ELMo's bounds on cells and states, and logits of all words by `nn.Linear` and `F.cross_entropy`.
Both have the same character encoder, which reads each distinct word of a batch once, both carry their state, and
neither samples the softmax. Words are drawn as they are in text, the n-th as often as 1/n.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.common import Turns, repeat
from bench.models import BATCHES, RATE, product_loop
from foretext.nn.recurrent.bilm import BilmTrunk, BilmTrunkConfig, SpelledBatch
from foretext.nn.recurrent.char_cnn import CharEncoder, CharEncoderConfig
from foretext.objectives.base import ListedExamples
from foretext.objectives.bidirectional import BilmObjective, BilmObjectiveConfig, BothWays
from foretext.runs.machine import tune_allocator
from foretext.systems.base import TrainingConfig
from foretext.text.tokenizers.word_vocabulary import SPECIALS, words_of
from foretext.train.loop import Loop

WIDTHS, FILTERS = (1, 2, 3, 4, 5), (16, 32, 64, 128, 128)  # of characters, as `tiny` has them


@dataclass(frozen=True)
class BilmShape:
    layers: int = 2
    cells: int = 512
    width: int = 128  # of a direction's states
    context: int = 64
    vocabulary: int = 8000

    def __str__(self) -> str:
        size = f"{self.layers} layers of {self.cells} cells a direction, projected to {self.width}"
        return f"{size}, {self.context} steps, vocabulary {self.vocabulary:,}"

    def config(self) -> BilmTrunkConfig:
        words = CharEncoderConfig(self.width, WIDTHS, FILTERS, highways=1)
        return BilmTrunkConfig(self.vocabulary, self.layers, self.cells, self.context, dropout=0.0, words=words)


@dataclass(frozen=True)
class BilmSpecification:
    shape: BilmShape
    batch: int

    @property
    def tokens(self) -> int:
        """Of a step; each is told twice."""
        return self.batch * self.shape.context


def build_objective(spec: BilmSpecification) -> BilmObjective:
    words = [f"word{number:05d}" for number in range(spec.shape.vocabulary - len(SPECIALS))]
    return BilmObjective(spec.shape.config(), BilmObjectiveConfig(samples=0), words_of(words, lower=False))


def pairs_of(spec: BilmSpecification) -> BothWays:
    """Windows for both directions; row i of a step goes on in the next."""
    count, words = BATCHES * spec.batch, spec.shape.vocabulary
    share = 1.0 / np.arange(1, words + 1)
    size = (count, spec.shape.context + 1)
    return BothWays(ListedExamples(np.random.default_rng(0).choice(words, size, p=share / share.sum())))  # type: ignore[arg-type]


def build_ours(spec: BilmSpecification) -> Loop:
    training = TrainingConfig(optimizer="adamw", rate=RATE, batch_size=spec.batch, micro_batch=spec.batch, dropout=0.0)
    torch.manual_seed(0)
    trunk, objective, stock = BilmTrunk(spec.shape.config()), build_objective(spec), pairs_of(spec)
    return product_loop(trunk, objective, stock, training, spec.shape.context)


def ours(spec: BilmSpecification, turns: Turns) -> None:
    tune_allocator()
    repeat(turns, build_ours(spec)._step)


class PlainBilm(nn.Module):
    """Two stacks of `nn.LSTM` over one character encoder, under one softmax."""

    def __init__(self, config: BilmTrunkConfig) -> None:
        super().__init__()
        self.words = CharEncoder(config.words)
        width = config.words.width

        def stack() -> nn.ModuleList:
            layers = range(config.layers)
            return nn.ModuleList(nn.LSTM(width, config.cells, batch_first=True, proj_size=width) for _ in layers)

        self.stacks = nn.ModuleList([stack(), stack()])
        self.softmax = nn.Linear(width, config.vocabulary)

    def forward(self, batch: SpelledBatch, state: list[list[Any]]) -> tuple[Tensor, list[list[Any]]]:
        """The mean of both directions' losses, and what to go on from."""
        assert batch.characters_UC is not None and batch.back_ids_BT is not None
        words_UD = self.words(batch.characters_UC)
        sides = ((batch.ids_BT, batch.targets_BT), (batch.back_ids_BT.flip(1), batch.back_targets_BT.flip(1)))  # type: ignore[union-attr]
        losses, after = [], []
        for stack, before, (ids_BT, targets_BT) in zip(self.stacks, state, sides):
            x_BTD, lasts = F.embedding(ids_BT, words_UD), []
            assert isinstance(stack, nn.ModuleList)
            for number, lstm in enumerate(stack):
                y_BTD, last = lstm(x_BTD, before[number])
                x_BTD = y_BTD + x_BTD if number else y_BTD
                lasts.append(tuple(part.detach() for part in last))
            losses.append(F.cross_entropy(self.softmax(x_BTD).flatten(0, 1), targets_BT.flatten()))  # type: ignore[union-attr]
            after.append(lasts)
        return (losses[0] + losses[1]) / 2, after


def plain(spec: BilmSpecification, turns: Turns) -> None:
    objective, stock = build_objective(spec), pairs_of(spec)
    order = objective.order(stock, spec.batch, 0)
    numbers = cycle(range(BATCHES))
    torch.manual_seed(0)
    model = PlainBilm(spec.shape.config()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    state: list[list[Any]] = [[None] * spec.shape.layers] * 2

    def step() -> None:
        nonlocal state
        batch = objective.make([stock.example(0, index) for index in order.batch(next(numbers))[1]])
        assert isinstance(batch, SpelledBatch)
        optimizer.zero_grad()
        loss, state = model(batch, state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    repeat(turns, step)
