"""Task models over features of words that do not learn, for ELMo, CoVe and cross-view training: a tagger, a classifier
of sentences, and one of pairs of sentences.

Tagger (Lample et al. 2016, as ELMo's for names):   x → biLSTM → [r; v'] → scores of tags → CRF, or a softmax each
Classifier (the simpler half of McCann et al. 2017): x → biLSTM → [r; v'] → pooled → linear

x and v' are `word_inputs.py`'s. A loss is a sum with its count; the mixtures' penalty is added once for each that is
counted, so that it is whole after the division, however a batch is split.

Pooled: a sentence's states as one vector, their maximum, mean and minimum, and a weighted mean whose weights are
learned (McCann et al. 2017, section 5). Padding has no part in any of them. A sentence without words is zeros.

    β = softmax(X v + d) over the words,   x_self = Xᵀ β,   pooled = [max X; mean X; min X; x_self]

CoVe's biattentive classification network, for a pair of sentences (McCann et al. 2017, section 5).

    X = biLSTM(f(x)),   Y = biLSTM(f(y)),   f: one layer with ReLU, the same for both, as is this biLSTM
    A = X Yᵀ,   A_x = softmax of A's columns, over the words of x,   A_y = softmax of Aᵀ's columns, over those of y
    C_x = A_xᵀ X, a summary of x for each word of y,   C_y = A_yᵀ Y, one of y for each word of x
    X|y = biLSTM([X; X − C_y; X ∘ C_y]),   Y|x = biLSTM([Y; Y − C_x; Y ∘ C_x]),   a biLSTM for each
    pooled: [max; mean; min; self-attentive] of each, those of both side by side, then a maxout network

Why this one and not ESIM, which ELMo's paper uses for inference: it is CoVe's own model, so what CoVe and ELMo are
worth is compared over the same model. ELMo's second mixture stands beside the states of the first biLSTM.

Deviations: only pairs are read so, where the paper takes a single sentence as both x and y; here a single one has the
classifier above. Layer norm where the paper's maxout network has batch norm, so that a row's scores
do not depend on the other rows of its batch; the last of its three layers is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, LossSum
from foretext.errors import check_range, refuse_if
from foretext.nn.fused import dropout
from foretext.nn.recurrent.lstm_layer import BiLstm, drop_words
from foretext.nn.task_models.crf import Allowed, LinearChainCrf
from foretext.nn.task_models.word_inputs import WordInput, WordInputConfig, WordReader


@dataclass(frozen=True)
class TaskModelConfig:
    """What the configurations of all task models have."""

    classes: int
    cells: int = 200  # of each direction of each biLSTM
    layers: int = 1  # of the first of them
    dropout: float = 0.3  # the words have their own
    inputs: WordInputConfig = field(default_factory=WordInputConfig)

    def check(self, where: str = "task") -> None:
        check_range(where, self, "at least 1", "classes", "cells", "layers")
        check_range(where, self, "at least 0 and below 1", "dropout")
        self.inputs.check(f"{where}.inputs")


# -- pooling -----------------------------------------------------------------------------------------------------------

Pool = Literal["max", "mean", "min", "attentive"]
POOLS: tuple[Pool, ...] = get_args(Pool)


def check_pools(pools: Sequence[Pool], where: str) -> None:
    refuse_if(
        not pools or len(set(pools)) != len(pools) or not set(pools) <= set(POOLS),
        f"{where} must be some of {', '.join(POOLS)}, each once, not {', '.join(pools) or 'none'}",
    )


class Pooling(nn.Module):
    def __init__(self, width: int, pools: Sequence[Pool] = POOLS) -> None:
        super().__init__()
        self.pools = tuple(pools)
        self.width = width * len(self.pools)
        self.attend = nn.Linear(width, 1) if "attentive" in self.pools else None  # v, d

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """[B, pools · D]."""
        return torch.cat([self._pooled(pool, x_BTD, mask_BT) for pool in self.pools], dim=1)

    def _pooled(self, pool: Pool, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        if pool == "attentive":
            assert self.attend is not None
            return torch.bmm(masked_softmax(self.attend(x_BTD).squeeze(2), mask_BT)[:, None], x_BTD).squeeze(1)
        if pool == "mean":
            return (x_BTD * mask_BT[..., None]).sum(dim=1) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        if not x_BTD.shape[1]:
            return x_BTD.new_zeros(len(x_BTD), x_BTD.shape[2])
        worst, best = (-torch.inf, Tensor.amax) if pool == "max" else (torch.inf, Tensor.amin)
        found_BD = best(x_BTD.masked_fill(~mask_BT[..., None], worst), dim=1)
        return found_BD.masked_fill(~mask_BT.any(dim=1)[:, None], 0.0)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Over the last axis, of what the mask (of a shape that fits) names; zeros elsewhere, also where it names
    nothing."""
    lowest = torch.finfo(scores.dtype).min  # not −∞, of which alone a softmax is no number
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1) * mask


# -- tagger ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaggerConfig(TaskModelConfig):
    layers: int = 2
    dropout: float = 0.5  # behind each recurrent layer
    crf: bool = True


class BiLstmTagger(nn.Module):
    def __init__(self, config: TaggerConfig, allowed: Allowed | None = None) -> None:
        """`allowed`: which tags may follow which, for a CRF."""
        super().__init__()
        config.check()
        assert allowed is None or config.crf, "only a CRF can forbid what follows"
        self.config = config
        self.read = WordReader(config.inputs)
        self.recurrent = BiLstm(config.inputs.width, config.cells, config.layers, config.dropout)
        self.scores = nn.Linear(self.recurrent.width + config.inputs.output_width, config.classes)
        self.crf = LinearChainCrf(config.classes, allowed) if config.crf else None

    def forward(self, words: WordInput) -> Tensor:
        """Each word's score of each tag, [B, T, C]; at padding they mean nothing."""
        states_BTD = self.recurrent(self.read(words), words.mask_BT)
        states_BTD = drop_words(states_BTD, words.mask_BT, self.config.dropout, self.training)
        return self.scores(self.read.beside(states_BTD, words))

    def loss_of(self, scores_BTC: Tensor, mask_BT: Tensor, tags_BT: Tensor, begins_B: Tensor | None = None) -> LossSum:
        """Of the words whose tag is not IGNORE; the count is of words. `begins_B`: which rows begin their sentence;
        None: all."""
        asked_BT = mask_BT & (tags_BT != IGNORE)
        count = float(asked_BT.sum())
        if self.crf is not None:
            total = self.crf.loss(scores_BTC, tags_BT, asked_BT, begins_B).total
        else:
            total = F.cross_entropy(scores_BTC[asked_BT], tags_BT[asked_BT], reduction="sum")
        return LossSum(total + count * self.read.penalty(), count)


# -- classifier --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassifierConfig(TaskModelConfig):
    """Dropout is between the recurrent layers, and of what is pooled."""

    pools: tuple[Pool, ...] = POOLS

    def check(self, where: str = "task") -> None:
        super().check(where)
        check_pools(self.pools, f"{where}.pools")


class SentenceClassifier(nn.Module):
    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.read = WordReader(config.inputs)
        self.recurrent = BiLstm(config.inputs.width, config.cells, config.layers, config.dropout)
        self.pool = Pooling(self.recurrent.width + config.inputs.output_width, config.pools)
        self.scores = nn.Linear(self.pool.width, config.classes)

    def forward(self, words: WordInput) -> Tensor:
        """Scores [B, C]."""
        states_BTD = self.read.beside(self.recurrent(self.read(words), words.mask_BT), words)
        pooled_BD = self.pool(states_BTD, words.mask_BT)
        return self.scores(dropout(pooled_BD, self.config.dropout, self.training))


# -- pairs of sentences ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BiattentiveConfig(ClassifierConfig):
    """Dropout is of what the maxout network's layers read."""

    projection: int = 200  # numbers that f makes of a word
    hidden: int = 200  # units of each maxout layer
    maxout: int = 4  # linear functions that a unit is the maximum of

    def check(self, where: str = "task") -> None:
        super().check(where)
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
            pooled.append(pool(integrate(torch.cat([own, own - other, own * other], dim=-1), mask), mask))
        return self.scores(self.maxouts(torch.cat(pooled, dim=1)))

    def _encoded(self, words: WordInput) -> Tensor:
        projected_BTD = torch.relu(self.project(self.read(words)))
        return self.read.beside(self.encode(projected_BTD, words.mask_BT), words)
