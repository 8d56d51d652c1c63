"""One writer for each run directory.

`lock.json` names the writer: process, start time, host. There are two mechanisms, because each works where the other
fails:

- `flock` on the open file. The kernel frees it when the owner dies, however it dies, so two processes can never both
  take over a dead lock. It also works between containers on one kernel, where process numbers mean nothing to each
  other. But some network file systems refuse it, or limit it to one host.
- The JSON inside. It tells whom to name in the error, and it decides where `flock` is missing or does not reach. An
  owner on another host is never overruled, since we cannot tell whether it lives. An owner on this host is dead if its
  process is gone, is a zombie, or has another start time than the lock says (the number was reused).
  Without `flock`, the last of two simultaneous writers wins, and the other notices when it reads the file back.

The lock is checked again at each commit, so a writer whose lock file was removed by hand cannot overwrite another's
work.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foretext.errors import EXIT_MACHINE, UserError
from foretext.runs.directory import object_in
from foretext.runs.machine import writing_to

LOCK = "lock.json"
_MAX_LOCK = 10_000
_NO_FLOCK = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL, errno.EBADF)
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SETTLE = 0.3  # seconds to wait for a simultaneous writer without flock to show itself

_held: set[int] = set()


def _close_in_child() -> None:
    # A forked worker that outlives its parent must not hold the parent's lock. Closing a copy does not free it.
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


# -- who owns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    """A process. Its start time (0: unknown) tells it from a later one with the same number."""

    host: str
    pid: int
    started: int

    @staticmethod
    def me() -> Owner:
        return Owner(host_name(), os.getpid(), start_time(os.getpid()) or 0)

    def is_dead(self) -> bool:
        """True only if certain: on this host, and gone."""
        if self.host != host_name():
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            pass  # alive, but owned by another user
        started = start_time(self.pid)
        return started is not None and (started == -1 or (self.started != 0 and started != self.started))

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}"


def host_name() -> str:
    return re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())[:64] or "unknown"


def start_time(pid: int) -> int | None:
    """When the process started, in a unit of the system; -1 for a zombie, None if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The name, in parentheses, may hold anything. Numbers follow: state is field 3, start time field 22.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return -1 if fields[0] in "ZX" else int(fields[19])
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        ps = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=5,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        )
        state, _, started = ps.stdout.strip().partition(" ")
        if state.startswith("Z"):
            return -1
        return int(time.mktime(time.strptime(started.strip(), "%a %b %d %H:%M:%S %Y")))
    return None


# -- the lock ----------------------------------------------------------------------------------------------------------


class Lock:
    """Held inside `with`; `ensure` confirms it."""

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        self.path = folder / LOCK
        self._notice = notice
        self._descriptor: int | None = None
        self._token = secrets.token_hex(8)
        self._process = os.getpid()

    def __enter__(self) -> Lock:
        with writing_to(self.path):
            for _ in range(100):
                if self._try():
                    return self
        raise UserError(f"{self.path.parent}: could not take the lock: {LOCK} keeps changing; try again", EXIT_MACHINE)

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._process:
            return  # a forked child: the lock belongs to its parent
        if self._is_mine():
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._close()

    def ensure(self) -> None:
        """Check that the lock is still ours. Take it again if the file was removed by hand; UserError if another
        process has it."""
        if not self._is_mine():
            self._close()
            self.__enter__()

    def _try(self) -> bool:
        self._descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | _PLAIN, 0o666)
        _held.add(self._descriptor)
        taken = False
        try:
            flocked = self._flock(self._descriptor)
            # Otherwise the owner released it between our opening and locking.
            if os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path)):
                self._judge(_contents(self._descriptor))
                self._write(self._descriptor)
                time.sleep(0.0 if flocked else _SETTLE)
                taken = self._is_mine()
        except FileNotFoundError:
            pass  # as above
        finally:
            if not taken:
                self._close()
        return taken

    def _flock(self, descriptor: int) -> bool:
        """True: locked. False: this file system has no flock. UserError: another process holds it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            raise self._refusal(_contents(descriptor)) from None
        except OSError as error:
            if error.errno in _NO_FLOCK:
                return False
            raise

    def _judge(self, contents: dict[str, object]) -> None:
        """We hold the flock, or there is none: the contents decide."""
        owner = _owner(contents)
        if owner is None:
            return  # new, or its writer died while writing it
        if not owner.is_dead():
            raise self._refusal(contents)
        self._notice(f"{self.path.parent}: took over the lock of {owner}, which is no longer running")

    def _refusal(self, contents: dict[str, object]) -> UserError:
        owner = _owner(contents)
        since = f" since {contents['since']}" if isinstance(contents.get("since"), str) else ""
        if owner is None:
            return UserError(f"{self.path.parent} is being written by another process: wait until it ends")
        if owner.is_dead():
            return UserError(
                f"{self.path.parent}: {owner} has ended, but its child processes still hold its lock: end them first"
            )
        then = "or end it" if owner.host == host_name() else f"or, if that process is gone, remove {self.path}"
        return UserError(f"{self.path.parent} is being written by {owner}{since}: wait until it ends, {then}")

    def _write(self, descriptor: int) -> None:
        entry = vars(Owner.me()) | {"since": time.strftime("%Y-%m-%d %H:%M:%S"), "token": self._token}
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, (json.dumps(entry) + "\n").encode(), 0)
            os.fsync(descriptor)
        except OSError:  # disk full: leave no file behind
            self.path.unlink(missing_ok=True)
            raise

    def _is_mine(self) -> bool:
        """Whether the current file holds our token."""
        if self._descriptor is None:
            return False
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_RDONLY | _PLAIN)
            try:
                return _contents(descriptor).get("token") == self._token
            finally:
                os.close(descriptor)
        return False

    def _close(self) -> None:
        if self._descriptor is not None:
            _held.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None


def _contents(descriptor: int) -> dict[str, object]:
    """The contents of the lock file; empty if unreadable."""
    return object_in(os.pread(descriptor, _MAX_LOCK, 0)) or {}


def _owner(contents: dict[str, object]) -> Owner | None:
    host, pid, started = (contents.get(key) for key in ("host", "pid", "started"))
    if isinstance(host, str) and type(pid) is int and pid > 0 and type(started) is int:
        return Owner(host[:64], pid, started)
    return None
