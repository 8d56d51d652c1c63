"""Dropout and attention with dropped weights: the plain formulas with the same mask, and the statistics of the mask."""

import math

import pytest
import torch
import torch.nn.functional as F
from tolerance import close, terms_of
from torch import Tensor

from foretext.nn import fused, packing
from foretext.nn.fused import add_dropped, keep_mask
from foretext.nn.packing import Groups, attend

SHAPES = [(2, 3, 1, 8), (1, 1, 5, 4), (3, 2, 128, 8), (2, 4, 129, 8), (5, 2, 300, 16), (9, 4, 64, 8)]


def plain_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    length = q.shape[2]
    ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(ahead, -math.inf)
    return (torch.softmax(scores, -1) * mask) @ v


def split(qkv: Tensor, group: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """q, k and v of a group, each [B, H, T, K]."""
    first, rows, length = group
    cut = qkv[first : first + rows * length].reshape(rows, length, 3, *qkv.shape[2:])
    return tuple(cut[:, :, part].transpose(1, 2) for part in range(3))


def there_of(groups: Groups, width: int) -> int:
    """Scores over a head's width, the sum of a softmax and the mixture over all keys."""
    longest = max(length for *_, length in groups)
    return terms_of(width, longest, longest)


def ends(groups: Groups) -> int:
    return sum(rows * length for _, rows, length in groups)


def cases() -> list[tuple[Groups, int, int]]:
    """Groups, heads and width: one group of each shape, and several groups end to end."""
    alone = [(((0, rows, length),), heads, width) for rows, heads, length, width in SHAPES]
    return [*alone, (((0, 2, 150), (300, 5, 9), (345, 3, 128), (729, 1, 1)), 2, 8)]


@pytest.mark.parametrize("groups, heads, width", cases(), ids=str)
@pytest.mark.parametrize("strip, block", [(128, 1 << 17), (16, 1 << 17), (7, 1 << 10)])
def test_dropped_attention_is_the_plain_formula(
    groups: Groups, heads: int, width: int, strip: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "STRIP", strip)
    monkeypatch.setattr(packing, "BLOCK", block)
    whole = [keep_mask((rows, heads, length, length), 0.3) for _, rows, length in groups]
    places = list(packing._blocks(groups, heads, True, (None,) * len(groups)))
    asked: list[torch.Size] = []

    def recorded(size: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
        block = places[len(asked)]
        first, rows, length = block.rows
        asked.append(size)
        assert p == 0.3
        number = max(i for i, group in enumerate(groups) if group[0] <= first)
        row = (first - groups[number][0]) // length
        return whole[number][row : row + rows, :, block.strip, block.keys].flatten(0, 1).clone()

    monkeypatch.setattr(packing, "keep_mask", recorded)
    qkv = torch.randn(ends(groups), 3, heads, width, requires_grad=True)
    weight = torch.randn(ends(groups), heads, width)
    result = attend(qkv, groups, 0.3)
    assert len(asked) == len(places)
    parts = [plain_attention(*split(qkv, group), mask) for group, mask in zip(groups, whole)]
    expected = torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts])
    there = there_of(groups, width)
    close(result, expected, terms=there)
    (ours,) = torch.autograd.grad((result * weight).sum(), qkv)
    (plain,) = torch.autograd.grad((expected * weight).sum(), qkv)
    close(ours, plain, terms=3 * there)


@pytest.mark.parametrize("groups, heads, width", cases(), ids=str)
def test_without_dropout_it_is_the_fused_kernel(groups: Groups, heads: int, width: int) -> None:
    qkv = torch.randn(ends(groups), 3, heads, width, requires_grad=True)
    weight = torch.randn(ends(groups), heads, width)
    parts = [F.scaled_dot_product_attention(*split(qkv, group), is_causal=True) for group in groups]
    expected = torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts])
    result = attend(qkv, groups, 0.0)
    there = there_of(groups, width)
    close(result, expected, terms=there)
    (ours,) = torch.autograd.grad((result * weight).sum(), qkv)
    (theirs,) = torch.autograd.grad((expected * weight).sum(), qkv)
    close(ours, theirs, terms=3 * there)


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("groups, heads, width", cases()[-1:], ids=str)
def test_float32_is_what_float64_gives(groups: Groups, heads: int, width: int, p: float) -> None:
    """The same seed drops the same weights."""
    qkv = torch.randn(ends(groups), 3, heads, width, dtype=torch.float32)
    weight = torch.randn(ends(groups), heads, width, dtype=torch.float32)
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(1)
        given = qkv.to(dtype).requires_grad_()
        result = attend(given, groups, p)
        found.append((result, *torch.autograd.grad((result * weight.to(dtype)).sum(), given)))
    assert [one.dtype for one in found[0]] == [torch.float32] * 2
    close(found[0], found[1], terms=3 * there_of(groups, width))


def test_other_kinds_of_number_go_to_pytorch() -> None:
    groups = ((0, 2, 5), (10, 1, 3))
    qkv = torch.randn(13, 3, 2, 8, dtype=torch.bfloat16)
    found = attend(qkv, groups, 0.0)
    close(found, attend(qkv.double(), groups, 0.0), terms=there_of(groups, 8))
    assert found.dtype == torch.bfloat16


def test_nothing_to_attend_to_is_an_empty_answer() -> None:
    assert attend(torch.empty(0, 3, 2, 8), (), 0.0).shape == (0, 2, 8)
    assert attend(torch.empty(0, 3, 2, 8), (), 0.1).shape == (0, 2, 8)


def test_the_expectation_of_dropped_attention_is_attention() -> None:
    qkv, groups = torch.randn(16, 3, 2, 8), ((0, 1, 16),)
    mean = attend(qkv.repeat(3000, 1, 1, 1), ((0, 3000, 16),), 0.2).unflatten(0, (3000, 16)).mean(0)
    assert float((mean - attend(qkv, groups, 0.0)).abs().max()) < 0.06


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
    monkeypatch.setattr(fused, "keep_mask", lambda shape, p, dtype: mask)
    x, residual = (torch.randn(6, 5, requires_grad=True) for _ in range(2))
    weight = torch.randn(6, 5)
    for result, parts in (
        (fused.dropout(x, 0.4, True), [(x, mask)]),
        (add_dropped(residual, x, 0.4, True), [(x, mask), (residual, torch.ones(6, 5))]),
    ):
        expected = sum(part * factor for part, factor in parts)
        close(result, expected, terms=2)
        for part, factor in parts:
            (gradient,) = torch.autograd.grad((result * weight).sum(), part, retain_graph=True)
            close(gradient, weight * factor, terms=1)


def test_no_dropout_outside_training() -> None:
    x, residual = torch.randn(4), torch.randn(4)
    assert fused.dropout(x, 0.5, False) is x and fused.dropout(x, 0.0, True) is x
    assert torch.equal(add_dropped(residual, x, 0.5, False), residual + x)
