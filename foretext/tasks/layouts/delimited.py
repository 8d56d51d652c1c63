"""GPT's input transformations: texts joined by a delimiter between a start and an extract token, for every causal
system that is fine-tuned GPT's way.

Where every token counts, too: a causal model reads the question before the passage, and the extract token, the only one
that has read both, is where "no answer" is pointed at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from foretext.tasks.layouts.base import Frame
from foretext.tasks.layouts.causal_layout import CausalLayout

START, DELIMITER, EXTRACT = "<|start|>", "<|delimiter|>", "<|extract|>"


class DelimitedLayout(CausalLayout):
    """The paper's input transformations (its figure 1, right)."""

    specials = (START, DELIMITER, EXTRACT)

    def __init__(self, ids: dict[str, int], context: int, direction: Literal["forward", "backward"]) -> None:
        self.start, self.delimiter, self.extract = (ids[name] for name in self.specials)
        super().__init__(context, direction)

    def overhead(self, texts: int) -> int:
        return texts + 1

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
