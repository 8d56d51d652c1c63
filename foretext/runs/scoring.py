"""Running a trained model over many examples without gradients: rows as its examples, batches of like length, results
in the order given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from foretext.batch import Batch, length_batches
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Objective
from foretext.runs.model import SavedModel
from foretext.runs.report import Reporter, Warns, Work
from foretext.tasks.families import family_of
from foretext.tasks.family import Encoded, Encoding, Progress


def encode(
    rows: Sequence[Any],
    model: SavedModel,
    reporter: Reporter | None = None,
    work: Work | None = None,
    labelled: bool = True,
) -> Encoded:
    """Rows as examples, with labels if `labelled`; what had to be cut or was not understood is counted and said. `work`
    hears of the progress, if not the reporter; without one, Python's warnings say it."""
    reporter = reporter or Warns()
    tell = work or reporter.work
    encoding = Encoding(model.task_config, model.tokenizer, model.layout)
    return family_of(model.task_config.kind).encode(
        rows, encoding, labelled, reporter.note, lambda done, total: tell("encoding", done, total)
    )


@torch.no_grad()
def example_scores(model: SavedModel, examples: Sequence[Any], progress: Progress | None = None) -> list[np.ndarray]:
    """The scores of each example, as far as they are about it: logits of its classes or choices, its predicted score,
    logits of each word's tags, or each token's as start and end."""
    trunk, task, device = model.trunk.eval(), model.head.eval(), model.device
    found: dict[int, np.ndarray] = {}
    for indices in length_batches([example.tokens for example in examples]):
        batch = task.make([examples[index] for index in indices])
        # Without labels no loss is computed; the language model's would cost more than the scores.
        batch = replace(batch, labels=None, targets_BT=None).to(device)
        scores = task(trunk, batch).scores.float().cpu().numpy()
        found |= {index: examples[index].asked(row) for index, row in zip(indices, scores)}
        if progress is not None:
            progress(len(found), len(examples))
    return [found[index] for index in range(len(examples))]


@torch.no_grad()
def mean_losses(trunk: Trunk, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    """Each named loss over all batches: total sum over total count. State is carried from one batch to the next."""
    trunk.eval()
    objective.eval()
    totals: dict[str, tuple[float, float]] = {}
    state = None
    for batch in batches:
        outcome = objective(trunk, batch, state)
        state = outcome.state if objective.carries_state else None
        for name, loss in outcome.losses.items():
            total, count = totals.get(name, (0.0, 0.0))
            totals[name] = total + float(loss.total), count + loss.count
    return {name: total / count for name, (total, count) in totals.items() if count}
