"""A really full disk (faults row 2): a tiny tmpfs, mounted for the test. Needs root; skipped, saying so, without."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from complaints import refused

from foretext.errors import EXIT_MACHINE, UserError
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import check_space


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=2m", "foretext-test", str(disk)]
    if os.geteuid() != 0 or mount is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root (and Linux)")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def contents(run: RunDirectory) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(run.path.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("large", [b"x" * 3_000_000, {"w": torch.zeros(750_000)}], ids=["bytes", "tensors"])
def test_disk_full_while_saving(small_disk: Path, large: object) -> None:
    run = RunDirectory(small_disk / "run")
    with run.writer() as writer:
        writer.commit({"config.toml": b"old", "training/position.json": b"{}"})
        before = contents(run)
        with refused("disk", str(run.path), "3.0 MB", "2.1 MB") as caught:
            writer.commit({"config.toml": b"new", "model.safetensors": large}, remove=["training/position.json"])
        assert caught.value.code == EXIT_MACHINE
        assert contents(run) == before, "the old checkpoint is intact and nothing is left over"
        writer.commit({"config.toml": b"smaller"})
    assert run.read("config.toml") == b"smaller"
    assert not run.has("model.safetensors")


def test_every_amount_of_free_space(small_disk: Path) -> None:
    """Wherever in the commit the space runs out, the files agree afterwards."""
    run = RunDirectory(small_disk / "run")
    names = ("a", "b", "training/c")
    with run.writer() as writer:
        writer.commit(dict.fromkeys(names, b"0" * 20_000))
        too_full = 0
        for pages in range(0, 24):
            filler = small_disk / "filler"
            free = shutil.disk_usage(small_disk).free
            filler.write_bytes(b"\0" * (free - pages * 4096))
            data = str(pages).encode() * 10_000
            before = run.read("a")
            try:
                writer.commit(dict.fromkeys(names, data))
            except UserError as error:
                assert error.code == EXIT_MACHINE
                too_full += 1
                data = before
            assert [run.read(name) for name in names] == [data] * 3
            assert not list(run.path.glob(".staging*"))
            filler.unlink()
    assert 5 < too_full < 24


def test_disk_full_in_the_log_leaves_no_half_line(small_disk: Path) -> None:
    run = RunDirectory(small_disk / "run")
    with run.writer() as writer:
        writer.log.append({"step": 1})
        with refused("disk", str(run.path / "metrics.jsonl"), "10.0 KB") as caught:
            for step in range(2, 1000):
                writer.log.append({"step": step, "text": "x" * 10_000})
        assert caught.value.code == EXIT_MACHINE
        rows = run.metrics()
        assert (run.path / "metrics.jsonl").read_bytes().endswith(b"\n")
        assert [row["step"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) > 100


def test_too_full_for_the_lock(small_disk: Path) -> None:
    (small_disk / "run").mkdir()
    (small_disk / "filler").write_bytes(b"\0" * shutil.disk_usage(small_disk).free)
    with refused("disk", str(small_disk / "run/lock.json")) as caught, RunDirectory(small_disk / "run").writer():
        pass
    assert caught.value.code == EXIT_MACHINE
    assert not list((small_disk / "run").iterdir())


def test_space_is_asked_for_before_the_run(tmp_path: Path) -> None:
    check_space(tmp_path / "not" / "there" / "yet", 1)
    with refused("disk", str(tmp_path / "runs"), "1000000.0 TB", "--out") as caught:
        check_space(tmp_path / "runs", 10**18)
    assert caught.value.code == EXIT_MACHINE
