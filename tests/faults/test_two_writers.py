"""One writer: the second refuses and names the first; the lock of a dead one is taken over (faults rows 4 and 6)."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from complaints import names, refused

from foretext.runs import lock
from foretext.runs.directory import RunDirectory
from foretext.runs.lock import Owner, host_name, start_time

COMMITTER = str(Path(__file__).with_name("committer.py"))
ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock of tmp_path."""
    process = subprocess.Popen([sys.executable, COMMITTER, str(tmp_path), "hold"], stdout=subprocess.PIPE, env=ENV)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()


@pytest.fixture(params=["flock", "no flock"])
def any_file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of file system: with flock, and one that refuses it."""
    if request.param == "no flock":

        def refuse(descriptor: int, operation: int) -> None:
            raise OSError(lock.errno.ENOTSUP, "not supported")

        monkeypatch.setattr(lock.fcntl, "flock", refuse)
        monkeypatch.setattr(lock, "_SETTLE", 0.02)


def refuses(run: RunDirectory, *parts: str) -> str:
    with refused(*parts) as caught, run.writer():
        pass
    return str(caught.value)


def write_lock(folder: Path, host: str, pid: int, started: int) -> None:
    (folder / "lock.json").write_text(json.dumps({"host": host, "pid": pid, "started": started, "token": "x"}))


@pytest.mark.usefixtures("any_file_system")
def test_the_second_writer_names_the_first(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    held = json.loads((tmp_path / "lock.json").read_text())
    assert held["pid"] == holder.pid
    text = refuses(RunDirectory(tmp_path), str(tmp_path), f"process {holder.pid}", host_name())
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", text), "since when"
    assert json.loads((tmp_path / "lock.json").read_text()) == held, "the refused one changes nothing"


@pytest.mark.usefixtures("any_file_system")
def test_the_lock_of_a_killed_writer_is_taken_over(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    time.sleep(0.05)  # not waited for: a zombie is dead too
    notices: list[str] = []
    with RunDirectory(tmp_path).writer(notices.append) as writer:
        writer.commit({"config.toml": b"x"})
    assert len(notices) == 1
    names(notices[0], "lock", f"process {holder.pid}")
    assert not (tmp_path / "lock.json").exists()


@pytest.mark.usefixtures("any_file_system")
def test_a_second_writer_in_the_same_process(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.writer() as writer:
        refuses(run, str(tmp_path), f"process {os.getpid()}")
        writer.commit({"config.toml": b"x"})
    with run.writer():
        pass


def test_another_host_is_never_overruled(tmp_path: Path) -> None:
    write_lock(tmp_path, "elsewhere", os.getpid(), 1)
    parts = (f"process {os.getpid()}", "elsewhere", "remove", str(tmp_path / "lock.json"))
    refuses(RunDirectory(tmp_path), str(tmp_path), *parts)
    assert "elsewhere" in (tmp_path / "lock.json").read_text()


def test_a_process_number_that_was_used_again(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    """The number lives, but started at another time than the lock says: the owner is dead."""
    other = tmp_path / "other"
    other.mkdir()
    started = start_time(holder.pid)
    assert started
    write_lock(other, host_name(), holder.pid, started)
    refuses(RunDirectory(other), str(other), f"process {holder.pid}")
    write_lock(other, host_name(), holder.pid, started - 1)
    with RunDirectory(other).writer():
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": -1, "host": "x", "started": 0}', '{"pid": "1"}', "[" * 9000])
def test_a_lock_that_says_nothing_is_no_obstacle(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.json").write_text(text)
    with RunDirectory(tmp_path).writer() as writer:
        writer.commit({"config.toml": b"x"})


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("alive")
    (tmp_path / "lock.json").symlink_to(tmp_path / "victim")
    refuses(RunDirectory(tmp_path), f"{tmp_path / 'lock.json'}: ", "link")
    assert (tmp_path / "victim").read_text() == "alive"


def test_a_lock_removed_by_hand(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.writer() as first:
        first.commit({"config.toml": b"1"})
        (tmp_path / "lock.json").unlink()
        first.commit({"config.toml": b"2"})
        (tmp_path / "lock.json").unlink()
        with run.writer() as second:
            with refused(str(tmp_path), f"process {os.getpid()}"):
                first.commit({"config.toml": b"3"})
            second.commit({"config.toml": b"4"})
        with refused(f"{tmp_path}: ", "changed"):
            first.commit({"config.toml": b"5"})
    assert run.read("config.toml") == b"4"


def test_a_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from foretext.runs.directory import RunDirectory\n"
        f"with RunDirectory({str(tmp_path)!r}).writer():\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os.close(1); time.sleep(20); os._exit(0)\n"
        "    print(pid, flush=True); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=ENV, timeout=10)
    worker = int(done.stdout)
    try:
        os.kill(worker, 0)  # the worker lives
        with RunDirectory(tmp_path).writer():
            pass
    finally:
        os.kill(worker, 9)


def test_many_at_once_only_one_gets_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from foretext.runs.directory import RunDirectory; from foretext.errors import UserError\n"
        "sys.stdin.readline()\n"
        "try:\n"
        f"    with RunDirectory({str(tmp_path)!r}).writer(): print('got', flush=True); time.sleep(1)\n"
        "except UserError: print('refused', flush=True)\n"
    )
    write_lock(tmp_path, host_name(), 2**22 + 1, 1)  # a dead owner, that all of them want to succeed
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENV) for _ in range(6)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    answers = sorted(process.communicate()[0] for process in processes)
    assert answers == [b"got\n"] + [b"refused\n"] * 5


# ── what dead writers leave ──────────────────────────────────────────────────────────────────────────────────────────


def leftover(folder: Path, owner: Owner) -> Path:
    staging = folder / f".staging-{owner.host}-{owner.pid}-{owner.started}-ab12"
    staging.mkdir()
    (staging / "0-model.safetensors").write_bytes(b"half")
    return staging


def test_staging_is_swept_only_when_its_owner_is_dead(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    folder = tmp_path / "run"
    run = RunDirectory(folder)
    with run.writer() as writer:
        writer.commit({"config.toml": b"x"})
    started = start_time(holder.pid)
    assert started
    living = leftover(folder, Owner(host_name(), holder.pid, started))
    foreign = leftover(folder, Owner("else-where".replace("-", "_"), 2**22 + 1, 1))
    same_pid_elsewhere = leftover(folder, Owner("elsewhere", os.getpid(), start_time(os.getpid()) or 0))
    reused = leftover(folder, Owner(host_name(), holder.pid, started - 1))
    dead = leftover(folder, Owner(host_name(), 2**22 + 1, 1))
    not_ours = folder / ".staging-of-the-user"
    not_ours.mkdir()
    assert run.read("config.toml") == b"x"
    assert all(path.exists() for path in (living, foreign, reused, dead)), "reading sweeps nothing"
    with run.writer():
        pass
    assert [path.exists() for path in (living, foreign, same_pid_elsewhere, not_ours)] == [True] * 4
    assert [path.exists() for path in (reused, dead)] == [False] * 2
