"""What the recurrent benchmark compares is the same on both sides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tolerance import close, terms_of

from bench import bilm
from bench.bilm import BilmShape, BilmSpecification, PlainBilm
from bench.models import BATCHES
from bench.recurrent import Plain, Shape, Specification, build_ours, windows_of

pytestmark = pytest.mark.usefixtures("in_float64")

SPEC = Specification(Shape(layers=3, width=6, hidden=9, context=5, vocabulary=20), batch=4)
# Three windows of five tokens and up through three layers, each time over nine inputs and nine states; a softmax of
# twenty, and the mean over 4 × 5 tokens.
LOSS = terms_of((3 * 5 + 2) * (9 + 9), 6 + 20, 4 * 5)


def copied(theirs: Plain, trunk: torch.nn.Module) -> None:
    """Our weights into the plain model."""
    with torch.no_grad():
        theirs.tokens.weight.copy_(trunk.tokens.weight)
        for lstm, layer in zip(theirs.lstms, trunk.layers, strict=True):
            for name, parameter in layer.named_parameters():
                getattr(lstm, f"{name}_l0").copy_(parameter)


def test_both_sides_see_the_same_streams_and_have_the_same_losses() -> None:
    loop = build_ours(SPEC)
    theirs = Plain(SPEC.shape.config(0.0))
    copied(theirs, loop.job.trunk)
    windows = windows_of(SPEC)
    state = [None] * SPEC.shape.layers
    for step in range(3):
        _, parts, _ = loop.batches(step)
        ids = torch.from_numpy(np.stack(windows[step::BATCHES]))
        assert (
            len(parts) == 1
            and torch.equal(parts[0].ids_BT, ids[:, :-1])
            and torch.equal(parts[0].targets_BT, ids[:, 1:])
        )
        ours = loop.gradients(step, parts)["lm"]
        loss, state = theirs(ids[:, :-1], ids[:, 1:], state)
        close(ours, loss, terms=LOSS)


def test_rows_of_unequal_length_have_the_same_losses() -> None:
    spec = replace(SPEC, shortest=0.25)
    loop, theirs = build_ours(spec), Plain(spec.shape.config(0.0))
    copied(theirs, loop.job.trunk)
    windows, state = [torch.from_numpy(window) for window in windows_of(spec)], [None] * spec.shape.layers
    assert spec.tokens < SPEC.tokens == SPEC.batch * SPEC.shape.context
    for step in range(3):
        _, parts, _ = loop.batches(step)
        rows = windows[step::BATCHES]
        assert len({len(row) for row in windows}) > 1 and parts[0].real_tokens == sum(len(row) - 1 for row in rows)
        ours = loop.gradients(step, parts)["lm"]
        loss, state = theirs.packed(rows, state)
        close(ours, loss, terms=LOSS)


def test_both_sides_of_the_bilm_have_the_same_losses() -> None:
    spec = BilmSpecification(BilmShape(2, 9, 6, 5, 40), 4)
    loop, theirs = bilm.build_ours(spec), PlainBilm(spec.shape.config())
    ours = loop.job.trunk.bilm
    theirs.words.load_state_dict(ours.words.state_dict())
    with torch.no_grad():
        theirs.softmax.weight.copy_(loop.job.objective.head.table_VD)
        theirs.softmax.bias.copy_(loop.job.objective.head.bias_V)
        for stack, own in zip(theirs.stacks, (ours.forwards, ours.backwards)):
            for lstm, layer in zip(stack, own.lstms, strict=True):
                lstm.weight_ih_l0.copy_(layer.input.weight)
                lstm.bias_ih_l0.copy_(layer.input.bias)
                lstm.bias_hh_l0.zero_()
                lstm.weight_hh_l0.copy_(layer.recurrent.weight)
                lstm.weight_hr_l0.copy_(layer.project.weight)
    characters = 5 * 16 + 2 * sum(bilm.FILTERS)  # the widest filter, a highway and a projection
    terms = terms_of(characters, (3 * 5 + 1) * (9 + 6 + 6), 6 + 40, 2 * 4 * 5)
    state = [[None] * 2] * 2
    for step in range(3):
        _, parts, _ = loop.batches(step)
        found = loop.gradients(step, parts)
        loss, state = theirs(parts[0], state)
        loss.backward()
        close((found["forward"] + found["backward"]) / 2, loss, terms=terms)
    for name, parameter in theirs.named_parameters():
        assert bool(parameter.grad.any()), name


@pytest.mark.parametrize("dropout", [0.0, 1.0])
def test_both_sides_have_one_shape_and_learn_all_of_it(dropout: float) -> None:
    spec = replace(SPEC, dropout=dropout)
    loop, theirs = build_ours(spec), Plain(spec.shape.config(dropout)).train()
    sizes = [sorted(p.numel() for p in model.parameters()) for model in (loop.model, theirs)]
    assert sizes[0] == sizes[1]
    ids = torch.from_numpy(np.stack(windows_of(spec)[:4]))
    theirs(ids[:, :-1], ids[:, 1:], [None] * 3)[0].backward()
    loop.gradients(0, loop.batches(0)[1])
    for model in (loop.model, theirs):
        assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
