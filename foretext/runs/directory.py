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
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from foretext.errors import UserError
from foretext.runs.commit import (
    JOURNAL,
    MANIFEST,
    Journal,
    Staged,
    manifest_json,
    new_staging,
    publish,
    read_journal,
    read_manifest,
    removed_unless_committed,
    roll_forward,
    sweep,
    write_staged,
)
from foretext.runs.durable_files import Stamp, inside, is_safe_name, open_plain, stamp
from foretext.runs.lock import LOCK, Lock, locked
from foretext.runs.machine import size_text, write_error
from foretext.runs.metrics_log import METRICS, MetricsLog, read_metrics

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

_RESERVED = (MANIFEST, JOURNAL, LOCK, METRICS)
_MAX_HEADER = 16_000_000  # of a safetensors file: room for 100,000 tensors
_REMEDY = "restore it from a copy, or train again into a new directory"


def _silent(message: str) -> None:
    return None


@dataclass(frozen=True)
class _View:
    """What the directory says at one moment."""

    journal: Journal | None
    manifest: dict[str, Stamp]
    path: Path  # of the name that is looked for

    def check(self, name: str, file: BufferedReader) -> None:
        """UserError if the file is not what the manifest says."""
        expected = self.manifest[name]
        size = os.fstat(file.fileno()).st_size
        if size != expected.bytes:
            raise UserError(f"{self.path}: {size:,} bytes, but {MANIFEST} says {expected.bytes:,}: {_REMEDY}")
        if stamp(file) != expected:
            raise UserError(f"{self.path}: damaged: its SHA-256 is not the one in {MANIFEST}: {_REMEDY}")


class RunDirectory:
    """A run directory for reading; `writer()` for writing. Making the object touches nothing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self) -> bool:
        """Whether there is a checkpoint here: False before a run's first commit, too."""
        return self._manifest() is not None

    def names(self) -> list[str]:
        """The files of the run, as the manifest lists them."""
        return sorted(self._need_manifest())

    def has(self, name: str) -> bool:
        return name in (self._manifest() or {})

    def sizes(self) -> dict[str, int]:
        return {name: entry.bytes for name, entry in sorted(self._need_manifest().items())}

    def read(self, name: str) -> bytes:
        """A file's bytes, verified."""

        def use(view: _View) -> bytes:
            with open_plain(view.path) as file:
                view.check(name, file)
                file.seek(0)
                return file.read()

        return self._consistently(name, use)

    def file(self, name: str) -> Path:
        """Where a file is, verified. A commit that follows may replace what is there; one that was opened stays."""

        def use(view: _View) -> Path:
            with open_plain(view.path) as file:
                view.check(name, file)
            return view.path

        return self._consistently(name, use)

    def load_tensors(self, name: str, device: str = "cpu") -> dict[str, Tensor]:
        """The tensors of a safetensors file, verified."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        def use(view: _View) -> dict[str, Tensor]:
            with open_plain(view.path) as file:
                view.check(name, file)
                _check_header(view.path, file)
                try:
                    tensors = load_file(view.path, device=device)
                except (SafetensorError, ValueError, OverflowError) as error:
                    raise UserError(f"{view.path}: not a safetensors file: {error}; {_REMEDY}") from None
                if not os.path.samestat(os.fstat(file.fileno()), view.path.stat()):
                    raise FileNotFoundError(errno.ENOENT, "replaced while it was read", str(view.path))
                return tensors

        return self._consistently(name, use)

    def metrics(self) -> list[dict[str, Any]]:
        """The log, one dictionary a line."""
        return read_metrics(self.path)

    def _manifest(self) -> dict[str, Stamp] | None:
        return self._look()[1]

    def _look(self) -> tuple[Journal | None, dict[str, Stamp] | None]:
        try:
            for _ in range(100):
                journal = read_journal(self.path)
                manifest = read_manifest(self.path, journal)
                # With a journal there is a manifest; not finding it means that it was renamed into place just now.
                if manifest is not None or journal is None:
                    break
            return journal, manifest
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from None

    def _need_manifest(self) -> dict[str, Stamp]:
        manifest = self._manifest()
        if manifest is None:
            raise self._not_a_run()
        return manifest

    def _not_a_run(self) -> UserError:
        if not self.path.exists():
            make = "foretext pretrain … --out"
            return UserError(f"{self.path}: no such run directory; check the path, or make one: {make} {self.path}")
        if not self.path.is_dir():
            return UserError(f"{self.path} is not a run directory but a file")
        return UserError(f"{self.path} is not a run directory: no {MANIFEST}")

    def _view(self, name: str) -> _View:
        journal, manifest = self._look()
        if manifest is None:
            raise self._not_a_run()
        if name not in manifest:
            raise UserError(f"{self.path} has no {name}; it holds {', '.join(sorted(manifest)) or 'nothing'}")
        return _View(journal, manifest, journal.resolve(self.path, name) if journal else inside(self.path, name))

    def _consistently(self, name: str, use: Callable[[_View], T]) -> T:
        """`use` on a view of the directory; again if a writer committed meanwhile, so an error is about what stands."""
        for attempt in range(100):
            view = self._view(name)
            try:
                return use(view)
            except (UserError, OSError) as error:
                if view == self._view(name):
                    raise _reading_error(view.path, error) from None
            time.sleep(min(0.001 * attempt, 0.05))
        raise UserError(f"{self.path}: {name} changes faster than it can be read; try again")

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def writer(self, notice: Callable[[str], None] = _silent) -> Iterator[RunWriter]:
        """The one writer: takes the lock, rolls an unfinished commit forward, sweeps what dead writers left.

        Makes the directory if need be. `notice` gets a line where something was taken over.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise self._not_a_run() from None
        except OSError as error:
            raise write_error(self.path, error, 0) from None
        with locked(self.path, notice) as lock:
            writer = RunWriter(self, lock, notice)
            try:
                yield writer
            finally:
                writer.close()


class RunWriter:
    """Writes to a run directory; made by `RunDirectory.writer()`."""

    def __init__(self, run: RunDirectory, lock: Lock, notice: Callable[[str], None]) -> None:
        self.run = run
        self._lock = lock
        self._notice = notice
        self._log = MetricsLog(run.path)
        self._roll_forward()
        sweep(run.path)
        self._manifest = run._manifest() or {}

    def commit(self, files: Mapping[str, bytes | Mapping[str, Tensor]], remove: Collection[str] = ()) -> None:
        """Puts all of `files` in place and takes `remove` away, all or nothing; other files stay as they are.

        A value is a file's bytes, or tensors for a safetensors file (tied ones are the caller's to leave out).
        """
        for name in [*files, *remove]:
            assert is_safe_name(name) and name not in _RESERVED, f"{name}: no name for a run's file"
        assert not set(files) & set(remove), "a file both written and removed"
        self._lock.ensure()
        try:
            self._log.sync()  # the position in this commit counts on what is in the log
            self._roll_forward()
            self._check_untouched(files)
            manifest = self._publish(files, remove)
        except OSError as error:
            raise write_error(self.run.path, error, sum(map(_size, files.values()))) from None
        self._manifest = manifest
        self._roll_forward()

    def _publish(self, files: Mapping[str, bytes | Mapping[str, Tensor]], remove: Collection[str]) -> dict[str, Stamp]:
        root = self.run.path
        folder = new_staging(root)
        with removed_unless_committed(root, folder):
            staged = {}
            for number, (name, content) in enumerate(files.items()):
                file_name = f"{number}-{name.rpartition('/')[2]}"
                staged[name] = Staged(file_name, write_staged(folder, file_name, content))
            manifest = {name: entry for name, entry in self._manifest.items() if name not in remove}
            manifest |= {name: entry.stamp for name, entry in staged.items()}
            staged[MANIFEST] = Staged(MANIFEST, write_staged(folder, MANIFEST, manifest_json(manifest)))
            publish(root, folder, Journal(folder.name, staged, tuple(remove)))
        return manifest

    def _roll_forward(self) -> None:
        journal = read_journal(self.run.path)
        if journal is not None:
            try:
                roll_forward(self.run.path, journal)
            except OSError as error:
                # The commit itself stands; a later writer finishes it.
                raise write_error(self.run.path, error, 0) from None

    def _check_untouched(self, files: Collection[str]) -> None:
        """No one else's work is overwritten: neither another writer's nor a file that only happens to be here."""
        if (self.run._manifest() or {}) != self._manifest:
            raise UserError(
                f"{self.run.path}: changed by another process since this one opened it; nothing was written"
            )
        for name in files:
            path = inside(self.run.path, name)
            if name not in self._manifest and path.exists():
                raise UserError(f"{path} is in the way and not part of this run: move it, or choose another --out")

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def append_metrics(self, values: Mapping[str, Any]) -> None:
        """One line for metrics.jsonl, out at once."""
        self._log.append(values)

    def metrics_bytes(self) -> int:
        """The log's length, for a checkpoint's position."""
        return self._log.size()

    def metrics_after(self, size: int, key: str) -> list[dict[str, Any]]:
        """The log's lines beyond `size` bytes that have `key`."""
        return self._log.rows_after(size, key)

    def truncate_metrics(self, size: int) -> None:
        """Cuts the log back to where a checkpoint left it, for going on from there."""
        self._log.truncate(size, self._notice)

    def close(self) -> None:
        self._log.close()


def _size(content: bytes | Mapping[str, Tensor]) -> int:
    if isinstance(content, bytes):
        return len(content)
    return sum(tensor.numel() * tensor.element_size() for tensor in content.values())


def _check_header(path: Path, file: BufferedReader) -> None:
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > _MAX_HEADER:
        raise UserError(f"{path}: refused: a header of {size_text(length)}; at most {size_text(_MAX_HEADER)}")


def _reading_error(path: Path, error: UserError | OSError) -> UserError:
    if isinstance(error, UserError):
        return error
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path}: missing, though {MANIFEST} lists it: {_REMEDY}")
    if error.errno == errno.ELOOP:
        return UserError(f"{path}: refused: a symbolic link; replace it by the file itself")
    return UserError(f"cannot read {path}: {error.strerror or error}")
