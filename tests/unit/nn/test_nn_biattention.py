"""The biattentive network against its equations, padding and the rest of the batch, and on a toy task."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from slow_recurrent import INPUTS, PADDINGS, randomised, repadded, sentences, slow_beside, slow_bilstm, slow_words
from tolerance import close, terms_of
from torch import Tensor

from foretext.nn.task_models.sentence_models import BiattentiveClassifier, Maxout, WordInput, WordInputConfig

SHAPE = {"classes": 3, "cells": 2, "layers": 1, "dropout": 0.0, "projection": 4, "hidden": 3, "maxout": 2}
FIRST, SECOND = sentences(0), sentences(1, [2, 5, 1])
# Words of 9 numbers are projected, read both ways over 5 words by cells of 2, beside 4 numbers of layers; 8 numbers of
# each word are compared, weighed over 5 words, tripled and read again; 2 sides of 4 pools of 4 go through two maxouts.
TERMS = terms_of(9, 5 * (4 + 2), 8, 5, 5 * (24 + 2), 4, 5, 2 * 32, 2 * 3, 3)


@pytest.fixture
def model() -> BiattentiveClassifier:
    made = randomised(BiattentiveClassifier(INPUTS, **SHAPE))
    assert isinstance(made, BiattentiveClassifier)
    return made


# --- the slow version: McCann et al. 2017, section 5, one pair


def encoded(model: BiattentiveClassifier, words: WordInput, row: int) -> Tensor:
    projected = [
        (model.project.weight @ x + model.project.bias).clamp(min=0) for x in slow_words(model.read, words, row)
    ]
    return torch.stack(slow_beside(model.read, slow_bilstm(model.encode, projected), words, row))


def softmax(values: list[Tensor]) -> list[Tensor]:
    return [value.exp() / sum(other.exp() for other in values) for value in values]


def summary(own: Tensor, other: Tensor) -> Tensor:
    """For each word of one sentence, the mean of the other's words, weighed by how much they are alike."""
    found = []
    for word in own:
        weights = softmax([word @ there for there in other])
        found.append(sum(weight * there for weight, there in zip(weights, other)))
    return torch.stack(found)


def pooled(model: BiattentiveClassifier, side: int, own: Tensor, other: Tensor) -> Tensor:
    context = summary(own, other)
    joined = [torch.cat([a, a - b, a * b]) for a, b in zip(own, context)]
    states = slow_bilstm(model.integrate[side], joined)
    attend = model.pools[side].attend
    weights = softmax([attend.weight[0] @ state + attend.bias[0] for state in states])
    x = torch.stack(states)
    attentive = sum(weight * state for weight, state in zip(weights, states))
    return torch.cat([x.max(0).values, x.mean(0), x.min(0).values, attentive])


def slow_maxout(layer: Maxout, x: Tensor) -> Tensor:
    norm = (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt() * layer.norm.weight + layer.norm.bias
    lines = [weight @ norm + bias for weight, bias in zip(layer.linear.weight, layer.linear.bias)]
    return torch.stack([torch.maximum(lines[2 * unit], lines[2 * unit + 1]) for unit in range(len(lines) // 2)])


def slow_scores(model: BiattentiveClassifier, first: WordInput, second: WordInput, row: int) -> Tensor:
    x, y = encoded(model, first, row), encoded(model, second, row)
    both = torch.cat([pooled(model, 0, x, y), pooled(model, 1, y, x)])
    for layer in model.maxouts:
        both = slow_maxout(layer, both)
    return model.scores.weight @ both + model.scores.bias


@torch.no_grad()
def test_it_is_the_papers_equations(model: BiattentiveClassifier) -> None:
    pair = model(FIRST, SECOND)
    for row in range(3):
        close(pair[row], slow_scores(model, FIRST, SECOND, row), terms=TERMS)


# --- padding and batches


@pytest.mark.parametrize("padding", PADDINGS)
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(model: BiattentiveClassifier, padding: str) -> None:
    expected = model(FIRST, SECOND)
    close(model(repadded(FIRST, padding), SECOND), expected, terms=TERMS)
    for row in range(3):
        alone = model(repadded(FIRST, "none", row), repadded(SECOND, padding, row))
        close(alone[0], expected[row], terms=TERMS)


def test_both_sentences_and_every_weight_matter(model: BiattentiveClassifier) -> None:
    scores = model(FIRST, SECOND)
    assert SECOND.vectors_BTD is not None and FIRST.vectors_BTD is not None
    for first, second in (
        (FIRST, replace(SECOND, vectors_BTD=SECOND.vectors_BTD + 1)),
        (replace(FIRST, vectors_BTD=FIRST.vectors_BTD + 1), SECOND),
        (SECOND, FIRST),
    ):
        assert bool(((model(first, second) - scores).abs() > 1e-6).any(1).all())
    F.cross_entropy(scores, torch.tensor([0, 2, 1]), reduction="sum").backward()
    # The bias of a softmax's scores is the one weight that nothing can depend on.
    still = [name for name, p in model.named_parameters() if p.grad is None or not bool((p.grad.abs() > 1e-12).any())]
    assert still == ["pools.0.attend.bias", "pools.1.attend.bias"]


def test_a_sentence_without_words(model: BiattentiveClassifier) -> None:
    empty = replace(SECOND, mask_BT=torch.zeros_like(SECOND.mask_BT))
    scores = model(FIRST, empty)
    assert bool(scores.isfinite().all())
    F.cross_entropy(scores, torch.tensor([0, 2, 1]), reduction="sum").backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def test_it_learns_to_compare() -> None:
    """Whether the second sentence has the first one's only word."""
    torch.manual_seed(0)
    drawn = torch.Generator().manual_seed(1)
    vectors = torch.randn(5, 6, generator=drawn)
    first, second = torch.randint(0, 5, (32, 1), generator=drawn), torch.randint(0, 5, (32, 3), generator=drawn)
    labels = (second == first).any(1).long()
    assert 8 < int(labels.sum()) < 24
    inputs = WordInputConfig(vectors=6, dropout=0.0)
    made = BiattentiveClassifier(inputs, 2, 12, 1, 0.0, projection=12, hidden=12, maxout=2)
    x, y = (WordInput(torch.ones_like(ids, dtype=torch.bool), vectors[ids]) for ids in (first, second))
    optimizer = torch.optim.Adam(made.parameters(), 0.03)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(made(x, y), labels, reduction="sum").backward()
        optimizer.step()
    assert float((made(x, y).argmax(1) == labels).float().mean()) > 0.95
