"""`TextClassifier` as scikit-learn uses estimators. Models are minute: these tests are about the interface."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from complaints import names, refused
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from tolerance import close

import foretext as ft

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
    fitted = ft.TextClassifier(run=run, epochs=40).fit(TEXTS, LABELS)
    assert list(fitted.classes_) == ["neg", "pos"]
    predicted = fitted.predict(TEXTS[:5])
    assert predicted.shape == (5,) and set(predicted) <= {"neg", "pos"}
    probabilities = fitted.predict_proba(TEXTS[:5])
    assert probabilities.shape == (5, 2)
    close(probabilities.sum(1), np.ones(5), terms=2 * 2)  # divided by a sum of two, and added up again
    assert list(fitted.classes_[probabilities.argmax(1)]) == list(predicted)
    right = sum(a == b for a, b in zip(fitted.predict(TEXTS), LABELS))
    assert fitted.score(TEXTS, LABELS) == right / len(TEXTS)
    assert right == len(TEXTS), "the words of the two classes differ: what it was fitted on is easy"


@pytest.mark.parametrize("labels", [[10, 9], [True, False], [1.5, 0.5], ["好", "坏"]], ids=str)
def test_labels_of_any_type_come_back_as_they_were(run: str, labels: list[object]) -> None:
    y = np.array([labels[i % 2] for i in range(24)])
    fitted = minute(run).fit(TEXTS, y)
    assert list(fitted.classes_) == sorted(labels)  # type: ignore[type-var]
    assert fitted.predict(TEXTS[:3]).dtype == y.dtype
    assert set(fitted.predict(TEXTS).tolist()) <= set(labels)


def test_probabilities_follow_classes_also_beyond_nine(run: str) -> None:
    """Twelve classes: "10" sorts before "9" as text, and must not here."""
    fitted = minute(run).fit([f"word{i % 12} " * 2 for i in range(36)], [i % 12 for i in range(36)])
    assert list(fitted.classes_) == list(range(12))
    task = fitted.model_.task
    for wanted in (2, 10):
        own_index = fitted.model_.task_config.labels.index(f"{wanted:06d}")
        with torch.no_grad():
            task.head.bias.zero_()
            task.head.bias[own_index] = 50.0
        assert fitted.predict_proba(["a film"])[0].argmax() == wanted
        assert list(fitted.predict(["a film", "another"])) == [wanted, wanted]


def test_clone_and_parameter_names(run: str) -> None:
    estimator = ft.TextClassifier(run=run, epochs=2, lm_weight=0.1, seed=3)
    twin = clone(estimator)
    assert twin is not estimator and twin.get_params() == estimator.get_params()
    assert set(estimator.get_params()) >= {"run", "minutes", "views", "epochs", "lm_weight", "seed"}
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
    with refused("X", "list"):
        minute(run).fit("one text", ["a"])
    with refused("X[1]", "float"):
        minute(run).fit(["a", float("nan")], ["a", "b"])
    with refused("X[0]", "blank"):
        minute(run).fit([" ", "b"], ["a", "b"])
    with refused("X", "2 texts", "y", "3 labels", kind=ValueError):
        minute(run).fit(["a", "b"], ["a", "b", "a"])
    with refused("y", "class", "'a'", kind=ValueError):
        minute(run).fit(["a", "b"], ["a", "a"])
    with refused("nowhere", "foretext pretrain", "--out nowhere"):
        minute("nowhere").fit(TEXTS, LABELS)


NAN = float("nan")


@pytest.mark.parametrize(
    ("missing", "others"),
    [(NAN, [0.0, 1.0]), (None, ["neg", "pos"]), ("", ["neg", "pos"]), (" ", ["neg", "pos"]), (NAN, ["neg", "pos"])],
    ids=str,
)
@pytest.mark.parametrize("array", [list, lambda labels: np.array(labels, dtype=object)], ids=["list", "array"])
def test_a_missing_label_is_no_class(run: str, missing: object, others: list[object], array: Callable) -> None:
    labels = [others[i % 2] for i in range(24)]
    labels[4] = missing
    with refused("y[4] (row 5)", "missing", f"({missing!r})", f"{others[0]!r}, {others[1]!r}"):
        minute(run).fit(TEXTS, array(labels))


def test_a_missing_label_in_an_array_of_numbers(run: str) -> None:
    with refused("y[1] (row 2)", "missing", "(nan)"):
        minute(run).fit(TEXTS, np.array([0.0, NAN] + [0.0, 1.0] * 11))


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ([1, "1"], ["y[0]", "y[1]", "1 and '1'"]),
        ([1, "one"], ["y[0]", "number", "y[1]", "text"]),
        ([True, 2], ["y[0]", "true", "y[1]", "number"]),
        (["a", "a\0"], ["y", "array", "NUL"]),
        ([2**53, 2**53 + 1, 0.5], ["y", "array", "NUL"]),
        ([(1, 2), (3, 4)], ["y[0]", "tuple"]),
    ],
    ids=str,
)
def test_labels_are_never_merged_or_changed(run: str, labels: list[object], named: list[str]) -> None:
    with refused(*named):
        minute(run).fit(TEXTS, [labels[i % len(labels)] for i in range(24)])


def test_no_rows_and_no_list(run: str) -> None:
    fitted = minute(run).fit(TEXTS, LABELS)
    for wrong, named in (
        (lambda: minute(run).fit([], []), ["X", "rows"]),
        (lambda: fitted.predict([]), ["X", "rows"]),
        (lambda: fitted.predict_proba(np.array([], dtype=object)), ["X", "rows"]),
        (lambda: fitted.predict(None), ["X", "list", "NoneType"]),
        (lambda: minute(run).fit(TEXTS, None), ["y", "list", "NoneType"]),
        (lambda: minute(run).fit(TEXTS, "pos"), ["y", "list", "str"]),
        (lambda: minute(run).fit(TEXTS, np.zeros((24, 2))), ["y", "list", "ndarray"]),
    ):
        with refused(*named) as error:
            wrong()
        assert isinstance(error.value, ValueError), "as scikit-learn expects"


@pytest.mark.parametrize("chinese", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_forty_short_texts_without_a_run(chinese: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("很好看", "太糟糕") if chinese else ("good", "bad")
    texts = [f"电影{words[i % 2]}{i % 7}" if chinese else f"a {words[i % 2]} film {i % 7}" for i in range(40)]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    fitted = ft.TextClassifier(minutes=0.01).fit(texts, [i % 2 for i in range(40)])
    assert fitted.score(texts, [i % 2 for i in range(40)]) >= 0.9, "one word tells the classes apart"
    assert not list(tmp_path.iterdir()), "its temporary run is still there"


def test_a_fitted_one_is_kept_by_pickle(run: str) -> None:
    fitted = minute(run).fit(TEXTS, LABELS)
    for kept in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(kept.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
        assert kept.classes_.tolist() == fitted.classes_.tolist() and kept.get_params() == fitted.get_params()
    assert pickle.loads(pickle.dumps(minute(run))).get_params() == minute(run).get_params()


def test_texts_that_are_cut_are_counted(run: str) -> None:
    fitted = minute(run).fit(TEXTS, LABELS)
    with pytest.warns(UserWarning) as warned:
        fitted.predict(["good film", "good film " * 400])
    (warning,) = warned
    names(warning.message, "1 of 2", "16 tokens")


def test_without_a_run_time_does_not_decide() -> None:
    """Sixty texts whose class is plain from their words, in three folds, and kept by pickle."""
    texts = [f"return the sum of numbers {i}" for i in range(30)] + [f"open the network socket {i}" for i in range(30)]
    labels = ["sum"] * 30 + ["socket"] * 30
    assert cross_val_score(ft.TextClassifier(), texts, labels, cv=3).min() == 1.0
    fitted = ft.TextClassifier().fit(texts, labels)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(fitted.predict_proba(texts), again.predict_proba(texts))


def test_options_of_a_run_need_one() -> None:
    for option in ({"epochs": 1}, {"lm_weight": 0.5}):
        with refused(*option, "run"):
            ft.TextClassifier(**option).fit(["a", "b"], [0, 1])  # type: ignore[arg-type]
