"""The limits of the machine: memory and disk, and what happens when they run out. Also its speed.

Torch, numpy, the C library and the kernel each report a shortage in their own way. Here each becomes a `UserError` that
says what was short and what to do, with the exit code for limits of the machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from foretext.errors import EXIT_MACHINE, UserError, refuse_if

if TYPE_CHECKING:
    import torch

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_MEMORY = (  # the messages of a RuntimeError that mean 'out of memory'
    "can't allocate memory",  # torch, on a CPU
    "out of memory",  # CUDA, MPS
    "std::bad_alloc",
    "Cannot allocate memory",
)


def size_text(count: float) -> str:
    """1234567 → '1.2 MB'."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


# -- disk --------------------------------------------------------------------------------------------------------------


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def free_disk(path: Path) -> int:
    """Bytes that this user may still write where `path` is or would be."""
    place = Path(path).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free


def check_space(path: Path, bytes_needed: int) -> None:
    """UserError if the disk under `path` has less than `bytes_needed` free. Call it before a run starts."""
    free = free_disk(path)
    refuse_if(
        free < bytes_needed,
        f"not enough disk space for {path}: {size_text(bytes_needed)} needed, {size_text(free)} available; "
        "free some space or choose another --out",
        EXIT_MACHINE,
    )


def write_error(path: Path, error: OSError, bytes_needed: int = 0) -> UserError:
    """The UserError for a failed write under `path`. Call it after cleaning up, so that it reports the free space."""
    if error.errno == errno.ELOOP:
        return is_a_link(path)
    if error.errno in _NO_SPACE:
        quota = " (quota)" if error.errno == errno.EDQUOT else ""
        return UserError(
            f"disk full{quota} while writing {path}: {size_text(bytes_needed)} needed, {size_text(free_disk(path))} "
            "available; what was saved before is intact; free some space and continue",
            EXIT_MACHINE,
        )
    reason = error.strerror or str(error)
    return UserError(f"cannot write {path}: {reason}; what was saved before is intact", EXIT_MACHINE)


@contextlib.contextmanager
def writing_to(path: Path, bytes_needed: int = 0) -> Iterator[None]:
    """Treats an error inside the block as a failed write under `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error, bytes_needed) from None


def is_a_link(path: Path) -> UserError:
    return UserError(f"{path}: refused: a symbolic link; replace it with the file itself")


# -- memory ------------------------------------------------------------------------------------------------------------


def available_memory() -> int | None:
    """Bytes that can still be allocated without swapping, within the container's limit; None if unknown."""
    return min([value for value in (_system_memory(), _cgroup_memory()) if value is not None], default=None)


def _system_memory() -> int | None:
    if sys.platform == "darwin":
        return _darwin_memory()
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _darwin_memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        pages = 0
        for line in subprocess.run(["vm_stat"], capture_output=True, text=True, timeout=5).stdout.splitlines():
            if line.startswith(("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")):
                pages += int(line.split(":")[1].strip().rstrip("."))
        return pages * os.sysconf("SC_PAGE_SIZE") if pages else None
    return None


def _cgroup_memory(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    for limit, used, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            taken = int((root / used).read_text()) - _cached_files(root / stat)
            return max(0, int((root / limit).read_text()) - taken)
    return None


def _cached_files(stat: Path) -> int:
    """Bytes of the page cache, which is given up when memory is needed. The container counts them as used."""
    with contextlib.suppress(OSError, ValueError):
        values = dict(line.split() for line in stat.read_text().splitlines())
        return int(values.get("total_inactive_file", values.get("inactive_file", 0)))
    return 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` is one of the ways in which torch, numpy or the system report that memory ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


@contextlib.contextmanager
def out_of_memory_as_user_error(micro_batch: int | None = None) -> Iterator[None]:
    """Turns an out-of-memory error inside the block into a UserError that suggests a smaller micro-batch. Only the
    micro-batch needs the memory, and it may change when a run is resumed."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        half = "…" if micro_batch is None else f"{micro_batch // 2} (it was {micro_batch})"
        smaller = f"try a smaller micro-batch: --set training.micro_batch={half}"
        if micro_batch == 1:
            smaller = "the micro-batch is already 1: choose a smaller --size or a shorter context"
        raise UserError(f"out of memory: {smaller}", EXIT_MACHINE) from None


def tune_allocator() -> None:
    """Lets glibc keep freed memory instead of returning it to the system after every tensor.

    By default each large tensor is mapped, zeroed page by page by the kernel, and unmapped again; on a CPU this costs a
    few per cent of a training step. It works only with glibc and is harmless elsewhere.
    """
    import ctypes

    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    if not mallopt(mmap_threshold, 1 << 30):
        mallopt(mmap_threshold, 1 << 25)  # the maximum in older versions
    mallopt(trim_threshold, (1 << 31) - 4096)


@contextlib.contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Limits the block to this many CPU threads; None: no change."""
    if count is None:
        yield
        return
    refuse_if(not 1 <= count <= 1024, f"--threads {count}: give a number from 1 to 1024")
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


PROBE_SECONDS = 0.2
PROBE_ROWS, PROBE_WIDTH = 2048, 512


def products_a_second(device: str = "auto") -> float:
    """Floating-point operations per second in a matrix product: the best measurement within `PROBE_SECONDS`."""
    import torch

    where = choose_device(device)
    rows_NK = torch.ones(PROBE_ROWS, PROBE_WIDTH, device=where)
    weight_KK = torch.ones(PROBE_WIDTH, PROBE_WIDTH, device=where)
    best, until = float("inf"), time.perf_counter() + PROBE_SECONDS
    while time.perf_counter() < until or best == float("inf"):
        begun = time.perf_counter()
        float(torch.mm(rows_NK, weight_KK)[0, 0])  # reading a value waits for the device
        best = min(best, time.perf_counter() - begun)
    return 2.0 * PROBE_ROWS * PROBE_WIDTH**2 / best


def choose_device(name: str) -> torch.device:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
        return device
    except (RuntimeError, AssertionError):
        raise UserError(f"the device {name!r} is not available here; use --device cpu") from None
