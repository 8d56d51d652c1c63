"""The linear layer: PyTorch's own in float64 is what it must give, in float64 and in float32."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tolerance import close, terms_of
from torch import nn

from foretext.nn.fused import linear


@pytest.mark.parametrize("rows, inputs, outputs", [(1, 1, 1), (7, 5, 12), (40, 12, 5), (3, 4, 4), (0, 4, 6)])
@pytest.mark.parametrize("frozen", [(), ("x",), ("weight",), ("bias",), ("weight", "bias")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_value_and_gradients(rows: int, inputs: int, outputs: int, frozen: tuple[str, ...], dtype: torch.dtype) -> None:
    layer, weight = nn.Linear(inputs, outputs, dtype=dtype), torch.randn(rows, outputs, dtype=dtype)
    x = torch.randn(rows, inputs, dtype=dtype).requires_grad_()
    given = {"x": x, "weight": layer.weight, "bias": layer.bias}
    for name in frozen:
        given[name].requires_grad_(False)
    exact = {name: tensor.detach().double().requires_grad_(name not in frozen) for name, tensor in given.items()}
    result, expected = linear(given["x"], layer), F.linear(exact["x"], exact["weight"], exact["bias"])
    close(result, expected, terms=terms_of(inputs, 1))
    (result * weight).sum().backward()
    (expected * weight.double()).sum().backward()
    for name, tensor in given.items():
        if name in frozen:
            assert tensor.grad is None
        else:
            close(tensor.grad, exact[name].grad, terms=outputs if name == "x" else rows)
            assert tensor.grad.stride() == tensor.stride()


def test_other_shapes_and_precisions_go_pytorchs_way() -> None:
    layer = nn.Linear(3, 2).double()
    x = torch.randn(4, 5, 3, dtype=torch.double)
    assert torch.equal(linear(x, layer), layer(x))
