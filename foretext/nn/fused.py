"""Faster CPU versions of what PyTorch does slowly: dropout, linear layers, the feed-forward part, the softmax over a
vocabulary.

Tensors on other devices and of other precisions use PyTorch's own.

Dropout. PyTorch draws one Bernoulli number for each element on a CPU, which takes longer than the layer it protects.
Here sixteen random bits decide each element: one draw of the generator serves four. The probability of dropping is
therefore the nearest multiple of 1/65536 (.1 becomes .100006) and the survivors are scaled by that exact probability,
so the expectation is unchanged. The generator is torch's own, so a seed fixes the masks. Other devices use their own
fused kernels.

Linear, x Wᵀ + b. Over many rows the gradient of a weight is taken the way round that has its narrow side first (a tenth
faster where the layer widens; over few rows it is not, and what comes out has to be turned), the gradient of a bias as
a product with ones (half the time of a sum over rows).

Feed-forward, gelu(x W₁ᵀ + b₁) W₂ᵀ + b₂. PyTorch's GELU in the tanh form spends four times as long as its own tanh,
forward and again backward, and every bias and its gradient is a pass over memory of its own. Here bias, GELU and the
derivative of GELU are taken together, a few rows at a time so that they stay in the cache. With the logistic function
σ, and y = 2 √(2/π) x in place of x, which saves a pass (the factor goes in with the bias and out with the second
product):

    gelu(x) = x / 2 · (1 + tanh u) = x σ(z),   z = 2u = y + c y³,   c = .044715 / (8/π)
    gelu'(x) = σ + (1 − σ) · y σ · z'(y) = σ + (1 − σ) (y σ + 3 c y² · y σ)

The derivative is kept instead of x, so that the backward pass only multiplies by it. BERT's GELU is the exact one:

    gelu(x) = x Φ(x),   gelu'(x) = Φ(x) + x φ(x),   Φ, φ: the normal distribution and its density

Cross-entropy through a tied output layer, without ever holding all the logits (on any device).

P(u) = softmax(h W_eᵀ + b), where GPT has no b and BERT one. For a batch of 16,384 tokens and a vocabulary of 40,000 the
logits alone are 2.6 GB, and autograd would keep them twice. Here they are computed in place, 64 MiB at a time (smaller
chunks fit a cache better but make the products of few rows slower, by more), and the gradients with respect to h, W_e
and b are taken at once. The backward pass then only multiplies by the incoming gradient.

Soft-capped logits (Gemma 2, 2024) are c tanh(z / c) instead of z, so that all stay between −c and c. The gradient of z
is multiplied by 1 − tanh²(z / c).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def full_precision_on_cpu(x: Tensor) -> bool:
    """float32, in which models run, and float64, in which tests compare the mathematics of the same code."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


# -- dropout -----------------------------------------------------------------------------------------------------------

_LEVELS = 1 << 16


def keep_mask(shape: tuple[int, ...] | torch.Size, p: float, dtype: torch.dtype | None = None) -> Tensor:
    """A float mask of zeros (probability p) and 1 / (1 − p), on the CPU."""
    threshold = min(round(p * _LEVELS), _LEVELS - 1)
    mask = torch.empty(shape, dtype=dtype)
    words = torch.empty((mask.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: mask.numel()].view(shape)
    return torch.ge(bits, threshold - _LEVELS // 2, out=mask).mul_(_LEVELS / (_LEVELS - threshold))


class _Dropout(torch.autograd.Function):
    """dropout(x), or residual + dropout(x) in one pass over memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, residual: Tensor | None) -> Tensor:
        mask = keep_mask(x.shape, p, x.dtype)
        ctx.save_for_backward(mask)
        return x * mask if residual is None else torch.addcmul(residual, x, mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        return grad * mask, None, grad if ctx.needs_input_grad[2] else None


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    if not training or p == 0.0:
        return x
    return _Dropout.apply(x, p, None) if full_precision_on_cpu(x) else F.dropout(x, p)


def add_dropped(residual: Tensor, x: Tensor, p: float, training: bool) -> Tensor:
    """residual + dropout(x)."""
    if training and p > 0.0 and full_precision_on_cpu(x):
        return _Dropout.apply(x, p, residual)
    return residual + F.dropout(x, p, training)


# -- linear ------------------------------------------------------------------------------------------------------------

MANY_ROWS = 3000


def linear(x_ND: Tensor, layer: nn.Linear) -> Tensor:
    """What `layer` computes."""
    if full_precision_on_cpu(x_ND) and x_ND.dim() == 2 and x_ND.dtype == layer.weight.dtype:
        return _Linear.apply(x_ND, layer.weight, layer.bias)
    return F.linear(x_ND, layer.weight, layer.bias)


def weight_gradient(grad_NO: Tensor, x_NI: Tensor) -> Tensor:
    """gradᵀ x, [O, I]."""
    if grad_NO.shape[1] > x_NI.shape[1] and len(x_NI) >= MANY_ROWS:
        return torch.mm(x_NI.t(), grad_NO).t()
    return torch.mm(grad_NO.t(), x_NI)


def bias_gradient(grad_NO: Tensor) -> Tensor:
    """The sum over rows, [O]."""
    return torch.mm(grad_NO.new_ones(1, grad_NO.shape[0]), grad_NO).squeeze(0)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        grad = grad.contiguous()
        return (
            torch.mm(grad, weight) if to_x else None,
            weight_gradient(grad, x) if to_weight else None,
            bias_gradient(grad) if to_bias else None,
        )


# -- feed-forward ------------------------------------------------------------------------------------------------------

SCALE = 2.0 * math.sqrt(2.0 / math.pi)
CUBE = 0.044715 / SCALE**2
PIECE = 1 << 16  # elements that a thread processes at once

Gelu = Literal["tanh", "erf"]
APPROXIMATE = {"tanh": "tanh", "erf": "none"}  # PyTorch's names for them


def feed_forward(
    x_ND: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, gelu: Gelu = "tanh"
) -> Tensor:
    """gelu(x upᵀ + up_bias) downᵀ + down_bias."""
    if full_precision_on_cpu(x_ND) and x_ND.dim() == 2 and x_ND.dtype == up.dtype:
        return _FeedForward.apply(x_ND, up, up_bias, down, down_bias, gelu, torch.is_grad_enabled())
    return F.linear(F.gelu(F.linear(x_ND, up, up_bias), approximate=APPROXIMATE[gelu]), down, down_bias)


def _pieces(*wide: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """A few rows of each at a time."""
    return zip(*(each.split(max(1, PIECE * torch.get_num_threads() // wide[0].shape[1])) for each in wide))


def _activate(y: Tensor, slope: Tensor, sigma: Tensor) -> None:
    """Replaces y by y σ, and writes gelu'(x) to `slope`; `sigma` is working space."""
    torch.mul(y, y, out=slope)
    torch.addcmul(y, slope, y, value=CUBE, out=sigma).sigmoid_()
    y.mul_(sigma)
    torch.addcmul(y, slope, y, value=3.0 * CUBE, out=slope)
    torch.lerp(slope, slope.new_ones(()), sigma, out=slope)


def _activate_exactly(x: Tensor, slope: Tensor, working: Tensor) -> None:
    """Replaces x by gelu(x), and writes gelu'(x) to `slope`."""
    torch.mul(x, math.sqrt(0.5), out=slope).erf_().add_(1.0).mul_(0.5)
    torch.mul(x, x, out=working).mul_(-0.5).exp_().mul_(x)
    x.mul_(slope)
    slope.add_(working, alpha=1.0 / math.sqrt(2.0 * math.pi))


ACTIVATIONS = {"tanh": (_activate, SCALE), "erf": (_activate_exactly, 1.0)}  # and by what they want x multiplied


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, gelu: Gelu, learning: bool
    ) -> Tensor:
        inner = torch.mm(x, up.t())
        if learning:
            activate, scale = ACTIVATIONS[gelu]
            slope = torch.empty_like(inner)
            scaled_bias = scale * up_bias
            working: Tensor | None = None
            for part, derivative in _pieces(inner, slope):
                working = torch.empty_like(part) if working is None else working[: part.shape[0]]
                activate(torch.add(scaled_bias, part, alpha=scale, out=part), derivative, working)
            ctx.save_for_backward(x, up, down, inner, slope)
            ctx.scale = scale
            return torch.addmm(down_bias, inner, down.t(), alpha=1.0 / scale)
        inner = F.gelu(inner.add_(up_bias), approximate=APPROXIMATE[gelu])
        return torch.addmm(down_bias, inner, down.t())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, up, down, inner, slope = ctx.saved_tensors
        to_x, to_up, to_up_bias, to_down, to_down_bias, *_ = ctx.needs_input_grad
        grad = grad.contiguous()
        grad_down = weight_gradient(grad, inner).mul_(1.0 / ctx.scale) if to_down else None
        grad_down_bias = bias_gradient(grad) if to_down_bias else None
        if not (to_x or to_up or to_up_bias):
            return None, None, None, grad_down, grad_down_bias, None, None
        grad_inner = torch.mm(grad, down)
        grad_up_bias, ones = up.new_zeros(up.shape[0]), up.new_ones(len(x))
        for part, derivative in _pieces(grad_inner, slope):
            grad_up_bias.addmv_(part.mul_(derivative).t(), ones[: len(part)])
        grad_up = weight_gradient(grad_inner, x) if to_up else None
        grad_x = torch.mm(grad_inner, up) if to_x else None
        return grad_x, grad_up, grad_up_bias if to_up_bias else None, grad_down, grad_down_bias, None, None


# -- the tied softmax --------------------------------------------------------------------------------------------------

CHUNK_ELEMENTS = 1 << 24  # logits at a time: 64 MiB of float32
LEAST_ROWS = 128
TINY = 1e-30  # below this a probability's logarithm is taken from the logits


class _Gradients(NamedTuple):
    """The requested gradients."""

    h_ND: Tensor | None
    table_VD: Tensor | None
    bias_V: Tensor | None

    def add(self, rows: slice, errors: Tensor, h_ND: Tensor, table_VD: Tensor, weights: Tensor | None) -> None:
        """What these rows have a part in, by the gradients of their logits (`errors`, before any weight). The weights
        go onto the narrow side of each product: the same sums, without a pass over the wide one."""
        if self.h_ND is not None:
            torch.mm(errors, table_VD, out=self.h_ND[rows])
            if weights is not None:
                self.h_ND[rows].mul_(weights[:, None])
        if self.table_VD is not None:  # with beta 0 the first product is written, the others are added
            h = h_ND[rows] if weights is None else h_ND[rows] * weights[:, None]
            self.table_VD.addmm_(errors.t(), h, beta=0 if rows.start == 0 else 1)
        if self.bias_V is not None:
            self.bias_V.addmv_(errors.t(), errors.new_ones(len(errors)) if weights is None else weights)


def _gradients(h_ND: Tensor | None, table_VD: Tensor | None, bias_V: Tensor | None, rows: int) -> _Gradients:
    """Room for the gradients of the given tensors. The first rows overwrite the table's; without rows it is zero."""
    of_table = None
    if table_VD is not None:
        of_table = torch.empty_like(table_VD) if rows else torch.zeros_like(table_VD)
    return _Gradients(
        None if h_ND is None else torch.empty_like(h_ND), of_table, None if bias_V is None else torch.zeros_like(bias_V)
    )


class _TiedSoftmaxLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h_ND: Tensor,
        table_VD: Tensor,
        targets_N: Tensor,
        weights_N: Tensor | None,
        bias_V: Tensor | None,
        cap: float,
        learning: bool,
    ) -> Tensor:
        # needs_input_grad is true for a parameter even under no_grad, where the gradients would be for nobody.
        of_h, of_table, _, _, of_bias, *_ = (learning and needed for needed in ctx.needs_input_grad)
        grads = _gradients(
            h_ND if of_h else None, table_VD if of_table else None, bias_V if of_bias else None, len(h_ND)
        )
        total = h_ND.new_zeros(())
        for rows in _chunks(h_ND.shape[0], table_VD.shape[0]):
            logits, slopes = _capped_logits(h_ND[rows], table_VD, bias_V, cap, learning)
            probabilities, losses = _softmax_rows(logits, h_ND[rows], table_VD, targets_N[rows], bias_V, cap)
            weights = None if weights_N is None else weights_N[rows]
            total += losses.sum() if weights is None else torch.dot(losses, weights)
            if of_h or of_table or of_bias:
                probabilities.scatter_add_(1, targets_N[rows, None], -torch.ones_like(probabilities[:, :1]))
                if slopes is not None:
                    probabilities.mul_(slopes)
                grads.add(rows, probabilities, h_ND, table_VD, weights)
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_h, grad_table, grad_bias = (
            None if gradient is None else gradient.mul_(grad) for gradient in ctx.saved_tensors
        )
        return grad_h, grad_table, None, None, grad_bias, None, None


def _chunks(rows: int, vocabulary: int) -> list[slice]:
    size = max(LEAST_ROWS, CHUNK_ELEMENTS // vocabulary)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _logits(h_ND: Tensor, table_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    return torch.mm(h_ND, table_VD.t()) if bias_V is None else torch.addmm(bias_V, h_ND, table_VD.t())


def _capped_logits(
    h_ND: Tensor, table_VD: Tensor, bias_V: Tensor | None, cap: float, learning: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Logits, soft-capped unless `cap` is 0. If `learning`, also the derivative of the capped logits."""
    if not cap:
        return _logits(h_ND, table_VD, bias_V), None
    logits = _logits(h_ND / cap, table_VD, None if bias_V is None else bias_V / cap).tanh_()
    slopes = torch.addcmul(logits.new_ones(()), logits, logits, value=-1.0) if learning else None
    return logits.mul_(cap), slopes


def _softmax_rows(
    logits: Tensor, h_ND: Tensor, table_VD: Tensor, targets_N: Tensor, bias_V: Tensor | None, cap: float
) -> tuple[Tensor, Tensor]:
    """Probabilities [n, V], which overwrite the logits, and each row's −log p(target), exact even if that probability
    underflows."""
    probabilities = torch.softmax(logits, dim=1, out=logits)
    wanted = probabilities.gather(1, targets_N[:, None]).squeeze(1)
    losses = -wanted.log()
    if bool((wanted < TINY).any()):
        small = (wanted < TINY).nonzero().squeeze(1)
        again = torch.log_softmax(_capped_logits(h_ND[small], table_VD, bias_V, cap)[0], dim=1)
        losses[small] = -again.gather(1, targets_N[small, None]).squeeze(1)
    return probabilities, losses


@dataclass(frozen=True)
class TiedSoftmax:
    """The output layer of most systems: states (passed through `before` if there is a head) against a table of rows and
    its bias."""

    table_VD: Tensor
    bias_V: Tensor | None = None
    before: Callable[[Tensor], Tensor] | None = None
    cap: float = 0.0  # the soft cap of logits; 0: none

    def _states(self, h_ND: Tensor) -> Tensor:
        return h_ND if self.before is None else self.before(h_ND)

    def loss(self, h_ND: Tensor, targets_N: Tensor, weights_N: Tensor | None = None) -> Tensor:
        """The (weighted) sum over n of −log softmax(h_n W_eᵀ + b)[target_n]."""
        states, learning = self._states(h_ND), torch.is_grad_enabled()
        return _TiedSoftmaxLoss.apply(states, self.table_VD, targets_N, weights_N, self.bias_V, self.cap, learning)

    @torch.no_grad()
    def token_losses(self, h_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """−log p of each target, and the most likely token at each position, without gradients: for scoring."""
        h_ND = self._states(h_ND)
        losses, best = h_ND.new_zeros(len(h_ND)), torch.zeros_like(targets_N)
        for rows in _chunks(len(h_ND), len(self.table_VD)):
            logits, _ = _capped_logits(h_ND[rows], self.table_VD, self.bias_V, self.cap)
            probabilities, losses[rows] = _softmax_rows(
                logits, h_ND[rows], self.table_VD, targets_N[rows], self.bias_V, self.cap
            )
            best[rows] = probabilities.argmax(dim=1)
        return losses, best

    def logits(self, h_ND: Tensor) -> Tensor:
        """[N, V]."""
        return _capped_logits(self._states(h_ND), self.table_VD, self.bias_V, self.cap)[0]
