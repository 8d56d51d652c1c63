"""The feed-forward part against the same formula from PyTorch's own pieces, in double precision."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.nn import feed_forward as module
from foretext.nn.feed_forward import feed_forward


def plain(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, up, up_bias), approximate="tanh"), down, down_bias)


def inputs(rows: int, width: int, wide: int, scale: float = 1.0) -> list[Tensor]:
    shapes = [(rows, width), (wide, width), (wide,), (width, wide), (width,)]
    return [(torch.randn(shape) * scale).requires_grad_() for shape in shapes]


def doubled(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in tensors]


@pytest.mark.parametrize("rows, width, wide", [(1, 1, 4), (7, 8, 32), (300, 16, 64), (0, 4, 16)])
@pytest.mark.parametrize("piece", [1, 100, 1 << 16])
def test_value_and_gradients(rows: int, width: int, wide: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", piece)
    ours = inputs(rows, width, wide)
    exact = doubled(ours)
    weight = torch.randn(rows, width)
    result, expected = feed_forward(*ours), plain(*exact)
    torch.testing.assert_close(result.double(), expected, atol=1e-4, rtol=1e-4)
    found = torch.autograd.grad((result * weight).sum(), ours)
    wanted = torch.autograd.grad((expected * weight).sum(), exact)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a.double(), b, atol=2e-4, rtol=1e-4)


def test_gelu_itself_over_its_whole_range() -> None:
    x = torch.cat([torch.linspace(-50, 50, 4001), torch.tensor([0.0, -1e-20, 1e-20, 1e4, -1e4])])
    exact = x.double().requires_grad_()
    expected = F.gelu(exact, approximate="tanh")
    (slope,) = torch.autograd.grad(expected.sum(), exact)
    scaled, derivative = module.SCALE * x, torch.empty_like(x)
    module._activate(scaled, derivative, torch.empty_like(x))
    value = scaled / module.SCALE
    torch.testing.assert_close(value.double(), expected.detach(), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(derivative.double(), slope, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("frozen", [(0,), (1, 2), (3, 4), (0, 1, 2), (1,), (2,), (1, 2, 3, 4)], ids=str)
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen: tuple[int, ...]) -> None:
    ours = inputs(9, 4, 16)
    for index in frozen:
        ours[index].requires_grad_(False)
    exact = doubled(ours)
    feed_forward(*ours).sum().backward()
    plain(*exact).sum().backward()
    for index, (a, b) in enumerate(zip(ours, exact)):
        if index in frozen:
            assert a.grad is None
        else:
            assert a.grad is not None and b.grad is not None
            torch.testing.assert_close(a.grad.double(), b.grad, atol=1e-4, rtol=1e-4)


def test_without_gradients_and_in_other_precisions_it_is_pytorch() -> None:
    ours = inputs(9, 4, 16)
    with torch.no_grad():
        torch.testing.assert_close(feed_forward(*ours), plain(*ours))
    exact = doubled(ours)
    assert torch.equal(feed_forward(*exact), plain(*exact))
    several = [ours[0].detach().view(3, 3, 4), *ours[1:]]
    assert torch.equal(feed_forward(*several), plain(*several))
