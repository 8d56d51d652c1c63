"""The loss of a conditional random field over whole sentences, and its gradient in closed form, in float64.

`LinearChainCrf` (`crf.py`) leaves the gradient to autograd and sums in logarithms, C² exponentials a word. A head that
is fitted by L-BFGS asks for both some hundred times, over all words at once; here a step is a matrix product of
probabilities, scaled so that they sum to 1 (Rabiner 1989), without an exponential for each pair of tags.

    α_1 = e^starts ∘ e^x_1;   α_t = (α_{t−1} e^T) ∘ e^x_t;   β_n = e^ends;   β_t = e^T (e^x_{t+1} ∘ β_{t+1})
    p(y_t) = α_t ∘ β_t;   p(y_{t−1}, y_t) = α_{t−1} · e^T · (e^x_t ∘ β_t);   log Z = Σ log of the scales

The gradient of −log p of the tags is what is expected less what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Differences of scores beyond it, which only a line search meets that has gone too far, count as this: so no product of
# two is 0 in float64.
_FAR = 250.0


class Chain(NamedTuple):
    """Of a field, or gradients of one: from tag to tag, first, and last. −∞ is a tag that may not be there."""

    transitions_CC: np.ndarray
    starts_C: np.ndarray
    ends_C: np.ndarray


@dataclass(frozen=True)
class Sentences:
    """Words of sentences that stand one after another, step by step: `steps[t]` has the place of word t of each
    sentence that is so long, the longest sentences first."""

    steps: tuple[np.ndarray, ...]
    words: int

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | np.ndarray) -> Sentences:
        own = np.asarray(lengths)
        firsts = np.cumsum(own) - own
        order = np.argsort(-own, kind="stable")
        own, firsts = own[order], firsts[order]
        longest = int(own[0]) if len(own) else 0
        return cls(tuple(firsts[: int((own > step).sum())] + step for step in range(longest)), int(own.sum()))

    def loss(self, emissions_NC: np.ndarray, tags_N: np.ndarray, chain: Chain) -> tuple[float, np.ndarray, Chain]:
        """−log p of the tags, summed, with its gradients."""
        highest_N1 = emissions_NC.max(axis=1, keepdims=True)
        likely_NC = np.exp(np.maximum(emissions_NC - highest_N1, -_FAR))
        weights = Chain(*(np.where(np.isneginf(own), 0.0, np.exp(np.clip(own, -_FAR, _FAR))) for own in chain))
        alpha_NC, scales_N = self._forward(likely_NC, weights)
        total = float(np.log(scales_N).sum() + highest_N1.sum()) + self._last(alpha_NC, weights)
        beta_NC = self._backward(likely_NC, scales_N, alpha_NC, weights)
        found_NC = alpha_NC * beta_NC
        pairs_CC = np.zeros_like(chain.transitions_CC)
        for before, here in zip(self.steps, self.steps[1:]):
            told = likely_NC[here] * beta_NC[here] / scales_N[here, None]
            pairs_CC += alpha_NC[before[: len(here)]].T @ told
        pairs_CC *= weights.transitions_CC
        gradient = Chain(pairs_CC, found_NC[self.steps[0]].sum(0), found_NC[self._ends()].sum(0))
        return total - self._take_gold(emissions_NC, tags_N, chain, found_NC, gradient), found_NC, gradient

    def _forward(self, likely_NC: np.ndarray, weights: Chain) -> tuple[np.ndarray, np.ndarray]:
        """α, each word's summing to 1, and what it was divided by."""
        alpha_NC, scales_N = np.empty_like(likely_NC), np.empty(len(likely_NC))
        for step, here in enumerate(self.steps):
            if step:
                own = (alpha_NC[self.steps[step - 1][: len(here)]] @ weights.transitions_CC) * likely_NC[here]
            else:
                own = weights.starts_C * likely_NC[here]
            scales_N[here] = own.sum(1)
            alpha_NC[here] = own / scales_N[here, None]
        return alpha_NC, scales_N

    def _backward(
        self, likely_NC: np.ndarray, scales_N: np.ndarray, alpha_NC: np.ndarray, weights: Chain
    ) -> np.ndarray:
        """β, such that α ∘ β sums to 1."""
        beta_NC = np.empty_like(likely_NC)
        ends = self._ends()
        beta_NC[ends] = weights.ends_C / (alpha_NC[ends] @ weights.ends_C)[:, None]
        for step in range(len(self.steps) - 2, -1, -1):
            here = self.steps[step + 1]
            told = likely_NC[here] * beta_NC[here] / scales_N[here, None]
            beta_NC[self.steps[step][: len(here)]] = told @ weights.transitions_CC.T
        return beta_NC

    def _ends(self) -> np.ndarray:
        """The last word of each sentence."""
        behind = [0 if step + 1 == len(self.steps) else len(self.steps[step + 1]) for step in range(len(self.steps))]
        return np.concatenate([here[count:] for here, count in zip(self.steps, behind)])

    def _last(self, alpha_NC: np.ndarray, weights: Chain) -> float:
        return float(np.log(alpha_NC[self._ends()] @ weights.ends_C).sum())

    def _take_gold(
        self, emissions_NC: np.ndarray, tags_N: np.ndarray, chain: Chain, found_NC: np.ndarray, gradient: Chain
    ) -> float:
        """The score of the tags; what they have is taken off the gradients."""
        every = np.arange(self.words)
        firsts, ends = self.steps[0], self._ends()
        score = emissions_NC[every, tags_N].sum() + chain.starts_C[tags_N[firsts]].sum()
        score += chain.ends_C[tags_N[ends]].sum()
        found_NC[every, tags_N] -= 1
        np.subtract.at(gradient.starts_C, tags_N[firsts], 1)
        np.subtract.at(gradient.ends_C, tags_N[ends], 1)
        for before, here in zip(self.steps, self.steps[1:]):
            own = tags_N[before[: len(here)]], tags_N[here]
            score += chain.transitions_CC[own].sum()
            np.subtract.at(gradient.transitions_CC, own, 1)
        return float(score)
