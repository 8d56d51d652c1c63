"""The protocol that pre-training objectives and labelled tasks share.

An objective says which examples it learns from and in which order, makes them into a `Batch` (all corruption and input
transformation happens there, drawn from generators made of seed, epoch and index), owns its head, calls the trunk, and
returns named *(sum, count)* losses. The loop knows nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from torch import Tensor, nn

from foretext.batch import Batch, Hidden, Outcome
from foretext.text.corpus.token_shards import TokenShards
from foretext.text.order.sample_order import Order, SampleOrder, StreamOrder, Windows

Direction = Literal["forward", "backward"]


class Trunk(Protocol):
    """What the other rooms may ask of a trunk, which is an `nn.Module`."""

    def __call__(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden: ...

    def output_table(self) -> Tensor:
        """The rows that a state is compared with to predict a token."""

    def summary(self, states_BD: Tensor) -> Tensor:
        """What is read of the states that speak for sequences: the states, unless the trunk has a layer for that."""

    def layer_groups(self) -> list[list[str]]:
        """Names of parameters, from the bottom to the top."""

    def grow_vocabulary(self, size: int) -> None: ...


class CausalTrunk(Trunk, Protocol):
    """One that reads token by token, and can go on."""

    def new_state(self, rows: int) -> Any:
        """The state before anything is read, never None: with it, the trunk returns one to go on from."""

    def room(self, state: Any) -> int | None:
        """How many tokens can still be read after `state`; None: any number."""

    def pick(self, state: Any, rows: Tensor) -> Any:
        """The state of these rows, in this order; a row may be taken several times."""


def reads_on(trunk: Any) -> bool:
    """Whether any number of tokens can be read, piece after piece, with a state between: a causal trunk with room for
    ever, such as an LSTM. Others read what fits their context, at once."""
    return hasattr(trunk, "room") and trunk.room(trunk.new_state(1)) is None


class ObjectiveConfig(Protocol):
    """[objective] of a run: a frozen dataclass beside the objective that it is of."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def check(self) -> None:
        """UserError if nothing can be learned so."""


def shaping(config: ObjectiveConfig) -> tuple[str, ...]:
    """The keys that the weights of an objective's head follow from: none, unless its configuration names some."""
    own: tuple[str, ...] = getattr(config, "shapes", ())
    return own


@dataclass(frozen=True)
class Draw:
    """Where the random numbers of a batch come from: one generator for each example, whatever batch it is in."""

    seed: int
    epoch: int
    indices: tuple[int, ...]

    def generator(self, number: int) -> np.random.Generator:
        """For the example at place `number` of the batch."""
        return np.random.default_rng([self.seed, self.epoch, self.indices[number]])


class Examples(Protocol):
    """What an objective is trained on: `example` is a pure function."""

    def __len__(self) -> int: ...

    def example(self, epoch: int, index: int) -> Any: ...


class Objective(nn.Module):
    """Base of all objectives and tasks; see the module docstring.

    One that `carries_state` gets back, as `state`, what it returned in `Outcome.state` for the micro-batch of the same
    number in the step before (None at the start of an epoch), detached and kept in checkpoints: a tensor, or tuples and
    dictionaries of them. Its examples come in streams: row i of a step goes on where row i of the step before ended.
    """

    weights: dict[str, float]
    carries_state: bool = False
    direction: Direction = "forward"
    norms_rows: bool = False  # whether rows that are read together change each other's loss: batch norm
    perplexity: tuple[str, ...] = ()  # the losses, in nats a token, whose mean's exponential is a perplexity
    average: float = 0.0  # decay of the averaged weights that are evaluated and kept; 0: the last ones are

    def examples(self, shards: TokenShards, context: int, seed: int) -> Examples:
        """Examples of unlabelled text: windows, unless an objective needs something else."""
        return Windows(shards, context, seed)

    def lengths(self, context: int) -> list[tuple[float, int]]:
        """How long examples are: (part of the budget that is spent when it ends, tokens), one after the other."""
        return [(1.0, context)]

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        """Which examples a step sees: of those that `examples` gave."""
        if self.carries_state:
            return StreamOrder(len(examples), batch_size, backward=self.direction == "backward")
        return Order(len(examples), batch_size, seed)

    def usual_length(self, examples: Examples, context: int) -> int:
        """About how many tokens one of the examples has that `examples` gave for this context."""
        return context

    def make(self, examples: Sequence[Any], draw: Draw | None = None) -> Batch:
        """`draw` None: nothing is to be drawn, as where only scores are wanted."""
        raise NotImplementedError

    def begin_step(self, step: int, progress: float) -> None:
        """What all micro-batches of a step share, as how a step is split may not change it: draws from torch's
        generator, and weights that depend on the number of the step or on the spent part of the budget. The loop calls
        it before each step."""

    def counts(self, batch: Batch) -> dict[str, float]:
        """What each loss of this batch will be divided by, known before the forward pass."""
        raise NotImplementedError

    def meet(self, examples: Sequence[Any]) -> None:
        """Tasks: what will be learned from, once before training, for a task that counts something in it. What it
        counts is a buffer, which is saved with the weights: a run that goes on has it already."""

    def learned_tokens(self, example: Any) -> int:
        """Tasks: how many of an example's tokens the backward pass goes through, all of which need memory."""
        return int(example.tokens)

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        raise NotImplementedError
