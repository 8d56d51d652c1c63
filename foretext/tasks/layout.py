"""How labelled texts become token sequences: the contract between tasks and systems, and the cutting of over-long
input.

A system says how (GPT: `start premise delimiter hypothesis extract`, …); a task says what is then done with the states.
Over-long input is cut here, by one policy, and counted: the longest text of a sequence gives way first, from its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from foretext.errors import UserError

SEQUENCES = {"classification": 1, "entailment": 1, "similarity": 2, "regression": 1}  # for each example; choice: k


@dataclass(frozen=True)
class TokenSequence:
    """One transformed sequence: its ids, and the index of the state that speaks for it."""

    ids: tuple[int, ...]
    extract: int
    cut: int = 0  # tokens that did not fit


class Layout(Protocol):
    """A system's input transformations."""

    def sequences(self, kind: str, texts: Sequence[Sequence[int]]) -> list[TokenSequence]:
        """The sequences of one example, given its encoded texts."""


def fit(parts: Sequence[Sequence[int]], room: int) -> tuple[list[list[int]], int]:
    """Cuts `parts` so that together they have at most `room` tokens; returns them and how many tokens went."""
    if room < len(parts):
        raise UserError(
            f"a context with room for {max(0, room)} tokens cannot hold {len(parts)} texts; use a longer context"
        )
    lengths = [len(part) for part in parts]
    surplus = sum(lengths) - room
    cut = max(0, surplus)
    while surplus > 0:
        longest = max(range(len(lengths)), key=lambda i: lengths[i])
        others = [length for i, length in enumerate(lengths) if i != longest]
        step = min(surplus, max(1, lengths[longest] - max(others, default=0)))
        lengths[longest] -= step
        surplus -= step
    return [list(part[:length]) for part, length in zip(parts, lengths)], cut
