"""What only a process of its own shows: signals, exit codes, closed pipes, full disks, two writers."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_harness import MINUTE, ROOT, fails, works
from complaints import names

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
COMMAND = [sys.executable, "-m", "foretext.cli.app"]
LONG = ["--steps", "1000000", *MINUTE]


@contextlib.contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, f"{path} did not come"
        time.sleep(0.02)


def one_complaint(err: str) -> str:
    lines = err.splitlines()
    assert "Traceback" not in err and sum(line.startswith("foretext: ") for line in lines) == 1, err
    assert lines[-1].startswith("foretext: ") and not set(err) & {"\x1b", "\r"}, err
    return lines[-1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_and_saves(number: int, code: int, files: Path, here: Path) -> None:
    """And before that, a second writer is refused and the first goes on."""
    with started("pretrain", files / "text.txt", "--out", "run", *LONG) as process:
        wait_for(here / "run/metrics.jsonl", process)
        names(fails("pretrain", "--out", "run", "--resume"), "run", str(process.pid))
        assert process.poll() is None, "the first goes on"
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == code and not out
    names(one_complaint(err), "run", "--resume")
    assert any("signal" in line for line in err.splitlines()[:-1]), err
    assert not (here / "run/lock.json").exists()
    works("info", "run")
    names(works("pretrain", "--out", "run", "--resume", "--tokens", 1).err, "step")
    works("generate", "run", "--max-tokens", 2)


DEMO = """
import os, signal
from foretext.cli import app as cli
from foretext.demo.runner import Demo

def stages(demo):
    for number in (1, 2):
        with demo._stage(f"stage {number}"):
            os.kill(os.getpid(), signal.SIGTERM)

Demo._run = stages
cli.main()
"""


def test_the_demonstration_ends_after_its_stage(here: Path) -> None:
    command = [sys.executable, "-c", DEMO, "demo", "--out", "shown"]
    done = subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, timeout=120)
    assert done.returncode == 143, done.stderr
    names(one_complaint(done.stderr), "shown", "again")
    assert "stage 1" in done.stdout and "stage 2" not in done.stdout
    names(done.stdout, "signal")


def test_ctrl_c_while_the_demonstration_collects_its_text(here: Path) -> None:
    """To the whole group of processes, as a terminal sends it."""
    process = subprocess.Popen(
        [*COMMAND, "demo", "--out", "shown"],
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        while "docstrings" not in process.stdout.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 130
    names(one_complaint(err), "shown", "again")
    assert not (here / "shown" / "data").exists()


def test_output_closed_early(files: Path, clf: Path, here: Path) -> None:
    Path("rows.csv").write_text("text\n" + "some film\n" * 2)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            [*COMMAND, "predict", str(clf), "rows.csv"],
            env=ENVIRONMENT,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 141 and not done.stderr, done.stderr


SEVERAL = """
import sys
from foretext.cli import app as cli

given = sys.argv[1:]
while given:
    end = given.index("then") if "then" in given else len(given)
    sys.argv, given = ["foretext", *given[:end]], given[end + 1 :]
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code or not given:
            raise
"""


@pytest.mark.skipif(sys.platform != "linux", reason="locales and arguments are bytes")
def test_arguments_under_another_locale(base: Path, clf: Path) -> None:
    """UTF-8 on the command line is UTF-8, whatever Python was told of the terminal; other bytes are refused. All in one
    process, whose last command fails."""
    plain = {**ENVIRONMENT, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    fine = (["tokens", base, "--json", "电影"], ["predict", clf, "--json", "--text", "电影"])
    bad = ["generate", base, "--prompt", os.fsdecode(b"\xff\xfe bad")]
    command = [word for one in (*fine, bad) for word in (*one, "then")][:-1]
    done = subprocess.run([sys.executable, "-c", SEVERAL, *command], env=plain, capture_output=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [json.loads(works(*one).out) for one in fine]
    assert done.returncode == 2
    for complaint in (one_complaint(done.stderr.decode()), fails(*bad)):
        names(complaint, "--prompt", "UTF-8", "offset 0", "0xff")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("verb", "unbuffered"),
    [
        ("info", ""),
        ("generate", "1"),
        ("predict", ""),
        pytest.param("info", "1", marks=pytest.mark.thorough),
        pytest.param("generate", "", marks=pytest.mark.thorough),
        pytest.param("predict", "1", marks=pytest.mark.thorough),
    ],
)
def test_output_that_cannot_be_written(verb: str, unbuffered: str, base: Path, clf: Path) -> None:
    arguments = {"info": [base], "generate": [base, "--max-tokens", "2"], "predict": [clf, "--text", "a film"]}[verb]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, verb, *map(str, arguments)],
            env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 4 and len(done.stderr.splitlines()) == 1
    assert os.strerror(errno.ENOSPC) in names(one_complaint(done.stderr), "output")


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="a tiny disk is mounted, which needs root")
def test_a_full_disk(files: Path, here: Path) -> None:
    disk = here / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        command = ["pretrain", files / "text.txt", "--out", "disk/run", "--steps", 2, *MINUTE]
        names(fails(*command, code=4), "disk", "needed", "available")
        left = [path.name for path in disk.rglob("*")]
        assert not [name for name in left if "staging" in name or name.endswith((".part", ".partial"))], left
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited")
def test_out_of_memory(files: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's own check is passed, as it asks what the machine has free; then the limit of the process is met."""
    monkeypatch.setattr("foretext.train.planning.available_memory", lambda: 10**12)
    command = ["pretrain", files / "text.txt", "--out", "run", "--steps", 1, *MINUTE]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000, before[1]))
    try:
        complaint = fails(*command, "--set", "model.width=6000", "--set", "model.layers=1", code=4)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert "--size" not in names(complaint, "memory"), "that is what the plan would say"


def test_help_is_quick_and_needs_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['foretext', '--help']\nfrom foretext.cli import app as cli\ntry: cli.main()\nfinally: "
    )
    code += "print('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, text=True, capture_output=True)
    assert done.returncode == 0 and done.stderr == "False\n" and "finetune" in done.stdout
