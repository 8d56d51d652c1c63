"""Golden losses: ten steps of fixed tiny runs. A refactoring must reproduce them; a change that means to alter them
prints new ones with `python tests/unit/test_golden.py` and says why in its commit."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
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
    windows,
)
from torch import nn

from foretext.objectives.base import Objective
from foretext.systems import SYSTEMS
from foretext.systems.base import HeadParts, TrunkParts
from foretext.tasks.cross_view_head import UnlabelledText
from foretext.tasks.task_config import TaskConfig
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
RUNS += [f"{system} turns adamw" for system in TINY if SYSTEMS[system].build_head is not None]


def losses_of(name: str) -> tuple[dict[str, list[float]], set[str]]:
    """Each named loss over ten steps from the seeded initial weights; no dropout, whose draws may change. And which of
    them a model is scored by: a penalty is none of these."""
    system, what, optimizer = name.split()
    torch.manual_seed(11)
    trunk = SYSTEMS[system].build_trunk(TrunkParts(TINY[system], tokenizer_of(system)))
    objective: Objective
    if what == "turns":
        return turn_losses(system)
    if what == "pretraining":
        lengths = [20, 11, 24, 3, 17, 24, 8, 15]
        most = SHAPE.context if system in CAUSAL else 20  # the others add special tokens
        objective, data = objective_of(system), unlabelled(system, [min(most, length) for length in lengths])
    else:
        objective, data = task_of(what, LM_WEIGHT[system]), examples(what, 8)
    loop = loop_of(trunk, objective, Stage(lambda epoch, index: data[index], Order(len(data), 4, 1), 3), optimizer)
    steps = [loop._step() for _ in range(STEPS)]
    scored = set(objective.eval()(trunk, loop.batches(0)[1][0]).losses)
    return {loss: [round(step[loss], 6) for step in steps] for loss in steps[0]}, scored


def turn_losses(system: str) -> tuple[dict[str, list[float]], set[str]]:
    """The same of a system with a head of its own that learns from labelled rows and text in turn."""
    found = SYSTEMS[system]
    assert found.build_head is not None
    tokenizer = tokenizer_of(system)
    trunk = found.build_trunk(TrunkParts(TINY[system], tokenizer))
    task = TaskConfig(kind="classification", labels=("a", "b", "c"))
    settings = replace(found.sizes["tiny"].objective, ramp=0)  # type: ignore[call-arg]  # all losses from the start
    head = found.build_head(HeadParts(task, TINY[system], settings, tokenizer))
    text = UnlabelledText((row, np.ones(len(row))) for row in windows([9, 4, 12, 7, 3, 10]))
    stock = head.stock([examples("classification", 8)], text)
    loop = loop_of(trunk, head, Stage(stock.example, head.order(stock, 4, 1), 3), "adamw")
    steps = [loop._step() for _ in range(2 * STEPS)]
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: [round(step[name], 6) for step in steps if name in step] for name in names}, {"label"}


def loop_of(trunk: nn.Module, objective: Objective, stage: Stage, optimizer: str) -> Loop:
    parameters = {f"trunk.{n}": p for n, p in trunk.named_parameters()}
    parameters |= {f"task.{n}": p for n, p in objective.named_parameters()}
    config = replace(PLAIN, optimizer=optimizer)
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=(stage,),
        optimizer=Optimizer(config, parameters, [Group(list(parameters))]),
        config=config,
        budget=Budget(steps=STEPS),
        seed=1,
        device=torch.device("cpu"),
    )
    loop = Loop(job, None, Silent(), NeverStop())
    loop.model.train()
    return loop


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
