"""What the rest of the package reads of a trunk's configuration. Each kind of trunk has a frozen dataclass of its own,
beside its code; `[model]` of a run's config.toml is that dataclass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol


class ModelConfig(Protocol):
    """A trunk's shape. It is a dataclass: `dataclasses.replace` fills in `vocabulary` and `dropout`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

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
    def head_dropout(self) -> float:
        """What a task's head drops of the states that it reads, while it learns."""

    @property
    def init_std(self) -> float: ...

    def check(self) -> None:
        """UserError if no trunk can have this shape."""

    def describe(self) -> str:
        """The shape in a few words, for a plan."""

    def parameters(self) -> int:
        """How many numbers the trunk learns."""

    def activations(self, tokens: int) -> int:
        """About how many numbers are kept for the backward pass over so many tokens."""


def lowest(config: ModelConfig) -> int:
    """Numbers in a state of the lowest layer, the tokens' own vectors: the width, unless the configuration has a number
    of its own for that."""
    own: int = getattr(config, "lowest", config.width)
    return own


def layer_widths(config: ModelConfig) -> tuple[int, ...]:
    """Numbers in a state of each layer, the lowest first; those between are as wide as the top, unless the
    configuration says otherwise."""
    own: tuple[int, ...] | None = getattr(config, "layer_widths", None)
    return own or (lowest(config), *(config.width for _ in range(config.layers)))


def fixed(config: ModelConfig) -> int:
    """Numbers that are kept with the weights and never learned, such as CoVe's word vectors: none, unless the
    configuration says how many."""
    own: int = getattr(config, "fixed", 0)
    return own


def carried(config: ModelConfig, rows: int) -> int:
    """Numbers that are carried from step to step for so many rows, where an objective carries any: of a `memory`, if
    the configuration has one, every layer's states and a mark for each place, unless it says itself how many."""
    own: Callable[[int], int] | None = getattr(config, "carried", None)
    memory: int = getattr(config, "memory", 0)
    return rows * memory * (config.layers * config.width + 1) if own is None else own(rows)


def reads(config: ModelConfig) -> int:
    """Tokens of a text that tasks and features read at a time: the context, unless the configuration has a number of
    its own for that, as where the context is only how far gradients flow."""
    own: int = getattr(config, "reads", config.context)
    return own


def word_length(config: ModelConfig) -> int:
    """Characters that a trunk reads of a word; 0: it reads none."""
    own: int = getattr(config, "word_length", 0)
    return own


def remarks(config: ModelConfig) -> tuple[str, ...]:
    """What to say before training of a shape that can be but is hardly meant: nothing, unless the configuration knows
    of something."""
    own: Callable[[], tuple[str, ...]] | None = getattr(config, "remarks", None)
    return () if own is None else own()
