"""What the rest of the package reads of a trunk's configuration, and how the numbers of any configuration are checked.
Each kind of trunk has a frozen dataclass of its own, beside its code; `[model]` of a run's config.toml is that
dataclass."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, ClassVar

from foretext.errors import UserError

# Of a shape: far beyond what can be trained, and below where its size overflows or takes long to work out.
MOST_LAYERS, MOST_WIDE = 1_000, 100_000_000
_BOUNDS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}


def check_range(section: str, config: object, said: str, *names: str) -> None:
    """UserError unless these numbers of a section ("": of none) are finite and as `said`, such as "at least 0 and below
    1"."""
    bounds = [part.rsplit(" ", 1) for part in said.split(" and ")]
    for name in names:
        value = getattr(config, name)
        within = (_BOUNDS[word](value, float(bound.replace(",", ""))) for word, bound in bounds)
        if not (all(within) and -math.inf < value < math.inf):
            raise UserError(f"{section}.{name}".removeprefix(".") + f" must be {said}, not {value}")


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
