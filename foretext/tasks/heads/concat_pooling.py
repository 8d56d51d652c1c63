"""ULMFiT's classifier (Howard and Ruder 2018): a whole document, read in pieces, as [h_T; maxpool(H); meanpool(H)].

The deciding word may be anywhere in a document, and an LSTM's last state has forgotten most of them. So the last state
is joined by the maximum and the mean of each unit over all tokens. A document may have thousands of tokens, too many
for gradients. BPT3C reads it in pieces, each starting from the state where the previous one ended. All states count in
both pools, but gradients flow only within a piece, and only in the last pieces.

Pieces are counted from the end of each document, so the short one comes first. Then all documents of a batch end
together, the pieces with gradients are the same columns for all, and neither padding nor the other documents of a batch
move a border.

On a trunk with a bounded context (GPT, BERT), the layout has cut the document to the context. It is read at once, and
the state that represents it (GPT: at the extract token, BERT: at `[CLS]`) replaces h_T.

On top are two blocks of batch norm, dropout and a linear layer, with a ReLU in between. Batch norm depends on the other
rows of a micro-batch: this is the only task whose gradient depends on how a step is split.

With λ > 0 the language-model loss of GPT's L3 is added, over the tokens with gradients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, LossSum, Outcome, detached
from foretext.nn.fused import dropout
from foretext.nn.recurrent.awd_lstm import activation_penalty, penalty_counts, temporal_penalty
from foretext.nn.trunk import Trunk, reads_on
from foretext.objectives.base import Examples
from foretext.plan import ConcatPoolingConfig
from foretext.tasks.files.rows import UNORDERED
from foretext.tasks.heads.supervised import (
    Example,
    SupervisedTask,
    both_orders,
    next_tokens,
    real_places,
    sequence_lm_loss,
)
from foretext.text.order import LengthOrder, SampleOrder

SORTED_TOGETHER = 8  # batches


# -- reading -----------------------------------------------------------------------------------------------------------


def right_aligned(batch: Batch) -> Batch:
    """The real tokens and the target of each, aligned at the right end and padded at the left to the longest row."""
    real_BT = real_places(batch)
    lengths_B = real_BT.sum(1)
    longest = max(1, int(lengths_B.max()))
    mask_BT = torch.arange(longest, device=real_BT.device) >= longest - lengths_B[:, None]
    ids_BT = batch.ids_BT.new_zeros(mask_BT.shape).masked_scatter(mask_BT, batch.ids_BT[real_BT])
    return Batch(ids_BT, mask_BT, targets_BT=next_tokens(ids_BT, mask_BT))


def learned_from(length: int, piece: int, learned: int) -> int:
    """The first column with gradients: as many whole pieces as lie within the last `learned` columns, at least one."""
    return max(0, length - piece * max(1, learned // piece))


@dataclass(frozen=True)
class RunningPool:
    """The pools of each document over the pieces read so far."""

    last_BD: Tensor
    largest_BD: Tensor  # −∞ if nothing was read
    sum_BD: Tensor
    count_B: Tensor

    @classmethod
    def of(cls, top_BTD: Tensor, mask_BT: Tensor) -> RunningPool:
        padding = ~mask_BT[..., None]
        largest_BD = top_BTD.masked_fill(padding, -math.inf).max(1).values
        return cls(top_BTD[:, -1], largest_BD, top_BTD.masked_fill(padding, 0.0).sum(1), mask_BT.sum(1))

    def then(self, next: RunningPool) -> RunningPool:
        largest_BD = torch.maximum(self.largest_BD, next.largest_BD)
        return RunningPool(next.last_BD, largest_BD, self.sum_BD + next.sum_BD, self.count_B + next.count_B)

    def pooled(self) -> Tensor:
        """[B, 3 · D]; zeros for a document without tokens."""
        empty_B = self.count_B == 0
        mean_BD = self.sum_BD / self.count_B.clamp(min=1)[:, None]
        joined = torch.cat([self.last_BD, self.largest_BD, mean_BD], dim=1)
        return joined.masked_fill(empty_B[:, None], 0.0)


def read_pieces(trunk: Trunk, document: Batch, piece: int, learned: int) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Top states, mask and whether they have gradients, piece by piece, for documents that end together."""
    assert document.mask_BT is not None
    length = document.ids_BT.shape[1]
    state = trunk.new_state(len(document.ids_BT))
    end = (length - 1) % piece + 1
    start = 0
    while start < length:
        learns = torch.is_grad_enabled() and start >= learned_from(length, piece, learned)
        mask_BT = document.mask_BT[:, start:end]
        with torch.set_grad_enabled(learns):
            hidden = trunk(Batch(document.ids_BT[:, start:end], mask_BT), state)
        state = detached(hidden.state)
        yield hidden.top, mask_BT, learns
        start, end = end, end + piece


# -- the head ----------------------------------------------------------------------------------------------------------


class RowNorm(nn.BatchNorm1d):
    """Batch norm. A row alone in its batch has no variance and is normalised as in prediction."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


class PoolingHead(nn.Module):
    """Two blocks, each x ↦ W dropout(norm(x)) + b, with a ReLU in between."""

    def __init__(self, inputs: int, outputs: int, config: ConcatPoolingConfig) -> None:
        super().__init__()
        widths = [inputs, config.hidden, outputs]
        self.dropouts = (config.dropout, config.hidden_dropout)
        self.norms = nn.ModuleList(RowNorm(width) for width in widths[:-1])
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for number, (norm, linear, p) in enumerate(zip(self.norms, self.linears, self.dropouts)):
            x = linear(dropout(norm(torch.relu(x) if number else x), p, self.training))
        return x


class ConcatPoolingTask(SupervisedTask):
    """Any of the kinds in `rows.KINDS`, on any trunk; on one that carries a state, over sequences of any length."""

    norms_rows = True

    def __init__(
        self, kind: str, classes: int, width: int, config: ConcatPoolingConfig, lm_weight: float = 0.0
    ) -> None:
        super().__init__(kind, classes, width, lm_weight, p=0.0)
        self.config, self.width = config, width
        self.head = cast(nn.Linear, PoolingHead(3 * width, self.head.out_features, config))
        penalties = {"activation": config.activation, "temporal": config.temporal}
        self.weights |= {name: weight for name, weight in penalties.items() if weight}

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        """Documents of similar length together, as in the released code: a batch takes as many steps as its longest
        document has tokens. Sorting is over a few batches at a time, so that documents meet others in each epoch."""
        lengths = [examples.example(0, index).tokens for index in range(len(examples))]
        return LengthOrder(lengths, batch_size, seed, SORTED_TOGETHER)

    def learned_tokens(self, example: Example) -> int:
        most = self.config.piece * max(1, self.config.learned // self.config.piece)
        return sum(min(len(sequence.ids), most) for sequence in example.sequences)

    def counts(self, batch: Batch) -> dict[str, float]:
        activation, temporal = penalty_counts(self._learned(right_aligned(batch)), self.width)
        counted = super().counts(batch) | {"activation": activation, "temporal": temporal}
        return {name: counted[name] for name in self.weights}

    def _learned(self, document: Batch) -> Batch:
        """The columns with gradients."""
        assert document.mask_BT is not None and document.targets_BT is not None
        first = learned_from(document.ids_BT.shape[1], self.config.piece, self.config.learned)
        parts = (document.ids_BT, document.mask_BT, document.targets_BT)
        ids_BT, mask_BT, targets_BT = (part[:, first:] for part in parts)
        return Batch(ids_BT, mask_BT, targets_BT=targets_BT)

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        document = right_aligned(batch)
        pool, top_BTD = self._in_pieces(trunk, document) if reads_on(trunk) else self._at_once(trunk, batch, document)
        pooled = pool.pooled()  # per sequence; the two orders of a pair are added
        pooled = both_orders(pooled, batch).sum(1) if self.kind in UNORDERED else pooled
        scores = self.arrange(self.head(pooled), batch)
        losses: dict[str, LossSum] = {}
        if batch.labels is not None:
            losses["label"] = LossSum(self.label_loss(scores, batch.labels), float(len(batch.labels)))
            if self.training and top_BTD is not None:
                losses |= self._of_states(trunk, top_BTD, self._learned(document))
        return Outcome(losses, None, scores)

    def _of_states(self, trunk: Trunk, top_BTD: Tensor, learned: Batch) -> dict[str, LossSum]:
        """The losses besides the label's, over the states with gradients."""
        penalties = {"activation": activation_penalty, "temporal": temporal_penalty}
        losses = {name: of(top_BTD, learned.mask_BT) for name, of in penalties.items() if name in self.weights}
        if "lm" in self.weights:
            assert learned.targets_BT is not None
            losses["lm"] = sequence_lm_loss(trunk, top_BTD, learned.targets_BT)
        return losses

    def _in_pieces(self, trunk: Trunk, document: Batch) -> tuple[RunningPool, Tensor | None]:
        """The pooled states, and the states with gradients, if any."""
        pool: RunningPool | None = None
        learned: list[Tensor] = []
        for top_BTD, mask_BT, learns in read_pieces(trunk, document, self.config.piece, self.config.learned):
            piece = RunningPool.of(top_BTD, mask_BT)
            pool = piece if pool is None else pool.then(piece)
            learned += [top_BTD] if learns else []
        assert pool is not None
        return pool, torch.cat(learned, dim=1) if learned else None

    def _at_once(self, trunk: Trunk, batch: Batch, document: Batch) -> tuple[RunningPool, Tensor | None]:
        """The same for a trunk that reads whole sequences; the state that represents a sequence replaces its last
        one."""
        assert batch.extract_B is not None and document.mask_BT is not None
        top_BTD = trunk(batch).top
        places = document.mask_BT.nonzero(as_tuple=True)
        shape = (*document.mask_BT.shape, top_BTD.shape[-1])
        aligned_BTD = top_BTD.new_zeros(shape).index_put(places, top_BTD[real_places(batch)])
        speaking_BD = top_BTD[torch.arange(len(top_BTD), device=top_BTD.device), batch.extract_B]
        pool = replace(RunningPool.of(aligned_BTD, document.mask_BT), last_BD=speaking_BD)
        first = learned_from(shape[1], self.config.piece, self.config.learned)
        return pool, aligned_BTD[:, first:] if torch.is_grad_enabled() else None
