"""`TextClassifier`: Foretext as a scikit-learn estimator, for `Pipeline`, `cross_val_score`, `GridSearchCV` and
`clone`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from foretext.errors import UserError
from foretext.runs.model import SavedModel, load_model, model_of_state, model_state
from foretext.runs.run_config import Budget
from foretext.systems import size_named, system_named
from foretext.task_model import TaskModel
from foretext.tasks.files.rows import Row
from foretext.text.tokenizers.training import train_tokenizer
from foretext.train.finetuning.finetune import FinetuneRequest, finetune

_LISTED = 20  # labels that a message names


class InputError(UserError, ValueError):
    """A mistake in `X` or `y`; also the ValueError that scikit-learn expects of an estimator."""


class TextClassifier(ClassifierMixin, BaseEstimator):
    """Classifies texts. Given no run it pre-trains briefly on the training texts, then fine-tunes.

    run: a pre-trained run directory, or None. minutes: of pre-training, without a run (None: .25 for each megabyte,
    .25 to 5). epochs, lm_weight, seed: as in `finetune`; None takes the size's default.
    """

    def __init__(
        self,
        run: str | None = None,
        size: str = "tiny",
        minutes: float | None = None,
        epochs: int | None = None,
        lm_weight: float | None = None,
        seed: int = 0,
    ) -> None:
        self.run = run
        self.size = size
        self.minutes = minutes
        self.epochs = epochs
        self.lm_weight = lm_weight
        self.seed = seed

    def fit(self, X: Sequence[str], y: Sequence[Any]) -> TextClassifier:
        """Learns from texts `X` and labels `y`."""
        texts = _checked(X)
        labels = _checked_labels(y)
        if len(texts) != len(labels):
            raise InputError(f"X has {len(texts)} texts and y has {len(labels)} labels; give one label for each text")
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        if len(self.classes_) != len(set(labels)):
            raise InputError("y: two labels become one as an array; give labels of one type, without NUL at their end")
        if len(self.classes_) < 2:
            raise InputError(f"y has only one class, {labels[0]!r}; a classifier needs two")
        rows = [Row((text,), _name(number), f"row {i + 1}") for i, (text, number) in enumerate(zip(texts, numbers))]
        request = FinetuneRequest(
            base=self._base(texts),
            rows=rows,
            kind="classification",
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

    def _base(self, texts: list[str]) -> SavedModel:
        if self.run is not None:
            return load_model(self.run)
        import tempfile
        from pathlib import Path

        from foretext.train.pretraining.pretrain import pretrain
        from foretext.train.pretraining.pretrain_request import PretrainRequest, written_texts

        size = sum(len(text.encode("utf-8", "replace")) for text in texts)
        minutes = self.minutes if self.minutes is not None else min(5.0, max(0.25, 0.25 * size / 1e6))
        with tempfile.TemporaryDirectory(prefix="foretext-") as folder:
            file = written_texts(texts, Path(folder) / "texts.jsonl")
            context, vocabulary = _shape(texts, self.size)
            request = PretrainRequest(
                inputs=(str(file),),
                out=Path(folder) / "run",
                size=self.size,
                budget=Budget(minutes=minutes),
                seed=self.seed,
                sets=(f"model.context={context}", f"tokenizer.size={vocabulary}"),
            )
            return load_model(pretrain(request))

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


def _shape(texts: list[str], size: str) -> tuple[int, int]:
    """The context and the vocabulary to pre-train with on few texts.

    The size's own context, so that ordinary texts are read whole; a shorter one where there is so little text that it
    would not give two windows to train on, should the most frequent or longest text fall to validation. At least 600
    pieces: with fewer a token is hardly more than a byte, and a paragraph does not fit."""
    own = size_named(system_named("gpt"), size)
    total = sum(len(text.encode("utf-8", "replace")) for text in texts)
    vocabulary = min(8000, max(600, total // 40))
    if total >= 64 * own.model.context:
        return own.model.context, vocabulary
    tokenizer = train_tokenizer(texts, own.tokenizer.kind, vocabulary)
    counts = Counter(texts)
    lengths = [len(ids) * counts[text] for text, ids in zip(counts, tokenizer.encode_many(list(counts)))]
    return min(own.model.context, max(8, (sum(lengths) - max(lengths)) // 2)), vocabulary


def _name(number: Any) -> str:
    return f"{int(number):06d}"


def _checked(X: Sequence[str]) -> list[str]:
    if isinstance(X, str):
        raise InputError("X must be a list of texts, not one text")
    if not isinstance(X, Iterable):
        raise InputError(f"X must be a list of texts, not {type(X).__name__}")
    texts = list(X)
    if not texts:
        raise InputError("X has no rows; give at least one text")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"X[{number}] is {type(text).__name__}, not text")
        if not text.strip():
            raise InputError(f"X[{number}] is blank; leave it out, or give it a text")
    return texts


def _checked_labels(y: Sequence[Any]) -> list[Any]:
    """The labels as Python values, all there and of one type: an array would make one text of 1 and "1"."""
    if isinstance(y, str) or not isinstance(y, Iterable) or getattr(y, "ndim", 1) != 1:
        raise InputError(f"y must be a list of labels, one for each text, not {type(y).__name__}")
    labels = [label.item() if isinstance(label, np.generic) else label for label in y]
    present = {number: label for number, label in enumerate(labels) if not _is_missing(label)}
    kinds: dict[str, int] = {}
    for number, label in present.items():
        kinds.setdefault(_kind_of(label, number), number)
    if len(present) < len(labels):
        number = next(number for number in range(len(labels)) if number not in present)
        raise InputError(
            f"y[{number}] (row {number + 1}): the label is missing ({labels[number]!r}); "
            f"the labels are {_listing(present.values())}; fill it in, or leave the row out"
        )
    if len(kinds) > 1:
        written: dict[str, int] = {}
        for number, label in present.items():
            other = written.setdefault(str(label), number)
            if type(labels[other]) is not type(label):
                raise InputError(
                    f"y[{other}] and y[{number}] are two labels that are written alike, {labels[other]!r} and "
                    f"{label!r}; make them one, or name them differently"
                )
        (one, first), (two, second) = [*kinds.items()][:2]
        raise InputError(f"y[{first}] is {one} and y[{second}] is {two}; give labels of one type")
    return labels


def _is_missing(label: Any) -> bool:
    if label is None or (isinstance(label, str) and not label.strip()):
        return True
    try:
        return bool(label != label)  # NaN, NaT
    except (TypeError, ValueError):  # pandas.NA is neither true nor false; nor is an array, which is no label
        return not isinstance(label, Iterable)


def _kind_of(label: Any, number: int) -> str:
    for kinds, name in (((str,), "text"), ((bytes,), "bytes"), ((bool,), "true or false"), ((int, float), "a number")):
        if isinstance(label, kinds):
            return name
    raise InputError(f"y[{number}] is {type(label).__name__}; a label is a text, a number, or true or false")


def _listing(labels: Iterable[Any]) -> str:
    known = sorted(set(labels), key=repr)
    shown = ", ".join(map(repr, known[:_LISTED]))
    return f"{shown} and {len(known) - _LISTED} more" if len(known) > _LISTED else shown or "none"
