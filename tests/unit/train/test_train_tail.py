"""`training.tail`: the mean of the weights over the last part of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from complaints import refused
from systems_under_test import PLAIN, objective_of, trunk_of, unlabelled
from tolerance import close, doubles
from torch import Tensor

from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget
from foretext.text.order import Order
from foretext.train.loop import Job, Loop, Stage
from foretext.train.optim import make_optimizer

STEPS = 10


class Watched(Loop):
    """Records the weights after each step."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, None, Reporter(), StopRequest())
        self.after: list[dict[str, Tensor]] = []

    def _step(self) -> dict[str, float]:
        losses = super()._step()
        self.after.append(copied(self))
        return losses


def copied(loop: Loop) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in loop.job.trunk.named_parameters()}


def loop_with(tail: float, seen: list[dict[str, Tensor]] | None = None, average: float = 0.0) -> Watched:
    torch.manual_seed(5)
    trunk, objective = trunk_of("modern"), objective_of("modern")
    objective.average = average
    rows = unlabelled("modern", [20, 11, 24, 3, 17, 24, 8, 15])
    config = replace(PLAIN, tail=tail, evaluations=1)
    loop: list[Loop] = []

    def evaluate() -> dict[str, float]:
        if seen is not None:
            seen.append(copied(loop[0]))
        return {"loss": 1.0}

    stage = Stage(lambda epoch, index: rows[index], Order(len(rows), 4, 1), 4, evaluate)
    optimizer = make_optimizer(config, trunk, objective)
    job = Job(trunk, objective, (stage,), optimizer, config, Budget(steps=STEPS), 1, torch.device("cpu"))
    watched = Watched(job)
    loop.append(watched)
    return watched


@pytest.mark.parametrize("tail", [0.3, 1.0, 0.04])
def test_what_is_kept_and_validated_is_the_mean_of_the_last_weights(tail: float) -> None:
    """A tail shorter than one step averages nothing: the last weights are kept."""
    with doubles():
        seen: list[dict[str, Tensor]] = []
        loop = loop_with(tail, seen)
        loop.run()
        steps = loop.after[STEPS - int(tail * STEPS) :] or loop.after[-1:]
        expected = {name: torch.stack([one[name] for one in steps]).mean(0) for name in steps[0]}
        close(copied(loop), expected, terms=2 * STEPS)
        close(seen[-1], expected, terms=2 * STEPS)
        if len(steps) > 1:
            assert not torch.allclose(expected["tokens.weight"], loop.after[-1]["tokens.weight"], atol=1e-6)


def test_two_kinds_of_averages_are_refused() -> None:
    with refused("training.tail", "objective.average"):
        loop_with(0.5, average=0.9)
