"""Adaptive embeddings and softmax for vocabularies of words (Grave et al. 2017; Baevski and Auli 2019; tied as in
Transformer-XL's released code).

The vocabulary, most frequent words first, is cut at `cutoffs` into a head and tails. A word of the head is predicted
directly, among the head's words and one extra class per tail. A word of a tail has the probability of the tail's class
times its own within the tail:

    P(w) = P_head(w)                               w in the head
    P(w) = P_head(tail i) · P_i(w)                 w in tail i

So a step computes the few thousand logits of the head for each token, and those of a tail only for the words in it. The
table of part i has width / divisorⁱ. With a divisor above 1, embeddings are projected up to the full width, and states
down to the table's width for prediction. Both projections use the same matrix, except that the head has a separate one.
All tables serve as embeddings and as output layers.
"""

from functools import partial

import torch
from torch import Tensor, nn

from foretext.errors import refuse_if
from foretext.nn.fused import CHUNK_ELEMENTS, TiedSoftmax

PROJECTION_STD = 0.01  # of the initial projections


class AdaptiveVocabulary(nn.Module):
    """Tables of the head and the tails, used as embeddings and as a softmax."""

    def __init__(self, size: int, width: int, cutoffs: tuple[int, ...], divisor: int, init_std: float) -> None:
        super().__init__()
        assert cutoffs and list(cutoffs) == sorted(set(cutoffs)) and cutoffs[0] > 0 and cutoffs[-1] < size
        self.width, self.init_std = width, init_std
        self.ends = (*cutoffs, size)
        widths = part_widths(width, len(self.ends), divisor)
        sizes = [end - start for start, end in zip((0, *cutoffs), self.ends)]
        self.tables = nn.ParameterList(torch.empty(n, w) for n, w in zip(sizes, widths))
        self.biases = nn.ParameterList(torch.zeros(n) for n in sizes)
        self.tails = nn.Parameter(torch.empty(len(cutoffs), widths[0]))  # one row per tail, in the head's softmax
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
        embedded_ND = self.tables[0].new_zeros(len(ids_N), self.width)
        for part, (start, end) in enumerate(zip(self.starts, self.ends)):
            chosen = ((ids_N >= start) & (ids_N < end)).nonzero().squeeze(1)
            rows = nn.functional.embedding(ids_N[chosen] - start, self.tables[part])
            if self.projections is not None:
                rows = rows @ self.projections[part].t()
            embedded_ND = embedded_ND.index_copy(0, chosen, rows)
        return embedded_ND

    def _softmax(self, part: int) -> TiedSoftmax:
        """The softmax within a tail; for part 0, that of the head over its words and the tails."""
        projection = None if self.projections is None else self.projections[part] if part else self.head_projection
        before = None if projection is None else partial(_projected, by_DW=projection)
        if part:
            return TiedSoftmax(self.tables[part], self.biases[part], before)
        head = torch.cat([self.tables[0], self.tails]), torch.cat([self.biases[0], self.tails_bias])
        return TiedSoftmax(*head, before)

    def loss(self, h_ND: Tensor, targets_N: Tensor, weights_N: Tensor | None = None) -> Tensor:
        """The (weighted) sum over n of −log P(target_n)."""
        ends_P = torch.tensor(self.ends, device=targets_N.device)
        part_N = torch.bucketize(targets_N, ends_P, right=True)
        head = torch.where(part_N > 0, self.ends[0] + part_N - 1, targets_N)
        total = self._softmax(0).loss(h_ND, head, weights_N)
        for part, start in enumerate(self.starts):
            chosen = (part_N == part).nonzero().squeeze(1)
            if part and len(chosen):
                weights = None if weights_N is None else weights_N[chosen]
                total = total + self._softmax(part).loss(h_ND[chosen], targets_N[chosen] - start, weights)
        return total

    def logits(self, h_ND: Tensor) -> Tensor:
        """log P of every word, [N, V]: valid as logits, since their softmax is P."""
        head = torch.log_softmax(self._softmax(0).logits(h_ND), dim=1)
        log_probs = [head[:, : self.ends[0]]]
        for part in range(1, len(self.ends)):
            tail = torch.log_softmax(self._softmax(part).logits(h_ND), dim=1)
            log_probs.append(tail + head[:, self.ends[0] + part - 1, None])
        return torch.cat(log_probs, dim=1)

    @torch.no_grad()
    def token_losses(self, h_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """−log P of each target, and the most likely word at each position, without gradients: for scoring."""
        losses, best = h_ND.new_zeros(len(h_ND)), torch.zeros_like(targets_N)
        together = max(1, CHUNK_ELEMENTS // self.ends[-1])
        for start in range(0, len(h_ND), together):
            rows = slice(start, start + together)
            logs = self.logits(h_ND[rows])
            losses[rows] = -logs.gather(1, targets_N[rows, None]).squeeze(1)
            best[rows] = logs.argmax(dim=1)
        return losses, best

    def grow(self, size: int) -> None:
        """Adds randomly drawn words to the last tail."""
        more = size - self.ends[-1]
        table = nn.functional.pad(self.tables[-1].detach(), (0, 0, 0, more))
        nn.init.normal_(table[len(table) - more :], std=self.init_std)
        self.tables[-1] = nn.Parameter(table)
        self.biases[-1] = nn.Parameter(nn.functional.pad(self.biases[-1].detach(), (0, more)))
        self.ends = (*self.ends[:-1], size)


def _projected(h_ND: Tensor, by_DW: Tensor) -> Tensor:
    return h_ND @ by_DW


def part_widths(width: int, parts: int, divisor: int) -> list[int]:
    """The widths of the tables of the head and the tails."""
    return [width // divisor**part for part in range(parts)]


def adaptive_parameters(size: int, width: int, cutoffs: tuple[int, ...], divisor: int) -> int:
    """How many numbers an `AdaptiveVocabulary` learns."""
    widths = part_widths(width, len(cutoffs) + 1, divisor)
    sizes = [end - start for start, end in zip((0, *cutoffs), (*cutoffs, size))]
    tables = sum(n * (w + 1) for n, w in zip(sizes, widths)) + len(cutoffs) * (widths[0] + 1)
    return tables + (width * (sum(widths) + widths[0]) if divisor > 1 else 0)


def check_cutoffs(size: int, width: int, cutoffs: tuple[int, ...], divisor: int) -> None:
    """UserError for values of `model.cutoffs` and `model.divisor` that an `AdaptiveVocabulary` cannot have."""
    given = ",".join(str(cut) for cut in cutoffs)
    refuse_if(
        list(cutoffs) != sorted(set(cutoffs)) or any(cut < 1 for cut in cutoffs),
        f"model.cutoffs={given}: give increasing ids, from 1 on",
    )
    refuse_if(
        cutoffs and size and cutoffs[-1] >= size,
        f"model.cutoffs={given}: the vocabulary has only {size:,} pieces; give ids below that, or none for a plain "
        "softmax: --set model.cutoffs=",
    )
    refuse_if(
        not cutoffs and divisor > 1,
        f"model.divisor={divisor} is for an adaptive softmax; set model.cutoffs too",
    )
    refuse_if(
        width // divisor ** len(cutoffs) < 1,
        f"model.divisor={divisor}: a width of {width} cannot be divided that often",
    )
