"""Self-training over views: the selection by brute force, what it may look at, and that it helps where it can."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from complaints import refused
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from foretext.tasks.views import self_training
from foretext.tasks.views.base import Units, ViewHead, units_of
from foretext.tasks.views.rows.linear import Chosen, Fitted, Labels, fit_views
from foretext.tasks.views.rows.ngrams import NGrams
from foretext.tasks.views.self_training import (
    STRENGTH,
    SelfTraining,
    Taught,
    aligned,
    drawn_texts,
    gain_of,
    shares_of,
    surest,
    text_units,
    with_text,
)


def heard(title: str, done: int, total: int) -> None:
    assert 0 <= done <= total


def as_units(texts: list[str]) -> Units:
    return units_of([(text,) for text in texts], "classification", True)


# -- selection ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 5])
def test_aligned_probabilities_have_the_shares_of_the_labels(classes: int) -> None:
    generator = np.random.default_rng(classes)
    logits = 3 * generator.normal(size=(400, classes)) + np.arange(classes)
    shares = generator.dirichlet(np.full(classes, 3.0))
    probabilities = aligned(logits, shares)
    assert np.allclose(probabilities.mean(0), shares, atol=1e-4)
    moved = np.log(probabilities) - logits  # one number a class, beside one a text
    assert np.allclose(moved - moved[:, :1], (moved - moved[:, :1])[0], atol=1e-6)


def test_the_surest_of_each_class() -> None:
    """As a loop over classes and texts would have it."""
    chances = np.random.default_rng(3).dirichlet(np.ones(3), size=50)
    rows, classes = surest(chances, 0.4)
    expected: list[int] = []
    for number in range(3):
        own = [row for row in range(50) if all(chances[row, number] >= chances[row])]
        ranked = sorted(own, key=lambda row: -chances[row, number])
        expected += ranked[: -(-4 * len(own) // 10)]
    assert rows.tolist() == sorted(expected)
    assert all(chances[row].argmax() == own for row, own in zip(rows, classes))


def test_a_class_that_no_text_has_is_no_trouble() -> None:
    rows, classes = surest(np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]))
    assert rows.tolist() == [0, 1] and classes.tolist() == [0, 1]
    assert np.allclose(shares_of(np.array([0, 0, 1, 1]), 3), [4 / 9, 4 / 9, 1 / 9])


def test_texts_are_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [str(number) for number in range(100, 400)]
    assert drawn_texts(texts, 1) == texts
    monkeypatch.setattr(self_training, "MOST_TEXTS", 50)
    some = drawn_texts(texts, 1)
    assert len(some) == 50 and some == sorted(some) and some == drawn_texts(texts, 1) != drawn_texts(texts, 2)
    monkeypatch.setattr(self_training, "MOST_LETTERS", 31)
    assert len(drawn_texts(texts, 1)) == 10


# -- the student ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_the_student_is_a_weighted_logistic_regression(count: int) -> None:
    generator = np.random.default_rng(4)
    matrix = csr_matrix(generator.normal(size=(60, 7)) * (generator.random((60, 7)) < 0.6))
    classes, weights = generator.integers(0, count, size=60), generator.random(60)
    terms = NGrams([str(number) for number in range(7)], np.ones(7))
    logits = Taught.learned(terms, matrix, classes, weights, count).logits(matrix)
    reference = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=5000).fit(matrix, classes, sample_weight=weights)
    expected = reference.decision_function(matrix)
    if count == 2:
        expected = np.column_stack([-expected / 2, expected / 2])
    assert np.allclose(logits, expected - expected.mean(1, keepdims=True), atol=0.02)


def test_the_student_is_its_tensors() -> None:
    units = as_units(["a good film", "bad", "屏幕很好"])
    terms = NGrams.learned(units)
    view = Taught.learned(terms, terms.matrix(units.side(0)), np.array([0, 1, 0]), np.ones(3), 2)
    again = Taught.of_tensors(view.tensors())
    assert np.array_equal(view.read(units)["logits"], again.read(units)["logits"])


# -- from rows and texts ----------------------------------------------------------------------------------------------

# Of each class a few words, and many others, which in unlabelled texts stand beside the first.
CLASSES = {"good": ("bright", "kind", "warm"), "bad": ("grim", "cold", "harsh"), "odd": ("queer", "weird", "eerie")}
ENDINGS = tuple(map("".join, itertools.product("bdfgklmn", "aeiou")))
SYNONYMS = {name: tuple(name + ending for ending in ENDINGS) for name in CLASSES}
FILLERS = tuple("filler" + ending for ending in ENDINGS)


def planted(count: int, known: bool, new: bool, seed: int, names: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """Texts with words of their class: two that stand in many rows, one that stands in few or none, or two of each."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, len(names), size=count)
    texts = []
    for label in labels:
        words = list(generator.choice(FILLERS, 6))
        words += list(generator.choice(CLASSES[names[label]], 2)) if known else []
        words += list(generator.choice(SYNONYMS[names[label]], 2 if known else 1)) if new else []
        texts.append(" ".join(generator.permutation(words)))
    return texts, labels


def mixed(count: int, seed: int, names: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """Half of the texts with words of the one kind, half of the other."""
    one, other = (planted(count // 2, known, not known, seed + known, names) for known in (True, False))
    return one[0] + other[0], np.concatenate([one[1], other[1]])


@pytest.mark.parametrize("names", [("good", "bad"), ("good", "bad", "odd")])
def test_it_helps_where_texts_join_words_that_rows_know_with_others(names: tuple[str, ...]) -> None:
    texts, values = mixed(80, 1, names)
    text, _ = planted(600, True, True, 5, names)
    units, labels = as_units(texts), Labels("classification", values, len(names))
    views = [NGrams.learned(units)]
    groups = np.arange(len(texts))
    alone = fit_views(views, units, labels, 0, groups)
    fitted, gain = with_text(alone, views, units, labels, text_units(text, views, 0), 0, groups, heard)
    assert gain is not None and gain.kept and gain.after > gain.before
    assert [view.name for view in fitted.head.views] == ["ngrams", "taught"]
    asked, right = planted(200, False, True, 9, names)
    before, after = (
        np.mean(np.array(head.scores(as_units(asked))).argmax(1) == right) for head in (alone.head, fitted.head)
    )
    assert after > before + 0.1


def test_text_of_another_kind_is_left_out() -> None:
    texts, values = planted(100, True, False, 1, ("good", "bad"))
    generator = np.random.default_rng(2)
    noise = [" ".join(generator.choice(FILLERS, 12)) for _ in range(300)]
    units, labels = as_units(texts), Labels("classification", values, 2)
    views = [NGrams.learned(units)]
    groups = np.arange(len(texts))
    alone = fit_views(views, units, labels, 0, groups)
    fitted, gain = with_text(alone, views, units, labels, text_units(noise, views, 0), 0, groups, heard)
    assert gain is not None and not gain.kept
    assert fitted is alone
    assert str(gain).endswith("left out")


def test_what_is_kept_does_not_raise_the_loss() -> None:
    """Accuracy and loss as a loop over rows has them."""
    generator = np.random.default_rng(6)
    values = generator.integers(0, 3, size=40)
    before = generator.normal(size=(40, 3))
    for better in (True, False):
        after = before.copy()
        after[np.arange(40), values] += 1.0 if better else -1.0
        gain = gain_of(*(_fitted(outputs) for outputs in (before, after)), values)
        assert gain.kept == better
        for outputs, right, loss in zip((before, after), (gain.before, gain.after), gain.losses):
            assert right == pytest.approx(np.mean([row.argmax() == own for row, own in zip(outputs, values)]))
            odds = [np.exp(row[own]) / np.exp(row).sum() for row, own in zip(outputs, values)]
            assert loss == pytest.approx(-np.log(odds).mean())


def _fitted(outputs: np.ndarray) -> Fitted:
    head = ViewHead([], {}, np.zeros(3), "classification", {})
    return Fitted(head, Chosen(1.0, {}, outputs), np.arange(len(outputs)), {}, 1.0)


def test_a_fold_is_scored_without_its_labels() -> None:
    """Other labels of a fold move what students of that fold say of the others, and not what is said of it."""
    texts, values = mixed(60, 1, ("good", "bad"))
    text, _ = planted(200, True, True, 5, ("good", "bad"))
    units, groups = as_units(texts), np.arange(60)
    fold, others = np.arange(0, 60, 5), np.setdiff1d(np.arange(60), np.arange(0, 60, 5))

    def said(labels: np.ndarray, learn: np.ndarray) -> np.ndarray:
        views = [NGrams.learned(units)]
        given = Labels("classification", labels, 2)
        training = SelfTraining(views, units, given, text_units(text, views, 0), 0, lambda done, total: None)
        return training.taught(learn, groups).logits(training.student_rows)

    poisoned = values.copy()
    poisoned[fold] = 1 - poisoned[fold]
    assert np.array_equal(said(values, others), said(poisoned, others))
    assert not np.allclose(said(values, groups), said(poisoned, groups), atol=1e-2)


def test_the_same_each_time_and_for_many_classes() -> None:
    """Seven classes, one of a single row, which some folds do not have."""
    generator = np.random.default_rng(0)
    values = np.concatenate([np.repeat(np.arange(6), 8), [6]])
    texts = [f"{ENDINGS[value]} {' '.join(generator.choice(FILLERS, 4))}" for value in values]
    text = [f"{ENDINGS[generator.integers(0, 4)]} {' '.join(generator.choice(FILLERS, 4))}" for _ in range(150)]
    logits = []
    for _ in range(2):
        units, labels = as_units(texts), Labels("classification", values, 7)
        views = [NGrams.learned(units)]
        training = SelfTraining(views, units, labels, text_units(text, views, 0), 0, lambda done, total: None)
        taught = training.taught(np.arange(49), np.arange(49))
        logits.append(taught.read(units)["logits"])
        assert logits[-1].shape == (49, 7) and np.isfinite(logits[-1]).all()
    assert np.array_equal(*logits)
    assert (logits[0].argmax(1) == values).mean() > 0.9


def test_chinese() -> None:
    good, bad = ["很好", "喜欢", "舒服"], ["很差", "讨厌", "难受"]
    generator = np.random.default_rng(0)

    def made(count: int) -> tuple[list[str], np.ndarray]:
        labels = generator.integers(0, 2, size=count)
        own = ["".join(generator.choice(bad if label else good, 2)) for label in labels]
        return [f"这家酒店{words}。" for words in own], labels

    (texts, values), (text, _) = made(60), made(200)
    units, labels = as_units(texts), Labels("classification", values, 2)
    views = [NGrams.learned(units)]
    training = SelfTraining(views, units, labels, text_units(text, views, 0), 0, lambda done, total: None)
    taught = training.taught(np.arange(60), np.arange(60))
    asked, right = made(50)
    assert (taught.read(as_units(asked))["logits"].argmax(1) == right).all()


@pytest.mark.parametrize("texts", [["", " "], ["nothing known"]])
def test_text_that_teaches_nothing_is_refused(texts: list[str]) -> None:
    views = [NGrams.learned(as_units(["a good film"]))]
    with refused("--unlabelled"):
        text_units(texts, views, 0)


def test_texts_are_read_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, values = mixed(20, 1, ("good", "bad"))
    units = as_units(texts)
    views = [NGrams.learned(units)]
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(self_training, "_CHUNK", 7)
    labels = Labels("classification", values, 2)
    text = as_units(texts)
    training = SelfTraining(views, units, labels, text, 0, lambda done, total: told.append((done, total)))
    assert all(done < after for (done, _), (after, _) in itertools.pairwise(told)) and told[-1] == (20, 20)
    assert not (training.text["ngrams.words"] != views[0].read(text)["words"]).nnz
