"""The input of masked systems: `[CLS] a [SEP] b [SEP]` (BERT, ALBERT), `<s> a </s></s> b </s>` (RoBERTa).

Such a model sees both texts at once, so a pair is read in one order, similarity too. The first token's state speaks for
the sequence, and is where "no answer" is pointed at.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretext.tasks.layout import Frame, TokenSequence, fit


class FramedLayout:
    def __init__(self, first: int, between: Sequence[int], context: int, segments: bool) -> None:
        """`between`: the separators between two texts; one of them ends the sequence. `segments`: whether the second
        text's tokens are of another type."""
        self.first, self.between, self.context, self.segments = first, tuple(between), context, segments

    def sequences(self, kind: str, texts: Sequence[Sequence[int]]) -> list[TokenSequence]:
        if kind == "choice":
            return [self._join(texts[0], choice) for choice in texts[1:]]
        return [self._join(*texts)]

    def overhead(self, texts: int) -> int:
        return 2 + len(self.between) * (texts - 1)

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        return self._frame([first] if second is None else [first, second])

    def _join(self, *texts: Sequence[int]) -> TokenSequence:
        parts, cut = fit(texts, self.context - self.overhead(len(texts)))
        frame = self._frame(parts)
        return TokenSequence(frame.ids, frame.extract, cut, frame.segments, frame.parts)

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        ids, parts, segments = [self.first], [], [0]
        for number, text in enumerate(texts):
            last = number == len(texts) - 1
            parts.append((len(ids), len(text)))
            added = [*text, *(self.between[:1] if last else self.between)]
            ids += added
            segments += [min(number, 1)] * len(added)
        return Frame(tuple(ids), tuple(parts), 0, tuple(segments) if self.segments else ())
