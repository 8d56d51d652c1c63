"""`TextClassifier`: Foretext as a scikit-learn estimator, for `Pipeline`, `cross_val_score`, `GridSearchCV` and
`clone`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from foretext.errors import UserError
from foretext.systems import size_named, system_named
from foretext.tasks.rows import Row
from foretext.text.train_vocab import train_tokenizer
from foretext.train.budget import Budget
from foretext.train.finetune import FinetuneRequest, encode_rows, finetune, probabilities_of
from foretext.train.saved import SavedModel, load_model
from foretext.train.scoring import task_scores


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
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        if len(texts) != len(numbers):
            raise ValueError(f"X has {len(texts)} texts and y has {len(numbers)} labels")
        if len(self.classes_) < 2:
            raise ValueError("the labels have only one class; a classifier needs two")
        rows = [Row((text,), _name(number), f"row {i + 1}") for i, (text, number) in enumerate(zip(texts, numbers))]
        request = FinetuneRequest(
            base=self._base(texts),
            rows=rows,
            kind="classification",
            seed=self.seed,
            epochs=self.epochs,
            lm_weight=self.lm_weight,
        )
        self.model_ = finetune(request)
        return self

    def _base(self, texts: list[str]) -> SavedModel:
        if self.run is not None:
            return load_model(self.run)
        import json
        import tempfile
        from pathlib import Path

        from foretext.train.pretrain import PretrainRequest, pretrain

        size = sum(len(text.encode("utf-8", "replace")) for text in texts)
        minutes = self.minutes if self.minutes is not None else min(5.0, max(0.25, 0.25 * size / 1e6))
        with tempfile.TemporaryDirectory(prefix="foretext-") as folder:
            file = Path(folder) / "texts.jsonl"
            lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
            file.write_text("".join(lines), encoding="utf-8", errors="replace")
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
        assert self.model_.task is not None
        device = next(self.model_.trunk.parameters()).device
        scores = task_scores(self.model_.trunk, self.model_.task, encode_rows(rows, self.model_), device)
        order = [self.model_.task_config.labels.index(_name(number)) for number in range(len(self.classes_))]
        return probabilities_of(scores)[:, order]

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
        raise UserError("X must be a list of texts, not one text")
    texts = list(X)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"X[{number}] is {type(text).__name__}, not text")
        if not text.strip():
            raise UserError(f"X[{number}] is blank; leave it out, or give it a text")
    return texts
