"""ELMo's representation of a word: a learned mixture of the layers of a frozen language model (Peters et al., 2018).

    v = γ Σ_l s_l h_l,   s = softmax(w)

w starts at 0 (all layers alike) and γ at 1. The paper's two options: each layer may be normalised before it is weighed,
and λ‖w‖² may be added to the task's loss, which draws the mixture towards the mean of the layers.

Deviation: the released code normalises a layer by one mean and one variance over all words of a batch, so that a word's
vector depends on its neighbours in the batch. Here it is the layer norm that the paper names, over each word's own
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ScalarMix(nn.Module):
    def __init__(self, layers: int, norm: bool = False) -> None:
        super().__init__()
        assert layers >= 1
        self.norm = norm
        self.weights_L = nn.Parameter(torch.zeros(layers))  # w
        self.scale = nn.Parameter(torch.ones(()))  # γ

    def shares(self) -> Tensor:
        """s: how much of the mixture is each layer."""
        return torch.softmax(self.weights_L, dim=0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Layers [..., D], the lowest first, as one [..., D]."""
        assert len(layers) == len(self.weights_L), f"{len(layers)} layers for {len(self.weights_L)} weights"
        if self.norm:
            layers = [F.layer_norm(layer, layer.shape[-1:]) for layer in layers]
        shares = (self.scale * self.shares()).to(layers[0].dtype)
        mixed = layers[0] * shares[0]
        for layer, share in zip(layers[1:], shares[1:]):
            mixed = mixed + layer * share
        return mixed

    def penalty(self) -> Tensor:
        """‖w‖², for a task's loss to add with its λ."""
        return self.weights_L.square().sum()
