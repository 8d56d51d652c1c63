"""The interface of a trunk: a module that reads a `Batch` and returns `Hidden` states. It never sees a loss. A trunk
that cannot do something keeps the default here, so nobody needs to know its kind.

Each kind of trunk has a frozen dataclass for its configuration, beside its code; `[model]` of a run's config.toml is
that dataclass. `ModelConfig` is the part that the rest of the package reads.

Below the interface stand operations on the weights of any trunk: checks on loading, growing with the vocabulary, and
averaging.

Checks: names, shapes, dtypes and finite values. A kernel given a tensor of another shape may write beyond it, so
everything read from a file is checked first: weights, averages, optimiser state, carried state, imports.

Growing: weights with one row per piece of the vocabulary (embeddings, an output bias) are adapted to another
vocabulary, or to more pieces. As in ULMFiT's released code (Howard and Ruder 2018), a known piece keeps its row and a
new one gets the mean of all old rows, so that it starts with no particular meaning instead of noise. fastai does the
same with the bias of the output layer.

Averaging: an exponential moving average of the weights, which predicts better than the last weights (Polyak averaging).

    a_n = d_n · a_{n−1} + (1 − d_n) · w_n,   a_0 = w_0,   d_n = min(decay, n / (9 + n))

The decay grows to its value: with .998 from the start, the first values, which were drawn, would still have a seventh
of the say after a thousand updates. (n counts updates from 1; d_n is TensorFlow's rule for averages that begin early.)
With d_n = (n − 1) / n instead, every update has the same weight: this is the mean over the tail of a run (Izmailov et
al. 2018). Buffers are not averaged: they are as they are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import Batch, Hidden, padded
from foretext.errors import UserError, refuse_if
from foretext.nn.fused import TiedSoftmax

# Limits of a shape: far beyond what can be trained, and below where its size overflows or takes long to compute.
MOST_LAYERS, MOST_WIDE = 1_000, 100_000_000


class ModelConfig:
    """A trunk's shape, base of frozen dataclasses; `dataclasses.replace` fills in `vocabulary` and `dropout`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    if TYPE_CHECKING:  # fields or properties of each

        @property
        def vocabulary(self) -> int: ...

        @property
        def layers(self) -> int: ...

        @property
        def width(self) -> int:
            """Width of the top layer's states."""

        @property
        def context(self) -> int:
            """Tokens that are read at once."""

        @property
        def dropout(self) -> float:
            """The value of `training.dropout`: a probability, or a factor on several; `check` knows which."""

        @property
        def init_std(self) -> float: ...

    def check(self) -> None:
        """UserError if no trunk can have this shape."""
        raise NotImplementedError

    def describe(self) -> str:
        """The shape in a few words, for the plan."""
        raise NotImplementedError

    def parameters(self) -> int:
        """How many numbers the trunk learns."""
        raise NotImplementedError

    def activations(self, tokens: int) -> int:
        """About how many numbers are kept for the backward pass over so many tokens."""
        raise NotImplementedError

    @property
    def head_dropout(self) -> float:
        """The dropout of a task's head on the states that it reads, in training."""
        return self.dropout

    @property
    def lowest(self) -> int:
        """Width of the lowest layer's states, the tokens' own vectors."""
        return self.width

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Width of each layer's states, lowest first."""
        return (self.lowest, *(self.width for _ in range(self.layers)))

    @property
    def fixed(self) -> int:
        """Numbers saved with the weights but never learned, such as CoVe's word vectors."""
        return 0

    @property
    def reads(self) -> int:
        """Tokens of a text that tasks and features read at once: the context, unless that is only how far gradients
        flow."""
        return self.context

    @property
    def word_length(self) -> int:
        """Characters that a trunk reads per word; 0: none."""
        return 0

    def carried(self, rows: int) -> int:
        """Numbers carried from step to step for so many rows, if the objective carries any."""
        return 0

    def remarks(self) -> tuple[str, ...]:
        """Warnings, before training, about a shape that is valid but probably not intended."""
        return ()


# -- the shape of a trunk ----------------------------------------------------------------------------------------------


class OutputLayer(Protocol):
    """Predicts tokens from states: `TiedSoftmax`, `AdaptiveVocabulary`."""

    def loss(self, h_ND: Tensor, targets_N: Tensor, weights_N: Tensor | None = None) -> Tensor:
        """The (weighted) sum over n of −log P(target_n | h_n)."""

    def token_losses(self, h_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """−log P of each target, and the most likely token at each position, without gradients: for scoring."""

    def logits(self, h_ND: Tensor) -> Tensor:
        """[N, V], whose softmax is P(token | h_n)."""


class Trunk(nn.Module):
    """What the other rooms may ask of a trunk. A trunk that cannot do something keeps the default."""

    attends: ClassVar[bool] = False  # whether there are `attention_weights`
    branches: ClassVar[bool] = False  # whether `Batch.attend_BTT` is supported: texts side by side after a state
    spells: ClassVar[bool] = False  # whether tokens are read by their characters, which `spelled` returns
    above: ClassVar[tuple[str, ...]] = ()  # prefixes of the names of parameters above the last layer
    evaluation_memory: int | None = None  # tokens before each that are seen in evaluation; None: there is no memory

    if TYPE_CHECKING:
        blocks: nn.ModuleList

        def __call__(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden: ...

    # -- what is read of states

    def summary(self, states_BD: Tensor) -> Tensor:
        """Maps the states that represent sequences to what is read of them; unchanged unless the trunk has a layer for
        that."""
        return states_BD

    def output_table(self) -> Tensor:
        """The rows that states are compared with to predict tokens."""
        raise UserError("this encoder predicts no words of its own; use a transfer plan without lm_weight")

    def output_layer(self) -> OutputLayer:
        return TiedSoftmax(self.output_table())

    def output_dropout(self, top_BTD: Tensor) -> Tensor:
        """The language model's dropout on the states that it predicts from."""
        return top_BTD

    def foretelling(self, top_BTD: Tensor, next_BT: Tensor) -> tuple[Tensor, Tensor]:
        """The states that predict tokens, and their targets, given the token after each: by default all states, and
        these tokens."""
        return top_BTD, next_BT

    def output_ids(self, targets_N: Tensor) -> Tensor:
        """Tokens as the output layer numbers them."""
        return targets_N

    def tell(self, rows: Sequence[Sequence[int]], counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The states that predict the last so many tokens of each row, [N, D], and these tokens."""
        ids, mask = padded([row[:-1] for row in rows])
        lines: list[int] = []
        columns: list[int] = []
        targets: list[int] = []
        for line, (row, count) in enumerate(zip(rows, counts)):
            lines += [line] * count
            columns += range(len(row) - 1 - count, len(row) - 1)
            targets += row[len(row) - count :]
        device = next(self.parameters()).device
        top = self(Batch(ids.to(device), mask.to(device))).top
        return top[torch.tensor(lines), torch.tensor(columns)], torch.tensor(targets, device=device)

    # -- reading on

    def new_state(self, rows: int) -> Any:
        """The initial state; given it, the trunk returns the next state. None: the trunk has no state."""

    def room(self, state: Any) -> int | None:
        """How many more tokens can be read after `state`; None: any number; 0: the trunk cannot continue."""
        return 0

    def pick(self, state: Any, rows: Tensor) -> Any:
        """The state of these rows, in this order; a row may be taken several times."""
        raise NotImplementedError(f"{type(self).__name__} reads a text at once")

    def memory_length(self) -> int:
        """Tokens in a memory carried in training, at most."""
        return 0

    # -- weights

    def layer_names(self) -> list[tuple[str, ...]]:
        """Prefixes of the names of each layer's parameters, from the bottom to the top."""
        return [(f"blocks.{n}.",) for n in range(len(self.blocks))]

    def layer_groups(self) -> list[list[str]]:
        """Parameter names from the bottom (embeddings and what layers share) to the top, layer by layer."""
        names = [name for name, _ in self.named_parameters()]
        layers = [[name for name in names if name.startswith(beginnings)] for beginnings in self.layer_names()]
        layers[-1] += [name for name in names if name.startswith(self.above)]
        return [[name for name in names if not any(name in layer for layer in layers)], *layers]

    def grow_vocabulary(self, size: int) -> None:
        """Adds randomly drawn rows for tokens, up to `size`."""
        raise UserError("this model cannot take more tokens; use the vocabulary that it has")

    def put_vectors(self, matrix: np.ndarray) -> None:
        """Sets the initial word vectors, one row per id."""
        raise UserError("this model has no word vectors that could be replaced; leave --vectors out")

    # -- looking inside

    def attention_weights(self, ids_T: Tensor, segments_T: Tensor | None = None) -> Tensor:
        """The attention of every layer and head over one sequence: [layers, H, T, T]."""
        raise NotImplementedError(f"{type(self).__name__} has no attention")

    def spelled(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The characters of the batch's distinct tokens [U, C], and the row of each of its tokens there [B, T]."""
        raise NotImplementedError(f"{type(self).__name__} reads tokens by their ids")


class TokenTrunk(Trunk):
    """A trunk that reads rows of one table, which is also its output layer."""

    if TYPE_CHECKING:
        tokens: nn.Embedding
        config: Any

    def draw(self, weights: Tensor) -> None:
        """Draws the weights of a new trunk."""
        nn.init.normal_(weights, std=self.config.init_std)

    def output_table(self) -> Tensor:
        """W_e, which is also the output layer."""
        return self.tokens.weight

    def grow_vocabulary(self, size: int) -> None:
        self.tokens = grown(self.tokens, size, self.draw)


def reads_on(trunk: Trunk) -> bool:
    """Whether any number of tokens can be read piece by piece with carried state: a causal trunk of unlimited length,
    such as an LSTM. Others read what fits their context, at once."""
    return trunk.room(trunk.new_state(1)) is None


@contextmanager
def remembering(trunk: Trunk, length: int | None) -> Iterator[None]:
    """Inside the block, evaluation uses another memory length than the configured one; None: no change."""
    before = trunk.evaluation_memory
    trunk.evaluation_memory = before if length is None else length
    try:
        yield
    finally:
        trunk.evaluation_memory = before


# -- checked -----------------------------------------------------------------------------------------------------------

FOREIGN = "the file belongs to another model; restore it from a copy"


def check_tensors(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], where: str) -> None:
    """UserError unless `tensors` has exactly the tensors of `wanted`: names, shapes, dtypes, finite values. float32 may
    be copied into float64."""
    check_names(tensors, wanted, where)
    for name, tensor in wanted.items():
        wider = tensor.dtype == torch.float64 and tensors[name].dtype == torch.float32
        check_tensor(tensors[name], tensor.shape, torch.float32 if wider else tensor.dtype, f"{where}: {name}")


def check_names(tensors: Mapping[str, Tensor], wanted: Mapping[str, object], where: str) -> None:
    """UserError unless both have the same names."""
    for name in wanted:
        refuse_if(name not in tensors, f"{where}: {name} is missing; {FOREIGN}")
    for name in tensors:
        refuse_if(name not in wanted, f"{where}: {name} is not a tensor of this model; {FOREIGN}")


def check_tensor(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, where: str) -> None:
    """UserError unless the tensor has this shape and dtype and is finite; `where` names the file and the tensor."""
    refuse_if(tensor.shape != shape, f"{where} has shape {list(tensor.shape)}, not {list(shape)}; {FOREIGN}")
    if tensor.dtype != dtype:
        raise UserError(f"{where} is {_plain(tensor.dtype)}, not {_plain(dtype)}; {FOREIGN}")
    refuse_if(
        not bool(torch.isfinite(tensor).all()),
        f"{where} is not finite; train again with a lower rate (--set training.rate=…)",
    )


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -- grown -------------------------------------------------------------------------------------------------------------


def carried_rows(rows_V: Tensor, old_ids: np.ndarray) -> Tensor:
    """[new size, …] from [old size, …]: the rows of `old_ids`, and the mean of all rows where that is negative."""
    ids = torch.from_numpy(np.asarray(old_ids, dtype=np.int64)).to(rows_V.device)
    assert int(ids.max()) < len(rows_V), f"row {int(ids.max())} of {len(rows_V)}"
    rows_V = rows_V.detach()
    taken = rows_V[ids.clamp(min=0)]
    taken[ids < 0] = rows_V.mean(0)
    return taken


def grown(tokens: nn.Embedding, size: int, draw: Callable[[Tensor], object]) -> nn.Embedding:
    """The embeddings extended to `size`; `draw` fills the new rows as in a new trunk, old ones stay."""
    old_VD = tokens.weight.detach()
    fresh_VD = torch.empty(size - len(old_VD), old_VD.shape[1], dtype=old_VD.dtype, device=old_VD.device)
    draw(fresh_VD)
    return nn.Embedding.from_pretrained(torch.cat([old_VD, fresh_VD]), freeze=False)


# -- averaged ----------------------------------------------------------------------------------------------------------

COUNT = "updates"


def decay_at(decay: float | None, update: int) -> float:
    """Of the update with this number, from 1. `decay` None: every update has the same weight."""
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
        """Call it after each optimiser step."""
        self.updates += 1
        weight = 1.0 - decay_at(self.decay, self.updates)
        torch._foreach_lerp_(list(self.averages.values()), list(self.parameters.values()), weight)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own, whatever happened. Before the first update
        nothing is averaged, and the model keeps its own."""
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
        """Exchanges values, not tensors, so that references to parameters stay valid."""
        for name, parameter in self.parameters.items():
            current = parameter.detach().clone()
            parameter.copy_(self.averages[name])
            self.averages[name].copy_(current)

    def state_tensors(self) -> dict[str, Tensor]:
        return {**self.averages, COUNT: torch.tensor(self.updates)}

    def load_state(self, tensors: Mapping[str, Tensor], where: str = "averaged weights") -> None:
        """Loads the output of `state_tensors`, read from `where`; UserError if it does not fit."""
        check_tensors(tensors, self.state_tensors(), where)
        if int(tensors[COUNT]) < 0:
            raise UserError(f"{where}: {COUNT} is {int(tensors[COUNT])}; {FOREIGN}")
        self.updates = int(tensors[COUNT])
        for name, average in self.averages.items():
            average.copy_(tensors[name])
