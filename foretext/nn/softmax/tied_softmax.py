"""Cross-entropy through a tied output layer, without ever holding all the logits.

P(u) = softmax(h W_eᵀ + b), where GPT has no b and BERT one. For a batch of 16,384 tokens and a vocabulary of 40,000 the
logits alone are 2.6 GB, and autograd would keep them twice. Here they are computed in place, 64 MiB at a time (smaller
chunks fit a cache better but make the products of few rows slower, by more), and the gradients with respect to h, W_e
and b are taken at once. The backward pass then only multiplies by the incoming gradient.

Adaptive embeddings and softmax for vocabularies of words (Grave et al. 2017; Baevski and Auli 2019; tied as in
Transformer-XL's released code).

The vocabulary, most frequent words first, is cut at `cutoffs` into a head and tails. A word of the head is predicted at
once, among the head's words and one further class for each tail; one of a tail by the tail's class times its
probability within the tail:

    P(w) = P_head(w)                               w in the head
    P(w) = P_head(tail i) · P_i(w)                 w in tail i

So a step computes the few thousand logits of the head for each token, and those of a tail only for the words in it. The
table of part i is width / divisorⁱ wide; with a divisor above 1 it is projected to the width where it is read, and
states are projected to it where it predicts: by the same matrix, but for the head, which has one of its own. All tables
are read and predict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

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


# -- adaptive embeddings and softmax -----------------------------------------------------------------------------------


PROJECTION_STD = 0.01  # of the projections at the start


class AdaptiveVocabulary(nn.Module):
    """Tables of the head and the tails, read as embeddings and compared with states as a softmax."""

    def __init__(self, size: int, width: int, cutoffs: tuple[int, ...], divisor: int, init_std: float) -> None:
        super().__init__()
        assert cutoffs and list(cutoffs) == sorted(set(cutoffs)) and cutoffs[0] > 0 and cutoffs[-1] < size
        self.width, self.init_std = width, init_std
        self.ends = (*cutoffs, size)
        widths = part_widths(width, len(self.ends), divisor)
        sizes = [end - start for start, end in zip((0, *cutoffs), self.ends)]
        self.tables = nn.ParameterList(torch.empty(n, w) for n, w in zip(sizes, widths))
        self.biases = nn.ParameterList(torch.zeros(n) for n in sizes)
        self.tails = nn.Parameter(torch.empty(len(cutoffs), widths[0]))  # a row for each tail, in the head's softmax
        self.tails_bias = nn.Parameter(torch.zeros(len(cutoffs)))
        self.projections = nn.ParameterList(torch.empty(width, w) for w in widths) if divisor > 1 else None
        self.head_projection = nn.Parameter(torch.empty(width, widths[0])) if divisor > 1 else None
        for table in (*self.tables, self.tails):
            nn.init.normal_(table, std=init_std)
        for name, parameter in self.named_parameters():
            if "projection" in name:
                nn.init.normal_(parameter, std=PROJECTION_STD)

    @property
    def starts(self) -> tuple[int, ...]:
        return (0, *self.ends[:-1])

    def forward(self, ids_N: Tensor) -> Tensor:
        """Embeddings, [N, width]."""
        found = self.tables[0].new_zeros(len(ids_N), self.width)
        for part, (start, end) in enumerate(zip(self.starts, self.ends)):
            chosen = ((ids_N >= start) & (ids_N < end)).nonzero().squeeze(1)
            rows = nn.functional.embedding(ids_N[chosen] - start, self.tables[part])
            if self.projections is not None:
                rows = rows @ self.projections[part].t()
            found = found.index_copy(0, chosen, rows)
        return found

    def _projected(self, h_ND: Tensor, part: int) -> Tensor:
        if self.projections is None:
            return h_ND
        own = self.head_projection if part == 0 else self.projections[part]
        assert own is not None
        return h_ND @ own

    def _head(self) -> tuple[Tensor, Tensor]:
        """Rows and biases of the head's softmax: its words, then the tails."""
        return torch.cat([self.tables[0], self.tails]), torch.cat([self.biases[0], self.tails_bias])

    def loss(self, h_ND: Tensor, targets_N: Tensor, weights_N: Tensor | None = None) -> Tensor:
        """The (weighted) sum over n of −log P(target_n)."""
        ends_P = torch.tensor(self.ends, device=targets_N.device)
        part_N = torch.bucketize(targets_N, ends_P, right=True)
        head = torch.where(part_N > 0, self.ends[0] + part_N - 1, targets_N)
        table, bias = self._head()
        total = tied_softmax_loss(self._projected(h_ND, 0), table, head, weights_N, bias)
        for part, start in enumerate(self.starts):
            chosen = (part_N == part).nonzero().squeeze(1)
            if part and len(chosen):
                total = total + tied_softmax_loss(
                    self._projected(h_ND[chosen], part),
                    self.tables[part],
                    targets_N[chosen] - start,
                    None if weights_N is None else weights_N[chosen],
                    self.biases[part],
                )
        return total

    def logits(self, h_ND: Tensor) -> Tensor:
        """log P of every word, [N, V]: as good as logits, and the softmax of them is P."""
        table, bias = self._head()
        head = torch.log_softmax(torch.addmm(bias, self._projected(h_ND, 0), table.t()), dim=1)
        found = [head[:, : self.ends[0]]]
        for part in range(1, len(self.ends)):
            own = torch.addmm(self.biases[part], self._projected(h_ND, part), self.tables[part].t())
            found.append(torch.log_softmax(own, dim=1) + head[:, self.ends[0] + part - 1, None])
        return torch.cat(found, dim=1)

    @torch.no_grad()
    def token_losses(self, h_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """−log P of each target, and the most likely word at each place, without gradients: for scoring."""
        losses, best = h_ND.new_zeros(len(h_ND)), torch.zeros_like(targets_N)
        together = max(1, CHUNK_ELEMENTS // self.ends[-1])
        for start in range(0, len(h_ND), together):
            rows = slice(start, start + together)
            logs = self.logits(h_ND[rows])
            losses[rows] = -logs.gather(1, targets_N[rows, None]).squeeze(1)
            best[rows] = logs.argmax(dim=1)
        return losses, best

    def grow(self, size: int) -> None:
        """Adds words, drawn like new ones, to the last tail."""
        more = size - self.ends[-1]
        table = nn.functional.pad(self.tables[-1].detach(), (0, 0, 0, more))
        nn.init.normal_(table[len(table) - more :], std=self.init_std)
        self.tables[-1] = nn.Parameter(table)
        self.biases[-1] = nn.Parameter(nn.functional.pad(self.biases[-1].detach(), (0, more)))
        self.ends = (*self.ends[:-1], size)


def part_widths(width: int, parts: int, divisor: int) -> list[int]:
    """Of the tables of the head and the tails."""
    return [width // divisor**part for part in range(parts)]


def adaptive_parameters(size: int, width: int, cutoffs: tuple[int, ...], divisor: int) -> int:
    """How many numbers an `AdaptiveVocabulary` learns."""
    widths = part_widths(width, len(cutoffs) + 1, divisor)
    sizes = [end - start for start, end in zip((0, *cutoffs), (*cutoffs, size))]
    tables = sum(n * (w + 1) for n, w in zip(sizes, widths)) + len(cutoffs) * (widths[0] + 1)
    return tables + (width * (sum(widths) + widths[0]) if divisor > 1 else 0)
