"""The masked systems on the command line: every verb that is theirs, and the mistakes that go with them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import polars
import pytest
import torch
from cli_harness import MINUTE, fails, foretext, works
from complaints import names
from tolerance import close

MASKS = {"bert": "[MASK]", "roberta": "<mask>", "albert": "[MASK]"}


@pytest.fixture(scope="module")
def runs(files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("masked")
    for system in MASKS:
        out = ("--out", folder / system, "--steps", 4)
        said = works("pretrain", files / "text.txt", "--system", system, *out, *MINUTE)
        said.note(system, "tiny", str(folder / system))
    return {system: folder / system for system in MASKS}


@pytest.mark.parametrize("system", MASKS)
def test_blanks_are_filled_with_probabilities(system: str, runs: dict[str, Path]) -> None:
    text = f"The story was {MASKS[system]} and {MASKS[system]}."
    found = json.loads(works("fill", runs[system], text, "--top", 400, "--json").out)
    assert found["text"].startswith("The story was") and len(found["blanks"]) == 2
    for blank in found["blanks"]:
        chances = [one["probability"] for one in blank]
        assert chances == sorted(chances, reverse=True)
        close(math.fsum(chances), 1.0, terms=400, precision=torch.float32)  # the softmax over all pieces
    shown = works("fill", runs[system], text, "--top", 3).out
    assert len(re.findall(r"\d\.\d", shown)) >= 6, "three candidates for each of two blanks"


@pytest.mark.parametrize("system", MASKS)
def test_pseudo_perplexity(system: str, runs: dict[str, Path], files: Path) -> None:
    assert "pseudo-perplexity" in works("evaluate", runs[system], files / "text.txt").out


@pytest.mark.parametrize("system", MASKS)
def test_vectors_of_words(system: str, runs: dict[str, Path], files: Path, tmp_path: Path) -> None:
    out = tmp_path / "words.parquet"
    works("features", runs[system], files / "text.txt", "--layers", "0,1", "--words", "--out", out)
    table = polars.read_parquet(out)
    assert {len(vector) for vector in table["vector"]} == {32} and table["word"].str.len_chars().min() > 0


@pytest.mark.parametrize("system", MASKS)
def test_out_as_a_folder_of_others_and_back(system: str, runs: dict[str, Path], files: Path, tmp_path: Path) -> None:
    works("export", runs[system], "--out", tmp_path / "folder")
    works("import", tmp_path / "folder", "--out", tmp_path / "again")
    text = f"The story was {MASKS[system]}."
    assert works("fill", tmp_path / "again", text, "--json").out == works("fill", runs[system], text, "--json").out
    task = ("--task", "classification", "--epochs", 1, "--out", tmp_path / "clf")
    works("finetune", tmp_path / "again", files / "cls.csv", *task)
    labels = set(polars.read_csv(files / "cls.csv")["label"].cast(str))
    assert any(label in works("predict", tmp_path / "clf", "--text", "a lovely film").out for label in labels)


def test_a_causal_run_fills_no_blanks(base: Path) -> None:
    said = fails("fill", base, "The story was [MASK].")
    names(said, str(base), "gpt", "bert, roberta, albert", "foretext generate")


def test_a_text_without_a_blank(runs: dict[str, Path]) -> None:
    names(fails("fill", runs["bert"], "The story was good."), "blank", "[MASK]")


def test_a_masked_run_writes_nothing(runs: dict[str, Path], files: Path) -> None:
    said = foretext("generate", runs["bert"], "--prompt", "The story")
    names(said.complaint, "bert", "sides", "foretext fill")
    assert said.code == 2 and said.out == "", "nothing is shown before it is refused"
    named = ("bert", "gpt, gpt2, modern, ulmfit, elmo, transformer_xl, xlnet", "foretext fill")
    for verb in (("generate",), ("prompt", files / "cls.csv")):
        said = foretext(verb[0], runs["bert"], *verb[1:], "--direction", "backward")
        assert "--direction" not in names(said.complaint, *named), "no direction would help"
        assert said.code == 2 and said.out == "" and said.err == said.complaint + "\n"
    said = foretext("prompt", runs["bert"], files / "cls.csv")
    names(said.complaint, *named)
    assert said.out == "" and said.err == said.complaint + "\n", "nor of a task that nobody is asked"
