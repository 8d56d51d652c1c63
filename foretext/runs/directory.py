"""The run directory: what every verb reads, and what training makes and extends.

A checkpoint is whole or invisible (`commit.py`), there is one writer at a time (`lock.py`), and nothing is read that
does not fit its size and SHA-256 in `manifest.json`. Only JSON, TOML and safetensors are read, so nothing that is
loaded can run code. Reading needs no lock and no torch, except `load_tensors`.

Each read is consistent with the newest commit by itself. To read several files of one and the same commit while another
process trains there, read them under `writer()`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from foretext.errors import UserError, refuse_if
from foretext.runs.commit import (
    JOURNAL,
    MANIFEST,
    Commit,
    Content,
    Stamp,
    finish,
    inside,
    is_safe_name,
    newest_commit,
    open_plain,
    publish,
    stamp,
    sweep,
)
from foretext.runs.lock import LOCK, Lock
from foretext.runs.machine import is_a_link, size_text, write_error
from foretext.runs.metrics_log import METRICS, MetricsLog, read_metrics

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

_RESERVED = (MANIFEST, JOURNAL, LOCK, METRICS)
_MAX_HEADER = 16_000_000  # of a safetensors file: room for 100,000 tensors
_REMEDY = "restore it from a copy, or train again into a new directory"


class RunDirectory:
    """A run directory for reading; `writer()` for writing. Making the object touches nothing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self) -> bool:
        """Whether there is a checkpoint here: False before a run's first commit, too."""
        return self._newest() is not None

    def names(self) -> list[str]:
        """The files of the run, as the manifest lists them."""
        return sorted(self._need().files)

    def has(self, name: str) -> bool:
        newest = self._newest()
        return newest is not None and name in newest.files

    def sizes(self) -> dict[str, int]:
        return {name: entry.bytes for name, entry in sorted(self._need().files.items())}

    def read(self, name: str) -> bytes:
        """A file's bytes, verified."""

        def use(path: Path, file: BufferedReader) -> bytes:
            file.seek(0)
            return file.read()

        return self._consistently(name, use)

    def file(self, name: str) -> Path:
        """Where a file is, verified. A commit that follows may replace what is there; one that was opened stays."""
        return self._consistently(name, lambda path, file: path)

    def load_tensors(self, name: str, device: str = "cpu") -> dict[str, Tensor]:
        """The tensors of a safetensors file, verified."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        def use(path: Path, file: BufferedReader) -> dict[str, Tensor]:
            _check_header(path, file)
            try:
                tensors = load_file(path, device=device)
            except (SafetensorError, ValueError, OverflowError) as error:
                raise UserError(f"{path}: not a safetensors file: {error}; {_REMEDY}") from None
            if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                raise FileNotFoundError(errno.ENOENT, "replaced while it was read", str(path))
            return tensors

        return self._consistently(name, use)

    def metrics(self) -> list[dict[str, Any]]:
        """The log, one dictionary a line."""
        return read_metrics(self.path)

    def _newest(self) -> Commit | None:
        try:
            return newest_commit(self.path)
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from None

    def _need(self) -> Commit:
        newest = self._newest()
        if newest is None:
            raise self._not_a_run()
        return newest

    def _not_a_run(self) -> UserError:
        if not self.path.exists():
            make = "foretext pretrain … --out"
            return UserError(f"{self.path}: no such run directory; check the path, or make one: {make} {self.path}")
        if not self.path.is_dir():
            return UserError(f"{self.path} is not a run directory but a file")
        return UserError(f"{self.path} is not a run directory: no {MANIFEST}")

    def _look(self, name: str) -> tuple[Path, Commit]:
        """Where a file is at this moment, and the commit that it is of."""
        newest = self._need()
        if name not in newest.files:
            raise UserError(f"{self.path} has no {name}; it holds {', '.join(sorted(newest.files)) or 'nothing'}")
        return newest.path(name), newest

    def _consistently(self, name: str, use: Callable[[Path, BufferedReader], T]) -> T:
        """`use` on a file as the manifest has it; again if a writer committed meanwhile, so an error is about what
        stands."""
        for attempt in range(100):
            path, newest = self._look(name)
            try:
                with open_plain(path) as file:
                    _check_stamp(path, file, newest.files[name])
                    return use(path, file)
            except (UserError, OSError) as error:
                if (path, newest) == self._look(name):
                    raise _reading_error(path, error) from None
            time.sleep(min(0.001 * attempt, 0.05))
        raise UserError(f"{self.path}: {name} changes faster than it can be read; try again")

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def writer(self, notice: Callable[[str], None] = lambda message: None) -> Iterator[RunWriter]:
        """The one writer: takes the lock, finishes a commit that was interrupted, sweeps what dead writers left.

        Makes the directory if need be. `notice` gets a line where something was taken over.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise self._not_a_run() from None
        except OSError as error:
            raise write_error(self.path, error) from None
        with Lock(self.path, notice) as lock:
            writer = RunWriter(self, lock, notice)
            try:
                yield writer
            finally:
                writer.log.close()


class RunWriter:
    """Writes to a run directory; made by `RunDirectory.writer()`."""

    def __init__(self, run: RunDirectory, lock: Lock, notice: Callable[[str], None]) -> None:
        self.run = run
        self._lock = lock
        self.log = MetricsLog(run.path, notice)
        newest = run._newest()
        self._files = {} if newest is None else newest.files
        self._finish(newest)
        sweep(run.path, newest)

    def commit(self, files: Mapping[str, Content], remove: Collection[str] = ()) -> None:
        """Puts all of `files` in place and takes `remove` away, all or nothing; other files stay as they are.

        A value is a file's bytes, or tensors for a safetensors file (tied ones are the caller's to leave out).
        """
        for name in [*files, *remove]:
            assert is_safe_name(name) and name not in _RESERVED, f"{name}: no name for a run's file"
        assert not set(files) & set(remove), "a file both written and removed"
        self._lock.ensure()
        try:
            self.log.sync()  # the position in this commit counts on what is in the log
            newest = self.run._newest()
            self._check_untouched(newest, files)
            self._finish(newest)
            newest = publish(self.run.path, self._files, files, remove)
        except OSError as error:
            raise write_error(self.run.path, error, sum(map(_size, files.values()))) from None
        self._files = newest.files
        self._finish(newest)

    def _finish(self, newest: Commit | None) -> None:
        try:
            if newest is not None:
                finish(newest)
        except OSError as error:
            # The commit itself stands; a later writer finishes it.
            raise write_error(self.run.path, error) from None

    def _check_untouched(self, newest: Commit | None, files: Collection[str]) -> None:
        """No one else's work is overwritten: neither another writer's nor a file that only happens to be here."""
        refuse_if(
            ({} if newest is None else newest.files) != self._files,
            f"{self.run.path}: changed by another process since this one opened it; nothing was written",
        )
        for name in files:
            path = inside(self.run.path, name)
            refuse_if(
                name not in self._files and path.exists(),
                f"{path} is in the way and not part of this run: move it, or choose another --out",
            )


def _size(content: Content) -> int:
    if isinstance(content, bytes):
        return len(content)
    return sum(tensor.numel() * tensor.element_size() for tensor in content.values())


def _check_stamp(path: Path, file: BufferedReader, expected: Stamp) -> None:
    """UserError if the file is not what the manifest says."""
    size = os.fstat(file.fileno()).st_size
    refuse_if(size != expected.bytes, f"{path}: {size:,} bytes, but {MANIFEST} says {expected.bytes:,}: {_REMEDY}")
    refuse_if(stamp(file) != expected, f"{path}: damaged: its SHA-256 is not the one in {MANIFEST}: {_REMEDY}")


def _check_header(path: Path, file: BufferedReader) -> None:
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    refuse_if(
        length > _MAX_HEADER, f"{path}: refused: a header of {size_text(length)}; at most {size_text(_MAX_HEADER)}"
    )


def _reading_error(path: Path, error: UserError | OSError) -> UserError:
    if isinstance(error, UserError):
        return error
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path}: missing, though {MANIFEST} lists it: {_REMEDY}")
    if error.errno == errno.ELOOP:
        return is_a_link(path)
    return UserError(f"cannot read {path}: {error.strerror or error}")
