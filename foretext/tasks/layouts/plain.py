"""Texts as they are, word after word, for encoders that have read nothing else (CoVe): no token says what is asked.

A text alone is its tokens. Of two, the end-of-document token stands between them, for the task's model to see where one
ends; nothing stands before the first or behind the last, where such an encoder has never seen anything. What the
encoder reads by itself, as it was taught to read sentences, has a segment of its own: the first text, the end, the
second text. A text without a token is one end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from foretext.tasks.layouts.base import Frame, TokenSequence, end_of_document, fit


class PlainLayout:
    asked_piece: Literal["first", "last"] = "first"

    def __init__(self, ids: dict[str, int], longest: int) -> None:
        """`longest`: tokens that are read of a row."""
        self.end, self.context = end_of_document(ids), longest

    def sequences(self, kind: str, texts: Sequence[Sequence[int]]) -> list[TokenSequence]:
        if kind == "choice":
            return [self._join(texts[0], choice) for choice in texts[1:]]
        return [self._join(*texts)]

    def overhead(self, texts: int) -> int:
        return texts - 1

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        return self._frame([first] if second is None else [first, second])

    def _join(self, *texts: Sequence[int]) -> TokenSequence:
        parts, cut = fit(texts, self.context - self.overhead(len(texts)))
        frame = self._frame(parts)
        return TokenSequence(frame.ids, frame.extract, cut, frame.segments, frame.parts)

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
