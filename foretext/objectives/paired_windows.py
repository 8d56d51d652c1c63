"""XLNet's text as the paper samples it: a stretch that is remembered, followed by two segments.

    reused (half of the context)  A  <sep>  B  <sep>  <cls>          in the order of reading

A continues where the reused half ends. B continues A half of the time, and otherwise comes from anywhere else in the
text; this is not predicted, since the paper found next sentence prediction useless. A row's next window starts where
the reused half of this one ended, and only that half is remembered, since the next window reads what follows it. That
includes all or part of A, so the remembered half must not have seen A.

For rows read from the right all of this is mirrored: what comes next stands to the left. The border of A and B is
between two words, if there are two; A starts where the reused half ends, and B ends where the room does, wherever that
is. The position of the border, and the place of B, are drawn from (seed, epoch, index).
"""

import numpy as np

from foretext.errors import refuse_if
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Stretch, drawn_number
from foretext.text.tokenizers.base import Tokenizer

LEAST_PAIRED = 7  # a token to remember, one of each segment, and three special ones
_KEY = 2  # separates these draws from others with the same seed, epoch and index


class PairedWindows:
    """Like `TwoWays`: window i of N is number i when read from the left, 2 N − 1 − i when read from the right."""

    def __init__(
        self, shards: TokenShards, context: int, seed: int, tokenizer: Tokenizer, separator: int, speaker: int
    ) -> None:
        refuse_if(
            context < LEAST_PAIRED,
            f"{context} tokens are read at a time (objective.length of model.context), too few for two segments, "
            f"which need {LEAST_PAIRED}; increase either, or use --set objective.pairs=false",
        )
        refuse_if(
            len(shards) < context,
            f"{shards.folder}: the {shards.split} text has {len(shards)} tokens, fewer than the {context} that are "
            "read at a time; give more text or use --set objective.pairs=false",
        )
        self.shards, self.seed, self.tokenizer = shards, seed, tokenizer
        self.separator, self.speaker = separator, speaker
        self.reused = context // 2
        self.room = context - self.reused - 3
        self.windows = max(1, (len(shards) - context) // self.reused)
        read = self.windows * self.reused + self.room  # from the beginning of the first window
        self._offsets = min(self.reused, len(shards) - read + 1)

    def __len__(self) -> int:
        return 2 * self.windows

    def example(self, epoch: int, index: int) -> Stretch:
        backward, place = index >= self.windows, index % self.windows  # windows counted from the row's own end
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
        """Ids in text order, for positions counted from the end where reading starts."""
        return self.shards.window(len(self.shards) - stop if backward else start, stop - start).astype(np.int64)

    def _borders(self, start: int, stop: int, backward: bool) -> np.ndarray:
        """The positions after `start` and before `stop` that lie between two words."""
        ids = self._read(start, stop, backward)
        inside = np.flatnonzero(self.tokenizer.word_starts(ids))
        places = start + (len(ids) - inside if backward else inside)
        return np.sort(places[(places > start) & (places < stop)])

    def _border(self, after: int, backward: bool, draw: np.random.Generator) -> int:
        """Where A ends, and where B begins if it follows A."""
        borders = self._borders(after, after + self.room, backward)
        return int(draw.choice(borders)) if len(borders) else after + self.room // 2

    def _elsewhere(self, length: int, backward: bool, draw: np.random.Generator) -> int:
        """Where a stretch of this length elsewhere begins: at a word, if one is near."""
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
