"""Generated questions: the answer follows from the question, by a rule that knows nothing of how they were made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.generated_spans import generated_questions, texts_of, write_squad
from foretext.tasks.squad import Question, read_squad


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


def test_neither_person_nor_thing_nor_place_alone_tells() -> None:
    """In most questions each of the three also stands in a sentence that is not asked about."""
    questions = generated_questions(20, seed=2, words=300)
    shared = {"person": 0, "thing": 0, "place": 0}
    for one in questions:
        asked = re.fullmatch(r"Where does (\w+) keep the (.+)\?", one.question)
        assert asked is not None
        shared["person"] += len(re.findall(rf"\b{asked[1]} keeps", one.passage)) > 1
        shared["thing"] += len(re.findall(rf" the {asked[2]} in ", one.passage)) > 1
        shared["place"] += one.passage.count(f" in {one.answers[0].text}.") > 1
    assert shared["person"] > 60 and shared["place"] > 60 and shared["thing"] > 20, shared


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
