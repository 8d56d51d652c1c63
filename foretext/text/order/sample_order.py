"""The order in which examples are seen: a pure function of (seed, epoch, index), with no state to save.

Each epoch is a permutation of all examples, computed a few indices at a time: a Feistel network permutes the next
power of four, and indices outside the range are sent through it again until they fall inside (cycle walking).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from foretext.errors import UserError
from foretext.text.corpus.token_shards import TokenShards

POOL = 100  # batches that are sorted together
_ROUNDS = 6
_MASK64 = (1 << 64) - 1


def mix64(seed: int, number: int) -> int:
    """A well-mixed 64-bit value of two numbers (splitmix64): cheap enough for each stretch of text."""
    z = (number + 1) * 0x9E3779B97F4A7C15 + (seed + 1) * 0xD1342543DE82EF95 & _MASK64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK64
    return z ^ (z >> 31)


def permute(indices: np.ndarray, size: int, seed: int, epoch: int) -> np.ndarray:
    """Where each of `indices` (int64, in [0, size)) goes in the epoch's permutation of [0, size)."""
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


class SampleOrder(Protocol):
    """Which examples a step sees."""

    steps_per_epoch: int

    def batch(self, step: int) -> tuple[int, list[int]]:
        """The epoch of a step, and its examples' indices."""


class StreamOrder:
    """Contiguous streams: `batch_size` stretches of the text side by side, each read from its beginning (right to left:
    from its end), one example a step. The few examples that are left over at the end of the text are not seen."""

    def __init__(self, size: int, batch_size: int, backward: bool = False) -> None:
        assert size > 0 and batch_size > 0
        self.rows = min(size, batch_size)
        self.steps_per_epoch = size // self.rows
        self.backward = backward

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        place = self.steps_per_epoch - 1 - within if self.backward else within
        return epoch, [row * self.steps_per_epoch + place for row in range(self.rows)]


class Order:
    """Batches of indices: step → (epoch, indices). Every epoch sees each index once; its last batch may be short."""

    def __init__(self, size: int, batch_size: int, seed: int, drop_last: bool = False) -> None:
        assert size > 0 and batch_size > 0
        self.size, self.batch_size, self.seed = size, batch_size, seed
        whole = size // batch_size
        # With fewer examples than a batch there is nothing but the short one.
        self.steps_per_epoch = max(1, whole) if drop_last else -(-size // batch_size)

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        start = within * self.batch_size
        places = np.arange(start, min(start + self.batch_size, self.size), dtype=np.int64)
        return epoch, permute(places, self.size, self.seed, epoch).tolist()


class LengthOrder:
    """Batches of examples of like length: every epoch sees each index once; one batch of the last pool may be short.

    A recurrent layer takes as many steps as the longest sequence of a batch has tokens, so sequences of like length
    belong together. An epoch is permuted as everywhere and cut into pools of a hundred batches; inside a pool the
    examples are sorted by length, cut into batches, and the batches are permuted. So an example meets others of its
    length, but other ones in each epoch, and nothing has to be remembered to go on."""

    def __init__(self, lengths: Sequence[int] | np.ndarray, batch_size: int, seed: int, pool: int = POOL) -> None:
        """`lengths`: what examples are compared by, one number each."""
        assert len(lengths) > 0 and batch_size > 0 and pool > 0
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.batch_size, self.seed, self.pool = batch_size, seed, pool
        self.steps_per_epoch = -(-len(self.lengths) // batch_size)
        self._last: tuple[tuple[int, int], list[np.ndarray]] | None = None  # the steps of a pool follow each other

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        number, place = divmod(within, self.pool)
        if self._last is None or self._last[0] != (epoch, number):
            self._last = (epoch, number), self._batches(epoch, number)
        return epoch, self._last[1][place].tolist()

    def _batches(self, epoch: int, number: int) -> list[np.ndarray]:
        """The batches of a pool in the order of its steps."""
        size, whole = len(self.lengths), self.pool * self.batch_size
        places = np.arange(number * whole, min((number + 1) * whole, size), dtype=np.int64)
        indices = permute(places, size, self.seed, epoch)
        indices = indices[np.argsort(self.lengths[indices], kind="stable")]
        batches = [indices[start : start + self.batch_size] for start in range(0, len(indices), self.batch_size)]
        turns = permute(np.arange(len(batches), dtype=np.int64), len(batches), mix64(self.seed, number), epoch)
        return [batches[turn] for turn in turns]


class Windows:
    """A token stream as windows of context + 1 ids (inputs and, shifted by one, targets), end to end.

    Each epoch starts at another offset below the context, so that the borders between windows fall elsewhere.
    """

    def __init__(self, shards: TokenShards, context: int, seed: int) -> None:
        assert context > 0
        if len(shards) < context + 1:
            raise UserError(
                f"{shards.folder}: the {shards.split} text has {len(shards)} tokens, fewer than one context of "
                f"{context} and its target; give more text or a shorter context"
            )
        self.shards, self.context, self.seed = shards, context, seed
        self._count = max(1, (len(shards) - context) // context)
        self._offsets = min(context, len(shards) - self._count * context)

    def __len__(self) -> int:
        return self._count

    def offset(self, epoch: int) -> int:
        digest = hashlib.blake2b(f"offset {self.seed} {epoch}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self._offsets

    def example(self, epoch: int, index: int) -> np.ndarray:
        assert 0 <= index < self._count
        return self.shards.window(self.offset(epoch) + index * self.context, self.context + 1)
