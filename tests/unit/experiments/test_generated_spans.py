"""Generated questions: the answer follows from the question, by a rule that knows nothing of how they were made."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from complaints import refused
from tolerance import close, doubles

from experiments.generated_spans import (
    GOAL_WORDS,
    LONG,
    PLACES,
    SHORT,
    SHORTEST,
    TEST,
    Fact,
    by_third,
    facts_of,
    generated_questions,
    half_read,
    shortened,
    table_row,
    texts_of,
    training_questions,
    unseen_questions,
    windows_of,
    write_squad,
)
from foretext.api import new_model
from foretext.runs.report import Reporter
from foretext.tasks.files.squad import Answer, Question, read_squad


def answers_in(question: Question) -> list[str]:
    """What the passage says, read literally."""
    asked = re.fullmatch(r"Where does (\w+) keep the (.+)\?", question.question)
    assert asked is not None
    return re.findall(rf"\b{asked[1]} keeps the {asked[2]} in ([^.]+)\.", question.passage)


@pytest.mark.parametrize("impossible", [0.0, 0.4])
def test_the_answer_follows_from_the_questions_words(impossible: float) -> None:
    questions = generated_questions(20, seed=1, words=200, impossible=impossible)
    assert len(questions) == 80 and len({one.id for one in questions}) == 80
    for one in questions:
        assert answers_in(one) == [answer.text for answer in one.answers]
        assert one.impossible == (not one.answers)
        for answer in one.answers:
            assert one.passage[answer.start : answer.start + len(answer.text)] == answer.text
        assert len(one.passage.split()) >= 200
    share = sum(one.impossible for one in questions) / len(questions)
    assert abs(share - impossible) <= 0.2


@pytest.mark.parametrize("words", [SHORT, *TEST])
def test_neither_person_nor_thing_nor_place_alone_tells(words: int) -> None:
    """In most questions each of the three also stands in a sentence that is not asked about."""
    questions = generated_questions(20, seed=2, words=words)
    shared = {"person": 0, "thing": 0, "place": 0}
    for one in questions:
        asked = re.fullmatch(r"Where does (\w+) keep the (.+)\?", one.question)
        assert asked is not None
        shared["person"] += len(re.findall(rf"\b{asked[1]} keeps", one.passage)) > 1
        shared["thing"] += len(re.findall(rf" the {asked[2]} in ", one.passage)) > 1
        shared["place"] += one.passage.count(f" in {one.answers[0].text}.") > 1
    assert min(shared["person"], shared["thing"]) > 60 and shared["place"] > 30, shared
    assert max(half_read(questions)) < 0.6


def test_the_shortest_passage_has_questions_without_an_answer() -> None:
    for one in generated_questions(30, seed=4, words=8, asked=1, impossible=1.0):
        assert one.impossible and not answers_in(one)


def test_who_reads_half_of_the_question_takes_the_first_that_fits() -> None:
    passage = (
        "Anna keeps the red hat in the hall. Leo keeps the blue key in a drawer. Anna keeps the blue key in a tent."
    )
    answer = Answer("a tent", passage.index("a tent"))
    one = Question("1", "Where does Anna keep the blue key?", passage, (answer,), False, "q")
    assert half_read([one]) == [0.0, 0.0]
    other = replace(one, question="Where does Leo keep the blue key?", answers=(Answer("a drawer", 60),))
    assert half_read([one, other]) == [0.5, 0.5]


def test_a_passage_has_no_pair_twice_however_long() -> None:
    for words in (8, 40, 2000):
        facts = facts_of(random.Random(0), words)
        assert len({(fact.person, fact.thing) for fact in facts}) == len(facts)
        assert sum(len(fact.sentence.split()) for fact in facts) >= words
    assert min(len(Fact("Anna", "blue key", place).sentence.split()) for place in PLACES) == SHORTEST


def test_the_same_seed_gives_the_same_and_another_other_passages() -> None:
    first, again, other = (generated_questions(5, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert not {one.passage for one in first} & {one.passage for one in other}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    questions = generated_questions(4, seed=3, words=60, impossible=0.3)
    write_squad(questions, tmp_path / "a.json")
    read = read_squad(tmp_path / "a.json")
    assert [(one.id, one.question, one.passage, one.answers, one.impossible) for one in read] == [
        (one.id, one.question, one.passage, one.answers, one.impossible) for one in questions
    ]
    assert len(texts_of(questions)) == 4 + len(questions)


def test_what_is_asked_was_not_trained_on() -> None:
    trained = training_questions(40)
    lengths = [len(one.passage.split()) for one in trained]
    assert len(trained) == 160 and len({one.id for one in trained}) == 160
    assert sum(SHORT <= length < LONG for length in lengths) == sum(length >= LONG for length in lengths) == 80
    for words, passages in TEST.items():
        asked = unseen_questions(words, passages)
        assert len(asked) == 4 * passages and min(len(one.passage.split()) for one in asked) >= words
        assert not {one.passage for one in trained} & {one.passage for one in asked}
    assert GOAL_WORDS in TEST


def test_what_was_learned_about_a_thing_is_of_no_use_elsewhere() -> None:
    """The same person and thing stand at many places, so that only the passage tells."""
    places: dict[str, set[str]] = {}
    for one in training_questions(200):
        for person, thing, place in re.findall(r"(\w+) keeps the ([\w ]+?) in ([^.]+)\.", one.passage):
            places.setdefault(f"{person} {thing}", set()).add(place)
    counts = sorted(map(len, places.values()))
    assert counts[len(counts) // 2] > 2, "of the middle pair"


def test_a_shorter_context_changes_nothing_but_the_windows() -> None:
    questions = generated_questions(4, seed=5, words=60, asked=2)
    sets = ("model.layers=1", "model.width=32", "model.heads=2", "model.context=64", "tokenizer.size=400")
    with doubles():
        lm = new_model(questions, "bert", sets=sets, task="span")
        short = shortened(lm, 32)
        assert (lm.model.model_config.context, short.model.model_config.context) == (64, 32)
        text = ["Anna keeps the blue key."]
        close(short.features(text), lm.features(text), terms=1)  # which are handed out in float32
    models = [one.finetune(questions, task="span", epochs=1, hold_out=0.0, reporter=Reporter()) for one in (lm, short)]
    assert windows_of(models[1], questions) > windows_of(models[0], questions) > 1
    with refused("--context 128:", "64"):
        shortened(lm, 128)


def test_scores_by_where_the_answer_stands() -> None:
    passage = "alpha beta gamma"

    def question(text: str) -> Question:
        return Question(text, "Where?", passage, (Answer(text, passage.index(text)),), False, "q")

    asked = [question("alpha"), question("gamma"), question("gamma")]
    assert by_third(asked, ["alpha", "gamma", "beta"]) == [1.0, None, 0.5]


def test_the_goal_is_about_one_length() -> None:
    record = {
        "questions": 200,
        "windows": 9.04,
        "scores": {"f1": 0.96, "exact_match": 0.95},
        "thirds": [1.0, None, 0.9],
        "half_read": [0.31, 0.36],
    }
    row = ["300 words", "200", "9.0", "96.00", "95.00", "100.0 / – / 90.0", "31.0", "36.0"]
    assert table_row(record | {"words": 300}) == [*row, "≥ 95 met"]
    assert table_row(record | {"words": 600}) == ["600 words", *row[1:], ""]
    missed = record | {"words": 300, "scores": {"f1": 0.9, "exact_match": 0.9}}
    assert table_row(missed)[-1] == "≥ 95 **missed**"
