"""Unlabelled text as two spans with a label for their relation, for BERT and ALBERT.

*Next sentence* (BERT): half of the time the second span follows the first in its document, otherwise it comes from
another document. *Sentence order* (ALBERT): two consecutive spans, swapped half of the time. A "sentence" is any
stretch of whole words, as in BERT's paper; the border between the two is drawn.

Only the content of the spans may reveal the label. The label is drawn before anything else, for every pair alike. Spans
begin and end at words, since half a word at the border would show that the other half follows. Both candidates for a
second span have the same length, neither is at the beginning of its document, and if one is at the end of its document,
so is the other. (BERT's released code answers "another document" whenever a document has a single sentence.) Spans that
may be swapped are whole sentences, judging by punctuation. If there are no two, both begin and end inside a sentence;
otherwise a full stop would show the end of a document. And both begin with a space, or both without; otherwise the
beginning of a document would show, where a byte-level vocabulary has no space, or a unigram vocabulary of Chinese its
only `▁`.

Documents of a single token have no two spans and are left out; a stretch of a single word is replaced by another one.
If there is no alternative (no other document has a span of that length, or all documents are single words), cuts are
anywhere.

`FullSentences` is unlabelled text as RoBERTa reads it: whole sentences end to end, across documents, as many as fit.

This is the paper's FULL-SENTENCES: a sequence is filled with consecutive sentences until the next one does not fit; the
separator between documents is included. A sentence ends at punctuation (`.`, `!`, `?`, `…`, also full-width, plus
closing quotes and brackets) and at line ends. A sentence longer than a sequence is cut between words, and a longer word
anywhere. As in the released code, sequences are the same in every epoch, but their order and their masks differ.
"""

from dataclasses import dataclass

import numpy as np

from foretext.errors import refuse_if
from foretext.text.corpus.shards import TokenShards
from foretext.text.tokenizers.base import Tokenizer

LEAST_ROOM = 4
FINAL = tuple(sign.encode() for sign in ".!?…。！？")  # sentence-final punctuation
_TRIES = 16  # attempts to find a stretch of several words, and another document with a span of that length


@dataclass(frozen=True)
class Span:
    """One text, or two and their label: 0 in their original order, otherwise 1."""

    texts: tuple[np.ndarray, ...]
    label: int = 0


class SpanPairs:
    """Each document in stretches of about the same length, at most `room` tokens; each stretch is one pair."""

    def __init__(
        self, shards: TokenShards, room: int, seed: int, tokenizer: Tokenizer, pairs: str, short: float
    ) -> None:
        check_room(room, shards)
        assert tokenizer.end is not None
        self.shards, self.room, self.seed, self.pairs, self.short = shards, room, seed, pairs, short
        self.tokenizer = tokenizer
        pieces = [tokenizer.piece_bytes(id) for id in range(tokenizer.size)]
        self.spaced = np.array([piece.startswith(b" ") for piece in pieces])
        self.final = np.array([piece.rstrip().endswith(FINAL) for piece in pieces])
        self.starts, self.lengths = _documents(shards, tokenizer.end)
        self.stretches = -(-self.lengths // room)
        self.before = np.concatenate([[0], np.cumsum(self.stretches)])
        refuse_if(
            not len(self.lengths) or (pairs == "next sentence" and len(self) < 2),
            f"{shards.folder}: the {shards.split} text has no two spans to compare; give more text, more documents, "
            "or use --system roberta, which needs no pairs",
        )

    def __len__(self) -> int:
        return int(self.before[-1])

    def example(self, epoch: int, index: int) -> Span:
        draw = np.random.default_rng([self.seed, epoch, index, 1])
        label = int(draw.random() < 0.5)
        index, marks = self._words(index, draw.random() < self.short, draw)
        if self.pairs == "sentence order":
            borders = self._turns(index, marks) or [(int(marks[0]), int(marks[1]), int(marks[-1]))]
            start, border, stop = borders[int(draw.integers(len(borders)))]
            first, second = self._read(start, border), self._read(border, stop)
            return Span((second, first) if label else (first, second), label)
        stop = int(marks[-1])
        border, other = self._seconds(index, marks, draw)  # whatever the label is
        after = other if label else border
        return Span((self._read(int(marks[0]), border), self._read(after, after + stop - border)), label)

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self.shards.window(start, stop - start)

    # -- words -------------------------------------------------------------------------------------------------------

    def _document(self, index: int) -> tuple[int, int, int]:
        """The document of a stretch, and where the document begins and ends in the stream."""
        document = int(np.searchsorted(self.before, index, side="right")) - 1
        start = int(self.starts[document])
        return document, start, start + int(self.lengths[document])

    def _bounds(self, index: int) -> tuple[int, int]:
        """Where a stretch begins and ends, ignoring words."""
        document, start, stop = self._document(index)
        number, of = index - int(self.before[document]), int(self.stretches[document])
        return start + number * (stop - start) // of, start + (number + 1) * (stop - start) // of

    def _marks(self, index: int) -> np.ndarray:
        """Where the words of a stretch begin, and where its last one ends. A word belongs to the stretch in which it
        begins."""
        (_, first, last), (start, stop) = self._document(index), self._bounds(index)
        right = min(last, stop + self.room)
        starts = self._word_starts(first, start, right)
        following = starts[starts >= stop]
        starts = starts[starts < stop]
        if len(following) or right == last:
            starts = np.append(starts, following[0] if len(following) else last)
        return starts[starts <= starts[0] + self.room] if len(starts) else starts

    def _word_starts(self, first: int, start: int, stop: int) -> np.ndarray:
        """The positions from `start` up to `stop` where words begin, in the document that begins at `first`."""
        left = max(first, start - 1)  # the previous piece decides whether a word begins
        starts = left + np.flatnonzero(self.tokenizer.word_starts(self._read(left, stop)))
        return starts[starts >= start]

    def _words(self, index: int, short: bool, draw: np.random.Generator) -> tuple[int, np.ndarray]:
        """`index` and the marks of its stretch, or some consecutive ones if it is to be `short`; another stretch is
        drawn if there is no border for two spans."""
        for _ in range(_TRIES):
            marks = self._marks(index)
            if short and len(marks) > 2:
                words = int(draw.integers(2, len(marks)))
                skipped = int(draw.integers(0, len(marks) - words))
                marks = marks[skipped : skipped + words + 1]
            if len(marks) > 2 and (self.pairs == "next sentence" or self._turns(index, marks)):
                return index, marks
            index = int(draw.integers(len(self)))
        start, stop = self._bounds(index)
        return index, np.arange(start, stop + 1)

    # -- borders -----------------------------------------------------------------------------------------------------

    def _turns(self, index: int, marks: np.ndarray) -> list[tuple[int, int, int]]:
        """Where two consecutive spans may begin, and where the second ends: whole sentences; if there are no two, parts
        of one; with fewer than three words, its beginning and a part."""
        first, left = self._document(index)[1], int(marks[0])
        before = max(first, left - 1)
        ended = self.final[self._read(before, int(marks[-1]))]  # for each piece, whether a sentence ends with it
        begins = np.array([place == first or bool(ended[place - 1 - before]) for place in marks.tolist()])
        inside = marks[~begins]
        choices = (marks[begins], inside, inside if not begins[0] else np.insert(inside, 0, left))
        turns = ([(*pair, int(places[-1])) for pair in self._alike(places)] for places in choices)
        return next(filter(None, turns), [])

    def _alike(self, marks: np.ndarray) -> list[tuple[int, int]]:
        """Where two consecutive spans may begin, such that both or neither have a space before them. Text before the
        first possible position is left out; the last mark is the end of the second span."""
        if len(marks) < 3:
            return []
        spaced = self.spaced[self._read(int(marks[0]), int(marks[-1]))[marks[:-1] - marks[0]]].tolist()
        places = marks[:-1].tolist()
        first = {kind: place for place, kind in zip(places[::-1], spaced[::-1])}
        return [(first[kind], place) for place, kind in zip(places, spaced) if first[kind] != place]

    def _seconds(self, index: int, marks: np.ndarray, draw: np.random.Generator) -> tuple[int, int]:
        """Where the second span begins, and where another one of the same length begins."""
        stop = int(marks[-1])
        lengths = stop - marks[1:-1]
        ends = stop == self._document(index)[2]
        for _ in range(_TRIES):
            starts, stops = self._elsewhere(index, ends, int(lengths[0]), draw)
            for length in draw.permutation(lengths).tolist() if len(starts) else ():
                places = np.intersect1d(starts, stops - length, assume_unique=True)
                if len(places):
                    return stop - length, int(draw.choice(places))
        first, last = self._bounds(self._another(index, draw))
        length = int(draw.integers(1, min(stop - int(marks[0]), last - first)))
        return stop - length, last - length

    def _elsewhere(
        self, index: int, ends: bool, longest: int, draw: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where a span of another document may begin, and where it stops: at the end of the document if it `ends`,
        otherwise before that."""
        other = self._another(index, draw)
        document, first, last = self._document(other)
        if document == self._document(index)[0]:  # there is no other document
            marks = self._marks(other)
            return marks[1:-1], marks[1:]
        if ends:
            return self._word_starts(first, max(first + 1, last - longest), last), np.array([last])
        start = int(draw.integers(first + 1, max(first + 2, last - self.room)))
        starts = self._word_starts(first, start, min(last, start + 2 * self.room))
        return starts, starts

    def _another(self, index: int, draw: np.random.Generator) -> int:
        """A stretch of another document, so that long documents are drawn more often; if there is only one document,
        another stretch of it."""
        document = self._document(index)[0]
        first, after = int(self.before[document]), int(self.before[document + 1])
        if after - first == len(self):
            first, after = index, index + 1
        other = int(draw.integers(0, len(self) - (after - first)))
        return other + (after - first if other >= first else 0)


def _documents(shards: TokenShards, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each document of at least two tokens begins, and its length; `end` follows each."""
    ends = shards.places(end)
    if not len(ends) or ends[-1] != len(shards) - 1:  # a single document may be split in its middle
        ends = np.append(ends, len(shards))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    return starts[lengths > 1], lengths[lengths > 1]


def check_room(room: int, shards: TokenShards) -> None:
    """The context is shortened to the text's length, so either may be too short."""
    refuse_if(
        room < LEAST_ROOM,
        f"{shards.folder}: room for only {max(0, room)} tokens of the {shards.split} text, too few for masking; use a "
        "longer context or give more text",
    )


# -- full sentences ----------------------------------------------------------------------------------------------------


_SIGNS = "".join(sign.decode() for sign in FINAL)
CHUNK = 1 << 22  # tokens processed at once
_CLOSING = "’”»)]}）】」』》"
_QUOTES = "\"'"  # closing quotes, if no space precedes them


class FullSentences:
    """Consecutive sentences, at most `room` tokens together."""

    def __init__(self, shards: TokenShards, room: int, tokenizer: Tokenizer) -> None:
        check_room(room, shards)
        self.shards, self.end = shards, tokenizer.end
        self.borders = _packed(shards, room, _Signs(tokenizer))

    def __len__(self) -> int:
        return len(self.borders) - 1

    def example(self, epoch: int, index: int) -> Span:
        start, stop = self.borders[index : index + 2].tolist()
        ids = self.shards.window(start, stop - start)
        # A separator ends each sequence anyway.
        return Span((ids[:-1] if len(ids) > 1 and ids[-1] == self.end else ids,))


class _Signs:
    """What the pieces of a vocabulary say about where sentences and words begin."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        pieces = [tokenizer.piece_bytes(id) for id in range(tokenizer.size)]
        self.line = np.array([piece.endswith(b"\n") for piece in pieces])
        self.final = np.array([piece.rstrip().endswith(FINAL) for piece in pieces])
        texts = [piece.decode("utf-8", errors="replace") for piece in pieces]
        closing, quotes = _CLOSING + _SIGNS, _CLOSING + _SIGNS + _QUOTES
        self.closing = np.array([_is_made_of(text.strip(), closing) or _is_made_of(text, quotes) for text in texts])
        self.apart = np.array([not _is_spaced_script(text[:1]) for text in texts])
        self.spaces = np.array([text[-1:].isspace() for text in texts])
        if tokenizer.end is not None:
            self.line[tokenizer.end] = True

    def sentence_starts(self, ids: np.ndarray) -> np.ndarray:
        """Which of `ids` begin a sentence; the first one does."""
        ended, closing = self.final[ids], self.closing[ids]
        for _ in range(2):  # for `."` and `.")`
            ended[1:] |= ended[:-1] & closing[1:]
        apart = self.apart[ids[1:]] | self.spaces[ids[:-1]]
        starts = np.ones(len(ids), dtype=bool)
        starts[1:] = (ended[:-1] & ~closing[1:] & apart) | self.line[ids[:-1]]
        return starts & self.tokenizer.word_starts(ids)


def _is_made_of(text: str, signs: str) -> bool:
    return bool(text) and not text.strip(signs)


def _is_spaced_script(sign: str) -> bool:
    """Whether it is a letter or digit of a script where a sentence begins after a space: "3.5" has no border."""
    return sign.isalnum() and ord(sign) < 0x2E80


def _packed(shards: TokenShards, room: int, signs: _Signs) -> np.ndarray:
    """Where the sequences begin, and the end of the text."""
    borders = [0]
    while borders[-1] < len(shards):
        start = borders[-1]
        ids = shards.window(start, min(CHUNK + room, len(shards) - start))
        numbers = np.arange(len(ids) + 1)
        open_end = [start + len(ids) == len(shards)]  # a sentence ends where the text ends
        sentence = _last(np.append(signs.sentence_starts(ids), open_end), numbers)
        word = _last(np.append(signs.tokenizer.word_starts(ids), open_end), numbers)
        place = 0
        while place < len(ids) and (open_end[0] or place + room <= len(ids)):
            most = min(place + room, len(ids))
            place = next(stop for stop in (int(sentence[most]), int(word[most]), most) if stop > place)
            borders.append(start + place)
    return np.array(borders)


def _last(flags: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """For each position, the last flagged one up to it."""
    return np.maximum.accumulate(np.where(flags, numbers, 0))
