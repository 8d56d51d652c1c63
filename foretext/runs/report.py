"""What training reports to whoever watches, and how it is asked to stop. The command line shows reports on a terminal;
a library user gets only notes about the data, as Python warnings. The loop checks `stop.requested` between steps and
does not know who sets it (the command line's `Stopper`, on a signal)."""

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
    """Receives the reports of a training. This class ignores them; subclasses show them."""

    def note(self, text: str) -> None:
        """One line that stays."""

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        """The plan, before training begins."""

    def step(self, report: StepReport) -> None:
        """The live line."""

    def evaluation(self, step: int, values: dict[str, float]) -> None:
        """A validation result."""

    def work(self, title: str, done: int, total: int) -> None:
        """Progress of work other than training (reading, encoding, predicting); total 0: unknown."""


Work = Callable[[str, int, int], None]  # the type of `Reporter.work`
Note = Callable[[str], None]


class Warns(Reporter):
    """Turns notes (such as texts that were cut) into Python warnings and ignores everything else."""

    def note(self, text: str) -> None:
        warnings.warn(text, UserWarning, stacklevel=2)


class StopRequest:
    """What the loop checks. In library use no signal handler is installed and nothing is ever requested."""

    @property
    def requested(self) -> int | None:
        """The exit code (130 or 143) once a stop was requested; None until then."""
        return None
