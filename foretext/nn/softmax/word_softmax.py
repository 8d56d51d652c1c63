"""ELMo's softmax over words, which is not tied to what it reads: words are read by their characters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretext.nn.softmax.sampled_softmax import Candidates, sampled_softmax_loss
from foretext.nn.softmax.tied_softmax import TiedSoftmax


class WordSoftmax(nn.Module):
    """Θ_s: a row and a bias for each word that can be predicted, as in the released code N(0, 1/√width) and 0."""

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
