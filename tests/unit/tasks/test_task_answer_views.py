"""Views of passages and the head that chooses spans, against all spans written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tolerance import close, doubles, terms_of

from foretext.runs.views import views_of as views_of_state
from foretext.runs.views import views_state
from foretext.tasks.views.answers.answer_views import (
    AnswerNGrams,
    AnswerVectors,
    likeness,
    passage_words,
    question_units,
    sentence_ids,
)
from foretext.tasks.views.answers.viewed_questions import SpanReader, Spans, expected_f1, fit_spans, longest_of
from foretext.tasks.views.base import Block, Lengths, Lookup, View, ViewHead, read_blocks
from foretext.tasks.views.explain import answer_reasons
from foretext.tasks.views.field import Problem

WORDS = (3, 1, 5)
LONGEST = 3
ANSWERS = ((0, 1), None, (2, 4))
TOTAL = sum(WORDS)
TERMS = terms_of(LONGEST * max(WORDS), TOTAL)
ASKED = [
    ("Who sees the sea?", "Ann sees the sea. In 1999 Bob invaded Rome."),
    ("When was Rome invaded?", "Ann sees the sea. In 1999 Bob invaded Rome."),
    ("谁在北京？", "王在北京。他有3本书。"),
    ("Who?", "<br />"),
]


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with doubles():
        yield


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def written_out(scores: np.ndarray, lengths: np.ndarray) -> dict[tuple[int, int], float]:
    """The score of each span of one passage."""
    return {
        (i, j): float(scores[i, 0] + scores[j, 1] + scores[i : j + 1, 2].sum() + lengths[j - i])
        for i, j in itertools.product(range(len(scores)), repeat=2)
        if 0 <= j - i < len(lengths)
    }


def expected_loss(scores: np.ndarray, lengths: np.ndarray, nothing: float, unanswerable: bool) -> float:
    total = 0.0
    for own, answer in zip(np.split(scores, np.cumsum(WORDS)[:-1]), ANSWERS):
        spans = written_out(own, lengths)
        none = [nothing + math.log(len(spans))] if unanswerable else []
        if answer is None and not unanswerable:
            continue
        gold = none[0] if answer is None else spans[answer]
        total += float(np.logaddexp.reduce([*spans.values(), *none])) - gold
    return total


def structure(unanswerable: bool) -> Spans:
    return Spans(np.array(WORDS), ANSWERS, LONGEST, unanswerable)


@pytest.mark.parametrize("unanswerable", [False, True])
def test_the_loss_is_that_of_all_spans(unanswerable: bool) -> None:
    scores, lengths, nothing = drawn(0, TOTAL, 3), drawn(1, LONGEST), np.array([0.3])
    loss = structure(unanswerable).loss(scores, (lengths, nothing))[0]
    close(loss, expected_loss(scores, lengths, 0.3, unanswerable), terms=TERMS)


@pytest.mark.parametrize("unanswerable", [False, True])
def test_its_gradient_is_that_of_autograd(unanswerable: bool) -> None:
    values = [drawn(0, TOTAL, 3), drawn(1, LONGEST), np.array([0.3])]
    _, slope, extra = structure(unanswerable).loss(values[0], values[1:])
    scores, lengths, nothing = (torch.tensor(own, requires_grad=True) for own in values)
    loss = torch.zeros(())
    for first, count, answer in zip(np.cumsum(WORDS) - WORDS, WORDS, ANSWERS):
        own = scores[first : first + count]
        spans = {
            (i, j): own[i, 0] + own[j, 1] + own[i : j + 1, 2].sum() + lengths[j - i]
            for i in range(count)
            for j in range(i, min(count, i + LONGEST))
        }
        none = nothing[0] + math.log(len(spans))
        if answer is not None or unanswerable:
            every = torch.stack([*spans.values(), *([none] if unanswerable else [])])
            loss = loss + every.logsumexp(0) - (none if answer is None else spans[answer])
    loss.backward()  # type: ignore[no-untyped-call]
    for gradient, expected in zip((slope, *extra), (scores, lengths, nothing)):
        wanted = np.zeros(expected.shape) if expected.grad is None else expected.grad.numpy()
        close(gradient, wanted, terms=TERMS, size=float(TOTAL))


def test_an_answer_that_is_too_long_teaches_nothing() -> None:
    scores, extra = drawn(0, 4, 3), (drawn(1, 2), np.array([0.0]))
    loss, slope, _ = Spans(np.array([4]), [(0, 3)], 2, False).loss(scores, extra)
    assert loss == 0 and not slope.any()
    assert longest_of([1] * 99 + [30]) == 1 and longest_of([1, 99]) == 40 and longest_of([]) == 1


# -- the answer --------------------------------------------------------------------------------------------------------

PASSAGE = "one two three four"
PLACES = passage_words(PASSAGE)[1]


def reader(nothing: float = -9.0, threshold: float = 0.0, **changes: Any) -> SpanReader:
    own = (np.zeros(LONGEST), np.array([nothing]), np.array([threshold]))
    return SpanReader(Lengths(*own), **changes)


def test_the_likeliest_span_and_its_place() -> None:
    scores = drawn(3, 4, 3)
    (first, last), best = max(written_out(scores, np.zeros(LONGEST)).items(), key=lambda own: own[1])
    answer = reader(exact=True).answered(PASSAGE, PLACES, scores)
    assert answer.text == PASSAGE[PLACES[first][0] : PLACES[last][1]]
    assert answer.candidates[0].text == answer.text == PASSAGE[answer.candidates[0].start : answer.candidates[0].end]
    assert answer.candidates[0].score == pytest.approx(best)
    assert sum(one.probability for one in answer.candidates) == pytest.approx(1)


def test_what_likely_spans_share_is_the_better_answer() -> None:
    """`one` is likeliest by itself, but where it is wrong it shares nothing with what is right."""
    likely = {(0, 1): 0.4, (1, 3): 0.3, (2, 3): 0.3}
    firsts, ends = (np.array(own) for own in zip(*likely))
    f1s = expected_f1(firsts, ends, np.array([*likely.values()]))
    words = [set(range(*span)) for span in likely]
    expected = [
        sum(part * 2 * len(own & other) / (len(own) + len(other)) for other, part in zip(words, likely.values()))
        for own in words
    ]
    close(f1s, np.array(expected), terms=len(likely))
    assert int(f1s.argmax()) != 0
    scores = np.full((4, 3), -9.0)
    scores[:, 2] = 0  # whatever follows the first word
    scores[0, 0], scores[1, 0], scores[1:3, 1], scores[0, 1] = 0.1, 0.0, 0.0, 0.15
    assert reader(exact=True).answered(PASSAGE, PLACES, scores).text == "one"
    assert reader().answered(PASSAGE, PLACES, scores).text == "one two"


def test_no_answer_needs_the_margin() -> None:
    scores = drawn(3, 4, 3)
    best = max(written_out(scores, np.zeros(LONGEST)).values())
    margin = reader().answered(PASSAGE, PLACES, scores).margin
    assert margin == pytest.approx(-9 + math.log(9) - best)
    asked = {"unanswerable": True, "exact": True}
    assert reader(-9, margin + 0.1, **asked).answered(PASSAGE, PLACES, scores).text
    silent = reader(-9, margin - 0.1, **asked).answered(PASSAGE, PLACES, scores)
    assert silent.text == "" and "" in {one.text for one in silent.candidates}


# -- the views ---------------------------------------------------------------------------------------------------------


def views_of(asked: list[tuple[str, str]]) -> list[View]:
    units = question_units(asked)
    names = ["", "ann", "bob", "rome", "sea", "王", "zebra"]
    matrix = drawn(0, len(names), 5)
    matrix[0] = 0
    return [AnswerNGrams.learned(units), AnswerVectors.learned(units, names, matrix)]


def dense(block: Block) -> np.ndarray:
    own = block[np.arange(block.shape[0])] if isinstance(block, Lookup) else block
    return own.toarray() if sp.issparse(own) else np.asarray(own)


def test_views_come_back_from_their_files_as_they_were() -> None:
    units = question_units(ASKED)
    for view in views_of(ASKED * 3):
        blocks, expected = type(view).of_tensors(view.tensors()).read(units), view.read(units)
        assert blocks.keys() == expected.keys()
        for name, block in expected.items():
            assert np.array_equal(dense(blocks[name]), dense(block)), (view.name, name)


def test_a_question_is_read_alone_as_among_others() -> None:
    everything = [*ASKED, ("ɣ未 ?", "Zyx-9 未\u2028 qq")]
    views = views_of(ASKED * 3)
    together = read_blocks(views, question_units(everything))
    first = 0
    for one in everything:
        alone = read_blocks(views, question_units([one]))
        count = len(passage_words(one[1])[0])
        for name, block in alone.items():
            assert np.allclose(dense(block), dense(together[name])[first : first + count]), (name, one)
        first += count


def test_matches_are_near_and_of_the_sentence() -> None:
    (view, _), (question, passage) = views_of(ASKED * 3), ASKED[1]
    words = passage_words(passage)[0]
    assert isinstance(view, AnswerNGrams)
    matches = view.matches(words, ["when", "was", "rome", "invaded"])
    year, ann = words.index("1999"), words.index("Ann")
    behind = 2  # how near what matches stands behind, at the shortest reach
    assert matches[year, behind] > matches[ann, behind] and matches[words.index("Rome"), 0] > 0 == matches[year, 0]
    cover = 7  # how much of the question the sentence has
    assert matches[year, cover] > matches[ann, cover]
    assert question and likeness("invaded", "invade") == pytest.approx(6 / 7) and likeness("in", "inn") == 0


def test_sentences_end_at_stops_but_not_in_abbreviations() -> None:
    assert sentence_ids(["he", "is", "dr", ".", "no", ".", "so", "late", ".", "yes", "。", "x"]).tolist() == [
        *(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2),
    ]


def test_passages_without_words() -> None:
    assert passage_words("<br />") == ([""], [(0, 0)])
    answer = reader().answered("<br />", [(0, 0)], np.zeros((1, 3)))
    assert answer.text == "" and answer.candidates == ()


# -- the head ----------------------------------------------------------------------------------------------------------


def questions(count: int) -> tuple[list[tuple[str, str]], list[tuple[int, int] | None]]:
    """Who is asked for a name, when for a year."""
    generator = np.random.default_rng(0)
    asked, answers = [], []
    for number in range(count):
        name, year = ("Ann", "Bob Ray", "Cid")[generator.integers(3)], str(generator.integers(1000, 2000))
        passage = f"{'The old ' * int(generator.integers(3))}{name} saw it in {year} again ."
        asked.append((("who saw it", "when was it")[number % 2], passage))
        words, wanted = passage_words(passage)[0], (name, year)[number % 2].split()
        first = words.index(wanted[0])
        answers.append((first, first + len(wanted) - 1))
    return asked, answers


def test_it_learns_who_and_when() -> None:
    asked, answers = questions(60)
    units = question_units(asked)
    fitted = fit_spans([AnswerNGrams.learned(units)], units, answers, seed=0)
    assert isinstance(fitted.head, ViewHead) and fitted.head.lengths is not None
    new, wanted = questions(80)
    own = SpanReader(fitted.head.lengths)
    for (_, passage), scores, answer in zip(new[60:], fitted.head.scores(question_units(new[60:])), wanted[60:]):
        places = passage_words(passage)[1]
        assert answer is not None
        assert own.answered(passage, places, scores).text == passage[places[answer[0]][0] : places[answer[1]][1]]
    assert sorted(row for fold in fitted.chosen.folds for row in fold.rows.tolist()) == list(range(60))
    assert sum(fitted.head.shares.values()) == pytest.approx(1)


def test_questions_about_a_passage_are_never_parted() -> None:
    asked, answers = questions(12)
    units = question_units([*asked, *asked])
    groups = [*range(12), *range(12)]
    fitted = fit_spans([AnswerNGrams.learned(units)], units, [*answers, *answers], seed=1, groups=groups)
    for fold in fitted.chosen.folds:
        assert len(fold.rows) == 2 * len({groups[row] for row in fold.rows.tolist()})


def test_nothing_is_left_to_gain_at_the_optimum() -> None:
    blocks: dict[str, Block] = {"dense": drawn(3, TOTAL, 2), "sparse": sp.csr_matrix(np.round(drawn(4, TOTAL, 4)))}
    own = Problem(blocks, structure(True), np.arange(TOTAL))
    weights = own.solve(0.7, close=0.0)
    loss, gradient = own.loss(weights, 0.7)
    assert np.abs(gradient).max() < 1e-5
    assert all(own.loss(weights + 0.01 * drawn(seed, own.size), 0.7)[0] > loss for seed in range(5))


def test_the_least_there_can_be() -> None:
    """One question, which cannot be left out; none with an answer of the length that is looked for."""
    units = question_units(ASKED[:1])
    fitted = fit_spans(views_of(ASKED[:1]), units, [(0, 0)], seed=0)
    assert not fitted.chosen.folds and fitted.head.lengths is not None
    answer = SpanReader(fitted.head.lengths).answered(
        ASKED[0][1], passage_words(ASKED[0][1])[1], fitted.head.scores(units)[0]
    )
    assert answer.text == "Ann"


def test_a_head_comes_back_whole_and_reads_alone_as_in_a_batch() -> None:
    asked, answers = questions(20)
    units = question_units(asked)
    names = ["ann", "bob", "saw"]
    views = [AnswerNGrams.learned(units), AnswerVectors.learned(units, names, drawn(0, 3, 5))]
    head = fit_spans(views, units, answers, seed=0).head
    again = views_of_state(**views_state(head), kind="span", where="here")
    assert again.lengths is not None and head.lengths is not None
    for own, other in zip(head.lengths, again.lengths):
        assert np.array_equal(own, other)
    together = head.scores(units)
    for own, other in zip(together, again.scores(units)):
        assert np.array_equal(own, other)
    for own, one in zip(together, asked):
        assert np.allclose(own, head.scores(question_units([one]))[0], atol=1e-5)


def test_reasons_are_what_is_more_than_of_the_next_candidate() -> None:
    asked, answers = questions(20)
    units = question_units(asked)
    head = fit_spans([AnswerNGrams.learned(units)], units, answers, seed=0).head
    assert head.lengths is not None
    places = [passage_words(passage)[1] for _, passage in asked]
    told = SpanReader(head.lengths, exact=True)
    said = [told.answered(one[1], *own) for one, *own in zip(asked, places, head.scores(units))]
    for answer, line in zip(said, answer_reasons(head, units, said, places)):
        added = [float(part.rpartition(" ")[2].replace("−", "-")) for part in line.split(", ")]
        first, second = answer.candidates[:2]
        assert sum(added) == pytest.approx(first.score - second.score, abs=0.011)
