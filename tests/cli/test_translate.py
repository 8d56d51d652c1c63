"""From two files and vectors to translations and BLEU, by the command line; and what can be given wrongly."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import polars
import pytest
from cli_harness import fails, works
from complaints import names

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
    names(works("info", run).out, "en.txt", "translation")
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
        works(*given, "--each", *options).note(f"{rows} vectors", "9 or 32 numbers", str(file))
        table = polars.read_parquet(file)
        assert len(table) == rows
        for layer, width in enumerate((9, 32, 32)):
            assert set(table[f"layer_{layer}"].list.len()) == {width}
        assert not options or table["layer_0"].equals(vectors)
    names(fails(*given, "--layers", "0,1"), "layer 0", "9", "layer 1", "32", "--each", "each=True")
    rows = "text,label\n" + "".join(f"{line},{'eats' if 'eats' in line else 'sleeps'}\n" for line in SOURCES * 3)
    (tmp_path / "rows.csv").write_text(rows)
    out = tmp_path / "task"
    works("finetune", run, tmp_path / "rows.csv", "--task", "classification", "--out", out, "--epochs", 2)
    assert works("predict", out, "--text", "a dog eats.").out.startswith("text,prediction")


def test_mistakes(parallel: Path, run: Path, tmp_path: Path) -> None:
    both = ("--source", parallel / "en.txt", "--target", parallel / "de.txt")
    budget = ("--steps", 1, "--out", tmp_path / "x")
    names(fails("pretrain", "--system", "cove", *both, *budget), "cove", "--vectors")
    names(fails("pretrain", *both, *budget), "--source", "cove", "gpt")
    short = tmp_path / "short.txt"
    short.write_text("Ein Hund.\n")
    vectors = ("--vectors", parallel / "glove.txt.gz", *budget)
    said = fails("pretrain", "--system", "cove", "--source", parallel / "en.txt", "--target", short, *vectors)
    names(said, "en.txt", "120 lines", str(short), "1")
    uneven = tmp_path / "uneven.txt"
    uneven.write_text("the 1 2\ndog 1\ncat 1 2\n")
    said = fails("pretrain", "--system", "cove", *both, "--vectors", uneven, *budget)
    names(said, "uneven.txt line 2: ", "1 numbers", "2")
    given = ("pretrain", "--system", "cove", *both, *vectors)
    names(
        fails(*given, "--set", "tokenizer.kind=unigram"), "tokenizer.kind=unigram: ", "cove", "--vectors", "word-list"
    )
    names(fails(*given, "--set", "tokenizer.size=2"), "tokenizer.size=2: ", "3")
    names(fails(*given, "--set", "tokenizer.size=few"), "tokenizer.size=few: ", "number")
    assert not (tmp_path / "x").exists()
    names(fails("translate", run, "nosuch.txt"), "nosuch.txt: ", "path")
    names(fails("translate", run, "-", stdin="\n"), "nothing", "input")
    names(fails("translate", run, ""), "nothing", "input")
    names(fails("translate", run, f"{tmp_path}/"), str(tmp_path), "folder")
    assert works("translate", run, "tests").out == works("translate", run, "-", stdin="tests\n").out, "a folder here"
    names(fails("translate", run, "a dog", "--beams", 0), "beams", "0")
    said = fails("evaluate", run, parallel / "en.txt")
    names(said, str(run), "--source FILE --target FILE", str(parallel / "en.txt"))
    names(fails("evaluate", run, "--source", parallel / "en.txt"), "--target", "missing")
    names(fails("evaluate", run), "text", "rows", "--source", "--target")
    for option, value in (("--stride", 2), ("--metric", "f1"), ("--format", "sst2"), ("--confusion", "x.png")):
        names(fails("evaluate", run, *both, option, value), f"foretext: {option} ", "--source", "--target")
    for option, value in (("--beams", 2), ("--language", "zh")):
        said = fails("evaluate", run, parallel / "en.txt", option, value)
        names(said, f"foretext: {option} ", "--source FILE", "--target FILE")
    names(fails("fill", run, "a [MASK]"), str(run), "cove", "bert, roberta, albert")
    said = names(fails("generate", run, "--prompt", "a"), "cove", "sides")
    assert "fill" not in said


def test_another_run_does_not_translate(base: Path) -> None:
    names(fails("translate", base, "a dog"), str(base), "gpt", "pretrain --system cove")
