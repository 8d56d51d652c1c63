"""From two files and vectors to translations and BLEU, by the command line; and what can be given wrongly."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import polars
import pytest
from cli_harness import fails, works

SOURCES = ["the dog sleeps.", "the cat eats.", "a dog eats.", "a cat sleeps.", "the man sleeps.", "a man eats."]
TARGETS = ["Der Hund schläft.", "Die Katze isst.", "Ein Hund isst.", "Eine Katze schläft.", "Der Mann schläft."]
TARGETS += ["Ein Mann isst."]
WORDS = sorted({word for line in SOURCES for word in line.rstrip(".").split()} | {"."})
MINUTE = ["--set", "model.width=32", "--set", "objective.embedding=16", "--set", "objective.least_count=1"]
MINUTE += ["--set", "training.dropout=0", "--set", "training.batch_size=12", "--set", "training.rate=0.02"]


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parallel")
    (folder / "en.txt").write_text("".join(f"{line}\n" for line in SOURCES * 20), encoding="utf-8")
    (folder / "de.txt").write_text("".join(f"{line}\n" for line in TARGETS * 20), encoding="utf-8")
    rows = (
        " ".join([word, *("1" if place == number else "0" for place in range(9))]) for number, word in enumerate(WORDS)
    )
    (folder / "glove.txt.gz").write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    return folder


@pytest.fixture(scope="module")
def run(parallel: Path) -> Iterator[Path]:
    out = parallel / "run"
    works(
        *("pretrain", "--system", "cove", "--source", parallel / "en.txt", "--target", parallel / "de.txt"),
        *("--vectors", parallel / "glove.txt.gz", "--out", out, "--steps", 40, *MINUTE),
    )
    before = weights(out)
    yield out
    assert weights(out) == before, "a test changed the run"


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def test_a_run_translates_and_is_scored(parallel: Path, run: Path) -> None:
    assert "translation" in works("info", run).out and "en.txt and its translation" in works("info", run).out
    greedy = works("translate", run, "the dog sleeps.", "--beams", 1).out
    assert greedy == works("translate", run, "-", "--beams", 1, stdin="the dog sleeps.\n").out
    file = parallel / "some.txt"
    file.write_text("the dog sleeps.\n\nA CAT eats.\n")
    lines = works("translate", run, file).out.splitlines()
    assert len(lines) == 3 and lines[1] == "" and lines[0].endswith(".")
    works("translate", run, file, "--out", parallel / "out.txt")
    assert (parallel / "out.txt").read_text().splitlines() == lines
    pytest.importorskip("sacrebleu")
    files = ("--source", parallel / "en.txt", "--target", parallel / "de.txt")
    scores = json.loads(works("evaluate", run, *files, "--beams", 1, "--json").out)
    assert scores["pairs"] == 120 and scores["perplexity"] < 8 and 0 < scores["bleu"] <= 100
    assert "BLEU" in works("evaluate", run, *files).out


def test_a_run_gives_features_and_becomes_a_classifier(parallel: Path, run: Path, tmp_path: Path) -> None:
    file, given = tmp_path / "v.parquet", ("features", run, parallel / "en.txt", "--out", tmp_path / "v.parquet")
    works(*given, "--words", "--layers", "0")
    vectors = polars.read_parquet(file)["vector"]
    for options, rows in ((["--words"], len(vectors)), ([], 120)):
        said = works(*given, "--each", *options).err
        table = polars.read_parquet(file)
        assert f"{rows} vectors of 9 or 32 numbers in" in said and len(table) == rows
        for layer, width in enumerate((9, 32, 32)):
            assert set(table[f"layer_{layer}"].list.len()) == {width}
        assert not options or table["layer_0"].equals(vectors)
    assert "cannot be added up (layer 0 has 9, layer 1 has 32 numbers)" in fails(*given, "--layers", "0,1")
    rows = "text,label\n" + "".join(f"{line},{'eats' if 'eats' in line else 'sleeps'}\n" for line in SOURCES * 3)
    (tmp_path / "rows.csv").write_text(rows)
    out = tmp_path / "task"
    works("finetune", run, tmp_path / "rows.csv", "--task", "classification", "--out", out, "--epochs", 2)
    assert works("predict", out, "--text", "a dog eats.").out.startswith("text,prediction")


def test_mistakes(parallel: Path, run: Path, tmp_path: Path) -> None:
    both = ("--source", parallel / "en.txt", "--target", parallel / "de.txt")
    assert "give --vectors" in fails("pretrain", "--system", "cove", *both, "--steps", 1, "--out", tmp_path / "x")
    assert "is for a system that translates" in fails("pretrain", *both, "--steps", 1, "--out", tmp_path / "x")
    short = tmp_path / "short.txt"
    short.write_text("Ein Hund.\n")
    vectors = ("--vectors", parallel / "glove.txt.gz", "--steps", 1, "--out", tmp_path / "x")
    said = fails("pretrain", "--system", "cove", "--source", parallel / "en.txt", "--target", short, *vectors)
    assert "en.txt has 120 lines and" in said and "has 1: line n of one must be the translation" in said
    uneven = tmp_path / "uneven.txt"
    uneven.write_text("the 1 2\ndog 1\ncat 1 2\n")
    said = fails("pretrain", "--system", "cove", *both, "--vectors", uneven, "--steps", 1, "--out", tmp_path / "x")
    assert "uneven.txt line 2: 1 numbers where the others have 2" in said
    given = ("pretrain", "--system", "cove", *both, *vectors)
    assert "reads the words that --vectors has (word-list)" in fails(*given, "--set", "tokenizer.kind=unigram")
    assert "give at least 3" in fails(*given, "--set", "tokenizer.size=2")
    assert "tokenizer.size" in fails(*given, "--set", "tokenizer.size=few")
    assert not (tmp_path / "x").exists()
    assert "nosuch.txt: no such file" in fails("translate", run, "nosuch.txt")
    assert "nothing to translate" in fails("translate", run, "-", stdin="\n")
    assert "nothing to translate" in fails("translate", run, "")
    assert "is a folder" in fails("translate", run, f"{tmp_path}/")
    assert works("translate", run, "tests").out == works("translate", run, "-", stdin="tests\n").out, "a folder here"
    assert "beams must be a whole number" in fails("translate", run, "a dog", "--beams", 0)
    assert "translates: give --source FILE --target FILE instead of" in fails("evaluate", run, parallel / "en.txt")
    assert "--target is missing" in fails("evaluate", run, "--source", parallel / "en.txt")
    assert "name the files to evaluate on" in fails("evaluate", run)
    for option, value in (("--stride", 2), ("--metric", "f1"), ("--format", "sst2"), ("--confusion", "x.png")):
        assert f"{option} is not for translations" in fails("evaluate", run, *both, option, value)
    for option, value in (("--beams", 2), ("--language", "zh")):
        assert f"{option} is for translations" in fails("evaluate", run, parallel / "en.txt", option, value)
    assert "does not predict the words of its own text" in fails("fill", run, "a [MASK]")
    said = fails("generate", run, "--prompt", "a")
    assert "sees both sides" in said and "fill" not in said


def test_another_run_does_not_translate(base: Path) -> None:
    assert "is of gpt, which does not translate" in fails("translate", base, "a dog")
