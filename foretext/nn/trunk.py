"""The interface of a trunk: a module that reads a `Batch` and returns `Hidden` states. It never sees a loss. A trunk
that cannot do something keeps the default here, so nobody needs to know its kind.

Each kind of trunk has a frozen dataclass for its configuration, beside its code; `[model]` of a run's config.toml is
that dataclass. `ModelConfig` is the part that the rest of the package reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import Batch, Hidden, padded
from foretext.errors import UserError
from foretext.nn.fused import TiedSoftmax
from foretext.nn.weights import grown

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
