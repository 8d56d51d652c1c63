"""Unlabelled text as RoBERTa reads it: whole sentences end to end, across documents, as many as fit.

This is the paper's FULL-SENTENCES: a sequence is filled with consecutive sentences until the next one does not fit; the
separator that ends a document stands between documents. Where a sentence ends is told by its signs (`.`, `!`, `?`, `…`,
also full-width ones, with quotes and brackets closed behind them) and by the ends of lines. One that is longer than a
sequence is cut between words, and a word that is longer anywhere. As in the released code, sequences are the same in
every epoch; their order and their masks are not.
"""

from __future__ import annotations

import numpy as np

from foretext.objectives.spans import FINAL, Span, check_room
from foretext.text.corpus.token_shards import TokenShards
from foretext.text.tokenizers.base import Tokenizer

_SIGNS = "".join(sign.decode() for sign in FINAL)
CHUNK = 1 << 22  # tokens that are looked at together
_CLOSING = "’”»)]}）】」』》"
_QUOTES = "\"'"  # which close what is before them if no space stands between


class FullSentences:
    """Consecutive sentences of at most `room` tokens together."""

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
    """What the pieces of a vocabulary say of where sentences and words begin."""

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
        for _ in range(2):  # `."` and `.")`
            ended[1:] |= ended[:-1] & closing[1:]
        apart = self.apart[ids[1:]] | self.spaces[ids[:-1]]
        starts = np.ones(len(ids), dtype=bool)
        starts[1:] = (ended[:-1] & ~closing[1:] & apart) | self.line[ids[:-1]]
        return starts & self.tokenizer.word_starts(ids)


def _is_made_of(text: str, signs: str) -> bool:
    return bool(text) and not text.strip(signs)


def _is_spaced_script(sign: str) -> bool:
    """Whether it is a letter or digit with a space before it wherever a sentence begins: "3.5" has no border."""
    return sign.isalnum() and ord(sign) < 0x2E80


def _packed(shards: TokenShards, room: int, signs: _Signs) -> np.ndarray:
    """Where the sequences begin, and the end of the text."""
    borders = [0]
    while borders[-1] < len(shards):
        start = borders[-1]
        ids = shards.window(start, min(CHUNK + room, len(shards) - start))
        numbers = np.arange(len(ids) + 1)
        open_end = [start + len(ids) == len(shards)]  # where a text ends, a sentence does
        sentence = _last(np.append(signs.sentence_starts(ids), open_end), numbers)
        word = _last(np.append(signs.tokenizer.word_starts(ids), open_end), numbers)
        place = 0
        while place < len(ids) and (open_end[0] or place + room <= len(ids)):
            most = min(place + room, len(ids))
            stop = int(sentence[most])
            if stop <= place:
                stop = int(word[most])
            place = stop if stop > place else most
            borders.append(start + place)
    return np.array(borders)


def _last(flags: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """For each place the last one up to it that is flagged."""
    return np.maximum.accumulate(np.where(flags, numbers, 0))
