"""Golden losses: ten steps of fixed tiny runs. A refactoring must reproduce them; a change that means to alter them
prints new ones with `python tests/unit/test_golden.py` and says why in its commit."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch
from systems_under_test import (
    CAUSAL,
    LM_WEIGHT,
    PLAIN,
    PRETRAINED,
    SHAPE,
    TINY,
    TRANSFORMERS,
    examples,
    objective_of,
    task_of,
    tokenizer_of,
    unlabelled,
)

from foretext.objectives.base import Objective
from foretext.systems import SYSTEMS
from foretext.systems.base import TrunkParts
from foretext.text.order import Order
from foretext.train.budget import Budget
from foretext.train.loop import Job, Loop, Stage
from foretext.train.optim import Group, Optimizer
from foretext.train.report import Silent
from foretext.train.signals import NeverStop

GOLDEN = Path(__file__).with_name("golden_losses.json")
STEPS = 10
RUNS = [
    f"{system} {what} {optimizer}"
    for system in TINY
    for what in ("pretraining", "classification", "choice")
    if what != "pretraining" or system in PRETRAINED
    for optimizer in ("adamw", "muon")
]


def losses_of(name: str) -> tuple[dict[str, list[float]], set[str]]:
    """Each named loss over ten steps from the seeded initial weights; no dropout, whose draws may change. And which of
    them a model is scored by: a penalty is none of these."""
    system, what, optimizer = name.split()
    torch.manual_seed(11)
    trunk = SYSTEMS[system].build_trunk(TrunkParts(TINY[system], tokenizer_of(system)))
    objective: Objective
    if what == "pretraining":
        lengths = [20, 11, 24, 3, 17, 24, 8, 15]
        most = SHAPE.context if system in CAUSAL else 20  # the others add special tokens
        objective, data = objective_of(system), unlabelled(system, [min(most, length) for length in lengths])
    else:
        objective, data = task_of(what, LM_WEIGHT[system]), examples(what, 8)
    parameters = {f"trunk.{n}": p for n, p in trunk.named_parameters()}
    parameters |= {f"task.{n}": p for n, p in objective.named_parameters()}
    config = replace(PLAIN, optimizer=optimizer)
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=(Stage(lambda epoch, index: data[index], Order(len(data), 4, 1), 3),),
        optimizer=Optimizer(config, parameters, [Group(list(parameters))]),
        config=config,
        budget=Budget(steps=STEPS),
        seed=1,
        device=torch.device("cpu"),
    )
    loop = Loop(job, None, Silent(), NeverStop())
    loop.model.train()
    steps = [loop._step() for _ in range(STEPS)]
    scored = set(objective.eval()(trunk, loop.batches(0)[1][0]).losses)
    return {loss: [round(step[loss], 6) for step in steps] for loss in steps[0]}, scored


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_those_on_file(name: str) -> None:
    golden = json.loads(GOLDEN.read_text())[name]
    losses, scored = losses_of(name)
    assert losses.keys() == golden.keys() and scored
    for loss, values in golden.items():
        assert losses[loss] == pytest.approx(values, abs=1e-4)
        steps = 1 if name.split()[0] in TRANSFORMERS else 2  # two are an epoch
        first, last = sum(values[:steps]), sum(values[-steps:])
        assert len(values) == STEPS and (last < first or loss not in scored)


if __name__ == "__main__":
    torch.set_num_threads(1)
    GOLDEN.write_text(json.dumps({name: losses_of(name)[0] for name in RUNS}, indent=1) + "\n")
