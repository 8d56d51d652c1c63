"""GPT's input transformations: texts joined by a delimiter between a start and an extract token, for every causal
system that is fine-tuned GPT's way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from foretext.tasks.layout import TokenSequence, fit

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

    def _join(self, *texts: Sequence[int]) -> TokenSequence:
        """start text (delimiter text)* extract; a right-to-left model reads each text from its end."""
        parts, cut = fit(texts, self.context - len(texts) - 1)
        ids = [self.start]
        for number, part in enumerate(parts):
            if number:
                ids.append(self.delimiter)
            ids.extend(reversed(part) if self.backward else part)
        ids.append(self.extract)
        return TokenSequence(tuple(ids), len(ids) - 1, cut)
