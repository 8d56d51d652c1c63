"""A linear-chain conditional random field over tag scores (Lafferty et al. 2001; Lample et al. 2016 for taggers).

    score(y)  = start[y_1] + Σ_t emission[t, y_t] + Σ_t transition[y_{t-1}, y_t] + end[y_n]
    log p(y)  = score(y) − log Σ_{y'} exp score(y')

The forward algorithm computes the sum over all paths, Viterbi's algorithm the best path. Only the masked-in positions
belong to a sequence, wherever they are (there may be padding on either side, and pieces of words without a tag); they
are first moved together. A sequence without positions has score and log-partition 0.

A sequence may be the continuation of a longer one (`begins_B` false): then any tag may come first, and start[y_1]
counts 0.

Hard constraints are a table of the allowed transitions. A forbidden one counts −10,000 in the sums. This gives a
probability of exactly 0 but, unlike −∞, keeps gradients finite for an unreachable tag. Viterbi's paths never contain
one.

`Sentences` computes the loss over whole sentences and its gradient in closed form, in numpy's float64. `LinearChainCrf`
leaves the gradient to autograd and sums in logarithms, with C² exponentials per word. Fitting a head with L-BFGS needs
both some hundred times, over all words. In `Sentences` a step is a matrix product of probabilities, scaled to sum to 1
(Rabiner 1989), without an exponential for each pair of tags.

    α_1 = e^starts ∘ e^x_1;   α_t = (α_{t−1} e^T) ∘ e^x_t;   β_n = e^ends;   β_t = e^T (e^x_{t+1} ∘ β_{t+1})
    p(y_t) = α_t ∘ β_t;   p(y_{t−1}, y_t) = α_{t−1} · e^T · (e^x_t ∘ β_t);   log Z = Σ log of the scales

The gradient of −log p of the tags is the expected counts minus the observed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, LossSum

FORBIDDEN = -1e4


@dataclass(frozen=True)
class Allowed:
    """Which tags may follow which [from, to], and which may come first and last; if all are true, there is no
    constraint."""

    next_CC: Tensor
    first_C: Tensor
    last_C: Tensor


def iob2_allowed(tags: Sequence[str]) -> Allowed:
    """For IOB2: I-X only after B-X or I-X, and never first."""
    table = torch.ones(len(tags), len(tags), dtype=torch.bool)
    first = torch.ones(len(tags), dtype=torch.bool)
    for to, tag in enumerate(tags):
        if tag == "I" or tag.startswith("I-"):
            table[:, to] = torch.tensor([before in ("B" + tag[1:], tag) for before in tags])
            first[to] = False
    return Allowed(table, first, torch.ones_like(first))


class LinearChainCrf(nn.Module):
    """Transitions, starts and ends, all initially 0: the CRF then chooses each tag independently."""

    def __init__(self, classes: int, allowed: Allowed | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(classes, classes))  # [from, to]
        self.starts = nn.Parameter(torch.zeros(classes))
        self.ends = nn.Parameter(torch.zeros(classes))
        free = torch.ones(classes, classes, dtype=torch.bool)
        allowed = allowed or Allowed(free, free[0], free[0])
        # Not saved: these follow from the tags.
        self.next_ok_CC = nn.Buffer(allowed.next_CC.clone(), persistent=False)
        self.first_ok_C = nn.Buffer(allowed.first_C.clone(), persistent=False)
        self.last_ok_C = nn.Buffer(allowed.last_C.clone(), persistent=False)

    def loss(self, emissions_BTC: Tensor, tags_BT: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> LossSum:
        """−log p of the tags, summed over sequences; the count is of positions, as for a tagger without a CRF."""
        every_B = self.log_partition(emissions_BTC, mask_BT, begins_B)
        own_B = self.score(emissions_BTC, tags_BT, mask_BT, begins_B)
        return LossSum((every_B - own_B).sum(), float(mask_BT.sum()))

    def log_partition(self, emissions_BTC: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> Tensor:
        """log Σ exp score of all paths, for each sequence [B]."""
        x_TBC, lengths_B, _ = _together(emissions_BTC, mask_BT)
        if not len(x_TBC):
            return emissions_BTC.new_zeros(len(lengths_B))
        transitions_CC, starts_BC, ends_C = self._weights(FORBIDDEN, len(lengths_B), begins_B)
        sums_BC = starts_BC + x_TBC[0]
        for step in range(1, len(x_TBC)):
            longer_BC = torch.logsumexp(sums_BC[:, :, None] + transitions_CC, dim=1) + x_TBC[step]
            sums_BC = torch.where((step < lengths_B)[:, None], longer_BC, sums_BC)
        return torch.where(lengths_B > 0, torch.logsumexp(sums_BC + ends_C, dim=1), 0.0)

    def score(self, emissions_BTC: Tensor, tags_BT: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> Tensor:
        """The score of one path for each sequence [B]. Values of `tags_BT` outside the mask are not read."""
        x_TBC, lengths_B, places_BT = _together(emissions_BTC, mask_BT)
        if not len(x_TBC):
            return emissions_BTC.new_zeros(len(lengths_B))
        transitions_CC, starts_BC, ends_C = self._weights(FORBIDDEN, len(lengths_B), begins_B)
        real_BT = torch.arange(len(x_TBC), device=mask_BT.device) < lengths_B[:, None]
        y_BT = tags_BT.gather(1, places_BT).masked_fill(~real_BT, 0)
        own_BT = x_TBC.transpose(0, 1).gather(2, y_BT[:, :, None]).squeeze(2)
        steps_BT = _entries(transitions_CC.flatten(), y_BT[:, :-1] * len(transitions_CC) + y_BT[:, 1:])
        last_B = y_BT.gather(1, (lengths_B - 1).clamp(min=0)[:, None]).squeeze(1)
        inner_B = torch.where(real_BT, own_BT, 0.0).sum(1) + torch.where(real_BT[:, 1:], steps_BT, 0.0).sum(1)
        first_B = starts_BC.gather(1, y_BT[:, :1]).squeeze(1)
        return torch.where(lengths_B > 0, first_B + inner_B + _entries(ends_C, last_B), 0.0)

    @torch.no_grad()
    def viterbi(self, emissions_BTC: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The best path [B, T], IGNORE outside the mask, and its score [B]."""
        x_TBC, lengths_B, places_BT = _together(emissions_BTC, mask_BT)
        path_BT = torch.full_like(mask_BT, IGNORE, dtype=torch.long)
        if not len(x_TBC):
            return path_BT, emissions_BTC.new_zeros(len(lengths_B))
        transitions_CC, starts_BC, ends_C = self._weights(-torch.inf, len(lengths_B), begins_B)
        best_BC = starts_BC + x_TBC[0]
        back: list[Tensor] = []
        for step in range(1, len(x_TBC)):
            longer_BC, from_BC = (best_BC[:, :, None] + transitions_CC).max(dim=1)
            best_BC = torch.where((step < lengths_B)[:, None], longer_BC + x_TBC[step], best_BC)
            back.append(from_BC)
        scores_B, tag_B = (best_BC + ends_C).max(dim=1)
        for step in range(len(x_TBC) - 1, -1, -1):
            real_B = step < lengths_B
            if step < len(back):  # from step + 1, for rows that have it
                before_B = back[step].gather(1, tag_B[:, None]).squeeze(1)
                tag_B = torch.where(step + 1 < lengths_B, before_B, tag_B)
            path_BT[real_B, places_BT[real_B, step]] = tag_B[real_B]
        return path_BT, torch.where(lengths_B > 0, scores_B, 0.0)

    def marginals(self, emissions_BTC: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> Tensor:
        """The probability of each tag at each position, [B, T, C]; zeros outside the mask. It is the gradient of the
        log-partition."""
        with torch.enable_grad():
            emissions = emissions_BTC.detach().requires_grad_()
            total = self.log_partition(emissions, mask_BT, begins_B).sum()
            return torch.autograd.grad(total, emissions)[0] if total.requires_grad else torch.zeros_like(emissions)

    def _weights(self, forbidden: float, rows: int, begins_B: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Transitions [C, C], starts [B, C], ends [C]."""
        starts_BC = torch.where(self.first_ok_C, self.starts, forbidden).expand(rows, -1)
        if begins_B is not None:
            starts_BC = torch.where(begins_B[:, None], starts_BC, 0.0)
        return (
            torch.where(self.next_ok_CC, self.transitions, forbidden),
            starts_BC,
            torch.where(self.last_ok_C, self.ends, forbidden),
        )


def _entries(table_N: Tensor, places: Tensor) -> Tensor:
    """`table_N[places]`. Several threads would add up the gradients of `[]` in random order."""
    return F.embedding(places, table_N[:, None]).squeeze(-1)


def _together(emissions_BTC: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The real positions of each row moved to its beginning, step by step [T, B, C], as many steps as the longest row
    has; the number of them in each row; and the original position of each."""
    lengths_B = mask_BT.sum(1)
    longest = int(lengths_B.max()) if lengths_B.numel() else 0
    places_BT = torch.argsort((~mask_BT).to(torch.uint8), dim=1, stable=True)[:, :longest]
    index_BTC = places_BT[:, :, None].expand(-1, -1, emissions_BTC.shape[2])
    return emissions_BTC.gather(1, index_BTC).transpose(0, 1), lengths_B, places_BT


# -- sums in closed form -----------------------------------------------------------------------------------------------

# Larger differences of scores, which occur only when a line search has gone too far, are clipped to this, so that no
# product of two is 0 in float64.
_FAR = 250.0


class Chain(NamedTuple):
    """The weights of a CRF, or their gradients: from tag to tag, first, and last. −∞ marks a forbidden tag."""

    transitions_CC: np.ndarray
    starts_C: np.ndarray
    ends_C: np.ndarray


@dataclass(frozen=True)
class Sentences:
    """Words of sentences, one sentence after another, with steps: `steps[t]` has the index of word t of each sentence
    of that length, longest sentences first."""

    steps: tuple[np.ndarray, ...]
    words: int

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | np.ndarray) -> Sentences:
        sizes = np.asarray(lengths)
        firsts = np.cumsum(sizes) - sizes
        order = np.argsort(-sizes, kind="stable")
        sizes, firsts = sizes[order], firsts[order]
        longest = int(sizes[0]) if len(sizes) else 0
        return cls(tuple(firsts[: int((sizes > step).sum())] + step for step in range(longest)), int(sizes.sum()))

    def loss(self, emissions_NC: np.ndarray, tags_N: np.ndarray, chain: Chain) -> tuple[float, np.ndarray, Chain]:
        """−log p of the tags, summed, with its gradients."""
        highest_N1 = emissions_NC.max(axis=1, keepdims=True)
        likely_NC = np.exp(np.maximum(emissions_NC - highest_N1, -_FAR))
        weights = Chain(*(np.where(np.isneginf(part), 0.0, np.exp(np.clip(part, -_FAR, _FAR))) for part in chain))
        alpha_NC, scales_N = self._forward(likely_NC, weights)
        total = float(np.log(scales_N).sum() + highest_N1.sum()) + self._last(alpha_NC, weights)
        beta_NC = self._backward(likely_NC, scales_N, alpha_NC, weights)
        marginals_NC = alpha_NC * beta_NC
        pairs_CC = np.zeros_like(chain.transitions_CC)
        for before, here in zip(self.steps, self.steps[1:]):
            ahead_BC = likely_NC[here] * beta_NC[here] / scales_N[here, None]
            pairs_CC += alpha_NC[before[: len(here)]].T @ ahead_BC
        pairs_CC *= weights.transitions_CC
        gradient = Chain(pairs_CC, marginals_NC[self.steps[0]].sum(0), marginals_NC[self._ends()].sum(0))
        return total - self._take_gold(emissions_NC, tags_N, chain, marginals_NC, gradient), marginals_NC, gradient

    def _forward(self, likely_NC: np.ndarray, weights: Chain) -> tuple[np.ndarray, np.ndarray]:
        """α, scaled to sum to 1 for each word, and the scales."""
        alpha_NC, scales_N = np.empty_like(likely_NC), np.empty(len(likely_NC))
        for step, here in enumerate(self.steps):
            if step:
                alpha_BC = (alpha_NC[self.steps[step - 1][: len(here)]] @ weights.transitions_CC) * likely_NC[here]
            else:
                alpha_BC = weights.starts_C * likely_NC[here]
            scales_N[here] = alpha_BC.sum(1)
            alpha_NC[here] = alpha_BC / scales_N[here, None]
        return alpha_NC, scales_N

    def _backward(
        self, likely_NC: np.ndarray, scales_N: np.ndarray, alpha_NC: np.ndarray, weights: Chain
    ) -> np.ndarray:
        """β, scaled such that α ∘ β sums to 1."""
        beta_NC = np.empty_like(likely_NC)
        ends = self._ends()
        beta_NC[ends] = weights.ends_C / (alpha_NC[ends] @ weights.ends_C)[:, None]
        for step in range(len(self.steps) - 2, -1, -1):
            here = self.steps[step + 1]
            ahead_BC = likely_NC[here] * beta_NC[here] / scales_N[here, None]
            beta_NC[self.steps[step][: len(here)]] = ahead_BC @ weights.transitions_CC.T
        return beta_NC

    def _ends(self) -> np.ndarray:
        """The last word of each sentence."""
        behind = [0 if step + 1 == len(self.steps) else len(self.steps[step + 1]) for step in range(len(self.steps))]
        return np.concatenate([here[count:] for here, count in zip(self.steps, behind)])

    def _last(self, alpha_NC: np.ndarray, weights: Chain) -> float:
        return float(np.log(alpha_NC[self._ends()] @ weights.ends_C).sum())

    def _take_gold(
        self, emissions_NC: np.ndarray, tags_N: np.ndarray, chain: Chain, marginals_NC: np.ndarray, gradient: Chain
    ) -> float:
        """The score of the tags; subtracts their observed counts from the gradients."""
        every = np.arange(self.words)
        firsts, ends = self.steps[0], self._ends()
        score = emissions_NC[every, tags_N].sum() + chain.starts_C[tags_N[firsts]].sum()
        score += chain.ends_C[tags_N[ends]].sum()
        marginals_NC[every, tags_N] -= 1
        np.subtract.at(gradient.starts_C, tags_N[firsts], 1)
        np.subtract.at(gradient.ends_C, tags_N[ends], 1)
        for before, here in zip(self.steps, self.steps[1:]):
            pairs = tags_N[before[: len(here)]], tags_N[here]
            score += chain.transitions_CC[pairs].sum()
            np.subtract.at(gradient.transitions_CC, pairs, 1)
        return float(score)
