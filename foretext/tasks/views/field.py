"""What heads over views of words share, whether they choose tags (`words/viewed_sentences.py`) or a span
(`answers/viewed_questions.py`). The scores of words are linear in all blocks, and a structure computes the likelihood
of the labels from them.

    loss = Σ_texts −log p(labels | bias + Σ_v X_v W_v, extra) + |W, extra|²/(2·strength)

Learned in this order: the views, how strongly the head is regularised (by cross-validation over texts), and the
weights. Unlike for rows, it is not learned how much each block counts: the evidence from some hundred words
(`rows/linear.py`) says little about rare features, which are most features of a language. So the views give their
blocks on one scale. The loss is convex, so L-BFGS finds the one minimum, and the seed affects only the folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from foretext.errors import refuse_if
from foretext.tasks.family import Progress
from foretext.tasks.views.base import (
    Block,
    ChosenStrength,
    FittedHead,
    Lookup,
    Tensors,
    Units,
    View,
    ViewHead,
    deal,
    is_sparse,
    read_blocks,
    shares_of,
)

FOLDS = 3
USUAL = 1.0  # if the folds cannot tell
_CLOSE, _CLOSE_FOLD = 1e-5, 1e-4  # stop when an iteration lowers the loss per label by less
_FLAT = 1e-6  # a slope that counts as 0
_ITERATIONS, _MOST_ITERATIONS = 10, 400  # between two checks of the loss, and in all
_HISTORY = 6

Extra = Sequence[np.ndarray]


class Structure(Protocol):
    """Texts with their labels, and the labels' probability given the scores of all words."""

    outputs: int  # scores per word
    shapes: Sequence[tuple[int, ...]]  # of the weights besides those of blocks, `extra`
    labels: int  # number of labels

    def loss(self, scores: np.ndarray, extra: Extra) -> tuple[float, np.ndarray, Extra]:
        """−log p of the labels, summed, with its gradients; `scores`: [words, outputs]."""


@dataclass(frozen=True)
class Weights:
    """The weights of a head: of each block, of each output, and the structure's own."""

    blocks: Tensors
    bias: np.ndarray
    extra: Extra


class Problem:
    """The loss of texts, as a function of one vector of all weights."""

    def __init__(self, blocks: Mapping[str, Block], structure: Structure, units: np.ndarray) -> None:
        """`units`: those to learn from, all of a text, as in `structure`."""
        self.structure, self.words = structure, len(units)
        self.blocks, self.columns, self.widths = {}, {}, {}
        for name, block in blocks.items():
            self.blocks[name], self.columns[name] = _used(block, units)
            self.widths[name] = block.shape[1]
        outputs = structure.outputs
        self.shapes = [*((block.shape[1], outputs) for block in self.blocks.values()), *structure.shapes, (outputs,)]
        self.size = sum(int(np.prod(shape)) for shape in self.shapes)
        # The blocks' own precision: float32 halves the time, most of which goes into vectors with one number per
        # weight.
        self.precision = np.result_type(*(block.dtype for block in self.blocks.values()))

    def parts(self, vector: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        """The weights of blocks, the extra ones, and the bias."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        *tables, bias = [part.reshape(shape) for part, shape in zip(np.split(vector, ends), self.shapes)]
        return tables[: len(self.blocks)], tables[len(self.blocks) :], bias

    def loss(self, vector: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
        """The loss with its gradient. The bias is not penalised."""
        weights, extra, bias = self.parts(vector)
        scores = np.zeros((self.words, self.structure.outputs))
        for block, table in zip(self.blocks.values(), weights):
            scores += block @ table
        total, slope, of_extra = self.structure.loss(scores + bias, [table.astype(np.float64) for table in extra])
        rounded = slope.astype(self.precision)
        slopes = [*(pulled(block, rounded) for block in self.blocks.values()), *of_extra, slope.sum(0)]
        penalised = len(vector) - len(bias)
        gradient = np.concatenate([part.reshape(-1).astype(self.precision, copy=False) for part in slopes])
        gradient[:penalised] += vector[:penalised] / strength
        return total + float(vector[:penalised] @ vector[:penalised]) / (2 * strength), gradient

    def solve(self, strength: float, begin: np.ndarray | None = None, close: float = _CLOSE) -> np.ndarray:
        """The weights that minimise the loss."""
        vector = torch.from_numpy(np.zeros(self.size, self.precision) if begin is None else begin.copy())
        vector.requires_grad_()
        optimizer = torch.optim.LBFGS(
            [vector],
            max_iter=_ITERATIONS,
            history_size=_HISTORY,
            tolerance_grad=_FLAT,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def objective() -> float:
            total, gradient = self.loss(vector.detach().numpy(), strength)
            vector.grad = torch.from_numpy(gradient)
            return total

        before = float(optimizer.step(objective))
        for _ in range(_MOST_ITERATIONS // _ITERATIONS - 1):
            after = float(optimizer.step(objective))  # continues; it returns the loss at its start
            if before - after <= close * _ITERATIONS * self.structure.labels:
                break
            before = after
        refuse_if(
            not bool(torch.isfinite(vector).all()),
            "the loss of the head over the views is not finite; train without views: --views none",
        )
        return vector.detach().numpy()

    def weights(self, vector: np.ndarray) -> Weights:
        """In the blocks' columns: features that do not occur have weight 0."""
        weights, extra, bias = self.parts(vector)
        blocks = {}
        for name, weight in zip(self.blocks, weights):
            blocks[name] = np.zeros((self.widths[name], weight.shape[1]), self.precision)
            blocks[name][self.columns[name]] = weight
        return Weights(blocks, bias, extra)


def pulled(block: Block, given: np.ndarray) -> np.ndarray:
    """The transposed block times `given`."""
    return block.pulled(given) if isinstance(block, Lookup) else np.asarray(block.T @ given)


def _used(block: Block, units: np.ndarray) -> tuple[Block, np.ndarray]:
    """The block of these units, and its non-empty columns: only these can have a weight."""
    if isinstance(block, Lookup):
        distinct, ids = np.unique(block.ids[units], return_inverse=True)
        table, columns = _used(block.table, distinct)
        assert not isinstance(table, Lookup)
        return Lookup(table, ids.reshape(-1)), columns
    picked = block[units]
    if not is_sparse(picked):
        return picked, np.arange(picked.shape[1])
    columns = np.unique(picked.indices)
    return picked[:, columns], columns


# -- fitting -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """Texts that a fold left out, and the scores of their words by a head that has not seen them."""

    rows: np.ndarray
    scores: list[np.ndarray]
    extra: Extra


@dataclass(frozen=True)
class ChosenField(ChosenStrength):
    """The result of cross-validation over texts."""

    folds: list[LeftOut]  # empty: there were no folds


@dataclass(frozen=True)
class FittedField(FittedHead):
    """`rows` are the texts of the folds; `relevance` is not learned."""

    chosen: ChosenField


StructureOf = Callable[[np.ndarray], Structure]  # of some rows


@dataclass(frozen=True)
class FieldTask:
    """What the heads of a kind of task have in common."""

    kind: str
    texts: int  # per unit
    most_words: int  # of the texts in the folds
    strengths: Sequence[float]  # tried in turn as long as the next one is better


def fit_field(
    task: FieldTask,
    views: Sequence[View],
    units: Units,
    structure_of: StructureOf,
    seed: int,
    groups: Sequence[int],
    progress: Progress | None,
) -> tuple[FittedField, Extra]:
    """The head, fitted on all rows, and the weights that its structure has besides. `groups`: rows with the same number
    stay together in folds; empty: each by itself."""
    blocks, every = read_blocks(views, units), np.unique(units.rows)
    rows = drawn_rows(np.unique(units.rows, return_counts=True)[1], task.most_words, seed)
    numbers = np.asarray(groups) if len(groups) else every
    folds = [(rows[learn], rows[score]) for learn, score in deal(None, numbers[rows], FOLDS, seed)]
    chosen = _choose([_FoldSearch(blocks, structure_of, units, *fold) for fold in folds], task.strengths, progress)
    problem = Problem(blocks, structure_of(every), np.arange(len(units.rows)))
    weights = problem.weights(problem.solve(chosen.strength))
    tables = {name: table.astype(np.float32) for name, table in weights.blocks.items()}
    shares = shares_of(blocks, weights.blocks)
    head = ViewHead([*views], tables, weights.bias.astype(np.float32), task.kind, shares, task.texts)
    return FittedField(head, chosen, rows, {}), [table.astype(np.float32) for table in weights.extra]


def drawn_rows(words: Sequence[int] | np.ndarray, most: int, seed: int) -> np.ndarray:
    """A sample of rows with at most `most` words together, given the words of each."""
    lengths = np.asarray(words)
    order = np.random.default_rng(seed).permutation(len(lengths))
    return np.sort(order[: int(np.searchsorted(np.cumsum(lengths[order]), most)) + 1])


def _choose(folds: Sequence[_FoldSearch], strengths: Sequence[float], progress: Progress | None) -> ChosenField:
    """The strength with the highest likelihood on left-out rows."""
    losses: dict[float, float] = {}
    for strength in strengths if folds else ():
        for fold in folds:
            fold.try_out(strength)
            if progress is not None:
                progress(sum(len(other.tried) for other in folds), len(strengths) * len(folds))
        losses[strength] = sum(fold.losses[strength] for fold in folds)
        if losses[strength] > min(losses.values()):
            break
    best = min(losses, key=lambda strength: losses[strength]) if losses else USUAL
    return ChosenField(best, losses, [fold.left_out(best) for fold in folds])


class _FoldSearch:
    """Rows to learn from, and others to score; the search for each strength starts from the previous result."""

    def __init__(
        self, blocks: Mapping[str, Block], structure_of: StructureOf, units: Units, learn: np.ndarray, score: np.ndarray
    ) -> None:
        self.problem = Problem(blocks, structure_of(learn), units.picked(learn))
        self.rows, self.structure = score, structure_of(score)
        scored = units.picked(score)
        self.blocks = {name: _used_rows(block, scored) for name, block in blocks.items()}
        self.lengths = np.unique(units.rows[scored], return_counts=True)[1]
        self.vector: np.ndarray | None = None
        self.losses: dict[float, float] = {}
        self.tried: dict[float, tuple[np.ndarray, Extra]] = {}  # the scores, and the structure's weights

    def try_out(self, strength: float) -> None:
        self.vector = self.problem.solve(strength, self.vector, _CLOSE_FOLD)
        weights = self.problem.weights(self.vector)
        scores = weights.bias + sum(np.asarray(block @ weights.blocks[name]) for name, block in self.blocks.items())
        self.tried[strength] = scores, weights.extra
        self.losses[strength] = self.structure.loss(scores, weights.extra)[0]

    def left_out(self, strength: float) -> LeftOut:
        scores, extra = self.tried[strength]
        return LeftOut(self.rows, np.split(scores.astype(np.float32), np.cumsum(self.lengths)[:-1]), extra)


def _used_rows(block: Block, units: np.ndarray) -> Block:
    """The block of these units, with all its columns."""
    return Lookup(block.table, block.ids[units]) if isinstance(block, Lookup) else block[units]
