"""The head over views of words: a conditional random field, linear in all blocks, that chooses the tags of a sentence
together.

    score(y) = starts[y_1] + Σ_t (bias + Σ_v X_v W_v)[t, y_t] + Σ_t transitions[y_{t−1}, y_t] + ends[y_n]

What is learned, in order: the views, how strongly the head is held back, by cross-validation over sentences, and the
weights. How much each block counts is not learned, as it is for rows: the evidence of some hundred words
(`relevance.py`) says little of features that are rare, as most of a language's are; so the views give their blocks on
one scale (`words.py`). −log p of the tags is convex in all of them, so L-BFGS finds the one minimum, and no
seed has a part in it beside the one that draws folds. The gradient is a closed form (`nn/task_models/crf.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from foretext.errors import UserError
from foretext.nn.task_models.crf import Allowed, Chain, LinearChainCrf, Sentences, iob2_allowed
from foretext.tasks.heads.token_tasks import ChainTagger
from foretext.tasks.scores.tag_metrics import are_chunk_tags
from foretext.tasks.views.base import Block, Lookup, Tensors, Units, View, is_sparse
from foretext.tasks.views.head import ViewHead, read_blocks

FOLDS = 3
MOST_WORDS = 12_000  # of the sentences that folds are of
USUAL = 1.0  # where the folds cannot tell
STRENGTHS = (0.3, 1.0, 3.0, 10.0)  # tried in turn as long as the next is better
_CLOSE, _CLOSE_FOLD = 1e-5, 1e-4  # by how much an iteration must lower the loss of a word
_FLAT = 1e-6  # a slope that is none
_ITERATIONS, _MOST_ITERATIONS = 10, 400  # between two looks at the loss, and in all
_HISTORY = 6

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Tags:
    """The class of each unit, how many classes there are, and which may follow which."""

    values: np.ndarray
    classes: int
    allowed: Allowed | None = None

    def chain(self, transitions: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Chain:
        """With −∞ where a tag may not be."""
        if self.allowed is None:
            return Chain(transitions, starts, ends)
        own = self.allowed
        parts = zip((transitions, starts, ends), (own.next_CC, own.first_C, own.last_C))
        return Chain(*(np.where(may.numpy(), weights, -np.inf) for weights, may in parts))


def allowed_of(labels: Sequence[str]) -> Allowed | None:
    """Chunk tags are learned as IOB2, and follow each other as they may there."""
    return iob2_allowed(labels) if are_chunk_tags(labels) else None


def tagger(chain: Chain, labels: Sequence[str]) -> ChainTagger:
    """What chooses tags by the words' scores and this chain."""
    crf = LinearChainCrf(len(labels), allowed_of(labels))
    with torch.no_grad():
        for parameter, own in zip((crf.transitions, crf.starts, crf.ends), chain):
            parameter.copy_(torch.from_numpy(np.asarray(own)))
    return ChainTagger(crf)


@dataclass(frozen=True)
class Weights:
    """Of a head: of each block, of each class, and of the chain."""

    blocks: Tensors
    bias: np.ndarray
    chain: Chain


class Problem:
    """The loss of sentences, as a function of one vector of all weights."""

    def __init__(self, blocks: Mapping[str, Block], tags: Tags, units: np.ndarray, rows: np.ndarray) -> None:
        """`units`: those that are learned from, whole sentences; `rows`: of all units."""
        self.tags, self.values = tags, tags.values[units]
        lengths = np.unique(rows[units], return_counts=True)[1]
        self.sentences = Sentences.of_lengths(lengths)
        self.blocks, self.columns, self.widths = {}, {}, {}
        for name, block in blocks.items():
            self.blocks[name], self.columns[name] = _used(block, units)
            self.widths[name] = block.shape[1]
        classes = tags.classes
        shapes = [(own.shape[1], classes) for own in self.blocks.values()]
        self.shapes = [*shapes, (classes, classes), (classes,), (classes,), (classes,)]
        self.size = sum(int(np.prod(shape)) for shape in self.shapes)
        # As the blocks are: float32 halves the time, most of which goes into vectors of a number for each weight.
        self.precision = np.result_type(*(own.dtype for own in self.blocks.values()))

    def parts(self, vector: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        return [own.reshape(shape) for own, shape in zip(np.split(vector, ends), self.shapes)]

    def loss(self, vector: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
        """−log p of the tags and |w|²/(2·strength), with its gradient. The bias is free."""
        parts = self.parts(vector)
        *weights, transitions, starts, ends, bias = parts
        emissions = np.zeros((len(self.values), self.tags.classes))
        for block, own in zip(self.blocks.values(), weights):
            emissions += block @ own
        chain = self.tags.chain(*(own.astype(np.float64) for own in (transitions, starts, ends)))
        total, expected, of_chain = self.sentences.loss(emissions + bias, self.values, chain)
        told = expected.astype(self.precision)
        gradient = [pulled(block, told) for block in self.blocks.values()]
        gradient += [*of_chain, expected.sum(0)]
        penalised = len(vector) - len(bias)
        found = np.concatenate([own.reshape(-1).astype(self.precision, copy=False) for own in gradient])
        found[:penalised] += vector[:penalised] / strength
        return total + float(vector[:penalised] @ vector[:penalised]) / (2 * strength), found

    def solve(self, strength: float, begin: np.ndarray | None = None, close: float = _CLOSE) -> np.ndarray:
        """The weights that make the loss least."""
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
            after = float(optimizer.step(objective))  # goes on; what it gives is the loss it begins with
            if before - after <= close * _ITERATIONS * len(self.values):
                break
            before = after
        if not bool(torch.isfinite(vector).all()):
            raise UserError("the head over the views has a loss that is not finite; leave the views out: --views none")
        return vector.detach().numpy()

    def weights(self, vector: np.ndarray) -> Weights:
        """As the blocks have them: what no sentence has has the weight 0."""
        *own, transitions, starts, ends, bias = self.parts(vector)
        blocks = {}
        for name, weight in zip(self.blocks, own):
            blocks[name] = np.zeros((self.widths[name], weight.shape[1]), self.precision)
            blocks[name][self.columns[name]] = weight
        return Weights(blocks, bias, Chain(transitions, starts, ends))


def pulled(block: Block, given: np.ndarray) -> np.ndarray:
    """The transposed block times `given`."""
    return block.pulled(given) if isinstance(block, Lookup) else np.asarray(block.T @ given)


def _used(block: Block, units: np.ndarray) -> tuple[Block, np.ndarray]:
    """The block of these units, and its columns that are not empty: only they can have a weight."""
    if isinstance(block, Lookup):
        own, ids = np.unique(block.ids[units], return_inverse=True)
        table, columns = _used(block.table, own)
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
    """Sentences that a fold left out, the scores of their words by a head that has not seen them, and its chain."""

    rows: np.ndarray
    scores: list[np.ndarray]
    chain: Chain


@dataclass(frozen=True)
class ChosenChain:
    """What cross-validation says."""

    strength: float
    folds: list[LeftOut]  # none: there were none
    losses: dict[float, float]  # by strength, summed over all sentences


@dataclass(frozen=True)
class FittedChain:
    head: ViewHead
    chosen: ChosenChain  # by cross-validation, on `rows`
    rows: np.ndarray  # the sentences of the folds
    relevance: dict[str, float]  # of blocks; none is learned


def fit_chain(
    views: Sequence[View],
    units: Units,
    tags: Tags,
    seed: int,
    groups: Sequence[int] = (),
    progress: Progress | None = None,
) -> FittedChain:
    """`groups`: sentences with the same number (copies) are never parted by folds; none: each is its own."""
    blocks = read_blocks(views, units)
    rows = _some(units, np.random.default_rng(seed))
    folds = list(_folds(rows, np.asarray(groups) if len(groups) else np.unique(units.rows), seed))
    chosen = _choose(blocks, tags, units, folds, progress)
    problem = Problem(blocks, tags, np.arange(len(units.rows)), units.rows)
    found = problem.weights(problem.solve(chosen.strength))
    weights = {name: own.astype(np.float32) for name, own in found.blocks.items()}
    chain = Chain(*(own.astype(np.float32) for own in found.chain))
    head = ViewHead(views, weights, found.bias.astype(np.float32), "tagging", {}, chain=chain)
    spread = {name: float(np.asarray(block @ found.blocks[name]).var(0).mean()) for name, block in blocks.items()}
    head.shares = {name: own / max(sum(spread.values()), 1e-12) for name, own in spread.items()}
    return FittedChain(head, chosen, rows, {})


def _some(units: Units, generator: np.random.Generator) -> np.ndarray:
    """As many sentences as have `MOST_WORDS`."""
    rows, lengths = np.unique(units.rows, return_counts=True)
    order = generator.permutation(len(rows))
    count = int(np.searchsorted(np.cumsum(lengths[order]), MOST_WORDS)) + 1
    return np.sort(rows[order[:count]])


def _folds(rows: np.ndarray, groups: np.ndarray, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sentences to learn from and sentences to score, copies together."""
    from sklearn.model_selection import GroupKFold

    count = min(FOLDS, len(np.unique(groups[rows])))
    if count > 1:
        for learn, score in GroupKFold(count, shuffle=True, random_state=seed).split(rows, groups=groups[rows]):
            yield rows[learn], rows[score]


def _choose(
    blocks: Mapping[str, Block],
    tags: Tags,
    units: Units,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    progress: Progress | None,
) -> ChosenChain:
    """The strength under which sentences that are left out are most likely."""
    if not folds:
        return ChosenChain(USUAL, [], {})
    own = [_Fold(blocks, tags, units, learn, score) for learn, score in folds]
    losses: dict[float, float] = {}
    for strength in STRENGTHS:
        for fold in own:
            fold.try_out(strength)
            if progress is not None:
                progress(sum(len(one.found) for one in own), len(STRENGTHS) * len(own))
        losses[strength] = sum(fold.losses[strength] for fold in own)
        if losses[strength] > min(losses.values()):
            break
    best = min(losses, key=lambda strength: losses[strength])
    return ChosenChain(best, [fold.told(best) for fold in own], losses)


class _Fold:
    """Sentences to learn from, and others to score; what is found for each strength begins with the one before it."""

    def __init__(
        self, blocks: Mapping[str, Block], tags: Tags, units: Units, learn: np.ndarray, score: np.ndarray
    ) -> None:
        self.problem = Problem(blocks, tags, units.picked(learn), units.rows)
        self.asked, self.rows = units.picked(score), score
        self.blocks = {name: _used_rows(block, self.asked) for name, block in blocks.items()}
        self.lengths = np.unique(units.rows[self.asked], return_counts=True)[1]
        self.tags = tags
        self.vector: np.ndarray | None = None
        self.losses: dict[float, float] = {}
        self.found: dict[float, tuple[np.ndarray, Chain]] = {}

    def try_out(self, strength: float) -> None:
        self.vector = self.problem.solve(strength, self.vector, _CLOSE_FOLD)
        weights = self.problem.weights(self.vector)
        scores = weights.bias + sum(np.asarray(block @ weights.blocks[name]) for name, block in self.blocks.items())
        self.found[strength] = scores, weights.chain
        chain = self.tags.chain(*weights.chain)
        sentences = Sentences.of_lengths(self.lengths)
        self.losses[strength] = sentences.loss(scores, self.tags.values[self.asked], chain)[0]

    def told(self, strength: float) -> LeftOut:
        scores, chain = self.found[strength]
        return LeftOut(self.rows, np.split(scores.astype(np.float32), np.cumsum(self.lengths)[:-1]), chain)


def _used_rows(block: Block, units: np.ndarray) -> Block:
    """The block of these units, with all its columns."""
    return Lookup(block.table, block.ids[units]) if isinstance(block, Lookup) else block[units]
