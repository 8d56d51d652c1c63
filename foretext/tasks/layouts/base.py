"""How labelled texts become token sequences: the contract between tasks and systems, the systems' layouts, and the
cutting of over-long input.

A system says how (GPT: `start premise delimiter hypothesis extract`, …); a task says what is then done with the states.
Over-long input is cut here, by one policy, and counted: the longest text of a sequence gives way first, from its end;
of equally long ones the last, as in BERT's released code.
Where a question stands behind an article in one text, the end of the article goes and the question stays.

Causal systems (`CausalLayout`) read texts one after the other, each from its end where a model reads from right to
left.

`DelimitedLayout` has GPT's input transformations: texts joined by a delimiter between a start and an extract token, for
every causal system that is fine-tuned GPT's way. Where every token counts, too: a causal model reads the question
before the passage, and the extract token, the only one that has read both, is where "no answer" is pointed at.

`RunningTextLayout` has documents as a language model over streams has read them: whole, each after the token that ends
the one before. ULMFiT adds no token for its tasks. The state after the end of a document is the one that the model has
begun documents with all through pre-training; and what speaks for a document is the state after its last token, not
after another end of text, behind which an LSTM forgets. Two texts are two documents in a row. Nothing is cut to the
context, which an LSTM is not bound by: it only says through how many tokens gradients flow. Where every token counts,
one more end follows: the only token that has read all and is none of the text's, where "no answer" is pointed at.

Systems that see both sides (`FramedLayout`) read `[CLS] a [SEP] b [SEP]` (BERT, ALBERT), `<s> a </s></s> b </s>`
(RoBERTa), `a <sep> b <sep> <cls>` (XLNet).

Such a model sees both texts at once, so a pair is read in one order, similarity too. The state of one special token,
the first or the last, speaks for the sequence, and is where "no answer" is pointed at.

`PlainLayout` has texts as they are, word after word, for encoders that have read nothing else (CoVe): no token says
what is asked. A text alone is its tokens. Of two, the end-of-document token stands between them, for the task's model
to see where one ends; nothing stands before the first or behind the last, where such an encoder has never seen
anything. What the encoder reads by itself, as it was taught to read sentences, has a segment of its own: the first
text, the end, the second text. A text without a token is one end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
    question = question_in(texts[0], format) if format else ""
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


LONGEST = 1 << 16  # tokens; a row that has more is a mistake in the file, sooner than a text
START, DELIMITER, EXTRACT = "<|start|>", "<|delimiter|>", "<|extract|>"
AT_END = 2  # the type of the token that speaks from the end


class Layout:
    """A system's input transformations: texts one after the other in one sequence, cut to fit. What stands round them
    is each layout's own. Each choice is read with what it belongs to."""

    context: int
    # The special tokens before the first text, between two, and behind the last.
    before: Sequence[int] = ()
    between: Sequence[int] = ()
    behind: Sequence[int] = ()
    backward = False  # whether each text is read from its end
    extract = -1  # the place of the token whose state speaks for all: 0 or -1
    asked_piece: Literal["first", "last"] = "first"  # of a word, where it is tagged
    both_orders = False  # whether a similarity, which has no order, is read both ways round

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
        return len(self.before) + len(self.between) * (texts - 1) + len(self.behind)

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        """One text, or two, between special tokens. Nothing is cut: the caller sees to it that it fits."""
        return self._frame([first] if second is None else [first, second])

    def _join(self, *texts: Sequence[int]) -> TokenSequence:
        parts, cut = fit(texts, self.context - self.overhead(len(texts)))
        frame = self._frame(parts)
        return TokenSequence(frame.ids, frame.extract, cut, frame.segments, frame.parts)

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        """The texts, whole, between special tokens."""
        ids, parts = list(self.before), []
        for number, text in enumerate(texts):
            if number:
                ids += self.between
            parts.append((len(ids), len(text)))
            ids += reversed(text) if self.backward else text
        ids += self.behind
        extract = self.extract % len(ids) if ids else 0
        return Frame(tuple(ids), tuple(parts), extract, self.types(len(ids), parts), self.backward)

    def types(self, length: int, parts: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """The type of each token, for systems that have them."""
        return ()


class CausalLayout(Layout):
    """A word is asked about where it has been read; a similarity is read both ways round."""

    both_orders = True

    def __init__(self, context: int, direction: Literal["forward", "backward"]) -> None:
        self.context = context
        self.backward = direction == "backward"
        self.asked_piece = "first" if self.backward else "last"


class DelimitedLayout(CausalLayout):
    """The paper's input transformations (its figure 1, right): start text (delimiter text)* extract."""

    specials = (START, DELIMITER, EXTRACT)

    def __init__(self, ids: dict[str, int], context: int, direction: Literal["forward", "backward"]) -> None:
        self.before, self.between, self.behind = ([ids[name]] for name in self.specials)
        super().__init__(context, direction)


class RunningTextLayout(CausalLayout):
    """end text (end text)*, and where every token counts one more end."""

    specials: tuple[str, ...] = ()

    def __init__(self, ids: dict[str, int], direction: Literal["forward", "backward"], longest: int = LONGEST) -> None:
        self.end = end_of_document(ids)
        self.before = self.between = [self.end]
        super().__init__(longest, direction)

    def overhead(self, texts: int) -> int:
        return texts + 1

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        open_end = super().frame(first, second)
        return replace(open_end, ids=(*open_end.ids, self.end), extract=len(open_end.ids))


class FramedLayout(Layout):
    def __init__(
        self, speaker: int, between: Sequence[int], context: int, segments: bool, at_end: bool = False
    ) -> None:
        """`speaker`: the token that speaks for the sequence; it stands first, or `at_end`, and is then of a type of its
        own. `between`: the separators between two texts; one of them ends the last. `segments`: whether the second
        text's tokens are of another type."""
        self.speaker, self.between, self.context, self.segments = speaker, tuple(between), context, segments
        self.at_end = at_end
        if at_end:
            self.behind = [between[0], speaker]
        else:
            self.before, self.behind, self.extract = [speaker], [between[0]], 0

    def types(self, length: int, parts: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """1 from the second text on."""
        if not self.segments:
            return ()
        second = parts[1][0] if len(parts) > 1 else length
        found = [0] * second + [1] * (length - second)
        if self.at_end:
            found[-1] = AT_END
        return tuple(found)


class PlainLayout(Layout):
    extract = 0

    def __init__(self, ids: dict[str, int], longest: int) -> None:
        """`longest`: tokens that are read of a row."""
        self.end, self.context = end_of_document(ids), longest
        self.between = [self.end]

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        frame = super()._frame(texts)
        return frame if frame.ids else replace(frame, ids=(self.end,))

    def types(self, length: int, parts: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Even numbers for texts, odd ones for what stands between them."""
        if len(parts) == 1:
            return ()
        found = [kind for number, (_, own) in enumerate(parts) for kind in (*[2 * number] * own, 2 * number + 1)]
        return tuple(found[:-1])
