"""Scores of rows by trunks that have not seen them.

The rows are split into folds. The rows of a fold are scored by a trunk that was fine-tuned on all other folds. The
scores of a finished fold are kept in the run, so a run that was killed resumes with the next fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from foretext.errors import UserError
from foretext.runs.commit import RunWriter
from foretext.runs.report import Reporter, StepReport
from foretext.tasks.views.base import deal

FOLDS = 4
FILE = "training/folds.safetensors"

Fold = tuple[np.ndarray, np.ndarray]  # the indices of the rows to learn from, and of those to score


def folds_for(labels: Sequence[object] | None, groups: Sequence[int], seed: int) -> list[Fold]:
    """Folds of the rows; UserError if they cannot be split."""
    folds = deal(labels, groups, FOLDS, seed)
    if not folds:
        raise UserError("all rows are copies of one row and cannot be split into folds; leave tuned out of --views")
    return folds


def out_of_fold(
    folds: Sequence[Fold], fold_scores: Callable[[int, Fold], list[np.ndarray]], writer: RunWriter | None
) -> list[np.ndarray]:
    """The scores of all rows, in order. `fold_scores(number, fold)` returns the scores of one fold's rows."""
    kept = writer.run.load_tensors(FILE) if writer is not None and writer.run.has(FILE) else {}
    found: dict[int, np.ndarray] = {}
    for number, fold in enumerate(folds):
        names = {int(row): f"{number}.{row}" for row in fold[1]}
        if not all(name in kept for name in names.values()):
            kept |= {
                name: torch.from_numpy(np.atleast_1d(said))
                for name, said in zip(names.values(), fold_scores(number, fold))
            }
            if writer is not None:
                writer.commit({FILE: kept})
        found |= {row: kept[name].numpy() for row, name in names.items()}
    return [found[row] for row in sorted(found)]


class Counted(Reporter):
    """Shows a training as progress in steps, and nothing else."""

    def __init__(self, reporter: Reporter, title: str, steps: int) -> None:
        self.reporter, self.title, self.steps = reporter, title, steps

    def step(self, report: StepReport) -> None:
        self.reporter.work(self.title, report.step, self.steps)
