"""A head that starts where the pre-trained states already are.

With a hundred labels a random W_y spends its first epochs finding a direction, and bends the trunk meanwhile. Fitting
W_y to the states as they are before anything learns ("linear probing, then fine-tuning", Kumar et al. 2022) costs one
forward pass: a ridge-penalised logistic regression (regression: least squares) on standardised states, with the
task's own loss, so that it serves every kind of task. The minimum is unique: the seed has no part in it, unless there
are so many rows that some are drawn.

A state is standardised by the deviation that it has in training, where dropout adds p/(1−p) times its mean square to
its variance. The first token's state of a masked model is nearly the same in all texts: measured by how little that
varies, W_y would have weights that turn dropout into noise far above everything that the states say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foretext.batch import length_batches
from foretext.nn.trunk import Trunk

if TYPE_CHECKING:
    from foretext.tasks.heads.supervised import Example, SupervisedTask

INVERSE_PENALTY = 0.01  # C: the penalty on the standardised weights is |W|²/2C against the sum of the losses
MOST_EXAMPLES = 2000
LEAST_DEVIATION = 1e-3
ITERATIONS = 100


def fit_head(
    trunk: Trunk,
    task: SupervisedTask,
    examples: Sequence[Example],
    device: torch.device,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Sets `task.head` from the states of (at most 2,000 of) the examples; both modules are left in training mode."""
    if len(examples) > MOST_EXAMPLES:
        examples = random.Random(seed).sample(list(examples), MOST_EXAMPLES)
    lengths = [example.tokens for example in examples]
    groups = [[examples[index] for index in indices] for indices in length_batches(lengths)]
    states = pooled_states(trunk, task, groups, device, progress)
    whole = task.make([example for group in groups for example in group]).to(device)
    mean = states.mean(0)
    dropped = task.p / (1.0 - task.p) * states.square().mean(0)
    deviation = (states.var(0, correction=0) + dropped).sqrt().clamp(min=LEAST_DEVIATION)
    standard = (states - mean) / deviation
    weight = torch.zeros_like(task.head.weight, requires_grad=True)
    bias = torch.zeros_like(task.head.bias, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        assert whole.labels is not None
        fitted = task.label_loss(task.arrange(standard @ weight.t() + bias, whole), whole.labels)
        total = (fitted + weight.square().sum() / (2 * INVERSE_PENALTY)) / len(examples)
        total.backward()
        return total

    optimizer.step(loss)
    with torch.no_grad():
        task.head.weight.copy_(weight / deviation)
        task.head.bias.copy_(bias - (weight / deviation) @ mean)


@torch.no_grad()
def pooled_states(
    trunk: Trunk,
    task: SupervisedTask,
    groups: Sequence[Sequence[Example]],
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """What W_y would read for the examples, group after group, without dropout."""
    trunk.eval()
    task.eval()
    states = []
    for number, group in enumerate(groups, 1):
        batch = task.make(group).to(device)
        states.append(task.pool(trunk, trunk(task.narrowed(batch)).top, batch))
        if progress is not None:
            progress(number, len(groups))
    trunk.train()
    task.train()
    return torch.cat(states)
