"""Several sources of examples in turn: labelled rows of one or more tasks, and unlabelled text (Clark et al. 2018).

Every second step is unlabelled; the others go to the tasks, a task of n rows getting a share in proportion to √n, as in
the released code. That draws the task anew each time; here an epoch has the shares exactly, in an order of its own, so
that a step's examples are a pure function of (seed, step) and nothing has to be remembered to go on. An epoch has as
many labelled steps as one pass over all tasks' rows would take: with one task it is such a pass.

Indices count through all sources: the tasks' rows one task after the other, then the unlabelled text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from foretext.text.order.sample_order import SampleOrder, mix64, permute


@dataclass(frozen=True)
class Source:
    """So many examples and their own order."""

    size: int
    order: SampleOrder


@dataclass(frozen=True)
class Turn:
    """Which source a step is about (the tasks by number, then the unlabelled text), and which step of its own it is."""

    source: int
    step: int


class Turns:
    """A `SampleOrder` over all sources together."""

    def __init__(self, tasks: Sequence[Source], unlabelled: Source | None, seed: int) -> None:
        assert tasks, "something must be labelled"
        self.sources = [*tasks, unlabelled] if unlabelled is not None else list(tasks)
        self.starts = [0, *accumulate(source.size for source in self.sources)]
        self.seed = seed
        self.labelled_steps = sum(task.order.steps_per_epoch for task in tasks)
        self.shares = shares_of([task.size for task in tasks], self.labelled_steps)
        self.with_unlabelled = unlabelled is not None
        self.steps_per_epoch = self.labelled_steps * (2 if self.with_unlabelled else 1)
        self._last: tuple[int, np.ndarray] | None = None

    def turn(self, step: int) -> Turn:
        turn, odd = divmod(step, 2) if self.with_unlabelled else (step, 0)
        if odd:
            return Turn(len(self.sources) - 1, turn)
        epoch, place = divmod(turn, self.labelled_steps)
        tasks = self._tasks(epoch)
        task = int(tasks[place])
        return Turn(task, epoch * self.shares[task] + int((tasks[:place] == task).sum()))

    def batch(self, step: int) -> tuple[int, list[int]]:
        turn = self.turn(step)
        _, indices = self.sources[turn.source].order.batch(turn.step)
        start = self.starts[turn.source]
        return step // self.steps_per_epoch, [start + index for index in indices]

    def _tasks(self, epoch: int) -> np.ndarray:
        """The task of each labelled step of an epoch."""
        if self._last is None or self._last[0] != epoch:
            every = np.repeat(np.arange(len(self.shares)), self.shares)
            places = permute(np.arange(len(every), dtype=np.int64), len(every), mix64(self.seed, 1), epoch)
            self._last = epoch, every[places]
        return self._last[1]


def shares_of(sizes: Sequence[int], steps: int) -> list[int]:
    """How many of the steps each task gets: in proportion to the root of its size, at least one."""
    assert steps >= len(sizes) and all(size > 0 for size in sizes)
    roots = np.sqrt(np.asarray(sizes, dtype=np.float64))
    exact = roots / roots.sum() * (steps - len(sizes))
    shares = exact.astype(np.int64)
    most_left = np.argsort(-(exact - shares), kind="stable")
    shares[most_left[: steps - len(sizes) - int(shares.sum())]] += 1
    return [int(share) + 1 for share in shares]
