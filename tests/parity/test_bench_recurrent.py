"""What the recurrent benchmark compares is the same on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.models import BATCHES
from bench.recurrent import Plain, Shape, Specification, build_ours, windows_of

SPEC = Specification(Shape(layers=3, width=6, hidden=9, context=5, vocabulary=20), batch=4)


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
    streams = torch.from_numpy(windows_of(SPEC)).view(SPEC.batch, BATCHES, -1)
    state = [None] * SPEC.shape.layers
    for step in range(3):
        _, parts, _ = loop.batches(step)
        ids = streams[:, step]
        assert (
            len(parts) == 1
            and torch.equal(parts[0].ids_BT, ids[:, :-1])
            and torch.equal(parts[0].targets_BT, ids[:, 1:])
        )
        ours = loop.gradients(step, parts)["lm"]
        loss, state = theirs(ids[:, :-1], ids[:, 1:], state)
        assert ours == pytest.approx(float(loss.detach()), abs=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 1.0])
def test_both_sides_have_one_shape_and_learn_all_of_it(dropout: float) -> None:
    spec = replace(SPEC, dropout=dropout)
    loop, theirs = build_ours(spec), Plain(spec.shape.config(dropout)).train()
    sizes = [sorted(p.numel() for p in model.parameters()) for model in (loop.model, theirs)]
    assert sizes[0] == sizes[1]
    ids = torch.from_numpy(windows_of(spec))[:4]
    theirs(ids[:, :-1], ids[:, 1:], [None] * 3)[0].backward()
    loop.gradients(0, loop.batches(0)[1])
    for model in (loop.model, theirs):
        assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
