"""Task models over fixed features of words, for ELMo, CoVe and cross-view training: a tagger, a sentence classifier,
and a classifier of sentence pairs.

Tagger (Lample et al. 2016, as ELMo's for names):   x → biLSTM → [r; v'] → scores of tags → CRF, or a softmax each
Classifier (the simpler half of McCann et al. 2017): x → biLSTM → [r; v'] → pooled → linear

A loss is a sum with its count. The mixtures' penalty is added once per counted item, so that after the division it has
full weight, however a batch is split.

Pooling turns a sentence's states into one vector: their maximum, mean and minimum, and a weighted mean with learned
weights (McCann et al. 2017, section 5). Padding is excluded. A sentence without words is zeros.

    β = softmax(X v + d) over the words,   x_self = Xᵀ β,   pooled = [max X; mean X; min X; x_self]

CoVe's biattentive classification network, for a pair of sentences (McCann et al. 2017, section 5).

    X = biLSTM(f(x)),   Y = biLSTM(f(y)),   f: one layer with ReLU, the same for both, as is this biLSTM
    A = X Yᵀ,   A_x = softmax of A's columns, over the words of x,   A_y = softmax of Aᵀ's columns, over those of y
    C_x = A_xᵀ X, a summary of x for each word of y,   C_y = A_yᵀ Y, one of y for each word of x
    X|y = biLSTM([X; X − C_y; X ∘ C_y]),   Y|x = biLSTM([Y; Y − C_x; Y ∘ C_x]),   a biLSTM for each
    pooled: [max; mean; min; self-attentive] of each, those of both side by side, then a maxout network

Why this one and not ESIM, which ELMo's paper uses for inference: it is CoVe's own model, so CoVe and ELMo are compared
with the same task model. ELMo's second mixture is concatenated to the states of the first biLSTM.

Deviations: only pairs use it; the paper also reads a single sentence as both x and y, but here that has the classifier
above. The maxout network has layer norm instead of the paper's batch norm, so that a row's scores do not depend on the
other rows of its batch; the last of its three layers is linear.

The input of the task models: word vectors, layers of a language model, characters (ELMo, CoVe).

    x_k = [vector_k; v_k; c_k],   v_k = γ Σ_l s_l h_{k,l},   s = softmax(w)       (Peters et al. 2018, section 3.3)

The vectors are learned with the task or, for CoVe, [GloVe; CoVe] (McCann et al. 2017). c is a small convolution over a
word's characters (Ma and Hovy 2016). Each part is optional.

v is ELMo's representation of a word: the h are the L + 1 layers of a frozen biLM, and the mixture's weights are
learned. w starts at 0 (equal weights) and γ at 1. The paper has two options: normalising each layer before the mixture,
and adding λ‖w‖² to the task's loss, which pulls the mixture towards the mean of the layers. Some tasks gain from a
second mixture, with its own weights, beside the output of their recurrent layer: [r_k; v'_k]. `penalty` is the sum over
both.

Deviation: the released code normalises a layer by one mean and one variance over all words of a batch, so that a word's
vector depends on the rest of the batch. Here it is layer norm, as the paper says, over each word's own numbers.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, LossSum
from foretext.nn.fused import dropout
from foretext.nn.recurrent.char_cnn import CharEncoder, CharEncoderConfig
from foretext.nn.recurrent.lstm_layer import BiLstm, drop_words
from foretext.nn.task_models.crf import Allowed, LinearChainCrf

# -- what is read of words ---------------------------------------------------------------------------------------------


class ScalarMix(nn.Module):
    def __init__(self, layers: int, norm: bool = False) -> None:
        super().__init__()
        assert layers >= 1
        self.norm = norm
        self.weights_L = nn.Parameter(torch.zeros(layers))  # w
        self.scale = nn.Parameter(torch.ones(()))  # γ

    def shares(self) -> Tensor:
        """s: the share of each layer in the mixture."""
        return torch.softmax(self.weights_L, dim=0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Mixes layers [..., D], lowest first, into one [..., D]."""
        assert len(layers) == len(self.weights_L), f"{len(layers)} layers for {len(self.weights_L)} weights"
        if self.norm:
            layers = [F.layer_norm(layer, layer.shape[-1:]) for layer in layers]
        shares = (self.scale * self.shares()).to(layers[0].dtype)
        return functools.reduce(torch.add, (layer * share for layer, share in zip(layers, shares)))

    def penalty(self) -> Tensor:
        """‖w‖², for a task's loss to add with its λ."""
        return self.weights_L.square().sum()


CHARACTER_WIDTH = 30  # of a character's own vector
FILTER_WIDTH = 3  # characters per filter


@dataclass(frozen=True)
class WordInput:
    """A batch of sentences; only fields in use are set. `mask_BT` is true at words; padding may be on either side."""

    mask_BT: Tensor
    vectors_BTD: Tensor | None = None
    layers: tuple[Tensor, ...] = ()  # each [B, T, width], lowest first
    characters_UC: Tensor | None = None  # the characters of the distinct words
    places_BT: Tensor | None = None  # each word's row there


@dataclass(frozen=True)
class WordInputConfig:
    vectors: int = 0  # width of a word's vector; 0: none
    layers: int = 0  # number of the language model's layers that are mixed; 0: none
    layer_width: int = 0
    at_output: bool = False  # whether a second mixture is put beside the recurrent layer's states
    mix_norm: bool = False  # whether each layer is normalised before the mixture
    mix_penalty: float = 0.0  # λ
    characters: int = 0  # filters over a word's characters; 0: none
    word_length: int = 50
    dropout: float = 0.5

    def encoder(self) -> CharEncoderConfig:
        return CharEncoderConfig(
            width=self.characters,
            filter_widths=(FILTER_WIDTH,),
            filter_counts=(self.characters,),
            embedding=CHARACTER_WIDTH,
            length=self.word_length,
            highways=0,
        )

    @property
    def width(self) -> int:
        """Numbers of x."""
        return self.vectors + self.layer_width + self.characters

    @property
    def output_width(self) -> int:
        """Width of what is put beside the recurrent layer's states."""
        return self.layer_width if self.at_output else 0


class WordReader(nn.Module):
    def __init__(self, config: WordInputConfig) -> None:
        super().__init__()
        self.config = config
        wanted = (config.layers > 0, config.layers > 0 and config.at_output)
        self.at_input, self.at_output = (ScalarMix(config.layers, config.mix_norm) if mix else None for mix in wanted)
        self.characters = CharEncoder(config.encoder()) if config.characters else None

    def forward(self, words: WordInput) -> Tensor:
        """x, with dropout in training; zeros at padding, whatever was there."""
        parts = []
        if self.config.vectors:
            assert words.vectors_BTD is not None, "the model reads vectors"
            parts.append(words.vectors_BTD)
        if self.at_input is not None:
            parts.append(self.at_input(words.layers))
        if self.characters is not None:
            assert words.characters_UC is not None and words.places_BT is not None, "the model reads characters"
            parts.append(F.embedding(words.places_BT, self.characters(words.characters_UC)))
        return self._real(torch.cat(parts, dim=-1), words.mask_BT)

    def beside(self, states_BTD: Tensor, words: WordInput) -> Tensor:
        """[states; v'], or the states alone if there is no second mixture."""
        if self.at_output is None:
            return states_BTD
        return torch.cat([states_BTD, self._real(self.at_output(words.layers), words.mask_BT)], dim=-1)

    def _real(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        return drop_words(x_BTD, mask_BT, self.config.dropout, self.training)

    def penalty(self) -> Tensor | float:
        """λ‖w‖², to be added to the mean of a loss."""
        mixes = [mix for mix in (self.at_input, self.at_output) if mix is not None]
        if not mixes or not self.config.mix_penalty:
            return 0.0
        return self.config.mix_penalty * torch.stack([mix.penalty() for mix in mixes]).sum()


# -- pooling -----------------------------------------------------------------------------------------------------------


class Pooling(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = 4 * width
        self.attend = nn.Linear(width, 1)  # v, d

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """[B, 4 · D]: maximum, mean, minimum and attentive mean."""
        mean_BD = (x_BTD * mask_BT[..., None]).sum(dim=1) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        weights_BT = masked_softmax(self.attend(x_BTD).squeeze(2), mask_BT)
        attentive_BD = torch.bmm(weights_BT[:, None], x_BTD).squeeze(1)
        if x_BTD.shape[1]:
            padding_BT1, empty_B1 = ~mask_BT[..., None], ~mask_BT.any(dim=1)[:, None]
            most_BD = x_BTD.masked_fill(padding_BT1, -torch.inf).amax(dim=1).masked_fill(empty_B1, 0.0)
            least_BD = x_BTD.masked_fill(padding_BT1, torch.inf).amin(dim=1).masked_fill(empty_B1, 0.0)
        else:
            most_BD = least_BD = torch.zeros_like(mean_BD)
        return torch.cat([most_BD, mean_BD, least_BD, attentive_BD], dim=1)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Over the last axis, of the entries where the mask (of a compatible shape) is true; zeros elsewhere, even if it is
    nowhere true."""
    lowest = torch.finfo(scores.dtype).min  # not −∞: a softmax of only −∞ is NaN
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1) * mask


# -- tagger ------------------------------------------------------------------------------------------------------------


class BiLstmTagger(nn.Module):
    def __init__(
        self,
        inputs: WordInputConfig,
        classes: int,
        cells: int,
        layers: int,
        dropout: float,
        crf: bool = True,
        allowed: Allowed | None = None,
    ) -> None:
        """`cells` per direction; `dropout` after each recurrent layer (words have their own); `allowed`: which tags may
        follow which, for a CRF."""
        super().__init__()
        assert allowed is None or crf, "only a CRF can restrict which tags follow each other"
        self.p = dropout
        self.read = WordReader(inputs)
        self.recurrent = BiLstm(inputs.width, cells, layers, dropout)
        self.scores = nn.Linear(self.recurrent.width + inputs.output_width, classes)
        self.crf = LinearChainCrf(classes, allowed) if crf else None

    def forward(self, words: WordInput) -> Tensor:
        """The score of each tag for each word, [B, T, C]; meaningless at padding."""
        states_BTD = self.recurrent(self.read(words), words.mask_BT)
        states_BTD = drop_words(states_BTD, words.mask_BT, self.p, self.training)
        return self.scores(self.read.beside(states_BTD, words))

    def loss_of(self, scores_BTC: Tensor, mask_BT: Tensor, tags_BT: Tensor, begins_B: Tensor | None = None) -> LossSum:
        """The loss over words whose tag is not IGNORE; the count is of words. `begins_B`: which rows begin their
        sentence; None: all."""
        asked_BT = mask_BT & (tags_BT != IGNORE)
        count = float(asked_BT.sum())
        if self.crf is not None:
            total = self.crf.loss(scores_BTC, tags_BT, asked_BT, begins_B).total
        else:
            total = F.cross_entropy(scores_BTC[asked_BT], tags_BT[asked_BT], reduction="sum")
        return LossSum(total + count * self.read.penalty(), count)


# -- classifier --------------------------------------------------------------------------------------------------------


class SentenceClassifier(nn.Module):
    def __init__(self, inputs: WordInputConfig, classes: int, cells: int, layers: int, dropout: float) -> None:
        """Dropout is between the recurrent layers, and on the pooled states."""
        super().__init__()
        self.p = dropout
        self.read = WordReader(inputs)
        self.recurrent = BiLstm(inputs.width, cells, layers, dropout)
        self.pool = Pooling(self.recurrent.width + inputs.output_width)
        self.scores = nn.Linear(self.pool.width, classes)

    def forward(self, words: WordInput) -> Tensor:
        """Scores [B, C]."""
        states_BTD = self.read.beside(self.recurrent(self.read(words), words.mask_BT), words)
        pooled_BD = self.pool(states_BTD, words.mask_BT)
        return self.scores(dropout(pooled_BD, self.p, self.training))


# -- pairs of sentences ------------------------------------------------------------------------------------------------


MAXOUT = 4  # linear functions per unit; the unit is their maximum


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
    def __init__(
        self,
        inputs: WordInputConfig,
        classes: int,
        cells: int,
        layers: int,
        dropout: float,
        projection: int,
        hidden: int,
        maxout: int = MAXOUT,
    ) -> None:
        """`projection`: width of f's output; `hidden`: units of each maxout layer. Dropout is on the input of these
        layers."""
        super().__init__()
        self.read = WordReader(inputs)
        self.project = nn.Linear(inputs.width, projection)  # f
        self.encode = BiLstm(projection, cells, layers, dropout)
        width = self.encode.width + inputs.output_width
        self.integrate = nn.ModuleList(BiLstm(3 * width, cells) for _ in range(2))
        self.pools = nn.ModuleList(Pooling(2 * cells) for _ in range(2))
        self.maxouts = nn.Sequential(
            Maxout(2 * 4 * 2 * cells, hidden, maxout, dropout), Maxout(hidden, hidden, maxout, dropout)
        )
        self.scores = nn.Linear(hidden, classes)

    def forward(self, first: WordInput, second: WordInput) -> Tensor:
        """Scores [B, C] of pairs."""
        x_BTD, y_BSD = self._encoded(first), self._encoded(second)
        masks = first.mask_BT, second.mask_BT
        affinity_BTS = torch.bmm(x_BTD, y_BSD.transpose(1, 2))
        for_x_BTD = torch.bmm(masked_softmax(affinity_BTS, masks[1][:, None]), y_BSD)  # C_y
        for_y_BSD = torch.bmm(masked_softmax(affinity_BTS.transpose(1, 2), masks[0][:, None]), x_BTD)  # C_x
        pooled = []
        sides = ((x_BTD, for_x_BTD), (y_BSD, for_y_BSD))
        for integrate, pool, (x, attended), mask in zip(self.integrate, self.pools, sides, masks):
            pooled.append(pool(integrate(torch.cat([x, x - attended, x * attended], dim=-1), mask), mask))
        return self.scores(self.maxouts(torch.cat(pooled, dim=1)))

    def _encoded(self, words: WordInput) -> Tensor:
        projected_BTD = torch.relu(self.project(self.read(words)))
        return self.read.beside(self.encode(projected_BTD, words.mask_BT), words)
