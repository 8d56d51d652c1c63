"""Text for XLNet as its paper samples it: a stretch that is remembered, and behind it two segments.

    reused (half of the context)  A  <sep>  B  <sep>  <cls>          in the order of reading

A goes on where the reused half ends. B goes on where A ends half of the time, and is from anywhere else in the text
otherwise; nobody is asked which, since the paper found next sentence of no use. A row's next window begins where the
reused half of this one ended, and only that half is remembered: what follows it in the memory's text is what the next
window reads. That is A, whole or in part, so what is remembered may not have seen it (`permutation.py`).

Rows that are read from the right have all of this turned round: what comes next for them stands to the left. A ends,
and B begins, between two words, if there are two; A begins where the reused half ends, and B ends where the room does,
whatever stands there. Where in the room the border is, and where B is from, is drawn from (seed, epoch, index).
"""

from __future__ import annotations

import numpy as np

from foretext.errors import refuse_if
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Stretch, drawn_number
from foretext.text.tokenizers.base import Tokenizer

LEAST_CONTEXT = 7  # a token to remember, one of each segment, three special ones
_KEY = 2  # keeps these draws apart from others of the same seed, epoch and index


class PairedWindows:
    """As `TwoWays`: window i of N is number i read from the left, 2 N − 1 − i read from the right."""

    def __init__(
        self, shards: TokenShards, context: int, seed: int, tokenizer: Tokenizer, separator: int, speaker: int
    ) -> None:
        refuse_if(
            context < LEAST_CONTEXT,
            f"{context} tokens are read at a time (objective.length of model.context), too few for two segments, "
            f"which need {LEAST_CONTEXT}; make either larger, or --set objective.pairs=false",
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
