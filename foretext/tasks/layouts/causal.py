"""The input of causal systems: texts one after the other, each from its end where a model reads from right to left.

`DelimitedLayout` has GPT's input transformations: texts joined by a delimiter between a start and an extract token, for
every causal system that is fine-tuned GPT's way. Where every token counts, too: a causal model reads the question
before the passage, and the extract token, the only one that has read both, is where "no answer" is pointed at.

`RunningTextLayout` has documents as a language model over streams has read them: whole, each after the token that ends
the one before. ULMFiT adds no token for its tasks. The state after the end of a document is the one that the model has
begun documents with all through pre-training; and what speaks for a document is the state after its last token, not
after another end of text, behind which an LSTM forgets. Two texts are two documents in a row. Nothing is cut to the
context, which an LSTM is not bound by: it only says through how many tokens gradients flow. Where every token counts,
one more end follows: the only token that has read all and is none of the text's, where "no answer" is pointed at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from foretext.tasks.layouts.base import Frame, Layout, end_of_document

LONGEST = 1 << 16  # tokens; a row that has more is a mistake in the file, sooner than a text
START, DELIMITER, EXTRACT = "<|start|>", "<|delimiter|>", "<|extract|>"


class CausalLayout(Layout):
    """A word is asked about where it has been read; a similarity is read both ways round."""

    both_orders = True

    def __init__(self, context: int, direction: Literal["forward", "backward"]) -> None:
        self.context = context
        self.backward = direction == "backward"
        self.asked_piece = "first" if self.backward else "last"


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


class RunningTextLayout(CausalLayout):
    """end text (end text)*; a right-to-left model reads each text from its end."""

    specials: tuple[str, ...] = ()

    def __init__(self, ids: dict[str, int], direction: Literal["forward", "backward"], longest: int = LONGEST) -> None:
        self.end = end_of_document(ids)
        super().__init__(longest, direction)

    def overhead(self, texts: int) -> int:
        return texts + 1

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Frame:
        open_end = super().frame(first, second)
        return replace(open_end, ids=(*open_end.ids, self.end), extract=len(open_end.ids))

    def _frame(self, texts: Sequence[Sequence[int]]) -> Frame:
        ids: list[int] = []
        parts = []
        for text in texts:
            ids.append(self.end)
            parts.append((len(ids), len(text)))
            ids.extend(reversed(text) if self.backward else text)
        return Frame(tuple(ids), tuple(parts), len(ids) - 1, backward=self.backward)
