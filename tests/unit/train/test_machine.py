"""Running out of memory, really (faults row 16), and what the machine says it has."""

import os
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from complaints import names, refused

from foretext.errors import EXIT_MACHINE, UserError
from foretext.runs.machine import (
    _cgroup_memory,
    available_memory,
    free_disk,
    out_of_memory_as_user_error,
    size_text,
)


def _allocate(report: int) -> None:
    """In a process of its own: asks for more memory than it may have, in three ways, and reports how that ended."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000,) * 2)
    # Far more than what earlier tests may have left free in this process.
    makers = {"torch": lambda: torch.zeros(10**10), "numpy": lambda: np.ones(10**10), "bytes": lambda: bytes(10**11)}
    for who, make in makers.items():
        try:
            with out_of_memory_as_user_error(micro_batch=64):
                make()
        except UserError as error:
            os.write(report, f"{who} {error.code} {error}\n".encode())


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited by way of /proc")
def test_a_limited_address_space() -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _allocate(writer)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as report:
        lines = report.read().splitlines()
    os.waitpid(pid, 0)
    assert len(lines) == 3
    for line, who in zip(lines, ("torch", "numpy", "bytes")):
        assert line.startswith(f"{who} {EXIT_MACHINE} ")
        names(line, "--set training.micro_batch=32", "64")


@pytest.mark.parametrize(
    ("error", "size", "part"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), 3, "--set training.micro_batch=1 "),
        (RuntimeError("MPS backend out of memory"), None, "--set training.micro_batch=…"),
        (MemoryError(), 1, "--size"),
        (OSError(12, "Cannot allocate memory"), 8, "--set training.micro_batch=4 "),
    ],
)
def test_each_way_of_saying_so(error: Exception, size: int | None, part: str) -> None:
    with refused(part, *([str(size)] if size else [])) as caught, out_of_memory_as_user_error(size):
        raise error
    assert caught.value.code == EXIT_MACHINE


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), OSError(28, "No space"), ValueError("x")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, out_of_memory_as_user_error(4):
        raise error
    assert caught.value is error


def test_what_the_machine_has(tmp_path: Path) -> None:
    memory = available_memory()
    assert memory is None or memory > 1_000_000
    assert free_disk(tmp_path / "not" / "there") > 0
    assert [size_text(n) for n in (12, 1234, 5_600_000, 7e9, 8e12)] == [
        "12 bytes",
        "1.2 KB",
        "5.6 MB",
        "7.0 GB",
        "8.0 TB",
    ]


def test_cached_files_are_free_memory(tmp_path: Path) -> None:
    """A container that has read a large corpus has its limit full of files, which give way."""
    (tmp_path / "memory.max").write_text("4000\n")
    (tmp_path / "memory.current").write_text("3900\n")
    assert _cgroup_memory(tmp_path) == 100
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 3000\nactive_file 400\n")
    assert _cgroup_memory(tmp_path) == 3100
    (tmp_path / "memory.max").write_text("max\n")
    assert _cgroup_memory(tmp_path) is None
    old = tmp_path / "memory"
    old.mkdir()
    for name, value in (("limit_in_bytes", 4000), ("usage_in_bytes", 3900)):
        (old / f"memory.{name}").write_text(f"{value}\n")
    (old / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 3000\n")
    assert _cgroup_memory(tmp_path) == 3100
