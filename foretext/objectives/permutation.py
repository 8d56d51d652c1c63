"""The permutation language model of XLNet (Yang et al. 2019): each of the last tokens of a random order from those that
stand before it in that order.

    max  E_z  Σ_{t > c}  log p(x_{z_t} | x_{z_<t}),     p(x | …) = softmax(W_e g_{z_t} + b)

g is the trunk's query stream, which knows its place and not its token. z, and which tokens are predicted, are drawn for
each sequence (`factorisation.py`).

The text is read in contiguous streams, and each row goes on after its memory. Half of the rows of a step read their
text from the right, with a memory of their own (`text/order/two_ways.py`); what is drawn is drawn over the text as it
stands. With `pairs`, half of a row is two segments with their special tokens (`paired_windows.py`). Only the other half
is remembered, and the next window reads on where it ended, which is what the first segment has. So the two halves are
drawn apart, as in the released code, and the segments come after all of what is remembered: it sees nothing of them,
and the memory cannot tell the next window its own tokens.

Texts are scored by the left-to-right factorisation, one of the orders (`left_to_right`). Some rows may begin without a
memory, as texts that are scored and tasks do (`forgetting.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, Hidden, LossSum, Outcome, padded
from foretext.errors import UserError
from foretext.nn.fused import dropout
from foretext.nn.relative.xlnet import MemoryState, OrderedBatch, XLNetConfig
from foretext.nn.softmax.tied_softmax import TiedSoftmax
from foretext.nn.trunk import OutputLayer, Trunk
from foretext.objectives.base import Direction, Draw, Examples, Objective
from foretext.objectives.factorisation import PermutationConfig, draw_order, draw_targets, ranks_of
from foretext.objectives.forgetting import begun_anew, fresh_rows
from foretext.objectives.growing import growing_lengths
from foretext.objectives.paired_windows import LEAST_CONTEXT as PAIRED
from foretext.objectives.paired_windows import PairedWindows
from foretext.text.corpus.token_shards import TokenShards
from foretext.text.order.sample_order import SampleOrder, StreamOrder, Windows
from foretext.text.order.two_ways import Stretch, TwoWayOrder, TwoWays
from foretext.text.tokenizers.base import Tokenizer

LOSS = "permuted"
SEPARATOR, SPEAKER, MASK = "<sep>", "<cls>", "<mask>"


class OutputBias(nn.Module):
    """b: what is added to the scores of the vocabulary, beside W_e."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocabulary))


class PermutationObjective(Objective):
    scored = "in one order"
    lacks = "its output bias"

    def __init__(self, model: XLNetConfig, settings: PermutationConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        settings.check()
        self.settings, self.tokenizer, self.p = settings, tokenizer, model.dropout
        self.carries_state = model.memory > 0
        self.head = OutputBias(model.vocabulary)
        self.weights = {LOSS: 1.0}

    def examples(self, shards: TokenShards, context: int, seed: int) -> Examples:
        if self.settings.pairs:
            separator, speaker = (self._special(name) for name in (SEPARATOR, SPEAKER))
            return PairedWindows(shards, context, seed, self.tokenizer, separator, speaker)
        return TwoWays(Windows(shards, context, seed))

    def lengths(self, context: int) -> list[tuple[float, int]]:
        whole = max(1, round(self.settings.length * context))
        return growing_lengths(self.settings, whole, PAIRED if self.settings.pairs else 1)

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        if self.settings.both_ways:
            return TwoWayOrder(len(examples), batch_size)
        return StreamOrder(len(examples) // 2, batch_size)  # the first half is read from the left

    def make(self, examples: Sequence[Stretch], draw: Draw | None = None) -> Batch:
        """A part of the tokens is predicted, in a random order: both are drawn."""
        assert draw is not None, "what is predicted is drawn; `left_to_right` is for scores"
        rows, targets, ranks = [], [], []
        for number, stretch in enumerate(examples):
            ids = np.asarray(stretch.ids, dtype=np.int64)
            told, rank = self._drawn(ids, stretch, draw.generator(number))
            turn = -1 if stretch.backward else 1
            rows.append(ids[::turn])
            targets.append(told[::turn])
            ranks.append(rank[::turn])
        ids_BT, real_BT = padded(rows)
        backward_B = torch.tensor([stretch.backward for stretch in examples])
        segments = [
            stretch.segments[:: -1 if stretch.backward else 1] for stretch in examples if stretch.segments is not None
        ]
        assert len(segments) in (0, len(examples)) and len({stretch.kept for stretch in examples}) == 1
        return OrderedBatch(
            ids_BT,
            None if bool(real_BT.all()) else real_BT,
            segments_BT=padded(segments)[0] if segments else None,
            kept=examples[0].kept,
            targets_BT=padded(targets, fill=IGNORE)[0],
            ranks_BT=padded(ranks)[0],
            backward_B=backward_B if bool(backward_B.any()) else None,
            fresh_B=fresh_rows(self.settings.forget, len(examples), draw),
        )

    def _drawn(self, ids: np.ndarray, stretch: Stretch, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The targets and ranks of a sequence. Where a part of it is remembered, the rest comes after all of that."""
        apart = np.zeros(len(ids), dtype=bool) if stretch.apart is None else stretch.apart
        starts = self.tokenizer.word_starts(ids)
        chosen, ranks, before = np.zeros(len(ids), dtype=bool), np.zeros(len(ids), dtype=np.int64), 0
        for part in _in_turn(stretch):
            chosen[part] = draw_targets(starts[part], ~apart[part], self.settings, draw)
            order = draw_order(chosen[part], apart[part], draw)
            ranks[part] = before + ranks_of(order, int((chosen[part] | apart[part]).sum()), self.settings)
            before = int(ranks.max(initial=0)) + 1
        return np.where(chosen, ids, IGNORE), ranks

    def counts(self, batch: Batch) -> dict[str, float]:
        assert batch.targets_BT is not None
        return {LOSS: float((batch.targets_BT != IGNORE).sum())}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        assert batch.targets_BT is not None
        if self.carries_state and state is None:
            state = trunk.new_state(len(batch.ids_BT))
        if self.training:
            state = begun_anew(state, batch.fresh_B)
        hidden = trunk(batch, state)
        asked = (batch.targets_BT.reshape(-1) != IGNORE).nonzero().squeeze(1)
        states = dropout(hidden.top.flatten(0, 1)[asked], self.p, self.training)
        targets = batch.targets_BT.reshape(-1)[asked]
        total = self.output_layer(trunk).loss(states, targets)
        return Outcome({LOSS: LossSum(total, float(len(targets)))}, hidden.state)

    def blank(self) -> int:
        return self._special(MASK)

    def _special(self, name: str) -> int:
        if name not in self.tokenizer.specials:
            raise UserError(f"the vocabulary has no {name}, which XLNet needs; use another")
        return self.tokenizer.specials[name]

    def output_layer(self, trunk: Trunk) -> TiedSoftmax:
        return TiedSoftmax(trunk.output_table(), self.head.bias)

    def logits(self, trunk: Trunk, ids_1T: Tensor, direction: Direction = "forward") -> Tensor:
        """Of the token that stands at each place, from those before it."""
        asked = left_to_right(ids_1T.tolist(), [ids_1T.shape[1]])
        return self.output_layer(trunk).logits(trunk(asked.to(ids_1T.device)).top[0])

    def reader(self, trunk: Trunk, context: int, direction: Direction) -> Trunk:
        return LeftToRight(trunk, self, context).eval()

    def blank_states(
        self, trunk: Trunk, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]], segments: Sequence[int] = ()
    ) -> Tensor:
        ((row,), (blanks,)) = (rows, places)
        batch = with_blanks(row, blanks, segments).to(trunk.output_table().device)
        return trunk(batch).top[0, list(blanks)]


def _in_turn(stretch: Stretch) -> list[slice]:
    """What is remembered, which is read first, and what is not; one part where all is, or nothing."""
    length, kept = len(stretch.ids), stretch.kept
    if not kept or kept >= length:
        return [slice(0, length)]
    if stretch.backward:
        return [slice(length - kept, length), slice(0, length - kept)]
    return [slice(0, kept), slice(kept, length)]


# -- orders that are not drawn ---------------------------------------------------------------------------------------


def left_to_right(rows: Sequence[Sequence[int]], asked: Sequence[int]) -> OrderedBatch:
    """Rows in the order of the text, each asked about its last so many tokens."""
    ids_BT, real_BT = padded(rows)
    length = ids_BT.shape[1]
    ends_B = real_BT.sum(1)
    places_T = torch.arange(length)
    asked_BT = real_BT & (places_T >= (ends_B - torch.tensor(list(asked)))[:, None])
    return OrderedBatch(
        ids_BT,
        None if bool(real_BT.all()) else real_BT,
        targets_BT=ids_BT.masked_fill(~asked_BT, IGNORE),
        ranks_BT=places_T.expand(len(rows), length),
    )


def with_blanks(ids: Sequence[int], blanks: Sequence[int], segments: Sequence[int] = ()) -> OrderedBatch:
    """One row that is asked about its blanks, each from all that is no blank; what stands in a blank is seen by none
    that is not one itself. `segments`: of each token; empty: all are of one."""
    ids_BT = torch.tensor([list(ids)])
    blank_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    blank_BT[0, list(blanks)] = True
    return OrderedBatch(
        ids_BT,
        segments_BT=torch.tensor([list(segments)]) if segments else None,
        targets_BT=ids_BT.masked_fill(~blank_BT, IGNORE),
        ranks_BT=blank_BT.long(),
    )


# -- going on with a text --------------------------------------------------------------------------------------------


class LeftToRight(Trunk):
    """XLNet as a trunk that goes on with a text, for the decoder: of all orders that it knows, that of the text.

    In that order nothing sees what follows, so that what was read stays as it was, and the memory, which is then as
    long as the context, is a cache: of the states that each block was given. A token passes through the blocks once;
    its keys and values are projected from these states anew for each token that follows, where GPT and Transformer-XL
    keep them. After what is read one place more is asked about, and the query state there tells the next token. What
    was put into that place is seen by nobody, and is not remembered.
    """

    def __init__(self, trunk: Trunk, objective: PermutationObjective, context: int) -> None:
        super().__init__()
        self.trunk, self.objective, self.context = trunk, objective, context

    def forward(self, batch: Batch, state: MemoryState) -> Hidden:
        """The top's last column is what the token behind all that was read is predicted from."""
        rows, length = batch.ids_BT.shape
        device = batch.ids_BT.device
        next_B1 = torch.zeros(rows, 1, dtype=torch.long, device=device)
        targets_BT = torch.full((rows, length + 1), IGNORE, device=device)
        targets_BT[:, -1] = 0
        mask_BT = batch.mask_BT
        if mask_BT is not None:
            mask_BT = torch.cat([mask_BT, torch.ones_like(next_B1, dtype=torch.bool)], dim=1)
        ordered = OrderedBatch(
            torch.cat([batch.ids_BT, next_B1], dim=1),
            mask_BT,
            targets_BT=targets_BT,
            ranks_BT=torch.arange(length + 1, device=device).expand(rows, -1),
            kept=length,
            memory=self.context,
        )
        return self.trunk(ordered, state)

    def output_layer(self) -> OutputLayer:
        return self.objective.output_layer(self.trunk)

    def tell(self, rows: Sequence[Sequence[int]], asked: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Each token is asked about where it stands."""
        batch = left_to_right(rows, asked).to(self.objective.head.bias.device)
        assert batch.targets_BT is not None
        asked_BT = batch.targets_BT != IGNORE
        return self.trunk(batch).top[asked_BT], batch.targets_BT[asked_BT]

    def new_state(self, rows: int) -> MemoryState:
        empty: MemoryState = self.trunk.new_state(rows)
        return empty

    def room(self, state: MemoryState) -> int:
        return self.context - state[1].shape[1]

    def pick(self, state: MemoryState, rows: Tensor) -> MemoryState:
        return tuple(kept[rows] for kept in state[0]), state[1][rows]
