"""What the other rooms may ask of a trunk. A trunk is a module that reads a `Batch` and gives `Hidden` states; it never
sees a loss. What one cannot do, it says by not overriding the default here: nobody asks of which kind it is.

Each kind of trunk has a frozen dataclass for its configuration, beside its code; `[model]` of a run's config.toml is
that dataclass. `ModelConfig` is what the rest of the package reads of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import Batch, Hidden, padded
from foretext.errors import UserError
from foretext.nn.softmax.tied_softmax import TiedSoftmax

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
    above: ClassVar[tuple[str, ...]] = ()  # what the names of parameters above the last block begin with
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

    def layer_groups(self) -> list[list[str]]:
        """Names of parameters from the bottom (embeddings and what blocks share) to the top, block by block."""
        names = [name for name, _ in self.named_parameters()]
        blocks = [[name for name in names if name.startswith(f"blocks.{n}.")] for n in range(len(self.blocks))]
        blocks[-1] += [name for name in names if name.startswith(self.above)]
        return [[name for name in names if not name.startswith(("blocks.", *self.above))], *blocks]

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
