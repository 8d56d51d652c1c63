"""The linear layer: PyTorch's own in double precision is what it must give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from foretext.nn.linear import linear


@pytest.mark.parametrize("rows, inputs, outputs", [(1, 1, 1), (7, 5, 12), (40, 12, 5), (3, 4, 4), (0, 4, 6)])
@pytest.mark.parametrize("frozen", [(), ("x",), ("weight",), ("bias",), ("weight", "bias")], ids=str)
def test_value_and_gradients(rows: int, inputs: int, outputs: int, frozen: tuple[str, ...]) -> None:
    layer, weight = nn.Linear(inputs, outputs), torch.randn(rows, outputs)
    given = {"x": torch.randn(rows, inputs).requires_grad_(), "weight": layer.weight, "bias": layer.bias}
    for name in frozen:
        given[name].requires_grad_(False)
    exact = {name: tensor.detach().double().requires_grad_(name not in frozen) for name, tensor in given.items()}
    result, expected = linear(given["x"], layer), F.linear(exact["x"], exact["weight"], exact["bias"])
    torch.testing.assert_close(result.double(), expected, atol=1e-5, rtol=1e-5)
    (result * weight).sum().backward()
    (expected * weight).sum().backward()
    for name, tensor in given.items():
        if name in frozen:
            assert tensor.grad is None
        else:
            torch.testing.assert_close(tensor.grad.double(), exact[name].grad, atol=1e-5, rtol=1e-5)
            assert tensor.grad.stride() == tensor.stride()


def test_other_shapes_and_precisions_go_pytorchs_way() -> None:
    layer = nn.Linear(3, 2).double()
    x = torch.randn(4, 5, 3, dtype=torch.double)
    assert torch.equal(linear(x, layer), layer(x))
