"""Splitting a batch, padding it, or having nothing to learn in part of it cannot change a step (faults 13, 14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from systems_under_test import (
    BY_GRADIENTS,
    KINDS,
    LM_WEIGHT,
    LOWERS,
    PLAIN,
    TERMS,
    TINY,
    assert_same,
    examples,
    gradients,
    objective_of,
    pairwise,
    task_of,
    tokenizer_of,
    trunk_of,
    unlabelled,
    windows,
)
from tolerance import close, doubles
from torch import nn

from foretext.batch import IGNORE
from foretext.objectives.base import Objective
from foretext.objectives.bidirectional import BilmObjective, BilmObjectiveConfig
from foretext.objectives.causal import CausalObjective
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts
from foretext.tasks.heads.supervised import Example
from foretext.tasks.layouts.base import TokenSequence
from foretext.text.order import Order
from foretext.train.loop import Job, Loop, Stage
from foretext.train.optim import Group, Optimizer

PAIRS = pairwise([(system, kind) for system in TINY for kind in KINDS])


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    with doubles():
        yield


def loop_over(
    trunk: nn.Module, objective: Objective, data: Sequence[Any], batch: int, micro: int, steps: int = 100
) -> Loop:
    parameters = {f"trunk.{n}": p for n, p in trunk.named_parameters()}
    parameters |= {f"task.{n}": p for n, p in objective.named_parameters()}
    config = replace(PLAIN, batch_size=batch)
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=(Stage(lambda epoch, index: data[index], Order(len(data), batch, 0), micro),),
        optimizer=Optimizer(config, parameters, [Group(list(parameters))]),
        config=config,
        budget=Budget(steps=steps),
        seed=0,
        device=torch.device("cpu"),
    )
    return Loop(job, None, Reporter(), StopRequest())


def step_gradients(loop: Loop) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    loop.model.train()
    loop.job.optimizer.zero_grad()
    _, parts, _ = loop.batches(0)
    losses = loop.gradients(0, parts)
    return gradients(loop.job.trunk, loop.job.objective), losses


@pytest.mark.parametrize("system", BY_GRADIENTS)
def test_accumulation_in_pretraining(system: str) -> None:
    trunk = trunk_of(system)
    objective = objective_of(system)
    data = unlabelled(system, (20, 3, 11, 2, 20, 8, 17, 5, 5, 19, 2, 9))
    expected, losses = step_gradients(loop_over(trunk, objective, data, 12, 12))
    for micro in (1, 3, 4, 11):
        split, split_losses = step_gradients(loop_over(trunk, objective, data, 12, micro))
        assert_same(split, expected)
        close(split_losses, losses, terms=TERMS)


def test_accumulation_with_sampled_words() -> None:
    """All micro-batches of a step tell their words from the same candidates, and another step from others."""
    trunk, system = trunk_of("elmo"), SYSTEMS["elmo"]
    settings = BilmObjectiveConfig(samples=100)
    objective = system.build_objective(ObjectiveParts(TINY["elmo"], settings, tokenizer_of("elmo")))
    assert isinstance(objective, BilmObjective) and objective.samples == 100
    data = unlabelled("elmo", (20, 3, 11, 2, 20, 8))
    expected, losses = step_gradients(loop_over(trunk, objective, data, 6, 6))
    first = objective.drawn
    for micro in (1, 4):
        split, split_losses = step_gradients(loop_over(trunk, objective, data, 6, micro))
        assert_same(split, expected)
        close(split_losses, losses, terms=TERMS)
    loop = loop_over(trunk, objective, data, 6, 6)
    loop.gradients(1, loop.batches(0)[1])
    assert not torch.equal(objective.drawn["forward"].drawn_M, first["forward"].drawn_M)


@pytest.mark.parametrize(("system", "kind"), PAIRS)
def test_accumulation_in_fine_tuning(system: str, kind: str) -> None:
    trunk, data = trunk_of(system), examples(kind, 4)
    for lm_weight in {0.0, LM_WEIGHT[system]}:
        task = task_of(kind, lm_weight)
        expected, losses = step_gradients(loop_over(trunk, task, data, 4, 4))
        assert losses.keys() == ({"label", "lm"} if lm_weight else {"label"})
        for micro in (1, 3):
            split, split_losses = step_gradients(loop_over(trunk, task, data, 4, micro))
            assert_same(split, expected)
            close(split_losses, losses, terms=TERMS)


def test_accumulation_over_micro_batches_without_a_target() -> None:
    """Windows of one token have nothing to predict: they count as zero wherever they stand."""
    trunk, objective = trunk_of("gpt"), CausalObjective()
    data = windows((1, 7, 1, 1, 5, 1, 1, 1))
    with_empty, losses = step_gradients(loop_over(trunk, objective, data, 8, 1))
    real = [window for window in data if len(window) > 1]
    without, expected = step_gradients(loop_over(trunk, objective, real, 2, 2))
    assert_same(with_empty, without)
    close(losses, expected, terms=TERMS)


def test_a_step_without_a_single_target_updates_nothing() -> None:
    trunk, objective = trunk_of("gpt"), CausalObjective()
    before = {name: p.detach().clone() for name, p in trunk.named_parameters()}
    loop = loop_over(trunk, objective, windows((1, 1, 1, 1)), 4, 2, steps=3)
    loop.run()
    assert loop.position.step == 3 and loop.position.bad_steps == 0
    for name, parameter in trunk.named_parameters():
        assert torch.equal(parameter, before[name])


def test_targets_without_a_mask_may_still_be_left_out() -> None:
    trunk, objective = trunk_of("gpt"), CausalObjective()
    batch = objective.make(windows((9, 9)))
    assert batch.mask_BT is None and batch.targets_BT is not None
    whole = objective(trunk, batch).losses["lm"]
    targets = batch.targets_BT.clone()
    targets[:, :5] = IGNORE
    part = objective(trunk, replace(batch, targets_BT=targets))
    rest = targets.clone()
    rest[:, 5:], rest[:, :5] = IGNORE, batch.targets_BT[:, :5]
    other = objective(trunk, replace(batch, targets_BT=rest))
    assert part.losses["lm"].count == 6 and objective.counts(replace(batch, targets_BT=targets)) == {"lm": 6.0}
    close(part.losses["lm"].total + other.losses["lm"].total, whole.total, terms=TERMS)


def test_backward_is_the_same_objective_over_the_reversed_window() -> None:
    rows = windows((9, 4, 6))
    backward = CausalObjective("backward").make(rows)
    turned = CausalObjective("forward").make([np.ascontiguousarray(row[::-1]) for row in rows])
    for ours, theirs in ((backward.ids_BT, turned.ids_BT), (backward.targets_BT, turned.targets_BT)):
        assert torch.equal(ours, theirs)
    first = rows[0]
    assert backward.ids_BT[0].tolist() == first[:0:-1].tolist()
    assert backward.targets_BT[0].tolist() == first[-2::-1].tolist()


# -- what the losses are ---------------------------------------------------------------------------------------------


def test_the_auxiliary_loss_is_a_mean_of_sequence_means() -> None:
    """A long sequence weighs no more than a short one; delimiter and extract tokens are targets too."""
    trunk, task = trunk_of("gpt"), task_of("classification")
    rows = [Example((TokenSequence(tuple(range(length)), length - 1),), 0) for length in (3, 20)]
    both = task(trunk, task.make(rows)).losses["lm"]
    single = [task(trunk, task.make([row])).losses["lm"] for row in rows]
    assert both.count == 2 and [loss.count for loss in single] == [1, 1]
    close(both.total, single[0].total + single[1].total, terms=TERMS)
    targets = task.make(rows).targets_BT
    assert targets[0].tolist()[:3] == [1, 2, IGNORE]
    objective = CausalObjective()
    for row, loss in zip(rows, single):
        summed = objective(trunk, objective.make([np.array(row.sequences[0].ids)])).losses["lm"]
        close(loss.total, summed.total / summed.count, terms=TERMS)


def test_without_weight_the_language_model_is_left_out() -> None:
    trunk, task = trunk_of("gpt"), task_of("choice", lm_weight=0.0)
    outcome = task(trunk, task.make(examples("choice", 3)))
    assert outcome.losses.keys() == {"label"} and task.weights == {"label": 1.0}


def test_missing_choices_have_no_part() -> None:
    trunk, task = trunk_of("gpt"), task_of("choice")
    rows = examples("choice", 6)
    together = task(trunk, task.make(rows)).scores
    for number, row in enumerate(rows):
        alone = task(trunk, task.make([row])).scores[0]
        close(together[number, : len(alone)], alone, terms=TERMS)
        assert bool((together[number, len(alone) :] < -1e8).all())


def test_similarity_does_not_depend_on_the_order_of_the_pair() -> None:
    trunk, task = trunk_of("gpt"), task_of("similarity")
    row = examples("similarity", 1)[0]
    turned = replace(row, sequences=row.sequences[::-1])
    scores = [task(trunk, task.make([each])).scores for each in (row, turned)]
    close(scores[0], scores[1], terms=TERMS)


@pytest.mark.parametrize(("system", "kind"), PAIRS)
def test_learning_lowers_every_loss(system: str, kind: str) -> None:
    trunk, task = trunk_of(system), task_of(kind, LM_WEIGHT[system])
    few, lm = LOWERS[system]
    steps = 2 * few  # a third is enough here: other roundings have room
    loop = loop_over(trunk, task, examples(kind, 8), 8, 8, steps)
    loop.model.train()
    before = after = loop._step()  # the losses are those of before the update, and of the same eight examples each time
    aims = {name: (lm if name == "lm" else 0.8) * loss for name, loss in before.items()}
    while loop.position.step <= steps and not all(after[name] < aims[name] for name in aims):
        after = loop._step()
    assert aims and all(after[name] < aims[name] for name in aims), (before, after)
