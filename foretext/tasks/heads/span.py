"""Answers that are a span of a passage: a start vector and an end vector against each token's state.

P(start = i) is the softmax over all real tokens of the sequence, P(end = i) likewise; the loss of an example is the
mean of the two −log P, as BERT's released code has it. A window without the answer, and a question that has none,
point at the extract position. A causal trunk may add λ·L1 as in `supervised.py`; it must choose a start before it has
read what follows, which limits what its answers can be worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretext.batch import Batch, LossSum, Outcome, padded, padded_segments
from foretext.nn.fused import dropout
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Draw, Objective
from foretext.tasks.heads.supervised import loss_weights, new_layer, next_tokens, real_places, sequence_lm_loss, spread
from foretext.tasks.layouts.windows import SpanWindow, is_whole


@dataclass(frozen=True)
class SpanExample:
    """A question with a window of its passage: the ids, the indices of the passage's leftmost and rightmost token, and
    of the tokens where the answer starts and ends; None where that is not known."""

    ids: tuple[int, ...]
    passage: tuple[int, int]
    start: int | None
    end: int | None
    segments: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def asked(self, scores: np.ndarray) -> np.ndarray:
        """Without the padding."""
        return scores[: len(self.ids)]


def span_example(window: SpanWindow, answer: tuple[int, int] | None, known: bool = True) -> SpanExample:
    """`answer`: the first and the last token of the answer in the whole passage; None if there is none. If it is not
    whole in the window, the window has no answer. Not `known`: to be predicted."""
    frame = window.frame
    first, length = frame.parts[1]
    places: tuple[int | None, int | None] = (None, None)
    if known:
        places = (frame.extract, frame.extract)
        if answer is not None and is_whole(answer, window):
            places = (frame.place(1, answer[0] - window.start), frame.place(1, answer[1] - window.start))
    return SpanExample(frame.ids, (first, first + length - 1), *places, frame.segments)


class SpanTask(Objective):
    """Answer spans on any trunk."""

    kind = "span"
    threshold: Tensor  # by how much "no answer" must outscore the best span; chosen on validation rows

    def __init__(self, width: int, lm_weight: float, p: float, init_std: float = 0.02) -> None:
        super().__init__()
        self.p = p
        self.head = new_layer(width, 2, init_std)  # row 0 is the start vector, row 1 the end vector
        self.register_buffer("threshold", torch.zeros(()))
        self.weights = loss_weights(lm_weight)

    def make(self, examples: Sequence[SpanExample], draw: Draw | None = None) -> Batch:
        """`labels` is [B, 2], start and end; it stays None if an example has none."""
        ids, real = padded([example.ids for example in examples])
        places = [(example.start, example.end) for example in examples]
        known = all(place is not None for pair in places for place in pair)
        return Batch(
            ids,
            real,
            segments_BT=padded_segments([example.segments for example in examples], ids.shape[1]),
            labels=torch.tensor(places, dtype=torch.int64) if known else None,
        )

    def counts(self, batch: Batch) -> dict[str, float]:
        assert batch.labels is not None
        return {"label": float(len(batch.labels)), "lm": float(len(batch.ids_BT))}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        """`scores` is [B, T, 2], start and end of each real token."""
        states_BTD = self.states(trunk, batch)
        real_BT = real_places(batch)
        scores_BT2 = spread(self.head(dropout(states_BTD[real_BT], self.p, self.training)), real_BT)
        losses: dict[str, LossSum] = {}
        if batch.labels is not None:
            losses["label"] = LossSum(self.label_loss(scores_BT2, batch.labels), float(len(batch.labels)))
            if "lm" in self.weights and torch.is_grad_enabled():  # scoring has no use for it
                losses["lm"] = sequence_lm_loss(trunk, states_BTD, next_tokens(batch.ids_BT, real_BT))
        return Outcome(losses, None, scores_BT2)

    def states(self, trunk: Trunk, batch: Batch) -> Tensor:
        """What the two vectors are compared with."""
        return trunk(batch).top

    def label_loss(self, scores_BT2: Tensor, labels_B2: Tensor) -> Tensor:
        """The mean of −log P(start) and −log P(end), summed over the examples."""
        return -scores_BT2.log_softmax(1).gather(1, labels_B2[:, None]).sum() / 2
