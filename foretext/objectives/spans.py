"""Unlabelled text as what masked systems read: whole stretches, or two spans and what they are to each other.

*Next sentence* (BERT): half of the time the second span follows the first in its document, otherwise it comes from
another document. *Sentence order* (ALBERT): two consecutive spans, swapped half of the time. A "sentence" is any
stretch of text, as in BERT's paper; where one ends and the other begins is drawn.

The label is drawn before anything is looked at, for every pair alike, and the second span is as long as both the one
that follows and the one from elsewhere can be: neither short documents nor lengths give the answer away. (BERT's
released code answers "another document" whenever a document has a single sentence.) Documents of a single token have no
two spans and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretext.errors import UserError
from foretext.text.order import Windows
from foretext.text.token_shards import TokenShards

LEAST_ROOM = 4
_TRIES = 8  # to find another document that is long enough, before the span becomes as short as the last one found


@dataclass(frozen=True)
class Span:
    """One text, or two and their label: 0 as they stood in the text, 1 otherwise."""

    texts: tuple[np.ndarray, ...]
    label: int = 0


class FullText:
    """Stretches of the text end to end, across documents, which a separator ends."""

    def __init__(self, shards: TokenShards, room: int, seed: int) -> None:
        _check_room(room)
        self.room = room
        self.windows = Windows(shards, room, seed)

    def __len__(self) -> int:
        return len(self.windows)

    def example(self, epoch: int, index: int) -> Span:
        return Span((self.windows.example(epoch, index)[: self.room],))  # the last is a causal model's target


class SpanPairs:
    """Each document in pieces of about the same length, at most `room` tokens; each piece is one pair."""

    def __init__(self, shards: TokenShards, room: int, seed: int, end: int, pairs: str, short: float) -> None:
        _check_room(room)
        self.shards, self.room, self.seed, self.pairs, self.short = shards, room, seed, pairs, short
        self.starts, self.lengths = _documents(shards, end)
        pieces = -(-self.lengths // room)
        self.before = np.concatenate([[0], np.cumsum(pieces)])
        self.pieces = pieces
        if not len(self.lengths) or (pairs == "next sentence" and len(self) < 2):
            raise UserError(
                f"{shards.folder}: the {shards.split} text has no two spans to compare; give more text, more "
                "documents, or use --system roberta, which needs no pairs"
            )

    def __len__(self) -> int:
        return int(self.before[-1])

    def example(self, epoch: int, index: int) -> Span:
        draw = np.random.default_rng([self.seed, epoch, index, 1])
        label = int(draw.random() < 0.5)
        document, start, stop = self._piece(index)
        if draw.random() < self.short:
            length = int(draw.integers(2, stop - start + 1))
            start += int(draw.integers(0, stop - start - length + 1))
            stop = start + length
        border = int(draw.integers(start + 1, stop))
        first = self._read(start, border)
        if self.pairs == "sentence order":
            second = self._read(border, stop)
            return Span((second, first) if label else (first, second), label)
        other, length = self._elsewhere(document, index, stop - border, draw)  # whatever the label is
        after = other if label else border
        return Span((first, self._read(after, after + length)), label)

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self.shards.window(start, stop - start)

    def _piece(self, index: int) -> tuple[int, int, int]:
        """Its document, and where it begins and ends in the stream."""
        document = int(np.searchsorted(self.before, index, side="right")) - 1
        number, of = index - int(self.before[document]), int(self.pieces[document])
        start, length = int(self.starts[document]), int(self.lengths[document])
        return document, start + number * length // of, start + (number + 1) * length // of

    def _elsewhere(self, document: int, index: int, length: int, draw: np.random.Generator) -> tuple[int, int]:
        """Where a span in another document begins, and its length, `length` if one is found that has room for it. Long
        documents are drawn more often; where there is but one document, another of its pieces is taken."""
        first, last = int(self.before[document]), int(self.before[document + 1])
        for _ in range(_TRIES):
            if len(self) > last - first:
                other = int(draw.integers(0, len(self) - (last - first)))
                found, _, _ = self._piece(other + (last - first if other >= first else 0))
                start, room = int(self.starts[found]), int(self.lengths[found])
            else:
                other = int(draw.integers(0, len(self) - 1))
                _, start, stop = self._piece(other + (other >= index))
                room = stop - start
            if room >= length:
                break
        length = min(length, room)
        return start + int(draw.integers(0, room - length + 1)), length


def _documents(shards: TokenShards, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each document of two tokens or more begins, and its length; `end` stands after each."""
    ends = shards.places(end)
    if not len(ends) or ends[-1] != len(shards) - 1:  # a single document is split in its middle
        ends = np.append(ends, len(shards))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    return starts[lengths > 1], lengths[lengths > 1]


def _check_room(room: int) -> None:
    if room < LEAST_ROOM:
        raise UserError(f"a context with room for {max(0, room)} tokens of text is too short to mask; use a longer one")
