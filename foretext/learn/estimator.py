"""`TextClassifier`: Foretext as a scikit-learn estimator, for `Pipeline`, `cross_val_score`, `GridSearchCV` and
`clone`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from foretext.errors import UserError
from foretext.plan import NO_VIEWS, VIEWS_ALONE, views_named
from foretext.runs.model import load_model, model_of_state, model_state
from foretext.task_model import TaskModel
from foretext.tasks.files.rows import Row
from foretext.train.finetuning.finetune import finetune
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest

_LISTED = 20  # labels shown in a message


class InputError(UserError, ValueError):
    """A mistake in `X` or `y`; also the ValueError that scikit-learn expects of an estimator."""


def _refuse_if(wrong: object, message: str) -> None:
    """InputError with this message if `wrong` is true."""
    if wrong:
        raise InputError(message)


class TextClassifier(ClassifierMixin, BaseEstimator):
    """Classifies texts. Without a run, one head reads views of the training texts: n-grams and, if there is enough
    text, word vectors and topics learned from it.

    run: a pre-trained run directory, which is fine-tuned, or whose states are one more view. minutes: without a run,
    the budget for word vectors (None: 1). views: as in `finetune` (None: the default; () fine-tunes the run). epochs,
    lm_weight: for a run that is fine-tuned. seed: as in `finetune`.
    """

    def __init__(
        self,
        run: str | None = None,
        minutes: float | None = None,
        views: Sequence[str] | None = None,
        epochs: int | None = None,
        lm_weight: float | None = None,
        seed: int = 0,
    ) -> None:
        self.run = run
        self.minutes = minutes
        self.views = views
        self.epochs = epochs
        self.lm_weight = lm_weight
        self.seed = seed

    def fit(self, X: Sequence[str], y: Sequence[Any]) -> TextClassifier:
        """Learns from texts `X` and labels `y`."""
        texts = _checked(X)
        labels = _checked_labels(y)
        _refuse_if(
            len(texts) != len(labels),
            f"X has {len(texts)} texts but y has {len(labels)} labels; give one label for each text",
        )
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        _refuse_if(
            len(self.classes_) != len(set(labels)),
            "y: two labels become the same in an array; give labels of one type, without NUL at their end",
        )
        _refuse_if(len(self.classes_) < 2, f"y has only one class, {labels[0]!r}; a classifier needs two")
        rows = [Row((text,), _name(number), f"row {i + 1}") for i, (text, number) in enumerate(zip(texts, numbers))]
        for name in ("epochs", "lm_weight"):
            _refuse_if(
                self.run is None and getattr(self, name) is not None,
                f"{name} is only for fine-tuning a run; give run=…, or leave {name} out",
            )
        request = FinetuneRequest(
            base=Base(system=VIEWS_ALONE, minutes=self.minutes) if self.run is None else load_model(self.run),
            rows=rows,
            kind="classification",
            views=None if self.views is None else views_named(",".join(self.views) or NO_VIEWS),
            own_text=self.views is None,
            seed=self.seed,
            epochs=self.epochs,
            lm_weight=self.lm_weight,
        )
        self.model_ = finetune(request).model
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and joblib: the model as texts and arrays."""
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = model_state(state["model_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = {**state, "model_": model_of_state(state["model_"])}
        super().__setstate__(state)

    def predict_proba(self, X: Sequence[str]) -> np.ndarray:
        """Probabilities [texts, classes], in the order of `classes_`."""
        check_is_fitted(self, "model_")
        rows = [Row((text,), None, f"row {i + 1}") for i, text in enumerate(_checked(X))]
        order = [self.model_.task_config.labels.index(_name(number)) for number in range(len(self.classes_))]
        return TaskModel(self.model_, None).predict_proba(rows)[:, order]

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """The most probable class of each text."""
        check_is_fitted(self, "model_")
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def _name(number: Any) -> str:
    return f"{int(number):06d}"


def _checked(X: Sequence[str]) -> list[str]:
    _refuse_if(isinstance(X, str), "X must be a list of texts, not one text")
    _refuse_if(not isinstance(X, Iterable), f"X must be a list of texts, not {type(X).__name__}")
    texts = list(X)
    _refuse_if(not texts, "X has no rows; give at least one text")
    for number, text in enumerate(texts):
        _refuse_if(not isinstance(text, str), f"X[{number}] is {type(text).__name__}, not text")
        _refuse_if(not text.strip(), f"X[{number}] is blank; leave it out, or give it a text")
    return texts


def _checked_labels(y: Sequence[Any]) -> list[Any]:
    """The labels as Python values, none missing and all of one type: an array would turn 1 and "1" into the same
    text."""
    _refuse_if(
        isinstance(y, str) or not isinstance(y, Iterable) or getattr(y, "ndim", 1) != 1,
        f"y must be a list of labels, one for each text, not {type(y).__name__}",
    )
    labels = [label.item() if isinstance(label, np.generic) else label for label in y]
    for number, label in enumerate(labels):
        if _is_missing(label):
            known = sorted({repr(one) for one in labels if not _is_missing(one)})[:_LISTED]
            raise InputError(
                f"y[{number}] (row {number + 1}): the label is missing ({label!r}); "
                f"the labels are {', '.join(known) or 'none'}; fill it in, or leave the row out"
            )
    kinds = [_kind_of(label, number) for number, label in enumerate(labels)]
    for number, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise InputError(
                f"y[0] and y[{number}] are {labels[0]!r} and {labels[number]!r}, {kinds[0]} and {kind}; give labels of "
                "one type"
            )
    return labels


def _is_missing(label: Any) -> bool:
    if label is None or (isinstance(label, str) and not label.strip()):
        return True
    try:
        return bool(label != label)  # NaN, NaT
    except (TypeError, ValueError):  # pandas.NA is neither true nor false; an array is not a label either
        return not isinstance(label, Iterable)


def _kind_of(label: Any, number: int) -> str:
    for kinds, name in (((str,), "text"), ((bytes,), "bytes"), ((bool,), "true or false"), ((int, float), "a number")):
        if isinstance(label, kinds):
            return name
    raise InputError(f"y[{number}] is {type(label).__name__}; a label is a text, a number, or true or false")
