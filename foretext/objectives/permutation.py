"""The permutation language model of XLNet (Yang et al. 2019): each of the last tokens of a random order from those that
stand before it in that order.

    max  E_z  Σ_{t > c}  log p(x_{z_t} | x_{z_<t}),     p(x | …) = softmax(W_e g_{z_t} + b)

g is the trunk's query stream, which knows its place and not its token. z, and which tokens are predicted, are drawn for
each sequence.

The text is read in contiguous streams, and each row goes on after its memory. Half of the rows of a step read their
text from the right, with a memory of their own (`text/order.py`); what is drawn is drawn over the text as it
stands. With `pairs`, half of a row is two segments with their special tokens. Only the other half
is remembered, and the next window reads on where it ended, which is what the first segment has. So the two halves are
drawn apart, as in the released code, and the segments come after all of what is remembered: it sees nothing of them,
and the memory cannot tell the next window its own tokens.

Texts are scored by the left-to-right factorisation, one of the orders (`left_to_right`). Some rows may begin without a
memory, as texts that are scored and tasks do (`stream.py`).

Which tokens of a sequence a permutation language model predicts, and in which order: XLNet's partial prediction.

A factorisation order z is drawn; the sequence itself is not moved. Only the last 1/K of z are predicted. As in the
released code these are runs of n tokens, n from 1 to 5 with p(n) ∝ 1/n, each beginning with a word, with n·K tokens of
context on its two sides; as these leave room for one token in K + 1 at most, the rest of the K-th part that is wanted
is drawn token by token. (Runs of n tokens within n·K are the paper's, section 3.1, which says no more of how a length
and a place are drawn. The code's comments speak of whole words, but it counts tokens.) Runs keep their distance from
each other, so that they alone would never predict, say, the second half of a sequence from its first. The paper's
objective is an expectation over all orders; a part of the sequences (`scattered`) therefore has targets that are drawn
token by token, and every order of what is drawn together can come. Then z is drawn: all tokens that
are given in any order, behind them all that are predicted in any order.

What a token sees is said by ranks: those of no higher rank, and its query those of a lower one. With an `ordered`
context the rank is the place in z, as the paper writes it. In the released code, and by default (`open`), tokens that
are given see each other all, since nobody is asked about them: they share rank 0.

Text as the paper samples it (`PairedWindows`): a stretch that is remembered, and behind it two segments.

    reused (half of the context)  A  <sep>  B  <sep>  <cls>          in the order of reading

A goes on where the reused half ends. B goes on where A ends half of the time, and is from anywhere else in the text
otherwise; nobody is asked which, since the paper found next sentence of no use. A row's next window begins where the
reused half of this one ended, and only that half is remembered: what follows it in the memory's text is what the next
window reads. That is A, whole or in part, so what is remembered may not have seen it.

Rows that are read from the right have all of this turned round: what comes next for them stands to the left. A ends,
and B begins, between two words, if there are two; A begins where the reused half ends, and B ends where the room does,
whatever stands there. Where in the room the border is, and where B is from, is drawn from (seed, epoch, index).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, Hidden, LossSum, Outcome, padded
from foretext.errors import check_range, refuse_if
from foretext.nn.fused import TiedSoftmax, dropout
from foretext.nn.relative.xlnet import MemoryState, OrderedBatch, XLNetConfig
from foretext.nn.trunk import OutputLayer, Trunk
from foretext.objectives.base import Direction, Draw, Examples, GrowingConfig, Objective, asked, growing_lengths
from foretext.objectives.stream import ForgettingConfig, begun_anew, fresh_rows
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import SampleOrder, StreamOrder, Stretch, TwoWayOrder, TwoWays, Windows, drawn_number
from foretext.text.tokenizers.base import Tokenizer

MOST_LONG = 100  # tokens of a run


@dataclass(frozen=True)
class PermutationConfig(GrowingConfig, ForgettingConfig):
    """[objective] of XLNet."""

    predicted: int = 6  # K: one token in so many is predicted
    longest: int = 5  # tokens of a run that is predicted together
    scattered: float = 0.05  # part of the sequences in which they are drawn token by token instead
    context: Literal["open", "ordered"] = "open"  # whether given tokens see each other all, or in the order drawn
    length: float = 1.0  # of the context, that is read at a time; what stands before it is in the memory
    both_ways: bool = True  # whether half of the rows read their text from the right
    pairs: bool = False  # whether half of what is read is two segments, the second from elsewhere half of the time

    def check(self) -> None:
        GrowingConfig.check(self)
        ForgettingConfig.check(self)
        check_range("objective", self, "at least 1", "predicted")
        check_range("objective", self, "at least 0 and at most 1", "scattered")
        check_range("objective", self, "above 0 and at most 1", "length")
        check_range("objective", self, f"at least 1 and at most {MOST_LONG}", "longest")


def draw_targets(
    starts: np.ndarray, free: np.ndarray, config: PermutationConfig, draw: np.random.Generator
) -> np.ndarray:
    """Which places are predicted, [n] of bools. `starts`: where words begin; `free`: places that may be asked."""
    chosen = np.zeros(len(starts), dtype=bool)
    able = int(free.sum())
    wanted = min(able, max(1, able // config.predicted))
    if draw.random() < config.scattered:
        chosen[draw.choice(np.flatnonzero(free), wanted, replace=False)] = True
        return chosen
    words = np.flatnonzero(starts)
    chances = np.cumsum(1.0 / np.arange(1, config.longest + 1))
    left, place = wanted, 0
    while left and place < len(starts):
        run = min(int(np.searchsorted(chances, draw.random() * chances[-1], side="right")) + 1, left)
        room = run * config.predicted
        before = int(draw.integers(room))
        word = int(np.searchsorted(words, place + before))
        if word == len(words) or words[word] + run > len(starts):
            break
        begin, end = int(words[word]), int(words[word]) + run
        chosen[begin:end] = free[begin:end]
        left -= int(free[begin:end].sum())
        place = end + room - before
    if left:
        chosen[draw.choice(np.flatnonzero(free & ~chosen), left, replace=False)] = True
    return chosen


def draw_order(chosen: np.ndarray, apart: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """All places in the order of the factorisation, those that are predicted last. Places `apart` stand anywhere among
    these, as the released code has the separators of a pair: what is given does not see them."""
    late = chosen | apart
    return np.concatenate([draw.permutation(np.flatnonzero(~late)), draw.permutation(np.flatnonzero(late))])


def ranks_of(order: np.ndarray, late: int, config: PermutationConfig) -> np.ndarray:
    """The rank of each place, given the order, of which the last `late` are not merely given."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks if config.context == "ordered" else np.maximum(ranks - (len(order) - late) + 1, 0)


# -- two segments ------------------------------------------------------------------------------------------------------


LEAST_PAIRED = 7  # a token to remember, one of each segment, three special ones
_KEY = 2  # keeps these draws apart from others of the same seed, epoch and index


class PairedWindows:
    """As `TwoWays`: window i of N is number i read from the left, 2 N − 1 − i read from the right."""

    def __init__(
        self, shards: TokenShards, context: int, seed: int, tokenizer: Tokenizer, separator: int, speaker: int
    ) -> None:
        refuse_if(
            context < LEAST_PAIRED,
            f"{context} tokens are read at a time (objective.length of model.context), too few for two segments, "
            f"which need {LEAST_PAIRED}; make either larger, or --set objective.pairs=false",
        )
        refuse_if(
            len(shards) < context,
            f"{shards.folder}: the {shards.split} text has {len(shards)} tokens, fewer than the {context} that are "
            "read at a time; give more text or --set objective.pairs=false",
        )
        self.shards, self.seed, self.tokenizer = shards, seed, tokenizer
        self.separator, self.speaker = separator, speaker
        self.reused = context // 2
        self.room = context - self.reused - 3
        self.windows = max(1, (len(shards) - context) // self.reused)
        read = self.windows * self.reused + self.room  # from the first window's begin
        self._offsets = min(self.reused, len(shards) - read + 1)

    def __len__(self) -> int:
        return 2 * self.windows

    def example(self, epoch: int, index: int) -> Stretch:
        backward, place = index >= self.windows, index % self.windows  # windows from the row's own end
        begin = drawn_number(f"pairs {self.seed} {epoch}") % self._offsets + place * self.reused
        draw = np.random.default_rng([self.seed, epoch, index, _KEY])
        after = begin + self.reused
        border = self._border(after, backward, draw)
        length = after + self.room - border
        start = self._elsewhere(length, backward, draw) if draw.random() < 0.5 else border
        places = (begin, after), (after, border), (start, start + length)
        reused, first, second = (self._read(*ends, backward) for ends in places)
        return self._joined(reused, first, second, backward)

    def _read(self, start: int, stop: int, backward: bool) -> np.ndarray:
        """Ids in the order of the text, of places that are counted from the end it is read from."""
        return self.shards.window(len(self.shards) - stop if backward else start, stop - start).astype(np.int64)

    def _borders(self, start: int, stop: int, backward: bool) -> np.ndarray:
        """The places after `start` and before `stop` between two words."""
        ids = self._read(start, stop, backward)
        inside = np.flatnonzero(self.tokenizer.word_starts(ids))
        places = start + (len(ids) - inside if backward else inside)
        return np.sort(places[(places > start) & (places < stop)])

    def _border(self, after: int, backward: bool, draw: np.random.Generator) -> int:
        """Where A ends and B begins, if it follows."""
        found = self._borders(after, after + self.room, backward)
        return int(draw.choice(found)) if len(found) else after + self.room // 2

    def _elsewhere(self, length: int, backward: bool, draw: np.random.Generator) -> int:
        """Where another stretch of this length begins: with a word, if there is one near."""
        start = int(draw.integers(len(self.shards) - length + 1))
        near = self._borders(start, min(start + self.room, len(self.shards)), backward)
        near = near[near + length <= len(self.shards)]
        return int(near[0]) if len(near) else start

    def _joined(self, reused: np.ndarray, first: np.ndarray, second: np.ndarray, backward: bool) -> Stretch:
        separator, speaker = np.array([self.separator]), np.array([self.speaker])
        turn = -1 if backward else 1
        parts = [reused, first, separator, second, separator, speaker]
        kinds = np.repeat([0, 0, 0, 1, 1, 2], [len(part) for part in parts])[::turn]
        apart = np.repeat([False, False, True, False, True, True], [len(part) for part in parts])[::turn]
        return Stretch(np.concatenate(parts[::turn]), backward, kinds, apart, self.reused)


# -- the objective -----------------------------------------------------------------------------------------------------


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
        return growing_lengths(self.settings, whole, LEAST_PAIRED if self.settings.pairs else 1)

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        if self.settings.both_ways:
            return TwoWayOrder(len(examples), batch_size)
        return StreamOrder(len(examples) // 2, batch_size)  # the first half is read from the left

    def make(self, examples: Sequence[Stretch], draw: Draw | None = None) -> Batch:
        """A part of the tokens is predicted, in a random order: both are drawn."""
        assert draw is not None, "what is predicted is drawn; `left_to_right` is for scores"
        turns = [-1 if stretch.backward else 1 for stretch in examples]
        drawn = [self._drawn(stretch, draw.generator(number)) for number, stretch in enumerate(examples)]
        rows, targets, ranks = ([own[::turn] for own, turn in zip(part, turns)] for part in zip(*drawn))
        ids_BT, real_BT = padded(rows)
        backward_B = torch.tensor([stretch.backward for stretch in examples])
        segments = [stretch.segments[::turn] for stretch, turn in zip(examples, turns) if stretch.segments is not None]
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

    def _drawn(self, stretch: Stretch, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A sequence, its targets and its ranks. Where a part is remembered, the rest comes after all of that."""
        ids = np.asarray(stretch.ids, dtype=np.int64)
        apart = np.zeros(len(ids), dtype=bool) if stretch.apart is None else stretch.apart
        starts = self.tokenizer.word_starts(ids)
        chosen, ranks, before = np.zeros(len(ids), dtype=bool), np.zeros(len(ids), dtype=np.int64), 0
        for part in _in_turn(stretch):
            chosen[part] = draw_targets(starts[part], ~apart[part], self.settings, draw)
            order = draw_order(chosen[part], apart[part], draw)
            ranks[part] = before + ranks_of(order, int((chosen[part] | apart[part]).sum()), self.settings)
            before = int(ranks.max(initial=0)) + 1
        return ids, np.where(chosen, ids, IGNORE), ranks

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        if self.carries_state and state is None:
            state = trunk.new_state(len(batch.ids_BT))
        if self.training:
            state = begun_anew(state, batch.fresh_B)
        hidden = trunk(batch, state)
        states_ND, targets_N = asked(batch, hidden.top)
        total = self.output_layer(trunk).loss(dropout(states_ND, self.p, self.training), targets_N)
        return Outcome({LOSS: LossSum(total, float(len(targets_N)))}, hidden.state)

    def blank(self) -> int:
        return self._special(MASK)

    def _special(self, name: str) -> int:
        refuse_if(name not in self.tokenizer.specials, f"the vocabulary has no {name}, which XLNet needs; use another")
        return self.tokenizer.specials[name]

    def output_layer(self, trunk: Trunk) -> TiedSoftmax:
        return TiedSoftmax(trunk.output_table(), self.head.bias)

    def logits(self, trunk: Trunk, ids_1T: Tensor, direction: Direction = "forward") -> Tensor:
        """Of the token that stands at each place, from those before it."""
        batch = left_to_right(ids_1T.tolist(), [ids_1T.shape[1]])
        return self.output_layer(trunk).logits(trunk(batch.to(ids_1T.device)).top[0])

    def reader(self, trunk: Trunk, context: int, direction: Direction) -> Trunk:
        return LeftToRight(trunk, self, context).eval()

    def blank_states(
        self, trunk: Trunk, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]], segments: Sequence[int] = ()
    ) -> Tensor:
        ((row,), (blanks,)) = (rows, places)
        return trunk(with_blanks(row, blanks, segments).to(trunk.output_table().device)).top[0, list(blanks)]


def _in_turn(stretch: Stretch) -> list[slice]:
    """What is remembered, which is read first, and what is not; one part where all is, or nothing."""
    length, kept = len(stretch.ids), stretch.kept
    if not kept or kept >= length:
        return [slice(0, length)]
    border = length - kept if stretch.backward else kept
    return [slice(0, border), slice(border, length)][:: -1 if stretch.backward else 1]


# -- orders that are not drawn -----------------------------------------------------------------------------------------


def left_to_right(rows: Sequence[Sequence[int]], asked: Sequence[int]) -> OrderedBatch:
    """Rows in the order of the text, each asked about its last so many tokens."""
    ids_BT, real_BT = padded(rows)
    places_T = torch.arange(ids_BT.shape[1])
    asked_BT = real_BT & (places_T >= (real_BT.sum(1) - torch.tensor(list(asked)))[:, None])
    return OrderedBatch(
        ids_BT,
        None if bool(real_BT.all()) else real_BT,
        targets_BT=ids_BT.masked_fill(~asked_BT, IGNORE),
        ranks_BT=places_T.expand(ids_BT.shape),
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


# -- going on with a text ----------------------------------------------------------------------------------------------


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
        ordered = OrderedBatch(
            F.pad(batch.ids_BT, (0, 1)),
            None if batch.mask_BT is None else F.pad(batch.mask_BT, (0, 1), value=True),
            targets_BT=F.pad(torch.full_like(batch.ids_BT, IGNORE), (0, 1)),
            ranks_BT=torch.arange(length + 1, device=batch.ids_BT.device).expand(rows, -1),
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
        return self.trunk.new_state(rows)

    def room(self, state: MemoryState) -> int:
        return self.context - state[1].shape[1]

    def pick(self, state: MemoryState, rows: Tensor) -> MemoryState:
        return tuple(kept[rows] for kept in state[0]), state[1][rows]
