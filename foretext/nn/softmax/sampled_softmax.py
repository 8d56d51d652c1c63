"""A softmax over part of a large vocabulary, for training (Jean et al. 2015, as TensorFlow's `sampled_softmax_loss` has
it, by which ELMo's language model was trained).

A target y is told from M candidates that are drawn for all targets together. With o for the logits h Wᵀ + b and Q(c)
for the number of times that class c is expected among the candidates, which is at most once:

    loss = −log( e^{o_y} / Q(y)  /  ( e^{o_y} / Q(y) + Σ_{c drawn, c ≠ y} e^{o_c} / Q(c) ) )

A candidate that happens to be the target is left out of the sum (an accidental hit). Candidates are drawn from a
log-uniform distribution, about that of words whose ids begin with the most frequent one,

    P(c) = (log(c + 2) − log(c + 1)) / log(V + 1)

again and again until M different ones are there; if that took n draws, Q(c) = 1 − (1 − P(c))ⁿ.

What this has in common with the full softmax: the sum over the drawn classes is, in expectation, the full sum over
classes other than the target, and the logits that are right for the one loss are right for the other, because among
the candidates y is the target with a probability in the ratio of p(y) / Q(y). The loss itself is not the full one,
mostly it is smaller; so it is for training only, and scores are taken with the full softmax. Where every class is a
candidate, Q is 1 and both are the same.

The draws come from torch's own generator, which the loop seeds for each step; all micro-batches of a step share them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.nn.softmax.tied_softmax import TiedSoftmax

MOST_SHARE = 2  # candidates are at most 1/so much of all classes: beyond that the last ones take ever more draws


@dataclass(frozen=True)
class Candidates:
    """Different classes of 0 … `classes` − 1, and how many draws it took to find them; None: they are all there are."""

    drawn_M: Tensor
    classes: int
    draws: int | None

    def log_counts(self, of: Tensor) -> Tensor:
        """log Q of these classes, float64."""
        if self.draws is None:
            return torch.zeros(of.shape, dtype=torch.float64, device=of.device)
        return torch.log(-torch.expm1(self.draws * torch.log1p(-log_uniform(of, self.classes))))


def log_uniform(of: Tensor, classes: int) -> Tensor:
    """P of these classes, float64."""
    return torch.log1p(1.0 / (of.double() + 1.0)) / math.log(classes + 1.0)


def draw_candidates(count: int, classes: int, device: torch.device | None = None) -> Candidates:
    """`count` different classes, in the order in which they were drawn."""
    assert 1 <= count <= classes // MOST_SHARE, f"{count} of {classes} classes"
    drawn = np.zeros(0, dtype=np.int64)
    while True:
        uniform = torch.rand(2 * count + len(drawn), dtype=torch.float64)
        more = torch.exp(uniform * math.log(classes + 1.0)).long().clamp_(max=classes) - 1
        drawn = np.concatenate([drawn, more.numpy()])
        first = np.sort(np.unique(drawn, return_index=True)[1])  # where each class was drawn for the first time
        if len(first) >= count:
            first = first[:count]
            return Candidates(torch.from_numpy(drawn[first]).to(device), classes, int(first[-1]) + 1)


def sampled_softmax_loss(
    h_ND: Tensor, table_VD: Tensor, targets_N: Tensor, bias_V: Tensor, candidates: Candidates
) -> Tensor:
    """The sum over n of the loss above."""
    drawn_M = candidates.drawn_M
    less_M, less_N = (candidates.log_counts(of).to(h_ND.dtype) for of in (drawn_M, targets_N))
    # A target may come often, and gradients of rows that are read by `[]` are added in no order by several threads.
    own_ND, own_bias_N = F.embedding(targets_N, table_VD), F.embedding(targets_N, bias_V[:, None]).squeeze(1)
    target_N = (h_ND * own_ND).sum(dim=1) + own_bias_N - less_N
    other_NM = torch.addmm(bias_V[drawn_M] - less_M, h_ND, table_VD[drawn_M].t())
    other_NM = other_NM.masked_fill(targets_N[:, None] == drawn_M, -torch.inf)
    return (torch.cat([target_N[:, None], other_NM], dim=1).logsumexp(dim=1) - target_N).sum()


class WordSoftmax(nn.Module):
    """ELMo's softmax over words, Θ_s, which is not tied to what it reads: words are read by their characters. A row and
    a bias for each word that can be predicted, as in the released code N(0, 1/√width) and 0."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table_VD = nn.Parameter(torch.empty(words, width).normal_(0.0, width**-0.5))
        self.bias_V = nn.Parameter(torch.zeros(words))

    def loss(self, states_ND: Tensor, targets_N: Tensor, candidates: Candidates | None = None) -> Tensor:
        """Summed; without candidates against all words."""
        if candidates is None:
            return self.over_all().loss(states_ND, targets_N)
        return sampled_softmax_loss(states_ND, self.table_VD, targets_N, self.bias_V, candidates)

    def over_all(self) -> TiedSoftmax:
        """All words, as where texts are scored or written."""
        return TiedSoftmax(self.table_VD, self.bias_V)
