"""What the task models read of words: vectors, layers of a language model, characters (ELMo, CoVe).

    x_k = [vector_k; v_k; c_k],   v_k = γ Σ_l s_l h_{k,l},   s = softmax(w)       (Peters et al. 2018, section 3.3)

The vectors are the task's own or, for CoVe, [GloVe; CoVe] (McCann et al. 2017). c is a small convolution over a word's
characters (Ma and Hovy 2016). Each part may be left out.

v is ELMo's representation of a word: the h are the L + 1 layers of a biLM that does not learn, the mixture's weights
do. w starts at 0 (all layers alike) and γ at 1. The paper's two options: each layer may be normalised before it is
weighed, and λ‖w‖² may be added to the task's loss, which draws the mixture towards the mean of the layers. Some tasks
gain by a second mixture, with weights of its own, beside what their recurrent layer gives: [r_k; v'_k]. `penalty` is
the sum over both.

Deviation: the released code normalises a layer by one mean and one variance over all words of a batch, so that a word's
vector depends on its neighbours in the batch. Here it is the layer norm that the paper names, over each word's own
numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.errors import check_range, refuse_if
from foretext.nn.recurrent.char_cnn import CharEncoder, CharEncoderConfig
from foretext.nn.recurrent.lstm_layer import drop_words


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
        return functools.reduce(torch.add, (layer * share for layer, share in zip(layers, shares)))

    def penalty(self) -> Tensor:
        """‖w‖², for a task's loss to add with its λ."""
        return self.weights_L.square().sum()


CHARACTER_WIDTH = 30  # of a character's own vector


@dataclass(frozen=True)
class WordInput:
    """A batch of sentences; only what is used is set. `mask_BT` is true at words, padding may stand on either side."""

    mask_BT: Tensor
    vectors_BTD: Tensor | None = None
    layers: tuple[Tensor, ...] = ()  # of [B, T, width], the lowest first
    characters_UC: Tensor | None = None  # distinct words by their characters
    places_BT: Tensor | None = None  # rows of it


@dataclass(frozen=True)
class WordInputConfig:
    vectors: int = 0  # numbers of a word's vector; 0: there is none
    layers: int = 0  # of a language model; 0: there is none
    layer_width: int = 0
    at_input: bool = True  # whether their mixture is read
    at_output: bool = False  # whether another one stands beside the recurrent layer's states
    mix_norm: bool = False  # whether each layer is normalised before it is mixed
    mix_penalty: float = 0.0  # λ
    characters: int = 0  # filters over a word's characters; 0: none
    filter_width: int = 3  # characters that a filter sees
    word_length: int = 50
    dropout: float = 0.5

    def check(self, where: str = "task.inputs") -> None:
        """UserError if nothing can be read so."""
        check_range(where, self, "at least 0", "vectors", "layers", "layer_width", "characters", "mix_penalty")
        check_range(where, self, "at least 0 and below 1", "dropout")
        refuse_if(
            bool(self.layers) != bool(self.layer_width),
            f"{where}: {self.layers} layers of {self.layer_width} numbers; give both, or neither",
        )
        refuse_if(
            self.layers and not (self.at_input or self.at_output),
            f"{where}: the layers are read neither at_input nor at_output; choose one, or layers=0",
        )
        refuse_if(not self.width, f"{where}: nothing is read; give vectors, layers at the input, or characters")
        if self.characters:
            self.encoder().check(where)

    def encoder(self) -> CharEncoderConfig:
        return CharEncoderConfig(
            width=self.characters,
            filter_widths=(self.filter_width,),
            filter_counts=(self.characters,),
            embedding=CHARACTER_WIDTH,
            length=self.word_length,
            highways=0,
        )

    @property
    def width(self) -> int:
        """Numbers of x."""
        return self.vectors + (self.layer_width if self.at_input else 0) + self.characters

    @property
    def output_width(self) -> int:
        """Numbers that are put beside the recurrent layer's."""
        return self.layer_width if self.at_output else 0


class WordReader(nn.Module):
    def __init__(self, config: WordInputConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        wanted = (bool(config.layers and place) for place in (config.at_input, config.at_output))
        self.at_input, self.at_output = (ScalarMix(config.layers, config.mix_norm) if mix else None for mix in wanted)
        self.characters = CharEncoder(config.encoder()) if config.characters else None

    def forward(self, words: WordInput) -> Tensor:
        """x, dropped in training; zeros at padding, whatever stood there."""
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
        """[states; v'], or the states where there is no second mixture."""
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
