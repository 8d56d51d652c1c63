"""`finetune --system cvt` by the command line: no run needed, text and other tasks beside the rows, and mistakes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import polars
import pytest
from cli_harness import fails, foretext, works
from complaints import names

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
    works(*given, *more).note(f"foretext predict {out}")
    works(*given, *more, "--resume").note(str(out), "finished")
    plain = [one for one in given if one not in SHAPE[1::2] and one != "--set"]
    works(*plain, *more, "--resume").note(str(out), "finished")  # the shape is the run's
    names(fails(*plain, *more, "--resume", "--set", "model.cells=20"), f"{out}: ", "model.cells", "12", "20")
    predicted = works("predict", out, "--text", "the zebra sees Tom").out.splitlines()
    assert [line.split()[0] for line in predicted if line.strip()] == ["the", "zebra", "sees", "Tom"]
    assert "f1" in works("evaluate", out, folder / "names.txt").out.lower()
    info = works("info", out).out
    assert "cvt tiny" in info and "unlabelled text: 1 · (forward, backward, future, past)" in info
    vectors = ("features", out, folder / "text.txt", "--out", folder / "v.parquet")
    works(*vectors).note("12 vectors", "16 dimensions", str(folder / "v.parquet"))
    works(*vectors, "--words", "--each")
    table = polars.read_parquet(folder / "v.parquet")
    assert table.columns == ["text", "word", "start", "end", "layer_0", "layer_1", "layer_2"]
    assert table["word"].to_list()[:5] == ["the", "dog", "sees", "Tom", "."]
    assert [set(table[f"layer_{layer}"].list.len()) for layer in range(3)] == [{8 + 3 * 3}, {16}, {16}]
    names(fails(*given, "--resume", "--epochs", 2), f"{out}: ", "--unlabelled, --also", "--vectors")


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
    said = works(*given, *more)
    said.note(f"{folder / 'speech.txt'}: ", "columns", "3 sentences")
    said.note(str(folder / "vectors.txt"), "vector")
    config = (out / "config.toml").read_text()
    assert 'speech-2 = "tagging 2"' in config and "vectors = 3" in config
    works(*given, *more, "--resume").note(str(out), "finished")
    (folder / "vectors.txt").write_text("cat 9 2 3\ndog 3 2 1\ngnu 1 1 1\n")
    names(fails(*given, *more, "--resume"), f"{out}: ", "--unlabelled, --also", "--vectors")
    said = fails(*given, "--also", f"tagging={folder / 'speech.txt'}:tag=9", "--out", folder / "x")
    names(said, "speech.txt line 1", "column 9", "3")


def test_mistakes(folder: Path) -> None:
    out = ("--out", folder / "x")
    (folder / "three.txt").write_text("dogs chase cats\nbirds eat worms\nchildren like games\n" * 2)
    for text in ("text.txt", "three.txt"):
        given = ("finetune", folder / text, "--system", "cvt", "--task", "tagging", "--unlabelled", folder / "text.txt")
        said = fails(*given, *out, *SHAPE)
        names(said, f"{text}: ", "tags", "--columns tag=NUMBER", "--unlabelled")
        said = fails(*given[:-1], folder / "names.txt", "--also", f"tagging={folder / text}", *out, *SHAPE)
        names(said, f"{text}: ", "tags", "--columns tag=NUMBER", "--unlabelled")
        said = fails("finetune", folder / text, "--system", "cvt", "--task", "classification", *out, *SHAPE)
        names(said, f"{text}: ", "'.txt'", "labels", "--format", "--unlabelled")
        assert "rename" not in said
    given = ("finetune", folder / "names.txt", "--task", "tagging", *out)
    other = ("--system", "gpt", "--unlabelled", folder / "text.txt", "--set", "tokenizer.size=300")
    names(fails(*given, *other), "--unlabelled", "cvt", "gpt")
    names(fails(*given, "--system", "cvt", "--also", "names.txt"), "--also names.txt: ", "--also tagging=names.txt")
    names(fails(*given, "--system", "cvt", "--also", f"tag={folder / 'speech.txt'}"), "task 'tag'", "'tagging'")
    (folder / "rows.csv").write_text("premise,hypothesis,label\na,b,x\nc,d,y\n" * 4)
    said = fails("finetune", folder / "rows.csv", "--system", "cvt", "--task", "entailment", *out)
    names(said, "cvt", "tagging", "classification", "entailment", "--system")
    settings = ("transfer.model=recurrent", "transfer.head=probe", "transfer.pooling=concat")
    for option in (("--plan", "ulmfit"), *(("--set", setting) for setting in settings)):
        names(fails(*given, "--system", "cvt", *option, *SHAPE), f"{option[0]} {option[1]}: ", "cvt", "heads")
    said = fails("pretrain", folder / "text.txt", "--system", "cvt", "--steps", 1, *out)
    names(said, "cvt", "foretext finetune FILE --system cvt", "--unlabelled TEXT")
    assert not (folder / "x").exists()
    assert foretext("systems").code == 0
