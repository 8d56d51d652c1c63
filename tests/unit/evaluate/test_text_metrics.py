"""Scores of written answers, on cases worked out by hand, and GPT's threshold against trying them all."""

from __future__ import annotations

import itertools
import random
import sys

import pytest
from complaints import refused
from systems_under_test import base_model

from foretext.evaluate.untaught import Pair, acceptability, answer_pairs, best_threshold, first_sentences
from foretext.tasks.scores.text_metrics import best_word_f1, bleu, bleu_metric, exact_match, rouge


def test_rouge_by_hand() -> None:
    found = rouge("The cat sat on the mat.", "the cat is on the mat")
    assert found["rouge1"] == pytest.approx(2 * 5 / 12)
    assert found["rouge2"] == pytest.approx(2 * 3 / 10)
    assert found["rougeL"] == pytest.approx(2 * 5 / 12)
    assert rouge("", "a b") == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}
    assert rouge("b a", "a b")["rougeL"] == pytest.approx(0.5)


WORDS = ["the", "a", "cat", "Cat", "sat", "on", "mat", "3.5", "U.S.", "it's", "café", "北京", ".", ","]


def test_rouge_as_its_reference_counts() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"])
    draw = random.Random(1)
    for _ in range(200):
        a, b = (" ".join(draw.choices(WORDS, k=draw.randint(0, 12))) for _ in range(2))
        expected = {name: value.fmeasure for name, value in scorer.score(b, a).items()}
        assert rouge(a, b) == pytest.approx(expected), (a, b)


def test_bleu_as_its_reference_counts() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    predicted, references = ["the cat sat on the mat", "a dog"], [("the cat is on the mat", "a cat sat"), ("a dog",)]
    expected = sacrebleu.corpus_bleu(predicted, [["the cat is on the mat", "a dog"], ["a cat sat", None]])
    value, signature = bleu(predicted, references)
    assert value == pytest.approx(expected.score) and "tok:13a" in signature and value > 5
    assert "tok:zh" in bleu(["今天天气很好"], [("今天天气好",)], "zh")[1]


def test_answers_as_squad_compares_them() -> None:
    assert exact_match("The Eiffel Tower!", ["eiffel tower"]) == 1.0
    assert exact_match("Eiffel", ["eiffel tower"]) == 0.0
    assert best_word_f1("Eiffel", ["eiffel tower"]) == pytest.approx(2 / 3)
    assert best_word_f1("北京市", ["北京"]) == pytest.approx(0.8)
    assert best_word_f1("", [""]) == 1.0 and best_word_f1("", ["x"]) == 0.0
    assert best_word_f1("b", ["a x", "b"]) == 1.0


def test_written_answers_show_their_progress() -> None:
    pairs, told = [Pair(f"q{number}", ("a",)) for number in range(20)], []
    (found,) = answer_pairs(base_model(), "answer", pairs, [], 0, [0], progress=lambda *done: told.append(done))
    assert told == [(number, 20) for number in range(1, 21)] and len(found.texts) == 20


def test_the_first_sentences() -> None:
    assert first_sentences("One. Two! Three? Four.", 3) == "One. Two! Three?"
    assert first_sentences("no end", 3) == "no end"
    assert first_sentences("It cost 3.5 million. B. C. D.", 2) == "It cost 3.5 million. B."
    assert first_sentences("One. two and no end", 3) == "One. two and no end"
    assert first_sentences("一。二！三。四", 3) == "一。二！三。"


def test_the_threshold_is_the_best_there_is() -> None:
    from sklearn.metrics import matthews_corrcoef

    draw = random.Random(3)
    for _ in range(5):
        truth = [draw.random() < 0.6 for _ in range(30)]
        scores = [draw.gauss(0.7 if right else 0.0, 1.0) for right in truth]
        found = best_threshold(scores, truth)
        ordered = sorted(scores)
        every = [(a + b) / 2 for a, b in itertools.pairwise(ordered)]
        best = max(matthews_corrcoef(truth, [score > cut for score in scores]) for cut in every)
        assert matthews_corrcoef(truth, [score > found for score in scores]) == pytest.approx(best)


def test_equal_scores_are_never_parted() -> None:
    threshold = best_threshold([0.0, 1.0, 1.0, 1.0, 2.0], [False, False, True, False, True])
    assert threshold in (0.5, 1.5)
    with refused("threshold", "'1'"):
        acceptability([0.1, 0.9], ["0", "1"], "1", ([0.5], ["1"]))


def test_without_other_rows_there_is_no_threshold() -> None:
    found = acceptability([0.1, 0.9, 0.5], ["0", "1", "0"], "1", None)
    assert (found.area, found.matthews, found.threshold) == (1.0, None, None)
    known = acceptability([0.1, 0.9, 0.5], ["0", "1", "0"], "1", ([0.0, 1.0], ["0", "1"]))
    assert known.threshold == 0.5 and known.matthews == pytest.approx(1.0)


def test_bleu_of_chinese_is_sacrebleus() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    written, wanted = ["我爱北京的天安门。", "他在看书"], ["我爱北京天安门。", "他正在看书"]
    expected = sacrebleu.corpus_bleu(written, [wanted], tokenize="zh").score
    for language in ("zh", "zh-CN", "zh_TW"):
        score, signature = bleu(written, [[line] for line in wanted], language)
        assert score == pytest.approx(expected) and "tok:zh" in signature
    assert bleu(written, [[line] for line in wanted])[0] < expected


def test_what_bleu_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sacrebleu.metrics", None)
        with refused("sacrebleu", "pip install 'foretext[translation]'"):
            bleu_metric()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "MeCab", None)
        patch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
        pytest.importorskip("sacrebleu")
        with refused("--language ja", "pip install 'sacrebleu[ja]'"):
            bleu_metric("ja")
