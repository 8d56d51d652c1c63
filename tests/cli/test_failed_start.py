"""A start that fails must not stand in the way of the corrected command."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from cli_harness import MINUTE, fails, foretext, works
from complaints import names

from foretext.runs.lock import LOCK

NEVER = [
    (["--set", "model.init_std=-1"], ("model.init_std", "10", "-1.0"), 2),
    (["--set", "model.epsilon=0"], ("model.epsilon", "0.0"), 2),
    (["--set", "model.layers=100000"], ("model.layers", "1,000", "100000"), 2),
    (["--set", "model.width=10000000000000000"], ("model.width", "100,000,000", "10000000000000000"), 2),
    (["--set", "tokenizer.sample_megabytes=0"], ("tokenizer.sample_megabytes", "0"), 2),
    (["--set", "tokenizer.size=100000000000000000000"], ("tokenizer.size", "10,000,000", "100000000000000000000"), 2),
    (["--set", "model.width=100000000"], ("weights", "TB", "--size, --set model.width=… or model.layers=…"), 4),
    (
        ["--set", "training.batch_size=900000", "--set", "training.micro_batch=900000"],
        ("GB", "--set training.micro_batch=450000", "--size", "--set model.width=… or model.layers=…"),
        4,
    ),
]


@pytest.mark.parametrize(("options", "parts", "code"), NEVER, ids=[" ".join(options) for options, _, _ in NEVER])
def test_settings_that_cannot_work_write_nothing(
    options: list[str], parts: tuple[str, ...], code: int, files: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "foretext.train.pretraining.run_setup.train_tokenizer", lambda *given, **more: pytest.fail("too late")
    )
    complaint = fails("pretrain", files / "text.txt", "--steps", 2, *MINUTE, *options, "--out", "run", code=code)
    assert "batch_size" not in names(complaint, *parts)
    assert not Path("run").exists()


def test_a_new_model_for_rows_that_does_not_fit(files: Path, here: Path) -> None:
    rows = ["finetune", files / "cls.csv", "--system", "gpt", "--task", "classification", "--out", "run"]
    said = fails(*rows, "--set", "model.width=99999999", code=4)
    assert "micro_batch" not in names(said, "weights", "TB", "--size, --set model.width=… or model.layers=…")
    names(fails(*rows, "--set", "model.init_std=-1"), "model.init_std", "-1.0")
    names(fails(*rows, *MINUTE, "--set", "transfer.rate_decay=0"), "transfer.rate_decay", "0.0")
    assert not Path("run").exists()


@pytest.fixture
def broken(files: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A start that the machine ended after the vocabulary and the shards were made; the command."""
    command: list[object] = ["pretrain", files / "text.txt", "--steps", 2, "--out", "run"]

    def exhausted(loop: object, stage: object) -> float:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("foretext.train.pretraining.pretrain.probe_speed", exhausted)
        assert foretext(*command, *MINUTE).code == 4
    assert Path("run/tokens/manifest.json").exists() and Path("run/config.toml").exists()
    return command


def test_the_corrected_command_starts_over(broken: list[object]) -> None:
    said = works(*broken, *MINUTE, "--set", "model.width=16", "--set", "tokenizer.size=300")
    said.note("run: ", "over", "checkpoint")
    assert "width 16" in works("info", "run").out
    names(fails(*broken, *MINUTE), "run", "--resume", "--out")


def test_resume_still_goes_on(broken: list[object]) -> None:
    assert "checkpoint" not in works("pretrain", "--out", "run", "--resume").err


def test_only_what_the_run_wrote_is_cleared(broken: list[object]) -> None:
    Path("run/notes.txt").write_text("mine")
    Path("run/tokens/manifest.json").write_text("{}")  # shards that are not known to be this run's
    names(fails(*broken, *MINUTE, "--set", "model.context=100000"), "text.txt: ", "--set model.context=")
    assert sorted(path.name for path in Path("run").iterdir()) == ["notes.txt", "tokens"]
    works(*broken, *MINUTE)
    assert Path("run/notes.txt").read_text() == "mine"


def test_a_run_that_is_being_written_is_not_started_over(broken: list[object]) -> None:
    from foretext.runs.directory import RunDirectory

    before = Path("run/config.toml").read_bytes()
    with RunDirectory("run").writer():
        assert Path("run", LOCK).exists()
        names(fails(*broken, *MINUTE), "run", f"process {os.getpid()}")
    assert Path("run/config.toml").read_bytes() == before


def test_a_fine_tuning_that_did_not_begin(files: Path, base: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["finetune", base, files / "cls.csv", "--task", "classification", "--out", "run", "--epochs", 1]

    def exhausted(loop: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("foretext.train.loop.Loop.run", exhausted)
        assert foretext(*command).code == 4
    assert Path("run/config.toml").exists()
    works(*command, "--set", "training.batch_size=4").note("run: ", "over", "checkpoint")
    names(fails(*command), "run", "--resume", "--out")


def test_damaged_shards_say_how_they_are_made_again(broken: list[object], base: Path, here: Path) -> None:
    Path("run/tokens/train-00000.bin").unlink()
    names(fails("pretrain", "--out", "run", "--resume"), "train-00000.bin: missing", "run/tokens", "--resume")
    shutil.rmtree("run/tokens")
    works("pretrain", "--out", "run", "--resume")
    shutil.copytree(base, "stopped")
    position = Path("stopped/training/position.json")
    position.write_text(position.read_text().replace("true", "false"))
    manifest = json.loads(Path("stopped/manifest.json").read_text())
    data = position.read_bytes()
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["files"]["training/position.json"] = entry
    Path("stopped/manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree("stopped/tokens")
    said = fails("pretrain", "--out", "stopped", "--resume")
    names(said, "stopped/tokens/manifest.json: missing", "pretrain TEXT --from stopped --out ANOTHER")
