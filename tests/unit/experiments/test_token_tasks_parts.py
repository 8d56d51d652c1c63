"""The pure parts of the experiment on tags and answers: who is in the test, in what order, and what the tables say."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from experiments.results import sets_for
from experiments.token_tasks import (
    PRETRAINED,
    SCRATCH,
    SETS,
    TASKS,
    USUAL,
    answer_scores,
    baseline_scores,
    chosen,
    described,
    packed,
    parse,
    parted,
    plan,
    question_rows,
    sentence_rows,
    tables,
)
from foretext.tasks.files.squad import Answer, Question

PARAGRAPHS = 40


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Both data sets in small, in the published layouts; the languages have the same paragraphs in the same order."""
    for language, word in (("en", "thing"), ("zh", "东西")):
        paragraphs = [
            {
                "context": f"{word} {number} is here. Another one is there.",
                "qas": [
                    {
                        "id": f"{number}-{asked}",
                        "question": f"Which {word} {asked}?",
                        "answers": [{"text": str(number), "answer_start": len(word) + 1}],
                    }
                    for asked in range(1 + number % 3)
                ],
            }
            for number in range(PARAGRAPHS)
        ]
        file = tmp_path / "xquad" / f"xquad.{language}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
    (tmp_path / "conll2000").mkdir()
    for name, count in (("train.txt", 30), ("test.txt", 6)):
        lines = [f"word{number} NN B-NP\nruns VBZ B-VP\n. . O\n" for number in range(count)]
        (tmp_path / "conll2000" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_no_paragraph_is_on_both_sides_and_languages_agree(data: Path) -> None:
    given = parse(["--data", str(data)])
    found = {language: question_rows(given, language) for language in ("en", "zh")}
    for rows in found.values():
        sides = [{one.passage for one in part} for part in (rows.train, rows.test)]
        assert not sides[0] & sides[1] and len(sides[0] | sides[1]) == PARAGRAPHS
        assert len(sides[1]) == PARAGRAPHS // 4
    assert [one.id for one in found["en"].test] == [one.id for one in found["zh"].test]
    assert re.findall(r"\d+", described("xquad-en", found["en"]))[-1] == "10"


def test_validation_never_sees_the_test(data: Path) -> None:
    plain, validating = (parse(["--data", str(data), *more]) for more in ([], ["--validate"]))
    test = {one.passage for one in question_rows(plain, "en").test}
    held = question_rows(validating, "en")
    seen = {one.passage for part in (held.train, held.test) for one in part}
    assert not test & seen and len(seen) == PARAGRAPHS - len(test)
    assert not {one.passage for one in held.train} & {one.passage for one in held.test}
    rows = sentence_rows(validating)
    train = {row.words for row in sentence_rows(plain).train}
    assert {row.words for row in rows.train} | {row.words for row in rows.test} == train


def test_sentences_are_drawn_alike_for_every_column(data: Path) -> None:
    given = parse(["--data", str(data), "--sentences", "12"])
    chunks, speech = sentence_rows(given), sentence_rows(given, column=2)
    assert len(chunks.train) == 12 and len(chunks.test) == 6
    assert [row.words for row in chunks.train] == [row.words for row in speech.train]
    assert chunks.train[0].tags == ("B-NP", "B-VP", "O") and speech.train[0].tags == ("NN", "VBZ", ".")
    assert len(sentence_rows(parse(["--data", str(data)])).train) == 30, "no more than there are"


def test_what_counting_gives(data: Path) -> None:
    given = parse(["--data", str(data)])
    rows = sentence_rows(given)
    assert baseline_scores("tag of the part of speech", rows, given)["f1"] == 1.0
    assert baseline_scores("tag of the word", rows, given)["accuracy"] == 1.0, "words of the test are in training"
    scores = baseline_scores("overlap", question_rows(given, "en"), given)
    assert scores.keys() == {"f1", "exact_match", "error"} and 0.0 <= scores["f1"] <= 1.0


def test_draws_are_repeatable() -> None:
    assert chosen(100, 10, "a") == chosen(100, 10, "a") != chosen(100, 10, "b")
    assert chosen(5, 5, "a") == [0, 1, 2, 3, 4]
    train, test = parted([1, 2, 3, 4], ["x", "y", "x", "y"], 0.5, "a")
    assert sorted([train, test]) == [[1, 3], [2, 4]]


def test_documents_are_packed_whole_and_in_order() -> None:
    texts = ["aa", "bbb", "c" * 9, "d"]
    assert packed(texts, 5) == ["aa\nbbb", "c" * 9, "d"]
    assert packed([], 5) == []


def test_scores_of_answers() -> None:
    questions = [
        Question(str(number), "Who?", "Anna Smith and Bruno", (Answer("Anna Smith", 0),), False, "q")
        for number in range(3)
    ]
    found = answer_scores(questions, ["Anna Smith", "Anna", ""])
    assert found["exact_match"] == pytest.approx(1 / 3)
    assert found["f1"] == pytest.approx((1 + 2 / 3) / 3)
    assert found["error"] == pytest.approx(statistics.stdev([1, 2 / 3, 0]) / 3**0.5)
    assert answer_scores(questions[:1], ["Anna"])["error"] == 0.0


def test_what_matters_comes_first() -> None:
    cells = plan(USUAL)
    assert len(cells) == len(set(cells)) == 4 + 2 * len(USUAL)
    methods = [method for _, method in cells]
    assert methods[4:] == [PRETRAINED] * 3 + [SCRATCH] * 3
    assert not {PRETRAINED, SCRATCH} & set(methods[:4])


def test_tables_have_the_columns_of_their_kind() -> None:
    chunks = {"f1": 0.9512, "precision": 0.95, "recall": 0.96, "accuracy": 0.97}
    answers = {"f1": 0.25, "exact_match": 0.125, "error": 0.02}
    found = {
        ("xquad-zh", PRETRAINED): {"scores": answers | {"unknown": 0.001}, "seconds": 12.4},
        ("xquad-zh", "overlap"): {"scores": answers, "seconds": 1.0},
        ("conll2000", PRETRAINED): {"scores": chunks, "seconds": 200.0},
        ("xquad-en", SCRATCH): {"scores": answers, "seconds": 1.0},
    }
    text = "\n".join(tables(found, ["conll2000", "xquad-zh"])).splitlines()
    assert text[2] == "| CoNLL-2000, pre-trained | 95.12 | 95.00 | 96.00 | 97.00 | 200 |"
    assert text[-2] == "| XQuAD, Chinese, overlap | 25.0 ± 2.0 | 12.5 | – | 1 |", "what counting gives comes first"
    assert text[-1] == "| XQuAD, Chinese, pre-trained | 25.0 ± 2.0 | 12.5 | 0.1 | 12 |"
    assert not any("English" in line for line in text), "a task that was not asked for"


def test_each_task_has_settings_of_its_own(data: Path) -> None:
    for name in TASKS:
        assert any(text.startswith("task.epochs=") for text in sets_for(SETS, name, 0)), name
    assert "training.batch_size=8" not in sets_for(SETS, "xquad-zh", 0), "those of xquad-zh-minilm"
    given = parse(["--data", str(data), "--set", "xquad-en:task.epochs=9", "--only", "xquad-en"])
    assert [text for text in sets_for(given.set, "xquad-en", 0) if "epochs" in text][-1] == "task.epochs=9"
    assert given.tasks == ["xquad-en"]
    quick = parse(["--data", str(data), "--quick"])
    assert [text for text in sets_for(quick.set, "xquad-en", 0) if "epochs" in text][-1] == "task.epochs=1"
    with pytest.raises(SystemExit):
        parse(["--data", str(data), "--only", "squad"])
