"""Norms and rotates queries and keys, and mixes values, before attention.

    q, k ← rotate(norm(q)), rotate(norm(k))    v ← λ₁ v + λ₂ v'

Each formula is several small operations on the largest tensor of a block. Autograd would run them one by one and keep
each result. On a CPU, with RMSNorm, all of them are one pass instead, a few rows at a time, which stay in the cache. So
is the backward pass:

    y = x r w,  r = (mean x² + ε)^(−½)         dx = r (w dy − x r · mean(w dy · x r)),   dw = Σ dy · x r
    y = x rotated by an angle                  dx = dy rotated back by it
    v ← λ₁ v + λ₂ v'                           λ₁ dv, λ₂ dv, Σ v dv, Σ v' dv

RMSNorm of states is here too, because PyTorch has no CPU kernel for it.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.nn.fused import PIECE, full_precision_on_cpu

Rotation = tuple[Tensor, Tensor]  # cosines and sines of each token's angles, [..., 1, K / 2], the same for all heads


def rotation(positions: Tensor, width: int, base: float, dtype: torch.dtype) -> Rotation:
    """For heads of this width: the angles are position · base^(−2i / width)."""
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=dtype) / width
    angles = positions[..., None, None].to(dtype) * base**-exponents
    return angles.cos(), angles.sin()


def rotated(x: Tensor, by: Rotation) -> Tensor:
    """x [..., H, K], rotated. Numbers i and i + K / 2 are the coordinates of one plane, as in transformers."""
    cos, sin = (part.to(x.dtype) for part in by)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


# -- RMSNorm -----------------------------------------------------------------------------------------------------------


def _inverse_root(x: Tensor, epsilon: float) -> Tensor:
    """(mean x² + ε)^(−½) over the last axis."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()


def _unnormed(grad: Tensor, normed: Tensor, roots: Tensor) -> Tensor:
    """The gradient of x, from the gradient of `normed` = x r, which it overwrites."""
    along = (grad * normed).mean(-1, keepdim=True)
    return grad.addcmul_(normed, along, value=-1.0).mul_(roots)


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
        roots = _inverse_root(x, epsilon)
        normed = x * roots
        ctx.save_for_backward(normed, roots, weight)
        return normed if weight is None else normed * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        normed, roots, weight = ctx.saved_tensors
        to_x, to_weight, _ = ctx.needs_input_grad
        of_weight = torch.einsum("nd,nd->d", grad.flatten(0, -2), normed.flatten(0, -2)) if to_weight else None
        if not to_x:
            return None, of_weight, None
        return _unnormed(grad.clone() if weight is None else grad * weight, normed, roots), of_weight, None


def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    """x / √(mean x² + ε), times the weight if there is one."""
    if full_precision_on_cpu(x) and (weight is None or weight.dtype == x.dtype):
        return _Normed.apply(x, weight, epsilon)
    return F.rms_norm(x, x.shape[-1:], weight, epsilon)


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm, but faster on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.eps is not None
        return rms_norm(x, self.weight, self.eps)


# -- norm, rotation and mixture in one pass ----------------------------------------------------------------------------


def _rows(*tensors: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """Slices of all tensors, with as many rows as fit the cache; None stays None."""
    first = tensors[0]
    assert first is not None
    step = max(1, PIECE * torch.get_num_threads() // (first.numel() // max(1, len(first)) or 1))
    for start in range(0, len(first), step):
        yield tuple(None if tensor is None else tensor[start : start + step] for tensor in tensors)


def _turn(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, back: bool = False) -> None:
    """Rotates x [n, 2, H, K] by angles [n, 1, 1, K / 2] and writes it into `out`, which must not be x."""
    a, b = x.chunk(2, dim=-1)
    first, second = out.chunk(2, dim=-1)
    sign = -1.0 if back else 1.0
    torch.mul(a, cos, out=first).addcmul_(b, sin, value=-sign)
    torch.mul(b, cos, out=second).addcmul_(a, sin, value=sign)


class _Prepared(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv_N3HK: Tensor,
        weights_2K: Tensor | None,
        epsilon: float,
        cos: Tensor | None,
        sin: Tensor | None,
        values_NHK: Tensor | None,
        shares: Tensor | None,
    ) -> Tensor:
        out = torch.empty_like(qkv_N3HK)
        for x, y, c, s, other in _rows(qkv_N3HK, out, cos, sin, values_NHK):
            both = x[:, :2]
            if weights_2K is not None:
                both = (both * _inverse_root(both, epsilon)).mul_(weights_2K[:, None])
            if c is None:
                y[:, :2] = both
            else:
                _turn(both, y[:, :2], c, s)
            if other is None or shares is None:
                y[:, 2] = x[:, 2]
            else:
                torch.mul(x[:, 2], shares[0], out=y[:, 2]).addcmul_(other, shares[1])
        ctx.save_for_backward(qkv_N3HK, weights_2K, cos, sin, values_NHK, shares)
        ctx.epsilon = epsilon
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, weights, cos, sin, values, shares = ctx.saved_tensors
        to_qkv, to_values = torch.empty_like(qkv), None if values is None else torch.empty_like(values)
        to_weights = None if weights is None else torch.zeros_like(weights)
        to_shares = None if shares is None else torch.zeros_like(shares)
        for x, g, of_x, c, s, other, of_other in _rows(qkv, grad, to_qkv, cos, sin, values, to_values):
            both = of_x[:, :2]
            if c is None:
                both.copy_(g[:, :2])
            else:
                _turn(g[:, :2], both, c, s, back=True)
            if weights is not None and to_weights is not None:
                roots = _inverse_root(x[:, :2], ctx.epsilon)
                normed = x[:, :2] * roots
                to_weights += (both * normed).sum((0, 2))
                both.copy_(_unnormed(both * weights[:, None], normed, roots))
            if shares is None or to_shares is None:
                of_x[:, 2] = g[:, 2]
                continue
            to_shares[0] += (g[:, 2] * x[:, 2]).sum()
            to_shares[1] += (g[:, 2] * other).sum()
            torch.mul(g[:, 2], shares[0], out=of_x[:, 2])
            torch.mul(g[:, 2], shares[1], out=of_other)
        return to_qkv, to_weights, None, None, None, to_values, to_shares


def prepared(
    qkv: Tensor,
    norms: tuple[nn.Module, nn.Module] | None,
    turns: Rotation | None,
    values: Tensor | None = None,
    shares: Tensor | None = None,
) -> Tensor:
    """Queries, keys and values [..., 3, H, K] as attention reads them. `values` [..., H, K] are v', `shares` are λ."""
    first = None if norms is None else norms[0]
    if qkv.dim() == 4 and full_precision_on_cpu(qkv) and (first is None or isinstance(first, RMSNorm)):
        weights = None if norms is None else torch.stack([norm.get_parameter("weight") for norm in norms])
        epsilon = 0.0 if first is None else first.eps or 0.0
        return _in_one_pass(qkv, weights, epsilon, turns, None if shares is None else values, shares)
    q, k, v = qkv.unbind(-3)
    if norms is not None:
        q, k = norms[0](q), norms[1](k)
    if turns is not None:
        q, k = rotated(q, turns), rotated(k, turns)
    if shares is not None and values is not None:
        v = shares[0] * v + shares[1] * values
    return torch.stack([q, k, v], dim=-3)


def _in_one_pass(
    qkv: Tensor,
    weights: Tensor | None,
    epsilon: float,
    turns: Rotation | None,
    values: Tensor | None,
    shares: Tensor | None,
) -> Tensor:
    cos, sin = (None, None) if turns is None else (part.to(qkv.dtype)[:, None] for part in turns)
    return _Prepared.apply(qkv, weights, epsilon, cos, sin, values, shares)
