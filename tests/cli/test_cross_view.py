"""`finetune --system cvt` by the command line: no run needed, text and other tasks beside the rows, and mistakes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import polars
import pytest
from cli_harness import fails, foretext, works

LAYERS = ["--set", "model.cells=12", "--set", "model.upper_cells=12", "--set", "model.direction=8"]
LAYERS += ["--set", "model.char_filters=3", "--set", "objective.hidden=8"]
SHAPE = [*LAYERS, "--set", "model.vectors=8"]


def columns(count: int, seed: int, tags: tuple[str, str]) -> str:
    draw = random.Random(seed)
    blocks = []
    for _ in range(count):
        words = ["the", draw.choice(["cat", "dog"]), "sees", draw.choice(["Ann", "Tom"])]
        blocks.append("".join(f"{word} {tags[word in ('Ann', 'Tom')]}\n" for word in words))
    return "\n".join(blocks)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "names.txt").write_text(columns(12, 0, ("O", "B-PER")))
    (tmp_path / "speech.txt").write_text(columns(8, 1, ("X", "PROPN")))
    (tmp_path / "text.txt").write_text("the dog sees Tom .\nthe cat sees Ann and a dog .\n" * 6)
    return tmp_path


def test_rows_text_and_another_task(folder: Path) -> None:
    out = folder / "run"
    given = (*("finetune", folder / "names.txt", "--system", "cvt", "--task", "tagging", "--out", out), *SHAPE)
    more = ("--unlabelled", folder / "text.txt", "--also", f"tagging={folder / 'speech.txt'}", "--epochs", 2)
    said = works(*given, *more)
    assert "the model is in" in said.err
    assert "is finished; nothing to do" in works(*given, *more, "--resume").err
    plain = [one for one in given if one not in SHAPE[1::2] and one != "--set"]
    assert "is finished; nothing to do" in works(*plain, *more, "--resume").err, "the shape is the run's"
    said = fails(*plain, *more, "--resume", "--set", "model.cells=20")
    assert "model.cells was 12 and cannot become 20 when going on" in said
    predicted = works("predict", out, "--text", "the zebra sees Tom").out.splitlines()
    assert [line.split()[0] for line in predicted if line.strip()] == ["the", "zebra", "sees", "Tom"]
    assert "f1" in works("evaluate", out, folder / "names.txt").out.lower()
    assert "cvt tiny" in works("info", out).out
    vectors = ("features", out, folder / "text.txt", "--out", folder / "v.parquet")
    assert "12 vectors of 16 numbers in" in works(*vectors).err
    works(*vectors, "--words", "--each")
    table = polars.read_parquet(folder / "v.parquet")
    assert table.columns == ["text", "word", "start", "end", "layer_0", "layer_1", "layer_2"]
    assert table["word"].to_list()[:5] == ["the", "dog", "sees", "Tom", "."]
    assert [set(table[f"layer_{layer}"].list.len()) for layer in range(3)] == [{8 + 3 * 3}, {16}, {16}]
    said = fails(*given, "--resume", "--epochs", 2)
    assert "unlabelled text or the other tasks are not those" in said


def test_the_vocabulary_has_what_is_learned_from_and_nothing_that_is_held_out(folder: Path) -> None:
    blocks = [f"the cat sees w{number} B-N\n".replace(" ", " O\n", 3) for number in range(10)]
    (folder / "rows.txt").write_text("\n".join(blocks))
    (folder / "speech.txt").write_text("a X\ngnu PROPN\n\n" * 3)
    given = ("finetune", folder / "rows.txt", "--system", "cvt", "--task", "tagging", "--epochs", 1, *SHAPE)
    works(*given, "--also", f"tagging={folder / 'speech.txt'}", "--hold-out", 0.3, "--out", folder / "run")
    pieces = json.loads((folder / "run" / "tokenizer.json").read_text())["pieces"]
    assert "gnu" in pieces
    assert len([word for word in pieces if word.startswith("w") and word[1:].isdigit()]) == 7


def test_columns_vectors_and_formats(folder: Path) -> None:
    (folder / "vectors.txt").write_text("cat 1 2 3\ndog 3 2 1\ngnu 1 1 1\n")
    (folder / "speech.txt").write_text("a X O\ngnu PROPN B-PER\n\n" * 3)
    (folder / "names.txt").write_text("the DT O\nAnn NNP B-PER\n\n" * 6)
    out = folder / "run"
    given = ("finetune", folder / "names.txt", "--system", "cvt", "--task", "tagging", "--format", "conll2000")
    more = ("--also", f"tagging={folder / 'speech.txt'}:tag=2", "--unlabelled", folder / "speech.txt", "--out", out)
    more = (*more, "--vectors", folder / "vectors.txt", "--epochs", 1, *LAYERS)
    said = works(*given, *more).err
    assert "columns, of which the words are read (3 sentences) and no tags" in said
    assert "words have a vector in" in said
    config = (out / "config.toml").read_text()
    assert 'speech-2 = "tagging 2"' in config and "vectors = 3" in config
    assert "nothing to do" in works(*given, *more, "--resume").err
    (folder / "vectors.txt").write_text("cat 9 2 3\ndog 3 2 1\ngnu 1 1 1\n")
    assert "or the vectors; give the same" in fails(*given, *more, "--resume")
    said = fails(*given, "--also", f"tagging={folder / 'speech.txt'}:tag=9", "--out", folder / "x")
    assert "speech.txt line 1" in said


def test_mistakes(folder: Path) -> None:
    out = ("--out", folder / "x")
    (folder / "three.txt").write_text("dogs chase cats\nbirds eat worms\nchildren like games\n" * 2)
    for text in ("text.txt", "three.txt"):
        given = ("finetune", folder / text, "--system", "cvt", "--task", "tagging", "--unlabelled", folder / "text.txt")
        said = fails(*given, *out, *SHAPE)
        assert f"{text}: looks like running text without tags; labelled rows have a word and its tag a line" in said
        assert "text without tags is for --unlabelled" in said
        said = fails(*given[:-1], folder / "names.txt", "--also", f"tagging={folder / text}", *out, *SHAPE)
        assert f"{text}: looks like running text without tags" in said
        said = fails("finetune", folder / text, "--system", "cvt", "--task", "classification", *out, *SHAPE)
        assert f"{text}: the ending '.txt' is not one of" in said and "looks like running text without labels" in said
        assert "labelled rows have columns" in said and "--unlabelled" in said and "rename" not in said
    given = ("finetune", folder / "names.txt", "--task", "tagging", *out)
    assert "is for a system that learns from rows and text at once" in fails(
        *given, "--system", "gpt", "--unlabelled", folder / "text.txt", "--set", "tokenizer.size=300"
    )
    assert "write a task and its file" in fails(*given, "--system", "cvt", "--also", "names.txt")
    assert "no task 'tag'" in fails(*given, "--system", "cvt", "--also", f"tag={folder / 'speech.txt'}")
    (folder / "rows.csv").write_text("premise,hypothesis,label\na,b,x\nc,d,y\n" * 4)
    said = fails("finetune", folder / "rows.csv", "--system", "cvt", "--task", "entailment", *out)
    assert "cvt is taught tagging and classification, not entailment" in said
    said = fails(*given, "--system", "cvt", "--set", "transfer.model=recurrent", *SHAPE)
    assert "transfer.model=recurrent: cvt has heads of its own" in said
    for option in (("--plan", "ulmfit"), ("--set", "transfer.head=probe"), ("--set", "transfer.pooling=concat")):
        said = fails(*given, "--system", "cvt", *option, *SHAPE)
        assert f"{option[0]} {option[1]}: " in said and "cvt has heads of its own" in said
    assert "cvt is not pre-trained" in fails("pretrain", folder / "text.txt", "--system", "cvt", "--steps", 1, *out)
    assert not (folder / "x").exists()
    assert foretext("systems").code == 0
