"""Self-training: unlabelled text beside labels. A teacher gives texts their classes, and a student learns from these.

1. The teacher, the head over the views, has learned from the labelled rows, and scores the texts.
2. Its logits are shifted so that the classes have, over all texts, the shares that they have among the labelled rows
   (distribution alignment): a teacher of a hundred rows would call most of a new kind of text by one class.
3. The texts of each class that it is surest of, `KEPT` of them, teach the student (`taught.py`); the labelled rows are
   a tenth of what it learns from.
4. What the student says is one more view for the head, whose weight is learned as every view's.

The student has learned the rows that the head is fitted on, so the head would trust it far too much. Therefore the head
is fitted on what students say of rows that neither they nor their teachers have seen (cross-fitting); the student that
stays has seen all. The view is kept only if cross-validation does not say that the head is worse with it (`gain_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import scipy.sparse as sp

from foretext.errors import UserError
from foretext.tasks.views.base import Block, Units, View, is_sparse, units_of
from foretext.tasks.views.head import Fitted, Labels, fit_views, folds_of, read_blocks
from foretext.tasks.views.ngrams import NGrams
from foretext.tasks.views.taught import Taught

KEPT = 0.6  # of the texts of each class
LABELLED = 0.1  # of what the student learns from
MOST_TEXTS = 20_000  # more take longer and teach little more
MOST_LETTERS = 60_000_000  # of these together
LEAST_COUNT = 3  # in how many texts a term of the student's stands
MOST_TERMS = 200_000
TEACHER_ROWS = 500  # by which a teacher learns how much its views count; its weights are learned from all
ALLOWED = 0.5  # standard errors that the loss may rise by
_ROUNDS = 100
_CHUNK = 1000

Progress = Callable[[int, int], None]
Work = Callable[[str, int, int], None]


def drawn_texts(texts: Sequence[str], seed: int) -> list[str]:
    """At most so many texts and letters, drawn by the seed, in their order."""
    kept: list[int] = []
    letters = 0
    for number in np.random.default_rng(seed).permutation(len(texts))[:MOST_TEXTS].tolist():
        letters += len(texts[number])
        if letters > MOST_LETTERS and kept:
            break
        kept.append(number)
    return [texts[number] for number in sorted(kept)]


def text_units(texts: Sequence[str], views: Sequence[View], seed: int) -> Units:
    """What is drawn of the texts, as views read it. UserError where there is nothing to learn from."""
    units = units_of([(text,) for text in drawn_texts(texts, seed)], "classification", True)
    words = {word for own in units.side(0) for word in own}
    if not words:
        raise UserError("--unlabelled: there is no word in this text; give other text, or leave it out")
    some_or_none = read_blocks(views, Units([(sorted(words),), ([],)], np.arange(2)))
    if all(np.array_equal(*_dense(block)) for block in some_or_none.values()):
        raise UserError(
            "--unlabelled: no word of this text is in the rows or the vectors; give other text, or leave it out"
        )
    return units


def _dense(block: Block) -> np.ndarray:
    return np.asarray(block.todense()) if is_sparse(block) else np.asarray(block)


def shares_of(values: np.ndarray, classes: int) -> np.ndarray:
    """The share of each class among the labels; one that no row has counts as half a row."""
    counts = np.maximum(np.bincount(values, minlength=classes), 0.5)
    return np.asarray(counts / counts.sum())


def aligned(logits_NC: np.ndarray, shares_C: np.ndarray) -> np.ndarray:
    """Probabilities of classes whose mean over all texts is `shares_C`, by one number added to each class's logits."""
    shift = np.zeros(len(shares_C))
    for _ in range(_ROUNDS):
        found = _softmax(logits_NC + shift)
        shift += np.log(shares_C / np.maximum(found.mean(0), 1e-12))
    return _softmax(logits_NC + shift)


def surest(chances_NC: np.ndarray, kept: float = KEPT) -> tuple[np.ndarray, np.ndarray]:
    """Of the texts of each class those with the largest probability of it, in order, and their classes."""
    classes = chances_NC.argmax(1)
    chosen = []
    for number in range(chances_NC.shape[1]):
        own = np.flatnonzero(classes == number)
        order = np.argsort(-chances_NC[own, number], kind="stable")
        chosen.append(own[order[: int(np.ceil(kept * len(own)))]])
    rows = np.sort(np.concatenate(chosen))
    return rows, classes[rows]


def _softmax(logits: np.ndarray) -> np.ndarray:
    found = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(found / found.sum(1, keepdims=True))


# -- teacher and student -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """A view whose blocks of the rows at hand are there already."""

    name: str
    blocks: dict[str, Block]

    def read(self, units: Units) -> dict[str, Block]:
        return self.blocks


class SelfTraining:
    """What the teachers and students of all folds have in common: the rows and the texts, read once."""

    def __init__(
        self, views: Sequence[View], units: Units, labels: Labels, text: Units, seed: int, progress: Progress
    ) -> None:
        """`views`: those that teachers read. They have been learned from the rows, but not from their labels."""
        self.units, self.labels, self.seed = units, labels, seed
        self.rows, self.text = read_blocks(views, units), _read(views, text, progress)
        self.terms = NGrams.learned(text, LEAST_COUNT, MOST_TERMS)
        self.student_rows, self.student_text = (self.terms.matrix(own.side(0)) for own in (units, text))

    def taught(self, rows: np.ndarray, groups: np.ndarray) -> Taught:
        """The student of a teacher of these rows. Neither looks at the labels of others."""
        values, classes = self.labels.values[rows], self.labels.classes
        texts, given = surest(aligned(self._said(rows, groups[rows]), shares_of(values, classes)))
        share = LABELLED / (1 - LABELLED) * len(texts) / len(rows)
        return Taught.learned(
            self.terms,
            sp.vstack([self.student_text[texts], self.student_rows[rows]]).tocsr(),
            np.concatenate([given, values]),
            np.concatenate([np.ones(len(texts)), np.full(len(rows), share)]),
            classes,
        )

    def _said(self, rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """The logits that the teacher of these rows gives to the texts."""
        known = cast(View, _Known("", {name: block[rows] for name, block in self.rows.items()}))
        units = Units([self.units.words[row] for row in rows], np.arange(len(rows)))
        labels = Labels(self.labels.kind, self.labels.values[rows], self.labels.classes)
        head = fit_views([known], units, labels, self.seed, groups, TEACHER_ROWS).head
        said = (np.asarray(block @ head.weights[f".{name}"]) for name, block in self.text.items())
        return np.asarray(head.bias + sum(said))


def _read(views: Sequence[View], text: Units, progress: Progress) -> dict[str, Block]:
    """The texts as the views read them, some at a time."""
    parts: list[dict[str, Block]] = []
    for start in range(0, len(text.words), _CHUNK):
        progress(start, len(text.words))
        words = text.words[start : start + _CHUNK]
        parts.append(read_blocks(views, Units(words, np.arange(len(words)))))
    progress(len(text.words), len(text.words))
    return {
        name: sp.vstack([part[name] for part in parts]).tocsr()
        if is_sparse(parts[0][name])
        else np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }


# -- is it worth it? ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gain:
    """What the view is worth by cross-validation: accuracy and loss of the head without and with it."""

    before: float
    after: float
    losses: tuple[float, float]
    kept: bool

    def __str__(self) -> str:
        right = f"{100 * self.before:.1f} → {100 * self.after:.1f} %"
        loss = f"loss {self.losses[0]:.3f} → {self.losses[1]:.3f}"
        return f"unlabelled text: {right} by cross-validation ({loss}), {'kept' if self.kept else 'left out'}"


def gain_of(before: Fitted, after: Fitted, values: np.ndarray) -> Gain:
    """Paired over the rows, which both have left out by the same folds. Accuracy on a hundred rows says little, so what
    decides is the loss. It may rise a little: teachers of folds have a fifth fewer labels than the one whose student
    stays, and that view is worth more than those that cross-validation has tried."""
    said, own = (before.chosen.outputs, after.chosen.outputs), values[before.rows]
    right = [float((outputs.argmax(1) == own).mean()) for outputs in said]
    losses = [-np.log(np.maximum(_softmax(outputs)[np.arange(len(own)), own], 1e-12)) for outputs in said]
    fallen = losses[0] - losses[1]
    kept = fallen.mean() > -ALLOWED * fallen.std() / np.sqrt(len(fallen))
    return Gain(right[0], right[1], (float(losses[0].mean()), float(losses[1].mean())), bool(kept))


def with_text(
    fitted: Fitted,
    views: Sequence[View],
    units: Units,
    labels: Labels,
    text: Units,
    seed: int,
    groups: Sequence[int],
    work: Work,
) -> tuple[Fitted, Gain | None]:
    """The head, fitted already, with the view that unlabelled text teaches, if that is worth it. None: the rows are too
    few to tell."""
    numbers = np.asarray(groups)
    folds = folds_of(units, np.arange(len(units.rows)), labels, seed, numbers)
    if not folds or np.isnan(fitted.chosen.outputs).any():
        return fitted, None
    training = SelfTraining(views, units, labels, text, seed, partial(work, "reading text"))
    said = np.zeros((len(units.rows), labels.classes))
    for number, (learn, score) in enumerate(folds):
        work("learning from text", number, len(folds) + 1)
        said[score] = training.taught(learn.numpy(), numbers).logits(training.student_rows[score.numpy()])
    work("learning from text", len(folds), len(folds) + 1)
    taught = training.taught(np.arange(len(units.rows)), numbers)
    work("learning from text", len(folds) + 1, len(folds) + 1)
    known = cast(View, _Known(Taught.name, {"logits": said}))
    better = fit_views([*fitted.head.views, known], units, labels, seed, groups)
    better.head.views[-1] = taught
    gain = gain_of(fitted, better, labels.values)
    return (better if gain.kept else fitted), gain
