"""How long a run may go on: minutes, steps, tokens or epochs, exactly one of them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from foretext.errors import UserError
from foretext.runs.directory import RunDirectory

POSITION = "training/position.json"
MOST = 1e15  # of anything; far beyond what can be trained, and far below where clocks and counts overflow


@dataclass
class Position:
    """How far a run has come. Everything that the order of samples, the schedule and the log depend on."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    bad_steps: int = 0
    metrics_bytes: int = 0
    best: float | None = None
    best_step: int = 0
    finished: bool = False
    stage: int = 0  # of those that a run has, the one of the last step: what is carried from it is for its rows
    halvings: int = 0  # of the rate, where a schedule halves it
    last_loss: float | None = None  # of validation, where a schedule goes by it
    optimizer_tensors: int = 0  # in its file, so that a missing one is noticed; 0: not kept, by an earlier version


@dataclass(frozen=True)
class Budget:
    minutes: float | None = None
    steps: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        given = [(name, value) for name, value in vars(self).items() if value is not None]
        if len(given) != 1:
            raise UserError("give exactly one of --minutes, --steps and --tokens")
        name, value = given[0]
        if not 0 < value <= MOST:
            raise UserError(f"--{name} {value}: a budget must be above 0 and at most {MOST:.0e}")

    def progress(self, position: Position) -> float:
        """The part of the budget that is spent, 0 … 1."""
        if self.minutes is not None:
            return position.seconds / (60.0 * self.minutes)
        if self.steps is not None:
            return position.step / self.steps
        assert self.tokens is not None
        return position.tokens / self.tokens

    def spent(self, position: Position, reserve: float = 0.0) -> bool:
        """Whether to stop. `reserve`: seconds that the next step and the closing evaluation will take."""
        if self.minutes is not None:
            return position.seconds + reserve >= 60.0 * self.minutes
        return self.progress(position) >= 1.0

    def seconds_left(self, position: Position) -> float:
        if self.minutes is not None:
            return max(0.0, 60.0 * self.minutes - position.seconds)
        done = self.progress(position)
        return position.seconds * (1.0 - done) / done if done else float("inf")

    def __str__(self) -> str:
        if self.minutes is not None:
            return f"{self.minutes:g} minutes"
        return f"{self.steps:,} steps" if self.steps is not None else f"{self.tokens:,} tokens"


def read_position(run: RunDirectory) -> Position:
    """How far a run has come, from its checkpoint."""
    try:
        position = Position(**json.loads(run.read(POSITION)))
        _check_position(position)
        return position
    except (ValueError, TypeError, RecursionError):
        raise UserError(f"{run.path / POSITION}: not a position; restore it from a copy") from None


def _check_position(position: Position) -> None:
    """ValueError for what no run can have reached."""
    counts = (
        *(position.step, position.tokens, position.bad_steps, position.metrics_bytes, position.best_step),
        *(position.halvings, position.stage, position.optimizer_tensors),
    )
    numbers = (position.seconds, *(0.0 if value is None else value for value in (position.best, position.last_loss)))
    if not all(type(count) is int and 0 <= count <= MOST for count in counts):
        raise ValueError("a count")
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers) or position.seconds < 0:
        raise ValueError("a number")
    if type(position.finished) is not bool:
        raise ValueError("finished")


def has_begun(run: RunDirectory) -> bool:
    """Whether there is a checkpoint to go on from."""
    return run.has(POSITION)


def is_finished(run: RunDirectory) -> bool:
    return has_begun(run) and read_position(run).finished
