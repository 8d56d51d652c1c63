"""Running a trained model over many examples without gradients: batches of like length, results in the order given;
and what these are worth against the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from foretext.batch import Batch
from foretext.objectives.base import Objective
from foretext.tasks.metrics import Scores, score
from foretext.tasks.rows import Row
from foretext.tasks.supervised import NO_CHOICE, Example, SupervisedTask
from foretext.train.saved import SavedModel, TaskConfig

BATCH_TOKENS = 8192


def length_batches(lengths: Sequence[int], limit: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices in groups of like length, at most `limit` tokens each, longest first."""
    group: list[int] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        longest = longest or lengths[index]
        if group and (len(group) + 1) * longest > limit:
            yield group
            group, longest = [], lengths[index]
        group.append(index)
    if group:
        yield group


@torch.no_grad()
def task_scores(
    trunk: nn.Module,
    task: SupervisedTask,
    examples: Sequence[Example],
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Logits [examples, classes] (choices that an example lacks are very negative), or predicted scores [examples]."""
    trunk.eval()
    task.eval()
    lengths = [example.tokens for example in examples]
    rows: list[np.ndarray | None] = [None] * len(examples)
    done = 0
    for indices in length_batches(lengths):
        # Without labels no loss is computed; the language model's would cost more than the scores.
        batch = replace(task.make([examples[index] for index in indices]), labels=None).to(device)
        scores = task(trunk, batch).scores.float().cpu().numpy()
        for index, row in zip(indices, scores):
            rows[index] = row
        done += len(indices)
        if progress is not None:
            progress(done, len(examples))
    if task.kind == "regression":
        return np.array(rows, dtype=np.float64)
    width = max(len(row) for row in rows if row is not None)
    table = np.full((len(rows), width), NO_CHOICE, dtype=np.float64)
    for index, row in enumerate(rows):
        assert row is not None
        table[index, : len(row)] = row
    return table


@torch.no_grad()
def mean_losses(trunk: nn.Module, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
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


def probabilities_of(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def score_rows(model: SavedModel, rows: Sequence[Row], scores: np.ndarray) -> Scores:
    """The task's metrics for rows with labels, given `task_scores`' output."""
    config: TaskConfig = model.task_config
    gold = [row.label for row in rows]
    if config.kind == "regression":
        predicted: Any = scores * config.deviation + config.mean
        return score(config.kind, gold, predicted.tolist(), None, main=config.metric)
    best = scores.argmax(axis=1).tolist()
    if config.kind == "choice":
        return score(config.kind, gold, best, None, main=config.metric)
    labels = model.labels
    assert labels is not None
    return score(config.kind, gold, [labels.names[index] for index in best], labels, main=config.metric)


def label_loss(model: SavedModel, examples: Sequence[Example], scores: np.ndarray) -> float:
    """The mean loss of the labels, given `task_scores`' output."""
    labels = np.array([example.label for example in examples])
    if model.task_config.kind == "regression":
        return float(np.mean((scores - labels) ** 2))
    chosen = probabilities_of(scores)[np.arange(len(labels)), labels.astype(int)]
    return float(-np.log(np.maximum(chosen, 1e-12)).mean())
