"""Sentences of CoNLL-2000 to learn chunks from, for experiments that have few of them, and the scores of such
experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from experiments.token_tasks import chosen

T = TypeVar("T")


def few_sentences(rows: Sequence[T], part: float, draw: int) -> tuple[list[T], list[T]]:
    """A random part of the rows, for one draw always the same ones, and the rest; both in the order given."""
    few = set(chosen(len(rows), round(part * len(rows)), f"chunks {draw}"))
    return (
        [row for number, row in enumerate(rows) if number in few],
        [row for number, row in enumerate(rows) if number not in few],
    )


def by_method(
    records: Mapping[Any, Mapping[str, Any]], labels: object, methods: Iterable[str]
) -> tuple[int, dict[str, dict[int, float]]]:
    """Of the cells with `labels`: the most sentences (0: none was measured), and the F1 of each method by draw."""
    measured = {cell: record for cell, record in records.items() if cell.labels == labels}
    f1 = {
        method: {cell.draw: record["scores"]["f1"] for cell, record in measured.items() if cell.method == method}
        for method in methods
    }
    return max((record["sentences"] for record in measured.values()), default=0), f1
