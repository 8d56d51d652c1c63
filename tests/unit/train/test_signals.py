"""Signals: the first asks, the second aborts; handlers come back; workers are left alone (faults row 7)."""

import os
import signal
import subprocess
import sys
import time

import pytest

from foretext.cli.output import Stopper
from foretext.runs.report import StopRequest

CHILD = """
import sys, time
from foretext.cli.output import Stopper
with Stopper(lambda line: print(line, flush=True)) as stop:
    print("ready", flush=True)
    while stop.requested is None or "deaf" in sys.argv:
        time.sleep(0.01)
sys.exit(stop.requested)
"""


def started(*args: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", CHILD, *args], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_asks(number: signal.Signals, code: int) -> None:
    process = started()
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == code
    assert out.count("\n") == 1 and "second" in out, "what another signal would do"


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_aborts_at_once(second: signal.Signals) -> None:
    process = started("deaf")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(second)
    process.communicate(timeout=10)
    assert process.returncode == -second


def test_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Stopper() as stop:
        assert signal.getsignal(signal.SIGINT) != before[0]
        assert stop.requested is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested == 143
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_forked_worker_ignores_ctrl_c_and_dies_by_sigterm() -> None:
    with Stopper():
        pid = os.fork()
        if pid == 0:
            time.sleep(20)
            os._exit(0)
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGINT)
        time.sleep(0.1)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM


def test_never_stop_installs_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert StopRequest().requested is None
    assert signal.getsignal(signal.SIGINT) is before
