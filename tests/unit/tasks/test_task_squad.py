"""Questions and answers from SQuAD's JSON, and their scores: by hand, and against second readings of the scripts."""

import gzip
import json
import os
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from complaints import names, refused
from hypothesis import given
from hypothesis import strategies as st

from foretext.tasks.files.squad import Answer, Question, read_squad
from foretext.tasks.scores.text_metrics import (
    answer_score,
    best_threshold,
    chinese_match,
    is_chinese,
    normalised,
    score_answers,
    word_match,
)

PASSAGE = "Tom ran to the river. Then Tom sat down."


def record(id: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "question": f"Who is {id}?",
        "answers": [{"text": text, "answer_start": start} for text, start in answers],
    } | more


def written(folder: Path, *records: dict[str, Any], name: str = "a.json") -> Path:
    data = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": PASSAGE, "qas": list(records)}]}]}
    path = folder / name
    text = json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def asked(*answers: str, question: str = "Who?") -> Question:
    """With no answer it has none."""
    golds = tuple(Answer(text, 0) for text in answers)
    return Question("q", question, " ".join(answers) or "nothing", golds, not answers, "here")


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_squad_1(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, record("q1", ("Tom", 0), ("Tom", 27)), record("q2", ("the river", 11)), name=name)
    notes: list[str] = []
    first, second = read_squad(path, notes=notes)
    assert first == Question(
        "q1", "Who is q1?", PASSAGE, (Answer("Tom", 0), Answer("Tom", 27)), False, f"{path} question q1"
    )
    assert second.answers == (Answer("the river", 11),) and notes == []


def test_squad_2(tmp_path: Path) -> None:
    plausible = [{"text": "Tom", "answer_start": 0}]
    path = written(
        tmp_path,
        record("q1", ("Tom", 0), is_impossible=False),
        record("q2", is_impossible=True, plausible_answers=plausible),
    )
    first, second = read_squad(path)
    assert (first.impossible, second.impossible) == (False, True)
    assert second.answers == ()


def test_an_answer_elsewhere_is_looked_for(tmp_path: Path) -> None:
    notes: list[str] = []
    path = written(tmp_path, record("q1", ("Tom", 24)), record("q2", ("Tom", 2)), record("q3", ("sat down", -1)))
    starts = [question.answers[0].start for question in read_squad(path, notes=notes)]
    assert starts == [27, 0, PASSAGE.index("sat down")]
    assert len(notes) == 1
    names(notes[0], "3 answers", "answer_start")


def test_questions_without_answers_can_be_predicted_on(tmp_path: Path) -> None:
    bad = record("q2", ("Ann", 0), is_impossible=True)  # answers are left aside, whatever they are
    path = written(tmp_path, record("q1"), {"id": 7, "question": "Who?"}, bad, record("q3", ("Tom", 0)))
    assert [(q.id, q.answers, q.impossible) for q in read_squad(path, need_answers=False)] == [
        ("q1", (), False),
        ("7", (), False),
        ("q2", (), False),
        ("q3", (), False),
    ]


@pytest.mark.skipif("FORETEXT_DATA" not in os.environ, reason="FORETEXT_DATA (a folder of real data) is not set")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_published_questions(language: str) -> None:
    notes: list[str] = []
    questions = read_squad(Path(os.environ["FORETEXT_DATA"]) / "xquad" / f"xquad.{language}.json", notes=notes)
    assert len(questions) == 1_190 and len({question.passage for question in questions}) == 240
    assert all(q.passage[a.start : a.start + len(a.text)] == a.text for q in questions for a in q.answers)
    assert {is_chinese(question.passage) for question in questions} == {language == "zh"}
    scores = score_answers(questions, [question.answers[0].text for question in questions])
    assert scores.values == {"f1": 1.0, "exact_match": 1.0}


# -- SQuAD's scores --------------------------------------------------------------------------------------------------


def test_normalised_by_hand() -> None:
    assert normalised("The  Cat, and an (old) dog!") == "cat and old dog"
    assert normalised("U.S.-based\tA-team") == "usbased ateam"  # punctuation goes before articles are looked for
    assert normalised("theatre another") == "theatre another"
    assert normalised("Café «the»") == "café « »"  # only ASCII punctuation goes
    assert normalised("The a an") == ""


# gold answers, predicted, (exact match, F1) by SQuAD 1.1, the same by 2.0
BY_HAND: dict[str, tuple[list[str], str, tuple[float, float], tuple[float, float]]] = {
    "exact": (["The Cat."], "cat", (1, 1), (1, 1)),
    "one more": (["the cat sat"], "cat sat down", (0, 0.8), (0, 0.8)),
    "words count as often as they occur": (["x x y"], "x y y", (0, 2 / 3), (0, 2 / 3)),
    "order does not count for F1": (["x y"], "y x", (0, 1), (0, 1)),
    "nothing in common": (["x"], "y", (0, 0), (0, 0)),
    "the best of each": (["x y z", "x"], "x y", (0, 0.8), (0, 0.8)),
    "answered by nothing": (["x"], "", (0, 0), (0, 0)),
    "gold of which nothing remains": (["the"], "a", (1, 0), (1, 1)),
    "such gold beside another": (["the", "x"], "", (1, 0), (0, 0)),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_answers_by_hand(case: str) -> None:
    gold, predicted, first, second = BY_HAND[case]
    assert answer_score(asked(*gold), predicted, False) == pytest.approx(first)
    assert answer_score(asked(*gold), predicted, True) == pytest.approx(second)


def test_no_answer() -> None:
    assert answer_score(asked(), "", True) == (1, 1)
    assert answer_score(asked(), "the", True) == (1, 1)  # of which nothing remains
    assert answer_score(asked(), "x", True) == (0, 0)
    with refused("here", "answers"):
        answer_score(asked(), "", False)


def normalize_answer(s: str) -> str:
    """As it stands in both of SQuAD's scripts."""

    def remove_articles(text: str) -> str:
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text: str) -> str:
        return " ".join(text.split())

    def remove_punc(text: str) -> str:
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def literal_match(gold: str, predicted: str, version: int) -> tuple[float, float]:
    """The scripts' exact_match_score and f1_score, or compute_exact and compute_f1."""
    exact = float(normalize_answer(gold) == normalize_answer(predicted))
    gold_toks, pred_toks = normalize_answer(gold).split(), normalize_answer(predicted).split()
    if version == 2 and (len(gold_toks) == 0 or len(pred_toks) == 0):
        return exact, float(gold_toks == pred_toks)
    num_same = sum((Counter(gold_toks) & Counter(pred_toks)).values())
    if num_same == 0:
        return exact, 0.0
    precision, recall = 1.0 * num_same / len(pred_toks), 1.0 * num_same / len(gold_toks)
    return exact, (2 * precision * recall) / (precision + recall)


parts = [
    "the",
    "a",
    "An",
    "cat",
    "Cat,",
    "U.S.",
    "(dog)",
    "!",
    "x",
    "é",
    "the-a",
    "A«an»",
    "\u00a0",
    "İ",
    "a_the",
    "’a’",
]
texts = st.lists(st.sampled_from(parts), max_size=6).flatmap(
    lambda found: st.sampled_from([" ", "", "\n", "-"]).map(lambda between: between.join(found))
)


@given(texts, texts, st.sampled_from([1, 2]))
def test_words_are_matched_as_in_the_scripts(gold: str, predicted: str, version: int) -> None:
    assert word_match(gold, predicted, version == 2) == pytest.approx(literal_match(gold, predicted, version))


def test_scores_of_a_file() -> None:
    questions = [asked("the cat sat"), asked("x"), asked()]
    scores = score_answers(questions[:2], ["cat sat down", "x"])
    assert scores.main == "f1" and scores.rows == 2
    assert scores.values == pytest.approx({"f1": 0.9, "exact_match": 0.5})
    scores = score_answers(questions, ["cat sat down", "x", "y"], main="exact_match")
    assert scores.main == "exact_match"
    assert scores.values == pytest.approx(
        {
            "f1": 0.6,
            "exact_match": 1 / 3,
            "has_answer_f1": 0.9,
            "has_answer_exact_match": 0.5,
            "no_answer_f1": 0.0,
            "no_answer_exact_match": 0.0,
        }
    )
    assert "no_answer_f1" not in score_answers(questions[:2], ["x", "x"], unanswerable=True).values
    assert score_answers(questions[:1], [""]).warnings
    with refused("questions", "score"):
        score_answers([], [])


# -- Chinese ---------------------------------------------------------------------------------------------------------


def test_what_is_chinese() -> None:
    assert is_chinese("黑豹队的防守丢了多少分？") and is_chinese("NFL 是什么时候成立的？")
    assert not is_chinese("Who is 王?") and not is_chinese("How many?") and not is_chinese("24?")


# gold, predicted, exact match, F1
CHINESE = {
    "the same": ("北京大学", "北京大学", 1, 1),
    "half of it": ("北京大学", "北京", 0, 2 / 3),
    "signs do not count": ("《北京》。", "北京", 1, 1),
    "a space does, for the exact match": ("24次", "24 次", 0, 1),
    "only the longest run counts": ("一二三四", "一二五三四", 0, 4 / 9),
    "words between": ("在 NFL 的 3.5 分", "nfl 的 3.5 分", 0, 8 / 9),
    "a number and its sign are one": ("63％", "约 63％", 0, 2 / 3),
    "but not this one": ("63%", "约 63%", 0, 4 / 5),
    "nothing in common": ("北京", "上海", 0, 0),
}


@pytest.mark.parametrize("case", CHINESE)
def test_chinese_by_hand(case: str) -> None:
    gold, predicted, exact, f1 = CHINESE[case]
    assert chinese_match(gold, predicted, False) == pytest.approx((exact, f1))
    assert answer_score(asked(gold, question="谁？"), predicted, False) == pytest.approx((exact, f1))


def test_chinese_without_an_answer() -> None:
    assert answer_score(asked(question="谁？"), "", True) == (1, 1)
    assert answer_score(asked(question="谁？"), "王", True) == (0, 0)
    assert chinese_match("", "", False) == (1, 0)  # CMRC's script knows no such question


@given(st.text("一二三四，。", max_size=8), st.text("一二三四，。", max_size=8))
def test_the_longest_run_is_found(gold: str, predicted: str) -> None:
    left, right = (text.replace("，", "").replace("。", "") for text in (gold, predicted))
    longest = max(
        (j - i for i in range(len(left)) for j in range(i + 1, len(left) + 1) if left[i:j] in right), default=0
    )
    f1 = 2 * longest / (len(left) + len(right)) if longest else 0.0
    assert chinese_match(gold, predicted, False) == pytest.approx((float(left == right), f1))


# -- the threshold ---------------------------------------------------------------------------------------------------


def f1_at(threshold: float, questions: list[Question], predicted: list[str], margins: list[float]) -> float:
    kept = ["" if margin > threshold else text for text, margin in zip(predicted, margins)]
    return score_answers(questions, kept, unanswerable=True).values["f1"]


def test_the_threshold_by_hand() -> None:
    questions = [asked("x"), asked(), asked("y"), asked()]
    predicted, margins = ["x", "x", "wrong", "x"], [-2.0, 1.0, 0.5, 3.0]
    assert best_threshold(questions, predicted, margins) == -2.0
    assert best_threshold([asked()], ["x"], [-5.0]) < -5.0  # nothing should be answered
    with refused("questions", "threshold"):
        best_threshold([], [], [])


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.integers(1, 3),
)
def test_no_threshold_is_better(data: list[tuple[bool, bool]], draw: Any, alike: int) -> None:
    """`alike`: how many questions have the same margin."""
    questions = [asked("x y") if answerable else asked() for answerable, _ in data]
    predicted = ["x" if good else "wrong" for _, good in data]
    margins = [float(number // alike) for number in range(len(data))]
    draw.shuffle(margins)
    chosen = f1_at(best_threshold(questions, predicted, margins), questions, predicted, margins)
    for other in (-1.0, *margins):
        assert chosen >= f1_at(other, questions, predicted, margins) - 1e-12
