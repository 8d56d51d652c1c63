"""The encoder and the prediction modules of cross-view training (Clark, Luong, Manning and Le 2018).

    x    = [word's vector; convolutions over its characters]
    h₁   = [→h₁; ←h₁] = biLSTM(x),      h₂ = biLSTM(h₁)
    p(y) = softmax(U relu(W r + w) + u)            a module; r is what it may see

What each module sees at word t of a sentence (each view has its own weights):

    primary    [h₁(t); h₂(t)]     everything
    forward    →h₁(t)             the words up to and including t
    backward   ←h₁(t)             the words from t on
    future     →h₁(t − 1)         the words before t
    past       ←h₁(t + 1)         the words after t

As in the released code, a sentence is read between a begin and an end token, which get no tags. The future view makes
no prediction for a sentence's first word, nor the past view for its last one. There is also an optional view called
full, which sees everything like the primary module but has no relu; it is not in the paper.

Whole sentences (our extension, not in the paper): every module reads the maximum over all words of what it sees: the
primary of [h₁; h₂], forward of →h₁, backward of ←h₁.

The encoder also reads batches of a vocabulary's ids, as tasks make them, if it was given the vocabulary's word reader:
the number of each word's form, and its characters.

Dropout is on the word's vector, its character features and the output of both layers. The caller sets the ratio: it
differs between labelled and unlabelled text, and is 0 for the primary's predictions that teach the views.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import UserError, check_range
from foretext.nn.fused import dropout
from foretext.nn.recurrent.char_cnn import CharEncoder, CharEncoderConfig
from foretext.nn.recurrent.lstm_layer import ProjectedLstm, ProjectedLstmConfig, ReadingOrder, reading_orders
from foretext.nn.trunk import ModelConfig, Trunk, grown

Kind = Literal["tagging", "sentence"]
Reading = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # ids [U] → forms [U], characters [U, C]
View = Literal["full", "forward", "backward", "future", "past"]
VIEWS: dict[str, tuple[str, ...]] = {
    "tagging": ("full", "forward", "backward", "future", "past"),
    "sentence": ("full", "forward", "backward"),
}


@dataclass(frozen=True)
class CvtConfig(ModelConfig):
    """The defaults are the released code's."""

    vocabulary: int
    vectors: int = 300  # width of a word's vector
    char_widths: tuple[int, ...] = (2, 3, 4)  # widths of the filters over a word's characters
    char_filters: int = 100  # filters per width; 0: characters are not read
    char_embedding: int = 50
    char_length: int = 22  # characters read per word, its two borders included
    cells: int = 1024  # of the first layer, per direction
    upper_cells: int = 512  # of the second layer
    direction: int = 512  # width that both are projected to, if smaller
    context: int = 100  # words read per sentence
    dropout: float = 0.5  # on labelled text
    unlabelled_dropout: float = 0.2
    init_std: float = 0.02  # for what else is put on top

    def check(self) -> None:
        check_range("model", self, "at least 0", "vocabulary", "char_filters")
        check_range("model", self, "at least 1", "vectors", "cells", "upper_cells", "direction", "context")
        check_range("model", self, "at least 0 and below 1", "dropout", "unlabelled_dropout")
        if self.char_filters:
            self.characters().check("model.char")
        check_range("model", self, "above 0 and at most 10", "init_std")

    def characters(self) -> CharEncoderConfig:
        counts = (self.char_filters,) * len(self.char_widths)
        return CharEncoderConfig(
            sum(counts), self.char_widths, counts, self.char_embedding, length=self.char_length, highways=0
        )

    def lstms(self) -> tuple[ProjectedLstmConfig, ProjectedLstmConfig]:
        """The shape of each layer, per direction."""
        lower, upper = min(self.cells, self.direction), min(self.upper_cells, self.direction)
        return (
            ProjectedLstmConfig(self.lowest, self.cells, lower, cell_clip=0.0, state_clip=0.0),
            ProjectedLstmConfig(2 * lower, self.upper_cells, upper, cell_clip=0.0, state_clip=0.0),
        )

    @property
    def layers(self) -> int:
        return 2

    @property
    def lower_width(self) -> int:
        """Width of the first layer's states, both directions together."""
        return 2 * self.lstms()[0].width

    @property
    def width(self) -> int:
        return 2 * self.lstms()[1].width

    @property
    def lowest(self) -> int:
        return self.vectors + self.char_filters * len(self.char_widths)

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Widths of the input and of each layer."""
        return (self.lowest, self.lower_width, self.width)

    def describe(self) -> str:
        characters = f" and {self.lowest - self.vectors} character features" if self.char_filters else ""
        return (
            f"2 bidirectional LSTM layers of {self.cells} and {self.upper_cells} cells per direction, on vectors of "
            f"{self.vectors}{characters}"
        )

    def parameters(self) -> int:
        characters = self.characters().parameters() if self.char_filters else 0
        return self.vocabulary * self.vectors + 1 + characters + 2 * sum(lstm.parameters() for lstm in self.lstms())

    def activations(self, tokens: int) -> int:
        characters = self.characters().activations(tokens) if self.char_filters else 0
        return tokens * 2 * self.vectors + characters + 2 * sum(lstm.activations(tokens) for lstm in self.lstms())


@dataclass(frozen=True)
class CvtBatch(Batch):
    """Sentences of whole words, each between a begin and an end token, as word ids and as characters."""

    words_BT: Tensor | None = None  # true at words, false at borders and padding
    characters_UC: Tensor | None = None  # the characters of the distinct words; None: not read
    spelled_BT: Tensor | None = None  # each word's row there
    # for unlabelled text: the first part of each word, where views predict; None: everywhere
    asked_BT: Tensor | None = None
    hidden_BT: Tensor | None = None  # words whose vector is replaced by the unknown one; None: none
    task: int | None = None  # the task of these labels; None: unlabelled


@dataclass(frozen=True)
class CvtStates:
    """Each [B, T, ·], zeros at padding."""

    x_BTE: Tensor
    forward_BTD: Tensor  # →h₁
    backward_BTD: Tensor  # ←h₁
    top_BTD: Tensor  # h₂

    @property
    def lower_BTD(self) -> Tensor:
        return torch.cat([self.forward_BTD, self.backward_BTD], dim=-1)


class CvtEncoder(Trunk):
    def __init__(self, config: CvtConfig, reading: Reading | None = None, unknown: int | None = None) -> None:
        """`unknown`: the form of unknown words, if there is one."""
        super().__init__()
        config.check()
        self.config, self.reading, self.unknown = config, reading, unknown
        self.words = nn.Embedding(config.vocabulary, config.vectors)
        self.scale = nn.Parameter(torch.ones(1))  # scales the words' vectors, which come from elsewhere
        nn.init.normal_(self.words.weight, std=0.1)
        self.characters = CharEncoder(config.characters()) if config.char_filters else None
        lower, upper = config.lstms()
        self.lower = nn.ModuleList(ProjectedLstm(lower) for _ in range(2))
        self.upper = nn.ModuleList(ProjectedLstm(upper) for _ in range(2))

    @torch.no_grad()
    def put_vectors(self, matrix: np.ndarray) -> None:
        """Initial word vectors, one row per id; rows of zeros stay as drawn."""
        if matrix.shape != tuple(self.words.weight.shape):
            raise UserError(
                f"{len(matrix):,} vectors of {matrix.shape[1]} dimensions, but the model has "
                f"{self.config.vocabulary:,} of {self.config.vectors}; give --set model.vectors={matrix.shape[1]}"
            )
        given_VE = torch.from_numpy(np.ascontiguousarray(matrix)).to(self.words.weight)
        self.words.weight.copy_(torch.where(given_VE.any(dim=1, keepdim=True), given_VE, self.words.weight))

    def states(self, batch: Batch, p: float, upper: bool = True) -> CvtStates:
        """Applies dropout `p` in training and evaluation alike. Without `upper`, h₂ is not computed and is empty."""
        batch = self._read(batch)
        orders = reading_orders(
            torch.ones_like(batch.ids_BT, dtype=torch.bool) if batch.mask_BT is None else batch.mask_BT
        )
        x_BTE = orders[0].scatter(self._inputs(batch, orders[0].places_N, p))
        ahead_BTD, back_BTD = _both_ways(self.lower, x_BTE, orders, p)
        lower_BTD = torch.cat([ahead_BTD, back_BTD], dim=-1)
        top_BTD = torch.cat(_both_ways(self.upper, lower_BTD, orders, p), dim=-1) if upper else lower_BTD[..., :0]
        return CvtStates(x_BTE, ahead_BTD, back_BTD, top_BTD)

    def _read(self, batch: Batch) -> Batch:
        """A batch of ids as one of forms and characters."""
        if self.reading is None or (isinstance(batch, CvtBatch) and batch.spelled_BT is not None):
            return batch
        different_U, places_BT = torch.unique(batch.ids_BT, return_inverse=True)
        arrays = self.reading(different_U.cpu().numpy())
        forms_U, characters = (torch.from_numpy(array).to(batch.ids_BT.device) for array in arrays)
        ids_BT = forms_U[places_BT]
        if isinstance(batch, CvtBatch):
            if batch.hidden_BT is not None:
                assert self.unknown is not None
                ids_BT = ids_BT.masked_fill(batch.hidden_BT, self.unknown)
            return replace(batch, ids_BT=ids_BT, characters_UC=characters, spelled_BT=places_BT)
        return CvtBatch(ids_BT, batch.mask_BT, characters_UC=characters, spelled_BT=places_BT, task=0)

    def _inputs(self, batch: Batch, places_N: Tensor, p: float) -> Tensor:
        """The real tokens' vectors and characters, in reading order."""
        x_ND = dropout(self.words(batch.ids_BT.flatten()[places_N]), p, p > 0) * self.scale
        if self.characters is None:
            return x_ND
        assert isinstance(batch, CvtBatch) and batch.characters_UC is not None and batch.spelled_BT is not None
        rows_N = batch.spelled_BT.flatten()[places_N]
        # several threads add up the gradients of `[]` in random order
        spelled_ND = F.embedding(rows_N, self.characters(batch.characters_UC))
        return torch.cat([x_ND, dropout(spelled_ND, p, p > 0)], dim=1)

    def forward(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden:
        """`layers`: the input, h₁, h₂."""
        labelled = not isinstance(batch, CvtBatch) or batch.task is not None
        p = self.config.dropout if labelled else self.config.unlabelled_dropout
        states = self.states(batch, p if self.training else 0.0)
        return Hidden(states.top_BTD, (states.x_BTE, states.lower_BTD, states.top_BTD) if keep_layers else ())

    def layer_names(self) -> list[tuple[str, ...]]:
        return [("lower.",), ("upper.",)]

    def grow_vocabulary(self, size: int) -> None:
        self.words = grown(self.words, size, lambda rows_VD: nn.init.normal_(rows_VD, std=0.1))


def _both_ways(
    layer: nn.ModuleList, x_BTD: Tensor, orders: tuple[ReadingOrder, ReadingOrder], p: float
) -> tuple[Tensor, Tensor]:
    """The states of a layer's two directions, after dropout."""
    ahead_ND, back_ND = (lstm(order.gather(x_BTD), order)[0] for lstm, order in zip(layer, orders))
    return orders[0].scatter(dropout(ahead_ND, p, p > 0)), orders[1].scatter(dropout(back_ND, p, p > 0))


# -- prediction modules ------------------------------------------------------------------------------------------------


class PredictionModule(nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int, activate: bool = True) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, hidden)
        self.predict = nn.Linear(hidden, classes)
        self.activate = activate
        for linear in (self.project, self.predict):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, states_ND: Tensor) -> Tensor:
        x_ND = self.project(states_ND)
        return self.predict(torch.relu(x_ND) if self.activate else x_ND)


def view_width(config: CvtConfig, view: str) -> int:
    """The width of the input of a view (or of `primary`)."""
    return config.lower_width + config.width if view in ("primary", "full") else config.lower_width // 2


def view_places(words_BT: Tensor, view: str, firsts_BT: Tensor | None = None) -> Tensor:
    """Where a view of a tagging task predicts, at the first part of each word: [B, T]. `firsts_BT`: these first parts;
    None: every word is one token."""
    places_BT = words_BT if firsts_BT is None else words_BT & firsts_BT
    if view == "future":
        return places_BT & _moved(words_BT, 1)
    return places_BT & (_next_place(places_BT) < places_BT.shape[1]) if view == "past" else places_BT


def view_states(states: CvtStates, view: str, words_BT: Tensor, firsts_BT: Tensor | None = None) -> Tensor:
    """What a view sees at each of its positions, one after the other: [N, ·]. The past view sees what follows the word,
    from the next word's first part on, but not the word's own other parts."""
    places_BT = view_places(words_BT, view, firsts_BT)
    if view == "future":
        return states.forward_BTD[_moved(places_BT, -1)]
    if view == "past":
        next_BT = _next_place(words_BT if firsts_BT is None else words_BT & firsts_BT)
        rows_N, columns_N = places_BT.nonzero(as_tuple=True)
        return states.backward_BTD[rows_N, next_BT[rows_N, columns_N]]
    return _seen(states, view)[places_BT]


def sentence_states(states: CvtStates, view: str, words_BT: Tensor) -> Tensor:
    """What a view sees of whole sentences, [B, ·]; zeros if there is no word."""
    seen_BTD = _seen(states, view).masked_fill(~words_BT[..., None], -torch.inf)
    return seen_BTD.amax(dim=1).masked_fill(~words_BT.any(1, keepdim=True), 0.0)


def _seen(states: CvtStates, view: str) -> Tensor:
    if view in ("primary", "full"):
        return torch.cat([states.lower_BTD, states.top_BTD], dim=-1)
    assert view in ("forward", "backward"), view
    return states.forward_BTD if view == "forward" else states.backward_BTD


def _moved(places_BT: Tensor, by: int) -> Tensor:
    """Shifts columns to the right by so many positions; the last ones are dropped."""
    return F.pad(places_BT, (by, -by))


def _next_place(places_BT: Tensor) -> Tensor:
    """For each column, the first marked column to its right; T if there is none."""
    length = places_BT.shape[1]
    own_BT = torch.arange(length, device=places_BT.device).expand_as(places_BT).masked_fill(~places_BT, length)
    return F.pad(own_BT.flip(1).cummin(dim=1).values.flip(1)[:, 1:], (0, 1), value=length)
