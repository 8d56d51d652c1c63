"""On several threads a step is the same every time, to the last bit: else a run that goes on could not equal one that
was never stopped. Sums that threads share out without an order would show only in batches large enough to be shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from systems_under_test import PRETRAINED, TINY, examples, objective_of, task_of, tokenizer_of, trunk_of, unlabelled
from test_train_gradients import loop_over, step_gradients

from foretext.nn.sampled_softmax import draw_candidates, sampled_softmax_loss
from foretext.objectives.base import Objective
from foretext.objectives.bilm import BilmObjectiveConfig
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts
from foretext.tasks.supervised import Example

ROWS, TIMES = 200, 4  # torch shares out what has more than 32,768 numbers


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def assert_repeats(system: str, objective: Objective, data: list[object] | list[Example]) -> None:
    trunk = trunk_of(system)
    first, losses = step_gradients(loop_over(trunk, objective, data, len(data), len(data)))
    for _ in range(TIMES):
        again, same = step_gradients(loop_over(trunk, objective, data, len(data), len(data)))
        assert same == losses
        assert [name for name in first if not torch.equal(first[name], again[name])] == []


@pytest.mark.parametrize("system", PRETRAINED)
def test_pretraining(system: str) -> None:
    assert_repeats(system, objective_of(system), unlabelled(system, (20,) * ROWS))


def test_sampled_words() -> None:
    settings = BilmObjectiveConfig(samples=100)
    parts = ObjectiveParts(TINY["elmo"], settings, tokenizer_of("elmo"))
    assert_repeats("elmo", SYSTEMS["elmo"].build_objective(parts), unlabelled("elmo", (20,) * ROWS))


def test_the_sampled_softmax() -> None:
    h_ND, table_VD, bias_V = torch.randn(3000, 40), torch.randn(300, 40, requires_grad=True), torch.zeros(300)
    bias_V.requires_grad_()
    targets_N = torch.randint(0, 20, (3000,))
    candidates = draw_candidates(50, 300)
    found = []
    for _ in range(TIMES):
        loss = sampled_softmax_loss(h_ND, table_VD, targets_N, bias_V, candidates)
        found.append(torch.autograd.grad(loss, (table_VD, bias_V)))
    for table, bias in found[1:]:
        assert torch.equal(table, found[0][0]) and torch.equal(bias, found[0][1])


@pytest.mark.parametrize("system", TINY)
def test_fine_tuning(system: str) -> None:
    assert_repeats(system, task_of("classification", 0.0), examples("classification", 2 * ROWS))
