"""Which tokens of a sequence a permutation language model predicts, and in which order: XLNet's partial prediction.

A factorisation order z is drawn; the sequence itself is not moved. Only the last 1/K of z are predicted. As in the
released code these are runs of n tokens, n from 1 to 5 with p(n) ∝ 1/n, each beginning with a word, with n·K tokens of
context on its two sides; as these leave room for one token in K + 1 at most, the rest of the K-th part that is wanted
is drawn token by token. (Runs of n tokens within n·K are the paper's, section 3.1, which says no more of how a length
and a place are drawn. The code's comments speak of whole words, but it counts tokens.) Runs keep their distance from
each other, so that they alone would never predict, say, the second half of a sequence from its first. The paper's
objective is an expectation over all orders; a part of the sequences (`scattered`) therefore has targets that are drawn
token by token, and every order of what is drawn together can come (`permutation.py`). Then z is drawn: all tokens that
are given in any order, behind them all that are predicted in any order.

What a token sees is said by ranks: those of no higher rank, and its query those of a lower one. With an `ordered`
context the rank is the place in z, as the paper writes it. In the released code, and by default (`open`), tokens that
are given see each other all, since nobody is asked about them: they share rank 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from foretext.nn.model_config import check_range
from foretext.objectives.forgetting import ForgettingConfig
from foretext.objectives.growing import GrowingConfig

MOST_LONG = 100  # tokens of a run


@dataclass(frozen=True)
class PermutationConfig(GrowingConfig, ForgettingConfig):
    """[objective] of XLNet."""

    predicted: int = 6  # K: one token in so many is predicted
    longest: int = 5  # tokens of a run that is predicted together
    scattered: float = 0.05  # part of the sequences in which they are drawn token by token instead
    context: Literal["open", "ordered"] = "open"  # whether given tokens see each other all, or in the order drawn
    length: float = 1.0  # of the context, that is read at a time; what stands before it is in the memory
    both_ways: bool = True  # whether half of the rows read their text from the right
    pairs: bool = False  # whether half of what is read is two segments, the second from elsewhere half of the time

    def check(self) -> None:
        GrowingConfig.check(self)
        ForgettingConfig.check(self)
        check_range("objective", self, "at least 1", "predicted")
        check_range("objective", self, "at least 0 and at most 1", "scattered")
        check_range("objective", self, "above 0 and at most 1", "length")
        check_range("objective", self, f"at least 1 and at most {MOST_LONG}", "longest")


def draw_targets(
    starts: np.ndarray, free: np.ndarray, config: PermutationConfig, draw: np.random.Generator
) -> np.ndarray:
    """Which places are predicted, [n] of bools. `starts`: where words begin; `free`: places that may be asked."""
    chosen = np.zeros(len(starts), dtype=bool)
    able = int(free.sum())
    wanted = min(able, max(1, able // config.predicted))
    if draw.random() < config.scattered:
        chosen[draw.choice(np.flatnonzero(free), wanted, replace=False)] = True
        return chosen
    words = np.flatnonzero(starts)
    chances = np.cumsum(1.0 / np.arange(1, config.longest + 1))
    left, place = wanted, 0
    while left and place < len(starts):
        run = min(int(np.searchsorted(chances, draw.random() * chances[-1], side="right")) + 1, left)
        room = run * config.predicted
        before = int(draw.integers(room))
        word = int(np.searchsorted(words, place + before))
        if word == len(words) or words[word] + run > len(starts):
            break
        begin, end = int(words[word]), int(words[word]) + run
        chosen[begin:end] = free[begin:end]
        left -= int(free[begin:end].sum())
        place = end + room - before
    if left:
        chosen[draw.choice(np.flatnonzero(free & ~chosen), left, replace=False)] = True
    return chosen


def draw_order(chosen: np.ndarray, apart: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """All places in the order of the factorisation, those that are predicted last. Places `apart` stand anywhere among
    these, as the released code has the separators of a pair: what is given does not see them."""
    late = chosen | apart
    return np.concatenate([draw.permutation(np.flatnonzero(~late)), draw.permutation(np.flatnonzero(late))])


def ranks_of(order: np.ndarray, late: int, config: PermutationConfig) -> np.ndarray:
    """The rank of each place, given the order, of which the last `late` are not merely given."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks if config.context == "ordered" else np.maximum(ranks - (len(order) - late) + 1, 0)
