"""ELMo's character encoder: a vector for any word, from its characters alone (Peters et al., 2018; Kim et al., 2016).

    e_c = E[character],   f_w = activation(max over t of (W_w · e_{t … t+w−1} + b_w)),   x_0 = [f_1; f_2; …]
    x_k = g ∘ relu(W_k x_{k−1} + b_k) + (1 − g) ∘ x_{k−1},   g = sigmoid(G_k x_{k−1} + a_k)      (highways)
    word = P x_n + p

The gates' bias a_k starts at −2, so that a highway initially copies. If the filters' total equals the width, there is
no projection P, as in the released training code. Initial values are also from that code.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from foretext.errors import check_range, refuse_if

Activation = Literal["relu", "tanh"]


@dataclass(frozen=True)
class CharEncoderConfig:
    width: int = 512  # of a word's vector
    filter_widths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    filter_counts: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)
    embedding: int = 16  # width of a character's vector
    characters: int = 262  # ids, including 0 for no word
    length: int = 50  # characters per word
    highways: int = 2
    activation: Activation = "relu"

    def check(self, where: str = "model") -> None:
        """UserError if no encoder can have this shape."""
        for name, least in (("width", 1), ("embedding", 1), ("characters", 2), ("length", 3), ("highways", 0)):
            check_range(where, self, f"at least {least}", name)
        refuse_if(
            not self.filter_widths or len(self.filter_widths) != len(self.filter_counts),
            f"{where}: {len(self.filter_widths)} filter_widths but {len(self.filter_counts)} filter_counts; give a "
            "width and a count for each kind of filter",
        )
        for width, count in self.filters:
            refuse_if(
                not 1 <= width <= self.length or count < 1,
                f"{where}: {count} filters over {width} characters; the count must be at least 1 and the width from 1 "
                f"to {self.length}, the characters per word",
            )

    @property
    def filters(self) -> list[tuple[int, int]]:
        """(width, count) of each kind of filter."""
        return list(zip(self.filter_widths, self.filter_counts))

    @property
    def features(self) -> int:
        """The total number of filters."""
        return sum(self.filter_counts)

    @property
    def projects(self) -> bool:
        return self.features != self.width

    def parameters(self) -> int:
        filters = sum((width * self.embedding + 1) * count for width, count in self.filters)
        highways = self.highways * 2 * (self.features + 1) * self.features
        projection = (self.features + 1) * self.width if self.projects else 0
        return self.characters * self.embedding + filters + highways + projection

    def activations(self, words: int) -> int:
        """About how many numbers are kept for the backward pass over so many distinct words."""
        windows = sum((self.length - width + 1) * count for width, count in self.filters)
        return words * (self.length * self.embedding + windows + 4 * self.features * (self.highways + 1) + self.width)


class Highway(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        for linear, bias in ((self.transform, 0.0), (self.gate, -2.0)):
            nn.init.normal_(linear.weight, std=math.sqrt(1.0 / width))
            nn.init.constant_(linear.bias, bias)

    def forward(self, x_ND: Tensor) -> Tensor:
        return torch.lerp(x_ND, torch.relu(self.transform(x_ND)), torch.sigmoid(self.gate(x_ND)))


class CharEncoder(nn.Module):
    def __init__(self, config: CharEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.characters = nn.Embedding(config.characters, config.embedding, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(config.embedding, count, width) for width, count in config.filters)
        self.highways = nn.ModuleList(Highway(config.features) for _ in range(config.highways))
        self.project = nn.Linear(config.features, config.width) if config.projects else nn.Identity()
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        self.characters.weight[1:].uniform_(-1.0, 1.0)
        for (width, _), conv in zip(self.config.filters, self.filters):
            assert isinstance(conv, nn.Conv1d) and conv.bias is not None
            if self.config.activation == "relu":
                conv.weight.uniform_(-0.05, 0.05)
            else:
                conv.weight.normal_(0.0, math.sqrt(1.0 / (width * self.config.embedding)))
            conv.bias.zero_()
        if isinstance(self.project, nn.Linear):
            self.project.weight.normal_(0.0, math.sqrt(1.0 / self.config.features))
            self.project.bias.zero_()

    def forward(self, characters: Tensor) -> Tensor:
        """Words [..., length] of character ids as vectors [..., width]."""
        leading = characters.shape[:-1]
        assert characters.shape[-1] == self.config.length, f"words of {characters.shape[-1]} characters"
        ids_NC = characters.reshape(-1, self.config.length)
        if len(ids_NC) == 0:
            return self.characters.weight.new_zeros(*leading, self.config.width)
        x_NEC = self.characters(_without_repeated_end(ids_NC, max(self.config.filter_widths))).transpose(1, 2)
        # The activation is increasing, so it can be applied to the maxima alone.
        x_ND = torch.cat([conv(x_NEC).amax(dim=2) for conv in self.filters], dim=1)
        x_ND = torch.relu(x_ND) if self.config.activation == "relu" else torch.tanh(x_ND)
        for highway in self.highways:
            x_ND = highway(x_ND)
        return self.project(x_ND).view(*leading, self.config.width)


def _without_repeated_end(ids_NC: Tensor, widest: int) -> Tensor:
    """The columns that the filters need. Words are short, and after the last character the same id repeats: all windows
    there give the same result, so one is enough."""
    places = (ids_NC != ids_NC[:, -1:]).any(dim=0).nonzero()
    return ids_NC[:, : (int(places.max()) + 1 if len(places) else 0) + widest]
