"""A linear-chain conditional random field over tag scores (Lafferty et al. 2001; Lample et al. 2016 for taggers).

    score(y)  = start[y_1] + Σ_t emission[t, y_t] + Σ_t transition[y_{t-1}, y_t] + end[y_n]
    log p(y)  = score(y) − log Σ_{y'} exp score(y')

The sum over all paths is taken by the forward algorithm, the best path by Viterbi's. Only the places that the mask
names belong to a sequence, wherever they stand (padding on either side, pieces of words that carry no tag); they are
moved together first. Sequences without a place have score and log-partition 0.

A sequence may be what follows of a longer one (`begins_B` false): then nothing is known of what comes before it, any
tag may come first, and start[y_1] counts 0.

Hard constraints: a table of the transitions that may be. A forbidden one counts −10,000 in the sums, which is a
probability of exactly 0 but, unlike −∞, keeps gradients finite for a tag that nothing can reach; Viterbi's paths have
none at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, LossSum

FORBIDDEN = -1e4


@dataclass(frozen=True)
class Allowed:
    """Which tags may follow which [from, to], and which may come first and last; all true is no constraint."""

    next_CC: Tensor
    first_C: Tensor
    last_C: Tensor


def iob2_allowed(tags: Sequence[str]) -> Allowed:
    """Of IOB2: I-X stands only after B-X or I-X, and never first."""
    table = torch.ones(len(tags), len(tags), dtype=torch.bool)
    first = torch.ones(len(tags), dtype=torch.bool)
    for to, tag in enumerate(tags):
        if tag == "I" or tag.startswith("I-"):
            table[:, to] = torch.tensor([before in ("B" + tag[1:], tag) for before in tags])
            first[to] = False
    return Allowed(table, first, torch.ones_like(first))


class LinearChainCrf(nn.Module):
    """Transitions, starts and ends, all 0 at first: the field then chooses each tag by itself."""

    def __init__(self, classes: int, allowed: Allowed | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(classes, classes))  # [from, to]
        self.starts = nn.Parameter(torch.zeros(classes))
        self.ends = nn.Parameter(torch.zeros(classes))
        free = torch.ones(classes, classes, dtype=torch.bool)
        allowed = allowed or Allowed(free, free[0], free[0])
        # Not saved: they follow from the tags.
        self.next_ok_CC = nn.Buffer(allowed.next_CC.clone(), persistent=False)
        self.first_ok_C = nn.Buffer(allowed.first_C.clone(), persistent=False)
        self.last_ok_C = nn.Buffer(allowed.last_C.clone(), persistent=False)

    def loss(self, emissions_BTC: Tensor, tags_BT: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> LossSum:
        """−log p of the tags, summed over sequences; the count is of places, as for a tagger without a field."""
        every_B = self.log_partition(emissions_BTC, mask_BT, begins_B)
        own_B = self.score(emissions_BTC, tags_BT, mask_BT, begins_B)
        return LossSum((every_B - own_B).sum(), float(mask_BT.sum()))

    def log_partition(self, emissions_BTC: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> Tensor:
        """log Σ exp score of all paths, for each sequence [B]."""
        x_TBC, lengths_B, _ = _together(emissions_BTC, mask_BT)
        if not len(x_TBC):
            return emissions_BTC.new_zeros(len(lengths_B))
        transitions_CC, starts_BC, ends_C = self._weights(FORBIDDEN, len(lengths_B), begins_B)
        sums_BC = starts_BC + x_TBC[0]
        for step in range(1, len(x_TBC)):
            longer_BC = torch.logsumexp(sums_BC[:, :, None] + transitions_CC, dim=1) + x_TBC[step]
            sums_BC = torch.where((step < lengths_B)[:, None], longer_BC, sums_BC)
        return torch.where(lengths_B > 0, torch.logsumexp(sums_BC + ends_C, dim=1), 0.0)

    def score(self, emissions_BTC: Tensor, tags_BT: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> Tensor:
        """The score of one path for each sequence [B]. What stands in `tags_BT` outside the mask is not read."""
        x_TBC, lengths_B, places_BT = _together(emissions_BTC, mask_BT)
        if not len(x_TBC):
            return emissions_BTC.new_zeros(len(lengths_B))
        transitions_CC, starts_BC, ends_C = self._weights(FORBIDDEN, len(lengths_B), begins_B)
        real_BT = torch.arange(len(x_TBC), device=mask_BT.device) < lengths_B[:, None]
        y_BT = tags_BT.gather(1, places_BT).masked_fill(~real_BT, 0)
        own_BT = x_TBC.transpose(0, 1).gather(2, y_BT[:, :, None]).squeeze(2)
        steps_BT = _entries(transitions_CC.flatten(), y_BT[:, :-1] * len(transitions_CC) + y_BT[:, 1:])
        last_B = y_BT.gather(1, (lengths_B - 1).clamp(min=0)[:, None]).squeeze(1)
        inner_B = torch.where(real_BT, own_BT, 0.0).sum(1) + torch.where(real_BT[:, 1:], steps_BT, 0.0).sum(1)
        first_B = starts_BC.gather(1, y_BT[:, :1]).squeeze(1)
        return torch.where(lengths_B > 0, first_B + inner_B + _entries(ends_C, last_B), 0.0)

    @torch.no_grad()
    def viterbi(self, emissions_BTC: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The best path [B, T], IGNORE outside the mask, and its score [B]."""
        x_TBC, lengths_B, places_BT = _together(emissions_BTC, mask_BT)
        path_BT = torch.full_like(mask_BT, IGNORE, dtype=torch.long)
        if not len(x_TBC):
            return path_BT, emissions_BTC.new_zeros(len(lengths_B))
        transitions_CC, starts_BC, ends_C = self._weights(-torch.inf, len(lengths_B), begins_B)
        best_BC = starts_BC + x_TBC[0]
        back: list[Tensor] = []
        for step in range(1, len(x_TBC)):
            longer_BC, from_BC = (best_BC[:, :, None] + transitions_CC).max(dim=1)
            best_BC = torch.where((step < lengths_B)[:, None], longer_BC + x_TBC[step], best_BC)
            back.append(from_BC)
        scores_B, tag_B = (best_BC + ends_C).max(dim=1)
        for step in range(len(x_TBC) - 1, -1, -1):
            real_B = step < lengths_B
            if step < len(back):  # from step + 1, for rows that have it
                before_B = back[step].gather(1, tag_B[:, None]).squeeze(1)
                tag_B = torch.where(step + 1 < lengths_B, before_B, tag_B)
            path_BT[real_B, places_BT[real_B, step]] = tag_B[real_B]
        return path_BT, torch.where(lengths_B > 0, scores_B, 0.0)

    def marginals(self, emissions_BTC: Tensor, mask_BT: Tensor, begins_B: Tensor | None = None) -> Tensor:
        """The probability of each tag at each place, [B, T, C]; zeros outside the mask. It is the gradient of the
        log-partition."""
        with torch.enable_grad():
            emissions = emissions_BTC.detach().requires_grad_()
            total = self.log_partition(emissions, mask_BT, begins_B).sum()
            return torch.autograd.grad(total, emissions)[0] if total.requires_grad else torch.zeros_like(emissions)

    def _weights(self, forbidden: float, rows: int, begins_B: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Transitions [C, C], starts [B, C], ends [C]."""
        starts_BC = torch.where(self.first_ok_C, self.starts, forbidden).expand(rows, -1)
        if begins_B is not None:
            starts_BC = torch.where(begins_B[:, None], starts_BC, 0.0)
        return (
            torch.where(self.next_ok_CC, self.transitions, forbidden),
            starts_BC,
            torch.where(self.last_ok_C, self.ends, forbidden),
        )


def _entries(table_N: Tensor, places: Tensor) -> Tensor:
    """`table_N[places]`. Gradients of what is read by `[]` are added in no order by several threads."""
    return F.embedding(places, table_N[:, None]).squeeze(-1)


def _together(emissions_BTC: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The real places of each row moved to its beginning, step by step [T, B, C], as many steps as the longest has;
    the number of them in each row; and the place that each came from."""
    lengths_B = mask_BT.sum(1)
    longest = int(lengths_B.max()) if lengths_B.numel() else 0
    places_BT = torch.argsort((~mask_BT).to(torch.uint8), dim=1, stable=True)[:, :longest]
    index_BTC = places_BT[:, :, None].expand(-1, -1, emissions_BTC.shape[2])
    return emissions_BTC.gather(1, index_BTC).transpose(0, 1), lengths_B, places_BT
