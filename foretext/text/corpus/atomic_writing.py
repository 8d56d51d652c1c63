"""Writes files so that a reader sees the old content or the new one, never a part: a temporary file in the same folder,
sync, rename.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from foretext.errors import EXIT_MACHINE, UserError


def write_whole(path: Path, data: bytes) -> None:
    """Writes a whole file; UserError if that is impossible, and then nothing was changed."""
    try:
        with written_aside(path) as out:
            out.write(data)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise UserError(f"{path}: the folder {path.parent} does not exist; create it first") from None
        if isinstance(error, IsADirectoryError):
            raise UserError(f"{path} is a folder; give the name of a file to write") from None
        raise UserError(f"{path}: cannot be written ({error.strerror}); nothing was changed", EXIT_MACHINE) from None


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[BinaryIO]:
    """A context manager for a temporary file that becomes `path` once it is completely written; if an error occurs,
    nothing remains."""
    handle, staging = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        Path(staging).chmod(0o666 & ~umask())
        Path(staging).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(staging).unlink()
        raise


def umask() -> int:
    """The permissions that the process removes from new files."""
    current = os.umask(0)
    os.umask(current)
    return current
