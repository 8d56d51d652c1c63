"""Real faults on token shards: a flipped bit, a file cut short or gone, a full disk, a kill in the middle."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from complaints import names, refused

from foretext.errors import EXIT_MACHINE
from foretext.text.corpus.readers import ReadOptions, find_files
from foretext.text.corpus.shard_writing import Sharding, write_shards
from foretext.text.corpus.shards import TokenShards
from foretext.text.tokenizers.byte_bpe import byte_bpe_from_merges

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = tmp_path / "a.txt"
    text.write_text("\n".join(f"document number {n}" for n in range(200)))
    out = tmp_path / "tokens"
    tokenizer = byte_bpe_from_merges([])
    write_shards(find_files([text]), ReadOptions(), tokenizer, out, Sharding(0, 0.2, 2_000), workers=0)
    return out


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


FAULTS = {
    "flipped": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"ab"),
    "missing": lambda path: path.unlink(),
}
NAMED = {"flipped": "SHA-256", "cut": "2022 bytes", "longer": "2026 bytes", "missing": "missing"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_shard_is_named(folder: Path, fault: str) -> None:
    assert len(TokenShards.open(folder, "train", verify=True)) > 0
    FAULTS[fault](folder / "train-00001.bin")
    with refused(f"{folder / 'train-00001.bin'}: ", NAMED[fault]):
        TokenShards.open(folder, "train", verify=True)
    TokenShards.open(folder, "valid", verify=True)


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"format": 9}', '{"format": 1, "splits": 3}', "[" * 100_000])
def test_a_bad_manifest_is_named(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    with refused(f"{folder / 'manifest.json'}: "):
        TokenShards.open(folder, "train", verify=True)


def test_a_manifest_that_points_outside_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("train-00000.bin", "../a.txt"))
    with refused(f"{path}: ", "'../a.txt'"):
        TokenShards.open(folder, "train", verify=False)


WRITE = """
import sys
from pathlib import Path
from foretext.errors import UserError
from foretext.text.tokenizers.byte_bpe import byte_bpe_from_merges
from foretext.text.corpus.readers import ReadOptions, find_files
from foretext.text.corpus.shard_writing import write_shards, Sharding
text, out = sys.argv[1:]
limit = {limit}
if limit:
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print("go", flush=True)
try:
    tokenizer = byte_bpe_from_merges([])
    write_shards(find_files([text]), ReadOptions(), tokenizer, Path(out), Sharding(0, .1), workers=1)
except UserError as error:
    print(error)
    raise SystemExit(error.code)
"""


def start(text: Path, out: Path, limit: int = 0) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", WRITE.replace("{limit}", str(limit)), str(text), str(out)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: the write fails half-way with an error of the system."""
    text = tmp_path / "a.txt"
    text.write_text("word " * 200 + "\n" + "other words \n" * 100_000)
    process = start(text, tmp_path / "out", limit=500_000)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_MACHINE
    assert os.strerror(errno.EFBIG) in names(output, str(tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_killed_while_writing(tmp_path: Path, folder: Path) -> None:
    """The earlier shards stay whole, the workers end, and the next writer sweeps what was left."""
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    text = tmp_path / "big.txt"
    text.write_text("many words on a line, again and again\n" * 1_000_000)
    process = start(text, folder)
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".tokens.staging/*.bin")) and time.monotonic() < deadline:
        time.sleep(0.01)
    children = _children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = list(tmp_path.glob(".tokens.staging"))
    assert len(left) == 1 and len(children) == 1
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before
    for child in children:
        while _running(child) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _running(child), "a worker outlived its parent"
    small = tmp_path / "a.txt"
    write_shards(find_files([small]), ReadOptions(), byte_bpe_from_merges([]), folder, Sharding(0, 0.2), workers=0)
    assert not list(tmp_path.glob(".tokens.*"))


def _children(process: int) -> list[int]:
    try:
        return [int(n) for n in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        pytest.skip("this system does not list child processes under /proc")


def _running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
