"""How labelled texts become token sequences: the contract between tasks and systems, the systems' layouts, and the
cutting of long input.

The system defines the sequence (GPT: `start premise delimiter hypothesis extract`, …); the task defines what happens
with the states. Long input is cut here, by one policy, and counted: the longest text of a sequence is cut first, from
its end; of equally long ones the last, as in BERT's released code. If a question follows an article in one text, the
end of the article is cut and the question stays.

Causal systems (`CausalLayout`) read texts one after the other; a right-to-left model reads each from its end.

`DelimitedLayout` has GPT's input transformations: texts joined by a delimiter between a start and an extract token, for
every causal system that is fine-tuned like GPT. For answer spans too, a causal model reads the question before the
passage. "No answer" is pointed at the extract token, the only one that has read both.

`RunningTextLayout` treats texts as a language model over streams has read documents: whole, each after the token that
ends the previous one. ULMFiT adds no tokens for its tasks. The state after the end-of-document token is the one in
which the model began documents throughout pre-training. The state after a document's last token represents it, not the
state after another end token, since an LSTM forgets. Two texts are two documents in a row. Nothing is cut to the
context, which does not limit an LSTM: it only says through how many tokens gradients flow. For tags and spans one more
end token follows; it has read everything and belongs to no text, so "no answer" is pointed at it.

Systems that see both sides (`FramedLayout`) read `[CLS] a [SEP] b [SEP]` (BERT, ALBERT), `<s> a </s></s> b </s>`
(RoBERTa), `a <sep> b <sep> <cls>` (XLNet).

Such a model sees both texts at once, so a pair is read in one order, in similarity too. The state of one special token,
the first or the last, represents the sequence, and "no answer" is pointed at it.

`PlainLayout` has plain texts, word after word, for encoders that have read nothing else (CoVe). A single text is its
tokens. Between two texts stands the end-of-document token, so that the task model sees the border; there is nothing
before the first or after the last, where such an encoder has never seen anything. Each part that the encoder reads by
itself has its own segment: the first text, the end token, the second text. A text without tokens becomes one end token.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from foretext.errors import UserError, refuse_if
from foretext.tasks.files.formats import question_in
from foretext.text.tokenizers.base import END

# the token that ends a document, by kind of vocabulary: the first one present is used
ENDS = ("[SEP]", "<sep>", "</s>", "</S>", END)


@dataclass(frozen=True)
class TokenSequence:
    """One transformed sequence: its ids, and the index of the state that represents it."""

    ids: tuple[int, ...]
    extract: int
    cut: int = 0  # tokens that did not fit
    segments: tuple[int, ...] = ()  # the segment of each token, for systems that have them; empty: none
    parts: tuple[tuple[int, int], ...] = ()  # for each text: the index of its leftmost token in `ids`, and its length


@dataclass(frozen=True)
class Frame:
    """One text, or a question and its passage, uncut, with a system's special tokens. `place` finds their tokens;
    `extract` is the index of the state that represents the whole, where "no answer" is pointed at too."""

    ids: tuple[int, ...]
    parts: tuple[tuple[int, int], ...]  # for each text: the index of its leftmost token in `ids`, and its length
    extract: int
    segments: tuple[int, ...] = ()
    backward: bool = False  # whether each text stands there in reverse

    def place(self, part: int, token: int) -> int:
        """The index in `ids` of token number `token` of text `part`."""
        first, length = self.parts[part]
        assert 0 <= token < length, f"token {token} of {length}"
        return first + (length - 1 - token if self.backward else token)


class Tailed(list[int]):
    """A text's tokens; the last `tail` of them are not cut."""

    def __init__(self, ids: Iterable[int], tail: int) -> None:
        super().__init__(ids)
        self.tail = tail


def keeping_question(
    parts: Sequence[Sequence[int]], texts: Sequence[str], format: str | None, encode: Callable[[str], Sequence[int]]
) -> Sequence[Sequence[int]]:
    """The encoded `texts` of a row. If the published layout puts a question at the end of the first text, it becomes a
    tail."""
    question = question_in(texts[0], format) if format else ""
    return [Tailed(parts[0], len(encode(question))), *parts[1:]] if question else parts


def end_of_document(ids: dict[str, int]) -> int:
    """The token after each document, from a vocabulary's special tokens."""
    ends = [ids[name] for name in ENDS if name in ids]
    refuse_if(not ends, "the vocabulary has no token that ends a document; use another vocabulary")
    return ends[0]


def fit(parts: Sequence[Sequence[int]], room: int) -> tuple[list[list[int]], int]:
    """Cuts `parts` to at most `room` tokens together; returns them and the number of tokens cut.

    A tail is kept unless it exceeds its part's even share of the room.
    """
    if room < len(parts):
        raise UserError(
            f"a context with room for {max(0, room)} tokens cannot hold {len(parts)} texts; use a longer context (and "
            "a longer model.evaluation_memory, if the model has one)"
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


LONGEST = 1 << 16  # tokens; a longer row is probably a mistake in the file
START, DELIMITER, EXTRACT = "<|start|>", "<|delimiter|>", "<|extract|>"
AT_END = 2  # the segment of the token that represents the sequence from its end


class Layout:
    """A system's input transformations: texts one after the other in one sequence, cut to fit. The special tokens are
    the subclass's. Each choice is read with the context it belongs to."""

    context: int
    # The special tokens before the first text, between two, and after the last.
    before: Sequence[int] = ()
    between: Sequence[int] = ()
    behind: Sequence[int] = ()
    backward = False  # whether each text is read from its end
    extract = -1  # the place of the token whose state represents the sequence: 0 or -1
    asked_piece: Literal["first", "last"] = "first"  # the piece of a word where its tag is predicted
    both_orders = False  # whether a similarity, which has no order, is read in both orders

    def sequences(self, kind: str, texts: Sequence[Sequence[int]]) -> list[TokenSequence]:
        """The sequences of one example, given its encoded texts; what does not fit is cut."""
        if kind == "similarity" and self.both_orders:
            first, second = texts
            return [self._join(first, second), self._join(second, first)]
        if kind == "choice":
            return [self._join(texts[0], choice) for choice in texts[1:]]
        return [self._join(*texts)]

    def overhead(self, texts: int) -> int:
        """How many special tokens surround so many texts."""
        return len(self.before) + len(self.between) * (texts - 1) + len(self.behind)

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        """One text, or two, with special tokens. Nothing is cut: the caller makes sure that it fits."""
        return self._frame([first] if second is None else [first, second])

    def _join(self, *texts: Sequence[int]) -> TokenSequence:
        parts, cut = fit(texts, self.context - self.overhead(len(texts)))
        frame = self._frame(parts)
        return TokenSequence(frame.ids, frame.extract, cut, frame.segments, frame.parts)

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        """The uncut texts with special tokens."""
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
        """The segment of each token, for systems that have them."""
        return ()


class CausalLayout(Layout):
    """A word's tag is predicted after it has been read; a similarity is read in both orders."""

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
    """end text (end text)*, and for tags and spans one more end."""

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
        """`speaker`: the token that represents the sequence; it stands first, or `at_end`, and then has its own
        segment. `between`: the separators between two texts; one of them ends the last text. `segments`: whether the
        second text's tokens have another segment."""
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
        types = [0] * second + [1] * (length - second)
        if self.at_end:
            types[-1] = AT_END
        return tuple(types)


class PlainLayout(Layout):
    extract = 0

    def __init__(self, ids: dict[str, int], longest: int) -> None:
        """`longest`: tokens read per row."""
        self.end, self.context = end_of_document(ids), longest
        self.between = [self.end]

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        frame = super()._frame(texts)
        return frame if frame.ids else replace(frame, ids=(self.end,))

    def types(self, length: int, parts: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Even numbers for texts, odd ones for the separators."""
        if len(parts) == 1:
            return ()
        types = [kind for number, (_, size) in enumerate(parts) for kind in (*[2 * number] * size, 2 * number + 1)]
        return tuple(types[:-1])
