"""The permutation language model of XLNet (Yang et al. 2019): the last tokens of a random order are each predicted from
those before them in that order.

    max  E_z  Σ_{t > c}  log p(x_{z_t} | x_{z_<t}),     p(x | …) = softmax(W_e g_{z_t} + b)

g is the trunk's query stream, which knows its position but not its token. z and the predicted tokens are drawn for each
sequence.

The text is read in contiguous streams, and each row continues after its memory. Half of the rows of a step read their
text from the right, with a memory of their own (`text/order.py`). With `pairs`, half of a row is two segments with
their special tokens. Only the other half is remembered, and the next window continues where that half ended, just as
the first segment does. So, as in the released code, the two halves are drawn separately and the segments come after
everything that is remembered: the remembered half sees nothing of them, and the memory cannot reveal the next window's
own tokens.

Texts are scored with the left-to-right factorisation, one of the orders (`left_to_right`). Some rows may start without
a memory, as scored texts and tasks do (`stream.py`).

Partial prediction: which tokens of a sequence are predicted, and in which order.

A factorisation order z is drawn; the sequence itself is not reordered. Only the last 1/K of z is predicted. As in the
released code these are runs of n tokens, n from 1 to 5 with p(n) ∝ 1/n, each starting with a word and with n·K tokens
of context around it. Since these leave room for at most one token in K + 1, the rest of the K-th part is drawn token by
token. (Runs of n tokens within n·K are the paper's, section 3.1, which does not say how a length and a place are drawn.
The code's comments speak of whole words, but it counts tokens.) Runs keep a distance from each other, so alone they
would never predict, for example, the second half of a sequence from its first. But the paper's objective is an
expectation over all orders. In a part of the sequences (`scattered`), targets are therefore drawn token by token, and
every order within what is drawn together is possible. Then z is drawn: first all given tokens in random order, then all
predicted ones in random order.

Ranks say what a token sees: tokens of no higher rank, and for its query those of a lower rank. With an `ordered`
context the rank is the position in z, as in the paper. In the released code, and by default (`open`), given tokens all
see each other, since they are not predicted: they share rank 0.
"""

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
from foretext.nn.relative.sights import OrderedBatch
from foretext.nn.relative.xlnet import MemoryState, XLNetConfig
from foretext.nn.trunk import OutputLayer, Trunk
from foretext.objectives.base import Direction, Draw, Examples, GrowingConfig, Objective, at_targets, growing_lengths
from foretext.objectives.paired_windows import LEAST_PAIRED, PairedWindows
from foretext.objectives.stream import ForgettingConfig, begun_anew, fresh_rows
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import SampleOrder, StreamOrder, Stretch, TwoWayOrder, TwoWays, Windows
from foretext.text.tokenizers.base import Tokenizer

MOST_LONG = 100  # tokens per run


@dataclass(frozen=True)
class PermutationConfig(GrowingConfig, ForgettingConfig):
    """[objective] of XLNet."""

    predicted: int = 6  # K: one token in K is predicted
    longest: int = 5  # tokens in a run that is predicted together
    scattered: float = 0.05  # share of the sequences in which targets are drawn token by token instead
    # open: given tokens all see each other; ordered: they see those before them in the drawn order
    context: Literal["open", "ordered"] = "open"
    length: float = 1.0  # tokens read at a time, as a share of the context; the memory holds what precedes them
    both_ways: bool = True  # whether half of the rows read their text from the right
    pairs: bool = False  # whether half of a window is two segments, the second from elsewhere half of the time

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
    """Which positions are predicted, [n] of bools. `starts`: where words begin; `free`: positions that may be
    predicted."""
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
    """All positions in the order of the factorisation, predicted ones last. Positions `apart` are placed anywhere among
    the predicted ones, as in the released code for the separators of a pair: given tokens do not see them."""
    late = chosen | apart
    return np.concatenate([draw.permutation(np.flatnonzero(~late)), draw.permutation(np.flatnonzero(late))])


def ranks_of(order: np.ndarray, late: int, config: PermutationConfig) -> np.ndarray:
    """The rank of each position, given the order; the last `late` of it are not simply given."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks if config.context == "ordered" else np.maximum(ranks - (len(order) - late) + 1, 0)


# -- the objective -----------------------------------------------------------------------------------------------------


LOSS = "permuted"
SEPARATOR, SPEAKER, MASK = "<sep>", "<cls>", "<mask>"


class OutputBias(nn.Module):
    """b: added to the logits of the vocabulary, besides W_e."""

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
        """Draws which tokens are predicted, and their order."""
        assert draw is not None, "this draws what to predict; use `left_to_right` for scores"
        turns = [-1 if stretch.backward else 1 for stretch in examples]
        drawn = [self._drawn(stretch, draw.generator(number)) for number, stretch in enumerate(examples)]
        rows, targets, ranks = ([row[::turn] for row, turn in zip(part, turns)] for part in zip(*drawn))
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
        """A sequence, its targets and its ranks. If a part is remembered, the rest comes after all of it."""
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
        states_ND, targets_N = at_targets(batch, hidden.top)
        total = self.output_layer(trunk).loss(dropout(states_ND, self.p, self.training), targets_N)
        return Outcome({LOSS: LossSum(total, float(len(targets_N)))}, hidden.state)

    def blank(self) -> int:
        """The token that is a blank in a text to fill."""
        return self._special(MASK)

    def _special(self, name: str) -> int:
        refuse_if(name not in self.tokenizer.specials, f"the vocabulary has no {name}, which XLNet needs; use another")
        return self.tokenizer.specials[name]

    def output_layer(self, trunk: Trunk) -> TiedSoftmax:
        return TiedSoftmax(trunk.output_table(), self.head.bias)

    def logits(self, trunk: Trunk, ids_1T: Tensor, direction: Direction = "forward") -> Tensor:
        """Logits of the token at each position, from those before it."""
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
    """The part that is remembered, which is read first, and the rest; a single part if all or nothing is remembered."""
    length, kept = len(stretch.ids), stretch.kept
    if not kept or kept >= length:
        return [slice(0, length)]
    border = length - kept if stretch.backward else kept
    return [slice(0, border), slice(border, length)][:: -1 if stretch.backward else 1]


# -- orders that are not drawn -----------------------------------------------------------------------------------------


def left_to_right(rows: Sequence[Sequence[int]], counts: Sequence[int]) -> OrderedBatch:
    """Rows in text order, with queries at the last so many positions of each."""
    ids_BT, real_BT = padded(rows)
    places_T = torch.arange(ids_BT.shape[1])
    asked_BT = real_BT & (places_T >= (real_BT.sum(1) - torch.tensor(list(counts)))[:, None])
    return OrderedBatch(
        ids_BT,
        None if bool(real_BT.all()) else real_BT,
        targets_BT=ids_BT.masked_fill(~asked_BT, IGNORE),
        ranks_BT=places_T.expand(ids_BT.shape),
    )


def with_blanks(ids: Sequence[int], blanks: Sequence[int], segments: Sequence[int] = ()) -> OrderedBatch:
    """One row with queries at its blanks, each predicted from everything that is not a blank; what is in a blank is
    seen only by blanks. `segments`: of each token; empty: all the same."""
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
    """XLNet as a trunk that continues a text, for the decoder: of all its orders, that of the text.

    In text order nothing sees later tokens, so states do not change, and the memory, as long as the context, works as a
    cache of the states that each block received. A token passes through the blocks once. Its keys and values are
    recomputed from these states for each later token, while GPT and Transformer-XL keep them. One position is queried
    after the text that was read, and its query state predicts the next token. The placeholder in that position is seen
    by nothing and is not remembered.
    """

    def __init__(self, trunk: Trunk, objective: PermutationObjective, context: int) -> None:
        super().__init__()
        self.trunk, self.objective, self.context = trunk, objective, context

    def forward(self, batch: Batch, state: MemoryState) -> Hidden:
        """The top's last column predicts the token after the text that was read."""
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

    def tell(self, rows: Sequence[Sequence[int]], counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Each token is predicted at its own position."""
        batch = left_to_right(rows, counts).to(self.objective.head.bias.device)
        assert batch.targets_BT is not None
        asked_BT = batch.targets_BT != IGNORE
        return self.trunk(batch).top[asked_BT], batch.targets_BT[asked_BT]

    def new_state(self, rows: int) -> MemoryState:
        return self.trunk.new_state(rows)

    def room(self, state: MemoryState) -> int:
        return self.context - state[1].shape[1]

    def pick(self, state: MemoryState, rows: Tensor) -> MemoryState:
        return tuple(kept[rows] for kept in state[0]), state[1][rows]
