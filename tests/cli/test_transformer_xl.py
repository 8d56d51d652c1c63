"""Transformer-XL as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_harness import fails, works
from complaints import names

TINY = [
    *("--set", "model.layers=2", "--set", "model.width=16", "--set", "model.heads=2", "--set", "model.context=16"),
    *("--set", "model.memory=16", "--set", "tokenizer.size=300", "--set", "training.batch_size=4"),
]


@pytest.fixture(scope="module")
def run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("xl") / "run"
    works("pretrain", files / "text.txt", "--system", "transformer_xl", "--steps", 3, *TINY, "--out", made)
    return made


def test_its_memory_is_said_and_set(run: Path, files: Path) -> None:
    names(works("evaluate", run, files / "text.txt").out, "256 tokens", "memory")
    found = json.loads(works("evaluate", run, files / "text.txt", "--memory", 3, "--json").out)
    usual = json.loads(works("evaluate", run, files / "text.txt", "--json").out)
    assert (found["memory"], usual["memory"]) == (3, 256) and found["per_token"] != usual["per_token"]
    assert works("generate", run, "--prompt", "the film", "--max-tokens", 40, "--seed", 1).out
    works("attention", run, "a text", "--out", files / "attention.html")
    rows = ("--task", "classification", "--epochs", 1, "--out", files / "xl-clf")
    works("finetune", run, files / "cls.csv", *rows)
    said = fails("evaluate", files / "xl-clf", files / "cls.csv", "--memory", 3)
    names(said, "--memory", str(files / "xl-clf"), "rows")


def test_mistakes(run: Path, base: Path, files: Path, tmp_path: Path) -> None:
    text = files / "text.txt"
    for words, parts in (
        (["evaluate", base, text, "--memory", 4], ("memory", "transformer_xl", "gpt")),
        (["evaluate", run, text, "--memory", -1], ("memory", "1,000,000", "-1")),
        (["evaluate", run, text, "--stride", 4], ("stride", "context", "transformer_xl")),
        (["export", run, "--out", tmp_path / "hf"], ("transformer_xl", "transformers", "export")),
    ):
        names(fails(*words), *parts)


def test_cutoffs_above_the_vocabulary_leave_nothing_behind(files: Path, tmp_path: Path) -> None:
    """They can be compared with it only when it is made; what the message ends with can be typed as it stands."""
    out = tmp_path / "run"
    command = ["pretrain", files / "text.txt", "--system", "transformer_xl", "--steps", 2, *TINY, "--out", out]
    words = ["--set", "tokenizer.kind=word-list"]
    for given in (["--size", "paper"], [*words, "--set", "model.cutoffs=10,400"]):
        said = names(fails(*command, *given), "model.cutoffs=", "26 pieces")
        assert said.endswith(" --set model.cutoffs=")
        assert not out.exists(), given
    rows = ["finetune", files / "cls.csv", "--system", "transformer_xl", "--size", "paper", "--task", "classification"]
    names(fails(*rows, *TINY, "--out", out), "model.cutoffs=20000,40000,200000: ", "26 pieces", "--set model.cutoffs=")
    assert not out.exists()
    works(*command, *words, "--set", "model.cutoffs=10,400", "--set", "model.cutoffs=")
    assert "cutoffs = []" in (out / "config.toml").read_text()


def test_a_longer_memory_alone_is_pointed_out_before_training(run: Path, files: Path, tmp_path: Path) -> None:
    command = ["pretrain", files / "text.txt", "--system", "transformer_xl", "--steps", 1, *TINY]
    longer = ["--set", "model.memory=300"]
    said = works(*command, *longer, "--out", tmp_path / "short")
    said.note("257 tokens", "--set model.evaluation_memory=315")
    said.note("--set model.clamp=315")
    both = [*longer, "--set", "model.evaluation_memory=315", "--set", "model.clamp=315"]
    onward = ["pretrain", files / "text.txt", "--steps", 1, "--from", tmp_path / "short"]
    for words in ([*command, *both], onward):  # a run that is gone on from keeps its numbers
        said = works(*words, "--out", tmp_path / f"other-{len(words)}").err
        assert "model.evaluation_memory" not in said and "model.clamp" not in said
