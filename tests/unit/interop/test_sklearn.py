"""`TextClassifier` as scikit-learn uses estimators. Models are minute: these tests are about the interface."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import foretext as ft
from foretext.errors import UserError

GOOD, BAD = ["good great fine", "lovely warm happy"], ["bad awful poor", "ugly cold sad"]
TEXTS = [f"{(GOOD if i % 2 else BAD)[i % 4 // 2]} film {i % 5}" for i in range(24)]
LABELS = ["pos" if i % 2 else "neg" for i in range(24)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pre-trained run, so that fitting is only fine-tuning."""
    out = tmp_path_factory.mktemp("sklearn") / "base"
    sets = ["model.layers=1", "model.width=32", "model.heads=2", "model.context=16", "tokenizer.size=300"]
    ft.pretrain(documents=TEXTS * 8, steps=3, out=out, sets=sets)
    return str(out)


def minute(run: str, seed: int = 0) -> ft.TextClassifier:
    return ft.TextClassifier(run=run, epochs=1, seed=seed)


def test_predictions_have_the_labels_and_their_shape(run: str) -> None:
    fitted = minute(run).fit(TEXTS, LABELS)
    assert list(fitted.classes_) == ["neg", "pos"]
    predicted = fitted.predict(TEXTS[:5])
    assert predicted.shape == (5,) and set(predicted) <= {"neg", "pos"}
    probabilities = fitted.predict_proba(TEXTS[:5])
    assert probabilities.shape == (5, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert list(fitted.classes_[probabilities.argmax(1)]) == list(predicted)
    assert 0.0 <= fitted.score(TEXTS, LABELS) <= 1.0


@pytest.mark.parametrize("labels", [[10, 9], [True, False], [1.5, 0.5], ["好", "坏"]], ids=str)
def test_labels_of_any_type_come_back_as_they_were(run: str, labels: list[object]) -> None:
    y = np.array([labels[i % 2] for i in range(24)])
    fitted = minute(run).fit(TEXTS, y)
    assert list(fitted.classes_) == sorted(labels)  # type: ignore[type-var]
    assert fitted.predict(TEXTS[:3]).dtype == y.dtype
    assert set(fitted.predict(TEXTS).tolist()) <= set(labels)


def test_probabilities_follow_classes_also_beyond_nine(run: str) -> None:
    """Eleven classes: "10" sorts before "9" as text, and must not here."""
    texts = [f"word{i % 11} " * 3 for i in range(44)]
    y = [i % 11 for i in range(44)]
    fitted = ft.TextClassifier(run=run, epochs=20, lm_weight=0.0).fit(texts, y)
    assert list(fitted.classes_) == list(range(11))
    best = fitted.classes_[fitted.predict_proba(texts).argmax(1)]
    assert list(best) == list(fitted.predict(texts))
    assert np.mean(best == y) > 0.5, "learned nothing, or the columns are in another order than classes_"


def test_clone_and_parameter_names(run: str) -> None:
    estimator = ft.TextClassifier(run=run, epochs=2, lm_weight=0.1, seed=3)
    twin = clone(estimator)
    assert twin is not estimator and twin.get_params() == estimator.get_params()
    assert set(estimator.get_params()) >= {"run", "size", "minutes", "epochs", "lm_weight", "seed"}
    twin.set_params(epochs=5)
    assert (twin.epochs, estimator.epochs) == (5, 2)
    assert "epochs=2" in repr(estimator)


def test_same_seed_same_probabilities(run: str) -> None:
    one, two = (minute(run, 1).fit(TEXTS, LABELS).predict_proba(TEXTS) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_pipeline_cross_validation_and_grid(run: str) -> None:
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = Pipeline([("lower", lower), ("classifier", minute(run))])
    scores = cross_val_score(pipeline, TEXTS, LABELS, cv=2, error_score="raise")
    assert scores.shape == (2,) and np.isfinite(scores).all()
    search = GridSearchCV(pipeline, {"classifier__lm_weight": [0.0, 0.5]}, cv=2, error_score="raise")
    search.fit(np.array(TEXTS, dtype=object), LABELS)
    assert search.best_params_["classifier__lm_weight"] in (0.0, 0.5)


def test_mistakes(run: str) -> None:
    with pytest.raises(NotFittedError):
        minute(run).predict(TEXTS)
    with pytest.raises(UserError, match="list of texts"):
        minute(run).fit("one text", ["a"])
    with pytest.raises(UserError, match=r"X\[1\] is float"):
        minute(run).fit(["a", float("nan")], ["a", "b"])
    with pytest.raises(UserError, match=r"X\[0\] is blank"):
        minute(run).fit([" ", "b"], ["a", "b"])
    with pytest.raises(ValueError, match="2 texts and y has 3"):
        minute(run).fit(["a", "b"], ["a", "b", "a"])
    with pytest.raises(ValueError, match="one class"):
        minute(run).fit(["a", "b"], ["a", "a"])
    with pytest.raises(UserError, match="no such run directory"):
        minute("nowhere").fit(TEXTS, LABELS)


@pytest.mark.parametrize("chinese", [False, True])
def test_forty_short_texts_without_a_run(chinese: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("很好看", "太糟糕") if chinese else ("good", "bad")
    texts = [f"电影{words[i % 2]}{i % 7}" if chinese else f"a {words[i % 2]} film {i % 7}" for i in range(40)]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    begun = time.monotonic()
    fitted = ft.TextClassifier(minutes=0.01, epochs=2).fit(texts, [i % 2 for i in range(40)])
    assert fitted.predict(texts).shape == (40,)
    assert time.monotonic() - begun < 60
    assert not list(tmp_path.iterdir()), "its temporary run is still there"
