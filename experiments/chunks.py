"""Sentences of CoNLL-2000 to learn chunks from, for experiments that have few of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from experiments.token_tasks import chosen

T = TypeVar("T")


def few_sentences(rows: Sequence[T], part: float, draw: int) -> tuple[list[T], list[T]]:
    """A random part of the rows, for one draw always the same ones, and the rest; both in the order given."""
    few = set(chosen(len(rows), round(part * len(rows)), f"chunks {draw}"))
    return (
        [row for number, row in enumerate(rows) if number in few],
        [row for number, row in enumerate(rows) if number not in few],
    )
