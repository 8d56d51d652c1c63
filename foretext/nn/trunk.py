"""What the other rooms may ask of a trunk. A trunk is a module that reads a `Batch` and gives `Hidden` states; it never
sees a loss. What one cannot do, it says by not overriding the default here: nobody asks of which kind it is.

Each kind of trunk has a frozen dataclass for its configuration, beside its code; `[model]` of a run's config.toml is
that dataclass. `ModelConfig` is what the rest of the package reads of it.

Below it is what is done with the weights of any model: they are checked when they are read, grown with the vocabulary,
and averaged.

Checked, by name, shape, dtype and finite values: a kernel that is handed a tensor of another shape may write beyond it,
so nothing that was read from a file goes anywhere without this check: weights, averages, optimiser state, carried
state, imports.

Grown: what is kept for each piece of a vocabulary (embeddings, an output bias), for another vocabulary, or for more
pieces. As in ULMFiT's released code (Howard and Ruder 2018): a piece that was known keeps its row, a new one gets the
mean of all old rows, so that it begins as a piece of no particular meaning and not as noise. fastai does the same with
the bias of the output layer.

Averaged: an exponential moving average of weights, which predict better than the last ones do (Polyak averaging).

    a_n = d_n · a_{n−1} + (1 − d_n) · w_n,   a_0 = w_0,   d_n = min(decay, n / (9 + n))

The decay grows to its value: with .998 from the start, the first values, which were drawn, would still have a seventh
of the say after a thousand updates. (n counts updates from 1; d_n is TensorFlow's rule for averages that begin early.)
Or all updates from some point on count alike, d_n = (n − 1) / n: the mean of the weights of a run's tail (Izmailov et
al. 2018). Buffers are not averaged: they are as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import Batch, Hidden, padded
from foretext.errors import UserError, refuse_if
from foretext.nn.fused import TiedSoftmax

# Of a shape: far beyond what can be trained, and below where its size overflows or takes long to work out.
MOST_LAYERS, MOST_WIDE = 1_000, 100_000_000


class ModelConfig:
    """A trunk's shape, base of frozen dataclasses: `dataclasses.replace` fills in `vocabulary` and `dropout`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    if TYPE_CHECKING:  # fields, or properties, of each

        @property
        def vocabulary(self) -> int: ...

        @property
        def layers(self) -> int: ...

        @property
        def width(self) -> int:
            """Numbers in a state of the top layer."""

        @property
        def context(self) -> int:
            """Tokens that are read at a time."""

        @property
        def dropout(self) -> float:
            """What `training.dropout` says: a probability, or what several are multiplied by; `check` knows which."""

        @property
        def init_std(self) -> float: ...

    def check(self) -> None:
        """UserError if no trunk can have this shape."""
        raise NotImplementedError

    def describe(self) -> str:
        """The shape in a few words, for a plan."""
        raise NotImplementedError

    def parameters(self) -> int:
        """How many numbers the trunk learns."""
        raise NotImplementedError

    def activations(self, tokens: int) -> int:
        """About how many numbers are kept for the backward pass over so many tokens."""
        raise NotImplementedError

    @property
    def head_dropout(self) -> float:
        """What a task's head drops of the states that it reads, while it learns."""
        return self.dropout

    @property
    def lowest(self) -> int:
        """Numbers in a state of the lowest layer, the tokens' own vectors."""
        return self.width

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Numbers in a state of each layer, the lowest first."""
        return (self.lowest, *(self.width for _ in range(self.layers)))

    @property
    def fixed(self) -> int:
        """Numbers that are kept with the weights and never learned, such as CoVe's word vectors."""
        return 0

    @property
    def reads(self) -> int:
        """Tokens of a text that tasks and features read at a time: the context, unless that is only how far gradients
        flow."""
        return self.context

    @property
    def word_length(self) -> int:
        """Characters that a trunk reads of a word; 0: it reads none."""
        return 0

    def carried(self, rows: int) -> int:
        """Numbers that are carried from step to step for so many rows, where an objective carries any."""
        return 0

    def remarks(self) -> tuple[str, ...]:
        """What to say before training of a shape that can be but is hardly meant."""
        return ()


# -- the shape of a trunk ----------------------------------------------------------------------------------------------


class OutputLayer(Protocol):
    """What tells tokens from states: `TiedSoftmax`, `AdaptiveVocabulary`."""

    def loss(self, h_ND: Tensor, targets_N: Tensor, weights_N: Tensor | None = None) -> Tensor:
        """The (weighted) sum over n of −log P(target_n | h_n)."""

    def token_losses(self, h_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """−log P of each target, and the most likely token at each place, without gradients: for scoring."""

    def logits(self, h_ND: Tensor) -> Tensor:
        """[N, V], whose softmax is P(token | h_n)."""


class Trunk(nn.Module):
    attends: ClassVar[bool] = False  # whether there are `attention_weights`
    branches: ClassVar[bool] = False  # whether `Batch.attend_BTT` is followed: texts side by side after a state
    spells: ClassVar[bool] = False  # whether tokens are read by their characters, which `spelled` gives
    above: ClassVar[tuple[str, ...]] = ()  # what the names of parameters above the last layer begin with
    evaluation_memory: int | None = None  # tokens before each that are seen in evaluation; None: there is no memory

    if TYPE_CHECKING:
        blocks: nn.ModuleList

        def __call__(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden: ...

    # -- what is read of states

    def summary(self, states_BD: Tensor) -> Tensor:
        """What is read of the states that speak for sequences: the states, unless the trunk has a layer for that."""
        return states_BD

    def output_table(self) -> Tensor:
        """The rows that a state is compared with to predict a token."""
        raise UserError("this encoder predicts no words of its own; use a transfer without lm_weight")

    def output_layer(self) -> OutputLayer:
        return TiedSoftmax(self.output_table())

    def output_dropout(self, top_BTD: Tensor) -> Tensor:
        """What the language model drops out of the states that it predicts from."""
        return top_BTD

    def foretelling(self, top_BTD: Tensor, next_BT: Tensor) -> tuple[Tensor, Tensor]:
        """The states that tokens are told from, and which, given the ones that follow each: all, and those."""
        return top_BTD, next_BT

    def told(self, targets_N: Tensor) -> Tensor:
        """Tokens as the output layer knows them."""
        return targets_N

    def tell(self, rows: Sequence[Sequence[int]], asked: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The states that the last so many tokens of each row are told from, [N, D], and these tokens."""
        ids, mask = padded([row[:-1] for row in rows])
        lines: list[int] = []
        columns: list[int] = []
        targets: list[int] = []
        for line, (row, count) in enumerate(zip(rows, asked)):
            lines += [line] * count
            columns += range(len(row) - 1 - count, len(row) - 1)
            targets += row[len(row) - count :]
        device = next(self.parameters()).device
        top = self(Batch(ids.to(device), mask.to(device))).top
        return top[torch.tensor(lines), torch.tensor(columns)], torch.tensor(targets, device=device)

    # -- reading on

    def new_state(self, rows: int) -> Any:
        """The state before anything is read; with it, the trunk returns one to go on from. None: it reads at once."""

    def room(self, state: Any) -> int | None:
        """How many tokens can still be read after `state`; None: any number; 0: it does not read on."""
        return 0

    def pick(self, state: Any, rows: Tensor) -> Any:
        """The state of these rows, in this order; a row may be taken several times."""
        raise NotImplementedError(f"{type(self).__name__} reads a text at once")

    def memory_length(self) -> int:
        """Tokens that a state carried in training remembers, at most."""
        return 0

    # -- weights

    def layer_names(self) -> list[tuple[str, ...]]:
        """What the names of each layer's parameters begin with, from the bottom to the top."""
        return [(f"blocks.{n}.",) for n in range(len(self.blocks))]

    def layer_groups(self) -> list[list[str]]:
        """Names of parameters from the bottom (embeddings and what layers share) to the top, layer by layer."""
        names = [name for name, _ in self.named_parameters()]
        layers = [[name for name in names if name.startswith(beginnings)] for beginnings in self.layer_names()]
        layers[-1] += [name for name in names if name.startswith(self.above)]
        return [[name for name in names if not any(name in layer for layer in layers)], *layers]

    def grow_vocabulary(self, size: int) -> None:
        """Adds rows for tokens, drawn like new ones, up to `size`."""
        raise UserError("this model cannot take more tokens; use the vocabulary that it has")

    def put_vectors(self, matrix: np.ndarray) -> None:
        """What the words' vectors start as, a row for each id."""
        raise UserError("this model has no vectors of words to put others in the place of; leave --vectors out")

    # -- looking inside

    def attention_weights(self, ids_T: Tensor, segments_T: Tensor | None = None) -> Tensor:
        """The attention of every layer and head over one sequence: [layers, H, T, T]."""
        raise NotImplementedError(f"{type(self).__name__} has no attention")

    def spelled(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The characters of the batch's distinct tokens [U, C], and its tokens' rows there [B, T]."""
        raise NotImplementedError(f"{type(self).__name__} reads tokens by their ids")


class TokenTrunk(Trunk):
    """A trunk that reads rows of one table, which is its output layer too."""

    if TYPE_CHECKING:
        tokens: nn.Embedding
        config: Any

    def draw(self, weights: Tensor) -> None:
        """Fills weights as those of a new trunk are."""
        nn.init.normal_(weights, std=self.config.init_std)

    def output_table(self) -> Tensor:
        """W_e, which is also the output layer."""
        return self.tokens.weight

    def grow_vocabulary(self, size: int) -> None:
        self.tokens = grown(self.tokens, size, self.draw)


def reads_on(trunk: Trunk) -> bool:
    """Whether any number of tokens can be read, piece after piece, with a state between: a causal trunk with room for
    ever, such as an LSTM. Others read what fits their context, at once."""
    return trunk.room(trunk.new_state(1)) is None


@contextmanager
def remembering(trunk: Trunk, length: int | None) -> Iterator[None]:
    """Evaluation with another length of memory than the configuration's; None: as it is."""
    before = trunk.evaluation_memory
    trunk.evaluation_memory = before if length is None else length
    try:
        yield
    finally:
        trunk.evaluation_memory = before


# -- checked -----------------------------------------------------------------------------------------------------------

FOREIGN = "the file belongs to another model; restore it from a copy"


def check_tensors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], where: str) -> None:
    """UserError unless `found` has exactly the tensors of `wanted`: their names, shapes and dtypes, finite. float32 may
    be copied into float64, which loses nothing."""
    check_names(found, wanted, where)
    for name, tensor in wanted.items():
        wider = tensor.dtype == torch.float64 and found[name].dtype == torch.float32
        check_tensor(found[name], tensor.shape, torch.float32 if wider else tensor.dtype, f"{where}: {name}")


def check_names(found: Mapping[str, Tensor], wanted: Mapping[str, object], where: str) -> None:
    """UserError unless both have the same names."""
    for name in wanted:
        refuse_if(name not in found, f"{where}: {name} is missing; {FOREIGN}")
    for name in found:
        refuse_if(name not in wanted, f"{where}: {name} is not a tensor of this model; {FOREIGN}")


def check_tensor(found: Tensor, shape: tuple[int, ...], dtype: torch.dtype, where: str) -> None:
    """UserError unless it has this shape and dtype, and is finite; `where` names the file and the tensor."""
    refuse_if(found.shape != shape, f"{where} has shape {list(found.shape)} instead of {list(shape)}; {FOREIGN}")
    if found.dtype != dtype:
        raise UserError(f"{where} is {_plain(found.dtype)} instead of {_plain(dtype)}; {FOREIGN}")
    refuse_if(
        not bool(torch.isfinite(found).all()),
        f"{where} is not finite; train again with a lower rate (--set training.rate=…)",
    )


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -- grown -------------------------------------------------------------------------------------------------------------


def carried_rows(rows_V: Tensor, old_ids: np.ndarray) -> Tensor:
    """[new size, …] of [old size, …]: the rows of `old_ids`, and the mean of all where that is negative."""
    ids = torch.from_numpy(np.asarray(old_ids, dtype=np.int64)).to(rows_V.device)
    assert int(ids.max()) < len(rows_V), f"row {int(ids.max())} of {len(rows_V)}"
    rows_V = rows_V.detach()
    taken = rows_V[ids.clamp(min=0)]
    taken[ids < 0] = rows_V.mean(0)
    return taken


def grown(tokens: nn.Embedding, size: int, draw: Callable[[Tensor], object]) -> nn.Embedding:
    """The embeddings with rows added up to `size`, which `draw` fills as a trunk draws its own; the old ones stay."""
    old_VD = tokens.weight.detach()
    fresh_VD = torch.empty(size - len(old_VD), old_VD.shape[1], dtype=old_VD.dtype, device=old_VD.device)
    draw(fresh_VD)
    return nn.Embedding.from_pretrained(torch.cat([old_VD, fresh_VD]), freeze=False)


# -- averaged ----------------------------------------------------------------------------------------------------------

COUNT = "updates"


def decay_at(decay: float | None, update: int) -> float:
    """Of the update with this number, from 1. `decay` None: all updates count alike."""
    assert update >= 1
    return (update - 1) / update if decay is None else min(decay, update / (9.0 + update))


class AveragedWeights:
    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float | None = 0.998) -> None:
        refuse_if(
            decay is not None and not 0.0 <= decay < 1.0,
            f"the decay of averaged weights must be at least 0 and below 1, not {decay}",
        )
        self.parameters = dict(parameters)
        self.decay = decay
        self.updates = 0
        self.averages = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """After each step of the optimiser."""
        self.updates += 1
        weight = 1.0 - decay_at(self.decay, self.updates)
        torch._foreach_lerp_(list(self.averages.values()), list(self.parameters.values()), weight)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the model has the averaged weights, if there was an update; afterwards its own, whatever happened."""
        if not self.updates:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        """Values change places, tensors do not: who holds a parameter goes on holding it."""
        for name, parameter in self.parameters.items():
            own = parameter.detach().clone()
            parameter.copy_(self.averages[name])
            self.averages[name].copy_(own)

    def state_tensors(self) -> dict[str, Tensor]:
        return {**self.averages, COUNT: torch.tensor(self.updates)}

    def load_state(self, tensors: Mapping[str, Tensor], where: str = "averaged weights") -> None:
        """What `state_tensors` gave, read from `where`: UserError if it does not fit."""
        check_tensors(tensors, self.state_tensors(), where)
        if int(tensors[COUNT]) < 0:
            raise UserError(f"{where}: {COUNT} is {int(tensors[COUNT])}; {FOREIGN}")
        self.updates = int(tensors[COUNT])
        for name, average in self.averages.items():
            average.copy_(tensors[name])
