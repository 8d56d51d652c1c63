"""The input of systems that see both sides: `[CLS] a [SEP] b [SEP]` (BERT, ALBERT), `<s> a </s></s> b </s>` (RoBERTa),
`a <sep> b <sep> <cls>` (XLNet).

Such a model sees both texts at once, so a pair is read in one order, similarity too. The state of one special token,
the first or the last, speaks for the sequence, and is where "no answer" is pointed at.

`PlainLayout` has texts as they are, word after word, for encoders that have read nothing else (CoVe): no token says
what is asked. A text alone is its tokens. Of two, the end-of-document token stands between them, for the task's model
to see where one ends; nothing stands before the first or behind the last, where such an encoder has never seen
anything. What the encoder reads by itself, as it was taught to read sentences, has a segment of its own: the first
text, the end, the second text. A text without a token is one end.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretext.tasks.layouts.base import Frame, Layout, end_of_document

AT_END = 2  # the type of the token that speaks from the end


class FramedLayout(Layout):
    def __init__(
        self, speaker: int, between: Sequence[int], context: int, segments: bool, at_end: bool = False
    ) -> None:
        """`speaker`: the token that speaks for the sequence; it stands first, or `at_end`, and is then of a type of its
        own. `between`: the separators between two texts; one of them ends the last. `segments`: whether the second
        text's tokens are of another type."""
        self.speaker, self.between, self.context, self.segments = speaker, tuple(between), context, segments
        self.at_end = at_end

    def overhead(self, texts: int) -> int:
        return 2 + len(self.between) * (texts - 1)

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        start = [] if self.at_end else [self.speaker]
        ids, parts, segments = list(start), [], [0] * len(start)
        for number, text in enumerate(texts):
            last = number == len(texts) - 1
            parts.append((len(ids), len(text)))
            added = [*text, *(self.between[:1] if last else self.between)]
            ids += added
            segments += [min(number, 1)] * len(added)
        if self.at_end:
            ids.append(self.speaker)
            segments.append(AT_END)
        extract = len(ids) - 1 if self.at_end else 0
        return Frame(tuple(ids), tuple(parts), extract, tuple(segments) if self.segments else ())


class PlainLayout(Layout):
    def __init__(self, ids: dict[str, int], longest: int) -> None:
        """`longest`: tokens that are read of a row."""
        self.end, self.context = end_of_document(ids), longest

    def overhead(self, texts: int) -> int:
        return texts - 1

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        ids: list[int] = []
        parts, segments = [], list[int]()
        for number, text in enumerate(texts):
            if number:
                ids.append(self.end)
                segments.append(2 * number - 1)
            parts.append((len(ids), len(text)))
            ids += text
            segments += [2 * number] * len(text)
        return Frame(tuple(ids) or (self.end,), tuple(parts), 0, tuple(segments) if len(texts) > 1 else ())
