"""Contiguous streams in pieces of varying length: AWD-LSTM's variable backpropagation (Merity, Keskar and Socher 2017).

Cut always at the same length, a text has the same few borders over which no gradient ever flows. So the length of each
step is drawn: about `mean`, seldom about half of it, with a small deviation. All rows of a step have one length (no
padding), each goes on where it ended, and the lengths of an epoch are drawn from (seed, epoch): the piece of a step is
a pure function of (seed, epoch, step), and a run that goes on cuts as one that was never stopped.

`Windows` and `StreamOrder` number windows of one length. Here an index names any piece: length · size + start, where
size is `len(StreamPieces)`. So `StreamPieces` needs to know nothing of the rows, and the order nothing of the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretext.errors import UserError
from foretext.text.corpus.token_shards import TokenShards

LEAST = 5  # tokens of a piece, as in ULMFiT's released code, or the mean where that is less
_KEY = 0x5EED  # keeps these draws apart from others of the same seed and epoch


@dataclass(frozen=True)
class PieceLengths:
    """N(mean, spread), or with probability `half` N(mean / 2, spread)."""

    mean: int
    spread: float = 5.0
    half: float = 0.05

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        about = np.where(generator.random(count) < self.half, self.mean / 2, float(self.mean))
        drawn = generator.normal(about, self.spread).astype(np.int64)
        return np.maximum(drawn, min(LEAST, self.mean))


class StreamPieces:
    """A token stream as pieces of any length: `length` inputs and, shifted by one, as many targets."""

    def __init__(self, shards: TokenShards, context: int) -> None:
        if len(shards) < context + 1:
            raise UserError(
                f"{shards.folder}: the {shards.split} text has {len(shards)} tokens, fewer than one context of "
                f"{context} and its target; give more text or a shorter context"
            )
        self.shards = shards

    def __len__(self) -> int:
        """How many targets there are, each at one place of the text."""
        return len(self.shards) - 1

    def example(self, epoch: int, index: int) -> np.ndarray:
        length, start = divmod(index, len(self))
        return self.shards.window(start, length + 1)


class PieceOrder:
    """`batch_size` equal stretches of the text side by side, fewer where these would be shorter than a piece; each is
    read from its beginning (right to left: from its end), a piece a step. An epoch has as many steps as pieces of the
    mean length fit, and reads a little less than the text, as pieces are a little shorter on the average; what is left
    over is drawn anew each epoch."""

    def __init__(self, size: int, batch_size: int, lengths: PieceLengths, seed: int, backward: bool = False) -> None:
        assert size > 0 and batch_size > 0 and lengths.mean > 0
        self.size, self.lengths, self.seed, self.backward = size, lengths, seed, backward
        self.rows = min(batch_size, max(1, size // lengths.mean))
        self.stretch = size // self.rows
        self.steps_per_epoch = max(1, self.stretch // lengths.mean)
        self._known: tuple[int, np.ndarray] | None = None  # the borders of the epoch asked for last

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._known is None or self._known[0] != epoch:
            self._known = epoch, self.borders(epoch)
        begin, end = (int(border) for border in self._known[1][within : within + 2])
        place = self.stretch - end if self.backward else begin
        return epoch, [(end - begin) * self.size + row * self.stretch + place for row in range(self.rows)]

    def borders(self, epoch: int) -> np.ndarray:
        """Of an epoch's pieces, counted from where a row begins to be read: [steps + 1], rising."""
        generator = np.random.default_rng([_KEY, self.seed, epoch])
        drawn = np.cumsum(self.lengths.draw(self.steps_per_epoch, generator))
        room = self.stretch - np.arange(self.steps_per_epoch)[::-1]  # a token at least for each piece to come
        ends = np.minimum(drawn, room)
        begin = generator.integers(0, self.stretch - ends[-1], endpoint=True)
        return begin + np.concatenate([[0], ends])
