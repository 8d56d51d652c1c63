"""Views and the head over them, against scikit-learn and formulas written out in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from foretext.tasks.views.base import Units, lines_of, read_blocks, text_tensor, units_of
from foretext.tasks.views.rows.linear import LEAST_NOISE, Labels, fit_views, gram, relevances, scale_factors
from foretext.tasks.views.rows.ngrams import NGrams, Numbers, Overlap, terms_of
from foretext.tasks.views.rows.text_knowledge import LatentSemantics, States, Vectors
from foretext.text.words.latent_semantics import Lsa

TEXTS = (
    "The battery lasts all day, and it is good.",
    "It broke after two days; don't buy it.",
    "Good sound, good price.",
    "The price is too high and the sound is bad.",
    "I would buy it again, good battery!",
    "Bad, bad, bad. It broke.",
    "屏幕很好，价格也好。",
    "",
)
GENERATOR = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def _the_same_draws_in_any_order() -> None:
    GENERATOR.bit_generator.state = np.random.default_rng(1).bit_generator.state


class Given:
    """A view of numbers that a test has made: a block by the unit's only word."""

    name = "given"

    def __init__(self, blocks: dict[str, np.ndarray]) -> None:
        self.all = blocks

    def read(self, units: Units) -> dict[str, np.ndarray]:
        own = [int(words[-1][0]) for words in units.words]
        return {name: block[own] for name, block in self.all.items()}


def numbered(count: int, kind: str = "classification", choices: int = 1) -> Units:
    if kind != "choice":
        return units_of([(str(i),) for i in range(count)], kind, True)
    return units_of([("0", *(str(i * choices + k) for k in range(choices))) for i in range(count)], kind, True)


def test_ngrams_are_those_of_scikit_learn() -> None:
    units = units_of([(text,) for text in TEXTS], "classification", True)
    vectorizer = TfidfVectorizer(analyzer=terms_of, sublinear_tf=True)
    expected = vectorizer.fit_transform(units.side(0))
    view = NGrams.learned(units)
    words = view.read(units)["words"]
    order = [view.terms[term] for term in vectorizer.get_feature_names_out()]
    assert np.allclose(words.toarray()[:, order], expected.toarray(), atol=1e-6)
    unseen = units_of([("good battery nobody knows",)], "classification", True)
    later = vectorizer.transform(unseen.side(0)).toarray()
    assert np.allclose(view.read(unseen)["words"].toarray()[:, order], later, atol=1e-6)


def test_relevances_make_the_labels_most_likely() -> None:
    """The evidence, written out in numpy, is lower beside what was found; the block that says nothing counts little."""
    signal, noise = GENERATOR.normal(size=(60, 4)), GENERATOR.normal(size=(60, 30))
    labels = (signal[:, 0] + 0.3 * GENERATOR.normal(size=60) > 0).astype(float)[:, None]
    kernels = [gram(signal), gram(noise)]
    variances, sigma = relevances(kernels, torch.from_numpy(labels))
    targets = (labels - labels.mean()) / (labels - labels.mean()).std(ddof=1)

    def evidence(logs: np.ndarray) -> float:
        scales = np.exp(logs)
        total = scales[0] * kernels[0].numpy() + scales[1] * kernels[1].numpy() + (scales[2] + LEAST_NOISE) * np.eye(60)
        fit = (targets.T @ np.linalg.solve(total, targets)).item() / 2
        return -fit - np.linalg.slogdet(total)[1] / 2 - ((logs + 1) ** 2).sum() / 8

    best = np.log([*variances, sigma - LEAST_NOISE])
    for place in range(3):
        for step in (-0.05, 0.05):
            beside = best.copy()
            beside[place] += step
            assert evidence(beside) < evidence(best)
    assert variances[0] > 3 * variances[1]


@pytest.mark.parametrize("sparse", [False, True])
def test_the_head_is_a_logistic_regression_on_the_scaled_blocks(sparse: bool) -> None:
    one, two = GENERATOR.normal(size=(50, 5)), 3 * GENERATOR.normal(size=(50, 8))
    labels = (one[:, 0] + two[:, 0] / 3 > 0).astype(int) + (one[:, 1] > 0.5)
    units = numbered(50)
    view = Given({"one": one, "two": sp.csr_matrix(two) if sparse else two})
    fitted = fit_views([view], units, Labels("classification", labels, 3), seed=0)
    factors = scale_factors(read_blocks([view], units), [*fitted.relevance.values()], fitted.noise)
    scaled = np.hstack([one * factors["given.one"], two * factors["given.two"]])
    reference = LogisticRegression(C=fitted.chosen.strength, tol=1e-8, max_iter=5000).fit(scaled, labels)
    scores = np.array(fitted.head.scores(units))
    expected = reference.decision_function(scaled)
    assert np.allclose(scores - scores.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True), atol=1e-3)
    assert np.isclose(sum(fitted.head.shares.values()), 1.0)


def test_scores_by_cross_validation_have_not_seen_their_row() -> None:
    """Labels that follow from nothing: left out, they are guessed as a coin would; fitted, far better."""
    block = GENERATOR.normal(size=(80, 40))
    labels = GENERATOR.integers(0, 2, size=80)
    units = numbered(80)
    fitted = fit_views([Given({"all": block})], units, Labels("classification", labels, 2), seed=0)
    left_out = (fitted.chosen.outputs.argmax(1) == labels).mean()
    assert left_out < 0.68
    assert not np.isnan(fitted.chosen.outputs).any()


def test_copies_stay_in_one_fold() -> None:
    block = np.repeat(GENERATOR.normal(size=(30, 60)), 2, axis=0)
    labels = np.repeat(GENERATOR.integers(0, 2, size=30), 2)
    groups = np.repeat(np.arange(30), 2)
    given = [Given({"all": block})], numbered(60), Labels("classification", labels, 2), 0
    parted, together = fit_views(*given), fit_views(*given, groups=groups)
    said = [(fitted.chosen.outputs.argmax(1) == labels).mean() for fitted in (parted, together)]
    assert said[0] > said[1] + 0.15


def test_regression_is_ridge() -> None:
    block = GENERATOR.normal(size=(40, 6))
    scores = block @ GENERATOR.normal(size=6) + 0.1 * GENERATOR.normal(size=40)
    scores = (scores - scores.mean()) / scores.std()
    units = numbered(40, "regression")
    fitted = fit_views([Given({"all": block})], units, Labels("regression", scores, 0), seed=0)
    factor = scale_factors({"all": block}, [*fitted.relevance.values()], fitted.noise)["all"]
    # Ours: Σ (y − f)² + |w|²/(2·strength).
    reference = Ridge(alpha=1 / (2 * fitted.chosen.strength)).fit(block * factor, scores)
    expected = np.clip(reference.predict(block * factor), scores.min(), scores.max())
    assert np.allclose(fitted.head.scores(units), expected, atol=1e-3)


def test_a_score_stays_between_those_of_the_training_rows() -> None:
    block = np.linspace(-1, 1, 40)[:, None]
    scores = 2 * block[:, 0]
    view = Given({"all": block})
    head = fit_views([view], numbered(40, "regression"), Labels("regression", scores, 0), seed=0).head
    view.all = {"all": 10 * block}
    predicted = np.array(head.scores(numbered(40, "regression")))
    assert np.isclose(predicted.min(), scores.min()) and np.isclose(predicted.max(), scores.max())


def test_a_choice_compares_its_alternatives() -> None:
    """The right one has the larger first number of its row; what all alternatives of a row share tells nothing."""
    own, shared = GENERATOR.normal(size=(90, 3)), np.repeat(GENERATOR.normal(size=(30, 1)), 3, axis=0)
    right = own[:, 0].reshape(30, 3).argmax(1)
    units = numbered(30, "choice", 3)
    fitted = fit_views([Given({"all": np.hstack([own, 5 * shared])})], units, Labels("choice", right, 0), seed=0)
    scores = fitted.head.scores(units)
    assert [len(row) for row in scores] == [3] * 30
    assert np.mean([row.argmax() == label for row, label in zip(scores, right)]) > 0.9


PAIRS = [(a, b) for a in TEXTS[:6] for b in TEXTS[1:5]]


def views_of(units: Units) -> list[object]:
    words = sorted({word for texts in units.words for own in texts for word in own})
    generator = np.random.default_rng(2)
    matrix, counts = generator.normal(size=(len(words), 6)), generator.integers(1, 50, size=len(words))
    pairs = np.array([0, 3, len(words) + 1], dtype=np.int64)
    terms = len(words) + len(pairs)
    lsa = Lsa(
        len(words),
        pairs,
        generator.random(terms).astype(np.float32) + 1,
        generator.normal(size=(terms, 4)).astype(np.float32),
    )
    return [
        NGrams.learned(units),
        *([Overlap.learned(units)] if units.pairs else []),
        Vectors.learned(units, words, matrix, counts),
        LatentSemantics(words, lsa),
    ]


def test_pairs_without_an_order_have_one_score() -> None:
    units = units_of(PAIRS, "similarity", False)
    labels = np.array([int(a == b) for a, b in PAIRS])
    fitted = fit_views(views_of(units), units, Labels("similarity", labels, 2), seed=0)  # type: ignore[arg-type]
    assert np.allclose(fitted.head.scores(units), fitted.head.scores(units.swapped()), atol=1e-5)
    ordered = units_of(PAIRS, "entailment", True)
    apart = fit_views(views_of(ordered), ordered, Labels("entailment", labels, 2), seed=0)  # type: ignore[arg-type]
    assert not np.allclose(apart.head.scores(ordered), apart.head.scores(ordered.swapped()), atol=1e-2)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_view_is_its_tensors(pairs: bool) -> None:
    units = units_of(PAIRS, "entailment", True) if pairs else units_of([(t,) for t in TEXTS], "classification", True)
    for view in views_of(units):
        again = type(view).of_tensors(view.tensors())  # type: ignore[attr-defined]
        for name, block in view.read(units).items():  # type: ignore[attr-defined]
            other = again.read(units)[name]
            dense = [own.toarray() if sp.issparse(own) else own for own in (block, other)]
            assert np.array_equal(*dense), (view, name)
            assert all(np.isfinite(own).all() for own in dense)


def test_overlap_counts_what_is_shared() -> None:
    units = units_of([("a man plays guitar", "a man plays no guitar"), ("x y", "z")], "entailment", True)
    numbers = Overlap.learned(units).numbers(units)
    assert numbers[0, 2] == 1.0 and numbers[0, 3] == 4 / 5  # all words of the first, four of five of the second
    assert numbers[0, 9] == 3 / 5  # three in a row
    assert numbers[0, 11] == 1.0 and numbers[1, 11] == 0.0  # a negation that only one has
    assert not numbers[1, 2:10].any()


def test_states_have_unit_length_and_no_mean_over_the_training_rows() -> None:
    states = GENERATOR.normal(size=(20, 5)) * 7 + 3
    units = Units([([],)] * 20, np.arange(20), states=(states,))
    block = States.learned(units).read(units)["states"]
    assert np.allclose(np.linalg.norm(block, axis=1), 1.0)
    assert np.abs(block.mean(0)).max() < 0.3


@pytest.mark.parametrize("lines", [[], ["a"], ["a b", "ü", "屏幕"]])
def test_texts_as_a_tensor(lines: list[str]) -> None:
    assert lines_of(text_tensor(lines)) == lines


def test_waves_are_a_gaussian_kernel_of_the_numbers() -> None:
    """2/W Σ cos·cos tends to exp(−|x − y|²/2N), N numbers; each of the W products is within ±2 of it."""
    numbers = GENERATOR.standard_normal((30, 5))
    reader = Numbers.learned(numbers)
    waves = reader.read(numbers, "own")["waves"].astype(np.float64)
    standard = (numbers - numbers.mean(0)) / numbers.std(0)
    distance = ((standard[:, None] - standard[None]) ** 2).sum(-1)
    error = 2 * waves @ waves.T / waves.shape[1] - np.exp(-distance / (2 * 5))
    assert np.abs(error).mean() < 2 / np.sqrt(waves.shape[1])  # one standard deviation of the mean of W such products


def test_numbers_of_a_run_from_before_there_were_waves() -> None:
    units = units_of([("a b c", "a b"), ("d e", "f"), ("g h", "g i")], "entailment", True)
    view = Overlap.learned(units)
    old = {
        name: own[..., :15] if name in ("mean", "deviation", "knots") else own for name, own in view.tensors().items()
    }
    del old["directions"]
    blocks = Overlap.of_tensors(old).read(units)
    assert set(blocks) == {"overlap"} and blocks["overlap"].shape == (3, 15 * 4)
    assert np.array_equal(blocks["overlap"][:, :15], view.read(units)["overlap"][:, :15])


def test_cosines_of_tfidf_and_of_letters() -> None:
    """Equal to scikit-learn's."""
    pairs = [("the cat sat on the mat", "the cat sat"), ("a dog barks", "dogs bark")]
    view = Overlap.learned(units_of(pairs, "entailment", True))
    cosines = view.numbers(units_of(pairs, "entailment", True))[:, -2:]
    texts = [text for pair in pairs for text in pair]
    words = TfidfVectorizer(analyzer=str.split, sublinear_tf=True).fit(texts)
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, use_idf=False).fit(texts)
    for column, vectorizer in enumerate((words, letters)):
        a, b = (vectorizer.transform([pair[side] for pair in pairs]) for side in (0, 1))
        assert np.allclose(cosines[:, column], np.asarray(a.multiply(b).sum(1)).ravel())


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_labels_that_a_block_tells_without_fault_have_relevances(seed: int) -> None:
    """The likeliest noise is then 0, and kernels of few directions cannot be factorised without any."""
    draw = np.random.default_rng(seed)
    told = draw.standard_normal((80, 3)).astype(np.float32)
    other = draw.standard_normal((80, 3)).astype(np.float32)
    far = (told @ draw.standard_normal((3, 30))).astype(np.float32) * 100 + 1000
    variances, noise = relevances(
        [gram(told), gram(far), gram(other)], torch.from_numpy(told[:, :1].astype(np.float64))
    )
    assert np.isfinite([*variances, noise]).all()
    assert LEAST_NOISE <= noise < LEAST_NOISE + 0.02 and variances[2] < variances[0] + variances[1]
