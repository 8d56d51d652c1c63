"""--config FILE: settings from a TOML file, as if they stood before those of --set."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli_harness import MINUTE, fails, works
from complaints import names

SHAPE = """
[model]
layers = 2
width = 16
heads = 2
context = 32

[tokenizer]
size = 300

[training]
rate = 0.002
batch_size = 4
"""


def config_of(run: str) -> dict[str, Any]:
    return tomllib.loads(Path(run, "config.toml").read_text(encoding="utf-8"))


def test_pretraining_by_a_file(files: Path, here: Path) -> None:
    Path("my.toml").write_text(SHAPE, encoding="utf-8")
    command = ["pretrain", files / "text.txt", "--steps", 2, "--config", "my.toml"]
    works(*command, "--set", "training.rate=0.003", "--out", "run")
    found = config_of("run")
    assert [found["model"][key] for key in ("layers", "width", "context")] == [2, 16, 32]
    assert found["tokenizer"]["size"] == 300
    assert (found["training"]["rate"], found["training"]["batch_size"]) == (0.003, 4), "--set wins"
    sets = [
        f"{section}.{key}={value}" for section, table in tomllib.loads(SHAPE).items() for key, value in table.items()
    ]
    options = [word for one in [*sets, "training.rate=0.003"] for word in ("--set", one)]
    works("pretrain", files / "text.txt", "--steps", 2, *options, "--out", "sets")
    assert Path("sets/model.safetensors").read_bytes() == Path("run/model.safetensors").read_bytes()


def test_going_on_compares_with_the_file(files: Path, base: Path, here: Path) -> None:
    Path("my.toml").write_text(SHAPE, encoding="utf-8")
    works("pretrain", files / "text.txt", "--steps", 2, "--config", "my.toml", "--out", "run")
    again = ["pretrain", "--resume", "--out", "run", "--config", "my.toml"]
    works(*again).note("run", "finished", "--from run")
    Path("my.toml").write_text(SHAPE.replace("0.002", "0.001"), encoding="utf-8")
    works(*again).note("run", "finished", "training.rate: 0.002 → 0.001", "--from run")
    Path("my.toml").write_text(SHAPE.replace("width = 16", "width = 32"), encoding="utf-8")
    names(fails(*again), "run", "model.width", "16", "32")
    Path("my.toml").write_text(SHAPE, encoding="utf-8")
    started = ["pretrain", files / "text.txt", "--steps", 2, "--from", base, "--config", "my.toml", "--out", "new"]
    names(fails(*started), f"--from {base}", "model.width", "32", "16")


def test_finetuning_by_a_file(files: Path, base: Path, here: Path) -> None:
    Path("my.toml").write_text("[training]\nbatch_size = 4\n[transfer]\nlm_weight = 0.25\n", encoding="utf-8")
    command = ["finetune", base, files / "cls.csv", "--task", "classification", "--epochs", 1, "--config", "my.toml"]
    works(*command, "--set", "training.batch_size=8", "--out", "run")
    assert config_of("run")["training"]["batch_size"] == 8 and config_of("run")["transfer"]["lm_weight"] == 0.25
    names(fails(*command, "--lm-weight", 0, "--out", "no"), "my.toml [transfer] lm_weight", "--lm-weight")
    Path("my.toml").write_text(SHAPE, encoding="utf-8")
    names(fails(*command, "--out", "no"), "my.toml [model]", "training, transfer")
    works("finetune", files / "cls.csv", "--system", "gpt", *command[3:], "--out", "new")
    assert config_of("new")["model"]["width"] == 16 and config_of("new")["training"]["batch_size"] == 4


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"[model]\nlayer = 2\n", ("my.toml [model] layer", "'layer'", "'layers'")),
        (b"[modell]\nlayers = 2\n", ("my.toml [modell]", "'model'")),
        (b'[model]\nlayers = "2"\n', ("my.toml [model] layers", "number", "'2'")),
        (b"[model]\nvocabulary = 9\n", ("my.toml [model] vocabulary", "--set tokenizer.size=")),
        (b"layers = 2\n", ("my.toml: ", "'layers'", "[training]")),
        (b"layers: 2\n", ("my.toml: ", "TOML", "line 1, column 7")),
        (b"[model]\n# caf\xe9\n", ("my.toml: ", "UTF-8", "offset 13")),
        (None, ("my.toml: ", "path")),
    ],
    ids=["key", "section", "type", "derived", "top", "not-toml", "latin", "missing"],
)
def test_mistakes(data: bytes | None, parts: tuple[str, ...], files: Path, here: Path) -> None:
    if data is not None:
        Path("my.toml").write_bytes(data)
    command = ["pretrain", files / "text.txt", "--steps", 2, *MINUTE, "--config", "my.toml", "--out", "run"]
    names(fails(*command), *parts)
    assert not Path("run").exists()
