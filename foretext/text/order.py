"""The order of the examples: a pure function of (seed, epoch, index), with no state to save.

Each epoch is a permutation of all examples, computed for a few indices at a time. A Feistel network permutes the
numbers below the next power of four; results outside the range are permuted again until they fall inside (cycle
walking).

`StreamPieces` and `PieceOrder`: contiguous streams in pieces of varying length, AWD-LSTM's variable backpropagation
(Merity, Keskar and Socher 2017).

With pieces of one length, no gradient would ever flow over the same few borders of the text. So the length of each step
is drawn: usually near `mean`, rarely near half of it, with a small deviation. All rows of a step have one length (no
padding), and each continues where it ended. An epoch's lengths are drawn from (seed, epoch), so a step's piece is a
pure function of (seed, epoch, step), and a resumed run cuts like an uninterrupted one.

`Windows` and `StreamOrder` number windows of one length. Here an index names any piece: length · size + start, where
size is `len(StreamPieces)`. So `StreamPieces` need not know the rows, nor the order the text.

`TwoWayOrder`: a text read in both directions at once. Half of a step's rows read from the left, the other half from the
right, like XLNet's bidirectional data streams.

Each direction covers the whole text in an epoch, if equally many rows read each way. Window i of N has number i for
forward rows and 2 N − 1 − i for backward rows, so that both kinds of row count upwards: a row's next window is always
the one that follows its memory.

`Turns`: several sources of examples alternate, labelled rows of one or more tasks and unlabelled text (Clark et al.
2018).

Every second step is unlabelled. The others go to the tasks in proportion to √n for a task with n rows, as in the
released code. That code draws the task at random each time; here an epoch has exactly these shares, in its own order,
so that a step's examples are a pure function of (seed, step) and resuming needs no state. An epoch has as many labelled
steps as one pass over all tasks' rows; with one task it is such a pass.

Indices count through all sources: the rows of the tasks, one task after the other, then the unlabelled text.
"""

import hashlib
import heapq
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from foretext.errors import refuse_if
from foretext.text.corpus.shards import TokenShards

POOL = 100  # batches whose examples are sorted together
_ROUNDS = 6
_MASK64 = (1 << 64) - 1


def mix64(seed: int, number: int) -> int:
    """A well-mixed 64-bit value from two numbers (splitmix64), cheap enough to compute for each stretch of text."""
    z = (number + 1) * 0x9E3779B97F4A7C15 + (seed + 1) * 0xD1342543DE82EF95 & _MASK64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK64
    return z ^ (z >> 31)


def permute(indices: np.ndarray, size: int, seed: int, epoch: int) -> np.ndarray:
    """The position of each of `indices` (int64, in [0, size)) in the epoch's permutation of [0, size)."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = _round_keys(seed, epoch)
    result = _feistel(indices.astype(np.uint64), half, keys)
    while True:
        outside = np.flatnonzero(result >= size)
        if outside.size == 0:
            return result.astype(np.int64)
        result[outside] = _feistel(result[outside], half, keys)


def _round_keys(seed: int, epoch: int) -> np.ndarray:
    digest = hashlib.blake2b(f"order {seed} {epoch}".encode(), digest_size=8 * _ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8")


def _feistel(values: np.ndarray, half: int, keys: np.ndarray) -> np.ndarray:
    bits, low = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & low
    for key in keys:
        mixed = (right ^ key) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        left, right = right, left ^ (mixed & low)
    return (left << bits) | right


def drawn_number(name: str) -> int:
    """A 64-bit number derived from a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def sampled(items: Iterable[Sized], most: int, seed: int) -> list[Any]:
    """A uniform sample of streamed items, in their order, with total length up to `most`: those with the lowest keys,
    which depend only on the seed and an item's number."""
    kept: list[tuple[int, int, Sized]] = []  # a heap with the largest key on top
    length = 0
    for number, item in enumerate(items):
        heapq.heappush(kept, (-mix64(seed, number), number, item))
        length += len(item)
        while length > most and len(kept) > 1:
            length -= len(heapq.heappop(kept)[2])
    return [item for _, _, item in sorted(kept, key=lambda entry: entry[1])]


class SampleOrder(Protocol):
    """Which examples a step sees."""

    steps_per_epoch: int

    def batch(self, step: int) -> tuple[int, list[int]]:
        """The epoch of a step, and the indices of its examples."""


class StreamOrder:
    """Contiguous streams: `batch_size` stretches of the text side by side, each read from its beginning (right to left:
    from its end), one example per step. The few examples left over at the end of the text are not used."""

    def __init__(self, size: int, batch_size: int, backward: bool = False) -> None:
        self.rows = min(size, batch_size)
        self.steps_per_epoch = size // self.rows
        self.backward = backward

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        place = self.steps_per_epoch - 1 - within if self.backward else within
        return epoch, [row * self.steps_per_epoch + place for row in range(self.rows)]


class Order:
    """Batches of indices: step → (epoch, indices). Every epoch has each index once; its last batch may be short."""

    def __init__(self, size: int, batch_size: int, seed: int) -> None:
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.steps_per_epoch = -(-size // batch_size)

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        start = within * self.batch_size
        places = np.arange(start, min(start + self.batch_size, self.size), dtype=np.int64)
        return epoch, permute(places, self.size, self.seed, epoch).tolist()


class LengthOrder:
    """Batches of examples of similar length: every epoch has each index once; one batch of the last pool may be short.

    A recurrent layer takes as many steps as the longest sequence of a batch has tokens, so sequences of similar length
    belong together. An epoch is permuted as usual and cut into pools of a hundred batches. Within a pool the examples
    are sorted by length and cut into batches, and the batches are permuted. So an example meets others of its length,
    but different ones in each epoch, and resuming needs no state.
    """

    def __init__(self, lengths: Sequence[int] | np.ndarray, batch_size: int, seed: int, pool: int = POOL) -> None:
        """`lengths`: the length of each example."""
        self.lengths, self.size = np.asarray(lengths, dtype=np.int64), len(lengths)
        self.batch_size, self.seed, self.pool = batch_size, seed, pool
        self.steps_per_epoch = -(-self.size // batch_size)
        # a cache: consecutive steps use the same pool
        self._last: tuple[tuple[int, int], list[np.ndarray]] | None = None

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        number, place = divmod(within, self.pool)
        if self._last is None or self._last[0] != (epoch, number):
            self._last = (epoch, number), self._batches(epoch, number)
        return epoch, self._last[1][place].tolist()

    def _batches(self, epoch: int, number: int) -> list[np.ndarray]:
        """The batches of a pool in the order of its steps."""
        whole = self.pool * self.batch_size
        places = np.arange(number * whole, min((number + 1) * whole, self.size), dtype=np.int64)
        indices = permute(places, self.size, self.seed, epoch)
        indices = indices[np.argsort(self.lengths[indices], kind="stable")]
        batches = [indices[start : start + self.batch_size] for start in range(0, len(indices), self.batch_size)]
        turns = permute(np.arange(len(batches), dtype=np.int64), len(batches), mix64(self.seed, number), epoch)
        return [batches[turn] for turn in turns]


def _check_length(shards: TokenShards, context: int) -> None:
    refuse_if(
        len(shards) < context + 1,
        f"{shards.folder}: the {shards.split} text has {len(shards)} tokens, fewer than one context of "
        f"{context} and its target; give more text or a shorter context",
    )


class Windows:
    """A token stream as windows of context + 1 ids (inputs and, shifted by one, targets), end to end.

    Each epoch starts at a different offset below the context, so that the borders between windows move.
    """

    def __init__(self, shards: TokenShards, context: int, seed: int) -> None:
        _check_length(shards, context)
        self.shards, self.context, self.seed = shards, context, seed
        self._count = max(1, (len(shards) - context) // context)
        self._offsets = min(context, len(shards) - self._count * context)

    def __len__(self) -> int:
        return self._count

    def offset(self, epoch: int) -> int:
        return drawn_number(f"offset {self.seed} {epoch}") % self._offsets

    def example(self, epoch: int, index: int) -> np.ndarray:
        assert 0 <= index < self._count
        return self.shards.window(self.offset(epoch) + index * self.context, self.context + 1)


# -- pieces of varying length ------------------------------------------------------------------------------------------


LEAST = 5  # shortest piece in tokens, as in ULMFiT's released code, or the mean if that is less
_KEY = 0x5EED  # separates these draws from others with the same seed and epoch


@dataclass(frozen=True)
class PieceLengths:
    """The length of a piece: N(mean, spread), or with probability `half` N(mean / 2, spread)."""

    mean: int
    spread: float = 5.0
    half: float = 0.05

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        about = np.where(generator.random(count) < self.half, self.mean / 2, float(self.mean))
        return np.maximum(generator.normal(about, self.spread).astype(np.int64), min(LEAST, self.mean))


class StreamPieces:
    """A token stream as pieces of any length: `length` inputs and, shifted by one, as many targets."""

    def __init__(self, shards: TokenShards, context: int) -> None:
        _check_length(shards, context)
        self.shards = shards

    def __len__(self) -> int:
        """The number of targets, each at one place of the text."""
        return len(self.shards) - 1

    def example(self, epoch: int, index: int) -> np.ndarray:
        length, start = divmod(index, len(self))
        return self.shards.window(start, length + 1)


class PieceOrder:
    """`batch_size` equal stretches of the text side by side (fewer if these would be shorter than a piece), each read
    from its beginning (right to left: from its end), one piece per step. An epoch has as many steps as pieces of mean
    length fit. Drawn pieces are slightly shorter on average, so a little of the text is left over, a different part in
    each epoch."""

    def __init__(self, size: int, batch_size: int, lengths: PieceLengths, seed: int, backward: bool = False) -> None:
        self.size, self.lengths, self.seed, self.backward = size, lengths, seed, backward
        self.rows = min(batch_size, max(1, size // lengths.mean))
        self.stretch = size // self.rows
        self.steps_per_epoch = max(1, self.stretch // lengths.mean)
        self._known: tuple[int, np.ndarray] | None = None  # cache of the borders of the last epoch

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._known is None or self._known[0] != epoch:
            self._known = epoch, self.borders(epoch)
        begin, end = (int(border) for border in self._known[1][within : within + 2])
        place = self.stretch - end if self.backward else begin
        return epoch, [(end - begin) * self.size + row * self.stretch + place for row in range(self.rows)]

    def borders(self, epoch: int) -> np.ndarray:
        """The borders of an epoch's pieces, counted from where a row starts reading: [steps + 1], increasing."""
        generator = np.random.default_rng([_KEY, self.seed, epoch])
        room = self.stretch - np.arange(self.steps_per_epoch)[::-1]  # leaves at least one token for each later piece
        ends = np.minimum(np.cumsum(self.lengths.draw(self.steps_per_epoch, generator)), room)
        return generator.integers(0, self.stretch - ends[-1], endpoint=True) + np.concatenate([[0], ends])


# -- both directions at once -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """Ids in text order, and whether they are read from the right. `segments`: the segment of each, if there is more
    than one; `apart`: which of them are special tokens; `kept`: how many of those read first are remembered (None:
    all)."""

    ids: np.ndarray
    backward: bool = False
    segments: np.ndarray | None = None
    apart: np.ndarray | None = None
    kept: int | None = None


class TwoWays:
    """Windows without the target after their last token: a model that predicts its own positions needs none."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return 2 * len(self.windows)

    def example(self, epoch: int, index: int) -> Stretch:
        backward = index >= len(self.windows)
        return Stretch(self.windows.example(epoch, len(self) - 1 - index if backward else index)[:-1], backward)


class TwoWayOrder:
    """`batch_size` stretches side by side: the first half (with an odd number, the larger part) is read from the left,
    the others from the right, one window of each per step. An epoch ends with the forward rows. What a direction has
    left over is not used in that epoch; with an odd number of rows, this includes the share of the missing backward
    row."""

    def __init__(self, size: int, batch_size: int) -> None:
        """`size`: that of `TwoWays`."""
        self.windows = size // 2
        self.forward = min(self.windows, -(-batch_size // 2))
        self.backward = min(self.windows, batch_size // 2)
        self.steps_per_epoch = self.windows // self.forward

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        begins = [*range(self.forward), *range(self.backward)]
        sides = [0] * self.forward + [self.windows] * self.backward
        return epoch, [side + row * self.steps_per_epoch + within for side, row in zip(sides, begins)]


# -- several sources in turn -------------------------------------------------------------------------------------------


class Turns:
    """A `SampleOrder` over all sources together, given the order of each."""

    def __init__(self, tasks: Sequence[Order | LengthOrder], unlabelled: LengthOrder | Order | None, seed: int) -> None:
        self.sources = [*tasks, unlabelled] if unlabelled is not None else list(tasks)
        self.starts = [0, *accumulate(source.size for source in self.sources)]
        self.seed = seed
        self.labelled_steps = sum(task.steps_per_epoch for task in tasks)
        self.shares = shares_of([task.size for task in tasks], self.labelled_steps)
        self.with_unlabelled = unlabelled is not None
        self.steps_per_epoch = self.labelled_steps * (2 if self.with_unlabelled else 1)
        self._last: tuple[int, np.ndarray] | None = None

    def turn(self, step: int) -> tuple[int, int]:
        """The source of a step (the tasks by number, then the unlabelled text), and the number of the step within that
        source."""
        turn, odd = divmod(step, 2) if self.with_unlabelled else (step, 0)
        if odd:
            return len(self.sources) - 1, turn
        epoch, place = divmod(turn, self.labelled_steps)
        tasks = self._tasks(epoch)
        task = int(tasks[place])
        return task, epoch * self.shares[task] + int((tasks[:place] == task).sum())

    def batch(self, step: int) -> tuple[int, list[int]]:
        source, own_step = self.turn(step)
        _, indices = self.sources[source].batch(own_step)
        return step // self.steps_per_epoch, [self.starts[source] + index for index in indices]

    def _tasks(self, epoch: int) -> np.ndarray:
        """The task of each labelled step of an epoch."""
        if self._last is None or self._last[0] != epoch:
            every = np.repeat(np.arange(len(self.shares)), self.shares)
            places = permute(np.arange(len(every), dtype=np.int64), len(every), mix64(self.seed, 1), epoch)
            self._last = epoch, every[places]
        return self._last[1]


def shares_of(sizes: Sequence[int], steps: int) -> list[int]:
    """How many of the steps each task gets: in proportion to the root of its size, at least one."""
    assert steps >= len(sizes) and all(size > 0 for size in sizes)
    roots = np.sqrt(np.asarray(sizes, dtype=np.float64))
    exact = roots / roots.sum() * (steps - len(sizes))
    shares = exact.astype(np.int64)
    most_left = np.argsort(-(exact - shares), kind="stable")[: steps - len(sizes) - int(shares.sum())]
    shares[most_left] += 1
    return (shares + 1).tolist()
