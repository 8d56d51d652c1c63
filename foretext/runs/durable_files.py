"""Durable files: names that stay inside their directory, syncing, hashing, bounded JSON.

What the lock and the commit of a run directory stand on. Nothing here follows a symbolic link out of the directory, and
nothing writes into a file that already exists.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from foretext.errors import UserError

MAX_JSON = 4_000_000  # a manifest, journal or lock; thousands of files fit
_PART = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,127}")  # no leading dot: those names are for staging


def no_stage(name: str) -> None:
    return None


on_stage: Callable[[str], None] = no_stage
"""Called with a name before each system call of a commit. The fault tests put a kill here; nothing else uses it."""


def stage(name: str) -> None:
    on_stage(name)


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_safe_name(name: object) -> bool:
    """Whether `name` is a plain relative path (`training/position.json`) that cannot leave its directory."""
    if not isinstance(name, str):
        return False
    parts = name.split("/")
    return len(parts) <= 4 and all(_PART.fullmatch(part) for part in parts)


def inside(root: Path, name: str) -> Path:
    """The path of `name` under `root`; UserError if it, or a folder on the way, is a symbolic link or not safe."""
    if not is_safe_name(name):
        raise UserError(f"{root}: refused the file name {name[:100]!r}: it does not stay inside the directory")
    path = root
    for part in name.split("/"):
        path = path / part
        if path.is_symlink():
            raise UserError(f"{path}: refused: a symbolic link; replace it by the file itself")
    return path


def open_plain(path: Path) -> BufferedReader:
    """Opens an ordinary file for reading; never a link, a device or a pipe."""
    # O_NONBLOCK: opening a pipe must not wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise UserError(f"{path}: refused: not an ordinary file")
    return file


# ── hashing, JSON ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Stamp:
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


def stamp(file: BufferedReader) -> Stamp:
    """Hashes an open file from its start."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Stamp(os.fstat(file.fileno()).st_size, digest)


def to_stamp(entry: Any) -> Stamp:
    """A JSON entry as a Stamp; ValueError if it is not one."""
    size, digest = entry["bytes"], entry["sha256"]
    if type(size) is not int or size < 0 or not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError("no size and SHA-256")
    return Stamp(size, digest)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size. FileNotFoundError passes; anything malformed is a UserError."""
    try:
        with open_plain(path) as file:
            data = file.read(MAX_JSON + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path}: refused: a symbolic link; replace it by the file itself") from None
        raise
    if len(data) > MAX_JSON:
        raise UserError(f"{path}: too large ({MAX_JSON:,} bytes at most): it is damaged, or not a run's file")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise UserError(f"{path}: damaged: not valid JSON; restore it from a copy") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: damaged: not a JSON object; restore it from a copy")
    return value


def canonical_json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def sync_file(descriptor: int) -> None:
    """Through to the disk itself: on macOS fsync alone stops at the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable. Some network file systems cannot, and need not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def write_new(path: Path, data: bytes) -> None:
    """Writes a file that does not exist yet."""
    with path.open("xb") as file:
        file.write(data)


def remove_quietly(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
