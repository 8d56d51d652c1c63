"""Self-training on unlabelled text: a teacher predicts classes for the texts, and a student learns from these.

1. The teacher, the head over the views, is trained on the labelled rows and scores the texts.
2. Its logits are shifted so that the classes have the same shares over all texts as among the labelled rows
   (distribution alignment): otherwise a teacher of a hundred rows would give most texts of a new kind one class.
3. The most confident texts of each class, a share of `KEPT`, train the student (`Taught`); the labelled rows are
   a tenth of its training weight.
4. The student's logits are one more view for the head, whose weight is learned like every view's.

The student was trained on the rows that the head is fitted on, so the head would trust it far too much. So the head is
fitted on the logits of students for rows that neither they nor their teachers have seen (cross-fitting); the final
student has seen all rows. The view is kept unless cross-validation shows that the head is worse with it (`gain_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self, cast

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import softmax

from foretext.errors import refuse_if
from foretext.tasks.family import Progress
from foretext.tasks.views.base import Block, Tensors, Units, View, is_sparse, read_blocks, units_of
from foretext.tasks.views.rows.linear import Fitted, Labels, fit_views, folds_of
from foretext.tasks.views.rows.ngrams import NGrams

STRENGTH = 10.0  # C of scikit-learn's LogisticRegression; larger: less regularisation
_ITERATIONS = 80  # of the student's fit
KEPT = 0.6  # share of the texts of each class
LABELLED = 0.1  # share of the student's training weight
MOST_TEXTS = 20_000  # more take longer and add little
MOST_LETTERS = 60_000_000  # of all texts together
LEAST_COUNT = 3  # how many texts must have a term of the student's
MOST_TERMS = 200_000
TEACHER_ROWS = 500  # rows that decide how much a teacher's views count; its weights are learned from all rows
ALLOWED = 0.5  # how many standard errors the loss may rise
_ROUNDS = 100
_CHUNK = 1000

Work = Callable[[str, int, int], None]


def drawn_texts(texts: Sequence[str], seed: int) -> list[str]:
    """A seeded sample of at most so many texts and letters, in their order. Each text is asked for once, since shards
    decode it anew each time."""
    drawn: dict[int, str] = {}
    letters = 0
    for number in np.random.default_rng(seed).permutation(len(texts))[:MOST_TEXTS].tolist():
        text = texts[number]
        letters += len(text)
        if letters > MOST_LETTERS and drawn:
            break
        drawn[number] = text
    return [drawn[number] for number in sorted(drawn)]


def text_units(texts: Sequence[str], views: Sequence[View], seed: int) -> Units:
    """A sample of the texts, as views read them. UserError if there is nothing to learn from."""
    units = units_of([(text,) for text in drawn_texts(texts, seed)], "classification", True)
    words = {word for text in units.side(0) for word in text}
    refuse_if(not words, "--unlabelled: this text has no words; give other text, or leave it out")
    some_or_none = read_blocks(views, Units([(sorted(words),), ([],)], np.arange(2)))
    refuse_if(
        all(np.array_equal(*_dense(block)) for block in some_or_none.values()),
        "--unlabelled: this text shares no word with the rows or the vectors; give other text, or leave it out",
    )
    return units


def _dense(block: Block) -> np.ndarray:
    return np.asarray(block.todense()) if is_sparse(block) else np.asarray(block)


def shares_of(values: np.ndarray, classes: int) -> np.ndarray:
    """The share of each class among the labels; a class without rows counts as half a row."""
    counts = np.maximum(np.bincount(values, minlength=classes), 0.5)
    return np.asarray(counts / counts.sum())


def aligned(logits_NC: np.ndarray, shares_C: np.ndarray) -> np.ndarray:
    """Class probabilities whose mean over all texts is `shares_C`, obtained by adding one number to each class's
    logits."""
    shift = np.zeros(len(shares_C))
    for _ in range(_ROUNDS):
        chances_NC = np.asarray(softmax(logits_NC + shift, axis=1))
        shift += np.log(shares_C / np.maximum(chances_NC.mean(0), 1e-12))
    return np.asarray(softmax(logits_NC + shift, axis=1))


def surest(chances_NC: np.ndarray, kept: float = KEPT) -> tuple[np.ndarray, np.ndarray]:
    """The most confident texts of each class, in order, and their classes."""
    classes = chances_NC.argmax(1)
    chosen = []
    for number in range(chances_NC.shape[1]):
        of_class = np.flatnonzero(classes == number)
        order = np.argsort(-chances_NC[of_class, number], kind="stable")
        chosen.append(of_class[order[: int(np.ceil(kept * len(of_class)))]])
    rows = np.sort(np.concatenate(chosen))
    return rows, classes[rows]


# -- teacher and student -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """A view whose blocks for the current rows are already computed."""

    name: str
    blocks: dict[str, Block]

    def read(self, units: Units) -> dict[str, Block]:
        return self.blocks


class Taught:
    """The view learned from unlabelled text: the logits of a student, a logistic regression on n-grams. It was trained
    on the classes that a teacher gave to unlabelled texts, and so knows words that no labelled row has."""

    name = "taught"

    def __init__(self, ngrams: NGrams, weight: np.ndarray, bias: np.ndarray) -> None:
        """`weight`: [terms, classes]."""
        self.ngrams, self.weight, self.bias = ngrams, weight.astype(np.float32), bias.astype(np.float32)

    @classmethod
    def learned(
        cls, ngrams: NGrams, matrix: sp.csr_matrix, classes: np.ndarray, weights: np.ndarray, count: int
    ) -> Self:
        """From the n-grams of texts, their classes (`count` in all), and the weight of each text."""
        return cls(ngrams, *_fitted(matrix, np.eye(count)[classes], weights))

    def read(self, units: Units) -> dict[str, Block]:
        return {"logits": self.logits(self.ngrams.matrix(units.side(0)))}

    def logits(self, matrix: sp.csr_matrix) -> np.ndarray:
        """The logits of texts given as n-grams, minus each text's mean, since adding a constant to them means
        nothing."""
        logits = np.asarray(matrix @ self.weight) + self.bias
        return np.asarray(logits - logits.mean(1, keepdims=True))

    def tensors(self) -> Tensors:
        return self.ngrams.tensors() | {"weight": self.weight, "bias": self.bias}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(NGrams.of_tensors(tensors), tensors["weight"], tensors["bias"])


def _fitted(matrix: sp.csr_matrix, targets_NC: np.ndarray, weights_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias that minimise Σ weight · cross-entropy + |W|²/(2·STRENGTH); with two classes, the first has
    logit 0. The products with a sparse matrix in float32 are several times faster, and sum in one order whatever the
    number of threads."""
    texts, turned = matrix.astype(np.float32), matrix.T.tocsr().astype(np.float32)
    terms, free = matrix.shape[1], 1 if targets_NC.shape[1] == 2 else targets_NC.shape[1]
    zeros = np.zeros((len(targets_NC), targets_NC.shape[1] - free))

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = flat[: terms * free].reshape(terms, free), flat[terms * free :]
        logits = np.concatenate([zeros, (texts @ weight.astype(np.float32)).astype(np.float64) + bias], axis=1)
        logits -= logits.max(1, keepdims=True)
        chances = np.exp(logits)
        sums = chances.sum(1, keepdims=True)
        loss = (weights_N * (np.log(sums) - (targets_NC * logits).sum(1, keepdims=True))[:, 0]).sum()
        wrong = ((chances / sums - targets_NC) * weights_N[:, None])[:, -free:]
        pull = (turned @ wrong.astype(np.float32)).astype(np.float64) + weight / STRENGTH
        whole = float(loss + np.square(weight).sum() / (2 * STRENGTH))
        return whole, np.concatenate([pull.ravel(), wrong.sum(0)])

    options = {"maxiter": _ITERATIONS, "ftol": 1e-7}
    solution = minimize(objective, np.zeros((terms + 1) * free), jac=True, method="L-BFGS-B", options=options).x
    table = np.zeros((terms + 1, targets_NC.shape[1]))
    table[:, -free:] = solution.reshape(terms + 1, free)
    return table[:-1], table[-1]


class SelfTraining:
    """What the teachers and students of all folds share: the rows and the texts, read once."""

    def __init__(
        self, views: Sequence[View], units: Units, labels: Labels, text: Units, seed: int, progress: Progress
    ) -> None:
        """`views`: those that teachers read. They were learned from the rows, but not from their labels."""
        self.units, self.labels, self.seed = units, labels, seed
        self.rows, self.text = read_blocks(views, units), _read(views, text, progress)
        self.terms = NGrams.learned(text, LEAST_COUNT, MOST_TERMS)
        self.student_rows, self.student_text = (self.terms.matrix(texts.side(0)) for texts in (units, text))

    def taught(self, rows: np.ndarray, groups: np.ndarray) -> Taught:
        """The student of a teacher that learned from these rows. Neither sees the labels of other rows."""
        values, classes = self.labels.values[rows], self.labels.classes
        texts, given = surest(aligned(self._logits(rows, groups[rows]), shares_of(values, classes)))
        share = LABELLED / (1 - LABELLED) * len(texts) / len(rows)
        return Taught.learned(
            self.terms,
            sp.vstack([self.student_text[texts], self.student_rows[rows]]).tocsr(),
            np.concatenate([given, values]),
            np.concatenate([np.ones(len(texts)), np.full(len(rows), share)]),
            classes,
        )

    def _logits(self, rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """The logits that the teacher of these rows gives to the texts."""
        known = cast(View, _Known("", {name: block[rows] for name, block in self.rows.items()}))
        units = Units([self.units.words[row] for row in rows], np.arange(len(rows)))
        labels = Labels(self.labels.kind, self.labels.values[rows], self.labels.classes)
        head = fit_views([known], units, labels, self.seed, groups, TEACHER_ROWS).head
        added = (np.asarray(block @ head.weights[f".{name}"]) for name, block in self.text.items())
        return np.asarray(head.bias + sum(added))


def _read(views: Sequence[View], text: Units, progress: Progress) -> dict[str, Block]:
    """The texts as the views read them, in batches."""
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
    """The worth of the view by cross-validation: accuracy and loss of the head without and with it."""

    before: float
    after: float
    losses: tuple[float, float]
    kept: bool

    def __str__(self) -> str:
        right = f"{100 * self.before:.1f} → {100 * self.after:.1f} %"
        loss = f"loss {self.losses[0]:.3f} → {self.losses[1]:.3f}"
        return f"unlabelled text: {right} by cross-validation ({loss}), {'kept' if self.kept else 'left out'}"


def gain_of(before: Fitted, after: Fitted, values: np.ndarray) -> Gain:
    """Paired over the rows, which the same folds leave out in both cases. With a hundred rows the accuracy says little,
    so the loss decides. It may rise a little: teachers in the folds have a fifth fewer labels than the final student's,
    so the final view is better than those that cross-validation has tried."""
    both, gold = (before.chosen.outputs, after.chosen.outputs), values[before.rows]
    right = [float((outputs.argmax(1) == gold).mean()) for outputs in both]
    losses = [-np.log(np.maximum(softmax(outputs, axis=1)[np.arange(len(gold)), gold], 1e-12)) for outputs in both]
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
    """The fitted head with the view that unlabelled text teaches, if it is worth it. None: too few rows to tell."""
    numbers = np.asarray(groups)
    folds = folds_of(units, np.arange(len(units.rows)), labels, seed, numbers)
    if not folds or np.isnan(fitted.chosen.outputs).any():
        return fitted, None
    training = SelfTraining(views, units, labels, text, seed, partial(work, "reading text"))
    logits = np.zeros((len(units.rows), labels.classes))
    for number, (learn, score) in enumerate(folds):
        work("learning from text", number, len(folds) + 1)
        logits[score] = training.taught(learn.numpy(), numbers).logits(training.student_rows[score.numpy()])
    work("learning from text", len(folds), len(folds) + 1)
    taught = training.taught(np.arange(len(units.rows)), numbers)
    work("learning from text", len(folds) + 1, len(folds) + 1)
    known = cast(View, _Known(Taught.name, {"logits": logits}))
    better = fit_views([*fitted.head.views, known], units, labels, seed, groups)
    better.head.views[-1] = taught
    gain = gain_of(fitted, better, labels.values)
    return (better if gain.kept else fitted), gain
