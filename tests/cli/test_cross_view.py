"""`finetune --system cvt` by the command line: no run needed, text and other tasks beside the rows, and mistakes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from cli_harness import fails, foretext, works

SHAPE = ["--set", "model.cells=12", "--set", "model.upper_cells=12", "--set", "model.direction=8"]
SHAPE += ["--set", "model.vectors=8", "--set", "model.char_filters=3", "--set", "objective.hidden=8"]


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
    predicted = works("predict", out, "--text", "the zebra sees Tom").out.splitlines()
    assert [line.split()[0] for line in predicted if line.strip()] == ["the", "zebra", "sees", "Tom"]
    assert "f1" in works("evaluate", out, folder / "names.txt").out.lower()
    assert "cvt tiny" in works("info", out).out
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


def test_mistakes(folder: Path) -> None:
    out = ("--out", folder / "x")
    said = fails("finetune", folder / "text.txt", "--system", "cvt", "--task", "tagging", *out)
    assert "text.txt" in said and "foretext: " in said, "unlabelled text in place of labels"
    print(said)
    given = ("finetune", folder / "names.txt", "--task", "tagging", *out)
    assert "is for a system that learns from rows and text at once" in fails(
        *given, "--system", "gpt", "--unlabelled", folder / "text.txt", "--set", "tokenizer.size=300"
    )
    assert "write a task and its file" in fails(*given, "--system", "cvt", "--also", "names.txt")
    assert "no task 'tag'" in fails(*given, "--system", "cvt", "--also", f"tag={folder / 'speech.txt'}")
    (folder / "rows.csv").write_text("premise,hypothesis,label\na,b,x\nc,d,y\n" * 4)
    said = fails("finetune", folder / "rows.csv", "--system", "cvt", "--task", "entailment", *out)
    assert "cvt is taught tagging and classification, not entailment" in said
    assert "cvt is not pre-trained" in fails("pretrain", folder / "text.txt", "--system", "cvt", "--steps", 1, *out)
    assert not (folder / "x").exists()
    assert foretext("systems").code == 0
