"""The heads that read every token, on every trunk: what their losses are, and what cannot change them (faults 13 to
15)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from systems_under_test import (
    CAUSAL,
    LM_WEIGHT,
    LOWERS,
    SHAPE,
    TERMS,
    TINY,
    assert_same,
    gradients,
    pairwise,
    task_of,
    trunk_of,
)
from tolerance import close, doubles, terms_of
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch
from foretext.objectives.base import Objective
from foretext.tasks.heads.supervised import NO_SCORE, Example, next_tokens
from foretext.tasks.heads.token_tasks import SpanExample, SpanTask, TaggedExample, TaggingTask
from foretext.tasks.layouts.base import TokenSequence

KINDS = ("tagging", "span")
PAIRS = pairwise([(system, kind) for system in TINY for kind in KINDS])
CLASSES = 5
LOSS_TERMS = terms_of(TERMS, SHAPE.vocabulary)  # through the model, and a softmax over no more than all words


def unless(usual: bool) -> Any:
    """The mark of a case that is not usual."""
    return () if usual else pytest.mark.thorough


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with doubles():
        yield


def head_of(kind: str, lm_weight: float = 0.5, p: float = 0.0) -> TaggingTask | SpanTask:
    if kind == "tagging":
        return TaggingTask(CLASSES, SHAPE.width, lm_weight, p, init_std=0.2)
    return SpanTask(SHAPE.width, lm_weight, p, init_std=0.2)


def examples(kind: str, count: int, seed: int = 0) -> list[Any]:
    """Random sequences of unequal lengths. Of the tags some were not trained on; of the spans one has no answer."""
    draw = random.Random(seed)
    made: list[Any] = []
    for number in range(count):
        length = draw.randint(4, 20)
        ids = tuple(draw.randrange(SHAPE.vocabulary) for _ in range(length))
        if kind == "tagging":
            firsts = tuple(sorted(draw.sample(range(1, length - 1), draw.randint(1, length - 2))))
            tags = tuple(IGNORE if draw.random() < 0.2 else draw.randrange(CLASSES) for _ in firsts)
            made.append(TaggedExample(ids, firsts, tags))
        else:
            start = draw.randint(1, length - 2) if number else length - 1
            end = draw.randint(start, length - 2) if number else length - 1
            made.append(SpanExample(ids, (1, length - 2), start, end))
    return made


def step(trunk: nn.Module, task: Objective, parts: Sequence[Batch]) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The gradients and mean losses of a step over micro-batches, divided by the counts of all of them."""
    trunk.zero_grad()
    task.zero_grad()
    totals: dict[str, float] = {}
    for batch in parts:
        for name, count in task.counts(batch).items():
            totals[name] = totals.get(name, 0.0) + count
    means = dict.fromkeys(task.weights, 0.0)
    for batch in parts:
        losses = task(trunk, batch).losses
        for name, loss in losses.items():
            means[name] += float(loss.total.detach()) / totals[name]
        sum(task.weights[name] * loss.total / totals[name] for name, loss in losses.items()).backward()
    return gradients(trunk, task), means


def wider(batch: Batch, left: int, right: int) -> Batch:
    """The same with more padding on either side."""

    def more(rows: Tensor, value: Any) -> Tensor:
        return F.pad(rows, (left, right), value=value)

    assert batch.mask_BT is not None
    return replace(
        batch,
        ids_BT=more(batch.ids_BT, 7),
        mask_BT=more(batch.mask_BT, False),
        targets_BT=None if batch.targets_BT is None else more(batch.targets_BT, IGNORE),
        labels=None if batch.labels is None else batch.labels + left,
    )


@pytest.mark.parametrize(
    ("system", "kind", "lm_weight"),
    [
        *(pytest.param(*pair.values, LM_WEIGHT[pair.values[0]], marks=pair.marks) for pair in PAIRS),
        *(pytest.param(system, kind, 0.0, marks=unless(system == "gpt")) for system in CAUSAL for kind in KINDS),
    ],
)
def test_accumulation_is_one_batch(system: str, kind: str, lm_weight: float) -> None:
    trunk, task = trunk_of(system), head_of(kind, lm_weight)
    data = examples(kind, 10)
    expected, losses = step(trunk, task, [task.make(data)])
    assert losses.keys() == ({"label", "lm"} if lm_weight else {"label"})
    for micro in (1, 7):
        parts = [task.make(data[start : start + micro]) for start in range(0, len(data), micro)]
        split, split_losses = step(trunk, task, parts)
        assert_same(split, expected)
        close(split_losses, losses, terms=LOSS_TERMS)


@pytest.mark.parametrize(
    ("system", "kind", "sides"),
    [
        *(pytest.param(*pair.values, (3, 4), marks=pair.marks) for pair in PAIRS),
        *(
            pytest.param(*pair.values, sides, marks=unless(pair.values[0] == "gpt"))
            for sides in ((0, 9), (5, 0))
            for pair in PAIRS
        ),
    ],
)
def test_padding_changes_nothing(system: str, kind: str, sides: tuple[int, int]) -> None:
    left, right = sides
    trunk, task = trunk_of(system), head_of(kind, LM_WEIGHT[system])
    batch = task.make(examples(kind, 6))
    padded = wider(batch, left, right)
    scores, same = task(trunk, batch).scores, task(trunk, padded).scores
    length = batch.ids_BT.shape[1]
    real = scores != NO_SCORE
    assert torch.equal(same[:, left : left + length] != NO_SCORE, real)
    close(same[:, left : left + length][real], scores[real], terms=TERMS)
    outside = torch.cat([same[:, :left], same[:, left + length :]], dim=1)
    assert bool((outside == NO_SCORE).all())
    expected, losses = step(trunk, task, [batch])
    gradients, same_losses = step(trunk, task, [padded])
    assert_same(gradients, expected)
    close(same_losses, losses, terms=LOSS_TERMS)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing_with_dropout_either(kind: str) -> None:
    trunk, task = trunk_of("gpt"), head_of(kind, p=0.5).train()
    batch = task.make(examples(kind, 6))
    totals = []
    for each in (batch, wider(batch, 3, 8)):
        torch.manual_seed(4)
        totals.append(float(task(trunk, each).losses["label"].total.detach()))
    close(totals[1], totals[0], terms=LOSS_TERMS)
    task.eval()
    assert abs(float(task(trunk, batch).losses["label"].total.detach()) / totals[0] - 1) > 1e-3


# -- what the losses are ---------------------------------------------------------------------------------------------


@torch.no_grad()
def logits_of(trunk: nn.Module, task: TaggingTask | SpanTask, ids: Sequence[int]) -> list[list[float]]:
    """The head's outputs for one sequence, token by token, by plain sums."""
    states = trunk(Batch(torch.tensor([ids]))).top[0]
    return [[float(row @ state + b) for row, b in zip(task.head.weight, task.head.bias)] for state in states]


def surprise(scores: Sequence[float], index: int) -> float:
    """−log of the softmax at `index`."""
    return math.log(sum(math.exp(score) for score in scores)) - scores[index]


@pytest.mark.parametrize("system", TINY)
def test_the_loss_of_tags_is_that_of_a_loop_over_words(system: str) -> None:
    trunk, task = trunk_of(system), head_of("tagging", LM_WEIGHT[system])
    data: list[TaggedExample] = examples("tagging", 5)
    total, count = 0.0, 0
    for example in data:
        logits = logits_of(trunk, task, example.ids)
        for place, tag in zip(example.places, example.tags or (), strict=True):
            if tag != IGNORE:
                total += surprise(logits[place], tag)
                count += 1
    batch = task.make(data)
    loss = task(trunk, batch).losses["label"]
    assert loss.count == count == task.counts(batch)["label"]
    close(loss.total, total, terms=LOSS_TERMS)


@pytest.mark.parametrize("system", TINY)
def test_the_loss_of_spans_is_that_of_a_loop_over_tokens(system: str) -> None:
    trunk, task = trunk_of(system), head_of("span", LM_WEIGHT[system])
    data: list[SpanExample] = examples("span", 5)
    total = 0.0
    for example in data:
        logits = logits_of(trunk, task, example.ids)
        assert example.start is not None and example.end is not None
        starts, ends = [row[0] for row in logits], [row[1] for row in logits]
        total += (surprise(starts, example.start) + surprise(ends, example.end)) / 2
    batch = task.make(data)
    loss = task(trunk, batch).losses["label"]
    assert loss.count == 5 == task.counts(batch)["label"]
    close(loss.total, total, terms=LOSS_TERMS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_language_model_loss_is_that_of_sentence_tasks(kind: str) -> None:
    trunk, task, sentence = trunk_of("gpt"), head_of(kind), task_of("classification")
    data = examples(kind, 6)
    rows = [Example((TokenSequence(example.ids, len(example.ids) - 1),), 0) for example in data]
    ours, theirs = task(trunk, task.make(data)).losses["lm"], sentence(trunk, sentence.make(rows)).losses["lm"]
    assert ours.count == theirs.count == 6
    close(ours.total, theirs.total, terms=LOSS_TERMS)
    with torch.no_grad():
        assert task(trunk, task.make(data)).losses.keys() == {"label"}


def test_the_next_token_is_never_padding() -> None:
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    real = torch.tensor([[True, True, True, False], [False, True, True, True]])
    assert next_tokens(ids, real).tolist() == [[2, 3, IGNORE, IGNORE], [IGNORE, 7, 8, IGNORE]]


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_micro_batch_without_a_target_counts_as_zero(p: float) -> None:
    trunk, task = trunk_of("gpt"), head_of("tagging", lm_weight=0.0, p=p).train()
    empty = [TaggedExample((1, 2, 3), (1,), (IGNORE,)), TaggedExample((1, 2, 3, 4), (), ())]
    batch = task.make(empty)
    assert task.counts(batch)["label"] == 0.0
    loss = task(trunk, batch).losses["label"]
    assert loss.count == 0.0 and float(loss.total.detach()) == 0.0
    if p:
        return
    data: list[TaggedExample] = examples("tagging", 4)
    expected, losses = step(trunk, task, [task.make(data)])
    gradients, same_losses = step(trunk, task, [task.make(data[:2]), batch, task.make(data[2:])])
    assert_same(gradients, expected)
    close(same_losses, losses, terms=LOSS_TERMS)


# -- what is scored --------------------------------------------------------------------------------------------------


def test_scores_of_tags_with_and_without_targets() -> None:
    trunk, task = trunk_of("gpt"), head_of("tagging")
    data: list[TaggedExample] = examples("tagging", 4)
    batch = task.make(data)
    known = task(trunk, batch).scores
    unknown = task(trunk, task.make([replace(example, tags=None) for example in data]))
    assert unknown.losses == {} and task.make([replace(data[0], tags=None), data[1]]).targets_BT is None
    assert known.shape == unknown.scores.shape == (*batch.ids_BT.shape, CLASSES)
    asked = batch.targets_BT != IGNORE
    close(known[asked], unknown.scores[asked], terms=TERMS)
    assert bool((known[~asked] == NO_SCORE).all())
    assert bool((unknown.scores[batch.mask_BT] != NO_SCORE).all())
    assert bool((unknown.scores[~batch.mask_BT] == NO_SCORE).all())


def test_scores_of_spans() -> None:
    trunk, task = trunk_of("gpt"), head_of("span")
    data: list[SpanExample] = examples("span", 4)
    batch = task.make([replace(example, start=None, end=None) for example in data])
    assert batch.labels is None and task.make(data).labels is not None
    outcome = task(trunk, batch)
    assert outcome.losses == {} and outcome.scores.shape == (*batch.ids_BT.shape, 2)
    for number, example in enumerate(data):
        logits = torch.tensor(logits_of(trunk, task, example.ids))
        close(outcome.scores[number, : len(example.ids)], logits, terms=TERMS)
        assert bool((outcome.scores[number, len(example.ids) :] == NO_SCORE).all())


def test_segments_come_along_if_there_are_any() -> None:
    span, tags, sentence = head_of("span"), head_of("tagging"), task_of("classification")
    ids, segments = (1, 2, 3, 4), (0, 0, 1, 1)
    cases = [
        (span, SpanExample(ids, (2, 3), 2, 3, segments), SpanExample((1, 2, 3, 4, 5), (2, 3), 2, 3)),
        (tags, TaggedExample(ids, (1,), (0,), segments), TaggedExample((1, 2, 3, 4, 5), (1,), (0,))),
        (
            sentence,
            Example((TokenSequence(ids, 0, segments=segments),), 0),
            Example((TokenSequence((1, 2, 3, 4, 5), 0),), 0),
        ),
    ]
    for task, with_segments, without in cases:
        both = task.make([with_segments, without]).segments_BT
        assert both is not None and both.tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]
        assert task.make([without]).segments_BT is None


@pytest.mark.parametrize(("system", "kind"), PAIRS)
def test_learning_lowers_every_loss(system: str, kind: str) -> None:
    trunk, task = trunk_of(system), head_of(kind, LM_WEIGHT[system])
    batch = task.make(examples(kind, 8))
    parameters = [*trunk.parameters(), *task.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    _, before = step(trunk, task, [batch])
    steps, lm = LOWERS[system]
    aims, after = {name: (lm if name == "lm" else 0.8) * loss for name, loss in before.items()}, before
    for _ in range(steps):
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        _, after = step(trunk, task, [batch])
        if all(after[name] < aims[name] for name in aims):
            break
    assert aims and all(after[name] < aims[name] for name in aims), (before, after)
