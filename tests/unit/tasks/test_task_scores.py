"""Labels, splits and metrics."""

import json
import random
import warnings
from collections.abc import Sequence

import complaints
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as reference
from tolerance import close

from foretext.tasks.files.rows import Row
from foretext.tasks.labelled import LabelSet, hold_out, label_warnings, order_names
from foretext.tasks.scores.metrics import Scores, format_scores, positive_label, score


def rows_with(*names: object) -> list[Row]:
    return [Row((f"text {i}",), name, f"a.csv row {i + 2}") for i, name in enumerate(names)]  # type: ignore[arg-type]


def test_names_are_in_numeric_order_only_if_all_are_numbers() -> None:
    assert order_names(["10", "9", "-1", "01", "1", "1.5"]) == ("-1", "01", "1", "1.5", "9", "10")
    assert order_names(["10", "9", "x"]) == ("10", "9", "x")
    assert order_names(["10", "9", "1e5"]) == ("10", "1e5", "9")


def test_label_set() -> None:
    names = LabelSet.from_rows(rows_with("pos", "neg", "pos"))
    assert names.names == ("neg", "pos")
    assert names.index("pos", "here") == 1
    with complaints.refused("x.csv row 9", "'maybe'", "'neg', 'pos'"):
        names.index("maybe", "x.csv row 9")
    with complaints.refused("a.csv row 2", "label", "missing"):
        LabelSet.from_rows(rows_with(None))
    with complaints.refused("here", "'z'", "'label 0'", "'label 19'", "10 more"):
        LabelSet(tuple(f"label {i}" for i in range(30))).index("z", "here")


def test_one_class_cannot_be_trained() -> None:
    with complaints.refused("2 rows", "'pos'", "a.csv row 3"):
        LabelSet.from_rows(rows_with("pos", "pos"))
    with complaints.refused("training"):
        LabelSet.from_rows([])


@pytest.mark.parametrize(
    ("labels", "said"),
    [("12345", False), ("012345", True), (("0.0", "2.5"), True), (("1.0", "2.0"), False), (("a", "2.5"), False)],
)
def test_labels_that_look_like_scores(labels: Sequence[str], said: bool) -> None:
    warnings = label_warnings(rows_with(*(label for label in labels for _ in range(4))))
    assert any("--task regression" in warning for warning in warnings) == said


def test_label_warnings() -> None:
    assert label_warnings(rows_with(*["a"] * 8, *["b"] * 2)) == []
    (warning,) = label_warnings(rows_with(*["a"] * 9, *["b"] * 2))
    complaints.names(warning, "'a'", "9 of 11", "81.8%")
    single, unequal = label_warnings(rows_with(*["a"] * 5, "b"))
    complaints.names(single, "'b'", "single")
    complaints.names(unequal, "'a'", "imbalanced", "5 of 6")
    complaints.names(label_warnings(rows_with("Pos", "Pos", "pos ", "pos "))[0], "'Pos'", "'pos '", "case")


@given(st.lists(st.sampled_from("abcd"), min_size=10, max_size=200), st.integers(0, 3))
def test_hold_out_is_a_repeatable_partition_with_every_class_in_training(names: list[str], seed: int) -> None:
    rows = rows_with(*names)
    split = hold_out(rows, seed=seed)
    assert split == hold_out(rows, seed=seed)
    assert sorted([*split.train, *split.valid], key=rows.index) == rows
    assert {row.label for row in split.train} == set(names)
    assert len(split.valid) == max(1, round(0.15 * len(rows)))
    for name in set(names):
        share = sum(row.label == name for row in split.valid)
        assert abs(share - len(split.valid) * names.count(name) / len(names)) < 2


def test_hold_out_of_few_rows_and_of_scores() -> None:
    split = hold_out(rows_with(*"ababababa"))
    assert (len(split.train), split.valid) == (9, [])
    complaints.names(split.note, "few")
    assert hold_out(rows_with(*"abcdefghij")).valid == []
    rows = rows_with(*range(100))
    split = hold_out(rows, seed=1)
    assert len(split.valid) == 15
    assert split.valid != hold_out(rows, seed=2).valid
    assert "6.7%" in split.note
    assert hold_out(rows, fraction=0).valid == []
    with complaints.refused("fraction", "1"):
        hold_out(rows, fraction=1)


def test_hold_out_of_rows_without_copies_is_what_it_was() -> None:
    """Which rows validate must not change from version to version: a run that goes on would be refused."""
    for names, seed, numbers in (
        ("abbc" * 10, 0, [3, 25, 29, 32, 33, 36]),
        ("abbc" * 10, 3, [3, 4, 10, 13, 22, 24]),
        (range(40), 0, [0, 25, 28, 32, 33, 34]),
    ):
        rows = rows_with(*names)
        assert hold_out(rows, seed=seed).valid == [rows[number] for number in numbers]


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), min_size=10, max_size=120), st.integers(0, 3))
def test_copies_of_a_row_are_held_out_together(drawn: list[tuple[int, str]], seed: int) -> None:
    rows = [Row((f"text {text}" + " " * (i % 2), "b"), name, f"row {i}") for i, (text, name) in enumerate(drawn)]
    split = hold_out(rows, seed=seed)
    assert split == hold_out(rows, seed=seed)
    assert sorted([*split.train, *split.valid], key=rows.index) == rows
    assert not {row.texts[0].strip() for row in split.train} & {row.texts[0].strip() for row in split.valid}
    assert {row.label for row in split.train} == {name for _, name in drawn}


def test_hold_out_of_rows_that_are_mostly_copies() -> None:
    doubled = [row for row in rows_with(*"ab" * 100) for _ in range(2)]
    valid = hold_out(doubled).valid
    assert len(valid) == 60 and sum(row.label == "a" for row in valid) == 30
    one = [Row(("the same",), "ab"[i % 2], f"row {i}") for i in range(20)]
    assert hold_out(one).train == one
    complaints.names(hold_out(one).note, "few", "different")
    # Half of the rows are one text, which would be far too much to hold out: the others step in.
    heavy = [*rows_with(*"ab" * 50), *(Row(("ok",), "a", f"row {i}") for i in range(100))]
    for seed in range(20):
        valid = hold_out(heavy, seed=seed).valid
        assert len(valid) == 30 and not any(row.texts == ("ok",) for row in valid)


@pytest.mark.parametrize("classes", [2, 5])
def test_class_scores_equal_scikit_learn(classes: int) -> None:
    generator = random.Random(classes)
    labels = LabelSet(tuple(f"c{i}" for i in range(classes)))
    gold = [generator.randrange(classes) for _ in range(300)]
    predicted = [g if generator.random() < 0.6 else generator.randrange(classes) for g in gold]
    scores = score("classification", gold, predicted, labels)
    assert scores.values["accuracy"] == pytest.approx(reference.accuracy_score(gold, predicted))
    assert scores.values["f1_macro"] == pytest.approx(reference.f1_score(gold, predicted, average="macro"))
    assert scores.values["matthews"] == pytest.approx(reference.matthews_corrcoef(gold, predicted))
    assert scores.confusion == reference.confusion_matrix(gold, predicted).tolist()
    assert [c.f1 for c in scores.per_class] == pytest.approx(reference.f1_score(gold, predicted, average=None).tolist())
    assert [c.support for c in scores.per_class] == [gold.count(i) for i in range(classes)]
    assert scores.main_value == scores.values["accuracy"]
    assert ("f1" in scores.values) == (classes == 2)
    names = [labels.names[i] for i in predicted]
    assert score("entailment", gold, names, labels) == scores


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("rows", [1, 2, 9, 100])
def test_class_scores_are_scikit_learns_to_the_last_bit(classes: int, rows: int) -> None:
    """Also of classes that do not occur, and of one prediction for all."""
    generator, every = random.Random(classes * rows), list(range(classes))
    labels = LabelSet(tuple(f"c{i}" for i in every))
    for most in every:
        gold = [generator.randint(0, most) for _ in range(rows)]
        predicted = [generator.choice((g, generator.randrange(classes))) for g in gold]
        scores = score("classification", gold, predicted, labels)
        table = reference.precision_recall_fscore_support(gold, predicted, labels=every, zero_division=0)
        ours = [(one.precision, one.recall, one.f1, one.support) for one in scores.per_class]
        assert ours == list(zip(*(column.tolist() for column in table)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is but one class
            assert scores.values["matthews"] == reference.matthews_corrcoef(gold, predicted)
        assert scores.confusion == reference.confusion_matrix(gold, predicted, labels=every).tolist()


def test_the_positive_class_of_two() -> None:
    assert positive_label(LabelSet(("entailment", "not_entailment"))) == "entailment"
    assert positive_label(LabelSet(("0", "1"))) == "1"
    assert positive_label(LabelSet(("No", "YES"))) == "YES"
    assert positive_label(LabelSet(("ham", "tofu"))) == "tofu"
    assert positive_label(LabelSet(("1", "yes"))) == "yes"
    assert positive_label(LabelSet(("a", "b", "c"))) is None
    labels = LabelSet(("pos", "rest"))
    scores = score("similarity", [0, 0, 1, 1], [0, 1, 1, 1], labels)
    assert scores.values["f1"] == pytest.approx(reference.f1_score([1, 1, 0, 0], [1, 0, 0, 0]))


def test_degenerate_class_scores_are_figures_with_a_warning() -> None:
    labels = LabelSet(("a", "b", "c"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = score("classification", [0, 0, 1], [0, 0, 0], labels)
        same = score("classification", [0, 0], [0, 0], labels)
    assert scores.values["matthews"] == same.values["matthews"] == 0
    assert same.values["f1_macro"] == 1
    complaints.names(scores.warnings[0], "predicted", "'a'")
    complaints.names(scores.warnings[1], "gold", "'c'")
    with complaints.refused("rows", "score"):
        score("classification", [], [], labels)


def test_regression_scores_equal_scipy() -> None:
    generator = numpy.random.default_rng(1)
    gold = generator.normal(size=50)
    predicted = gold + generator.normal(size=50)
    scores = score("regression", gold, predicted)
    assert scores.main == "pearson"
    expected = {
        "pearson": float(stats.pearsonr(gold, predicted).statistic),
        "spearman": float(stats.spearmanr(gold, predicted).statistic),
        "rmse": float(reference.root_mean_squared_error(gold, predicted)),
    }
    close(scores.values, expected, terms=2 * 50)  # means, and then the squares


@pytest.mark.parametrize("predicted", [[2.0, 2.0, 2.0], [0.1 + 0.2, 0.3, 0.3]])
def test_a_constant_has_correlation_0_with_a_warning(predicted: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = score("regression", [1, 2, 3], predicted)
    assert scores.values["pearson"] == scores.values["spearman"] == 0
    complaints.names(scores.warnings[0], "predicted", "equal")
    close(score("regression", [1e-15, 2e-15, 3e-15], [1, 2, 3]).values["pearson"], 1.0, terms=2 * 3)
    assert score("regression", [1], [2]).values["pearson"] == 0


def test_scores_that_are_not_finite_are_refused() -> None:
    with complaints.refused("1 of 2", "finite") as caught:
        score("regression", [1, 2], [1, float("nan")])
    assert caught.value.code == 3  # type: ignore[attr-defined]


def test_choice_and_other_main_metrics() -> None:
    assert score("choice", [0, 3, 1, 1], [0, 3, 1, 0]).values == {"accuracy": 0.75}
    labels = LabelSet(("0", "1"))
    scores = score("classification", [0, 1], [0, 1], labels, main="matthews")
    assert scores.main == "matthews"
    with complaints.refused("--metric rmse", "pearson, spearman"):
        score("regression", [1, 2], [1, 2], main="rmse")


def test_scores_as_text_and_as_json() -> None:
    scores = score("classification", [0, 1, 1, 0], [0, 1, 0, 0], LabelSet(("正面", "negative")))
    lines = format_scores(scores).splitlines()
    assert lines[1] == "accuracy   0.7500  (main)"
    assert lines[-2] == "正面          0.667   1.000  0.800     2"
    assert lines[-1] == "negative      1.000   0.500  0.667     2"
    back = json.loads(scores.to_json())
    assert back["values"] == scores.values
    assert back["per_class"][0]["label"] == "正面"
    assert "warning: w" in format_scores(Scores("accuracy", {"accuracy": 1.0}, 3, warnings=["w"]))
