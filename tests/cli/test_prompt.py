"""prompt, attention, import, export, and generate's other ways, from the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from cli_harness import fails, works


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
    assert "1 examples, 6 rows, 2 draws of examples" in shown and "±" in shown and "unbiased" in shown


@pytest.mark.parametrize("task, file", [("entailment", "ent.csv"), ("similarity", "sim.tsv"), ("choice", "cho.jsonl")])
def test_other_kinds(task: str, file: str, base: Path, files: Path) -> None:
    said = works("prompt", base, files / file, "--task", task, "--rows", 5).out
    assert "accuracy, per token" in said
    assert works("prompt", base, files / file, "--rows", 5).out == said, "the columns say what the task is"


def test_last_words_acceptability_and_referents(base: Path, here: Path) -> None:
    Path("words.txt").write_text("the film was good\nit is a story\n", encoding="utf-8")
    assert "perplexity per word" in works("prompt", base, "words.txt", "--task", "last-word").out
    rows = write_rows(Path("cola.csv"), ["text", "label"], [["the film is good", "1"], ["film the is", "0"]] * 3)
    assert "needs a threshold" in works("prompt", base, rows, "--task", "acceptability").out
    assert "matthews   " in works("prompt", base, rows, "--task", "acceptability", "--examples", rows).out
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
    assert "answer needs text" in fails(
        "prompt", base, write_rows(Path("e.csv"), ["question", "answer"], [["", "x"]]), "--task", "answer"
    )
    assert "rougeL" in works("prompt", base, texts, "--task", "summary").out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--task", "nonsense"], "no task 'nonsense'"),
        (["--shots", "many"], "--shots many"),
        (["--shots", "-1"], "--shots -1"),
        (["--template", "{text}"], "must end in {label}"),
        (["--words", "x=y"], "no label 'x'"),
        (["--seeds", "0"], "--seeds must be"),
        (["--rows", "-1"], "--rows must be"),
        (["--words", "good"], "--words good: write label=word"),
        (["--good", "1"], "--good is for acceptability"),
        (["--task", "last-word", "--format", "sst2"], "--format is for"),
        (["--task", "summary", "--shots", "1"], "--shots is for"),
        (["--out", "nowhere/a.jsonl"], "does not exist"),
        (["--shots", "100000"], "100000 examples are asked for"),
    ],
)
def test_mistakes(words: list[str], complaint: str, base: Path, files: Path) -> None:
    assert complaint in fails("prompt", base, files / "cls.csv", *words)


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
    assert "between 2 and" in fails("attention", base, "word " * 200, "--out", "b.html")
    assert not Path("b.html").exists()


def test_out_and_in(base: Path, clf: Path, here: Path) -> None:
    works("export", base, "--to", "hf", "--out", "out")
    works("import", "out", "--out", "run")
    prompt = ["--prompt", "the film", "--seed", 3, "--max-tokens", 8]
    assert works("generate", "run", *prompt).out == works("generate", base, *prompt).out
    assert "imported" in works("info", "run").out
    assert "not an empty folder" in fails("export", base, "--out", "out")
    assert "reads the mean of all states" in fails("export", clf, "--out", "clf")
    assert not Path("clf").exists()
    assert "cannot export to 'onnx'" in fails("export", base, "--to", "onnx", "--out", "o")
    assert "no such folder" in fails("import", "nowhere", "--out", "r")


def test_texts_of_a_file_and_beams(base: Path, here: Path) -> None:
    Path("prompts.txt").write_text("the film\nit was\n", encoding="utf-8")
    lines = works(
        "generate", base, "--prompts", "prompts.txt", "--seed", 1, "--max-tokens", 5, "--log-probabilities"
    ).out
    records = [json.loads(line) for line in lines.splitlines()]
    assert [record["prompt"] for record in records] == ["the film", "it was"]
    assert all(len(record["tokens"]) <= 5 and record["ending"] in ("end", "length") for record in records)
    assert works("generate", base, "--prompt", "the film", "--beams", 3, "--max-tokens", 5).out.startswith("the film")
    assert "not both" in fails("generate", base, "--prompt", "a", "--prompts", "prompts.txt")
    assert "repetition_penalty" in fails("generate", base, "--repetition-penalty", 0)
