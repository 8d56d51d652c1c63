"""The feed-forward part against the same formula from PyTorch's own pieces in float64; its own code runs in float32
and in float64."""

import pytest
import torch
import torch.nn.functional as F
from tolerance import close, terms_of
from torch import Tensor

from foretext.nn import fused as module
from foretext.nn.fused import feed_forward

GELU = 10  # roundings: a cube, a logistic function, three products


def plain(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, up, up_bias), approximate="tanh"), down, down_bias)


def inputs(rows: int, width: int, wide: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    shapes = [(rows, width), (wide, width), (wide,), (width, wide), (width,)]
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def doubled(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in tensors]


@pytest.mark.parametrize("rows, width, wide", [(1, 1, 4), (7, 8, 32), (300, 16, 64), (0, 4, 16)])
@pytest.mark.parametrize(
    ("piece", "dtype"),
    [(1, torch.float64), (100, torch.float64), (1 << 16, torch.float64), (1 << 16, torch.float32)],
    ids=str,
)
def test_value_and_gradients(
    rows: int, width: int, wide: int, piece: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE", piece)
    ours = inputs(rows, width, wide, dtype)
    exact = doubled(ours)
    weight = torch.randn(rows, width, dtype=dtype)
    result, expected = feed_forward(*ours), plain(*exact)
    there = terms_of(width, GELU, wide)
    close(result, expected, terms=there)
    found = torch.autograd.grad((result * weight).sum(), ours)
    wanted = torch.autograd.grad((expected * weight.double()).sum(), exact)
    assert {gradient.dtype for gradient in found} == {dtype}
    close(found, wanted, terms=terms_of(2 * there, rows))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_gelu_itself_over_its_whole_range(dtype: torch.dtype) -> None:
    """Its value as a part of x, and its derivative: both of about 1. In the derivative 1 − σ is multiplied by y z'(y),
    so what σ is rounded by too, until σ is 1."""
    x = torch.cat([torch.linspace(-50, 50, 4000), torch.tensor([-1e-20, 1e-20, 1e4, -1e4])]).to(dtype)
    exact = x.double().clone().requires_grad_()
    expected = F.gelu(exact, approximate="tanh")
    (slope,) = torch.autograd.grad(expected.sum(), exact)
    scaled, derivative = module.SCALE * x, torch.empty_like(x)
    module._activate(scaled, derivative, torch.empty_like(x))
    close(scaled / module.SCALE / x, expected / exact, terms=GELU)
    y = module.SCALE * x
    steep = (y * (1 + 3 * module.CUBE * y * y))[(x > 0) & (torch.sigmoid(y + module.CUBE * y**3) < 1)]
    close(derivative, slope, terms=3, size=float(steep.max()))
    nothing = torch.zeros(1, dtype=dtype)
    module._activate(nothing, derivative[:1], torch.empty_like(nothing))
    assert float(nothing) == 0 and float(derivative[0]) == 0.5


@pytest.mark.parametrize("frozen", [(0,), (1, 2), (3, 4), (0, 1, 2), (1,), (2,), (1, 2, 3, 4)], ids=str)
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen: tuple[int, ...]) -> None:
    ours = inputs(9, 4, 16)
    for index in frozen:
        ours[index].requires_grad_(False)
    exact = doubled(ours)
    feed_forward(*ours).sum().backward()
    plain(*exact).sum().backward()
    assert [index for index, tensor in enumerate(ours) if tensor.grad is None] == list(frozen)
    learned = [index for index in range(5) if index not in frozen]
    found, wanted = ([tensors[index].grad for index in learned] for tensors in (ours, exact))
    close(found, wanted, terms=terms_of(2 * (4 + GELU + 16), 9))


def test_without_gradients_and_in_other_precisions_it_is_pytorch() -> None:
    ours = inputs(9, 4, 16)
    with torch.no_grad():
        close(feed_forward(*ours), plain(*ours), terms=terms_of(4, GELU, 16))
    half = [tensor.detach().bfloat16() for tensor in ours]
    assert torch.equal(feed_forward(*half), plain(*half))
    several = [ours[0].detach().view(3, 3, 4), *ours[1:]]
    assert torch.equal(feed_forward(*several), plain(*several))
