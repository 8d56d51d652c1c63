"""What the rest of the package reads of a trunk's configuration. Each kind of trunk has a frozen dataclass of its own,
beside its code; `[model]` of a run's config.toml is that dataclass."""

from __future__ import annotations

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
