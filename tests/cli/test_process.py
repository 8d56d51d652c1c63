"""What only a process of its own shows: signals, exit codes, closed pipes, full disks, two writers."""

from __future__ import annotations

import contextlib
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
from cli_harness import MINUTE, ROOT, works

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
COMMAND = [sys.executable, "-m", "foretext.cli"]
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
    with started("pretrain", files / "text.txt", "--out", "run", *LONG) as process:
        wait_for(here / "run/metrics.jsonl", process)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == code and not out
    assert "everything so far is in run; go on with --resume" in one_complaint(err)
    assert "stopping; a second signal aborts at once" in err
    assert not (here / "run/lock.json").exists()
    said = works("pretrain", "--out", "run", "--resume", "--tokens", 1)
    assert "going on at step" in said.err
    works("generate", "run", "--max-tokens", 2)


DEMO = """
import os, signal
from foretext import cli
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
    assert "in shown; run the same command again to go on from here" in one_complaint(done.stderr)
    assert "stage 1" in done.stdout and "stage 2" not in done.stdout
    assert "stopping; a second signal aborts at once" in done.stdout


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
        while "collecting docstrings" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(3.0)  # the workers have begun
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 130
    assert "run the same command again" in one_complaint(err)
    assert not (here / "shown" / "data").exists()


def test_two_writers(files: Path, here: Path) -> None:
    with started("pretrain", files / "text.txt", "--out", "run", *LONG) as process:
        wait_for(here / "run/metrics.jsonl", process)
        second = subprocess.run(
            [*COMMAND, "pretrain", "--out", "run", "--resume"], env=ENVIRONMENT, text=True, capture_output=True
        )
        assert second.returncode == 2 and str(process.pid) in one_complaint(second.stderr)
        assert process.poll() is None, "the first goes on"
        process.terminate()
        process.communicate(timeout=120)
    assert process.returncode == 143
    works("info", "run")


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


@pytest.mark.skipif(sys.platform != "linux", reason="locales and arguments are bytes")
def test_arguments_under_another_locale(base: Path, clf: Path) -> None:
    """UTF-8 on the command line is UTF-8, whatever Python was told of the terminal; other bytes are refused."""
    plain = {**ENVIRONMENT, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def said(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[bytes]:
        given = [one if isinstance(one, bytes) else os.fsencode(str(one)) for one in arguments]
        return subprocess.run([*map(os.fsencode, COMMAND), *given], env=environment, capture_output=True)

    chinese = "电影".encode()
    for verb in (["tokens", base, "--json", chinese], ["predict", clf, "--json", "--text", chinese]):
        usual, other = said(ENVIRONMENT, *verb), said(plain, *verb)
        assert usual.returncode == other.returncode == 0, other.stderr
        assert json.loads(other.stdout) == json.loads(usual.stdout)
    for environment in (ENVIRONMENT, plain):
        done = said(environment, "generate", base, "--prompt", b"\xff\xfe bad")
        assert done.returncode == 2 and b"--prompt: not UTF-8 at byte offset 0 (byte 0xff)" in done.stderr
        assert not done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("verb", ["info", "generate", "predict"])
def test_output_that_cannot_be_written(verb: str, base: Path, clf: Path) -> None:
    arguments = {"info": [base], "generate": [base, "--max-tokens", "2"], "predict": [clf, "--text", "a film"]}[verb]
    for unbuffered in ("1", ""):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*COMMAND, verb, *map(str, arguments)],
                env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert done.returncode == 4 and done.stderr == (
            "foretext: standard output cannot be written (No space left on device); "
            "make room there, or send the output elsewhere\n"
        )


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="a tiny disk is mounted, which needs root")
def test_a_full_disk(files: Path, here: Path) -> None:
    disk = here / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        done = subprocess.run(
            [*COMMAND, "pretrain", str(files / "text.txt"), "--out", "disk/run", "--steps", "2", *MINUTE],
            env=ENVIRONMENT,
            text=True,
            capture_output=True,
        )
        assert done.returncode == 4, done.stderr
        complaint = one_complaint(done.stderr)
        assert "disk" in complaint and "available" in complaint
        left = [path.name for path in disk.rglob("*")]
        assert not [name for name in left if "staging" in name or name.endswith((".part", ".partial"))], left
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited")
def test_out_of_memory(files: Path, here: Path) -> None:
    """The plan's own check is passed (it asks what the machine has free), then the limit of the process is met."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3_000_000_000, 3_000_000_000))

    done = subprocess.run(
        [
            *(*COMMAND, "pretrain", str(files / "text.txt"), "--out", "run", "--steps", "1", *MINUTE),
            *("--set", "model.width=12000", "--set", "model.layers=1"),
        ],
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        preexec_fn=limit,
    )
    assert done.returncode == 4, done.stderr
    assert "memory" in one_complaint(done.stderr)


def test_help_is_quick_and_needs_no_torch() -> None:
    code = "import sys; sys.argv = ['foretext', '--help']\nfrom foretext import cli\ntry: cli.main()\nfinally: "
    code += "print('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, text=True, capture_output=True)
    assert done.returncode == 0 and done.stderr == "False\n" and "finetune" in done.stdout
