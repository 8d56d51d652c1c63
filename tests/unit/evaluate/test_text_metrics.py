"""Scores of written answers, on cases worked out by hand, and GPT's threshold against trying them all."""

from __future__ import annotations

import itertools
import random

import pytest

from foretext.evaluate.heuristics import acceptability, best_threshold
from foretext.evaluate.text_metrics import exact_match, rouge, word_f1
from foretext.evaluate.written import first_sentences


def test_rouge_by_hand() -> None:
    found = rouge("The cat sat on the mat.", "the cat is on the mat")
    assert found["rouge1"] == pytest.approx(2 * 5 / 12)
    assert found["rouge2"] == pytest.approx(2 * 3 / 10)
    assert found["rougeL"] == pytest.approx(2 * 5 / 12)
    assert rouge("", "a b") == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}
    assert rouge("b a", "a b")["rougeL"] == pytest.approx(0.5)


def test_answers_as_squad_compares_them() -> None:
    assert exact_match("The Eiffel Tower!", ["eiffel tower"]) == 1.0
    assert exact_match("Eiffel", ["eiffel tower"]) == 0.0
    assert word_f1("Eiffel", ["eiffel tower"]) == pytest.approx(2 / 3)
    assert word_f1("北京市", ["北京"]) == pytest.approx(0.8)
    assert word_f1("", [""]) == 1.0 and word_f1("", ["x"]) == 0.0
    assert word_f1("b", ["a x", "b"]) == 1.0


def test_the_first_sentences() -> None:
    assert first_sentences("One. Two! Three? Four.", 3) == "One. Two! Three?"
    assert first_sentences("no end", 3) == "no end"


def test_the_threshold_is_the_best_there_is() -> None:
    from sklearn.metrics import matthews_corrcoef

    draw = random.Random(3)
    for _ in range(20):
        truth = [draw.random() < 0.6 for _ in range(40)]
        scores = [draw.gauss(0.7 if right else 0.0, 1.0) for right in truth]
        found = best_threshold(scores, truth)
        ordered = sorted(scores)
        every = [(a + b) / 2 for a, b in itertools.pairwise(ordered)]
        best = max(matthews_corrcoef(truth, [score > cut for score in scores]) for cut in every)
        assert matthews_corrcoef(truth, [score > found for score in scores]) == pytest.approx(best)


def test_without_other_rows_there_is_no_threshold() -> None:
    found = acceptability([0.1, 0.9, 0.5], ["0", "1", "0"], "1", None)
    assert (found.area, found.matthews, found.threshold) == (1.0, None, None)
    known = acceptability([0.1, 0.9, 0.5], ["0", "1", "0"], "1", ([0.0, 1.0], ["0", "1"]))
    assert known.threshold == 0.5 and known.matthews == pytest.approx(1.0)
