"""From two files and vectors to translations and BLEU, by the command line; and what can be given wrongly."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars
import pytest
import torch
from cli_harness import fails, works
from complaints import names
from tolerance import close

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


def test_where_a_translation_looks(parallel: Path, run: Path, tmp_path: Path) -> None:
    text = "the dog eats the cat."
    lines = [text, "", "a zebra sleeps."]
    (tmp_path / "some.txt").write_text("".join(f"{line}\n" for line in lines))
    given = ("translate", run, tmp_path / "some.txt")
    plain = works(*given).out.splitlines()
    found = [json.loads(line) for line in works(*given, "--show-attention", "--json").out.splitlines()]
    assert [one["text"] for one in found] == lines and [one["translation"] for one in found] == plain
    assert [json.loads(line) for line in works(*given, "--json").out.splitlines()] == [
        {"text": one, "translation": other} for one, other in zip(lines, plain)
    ]
    assert found[0]["source"] == ["the", "dog", "eats", "the", "cat", "."] and found[1]["weights"] == []
    assert found[2]["unknown"] == ["zebra"]
    for one in found:
        assert len(one["weights"]) == len(one["target"])
        for row in one["weights"]:
            assert len(row) == len(one["source"])
            close(sum(row), 1.0, terms=len(row), precision=torch.float32)
    works(*given, "--show-attention", "--out", tmp_path / "shown.txt")
    shown = works(*given, "--show-attention").out
    assert (tmp_path / "shown.txt").read_text() == shown
    tables = shown.split("\n\n")
    first, *rows = tables[0].splitlines()
    assert first == plain[0] and [row.split()[0] for row in rows] == found[0]["target"]
    shown_as = ["the(1)", "dog", "eats", "the(4)", "cat", "."]
    for row, weights in zip(rows, found[0]["weights"]):
        most = sorted(range(len(shown_as)), key=lambda place: -weights[place])[:3]
        assert row.split()[1:] == [part for place in most for part in (shown_as[place], f"{weights[place]:.2f}")]
    assert "zebra" in shown.splitlines()[-2]

    works("attention", run, text, "--out", tmp_path / "a.html").note(str(tmp_path / "a.html"))
    works("attention", run, text, "--out", tmp_path / "b.html", "--target", "Ein Hund isst.")
    for file, target in (("a.html", found[0]["target"]), ("b.html", ["Ein", "Hund", "isst", ".", "<end>"])):
        page = (tmp_path / file).read_text(encoding="utf-8")
        data = json.loads(page.split('id="data">')[1].split("</script>")[0])
        assert data["pieces"] == found[0]["source"] and data["rows"] == target
        assert [len(row) for row in data["weights"][0][0]] == [6] * len(target)
        if file == "a.html":  # which rounds to tenths of a per cent
            assert np.abs(np.array(data["weights"][0][0]) - 1000 * np.array(found[0]["weights"])).max() <= 0.51


def test_a_run_gives_features_and_becomes_a_classifier(parallel: Path, run: Path, tmp_path: Path) -> None:
    file, given = tmp_path / "v.parquet", ("features", run, parallel / "en.txt", "--out", tmp_path / "v.parquet")
    works(*given, "--words", "--layers", "0")
    vectors = polars.read_parquet(file)["vector"]
    for options, rows in ((["--words"], len(vectors)), ([], 120)):
        works(*given, "--each", *options).note(f"{rows} vectors", "9 or 32 dimensions", str(file))
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
    names(fails("attention", out, "a dog", "--out", tmp_path / "a.html"), str(out), "decoder", "pre-trained run")


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
    for options in ([], ["--show-attention"]):
        names(fails("translate", base, "a dog", *options), str(base), "gpt", "pretrain --system cove")
    names(fails("attention", base, "a dog", "--target", "x", "--out", "a.html"), "--target", "cove", "gpt")
