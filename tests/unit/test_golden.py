"""Golden losses: ten steps of fixed tiny runs, in float64. A refactoring must reproduce them; a change that means to
alter them prints new ones with `python tests/unit/test_golden.py` and says why in its commit.

Initial weights are drawn in float64 as well: drawn in float32, they differ in the last digit between processors, which
float64 would not forgive."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import pytest
import torch
from systems_under_test import (
    BY_GRADIENTS,
    CAUSAL,
    LM_WEIGHT,
    PLAIN,
    SHAPE,
    TERMS,
    TINY,
    TRANSFORMERS,
    examples,
    objective_of,
    task_of,
    tokenizer_of,
    unlabelled,
    windows,
)
from tolerance import close, doubles
from torch import nn

from foretext.objectives.base import Objective
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget
from foretext.systems import SYSTEMS
from foretext.systems.base import TrunkParts
from foretext.tasks.family import TaskConfig
from foretext.text.order import Order
from foretext.train.loop import Job, Loop, Stage
from foretext.train.optim import Group, Optimizer

GOLDEN = Path(__file__).with_name("golden_losses.json")
STEPS = 10
RUNS = [
    f"{system} {what} {optimizer}"
    for system in TINY
    for what in ("pretraining", "classification", "choice")
    if what != "pretraining" or system in BY_GRADIENTS
    for optimizer in ("adamw", "muon")
]
RUNS += [f"{system} turns adamw" for system in TINY if SYSTEMS[system].build_head is not None]


def parts_of(name: str) -> tuple[nn.Module, Objective, Stage]:
    """A model with its seeded initial weights and what it learns from; no dropout, whose draws may change."""
    system, what, _ = name.split()
    torch.manual_seed(13)
    trunk = SYSTEMS[system].build_trunk(TrunkParts(TINY[system], tokenizer_of(system)))
    if what == "turns":
        return trunk, *turns_of(system)
    objective: Objective
    if what == "pretraining":
        lengths = [20, 11, 24, 3, 17, 24, 8, 15]
        most = SHAPE.context if system in CAUSAL else 20  # the others add special tokens
        objective, data = objective_of(system), unlabelled(system, [min(most, length) for length in lengths])
    else:
        objective, data = task_of(what, LM_WEIGHT[system]), examples(what, 8)
    return trunk, objective, Stage(lambda epoch, index: data[index], Order(len(data), 4, 1), 3)


def turns_of(system: str) -> tuple[Objective, Stage]:
    """The head of a system that has its own and learns from labelled rows and text in turn."""
    found = SYSTEMS[system]
    assert found.build_head is not None
    task = TaskConfig(kind="classification", labels=("a", "b", "c"))
    settings = replace(found.sizes["tiny"].objective, ramp=0)  # type: ignore[call-arg]  # all losses from the start
    head = found.build_head(task, TINY[system], settings, tokenizer_of(system))
    text = [(row, np.ones(len(row))) for row in windows([9, 4, 12, 7, 3, 10])]
    stock = head.stock([examples("classification", 8)], text)
    return head, Stage(stock.example, head.order(stock, 4, 1), 3)


def losses_of(
    name: str, steps: int = STEPS, precision: torch.dtype = torch.float64
) -> tuple[dict[str, list[float]], set[str]]:
    """Each named loss over the first steps. And which of them a model is scored by: a penalty is none of these."""
    with doubles():
        trunk, objective, stage = parts_of(name)
    with doubles() if precision == torch.float64 else nullcontext():
        loop = loop_of(trunk.to(precision), objective.to(precision), stage, name.split()[-1])
        turns = name.split()[1] == "turns"
        done = [loop._step() for _ in range(steps * (1 + turns))]
        scored = {"label"} if turns else set(objective.eval()(trunk, loop.batches(0)[1][0]).losses)
    names = dict.fromkeys(loss for step in done for loss in step)
    return {loss: [step[loss] for step in done if loss in step] for loss in names}, scored


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
    loop = Loop(job, None, Reporter(), StopRequest())
    loop.model.train()
    return loop


def marked(name: str) -> Any:
    """Each system's pre-training with one optimizer and a task with the other, and of two systems everything; the rest
    is for `make test-all`."""
    system, *how = name.split()
    often = system in ("gpt", "bert") or how in (["pretraining", "adamw"], ["classification", "muon"]) or "turns" in how
    return pytest.param(name, marks=() if often else pytest.mark.thorough)


def stored(name: str) -> dict[str, list[float]]:
    return json.loads(GOLDEN.read_text())[name]


@pytest.mark.parametrize("name", [*map(marked, RUNS)])
def test_losses_are_those_on_file(name: str) -> None:
    """A step has the roundings of one way there and back; they add up over the steps. (Adam and Muon make a whole step
    of a gradient that is nothing but rounding. None of these runs has one: every weight is used in every step.)"""
    golden = stored(name)
    losses, scored = losses_of(name)
    assert scored
    close(losses, golden, terms=STEPS * TERMS)
    for loss, values in golden.items():
        steps = 1 if name.split()[0] in TRANSFORMERS else 2  # two are an epoch
        first, last = sum(values[:steps]), sum(values[-steps:])
        assert len(values) == STEPS and (last < first or loss not in scored)


@pytest.mark.parametrize("name", ["gpt pretraining muon", "ulmfit classification adamw", "bert classification adamw"])
def test_float32_follows_float64_at_first(name: str) -> None:
    """Later the two are different runs."""
    golden = {loss: values[:3] for loss, values in stored(name).items()}
    close(losses_of(name, 3, torch.float32)[0], golden, terms=3 * TERMS, precision=torch.float32)


if __name__ == "__main__":
    torch.set_num_threads(1)
    written = {name: losses_of(name)[0] for name in RUNS}
    rounded = {
        name: {loss: [round(one, 14) for one in values] for loss, values in losses.items()}
        for name, losses in written.items()
    }
    GOLDEN.write_text(json.dumps(rounded, indent=1) + "\n")
