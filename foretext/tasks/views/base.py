"""A view reads texts. It has a name, one or more blocks of numbers, and its own file in the run. No view knows a task.

    Units        the rows as words: one text each, or two (a pair; the context and one alternative of a choice); or each
                 word of a text by itself, if each word gets a prediction
    View.read    units → blocks, each a matrix [units, width], dense or sparse; each block has its own scale
    View.tensors the contents of its file; `View.of_tensors` reads it back
    ViewHead     the one head over all views: weights for each of their blocks, whose sum gives each unit its outputs

A view may have several blocks: the mean of a text's vectors is one, the vectors of its first words are another.

Each family fits the head in its own way: a ridge-penalised regression for rows (`rows/linear.py`), a chain of tags
(`words/viewed_sentences.py`), spans of a passage (`answers/viewed_questions.py`).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol, Self, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp

from foretext.nn.task_models.crf import Chain
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


class Terms(dict[str, int]):
    """Words or other terms, each with its number: its column of a matrix, or its row of a table."""

    def __init__(self, terms: Iterable[str]) -> None:
        super().__init__(zip(terms, itertools.count()))

    @classmethod
    def counted(cls, counts: Mapping[str, int], least: int = 1, most: int | None = None) -> Self:
        """The most frequent ones, of those that occur at least `least` times."""
        kept = [term for term, count in counts.items() if count >= least]
        return cls(sorted(kept, key=lambda term: (-counts[term], term))[:most])

    def numbers(self, words: Iterable[str]) -> np.ndarray:
        """The number of each word, −1 for an unknown one."""
        return np.array([self.get(word, -1) for word in words], dtype=np.int64)

    def tensor(self) -> np.ndarray:
        """For a file; `lines_of` reads it back."""
        return text_tensor(list(self))


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


# -- the head ----------------------------------------------------------------------------------------------------------


class Lengths(NamedTuple):
    """The scores of a head for spans besides those of words: of each length, and of "no answer"."""

    lengths: np.ndarray  # [longest]
    nothing: np.ndarray  # [1]
    threshold: np.ndarray  # [1]: the margin by which "no answer" must outscore the best span


@dataclass(eq=False)
class ViewHead:
    """Views, and weights for each of their blocks."""

    views: list[View]
    weights: Tensors
    bias: np.ndarray
    kind: str
    # each block's share of the variance of the scores on the training rows
    shares: dict[str, float] = field(default_factory=dict)
    texts: int = 1  # per unit
    chain: Chain | None = None  # for tags: the transition scores
    # For regression: the lowest and the highest score of the training rows; a text unlike all of these can otherwise
    # get a score far outside.
    limits: np.ndarray | None = None
    lengths: Lengths | None = None  # for answers: the scores of their lengths

    @property
    def names(self) -> list[str]:
        return [view.name for view in self.views]

    def scores(self, units: Units) -> list[np.ndarray]:
        """In the format of a trunk's head: for each row the logits of its classes or choices, or its score; for tags
        and answers those of each word."""
        outputs = self.bias + sum(block @ self.weights[name] for name, block in read_blocks(self.views, units).items())
        if self.limits is not None:
            outputs = np.clip(outputs, *self.limits)
        return by_row(np.asarray(outputs), units, self.kind)

    def contributions(self, units: Units) -> dict[str, np.ndarray]:
        """What each block adds to the units' outputs."""
        return contributions(read_blocks(self.views, units), self.weights)


@dataclass(frozen=True)
class ChosenStrength:
    """The result of cross-validation."""

    strength: float
    losses: dict[float, float]  # by strength, summed over the rows of the folds


@dataclass(frozen=True)
class FittedHead:
    head: ViewHead
    chosen: ChosenStrength  # by cross-validation, on `rows`
    rows: np.ndarray  # the rows of the folds
    relevance: dict[str, float]  # of each block; empty if it is not learned


def read_blocks(views: Sequence[View], units: Units) -> dict[str, Block]:
    """All blocks of all views, named `view.block`."""
    return {f"{view.name}.{name}": block for view in views for name, block in view.read(units).items()}


def contributions(blocks: Mapping[str, Block], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What each block adds to the units' outputs."""
    return {name: np.asarray(block @ weights[name]) for name, block in blocks.items()}


def shares_of(blocks: Mapping[str, Block], weights: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Each block's share of the variance of the scores."""
    spread = {name: float(added.var(0).mean()) for name, added in contributions(blocks, weights).items()}
    return {name: variance / max(sum(spread.values()), 1e-12) for name, variance in spread.items()}


def by_row(outputs: np.ndarray, units: Units, kind: str) -> list[np.ndarray]:
    """[units, outputs] as one array per row."""
    if kind == "regression":
        return list(outputs[:, 0])
    if kind != "choice" and units.places is None:
        return list(outputs)
    ends = np.flatnonzero(np.diff(units.rows)) + 1
    return np.split(outputs if units.places is not None else outputs[:, 0], ends)
