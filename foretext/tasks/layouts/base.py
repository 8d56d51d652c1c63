"""How labelled texts become token sequences: the contract between tasks and systems, and the cutting of over-long
input.

A system says how (GPT: `start premise delimiter hypothesis extract`, …); a task says what is then done with the states.
Over-long input is cut here, by one policy, and counted: the longest text of a sequence gives way first, from its end;
of equally long ones the last, as in BERT's released code.
Where a question stands behind an article in one text, the end of the article goes and the question stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from foretext.errors import UserError
from foretext.tasks.files.formats import question_in
from foretext.text.tokenizers.base import END

ENDS = ("[SEP]", "<sep>", "</s>", "</S>", END)  # what ends a document, by kind of vocabulary: the first that it has


@dataclass(frozen=True)
class TokenSequence:
    """One transformed sequence: its ids, and the index of the state that speaks for it."""

    ids: tuple[int, ...]
    extract: int
    cut: int = 0  # tokens that did not fit
    segments: tuple[int, ...] = ()  # the type of each token, for systems that have them; empty: none
    parts: tuple[tuple[int, int], ...] = ()  # of each text: the index of its leftmost token in `ids`, and its length


@dataclass(frozen=True)
class Frame:
    """One text, or a question and its passage, whole, between a system's special tokens. `place` says where a token of
    theirs stands; `extract` is the index of the state that speaks for all, where "no answer" is pointed at too."""

    ids: tuple[int, ...]
    parts: tuple[tuple[int, int], ...]  # of each text: the index of its leftmost token in `ids`, and its length
    extract: int
    segments: tuple[int, ...] = ()
    backward: bool = False  # whether each text stands there from its end

    def place(self, part: int, token: int) -> int:
        """The index in `ids` of the token with this number in text `part`."""
        first, length = self.parts[part]
        assert 0 <= token < length, f"token {token} of {length}"
        return first + (length - 1 - token if self.backward else token)


class Tailed(list[int]):
    """A text's tokens, of which the last `tail` are not cut."""

    def __init__(self, ids: Iterable[int], tail: int) -> None:
        super().__init__(ids)
        self.tail = tail


def keeping_question(
    parts: Sequence[Sequence[int]], texts: Sequence[str], format: str | None, encode: Callable[[str], Sequence[int]]
) -> Sequence[Sequence[int]]:
    """The encoded `texts` of a row, the first with its question as a tail if the published layout has one there."""
    question = question_in(texts[0], format)
    return [Tailed(parts[0], len(encode(question))), *parts[1:]] if question else parts


def end_of_document(ids: dict[str, int]) -> int:
    """The token that stands after each document, of the ids of a vocabulary's specials."""
    found = [ids[name] for name in ENDS if name in ids]
    if not found:
        raise UserError("the vocabulary has no token that ends a document; use another")
    return found[0]


def fit(parts: Sequence[Sequence[int]], room: int) -> tuple[list[list[int]], int]:
    """Cuts `parts` so that together they have at most `room` tokens; returns them and how many tokens went.

    A tail is kept as long as it is no more than its part's even share of the room.
    """
    if room < len(parts):
        raise UserError(
            f"a context with room for {max(0, room)} tokens cannot hold {len(parts)} texts; use a longer context "
            "(and a longer model.evaluation_memory, where a model has one)"
        )
    lengths = [len(part) for part in parts]
    tails = [min(part.tail, len(part), room // len(parts)) if isinstance(part, Tailed) else 0 for part in parts]
    surplus = sum(lengths) - room
    cut = max(0, surplus)
    while surplus > 0:
        able = [i for i, tail in enumerate(tails) if lengths[i] > max(1, tail)]
        longest = max(able, key=lambda i: (lengths[i], i))
        others = [length for i, length in enumerate(lengths) if i != longest]
        step = min(surplus, max(1, lengths[longest] - max(others, default=0)), lengths[longest] - tails[longest])
        lengths[longest] -= step
        surplus -= step
    kept = zip(parts, lengths, tails)
    return [[*part[: length - tail], *part[len(part) - tail :]] for part, length, tail in kept], cut


class Layout:
    """A system's input transformations: texts one after the other in one sequence, cut to fit. What stands between them
    is each layout's own. Each choice is read with what it belongs to."""

    context: int
    asked_piece: Literal["first", "last"] = "first"  # of a word, where it is tagged
    both_orders: bool = False  # whether a similarity, which has no order, is read both ways round

    def sequences(self, kind: str, texts: Sequence[Sequence[int]]) -> list[TokenSequence]:
        """The sequences of one example, given its encoded texts; what does not fit is cut."""
        if kind == "similarity" and self.both_orders:
            first, second = texts
            return [self._join(first, second), self._join(second, first)]
        if kind == "choice":
            return [self._join(texts[0], choice) for choice in texts[1:]]
        return [self._join(*texts)]

    def overhead(self, texts: int) -> int:
        """How many special tokens stand round so many texts."""
        raise NotImplementedError

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        """One text, or two, between special tokens. Nothing is cut: the caller sees to it that it fits."""
        return self._frame([first] if second is None else [first, second])

    def _join(self, *texts: Sequence[int]) -> TokenSequence:
        parts, cut = fit(texts, self.context - self.overhead(len(texts)))
        frame = self._frame(parts)
        return TokenSequence(frame.ids, frame.extract, cut, frame.segments, frame.parts)

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        """The texts, whole, between special tokens."""
        raise NotImplementedError
