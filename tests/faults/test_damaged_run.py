"""Damaged and hostile run directories: refused, naming the file; nothing outside is touched (faults rows 3 and 24)."""

import hashlib
import json
import os
import random
from pathlib import Path

import pytest
import torch
from complaints import refused

from foretext.runs.directory import RunDirectory, newest_commit

MODEL = "model.safetensors"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        writer.commit({"config.toml": b"a = 1\n", MODEL: {"w": torch.arange(1000.0)}, "training/position.json": b"{}"})
    return run


def refuses_to_write(run: RunDirectory, *parts: str) -> None:
    with refused(*parts), run.writer():
        pass


def write_manifest(run: RunDirectory, name: str, data: bytes) -> None:
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (run.path / "manifest.json").write_text(json.dumps({"format": 1, "files": {name: entry}}))


def test_cut_short(run: RunDirectory) -> None:
    size = (run.path / MODEL).stat().st_size
    for cut in (0, 1, size // 2, size - 1):
        os.truncate(run.path / MODEL, size)
        os.truncate(run.path / MODEL, cut)
        for call in (run.load_tensors, run.read):
            with refused(f"{MODEL}: {cut:,} bytes", "manifest.json", f"{size:,}"):
                call(MODEL)


def test_one_bit_flipped_anywhere(run: RunDirectory) -> None:
    whole = (run.path / MODEL).read_bytes()
    for _ in range(50):
        data = bytearray(whole)
        data[random.Random(_).randrange(len(data))] ^= 1 << (_ % 8)
        (run.path / MODEL).write_bytes(data)
        with refused(f"{MODEL}: ", "SHA-256", "manifest.json"):
            run.load_tensors(MODEL)
    (run.path / MODEL).write_bytes(whole)
    run.load_tensors(MODEL)


def test_missing_or_not_an_ordinary_file(run: RunDirectory, tmp_path: Path) -> None:
    def refuses_to_load(*parts: str) -> None:
        with refused(str(run.path / MODEL), *parts):
            run.load_tensors(MODEL)

    (run.path / MODEL).rename(tmp_path / "moved")
    refuses_to_load("missing", "manifest.json")
    (run.path / MODEL).symlink_to(tmp_path / "moved")
    refuses_to_load("link")
    (run.path / MODEL).unlink()
    os.mkfifo(run.path / MODEL)
    refuses_to_load("regular")
    (run.path / MODEL).unlink()
    (run.path / MODEL).mkdir()
    refuses_to_load("directory")


def test_a_folder_that_is_a_link(run: RunDirectory, tmp_path: Path) -> None:
    (run.path / "training").rename(tmp_path / "elsewhere")
    (run.path / "training").symlink_to(tmp_path / "elsewhere")
    parts = (f"{run.path / 'training'}: ", "link")
    with refused(*parts):
        run.read("training/position.json")
    with run.writer() as writer:
        for name in ("position.json", "other.json"):
            with refused(*parts):
                writer.commit({f"training/{name}": b"new"})
    assert (tmp_path / "elsewhere/position.json").read_bytes() == b"{}"
    assert not list(run.path.glob(".staging*"))


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "training/../../secret", ".hidden", "a\\..\\b", "x\x00y"])
def test_a_manifest_with_names_that_lead_out(run: RunDirectory, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    write_manifest(run, name, b"secret")
    parts = ("manifest.json: ", repr(name), "directory")
    with refused(*parts):
        run.read(name)
    with refused(*parts):
        run.names()
    refuses_to_write(run, *parts)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"format": 2, "files": {}}',
        b'{"format": 1, "files": []}',
        b'{"format": 1, "files": {"config.toml": 3}}',
        b'{"format": 1, "files": {"config.toml": {"bytes": -1, "sha256": ""}}}',
        b'{"format": 1, "files": {"config.toml": {"bytes": true, "sha256": ""}}}',
        b"[" * 1_000_000,
        b'{"a":' * 500_000,
        b"9" * 3_000_000,
        b" " * 5_000_000,
    ],
    ids=lambda text: repr(text[:50]),
)
@pytest.mark.parametrize("name", ["manifest.json", "commit.json"])
def test_damaged_json(run: RunDirectory, name: str, text: bytes) -> None:
    (run.path / name).write_bytes(text)
    with refused(f"{run.path / name}: "):
        run.read("config.toml")
    refuses_to_write(run, f"{run.path / name}: ")


def journal(**changes: object) -> str:
    entry = {"staged": "manifest.json", "bytes": 2, "sha256": "0" * 64}
    staging = ".staging-host-1-1-ab"
    return json.dumps({"format": 1, "staging": staging, "files": {"manifest.json": entry}, "remove": [], **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"remove": ["../victim"]},
        {"remove": [3]},
        {"staging": ".."},
        {"staging": ".staging-x/../.."},
        {"files": {"../victim": {"staged": "x", "bytes": 2, "sha256": "0" * 64}}},
        {"files": {"config.toml": {"staged": "../../victim", "bytes": 2, "sha256": "0" * 64}}},
        {"files": {"config.toml": {"bytes": 2, "sha256": "0" * 64}}},
        {"files": {"config.toml": {"staged": "a/b", "bytes": 2, "sha256": "0" * 64}}},
    ],
    ids=str,
)
def test_a_hostile_journal_touches_nothing(run: RunDirectory, tmp_path: Path, changes: dict) -> None:
    (tmp_path / "victim").write_text("alive")
    (run.path / "commit.json").write_text(journal(**changes))
    with refused("commit.json: "):
        run.read("config.toml")
    refuses_to_write(run, "commit.json: ")
    assert (tmp_path / "victim").read_text() == "alive"
    assert (run.path / "config.toml").read_bytes() == b"a = 1\n"


def test_a_journal_whose_staging_folder_is_a_link(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/manifest.json").write_text("{}")
    (run.path / ".staging-host-1-1-ab").symlink_to(tmp_path / "outside")
    (run.path / "commit.json").write_text(journal())
    with refused(".staging-host-1-1-ab: ", "link"):
        run.read("config.toml")
    refuses_to_write(run, ".staging-host-1-1-ab: ", "link")
    assert (tmp_path / "outside/manifest.json").exists()


def test_a_journal_whose_files_are_gone_moves_nothing(run: RunDirectory) -> None:
    (run.path / "commit.json").write_text(journal())
    refuses_to_write(run, f"{run.path / 'manifest.json'}: ", "missing", "commit.json")
    assert (run.path / "commit.json").exists()
    assert not (run.path / "lock.json").exists(), "the refused writer gives its lock back"


def folder_of(run: RunDirectory) -> Path:
    """Where files of the newest commit would be that are not in their places yet."""
    newest = newest_commit(run.path)
    assert newest is not None
    return run.path / newest.folder


def test_a_folder_of_a_commit_that_is_a_link(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/config.toml").write_text("b = 1\n")
    folder = folder_of(run)
    folder.symlink_to(tmp_path / "outside")
    with refused(f"{folder}: ", "link"):
        run.read("config.toml")
    refuses_to_write(run, f"{folder}: ", "link")
    assert (tmp_path / "outside/config.toml").exists()


def test_a_link_inside_the_folder_of_a_commit(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/position.json").write_text("{}")
    folder_of(run).mkdir()
    link = folder_of(run) / "training"
    link.symlink_to(tmp_path / "outside")
    with refused(f"{link}: ", "link"):
        run.read("training/position.json")
    refuses_to_write(run, f"{link}: ", "link")
    assert (tmp_path / "outside/position.json").exists()


@pytest.mark.parametrize("name", ["../victim", "config.toml"])
def test_a_hostile_list_of_removed_files_touches_nothing(run: RunDirectory, tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").write_text("alive")
    folder_of(run).mkdir()
    entry = {"bytes": 5, "sha256": "0" * 64}
    (folder_of(run) / ".removed.json").write_text(json.dumps({"format": 1, "files": {name: entry}}))
    if name == "config.toml":
        with run.writer():
            pass
    else:
        refuses_to_write(run, ".removed.json: ", repr(name), "directory")
    assert (tmp_path / "victim").read_text() == "alive"
    assert run.read("config.toml") == b"a = 1\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 7,
        (10**12).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little") + b"{}",
        (500_000).to_bytes(8, "little") + b"[" * 500_000,
        (2).to_bytes(8, "little") + b"{}" + b"trailing",
        (72).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}      '
        + b"0000",
    ],
    ids=range(7),
)
def test_hostile_safetensors_with_a_fitting_manifest(run: RunDirectory, data: bytes) -> None:
    (run.path / MODEL).write_bytes(data)
    write_manifest(run, MODEL, data)
    with refused(f"{run.path / MODEL}: "):
        run.load_tensors(MODEL)
