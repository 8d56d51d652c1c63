"""GPT's input transformations: texts joined by a delimiter between a start and an extract token, for every causal
system that is fine-tuned GPT's way.

Where every token counts, too: a causal model reads the question before the passage, and the extract token, the only one
that has read both, is where "no answer" is pointed at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from foretext.tasks.layout import Frame, TokenSequence, fit

START, DELIMITER, EXTRACT = "<|start|>", "<|delimiter|>", "<|extract|>"


class DelimitedLayout:
    """The paper's input transformations (its figure 1, right)."""

    specials = (START, DELIMITER, EXTRACT)

    def __init__(self, ids: dict[str, int], context: int, direction: Literal["forward", "backward"]) -> None:
        self.start, self.delimiter, self.extract = (ids[name] for name in self.specials)
        self.context = context
        self.backward = direction == "backward"

    def sequences(self, kind: str, texts: Sequence[Sequence[int]]) -> list[TokenSequence]:
        if kind == "similarity":
            first, second = texts
            return [self._join(first, second), self._join(second, first)]
        if kind == "choice":
            return [self._join(texts[0], choice) for choice in texts[1:]]
        return [self._join(*texts)]

    def overhead(self, texts: int) -> int:
        return texts + 1

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        return self._frame([first] if second is None else [first, second])

    def _join(self, *texts: Sequence[int]) -> TokenSequence:
        parts, cut = fit(texts, self.context - self.overhead(len(texts)))
        frame = self._frame(parts)
        return TokenSequence(frame.ids, frame.extract, cut)

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        """start text (delimiter text)* extract; a right-to-left model reads each text from its end."""
        ids = [self.start]
        parts = []
        for number, text in enumerate(texts):
            if number:
                ids.append(self.delimiter)
            parts.append((len(ids), len(text)))
            ids.extend(reversed(text) if self.backward else text)
        ids.append(self.extract)
        return Frame(tuple(ids), tuple(parts), len(ids) - 1, backward=self.backward)
