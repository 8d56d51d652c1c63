"""A view reads texts. It has a name, one or more blocks of numbers, and its own file in the run. No view knows a task.

    Units        the rows as words: one text each, or two (a pair; the context and one alternative of a choice); or each
                 word of a text by itself, if each word gets a prediction
    View.read    units → blocks, each a matrix [units, width], dense or sparse; each block has its own scale
    View.tensors the contents of its file; `View.of_tensors` reads it back

A view may have several blocks: the mean of a text's vectors is one, the vectors of its first words are another.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp

from foretext.text.words.splitting import split_words

Matrix: TypeAlias = np.ndarray | sp.csr_matrix
Tensors = dict[str, np.ndarray]
Fold: TypeAlias = tuple[np.ndarray, np.ndarray]  # the indices of the rows to learn from, and of those to score


@dataclass(frozen=True)
class Lookup:
    """A matrix with repeated rows, as for the words of texts: row i is row `ids[i]` of the table."""

    table: Matrix
    ids: np.ndarray

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.table.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.ids), self.table.shape[1]

    def __getitem__(self, rows: np.ndarray) -> Matrix:
        return self.table[self.ids[rows]]

    def __matmul__(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self.table @ weights)[self.ids]

    def pulled(self, given: np.ndarray) -> np.ndarray:
        """The transposed matrix times `given`."""
        return np.asarray(self.table.T @ (self._owners @ given))

    @cached_property
    def _owners(self) -> sp.csr_matrix:
        """[rows of the table, rows]: 1 where a row repeats that row of the table."""
        ones = np.ones(len(self.ids), dtype=np.float32)
        return sp.csr_matrix((ones, (self.ids, np.arange(len(self.ids)))), shape=(self.table.shape[0], len(self.ids)))


Block: TypeAlias = Matrix | Lookup


@dataclass(frozen=True)
class Units:
    """What views read, row after row; a choice has one unit per alternative."""

    words: Sequence[tuple[list[str], ...]]
    rows: np.ndarray  # the row number of each unit
    ordered: bool = True  # whether the order of two texts matters
    # If a view reads it: the trunk's state of each text, [units, width]; for words, one per layer.
    states: tuple[np.ndarray, ...] = ()
    tuned: np.ndarray | None = None  # if a view reads it: the fine-tuned trunk's scores, [units, outputs]
    # if units are words: the position of each in its text, all words of a text in order
    places: np.ndarray | None = None

    @property
    def pairs(self) -> bool:
        return len(self.words[0]) == 2

    def side(self, number: int) -> list[list[str]]:
        """The first or second text of every unit."""
        return [words[number] for words in self.words]

    def swapped(self) -> Units:
        return replace(self, words=[(b, a) for a, b in self.words], states=self.states[::-1])

    def picked(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The indices of the units of these rows."""
        return np.flatnonzero(np.isin(self.rows, rows))


def units_of(texts: Iterable[tuple[str, ...]], kind: str, ordered: bool) -> Units:
    """The units of rows with these texts."""
    words: list[tuple[list[str], ...]] = []
    rows: list[int] = []
    for number, texts_of_row in enumerate(texts):
        split = [split_words(text) for text in texts_of_row]
        units = [(split[0], choice) for choice in split[1:]] if kind == "choice" else [tuple(split)]
        words += units
        rows += [number] * len(units)
    return Units(words, np.array(rows, dtype=np.int64), ordered)


def word_units(texts: Iterable[Sequence[str]]) -> Units:
    """Each word of the texts as a unit."""
    known = [list(text) for text in texts]
    lengths = [len(text) for text in known]
    words = [(text,) for text in known for _ in text]
    places = np.concatenate([np.arange(length) for length in lengths]) if known else np.zeros(0, dtype=np.int64)
    return Units(words, np.repeat(np.arange(len(known)), lengths), places=places)


def scaled(block: Block, factor: float) -> Block:
    if isinstance(block, Lookup):
        return replace(block, table=block.table * np.float32(factor))
    return block * np.float32(factor)


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
    """Scales each row to unit length; rows of zeros stay."""
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)


def of_pairs(units: Units, compare: Callable[[Units], np.ndarray]) -> np.ndarray:
    """The result of `compare` for each pair; if pairs have no order, the mean of both orders."""
    return compare(units) if units.ordered else (compare(units) + compare(units.swapped())) / 2


def text_tensor(lines: Sequence[str]) -> np.ndarray:
    """Texts without line breaks as a tensor of bytes, so that a view's file is only safetensors."""
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8).copy()


def lines_of(tensor: np.ndarray) -> list[str]:
    """The inverse of `text_tensor`."""
    return tensor.astype(np.uint8).tobytes().decode().split("\n") if len(tensor) else []


def deal(
    labels: Sequence[object] | np.ndarray | None, groups: Sequence[int] | np.ndarray, count: int, seed: int
) -> list[Fold]:
    """At most `count` folds; none if all rows are one group. Classes are spread evenly if `labels` are classes. Rows of
    a group, which are copies of each other, stay together."""
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    count = min(count, len(np.unique(groups)))
    if count < 2:
        return []
    values = np.zeros(len(groups)) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
    shared = labels is not None and np.bincount(values).max() >= count  # otherwise no class is in every fold
    kind = StratifiedGroupKFold if shared else GroupKFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer rows than folds is missing in some folds
        return list(kind(count, shuffle=True, random_state=seed).split(values[:, None], values, np.asarray(groups)))
