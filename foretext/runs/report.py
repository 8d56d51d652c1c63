"""What training tells whoever is watching. The command line shows it on a terminal; a library user hears, by default,
only what should be known about the data, as Python's warnings. And being asked to stop: the loop looks at
`stop.requested` between steps; who asks (the command line's `Stopper`, by a signal) is no concern of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class StepReport:
    """One line of progress."""

    step: int
    losses: dict[str, float]
    rate: float
    tokens: int
    tokens_per_second: float
    progress: float
    seconds_left: float


class Reporter:
    """Hears of a training. This one says nothing; what is heard is a subclass's to show."""

    def note(self, text: str) -> None:
        """One line that stays."""

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        """What is going to happen, before it happens."""

    def step(self, report: StepReport) -> None:
        """The live line."""

    def evaluation(self, step: int, values: dict[str, float]) -> None:
        """A validation result."""

    def work(self, title: str, done: int, total: int) -> None:
        """Progress of something other than training (reading, encoding, predicting); total 0: it is not known."""


Work = Callable[[str, int, int], None]  # what `Reporter.work` is
Note = Callable[[str], None]


class Warns(Reporter):
    """Says what stays (texts that were cut) by Python's warnings, and nothing else."""

    def note(self, text: str) -> None:
        warnings.warn(text, UserWarning, stacklevel=2)


class StopRequest:
    """What the loop looks at. Here, for library use, nothing is installed and nothing is ever requested."""

    @property
    def requested(self) -> int | None:
        """The exit code (130 or 143) once a stop was asked for, None until then."""
        return None
