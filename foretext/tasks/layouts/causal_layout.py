"""What the layouts of causal systems share: which texts are read one after the other, and that they are cut to fit.

What stands between the texts is each layout's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from foretext.tasks.layouts.base import Frame, TokenSequence, fit


class CausalLayout:
    """Texts one after the other in one sequence; a right-to-left model reads each from its end. A similarity, which has
    no order, is read both ways round; each choice is read with what it belongs to."""

    def __init__(self, context: int, direction: Literal["forward", "backward"]) -> None:
        self.context = context
        self.backward = direction == "backward"
        self.asked_piece: Literal["first", "last"] = "first" if self.backward else "last"

    def overhead(self, texts: int) -> int:
        """How many special tokens stand round so many texts."""
        raise NotImplementedError

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        """The texts, whole, between special tokens."""
        raise NotImplementedError

    def sequences(self, kind: str, texts: Sequence[Sequence[int]]) -> list[TokenSequence]:
        if kind == "similarity":
            first, second = texts
            return [self._join(first, second), self._join(second, first)]
        if kind == "choice":
            return [self._join(texts[0], choice) for choice in texts[1:]]
        return [self._join(*texts)]

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        return self._frame([first] if second is None else [first, second])

    def _join(self, *texts: Sequence[int]) -> TokenSequence:
        parts, cut = fit(texts, self.context - self.overhead(len(texts)))
        frame = self._frame(parts)
        return TokenSequence(frame.ids, frame.extract, cut, parts=frame.parts)
