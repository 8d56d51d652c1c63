"""The causal language model over contiguous streams with carried state, as for AWD-LSTM, which ULMFiT pre-trains.

The loss of a step (Merity, Keskar and Socher 2017; Howard and Ruder 2018), with h the top states and m the output
dropout:

    mean of −log softmax((m ∘ h_t) W_eᵀ)[u_{t+1}]  +  α · mean of (m ∘ h_t)²  +  β · mean of (h_t − h_{t−1})²

α weighs `activation` (AR), β `temporal` (TAR). As in the released code the penalties are means over tokens and units,
TAR's over neighbours inside a piece. The loop gets them as sums with counts, so that splitting a step changes nothing.
They reduce overfitting and are not part of the score.

Each row of a step continues where it ended in the previous step, in pieces of varying length (`text/order.py`), or of
one length if neither `length_spread` nor `length_half` is set. With one length and without penalties, this is also
Transformer-XL's objective, whose state is a memory that some rows start without (`fresh_rows`).

Some rows start anew: they are read as if nothing preceded them.

A model that always continues never learns to read a beginning. But a sentence to classify, or a text to score, is a
beginning: there are only a few tokens to attend to, for which the weights were never trained. So a share of the rows of
a step, drawn by their examples, starts with an empty state. Papers that do not transfer do not need this, and their
sizes do not do it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretext.batch import Batch, Outcome
from foretext.errors import check_range
from foretext.nn.recurrent.awd_lstm import activation_penalty, penalty_counts, temporal_penalty
from foretext.nn.trunk import ModelConfig, Trunk
from foretext.objectives.base import Direction, Draw, Examples
from foretext.objectives.causal import CausalObjective
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import PieceLengths, PieceOrder, SampleOrder, StreamPieces


@dataclass(frozen=True, kw_only=True)
class ForgettingConfig:
    """[objective] of Transformer-XL, and a part of XLNet's."""

    forget: float = 0.0  # share of the rows of a step that start anew

    def check(self) -> None:
        check_range("objective", self, "at least 0 and at most 1", "forget")


def fresh_rows(part: float, count: int, draw: Draw | None) -> Tensor | None:
    """Which of the rows start anew, [B] of bools, whatever batch an example is in; None: none."""
    if not part or draw is None:
        return None
    # A separate generator, so that the example's other draws do not depend on this one.
    fresh_B = torch.tensor([draw.generator(number).spawn(1)[0].random() < part for number in range(count)])
    return fresh_B if bool(fresh_B.any()) else None


def begun_anew(state: Any, fresh_B: Tensor | None) -> Any:
    """The carried state, emptied for these rows: zeros are an LSTM's initial state, and false marks an empty place of a
    memory."""
    if fresh_B is None or state is None:
        return state
    if isinstance(state, Tensor):
        return state.masked_fill(fresh_B.view(-1, *[1] * (state.ndim - 1)), 0)
    if isinstance(state, tuple):
        return tuple(begun_anew(part, fresh_B) for part in state)
    return {name: begun_anew(part, fresh_B) for name, part in state.items()}


# -- streams -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamConfig:
    """[objective] of a language model over streams. The defaults are those of ULMFiT's released code."""

    activation: float = 2.0  # α: the weight of AR; 0: none
    temporal: float = 1.0  # β: the weight of TAR; 0: none
    length_spread: float = 5.0  # standard deviation of a piece's length, in tokens
    length_half: float = 0.05  # share of the pieces with about half the context

    def check(self) -> None:
        check_range("objective", self, "at least 0", "activation", "temporal", "length_spread")
        check_range("objective", self, "at least 0 and at most 1", "length_half")

    @property
    def varies(self) -> bool:
        return bool(self.length_spread or self.length_half)


class StreamObjective(CausalObjective):
    """L1 over streams, left to right or right to left, with both penalties."""

    carries_state = True

    def __init__(
        self, model: ModelConfig, config: StreamConfig, direction: Direction = "forward", forget: float = 0.0
    ) -> None:
        """`forget`: the share of the rows of a step that start anew, in training."""
        super().__init__(direction)
        self.forget = forget
        self.config, self.width = config, model.width
        self.piece = PieceLengths(model.context, config.length_spread, config.length_half)
        penalties = {"activation": config.activation, "temporal": config.temporal}
        self.weights |= {name: weight for name, weight in penalties.items() if weight}

    def examples(self, shards: TokenShards, context: int, seed: int) -> Examples:
        return StreamPieces(shards, context) if self.config.varies else super().examples(shards, context, seed)

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        if not self.config.varies:
            return super().order(examples, batch_size, seed)
        return PieceOrder(len(examples), batch_size, self.piece, seed, self.direction == "backward")

    def make(self, examples: Sequence[np.ndarray], draw: Draw | None = None) -> Batch:
        return replace(super().make(examples, draw), fresh_B=fresh_rows(self.forget, len(examples), draw))

    def counts(self, batch: Batch) -> dict[str, float]:
        activation, temporal = penalty_counts(batch, self.width)
        totals = super().counts(batch) | {"activation": activation, "temporal": temporal}
        return {name: totals[name] for name in self.weights}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        """The penalties are computed in training only."""
        if self.training:
            state = begun_anew(state, batch.fresh_B)
        hidden = trunk(batch, trunk.new_state(len(batch.ids_BT)) if state is None else state)
        dropped = trunk.output_dropout(hidden.top)
        losses = {"lm": self.lm_loss(trunk, batch, dropped)}
        if self.training and "activation" in self.weights:
            losses["activation"] = activation_penalty(dropped, batch.mask_BT)
        if self.training and "temporal" in self.weights:
            losses["temporal"] = temporal_penalty(hidden.top, batch.mask_BT)
        return Outcome(losses, hidden.state)
