"""CoVe's biattentive classification network, for a pair of sentences (McCann et al. 2017, section 5).

    X = biLSTM(f(x)),   Y = biLSTM(f(y)),   f: one layer with ReLU, the same for both, as is this biLSTM
    A = X Yᵀ,   A_x = softmax of A's columns, over the words of x,   A_y = softmax of Aᵀ's columns, over those of y
    C_x = A_xᵀ X, a summary of x for each word of y,   C_y = A_yᵀ Y, one of y for each word of x
    X|y = biLSTM([X; X − C_y; X ∘ C_y]),   Y|x = biLSTM([Y; Y − C_x; Y ∘ C_x]),   a biLSTM for each
    pooled: [max; mean; min; self-attentive] of each, those of both side by side, then a maxout network

Why this one and not ESIM, which ELMo's paper uses for inference: it is CoVe's own model, so what CoVe and ELMo are
worth is compared over the same model. ELMo's second mixture stands beside the states of the first biLSTM.

Deviations: only pairs are read so, where the paper takes a single sentence as both x and y; here a single one has the
classifier of `sentence_models.py`. Layer norm where the paper's maxout network has batch norm, so that a row's scores
do not depend on the other rows of its batch; the last of its three layers is linear.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from foretext.nn.fused import dropout
from foretext.nn.model_config import check_range
from foretext.nn.recurrent.lstm_layer import BiLstm
from foretext.nn.task_models.sentence_models import POOLS, Pool, Pooling, check_pools, check_shape, masked_softmax
from foretext.nn.task_models.word_inputs import WordInput, WordInputConfig, WordReader


@dataclass(frozen=True)
class BiattentiveConfig:
    classes: int
    projection: int = 200  # numbers that f makes of a word
    cells: int = 200  # of each direction of each biLSTM
    layers: int = 1  # of the first biLSTM
    hidden: int = 200  # units of each maxout layer
    maxout: int = 4  # linear functions that a unit is the maximum of
    pools: tuple[Pool, ...] = POOLS
    dropout: float = 0.3  # of what the maxout network's layers read; the words have their own
    inputs: WordInputConfig = field(default_factory=WordInputConfig)

    def check(self, where: str = "task") -> None:
        check_shape(self, where)
        check_pools(self.pools, f"{where}.pools")
        check_range(where, self, "at least 1", "projection", "hidden", "maxout")


class Maxout(nn.Module):
    """Norm, dropout, and units that are each the maximum of several linear functions (Goodfellow et al. 2013)."""

    def __init__(self, inputs: int, units: int, functions: int, p: float) -> None:
        super().__init__()
        self.p, self.functions = p, functions
        self.norm = nn.LayerNorm(inputs)
        self.linear = nn.Linear(inputs, units * functions)

    def forward(self, x_BD: Tensor) -> Tensor:
        x_BD = dropout(self.norm(x_BD), self.p, self.training)
        return self.linear(x_BD).unflatten(1, (-1, self.functions)).amax(dim=2)


class BiattentiveClassifier(nn.Module):
    def __init__(self, config: BiattentiveConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.read = WordReader(config.inputs)
        self.project = nn.Linear(config.inputs.width, config.projection)  # f
        self.encode = BiLstm(config.projection, config.cells, config.layers, config.dropout)
        width = self.encode.width + config.inputs.output_width
        self.integrate = nn.ModuleList(BiLstm(3 * width, config.cells) for _ in range(2))
        self.pools = nn.ModuleList(Pooling(2 * config.cells, config.pools) for _ in range(2))
        pooled = 2 * 2 * config.cells * len(config.pools)
        self.maxouts = nn.Sequential(
            Maxout(pooled, config.hidden, config.maxout, config.dropout),
            Maxout(config.hidden, config.hidden, config.maxout, config.dropout),
        )
        self.scores = nn.Linear(config.hidden, config.classes)

    def forward(self, first: WordInput, second: WordInput) -> Tensor:
        """Scores [B, C] of pairs."""
        x_BTD, y_BSD = self._encoded(first), self._encoded(second)
        masks = first.mask_BT, second.mask_BT
        affinity_BTS = torch.bmm(x_BTD, y_BSD.transpose(1, 2))
        for_x_BTD = torch.bmm(masked_softmax(affinity_BTS, masks[1][:, None]), y_BSD)  # C_y
        for_y_BSD = torch.bmm(masked_softmax(affinity_BTS.transpose(1, 2), masks[0][:, None]), x_BTD)  # C_x
        pooled = []
        sides = ((x_BTD, for_x_BTD), (y_BSD, for_y_BSD))
        for integrate, pool, (own, other), mask in zip(self.integrate, self.pools, sides, masks):
            joined = torch.cat([own, own - other, own * other], dim=-1)
            pooled.append(pool(integrate(joined, mask), mask))
        return self.scores(self.maxouts(torch.cat(pooled, dim=1)))

    def _encoded(self, words: WordInput) -> Tensor:
        projected_BTD = torch.relu(self.project(self.read(words)))
        return self.read.beside(self.encode(projected_BTD, words.mask_BT), words)
