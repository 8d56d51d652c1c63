"""Tagging and span answers on the command line: every verb, and every mistake as one line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import fmean

import polars
import pytest
from cli_harness import BAD, GOOD, MINUTE, OTHER, fails, works
from complaints import names

from experiments.generated_spans import generated_questions, write_squad
from foretext.tasks.files.conll import read_conll


def columns(sentences: int, seed: int = 0) -> str:
    """Sentences in CoNLL-2000's columns: good and bad words are chunks of their own types."""
    draw = random.Random(seed)
    lines = []
    for _ in range(sentences):
        for _ in range(draw.randint(2, 8)):
            word = draw.choice(draw.choice([GOOD, BAD, OTHER]))
            tag = "B-UP" if word in GOOD else "B-DOWN" if word in BAD else "O"
            lines.append(f"{word} {'NN' if tag == 'O' else 'JJ'} {tag}")
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokens")
    (made / "chunks.txt").write_text(columns(24), encoding="utf-8")
    write_squad(generated_questions(12, 1, words=20, asked=1), made / "squad.json")
    return made


@pytest.fixture(scope="module")
def chunks(base: Path, folder: Path) -> Path:
    run = folder / "chunks"
    said = works(
        *("finetune", base, folder / "chunks.txt", "--task", "tagging", "--format", "conll2000"),
        *("--out", run, "--epochs", 1),
    )
    lines = said.out.splitlines()
    assert lines[2].startswith("f1 ") and lines[2].endswith("(main)"), said.out
    assert "precision" in said.out and ("UP" in said.out or "DOWN" in said.out), "figures of each type"
    said.note("of 24 rows")
    said.note("fine-tuning", "tagging")
    assert said.note(f"foretext predict {run} new.txt --out predicted.txt") == said.err.splitlines()[-1]
    assert not (run / "confusion.png").exists() and (run / "loss.png").exists()
    return run


@pytest.fixture(scope="module")
def qa(base: Path, folder: Path) -> Path:
    run = folder / "qa"
    said = works("finetune", base, folder / "squad.json", "--task", "span", "--out", run, "--epochs", 1)
    assert "exact_match" in said.out and "(main)" in said.out
    said.note("10 of 10 passages", "32 tokens", "123 in")
    said.note("2 of 2 passages", "32 tokens", "23 in")
    said.note("rows ", "123 windows")  # the plan
    return run


# -- tagging ---------------------------------------------------------------------------------------------------------


def test_tags_of_a_file(chunks: Path, folder: Path, here: Path) -> None:
    works("predict", chunks, folder / "chunks.txt", "--out", "predicted.txt")
    gold = read_conll(folder / "chunks.txt")
    assert [row.words for row in read_conll("predicted.txt")] == [row.words for row in gold]
    assert [row.tags for row in read_conll("predicted.txt", column=2)] == [row.tags for row in gold]
    works("predict", chunks, folder / "chunks.txt", "--out", "words.csv")
    table = polars.read_csv("words.csv")
    assert table.columns == ["sentence", "word", "tag", "prediction", "probability"]
    assert len(table) == sum(len(row.words) for row in gold)
    assert set(table["prediction"]) <= {"B-UP", "B-DOWN", "O"}
    Path("plain.txt").write_text("good\nfilm\n\nbad\n")
    said = works("predict", chunks, "plain.txt", "--json").out.splitlines()
    assert [json.loads(line)["words"] for line in said] == [["good", "film"], ["bad"]]


def test_tags_of_texts(chunks: Path) -> None:
    said = works("predict", chunks, "--text", "the film was good", "--text", "bad").out
    lines = [line.split() for line in said.split("\n")]
    assert [line[0] for line in lines[:4]] == ["the", "film", "was", "good"] and lines[4] == [] and lines[5][0] == "bad"
    assert all(len(line) == 2 for line in lines[:4])
    assert works("predict", chunks, stdin="the film was good\n\nbad\n").out == said
    record = json.loads(works("predict", chunks, "--json", stdin='{"words": ["the", "film"]}\n').out)
    assert record["words"] == ["the", "film"] and len(record["prediction"]) == len(record["probability"]) == 2


def test_evaluating_tags(chunks: Path, folder: Path, here: Path) -> None:
    measured = json.loads(works("evaluate", chunks, folder / "chunks.txt", "--json").out)
    assert measured["rows"] == 24 and measured["main"] == "f1"
    assert {item["label"] for item in measured["per_class"]} == {"UP", "DOWN"}
    shown = works("evaluate", chunks, folder / "chunks.txt", "--metric", "accuracy").out
    assert f"accuracy   {measured['values']['accuracy']:.4f}  (main)" in shown
    works("predict", chunks, folder / "chunks.txt", "--out", "predicted.txt")
    written = [line.split() for line in Path("predicted.txt").read_text().splitlines() if line]
    right = fmean(gold == predicted for _, gold, predicted in written)
    assert measured["values"]["accuracy"] == pytest.approx(right), "what is written is what is scored"
    Path("long.txt").write_text("good JJ B-UP\n" * 60 + "\n")
    works("evaluate", chunks, "long.txt").note("1 of 1 sentences", "context", "32")


def test_another_column(base: Path, folder: Path, here: Path) -> None:
    rows = folder / "chunks.txt"
    command = ["finetune", base, rows, "--task", "tagging", "--columns", "tag=2", "--valid", rows, "--epochs", 1]
    command += ["--lm-weight", 0, "--layers", 1, "--out", "run"]
    said = works(*command)
    assert said.out.splitlines()[2].startswith("accuracy") and (here / "run/confusion.png").exists()
    assert json.loads(works("evaluate", "run", rows, "--json").out)["main"] == "accuracy"
    assert "columns     tag=2" in works("info", "run").out
    said = fails("evaluate", "run", rows, "--columns", "tag=3")
    names(said, "chunks.txt line 1: ", "'B-DOWN', 'B-UP', 'O'", "'JJ', 'NN'", "--columns tag=NUMBER")
    works("evaluate", "run", rows, "--confusion", "c.png")
    again = works(*command, "--resume")
    again.note("run", "finished")
    assert not again.out


def test_a_new_model_for_tags_and_answers(folder: Path, here: Path) -> None:
    for task, file in (("tagging", "chunks.txt"), ("span", "squad.json")):
        rest = ["--task", task, "--out", task, "--epochs", 1, *MINUTE]
        works("finetune", "--system", "gpt", folder / file, *rest).note("parameters", "new")


def test_looking_into_a_run(chunks: Path, qa: Path) -> None:
    names(works("info", chunks).out, "tagging", "iob2", "'B-DOWN', 'B-UP', 'O'", "conll2000")
    names(works("info", qa).out, "span")
    assert json.loads(works("info", chunks, "--json").out)["task"]["scheme"] == "iob2"
    (sequence,) = json.loads(works("tokens", chunks, "the film was good", "--json").out)
    assert "".join(item["piece"] for item in sequence[1:-1]) == "the film was good"
    assert sequence[0]["piece"] == "<|start|>" and sequence[-1]["piece"] == "<|extract|>"
    windows = json.loads(works("tokens", qa, "who?", "the film was good " * 9, "--json").out)
    assert len(windows) > 1 and all(any(item["piece"] == "<|delimiter|>" for item in one) for one in windows)


# -- span ------------------------------------------------------------------------------------------------------------


def test_answers_of_a_file(qa: Path, folder: Path, here: Path) -> None:
    questions = {one.id: one for one in generated_questions(12, 1, words=20, asked=1)}
    works("predict", qa, folder / "squad.json", "--out", "answers.json")
    answers = json.loads(Path("answers.json").read_text(encoding="utf-8"))
    assert answers.keys() == questions.keys()
    assert all(text and text in questions[name].passage for name, text in answers.items())
    works("predict", qa, folder / "squad.json", "--out", "answers.jsonl")
    records = [json.loads(line) for line in Path("answers.jsonl").read_text(encoding="utf-8").splitlines()]
    for record in records:
        passage, candidates = questions[record["id"]].passage, record["candidates"]
        assert record["prediction"] == answers[record["id"]] == candidates[0]["text"]
        assert passage[record["start"] : record["end"]] == record["prediction"]
        written = sum(one["probability"] for one in candidates)  # to six digits each
        assert len(candidates) > 1 and written == pytest.approx(1, abs=1e-6 * len(candidates))
    works("predict", qa, folder / "squad.json", "--out", "answers.csv")
    table = polars.read_csv("answers.csv")
    assert table.columns == ["id", "question", "prediction", "probability", "start", "end"] and len(table) == 12


def test_evaluating_answers(qa: Path, folder: Path, here: Path) -> None:
    measured = json.loads(works("evaluate", qa, folder / "squad.json", "--json").out)
    assert measured["rows"] == 12 and measured["values"].keys() == {"f1", "exact_match"}
    works("predict", qa, folder / "squad.json", "--out", "answers.json")
    answers = json.loads(Path("answers.json").read_text(encoding="utf-8"))
    exact = [answers[one.id] == one.answers[0].text for one in generated_questions(12, 1, words=20, asked=1)]
    assert 1 >= measured["values"]["f1"] >= measured["values"]["exact_match"] >= fmean(exact)


def test_answers_to_texts(qa: Path) -> None:
    said = works("predict", qa, "--text", "what?", "--text", "the film was good").out.splitlines()
    assert said[0] == "id,question,prediction,probability,start,end" and len(said) == 2
    line = json.dumps({"question": "what?", "passage": "the film was good"})
    record = json.loads(works("predict", qa, "--json", stdin=f"{line}\n").out)
    assert record["prediction"] in "the film was good" and record["candidates"]


def test_questions_without_answers(base: Path, here: Path) -> None:
    write_squad(generated_questions(12, 2, words=20, asked=1, impossible=0.4), Path("two.json"))
    works("finetune", base, "two.json", "--task", "span", "--out", "run", "--epochs", 1, "--metric", "exact_match")
    measured = json.loads(works("evaluate", "run", "two.json", "--json").out)
    assert measured["main"] == "exact_match" and "no_answer_f1" in measured["values"]
    names(works("info", "run").out, "answers ", "question")
    works("predict", "run", "two.json", "--out", "a.json")


def test_a_finished_run_says_so_and_refuses_other_rows(base: Path, chunks: Path, folder: Path, here: Path) -> None:
    rest = ["--task", "tagging", "--format", "conll2000", "--out", chunks, "--resume"]
    said = works("finetune", base, folder / "chunks.txt", *rest)
    said.note(str(chunks), "finished")
    assert not said.out
    Path("other.txt").write_text(columns(24, seed=1))
    names(fails("finetune", base, "other.txt", *rest), f"{chunks}: ", "rows", "--valid", "--hold-out")


# -- mistakes --------------------------------------------------------------------------------------------------------

WRONG = {"id": "7", "question": "who?", "answers": [{"text": "Ann", "answer_start": 0}]}
FILES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "ragged.txt": ("tagging", "He PRP B-NP\nran B-VP\n", ("ragged.txt line 2: ", "2 columns", "line 1", "3")),
    "untagged.txt": ("tagging", "He\nran\n", ("untagged.txt line 1: ", "1 column", "tag")),
    "spaces.txt": ("tagging", "\n\n", ("spaces.txt: ", "blank")),
    "one.txt": ("tagging", "a O\nb O\n\n" * 12, ("24 words", "tag 'O'", "one.txt line 1", "--columns tag=NUMBER")),
    "rows.csv": ("tagging", "text,label\na,b\n", ("rows.csv: ", "tagging", "column")),
    "none.json": ("span", "text,label\n", ("none.json: ", "JSON", "line 1 column 1", "SQuAD's")),
    "list.json": ("span", "[]", ("list.json: ", "list 'data'", "SQuAD's")),
    "answer.json": (
        "span",
        json.dumps({"data": [{"paragraphs": [{"context": "Tom ran.", "qas": [WRONG]}]}]}),
        ("answer.json question 7: ", "answer 'Ann'", "passage"),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_learned_from(name: str, base: Path, here: Path) -> None:
    task, text, parts = FILES[name]
    Path(name).write_text(text)
    names(fails("finetune", base, name, "--task", task, "--out", "run"), *parts)
    assert not Path("run").exists()


OPTIONS: list[tuple[str, list[str], tuple[str, ...]]] = [
    ("tagging", ["--format", "sst2"], ("--format sst2: ", "tagging", "conll2000, conll2003, conllu")),
    ("tagging", ["--format", "conllu"], ("chunks.txt line 1: ", "1 column", "10", "tab")),
    ("tagging", ["--columns", "text=a"], ("--columns text=…: ", "tagging", "--columns tag=4")),
    ("tagging", ["--columns", "tag=chunk"], ("--columns tag=chunk: ", "number")),
    ("tagging", ["--columns", "tag=9"], ("chunks.txt line 1: ", "column 9", "3")),
    ("tagging", ["--metric", "matthews"], ("--metric matthews: ", "f1, precision, recall, accuracy")),
    ("tagging", ["--hold-out", "1"], ("--hold-out 1.0: ",)),
    ("taging", [], ("task 'taging'", "'tagging'")),
    ("span", ["--format", "conll2000"], ("--format conll2000: ", "span", "SQuAD's JSON")),
    ("span", ["--columns", "text=a"], ("--columns: ", "span", "SQuAD's JSON")),
    ("span", ["--metric", "accuracy"], ("--metric accuracy: ", "f1, exact_match")),
    ("classification", [], ("chunks.txt: ", "'.txt'", ".csv, .tsv, .jsonl, .parquet", "--format")),
]


@pytest.mark.parametrize(
    ("task", "options", "parts"), OPTIONS, ids=[" ".join([task, *options]) for task, options, _ in OPTIONS]
)
def test_options(task: str, options: list[str], parts: tuple[str, ...], base: Path, folder: Path, here: Path) -> None:
    file = folder / ("squad.json" if task == "span" else "chunks.txt")
    names(fails("finetune", base, file, "--task", task, *options, "--out", "run"), *parts)
    assert not Path("run").exists()


def test_files_of_the_wrong_kind_for_a_run(
    chunks: Path, qa: Path, clf: Path, files: Path, folder: Path, here: Path
) -> None:
    for verb in ("evaluate", "predict"):
        names(fails(verb, chunks, files / "cls.csv"), "cls.csv: ", "tagging", "column")
        names(fails(verb, chunks, folder / "squad.json"), "squad.json: ", "tagging", "column")
        names(fails(verb, qa, files / "cls.csv"), "cls.csv: ", "JSON", "SQuAD's")
        names(fails(verb, clf, folder / "chunks.txt"), "chunks.txt: ", "'.txt'", "--format")
        names(fails(verb, clf, folder / "squad.json"), "squad.json: ", "'.json'", "--format")
    Path("two.txt").write_text("good JJ\n")
    said = fails("evaluate", chunks, "two.txt")
    names(said, "two.txt line 1: ", "2 columns", "3", "conll2000", "--format or --columns")


def test_predicting(chunks: Path, qa: Path, folder: Path, here: Path) -> None:
    names(fails("predict", qa, "--text", "what?"), "span", "--text QUESTION --text PASSAGE", "1 text")
    names(fails("predict", qa, stdin="what?\n"), "input: ", "span", "JSON")
    names(fails("predict", qa, "--text", "a", "--columns", "text=x"), "--columns", "rows")
    names(fails("predict", chunks, "--text", " "), "--text 1: ", "words")
    names(fails("predict", chunks), "nothing", "--text", "input")
    names(fails("predict", qa, folder / "squad.json", "--out", "a.txt"), "a.txt: ", ".json", ".csv, .tsv or .parquet")
    names(fails("tokens", qa, "what?"), "span", "question", "passage", "1 text")
    names(fails("tokens", chunks, "a", "b"), "tagging", "sentence", "2 texts")
    said = fails("evaluate", chunks, folder / "chunks.txt", "--confusion", "c.png")
    names(said, "--confusion", str(chunks), "tagging")
    for run, task in ((chunks, "tagging"), (qa, "span")):
        said = fails("export", run, "--out", "exported")
        names(said, "transformers", task, "classification, entailment, regression, choice")
