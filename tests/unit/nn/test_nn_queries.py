"""The hand-written pass over queries, keys and values equals autograd's, in values and gradients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from tolerance import close, doubles, terms_of
from torch import Tensor, nn

from foretext.nn.transformer import queries as module
from foretext.nn.transformer.queries import RMSNorm, Rotation, prepared, rms_norm, rotated, rotation

ROWS, HEADS, HEAD = 13, 3, 8
ONE_WAY = terms_of(HEAD, 6)  # a mean over a head, a turn, a mixture
BACK = terms_of(2 * HEAD, 12, ROWS * HEADS)


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    with doubles():
        yield


def plainly(
    qkv: Tensor,
    norms: tuple[nn.Module, nn.Module] | None,
    turns: Rotation | None,
    values: Tensor | None,
    shares: Tensor | None,
) -> Tensor:
    q, k, v = qkv.unbind(1)
    if norms is not None:
        q, k = (F.rms_norm(x, (HEAD,), norm.get_parameter("weight"), 1e-5) for x, norm in zip((q, k), norms))
    if turns is not None:
        q, k = rotated(q, turns), rotated(k, turns)
    if shares is not None:
        v = shares[0] * v + shares[1] * values
    return torch.stack([q, k, v], dim=1)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("piece", [1, 5 * 3 * HEADS * HEAD, 1 << 16], ids=["row by row", "five rows", "at once"])
def test_all_at_once(normed: bool, turned: bool, mixed: bool, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", piece)
    qkv = torch.randn(ROWS, 3, HEADS, HEAD, requires_grad=True)
    norms = None
    if normed:
        norms = (RMSNorm(HEAD, eps=1e-5), RMSNorm(HEAD, eps=1e-5))
        for norm in norms:
            nn.init.normal_(norm.weight, mean=1.0)
    turns = rotation(torch.arange(ROWS) * 7, HEAD, 100.0, torch.float64) if turned else None
    values = torch.randn(ROWS, HEADS, HEAD, requires_grad=True) if mixed else None
    shares = torch.tensor([0.3, -1.2], requires_grad=True) if mixed else None
    learned = [qkv, *(norm.weight for norm in norms or ()), *([values, shares] if mixed else [])]
    ours, expected = (made(qkv, norms, turns, values, shares) for made in (prepared, plainly))
    close(ours, expected, terms=ONE_WAY)
    incoming = torch.randn_like(expected)
    mine, theirs = (torch.autograd.grad((made * incoming).sum(), learned) for made in (ours, expected))
    close(list(mine), list(theirs), terms=BACK)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(1, 16), (9, 16), (2, 5, 16)], ids=str)
def test_rms_norm(weighted: bool, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    weight = torch.randn(16, requires_grad=True) if weighted else None
    learned = [x, *([weight] if weight is not None else [])]
    ours, expected = rms_norm(x, weight, 0.1), F.rms_norm(x, (16,), weight, 0.1)
    close(ours, expected, terms=terms_of(16, 4))
    incoming = torch.randn_like(expected)
    mine, theirs = (torch.autograd.grad((made * incoming).sum(), learned) for made in (ours, expected))
    close(list(mine), list(theirs), terms=terms_of(32, 8, x.numel() // 16))


def test_a_frozen_weight_gets_no_gradient() -> None:
    x, weight = torch.randn(4, 16, requires_grad=True), torch.randn(16)
    rms_norm(x, weight, 1e-5).sum().backward()
    assert x.grad is not None and weight.grad is None
    frozen = torch.randn(4, 16)
    learned = weight.requires_grad_()
    rms_norm(frozen, learned, 1e-5).sum().backward()
    close(learned.grad, F.rms_norm(frozen, (16,), None, 1e-5).sum(0), terms=terms_of(16, 8, 4))
