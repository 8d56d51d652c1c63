"""prompt, attention, import, export, and generate's other ways, from the command line."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from cli_harness import MINUTE, fails, works
from complaints import names


def write_rows(path: Path, header: list[str], rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_choosing_with_examples(base: Path, files: Path) -> None:
    said = works(
        "prompt", base, files / "cls.csv", "--task", "classification", "--shots", "0,2", "--rows", 12, "--json"
    )
    found = json.loads(said.out)
    assert found["rows"] == 12 and [result["shots"] for result in found["results"]] == [0, 2]
    assert [result["draws"] for result in found["results"]] == [1, 3]
    for result in found["results"]:
        assert list(result["scores"]) == [f"accuracy, {name}" for name in ("sum", "per token", "per byte", "unbiased")]
        assert all(0 <= value["mean"] <= 1 for value in result["scores"].values())
    shown = works("prompt", base, files / "cls.csv", "--shots", 1, "--rows", 6, "--seeds", 2).out
    names(shown, "1 example, 6 rows, 2 draws", "±", "unbiased")


@pytest.mark.parametrize("task, file", [("entailment", "ent.csv"), ("similarity", "sim.tsv"), ("choice", "cho.jsonl")])
def test_other_kinds(task: str, file: str, base: Path, files: Path) -> None:
    said = works("prompt", base, files / file, "--task", task, "--rows", 5).out
    assert all(f"accuracy, {name}" in said for name in ("sum", "per token", "per byte"))
    assert works("prompt", base, files / file, "--rows", 5).out == said, "the columns say what the task is"


@pytest.fixture(scope="module")
def leftward(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("leftward") / "base"
    works("pretrain", files / "text.txt", "--out", run, "--steps", 4, "--direction", "backward", *MINUTE)
    return run


def test_a_run_that_reads_from_right_to_left(leftward: Path, base: Path, files: Path, here: Path) -> None:
    """It is asked as it reads, whether one says so or not."""
    asked = ("prompt", leftward, files / "cls.csv", "--shots", "0,1", "--seeds", 2, "--rows", 3, "--out", "a.jsonl")
    said = works(*asked).out
    assert "1 example, 3 rows, 2 draws of examples, right to left" in said
    assert said.count("accuracy, sum") == said.count("accuracy, channel") == 2 and "per token" not in said
    assert works(*asked, "--direction", "backward").out == said
    lines = [json.loads(line) for line in Path("a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["context"].count("Label:") for line in lines] == [1] * 9, "the row itself"
    assert [line["behind"].count("Label:") for line in lines] == [0] * 3 + [1] * 6, "and examples behind it"
    assert all(set(line["scores"]) == {"sum", "channel"} for line in lines)
    found = json.loads(works(*asked[:-2], "--json").out)
    assert found["direction"] == "backward" and set(found["results"][0]["scores"]) == {
        "accuracy, sum",
        "accuracy, channel",
    }
    names(fails(*asked, "--direction", "forward"), "--direction forward", "gpt", "foretext pretrain")
    names(fails("prompt", base, *asked[2:], "--direction", "backward"), "--direction backward", "foretext pretrain")
    rows = write_rows(Path("cola.csv"), ["text", "label"], [["the film is good", "1"], ["film the is", "0"]])
    assert "area under" in works("prompt", leftward, rows, "--task", "acceptability").out
    blank = {"context": "the actor saw the scene and _ was good", "choice1": "he", "choice2": "it", "label": 2}
    Path("w.jsonl").write_text(json.dumps(blank) + "\n")
    assert "accuracy, channel" in works("prompt", leftward, "w.jsonl", "--task", "winograd").out
    for task, header in (("summary", ["text", "summary"]), ("last-word", ["text"])):
        rows = write_rows(Path("told.csv"), header, [["the film is good", "film"][: len(header)]])
        names(fails("prompt", leftward, rows), task, "forward", "classification, entailment")


def test_last_words_acceptability_and_referents(base: Path, here: Path) -> None:
    Path("words.txt").write_text("the film was good\nit is a story\n", encoding="utf-8")
    names(works("prompt", base, "words.txt", "--task", "last-word").out, "perplexity", "word")
    rows = write_rows(Path("cola.csv"), ["text", "label"], [["the film is good", "1"], ["film the is", "0"]] * 3)
    said = works("prompt", base, rows, "--task", "acceptability").out
    assert not re.search(r"matthews +-?\d", names(said, "threshold", "--examples"))
    said = works("prompt", base, rows, "--task", "acceptability", "--examples", rows).out
    assert re.search(r"matthews +-?\d", said)
    Path("w.jsonl").write_text(
        json.dumps({"context": "the actor saw the scene and _ was good", "choice1": "he", "choice2": "it", "label": 2})
        + "\n"
    )
    assert "accuracy, sum" in works("prompt", base, "w.jsonl", "--task", "winograd").out


def test_written_answers(base: Path, here: Path) -> None:
    rows = write_rows(Path("qa.csv"), ["question", "answer"], [["what film", "good"], ["which story", "bad"]])
    found = json.loads(works("prompt", base, rows, "--task", "answer", "--shots", 1, "--seeds", 2, "--json").out)
    assert found["rows"] == 2 and set(found["results"][0]["scores"]) == {"exact_match", "f1"}
    assert found["results"][0]["draws"] == 2 and len(found["results"][0]["texts"][0]) == 2
    texts = write_rows(Path("s.csv"), ["text", "summary"], [["the film was good and bright.", "good film"]])
    empty = write_rows(Path("e.csv"), ["question", "answer"], [["", "x"]])
    names(fails("prompt", base, empty, "--task", "answer"), "e.csv row 2: ", "answer", "columns")
    assert "rougeL" in works("prompt", base, texts, "--task", "summary").out


MISTAKES: list[tuple[list[str], tuple[str, ...]]] = [
    (["--task", "nonsense"], ("task 'nonsense'", "classification, entailment, similarity, choice, last-word")),
    (["--shots", "many"], ("--shots many: ", "0,1,5")),
    (["--shots", "-1"], ("--shots -1: ", "0,1,5")),
    (["--template", "{text}"], ("--template", "{label}")),
    (["--words", "x=y"], ("--words: ", "label 'x'", "neg, pos")),
    (["--seeds", "0"], ("--seeds", "0")),
    (["--rows", "-1"], ("--rows", "-1")),
    (["--words", "good"], ("--words good: ", "label=word")),
    (["--good", "1"], ("--good", "acceptability", "classification")),
    (["--task", "last-word", "--format", "sst2"], ("--format", "classification, entailment", "last-word")),
    (["--task", "summary", "--shots", "1"], ("--shots", "classification, entailment", "summary")),
    (["--out", "nowhere/a.jsonl"], ("nowhere/a.jsonl: ", "nowhere ")),
    (["--shots", "100000"], ("100000", "23 rows")),
]


@pytest.mark.parametrize(("words", "parts"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes(words: list[str], parts: tuple[str, ...], base: Path, files: Path) -> None:
    names(fails("prompt", base, files / "cls.csv", *words), *parts)


def test_few_rows_are_asked_and_the_others_are_examples(base: Path, files: Path, here: Path) -> None:
    works("prompt", base, files / "cls.csv", "--rows", 2, "--shots", 5, "--seeds", 1, "--out", "a.jsonl")
    lines = [json.loads(line) for line in Path("a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 2 and all(line["context"].count("Label:") == 6 and line["cut"] for line in lines)
    assert set(lines[0]["scores"]) == {"sum", "per token", "per byte", "unbiased"}


def test_a_page_of_attention(base: Path, here: Path) -> None:
    works("attention", base, "the film </script> was good", "--out", "a.html")
    page = Path("a.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 2 and "http" not in page.split("<script")[0]
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    length = len(data["pieces"])
    assert (data["layers"], data["heads"]) == (2, 2)
    assert [len(row) for row in data["weights"][1][1]] == list(range(1, length + 1))
    names(fails("attention", base, "word " * 200, "--out", "b.html"), "tokens", "2", "32")
    assert not Path("b.html").exists()


def test_out_and_in(base: Path, clf: Path, here: Path) -> None:
    works("export", base, "--to", "hf", "--out", "out")
    works("import", "out", "--out", "run")
    prompt = ["--prompt", "the film", "--seed", 3, "--max-tokens", 8]
    assert works("generate", "run", *prompt).out == works("generate", base, *prompt).out
    assert "imported" in works("info", "run").out
    names(fails("export", base, "--out", "out"), "foretext: out ", "folder", "--out")
    names(fails("export", clf, "--out", "clf"), "transformers", "--set transfer.pooling=extract")
    assert not Path("clf").exists()
    names(fails("export", base, "--to", "onnx", "--out", "o"), "'onnx'", "hf")
    names(fails("import", "nowhere", "--out", "r"), "nowhere: ", "config.json", "params_shapes.json", "options.json")


def test_texts_of_a_file_and_beams(base: Path, here: Path) -> None:
    Path("prompts.txt").write_text("the film\nit was\n", encoding="utf-8")
    lines = works(
        "generate", base, "--prompts", "prompts.txt", "--seed", 1, "--max-tokens", 5, "--log-probabilities"
    ).out
    records = [json.loads(line) for line in lines.splitlines()]
    assert [record["prompt"] for record in records] == ["the film", "it was"]
    assert all(len(record["tokens"]) <= 5 and record["ending"] in ("end", "length") for record in records)
    assert works("generate", base, "--prompt", "the film", "--beams", 3, "--max-tokens", 5).out.startswith("the film")
    names(fails("generate", base, "--prompt", "a", "--prompts", "prompts.txt"), "--prompt or --prompts", "both")
    names(fails("generate", base, "--repetition-penalty", 0), "repetition_penalty", "0.0")
