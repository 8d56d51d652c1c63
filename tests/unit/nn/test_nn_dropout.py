"""Dropout and attention with dropped weights: the plain formulas with the same mask, and the statistics of the mask."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.nn import attention, dropout
from foretext.nn.attention import causal_attention
from foretext.nn.dropout import add_dropped, keep_mask

SHAPES = [(2, 3, 1, 8), (1, 1, 5, 4), (3, 2, 128, 8), (2, 4, 129, 8), (5, 2, 300, 16), (9, 4, 64, 8)]


def plain_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    length = q.shape[2]
    ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(ahead, -math.inf)
    return (torch.softmax(scores, -1) * mask) @ v


def projections(shape: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("strip", [128, 16, 7])
def test_dropped_attention_is_the_plain_formula(shape, strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, heads, length, _ = shape
    whole = keep_mask((rows, heads, length, length), 0.3)
    monkeypatch.setattr(attention, "STRIP", strip)
    places = list(attention._blocks(rows, length))
    asked: list[tuple[int, ...]] = []

    def recorded(size: torch.Size, p: float) -> Tensor:
        row, queries = places[len(asked)]
        asked.append(tuple(size))
        assert p == 0.3
        return whole[row, :, queries, : queries.stop].clone()

    monkeypatch.setattr(attention, "keep_mask", recorded)
    ours, theirs = projections(shape), projections(shape)
    for a, b in zip(ours, theirs):
        b.data.copy_(a.data)
    weight = torch.randn(shape)
    result = causal_attention(*ours, 0.3)
    expected = plain_attention(*theirs, whole)
    assert len(asked) == len(places)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)
    (result * weight).sum().backward()
    (expected * weight).sum().backward()
    for name, a, b in zip("qkv", ours, theirs):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_without_dropout_it_is_the_plain_formula_too(shape) -> None:
    q, k, v = projections(shape)
    ones = torch.ones(*shape[:3], shape[2])
    torch.testing.assert_close(causal_attention(q, k, v, 0.0), plain_attention(q, k, v, ones), atol=1e-5, rtol=1e-4)
    fused = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.equal(causal_attention(q, k, v, 0.0), fused)


def test_the_expectation_of_dropped_attention_is_attention() -> None:
    q, k, v = (x.detach() for x in projections((1, 2, 16, 8)))
    mean = torch.stack([causal_attention(q, k, v, 0.2) for _ in range(3000)]).mean(0)
    torch.testing.assert_close(mean, causal_attention(q, k, v, 0.0), atol=0.06, rtol=0)


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
def test_rate_and_scale_of_the_mask(p: float) -> None:
    mask = keep_mask((1000, 1000), p)
    dropped = float((mask == 0).float().mean())
    assert abs(dropped - p) < 5 * math.sqrt(p * (1 - p) / 1e6) + 1 / 65536
    kept = mask[mask != 0].unique()
    assert len(kept) == 1 and abs(float(kept) - 1 / (1 - p)) < 1e-3 / (1 - p)
    assert abs(float(mask.mean()) - 1) < 5 * math.sqrt(p / (1 - p) / 1e6)
    # Four elements share one draw of the generator: neighbours must be independent all the same.
    zero = (mask.reshape(-1) == 0).float()
    for distance in (1, 2, 3, 4):
        both = float((zero[:-distance] * zero[distance:]).mean())
        assert abs(both - p * p) < 0.004


def test_masks_follow_the_seed_and_are_not_repeated() -> None:
    torch.manual_seed(3)
    first, second = keep_mask((50, 7), 0.5), keep_mask((50, 7), 0.5)
    torch.manual_seed(3)
    assert torch.equal(keep_mask((50, 7), 0.5), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(0, 4), (1,), (3,), (4,), (5, 3)], ids=str)
def test_any_shape_has_a_mask(shape: tuple[int, ...]) -> None:
    assert keep_mask(shape, 0.5).shape == shape
    assert bool(torch.isfinite(keep_mask(shape, 0.99999999)).all())


def test_dropout_and_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = keep_mask((6, 5), 0.4)
    monkeypatch.setattr(dropout, "keep_mask", lambda shape, p: mask)
    x, residual = (torch.randn(6, 5, requires_grad=True) for _ in range(2))
    weight = torch.randn(6, 5)
    for result, parts in (
        (dropout.dropout(x, 0.4, True), [(x, mask)]),
        (add_dropped(residual, x, 0.4, True), [(x, mask), (residual, torch.ones(6, 5))]),
    ):
        expected = sum(part * factor for part, factor in parts)
        torch.testing.assert_close(result, expected)
        for part, factor in parts:
            (gradient,) = torch.autograd.grad((result * weight).sum(), part, retain_graph=True)
            torch.testing.assert_close(gradient, weight * factor)


def test_no_dropout_outside_training() -> None:
    x, residual = torch.randn(4), torch.randn(4)
    assert dropout.dropout(x, 0.5, False) is x and dropout.dropout(x, 0.0, True) is x
    assert torch.equal(add_dropped(residual, x, 0.5, False), residual + x)
