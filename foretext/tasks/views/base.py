"""What a view is: a reader of texts with a name, some widths and a file of its own in the run. No view knows a task.

    Units        the rows as words: one text each, or two (a pair; the context and one alternative of a choice)
    View.read    units → blocks, each a matrix [units, width], dense or sparse; blocks are scaled apart
    View.tensors what its file holds; `View.of_tensors` reads it back

A view may have several blocks: the mean of a text's vectors is one, the vectors of its first words are another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp

from foretext.text.words.splitting import split_words

Block: TypeAlias = np.ndarray | sp.csr_matrix
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Units:
    """What views read, row after row; a choice has a unit for each of its alternatives."""

    words: Sequence[tuple[list[str], ...]]
    rows: np.ndarray  # the row of each unit
    ordered: bool = True  # whether it matters which of two texts is the first
    states: tuple[np.ndarray, ...] = ()  # of each text the trunk's state, [units, width], where a view reads that
    tuned: np.ndarray | None = None  # what the fine-tuned trunk says, [units, outputs], where a view reads that

    @property
    def pairs(self) -> bool:
        return len(self.words[0]) == 2

    def side(self, number: int) -> list[list[str]]:
        """The first or second text of every unit."""
        return [words[number] for words in self.words]

    def swapped(self) -> Units:
        return replace(self, words=[(b, a) for a, b in self.words], states=self.states[::-1])

    def picked(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The numbers of the units of these rows."""
        return np.flatnonzero(np.isin(self.rows, rows))


def units_of(texts: Iterable[tuple[str, ...]], kind: str, ordered: bool) -> Units:
    """The units of rows that have these texts."""
    words: list[tuple[list[str], ...]] = []
    rows: list[int] = []
    for number, own in enumerate(texts):
        split = [split_words(text) for text in own]
        units = [(split[0], choice) for choice in split[1:]] if kind == "choice" else [tuple(split)]
        words += units
        rows += [number] * len(units)
    return Units(words, np.array(rows, dtype=np.int64), ordered)


def is_sparse(block: Block) -> TypeGuard[sp.csr_matrix]:
    return bool(sp.issparse(block))


class View(Protocol):
    name: str

    def read(self, units: Units) -> dict[str, Block]:
        """Blocks by name."""

    def tensors(self) -> Tensors: ...

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self: ...


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """Each row divided by its length; rows of zeros stay."""
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)


def of_pairs(units: Units, compare: Callable[[Units], np.ndarray]) -> np.ndarray:
    """What `compare` says of each pair; where it has no order, the mean of both."""
    return compare(units) if units.ordered else (compare(units) + compare(units.swapped())) / 2


def text_tensor(lines: Sequence[str]) -> np.ndarray:
    """Texts without line breaks as a tensor of bytes, so that a view's file is safetensors and nothing else."""
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8).copy()


def lines_of(tensor: np.ndarray) -> list[str]:
    """What `text_tensor` wrote."""
    return tensor.astype(np.uint8).tobytes().decode().split("\n") if len(tensor) else []
