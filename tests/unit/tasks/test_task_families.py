"""What the families of tasks make of data and of scores, without a model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from complaints import names, refused
from systems_under_test import byte_tokenizer

from foretext.tasks.family import FAMILIES, KINDS, Encoding, Read, Reading, TaskConfig, family_of
from foretext.tasks.files.conll import TaggedSentence, read_conll, sentences_from
from foretext.tasks.files.predictions import Predictions, write_output
from foretext.tasks.files.rows import KINDS as ROW_KINDS
from foretext.tasks.files.squad import Answer, Question, questions_from
from foretext.tasks.heads.token_tasks import SpanTask, TaggingTask
from foretext.tasks.layouts.base import DelimitedLayout
from foretext.tasks.layouts.windows import Answered, Candidate
from foretext.text.corpus.tables import Table, read_table

TAGS, SPANS = family_of("tagging"), family_of("span")
ROWS = [
    TaggedSentence(("He", "reckons"), ("B-NP", "B-VP"), "a.txt line 1"),
    TaggedSentence(("Yes",), ("O",), "a.txt line 4"),
]
CHUNKS = TaskConfig("tagging", labels=("B-NP", "B-VP", "I-NP", "O"), scheme="iob2", fallback="O")
QUESTIONS = [
    Question("a", "who ran?", "Tom ran.", (Answer("Tom", 0),), False, "q.json question a"),
    Question("b", "who sat?", "Tom ran.", (), True, "q.json question b"),
]


def encoding(config: TaskConfig, context: int = 64) -> Encoding:
    tokenizer = byte_tokenizer().with_specials(DelimitedLayout.specials)
    return Encoding(config, tokenizer, DelimitedLayout(tokenizer.specials, context, "forward"))


def silent(*_: Any) -> None:
    pass


def test_every_kind_has_its_family() -> None:
    assert KINDS == (*ROW_KINDS, "tagging", "span") == tuple(FAMILIES)
    for word, meant in (("tagged", "tagging"), ("spans", "span"), ("clasification", "classification")):
        with refused(f"'{word}'", f"'{meant}'", ", ".join(KINDS)):
            family_of(word)


# -- Python data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        [(["He", "reckons"], ["B-NP", "B-VP"]), (["Yes"], ["O"])],
        [[["He", "reckons"], ["B-NP", "B-VP"]], [["Yes"], ["O"]]],
        [{"words": ["He", "reckons"], "tags": ("B-NP", "B-VP")}, {"words": "Yes", "tags": ["O"]}],
        ([["He", "reckons"], ["Yes"]], [["B-NP", "B-VP"], ["O"]]),
        ROWS,
    ],
)
def test_tagged_sentences_of_python_data(data: Any) -> None:
    made = sentences_from(data)
    assert [(row.words, row.tags) for row in made] == [(row.words, row.tags) for row in ROWS]


def test_sentences_without_tags() -> None:
    for data in (
        [["He", "reckons"], ["Yes"]],
        (["He", "reckons"], ["Yes"]),
        ["He  reckons", "Yes "],
        [("He", "reckons"), "Yes"],
    ):
        made = sentences_from(data, need_tags=False)
        assert [row.words for row in made] == [("He", "reckons"), ("Yes",)] and all(row.tags is None for row in made)
        with refused("data[0]", "tags"):
            sentences_from(data)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([(["a", "b"], ["O"])], ("data[0]", "2 words", "1 tag")),
        ([(["a"], ["O"]), ([], [])], ("data[1]", "words")),
        ([["a", " "]], ("data[0]", "words[1]", "' '")),
        ([["a", "b\nc"]], ("data[0]", "words[1]", r"'b\nc'")),
        ([["a", 3]], ("data[0]", "words[1]", "3")),
        ([7], ("data[0]", "int")),
        ([{"word": "a"}], ("data[0]", "'words'", "'text'")),
        ([], ("data:", "sentences")),
        ("a b", ("data:", "str")),
        (([["a"]], []), ("data:", "1 sentence", "0")),
    ],
    ids=str,
)
def test_sentences_that_are_none(data: Any, named: tuple[str, ...]) -> None:
    with refused(*named):
        sentences_from(data, need_tags=False)


def test_questions_of_python_data() -> None:
    passage = "Tom ran and Tom sat."
    made = questions_from(
        [
            ("who?", passage, "Tom"),
            {"question": "who?", "context": passage, "answer": ["Tom", "Tom sat"], "id": 7},
            {"question": "who?", "passage": passage, "answer": "Tom", "answer_start": np.int64(12)},
            ("who?", passage, None),
            {"question": "who?", "passage": passage, "answer": ["Tom", "Tom"], "answer_start": [12, 0]},
        ]
    )
    assert [one.answers for one in made] == [
        (Answer("Tom", 0),),
        (Answer("Tom", 0), Answer("Tom sat", 12)),
        (Answer("Tom", 12),),
        (),
        (Answer("Tom", 12), Answer("Tom", 0)),
    ]
    assert [one.impossible for one in made] == [False, False, False, True, False]
    assert [one.id for one in made] == ["0", "7", "2", "3", "4"]
    asked = questions_from([("who?", passage), ("who?", passage, "not there"), made[0]], need_answers=False)
    assert [one.answers for one in asked] == [(), (), (Answer("Tom", 0),)] and not asked[0].impossible


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([("who?", "Tom ran.", "Ann")], ("data[0]", "'Ann'", "passage")),
        ([("who?", "Tom ran.")], ("data[0]", "answer", "None")),
        (
            [{"question": "who?", "passage": "Tom Tom", "answer": ["Tom", "Tom"], "answer_start": 4}],
            ("data[0]", "2 answers", "1 'answer_start'"),
        ),
        ([("who?", " ", "Tom")], ("data[0]", "'passage'", "blank")),
        ([{"question": "who?", "answer": "Tom"}], ("data[0]", "'passage'", "text")),
        ([("who?", "Tom ran.", 3)], ("data[0]", "'answer'", "int")),
        ([("who?",)], ("data[0]", "(question, passage, answer)")),
        ([], ("data:", "questions")),
        ("who?", ("data:", "str")),
    ],
    ids=str,
)
def test_questions_that_are_none(data: Any, named: tuple[str, ...]) -> None:
    with refused(*named):
        questions_from(data)


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_tags_column_is_a_number_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("He PRP B-NP\nran VBD B-VP\n")
    read = TAGS.read(path, Reading("tagging", columns={"tag": "2"}))
    assert read.rows[0].tags == ("PRP", "VBD") and read.table is None
    trained = replace(CHUNKS, columns={"tag": "2"})
    assert TAGS.read(path, Reading("tagging", trained=trained)).rows[0].tags == ("PRP", "VBD")
    assert TAGS.read(path, Reading("tagging", format="conll2000", trained=trained)).rows[0].tags == ("B-NP", "B-VP")
    assert TAGS.read(path, Reading("tagging", format="none", trained=trained)).rows[0].tags == ("B-NP", "B-VP")
    for columns, named in (({"text": "a"}, ("--columns text=", "tag=4")), ({"tag": "pos"}, ("--columns tag=pos", "1"))):
        with refused(*named):
            TAGS.read(path, Reading("tagging", columns=columns))
    path.write_text("He B-NP\n")
    with refused(f"{path} line 1", "2 columns", "3", "conll2000", "--format", "--columns"):
        TAGS.read(path, Reading("tagging", trained=replace(CHUNKS, format="conll2000")))
    path.write_text("He\n")
    plain = TAGS.read(path, Reading("tagging", trained=trained, need_labels=False))
    assert plain.rows[0].tags is None, "a remembered column need not be there"
    with refused(f"{path} line 1", "column 2", "tag"):
        TAGS.read(path, Reading("tagging", columns={"tag": "2"}, trained=trained, need_labels=False))
    path.write_text("")
    with refused(str(path), "empty") as caught:
        TAGS.read(path, Reading("tagging", trained=trained))
    assert "--columns" not in str(caught.value), "which would not help"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.parquet", "a.csv.gz"])
def test_a_file_of_another_kind_is_told_by_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("text,label\na,b\n")
    with refused(str(path), "tagging", "column"):
        TAGS.read(path, Reading("tagging"))


def test_spans_have_one_layout(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,b\n")
    with refused(str(path), "JSON", "SQuAD"):
        SPANS.read(path, Reading("span"))
    with refused("--format conll2000", "span", "SQuAD"):
        SPANS.read(path, Reading("span", format="conll2000"))
    with refused("--columns", "span", "SQuAD"):
        SPANS.read(path, Reading("span", columns={"text": "a"}))


def test_lines_of_standard_input() -> None:
    reading = Reading("tagging", need_labels=False)
    plain, lines = TAGS.from_lines("He ran\n\nYes\n", reading), TAGS.from_lines('{"words": ["He", "ran"]}\n', reading)
    assert [row.words for row in plain.rows] == [("He", "ran"), ("Yes",)] and lines.rows[0].words == ("He", "ran")
    assert plain.rows[1].where == "standard input 2"
    asked = SPANS.from_lines('{"question": "who?", "context": "Tom ran."}\n', Reading("span", need_labels=False))
    assert asked.rows[0].passage == "Tom ran."
    same = '{"question": "who?", "context": "Tom ran.", "id": 7}\n' * 2
    with refused("id '7'", "input 1", "input 2"):
        SPANS.from_lines(same, Reading("span", need_labels=False))
    with refused("span", "JSON"):
        SPANS.from_lines("who?\n", Reading("span", need_labels=False))


# -- tags of scores --------------------------------------------------------------------------------------------------


def scored_tags(config: TaskConfig, chosen: list[list[str]], context: int = 64) -> tuple[Any, list[np.ndarray]]:
    """Rows of so many words, and scores that are highest for these tags."""
    rows = [TaggedSentence(tuple(f"w{i}" for i in range(len(tags))), tuple(tags), "row") for tags in chosen]
    encoded = TAGS.encode(rows, encoding(config, context), False, silent, silent)
    scores = []
    for window in encoded.windows:
        table = np.zeros((len(window.words), len(config.labels)), dtype=np.float32)
        for place, word in enumerate(window.words):
            table[place, config.labels.index(chosen[window.sentence][word])] = math.log(9.0)
        scores.append(table)
    return encoded, scores


def head(config: TaskConfig) -> TaggingTask:
    return TaggingTask(len(config.labels), 4, 0.0, 0.0)


@pytest.mark.parametrize("context", [64, 10])
def test_tags_come_back_in_the_scheme_of_the_training_file(context: int) -> None:
    chosen = [["B-NP", "I-NP", "B-NP", "O", "I-NP"], ["O"], ["B-VP"] * 9]
    encoded, scores = scored_tags(CHUNKS, chosen, context)
    assert (len(encoded.windows) > 3) == (context == 10)
    new = TAGS.predictions(encoded, scores, CHUNKS, head(CHUNKS))
    assert new.values[0] == ("B-NP", "I-NP", "B-NP", "O", "B-NP"), "an entity begins with B"
    config = replace(CHUNKS, scheme="iob1")
    old = TAGS.predictions(encoded, scores, config, head(config))
    assert old.values[0] == ("I-NP", "I-NP", "B-NP", "O", "I-NP")
    assert old.values[2] == ("I-VP", *["B-VP"] * 8)
    assert new.probabilities is not None
    assert [round(p, 4) for p in new.probabilities[0]] == [0.75] * 5  # 9 of 9 + 3
    assert TAGS.values(old)[1] == ["O"]
    gold = [replace(row, tags=tuple(tags)) for row, tags in zip(encoded.rows, chosen)]
    assert TAGS.score(gold, old, config).values == TAGS.score(gold, new, CHUNKS).values
    assert TAGS.score(gold, new, CHUNKS).main_value == 1.0
    with refused("predictions(data).probabilities"):
        TAGS.probabilities(scores, CHUNKS)


def test_what_is_scored_is_what_is_written() -> None:
    """The script's figures for the file that `predict` writes, in either scheme: the accuracy of words differs."""
    gold = [TaggedSentence(("a", "b", "c"), ("I-NP", "I-NP", "O"), "row")]
    for scheme, accuracy in (("iob1", 2 / 3), ("iob2", 1 / 3)):
        config = replace(CHUNKS, scheme=scheme)
        encoded, scores = scored_tags(config, [["O", "B-NP", "O"]])
        measured = TAGS.score(gold, TAGS.predictions(encoded, scores, config, head(config)), config)
        assert measured.values["accuracy"] == pytest.approx(accuracy) and measured.main_value == 0.0


def test_a_word_without_a_piece_gets_the_fallback() -> None:
    class Deaf:
        """Bytes, but nothing of what begins with a z."""

        def encode(self, text: str) -> list[int]:
            return self.encode_many([text])[0].tolist()

        def encode_many(self, texts: list[str]) -> list[np.ndarray]:
            return [np.array([] if "z" in text else list(text.encode()), dtype=np.uint32) for text in texts]

    whole = encoding(replace(CHUNKS, fallback="B-VP"))
    said: list[str] = []
    rows = [TaggedSentence(("a", "zz"), ("O", "O"), "row"), TaggedSentence(("z",), ("O",), "row")]
    deaf = Encoding(whole.config, Deaf(), whole.layout)  # type: ignore[arg-type]
    encoded = TAGS.encode(rows, deaf, True, said.append, silent)
    assert len(encoded.examples) == 1
    (note,) = said
    names(note, "2 words", "vocabulary", "'B-VP'")
    predictions = TAGS.predictions(encoded, [np.eye(4)[3:]], whole.config, head(CHUNKS))
    assert predictions.values == [("O", "B-VP"), ("B-VP",)] and predictions.probabilities is not None
    assert predictions.probabilities[1] == [None]
    assert len(TAGS.sequences(["a z"], deaf)) == 1
    with refused("TEXT 1", "vocabulary"):
        TAGS.sequences(["z z"], deaf)


def test_tags_as_columns_and_tables(tmp_path: Path) -> None:
    predictions = Predictions("tagging", [("B-NP", "O"), ("O",)], [[0.5, None], [0.25]], CHUNKS.labels)
    text = TAGS.output(Read(ROWS), predictions, "columns", [])
    assert text == "He B-NP B-NP\nreckons B-VP O\n\nYes O O\n\n"
    untagged = [replace(row, tags=None) for row in ROWS]
    assert TAGS.output(Read(untagged), predictions, "columns", []) == "He B-NP\nreckons O\n\nYes O\n\n"
    words = TAGS.output(Read(ROWS), predictions, "csv", [])
    assert isinstance(words, Table) and words.columns == ("sentence", "word", "tag", "prediction", "probability")
    assert words.rows == [(1, "He", "B-NP", "B-NP", 0.5), (1, "reckons", "B-VP", "O", None), (2, "Yes", "O", "O", 0.25)]
    lines = TAGS.output(Read(untagged), predictions, "jsonl", [])
    write_output(lines, tmp_path / "a.jsonl", "jsonl")
    records = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert records[0] == {"words": ["He", "reckons"], "prediction": ["B-NP", "O"], "probability": [0.5, None]}
    write_output(text, tmp_path / "a.txt.gz", "columns")
    assert [row.tags for row in read_conll(tmp_path / "a.txt.gz")] == [("B-NP", "O"), ("O",)]
    forms = {"a.txt": "columns", "a.conll": "columns", "a": "columns", "a.csv": "csv", "a.jsonl.gz": "jsonl"}
    assert {name: TAGS.form(Path(name), False) for name in forms} == forms
    assert (TAGS.form(None, False), TAGS.form(None, True)) == ("columns", "jsonl")
    with refused("a.json", "tags", ".txt", ".csv", ".tsv", ".jsonl", ".parquet"):
        TAGS.form(Path("a.json"), False)


# -- answers of scores -----------------------------------------------------------------------------------------------


def scored_answers(margins: list[float]) -> tuple[Any, list[np.ndarray]]:
    """`QUESTIONS` with scores by which the answer is "Tom", and "no answer" outscores it by these margins."""
    encoded = SPANS.encode(QUESTIONS, encoding(TaskConfig("span")), True, silent, silent)
    scores = []
    for window, margin in zip(encoded.windows, margins):
        table = np.zeros((len(window.frame.ids), 2), dtype=np.float32)
        table[window.frame.place(1, 0), 0] = table[window.frame.place(1, 2), 1] = 5.0
        table[window.frame.extract] = (10.0 + margin) / 2
        scores.append(table)
    return encoded, scores


def test_the_threshold_is_chosen_on_validation_rows() -> None:
    config, task = TaskConfig("span", unanswerable=True), SpanTask(4, 0.0, 0.0)
    encoded, scores = scored_answers([3.0, 4.0])
    before = SPANS.predictions(encoded, scores, config, task)
    assert SPANS.values(before) == ["", ""], "with a threshold of 0 nothing is answered"
    SPANS.settle(encoded, scores, config, task)
    assert 3.0 <= float(task.threshold) < 3.1
    after = SPANS.predictions(encoded, scores, config, task)
    assert SPANS.values(after) == ["Tom", ""]
    measured = SPANS.score(QUESTIONS, after, config)
    assert measured.values["f1"] == measured.values["no_answer_exact_match"] == 1.0
    plain = SpanTask(4, 0.0, 0.0)
    SPANS.settle(encoded, scores, TaskConfig("span"), plain)
    assert float(plain.threshold) == 0.0
    assert SPANS.values(SPANS.predictions(encoded, scores, TaskConfig("span"), plain)) == ["Tom", "Tom"]


def test_answers_that_cannot_be_learned_or_found_are_counted() -> None:
    passage = "Tom ran to the old house by the river. Ann sat."
    rows = questions_from(
        [
            ("who?", passage, passage[:36]),
            ("who?", passage, passage[:31]),
            ("who?", passage, "Ann"),
            ("?", "Eve.", "Eve"),
        ]
    )
    said: list[str] = []
    SPANS.encode(rows, encoding(TaskConfig("span"), 42), True, said.append, silent)
    windows, unlearned, unfound = said
    names(windows, "1 of 2 passages", "42 tokens", "7")
    names(unlearned, "1 answer", "window")
    names(unfound, "2 answers", "30 tokens")
    said.clear()
    SPANS.encode(rows, encoding(TaskConfig("span"), 90), False, said.append, silent)
    assert said == []

    class Deaf:
        """Nothing has a piece."""

        def encode_many(self, texts: list[str]) -> list[np.ndarray]:
            return [np.array([], dtype=np.uint32) for _ in texts]

        def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
            return [], []

    deaf = Encoding(TaskConfig("span"), Deaf(), encoding(CHUNKS).layout)  # type: ignore[arg-type]
    SPANS.encode(rows, deaf, True, said.append, silent)
    passages, answers = said
    names(passages, "2 passages", "vocabulary")
    names(answers, "4 answers", "vocabulary")


def test_answers_as_json_and_tables(tmp_path: Path) -> None:
    tom = (Candidate("Tom", 0, 3, 2.0, 0.75), Candidate("Tom ran", 0, 7, 1.0, 0.25))
    none = (Candidate("", 0, 0, 2.0, 0.9), Candidate("Tom", 0, 3, 1.0, 0.1))
    predictions = Predictions("span", [Answered("Tom", tom, -1.0), Answered("", none, 1.0)])
    text = SPANS.output(Read(QUESTIONS), predictions, "json", [])
    assert isinstance(text, str) and json.loads(text) == {"a": "Tom", "b": ""}
    table = SPANS.output(Read(QUESTIONS), predictions, "csv", [])
    write_output(table, tmp_path / "a.csv", "csv")
    assert read_table(tmp_path / "a.csv").rows == [
        ("a", "who ran?", "Tom", "0.75", "0", "3"),
        ("b", "who sat?", "", "0.9", "", ""),
    ]
    write_output(SPANS.output(Read(QUESTIONS), predictions, "jsonl", []), tmp_path / "a.jsonl", "jsonl")
    record = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    assert record["candidates"][1] == {"text": "Tom ran", "start": 0, "end": 7, "probability": 0.25}
    forms = {"a.json": "json", "a.json.gz": "json", "a.jsonl": "jsonl", "a.tsv": "tsv", "a.parquet": "parquet"}
    assert {name: SPANS.form(Path(name), False) for name in forms} == forms
    with refused("a.txt", "answers", ".json", ".jsonl", ".csv", ".tsv", ".parquet"):
        SPANS.form(Path("a.txt"), False)


def test_sequences_that_a_model_reads() -> None:
    (ids,) = TAGS.sequences(["He  ran"], encoding(CHUNKS))
    assert ids[1:-1] == tuple(b"He ran")
    windows = SPANS.sequences(["who?", "Tom ran. " * 9], encoding(TaskConfig("span"), 30))
    assert len(windows) > 3 and all(window[1:5] == tuple(b"who?") and len(window) <= 30 for window in windows)
    for family, config, texts in ((TAGS, CHUNKS, ["a", "b"]), (SPANS, TaskConfig("span"), ["a"])):
        with refused(config.kind, f"{len(texts)} text"):
            family.sequences(texts, encoding(config))


def test_the_texts_of_a_vocabulary() -> None:
    assert list(SPANS.texts(QUESTIONS)) == ["who ran?", "who sat?", "Tom ran."]
    assert list(TAGS.texts([TaggedSentence(("He", "ran", "中", "国"), None, "row")])) == ["He ran 中国"]
