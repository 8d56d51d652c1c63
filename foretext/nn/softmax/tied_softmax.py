"""Cross-entropy through a tied output layer, without ever holding all the logits.

P(u) = softmax(h W_eᵀ + b), where GPT has no b and BERT one. For a batch of 16,384 tokens and a vocabulary of 40,000 the
logits alone are 2.6 GB, and autograd would keep them twice. Here they are computed in place, 64 MiB at a time (smaller
chunks fit a cache better but make the products of few rows slower, by more), and the gradients with respect to h, W_e
and b are taken at once. The backward pass then only multiplies by the incoming gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 24  # logits at a time: 64 MiB of float32
LEAST_ROWS = 128
TINY = 1e-30  # below this a probability's logarithm is taken from the logits


class _Gradients(NamedTuple):
    """Those that are wanted."""

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
        if self.table_VD is not None:  # beta 0: the first product is written, the others are added
            h = h_ND[rows] if weights is None else h_ND[rows] * weights[:, None]
            self.table_VD.addmm_(errors.t(), h, beta=0 if rows.start == 0 else 1)
        if self.bias_V is not None:
            self.bias_V.addmv_(errors.t(), errors.new_ones(len(errors)) if weights is None else weights)


class _TiedSoftmaxLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h_ND: Tensor,
        table_VD: Tensor,
        targets_N: Tensor,
        weights_N: Tensor | None,
        bias_V: Tensor | None,
        learning: bool,
    ) -> Tensor:
        # needs_input_grad is true for a parameter even under no_grad, where the gradients would be for nobody.
        of_h, of_table, _, _, of_bias, _ = (learning and needed for needed in ctx.needs_input_grad)
        grads = _Gradients(
            torch.empty_like(h_ND) if of_h else None,
            torch.empty_like(table_VD) if of_table and len(h_ND) else torch.zeros_like(table_VD) if of_table else None,
            torch.zeros_like(bias_V) if of_bias and bias_V is not None else None,
        )
        total = h_ND.new_zeros(())
        for rows in _chunks(h_ND.shape[0], table_VD.shape[0]):
            probabilities, losses = _softmax_rows(h_ND[rows], table_VD, targets_N[rows], bias_V)
            weights = None if weights_N is None else weights_N[rows]
            total += losses.sum() if weights is None else torch.dot(losses, weights)
            if of_h or of_table or of_bias:
                probabilities.scatter_add_(1, targets_N[rows, None], -torch.ones_like(probabilities[:, :1]))
                grads.add(rows, probabilities, h_ND, table_VD, weights)
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_h, grad_table, grad_bias = (None if saved is None else saved.mul_(grad) for saved in ctx.saved_tensors)
        return grad_h, grad_table, None, None, grad_bias, None


def _chunks(rows: int, vocabulary: int) -> list[slice]:
    size = max(LEAST_ROWS, CHUNK_ELEMENTS // vocabulary)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _logits(h_ND: Tensor, table_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    return torch.mm(h_ND, table_VD.t()) if bias_V is None else torch.addmm(bias_V, h_ND, table_VD.t())


def _softmax_rows(
    h_ND: Tensor, table_VD: Tensor, targets_N: Tensor, bias_V: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Probabilities [n, V] and each row's −log p(target), exact even where that probability underflows."""
    logits = _logits(h_ND, table_VD, bias_V)
    probabilities = torch.softmax(logits, dim=1, out=logits)
    wanted = probabilities.gather(1, targets_N[:, None]).squeeze(1)
    losses = -wanted.log()
    if bool((wanted < TINY).any()):
        small = (wanted < TINY).nonzero().squeeze(1)
        again = torch.log_softmax(_logits(h_ND[small], table_VD, bias_V), dim=1)
        losses[small] = -again.gather(1, targets_N[small, None]).squeeze(1)
    return probabilities, losses


def tied_softmax_loss(
    h_ND: Tensor,
    table_VD: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None = None,
    bias_V: Tensor | None = None,
) -> Tensor:
    """The (weighted) sum over n of −log softmax(h_n W_eᵀ + b)[target_n]."""
    return _TiedSoftmaxLoss.apply(h_ND, table_VD, targets_N, weights_N, bias_V, torch.is_grad_enabled())


@torch.no_grad()
def tied_token_losses(
    h_ND: Tensor, table_VD: Tensor, targets_N: Tensor, bias_V: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """−log p of each target, and the most likely token at each place, without gradients: for scoring."""
    losses, best = h_ND.new_zeros(len(h_ND)), torch.zeros_like(targets_N)
    for rows in _chunks(len(h_ND), len(table_VD)):
        probabilities, losses[rows] = _softmax_rows(h_ND[rows], table_VD, targets_N[rows], bias_V)
        best[rows] = probabilities.argmax(dim=1)
    return losses, best


@dataclass(frozen=True)
class TiedSoftmax:
    """The output layer of most: states, through `before` if there is a head, against a table of rows and its bias."""

    table_VD: Tensor
    bias_V: Tensor | None = None
    before: Callable[[Tensor], Tensor] | None = None

    def _states(self, h_ND: Tensor) -> Tensor:
        return h_ND if self.before is None else self.before(h_ND)

    def loss(self, h_ND: Tensor, targets_N: Tensor, weights_N: Tensor | None = None) -> Tensor:
        return tied_softmax_loss(self._states(h_ND), self.table_VD, targets_N, weights_N, self.bias_V)

    def token_losses(self, h_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        return tied_token_losses(self._states(h_ND), self.table_VD, targets_N, self.bias_V)

    def logits(self, h_ND: Tensor) -> Tensor:
        return _logits(self._states(h_ND), self.table_VD, self.bias_V)
