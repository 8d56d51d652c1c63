"""Batches of examples of like length, in an order that is a pure function of (seed, epoch, index).

A recurrent layer takes as many steps as the longest sequence of a batch has tokens, so sequences of like length belong
together. An epoch is permuted as everywhere (`sample_order.py`) and cut into pools of a hundred batches; inside a pool
the examples are sorted by length, cut into batches, and the batches are permuted. So an example meets others of its
length, but other ones in each epoch, and nothing has to be remembered to go on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretext.text.order.sample_order import mix64, permute

POOL = 100  # batches that are sorted together


class LengthOrder:
    """A `SampleOrder`: every epoch sees each index once; one batch of the last pool may be short."""

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
