"""On several threads a step is the same every time, to the last bit: else a run that goes on could not equal one that
was never stopped. Sums that threads share out without an order would show only in batches large enough to be shared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from systems_under_test import (
    BY_GRADIENTS,
    TINY,
    examples,
    objective_of,
    task_of,
    tokenizer_of,
    trunk_of,
    unlabelled,
    windows,
)
from test_train_gradients import loop_over, step_gradients

from foretext.nn.recurrent.bilm import draw_candidates, sampled_softmax_loss
from foretext.nn.task_models.crf import LinearChainCrf
from foretext.objectives.base import Objective
from foretext.objectives.bidirectional import BilmObjectiveConfig
from foretext.plan import ConcatPoolingConfig, ReaderPlan
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts
from foretext.tasks.family import TaskConfig
from foretext.tasks.heads.concat_pooling import ConcatPoolingTask
from foretext.tasks.heads.cross_view_head import Sourced, UnlabelledText
from foretext.tasks.heads.recurrent_models import RecurrentRows, RecurrentTagging
from foretext.tasks.heads.supervised import Example
from foretext.tasks.heads.token_tasks import TaggedExample

ROWS, TIMES = 200, 4  # torch shares out what has more than 32,768 numbers
LABELS = ("O", "B-X", "I-X")
READER = ReaderPlan(twice=True, norm=True, penalty=0.1, vectors=8, cells=16)


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def some(systems: Iterable[str]) -> list[Any]:
    """One of each kind of kernel; the others are for `make test-all`."""
    often = ("gpt", "albert", "elmo", "cove")
    return [pytest.param(name, marks=() if name in often else pytest.mark.thorough) for name in systems]


def assert_repeats(system: str, objective: Objective, data: Sequence[Any]) -> None:
    trunk = trunk_of(system)
    first, losses = step_gradients(loop_over(trunk, objective, data, len(data), len(data)))
    for _ in range(TIMES):
        again, same = step_gradients(loop_over(trunk, objective, data, len(data), len(data)))
        assert same == losses
        assert [name for name in first if not torch.equal(first[name], again[name])] == []


@pytest.mark.parametrize("system", some(BY_GRADIENTS))
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
    gradients = []
    for _ in range(TIMES):
        loss = sampled_softmax_loss(h_ND, table_VD, targets_N, bias_V, candidates)
        gradients.append(torch.autograd.grad(loss, (table_VD, bias_V)))
    for table, bias in gradients[1:]:
        assert torch.equal(table, gradients[0][0]) and torch.equal(bias, gradients[0][1])


@pytest.mark.parametrize("system", some(TINY))
def test_fine_tuning(system: str) -> None:
    assert_repeats(system, task_of("classification", 0.0), examples("classification", 2 * ROWS))


# -- other heads than a linear layer ---------------------------------------------------------------------------------


def tagged(count: int) -> list[TaggedExample]:
    """Rows without special tokens, each token a word."""
    rows = [row.sequences[0].ids for row in examples("classification", count)]
    return [TaggedExample(ids, tuple(range(len(ids))), tuple(id % 2 for id in ids)) for ids in rows]


def in_parts(count: int, texts: int) -> list[Example]:
    """Rows that are one text, or two."""
    made = []
    for row in examples("classification", count):
        (one,) = row.sequences
        border = len(one.ids) // texts
        parts = [(0, border), (border, len(one.ids) - border)]
        made.append(replace(row, sequences=(replace(one, parts=tuple(parts[:texts])),)))
    return made


@pytest.mark.parametrize("kind", ["tagging", "classification"])
def test_cross_views(kind: str) -> None:
    """A labelled step, and one of text in which every third token goes on with a word."""
    system = SYSTEMS["cvt"]
    assert system.build_head is not None
    settings = system.sizes["tiny"].objective
    head = system.build_head(TaskConfig(kind, LABELS), TINY["cvt"], settings, tokenizer_of("cvt"))
    assert_repeats("cvt", head, tagged(2 * ROWS) if kind == "tagging" else examples(kind, 2 * ROWS))
    text = UnlabelledText((row, np.arange(len(row)) % 3 < 2) for row in windows((20,) * ROWS))
    assert_repeats("cvt", head, [Sourced(None, one) for one in text])


@pytest.mark.parametrize(("kind", "texts"), [("classification", 1), ("entailment", 2)])
def test_a_recurrent_model_of_rows(kind: str, texts: int) -> None:
    task = RecurrentRows(kind, len(LABELS), texts == 2, TINY["elmo"], READER, 0.3)
    data = in_parts(ROWS, texts)
    task.meet(data)
    assert_repeats("elmo", task, data)


def test_a_recurrent_tagger_with_a_crf() -> None:
    task = RecurrentTagging(LABELS, True, TINY["elmo"], READER, 0.3)
    data = tagged(ROWS)
    task.meet(data)
    assert_repeats("elmo", task, data)


def test_the_crf() -> None:
    """With weights: where all paths count alike their gradients are equal, and add up to the same in any order."""
    crf, every = LinearChainCrf(3), torch.ones(40_000, 2, dtype=torch.bool)
    x_BTC, weights_B, tags_BT = torch.randn(40_000, 2, 3), torch.randn(40_000), torch.randint(0, 3, (40_000, 2))
    gradients = []
    for _ in range(TIMES):
        total = (crf.score(x_BTC, tags_BT, every) * weights_B).sum()
        gradients.append(torch.autograd.grad(total, list(crf.parameters())))
    for again in gradients[1:]:
        assert all(torch.equal(one, other) for one, other in zip(again, gradients[0]))


@pytest.mark.parametrize("system", ["ulmfit", "bert"])
def test_concatenated_pools(system: str) -> None:
    config = ConcatPoolingConfig(piece=8, learned=16)
    task = ConcatPoolingTask("classification", len(LABELS), TINY[system].width, config)
    assert_repeats(system, task, examples("classification", 2 * ROWS))
