"""SIGKILL before every stage of a commit, and at random moments: a checkpoint is whole or invisible (faults row 1)."""

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from foretext.runs.directory import RunDirectory, newest_commit, open_plain

sys.path.insert(0, str(Path(__file__).parent))
from committer import commit, content, journal_of, one_step, step_of

COMMITTER = str(Path(__file__).with_name("committer.py"))
ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def kill_before(run: RunDirectory, number: int) -> None:
    """One step in a process of its own, which dies before stage `number`."""
    pid = os.fork()
    if pid == 0:
        try:
            one_step(run, number)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9


def with_step(path: Path, step: int) -> RunDirectory:
    run = RunDirectory(path)
    if step:
        with run.writer() as writer:
            commit(writer, step)
    return run


def is_clean(run: RunDirectory) -> bool:
    wanted = {"config.toml", "model.safetensors", "training", "manifest.json"}
    return {path.name for path in run.path.iterdir()} <= wanted


@pytest.mark.parametrize("start", [0, 1], ids=["first commit", "removing a file"])
def test_killed_before_every_stage(tmp_path: Path, start: int) -> None:
    base = with_step(tmp_path / "base", start)
    stages = one_step(with_step(tmp_path / "count", start))
    assert "commit" in stages and len(stages) > 20
    point = stages.index("commit") + 1
    for number in range(1, len(stages) + 1):
        run = RunDirectory(tmp_path / str(number))
        if start:
            shutil.copytree(base.path, run.path)
        kill_before(run, number)
        expected = start + 1 if number > point else start
        assert step_of(run) == expected, f"a reader after a kill before stage {number} ({stages[number - 1]})"
        with run.writer():
            assert step_of(run) == expected, f"the next writer after a kill before {stages[number - 1]}"
        assert step_of(run) == expected
        assert is_clean(run), f"left over after a kill before {stages[number - 1]}: {list(run.path.iterdir())}"


def interrupted(path: Path, by_journal: bool) -> RunDirectory:
    """A directory whose second commit was made, but none of its files is in its place yet."""
    run = with_step(path, 1)
    if by_journal:
        journal_of(run, 2)
    else:
        kill_before(run, one_step(with_step(path.with_name(f"count {path.name}"), 1)).index("commit") + 2)
    assert (run.path / "commit.json").exists() == by_journal
    assert newest_commit(run.path).path("config.toml").parent != run.path
    return run


BY_JOURNAL = pytest.mark.parametrize("by_journal", [False, True], ids=["now", "before"])


@BY_JOURNAL
def test_killed_again_while_rolling_forward(tmp_path: Path, by_journal: bool) -> None:
    broken = interrupted(tmp_path / "broken", by_journal)
    stages = one_step(RunDirectory(shutil.copytree(broken.path, tmp_path / "count")))
    assert stages.index("make the folder") > 8
    for number in range(1, stages.index("make the folder") + 2):
        run = RunDirectory(shutil.copytree(broken.path, tmp_path / str(number)))
        kill_before(run, number)
        assert step_of(run) == 2
        with run.writer() as writer:
            commit(writer, 3)
        assert step_of(run) == 3 and is_clean(run)


@BY_JOURNAL
def test_a_reader_overtaken_between_looking_and_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_journal: bool
) -> None:
    """The next writer finishes the commit after the reader saw where the staged file is, and before it opened it."""
    for overtaken in ("manifest.json", "config.toml") if by_journal else ("config.toml",):
        run = interrupted(tmp_path / overtaken, by_journal)
        opened: list[Path] = []

        def overtake(path: Path, run: RunDirectory = run, opened: list[Path] = opened, name: str = overtaken):
            if path.name.endswith(name) and not opened:
                opened.append(path)
                with run.writer():
                    pass
            return open_plain(path)

        monkeypatch.setattr("foretext.runs.directory.open_plain", overtake)
        monkeypatch.setattr("foretext.runs.commit.open_plain", overtake)
        assert run.read("config.toml") == content(2)
        assert opened[0].parent != run.path
        monkeypatch.undo()


def test_killed_at_random_moments(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    moments = random.Random(7)
    reported = 0
    for _ in range(15):
        process = subprocess.Popen([sys.executable, COMMITTER, str(run.path), "loop"], stdout=subprocess.PIPE, env=ENV)
        assert process.stdout is not None
        assert process.stdout.readline()  # it is under way
        time.sleep(moments.uniform(0, 0.05))
        process.kill()
        lines = process.stdout.read().split()
        process.wait()
        reported = int(lines[-1]) if lines else reported
        assert step_of(run) >= max(reported, 1)
    assert step_of(run) > 15


def test_a_reader_beside_a_busy_writer_sees_only_whole_files(tmp_path: Path) -> None:
    run = with_step(tmp_path / "run", 1)
    stop = threading.Event()
    problems: list[BaseException] = []

    def write() -> None:
        try:
            with run.writer() as writer:
                for step in range(2, 10_000):
                    commit(writer, step)
                    if stop.is_set():
                        return
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    last, reads, end = 0, 0, time.monotonic() + 1.5
    try:
        while time.monotonic() < end:
            step = int(run.read("training/position.json").split()[0])
            assert run.read("model.safetensors")
            assert step >= last, "time went backwards"
            last, reads = step, reads + 1
    finally:
        stop.set()
        thread.join()
    assert not problems
    assert last > 5 and reads > 20
    assert run.read("config.toml") == content(step_of(run))
