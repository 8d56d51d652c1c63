"""Views of words and the field over them, against sums over all paths written out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tolerance import close, doubles, terms_of

from foretext.nn.task_models.crf import Allowed, Chain, LinearChainCrf, Sentences, iob2_allowed
from foretext.tasks.heads.token_tasks import ChainTagger
from foretext.tasks.views.base import Block, Lookup, Units, View, ViewHead, read_blocks, word_units
from foretext.tasks.views.explain import word_reasons
from foretext.tasks.views.field import Problem
from foretext.tasks.views.words.viewed_sentences import Paths, Tags, fit_chain, tagger
from foretext.tasks.views.words.word_views import VECTORS, WordNGrams, WordStates, WordVectors, near_terms, shape_of

LABELS = ("B-X", "I-X", "O")
LENGTHS = (3, 1, 4, 2)
WORDS, CLASSES = sum(LENGTHS), len(LABELS)
SENTENCES = [
    ["The", "cat", "sat", "in", "New-York", "."],
    ["Yes"],
    ["A", "dog", "of", "2,000", "cats", "sat", "."],
    ["我", "爱", "北京", "。"],
]
TERMS = terms_of(CLASSES ** max(LENGTHS), WORDS * CLASSES)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with doubles():
        yield


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def chain_of(seed: int, classes: int = CLASSES) -> Chain:
    return Chain(drawn(seed, classes, classes), drawn(seed + 1, classes), drawn(seed + 2, classes))


def barred(chain: Chain, allowed: Allowed) -> Chain:
    return Tags(np.zeros(0), CLASSES, allowed).chain(*chain)


def score(emissions: np.ndarray, path: tuple[int, ...], chain: Chain) -> float:
    total = chain.starts_C[path[0]] + chain.ends_C[path[-1]] + sum(emissions[t, tag] for t, tag in enumerate(path))
    return float(total + sum(chain.transitions_CC[pair] for pair in itertools.pairwise(path)))


def surprise(emissions: np.ndarray, path: tuple[int, ...], chain: Chain) -> float:
    """−log p of a path by all paths there are."""
    every = [score(emissions, other, chain) for other in itertools.product(range(CLASSES), repeat=len(path))]
    return float(np.logaddexp.reduce(every)) - score(emissions, path, chain)


def parts(values: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum(LENGTHS)[:-1])


def tags_that_may_be(allowed: Allowed) -> np.ndarray:
    own = np.random.default_rng(0).integers(0, CLASSES, WORDS)
    for sentence in parts(own):  # a view of it
        for place in range(len(sentence)):
            may = allowed.next_CC[sentence[place - 1]] if place else allowed.first_C
            if not may[sentence[place]]:
                sentence[place] = 2
    return own


# -- the field ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constrained", [False, True])
def test_the_loss_is_that_of_all_paths(constrained: bool) -> None:
    allowed = iob2_allowed(LABELS)
    chain = barred(chain_of(1), allowed) if constrained else chain_of(1)
    emissions, tags = drawn(0, WORDS, CLASSES), tags_that_may_be(allowed)
    expected = sum(surprise(own, tuple(path), chain) for own, path in zip(parts(emissions), parts(tags)))
    close(Sentences.of_lengths(LENGTHS).loss(emissions, tags, chain)[0], expected, terms=TERMS)


@pytest.mark.parametrize("constrained", [False, True])
def test_its_gradient_is_that_of_the_field_of_other_taggers(constrained: bool) -> None:
    allowed = iob2_allowed(LABELS)
    chain, tags = chain_of(1), tags_that_may_be(allowed)
    crf = LinearChainCrf(CLASSES, allowed if constrained else None)
    with torch.no_grad():
        for parameter, own in zip((crf.transitions, crf.starts, crf.ends), chain):
            parameter.copy_(torch.from_numpy(own))
    emissions = torch.from_numpy(drawn(0, WORDS, CLASSES)).requires_grad_()
    places = np.split(np.arange(WORDS), np.cumsum(LENGTHS)[:-1])
    rows = torch.nn.utils.rnn.pad_sequence([emissions[own] for own in places], batch_first=True)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    gold = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(own) for own in parts(tags)], batch_first=True)
    loss = crf.loss(rows, gold, mask).total
    loss.backward()
    known = barred(chain, allowed) if constrained else chain
    total, of_emissions, of_chain = Sentences.of_lengths(LENGTHS).loss(emissions.detach().numpy(), tags, known)
    close(total, loss.item(), terms=TERMS)
    expected = [emissions.grad, crf.transitions.grad, crf.starts.grad, crf.ends.grad]
    for own, other in zip((of_emissions, *of_chain), expected):
        assert other is not None
        close(own, other.numpy(), terms=TERMS, size=float(WORDS))


def blocks() -> dict[str, Block]:
    table = sp.csr_matrix(np.round(np.abs(drawn(5, 5, 6))))
    return {
        "dense": drawn(3, WORDS, 2),
        "sparse": sp.csr_matrix(np.round(drawn(4, WORDS, 4))),
        "lookup": Lookup(table, np.arange(WORDS) % 4),  # the last of the table is of no word
    }


def own_tags() -> Tags:
    allowed = iob2_allowed(LABELS)
    return Tags(tags_that_may_be(allowed), CLASSES, allowed)


def problem() -> Problem:
    every = np.arange(WORDS)
    return Problem(blocks(), Paths(own_tags(), every, np.repeat(np.arange(len(LENGTHS)), LENGTHS)), every)


def test_the_loss_of_the_head_is_the_fields_and_the_penalty() -> None:
    own, strength = problem(), 0.7
    vector = drawn(6, own.size)
    weights = own.weights(vector)
    emissions = weights.bias + sum(dense(block) @ weights.blocks[name] for name, block in blocks().items())
    chain, values = own_tags().chain(*weights.extra), own_tags().values
    expected = sum(surprise(part, tuple(path), chain) for part, path in zip(parts(emissions), parts(values)))
    squares = sum(float((part**2).sum()) for part in (*weights.blocks.values(), *weights.extra))
    close(own.loss(vector, strength)[0], expected + squares / (2 * strength), terms=TERMS, size=abs(expected) + squares)


def test_the_gradient_of_the_head_is_that_of_its_loss() -> None:
    own, step = problem(), 1e-6
    vector, along = drawn(6, own.size), drawn(7, own.size)
    slope = own.loss(vector, 0.7)[1] @ along
    before, after = (own.loss(vector + sign * step * along, 0.7)[0] for sign in (-1, 1))
    assert (after - before) / (2 * step) == pytest.approx(slope, rel=1e-6)


def test_nothing_is_left_to_gain_at_the_optimum() -> None:
    """The loss is convex: where its gradient is 0 it is least."""
    own = problem()
    weights = own.solve(0.7, close=0.0)
    loss, gradient = own.loss(weights, 0.7)
    assert np.abs(gradient).max() < 1e-5
    assert all(own.loss(weights + 0.01 * drawn(seed, own.size), 0.7)[0] > loss for seed in range(5))
    elsewhere = own.solve(0.7, begin=drawn(8, own.size), close=0.0)
    bias = CLASSES  # only what is added to all classes is free
    assert np.allclose(weights[:-bias], elsewhere[:-bias], atol=1e-4)


def test_a_lookup_is_the_matrix_that_it_stands_for() -> None:
    block = blocks()["lookup"]
    assert isinstance(block, Lookup)
    dense, weights, given = block.table.toarray()[block.ids], drawn(1, 6, 2), drawn(2, WORDS, 3)
    assert block.shape == dense.shape
    close(block @ weights, dense @ weights, terms=6)
    close(block.pulled(given), dense.T @ given, terms=WORDS)
    assert np.array_equal(block[np.array([5, 2])].toarray(), dense[[5, 2]])


def test_many_sentences_are_told_as_one_by_one() -> None:
    told = tagger(chain_of(1), LABELS)
    scores = parts(drawn(0, WORDS, CLASSES))
    begins = [True, False, True, True]
    for (best, likely), own, first in zip(told.told(scores, begins), scores, begins):
        assert best.tolist() == told.best(own, first).tolist()
        close(likely, told.probabilities(own, first)[np.arange(len(best)), best], terms=TERMS)
    assert isinstance(told, ChainTagger)


# -- the views ---------------------------------------------------------------------------------------------------------


def vectors_of(units: Units, *words: str) -> WordVectors:
    names = ["", *words]
    matrix = drawn(0, len(names), 5)
    matrix[0] = 0
    return WordVectors.learned(units, names, matrix)


def views_of(units: Units) -> list[View]:
    vectors = vectors_of(units, "the", "cat", "of", "new", "york", "我", "京")
    return [WordNGrams.learned(units), vectors, WordStates.learned(units)]


def with_states(sentences: list[list[str]]) -> Units:
    """Units with states that follow from the word alone."""
    from dataclasses import replace

    units = word_units(sentences)
    words = [words[place] for (words,), place in zip(units.words, units.places.tolist())]  # type: ignore[union-attr]
    states = np.array([[len(word), ord(word[0]) % 7, ord(word[-1]) % 5] for word in words], dtype=np.float64)
    return replace(units, states=(states, states**2))


def dense(block: Block) -> np.ndarray:
    own = block[np.arange(block.shape[0])] if isinstance(block, Lookup) else block
    return own.toarray() if sp.issparse(own) else np.asarray(own)


def test_views_come_back_from_their_files_as_they_were() -> None:
    units = with_states(SENTENCES)
    for view in views_of(units):
        again = type(view).of_tensors(view.tensors())
        blocks, expected = again.read(units), view.read(units)
        assert blocks.keys() == expected.keys()
        for name, block in expected.items():
            assert np.array_equal(dense(blocks[name]), dense(block)), (view.name, name)


def test_a_sentence_is_read_alone_as_among_others() -> None:
    """Nothing of one sentence is seen in the next; words, letters and vectors nobody knows are read too."""
    everything = [*SENTENCES, ["Zyx-9", "未", "\u2028", "qq\nqq"]]
    views = views_of(with_states(SENTENCES))
    together = read_blocks(views, with_states(everything))
    first = 0
    for sentence in everything:
        alone = read_blocks(views, with_states([sentence]))
        for name, block in alone.items():
            assert np.allclose(dense(block), dense(together[name])[first : first + len(sentence)]), (name, sentence)
        first += len(sentence)


def test_neighbours_are_those_of_the_sentence() -> None:
    units = word_units(SENTENCES * 2)  # what is near has to be there twice
    view = WordNGrams.learned(units)
    near = {name: dense(block) for name, block in view.read(units).items() if name != "own"}
    columns = view.near
    assert near["before"][1, columns["w the"]] == 1 and near["after"][0, columns["w cat"]] == 1
    assert near["before 2"][2, columns["w the"]] == 1 and near["after 2"][0, columns["w sat"]] == 1
    yes = len(SENTENCES[0])
    assert near["before"][yes, columns["<"]] == 1 == near["after"][yes, columns[">"]]
    assert near["before"][yes].sum() == 1  # the full stop before it is of another sentence


def test_a_word_without_a_vector_has_none_and_parts_count() -> None:
    units = word_units(SENTENCES)
    view = vectors_of(units, "new", "york")
    own = dense(view.read(units)["own"])
    place = SENTENCES[0].index("New-York")
    mean = view.matrix[1] + view.matrix[2]
    assert np.allclose(own[place], VECTORS * mean / np.linalg.norm(mean), atol=1e-6)
    assert not own[[number for number in range(len(own)) if number != place]].any()


def test_a_word2vec_run_without_a_word_of_the_rows() -> None:
    units = word_units(SENTENCES)
    view = vectors_of(units, "nothing", "here")
    assert not dense(view.read(units)["own"]).any()
    assert WordVectors.of_tensors(view.tensors()).read(units).keys() == view.read(units).keys()


def test_shapes() -> None:
    assert [shape_of(word) for word in ("Vladimir", "IBM", "2,000", "x-ray", "北京", "!!!")] == [
        *("Xx", "X", "d,d", "x-x", "o", "!"),
    ]
    assert "> ing" in near_terms("\tsinging") and "> ging" not in near_terms("\tsinging")


# -- the head ----------------------------------------------------------------------------------------------------------


def tagged(count: int) -> tuple[list[list[str]], np.ndarray]:
    """Sentences in which a name and all words behind it until a full stop are an entity."""
    generator = np.random.default_rng(0)
    sentences, tags = [], []
    for _ in range(count):
        words = [*("the", "old")[: generator.integers(0, 3)], "Ann", *("of", "Rome")[: generator.integers(0, 3)], "."]
        sentences.append([*words, *("we", "see")[: generator.integers(0, 3)]])
        begin, end = words.index("Ann"), len(words) - 1
        tags += [0 if place == begin else 1 if begin < place < end else 2 for place in range(len(sentences[-1]))]
    return sentences, np.array(tags)


def test_it_learns_and_what_was_left_out_is_told_by_others() -> None:
    sentences, tags = tagged(40)
    units = word_units(sentences)
    fitted = fit_chain([WordNGrams.learned(units)], units, Tags(tags, 3, iob2_allowed(LABELS)), seed=0)
    assert fitted.head.chain is not None
    told = tagger(fitted.head.chain, LABELS).told(fitted.head.scores(units), [True] * len(sentences))
    assert np.concatenate([best for best, _ in told]).tolist() == tags.tolist()
    assert sorted(row for fold in fitted.chosen.folds for row in fold.rows.tolist()) == list(range(40))
    again = fit_chain([WordNGrams.learned(units)], units, Tags(tags, 3, iob2_allowed(LABELS)), seed=0)
    assert all(np.array_equal(own, again.head.weights[name]) for name, own in fitted.head.weights.items())


def test_copies_of_a_sentence_are_never_parted() -> None:
    sentences, tags = tagged(12)
    units = word_units([*sentences, *sentences])
    groups = [*range(12), *range(12)]
    fitted = fit_chain([WordNGrams.learned(units)], units, Tags(np.tile(tags, 2), 3), seed=1, groups=groups)
    for fold in fitted.chosen.folds:
        assert {groups[row] for row in fold.rows} == {groups[row] for row in fold.rows if row < 12}
        assert len(fold.rows) == 2 * len({groups[row] for row in fold.rows})


@pytest.mark.parametrize("sentences", [[["a"], ["b"], ["a"]], [["a", "b"]]], ids=["one word each", "one sentence"])
def test_the_least_there_can_be(sentences: list[list[str]]) -> None:
    """One-word sentences; a single one, which cannot be left out; and a tag seen once."""
    units = word_units(sentences)
    tags = np.array([word == "b" for own in sentences for word in own]).astype(int)
    fitted = fit_chain([WordNGrams.learned(units)], units, Tags(tags, 2), seed=0)
    assert bool(fitted.chosen.folds) == (len(sentences) > 1)
    best = np.concatenate([own.argmax(1) for own in fitted.head.scores(units)])
    assert best.tolist() == tags.tolist()


def test_reasons_add_up_to_the_margin() -> None:
    sentences, tags = tagged(10)
    units = word_units(sentences)
    head = fit_chain([WordNGrams.learned(units)], units, Tags(tags, 3), seed=0).head
    ends = np.cumsum([len(own) for own in sentences])[:-1]
    lines = word_reasons(head, units, np.split(tags, ends))
    assert [len(own) for own in lines] == [len(own) for own in sentences]
    assert all("ngrams " in line and "neighbours " in line for own in lines for line in own)
    said = float(lines[0][0].split("ngrams ")[1].split(",")[0].replace("−", "-"))
    own = head.scores(units)[0][0] - head.bias
    assert said == pytest.approx(own[tags[0]] - np.delete(own, tags[0]).mean(), abs=0.006)
    assert isinstance(head, ViewHead)
