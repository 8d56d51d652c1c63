"""Atomic commits of several files at once: either all of them become visible or none, whenever the process dies. Also
the log that grows between commits.

`manifest.json` is the one pointer. A reader needs no lock. A file of a commit is either in its place or still in the
folder of that commit, whose name follows from the manifest.

1. Every new file, including the new `manifest.json`, is written into the writer's own folder and synced. The folder
   is then renamed to the name that follows from this manifest.
2. The manifest is renamed into place. This one rename is the commit: before it nothing is visible, after it everything
   is, since whoever reads the manifest also looks for its files in the folder.
3. The other files are renamed to their places (never overwritten: a process that has the old file open or mapped keeps
   it), files that the manifest no longer lists are removed, then the folder.

The next writer finishes step 3, which can be repeated any number of times, and removes folders that no manifest points
to. There is one writer at a time (`lock.py`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from foretext.errors import refuse_if
from foretext.runs.directory import (
    JOURNAL,
    MANIFEST,
    METRICS,
    STAGING,
    Commit,
    LogLine,
    RunDirectory,
    Stamp,
    commit_of,
    inside,
    is_safe_name,
    manifest_json,
    object_in,
    open_plain,
    read_manifest,
    stamp,
)
from foretext.runs.lock import LOCK, Lock, Owner
from foretext.runs.machine import write_error, writing_to

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = re.compile(r"\.commit-[0-9a-f]{32}")
Content = bytes | Mapping[str, "Tensor"]
_REMOVED = ".removed.json"  # in a commit's folder: the files that its manifest no longer lists, in manifest format
_RESERVED = (MANIFEST, JOURNAL, LOCK, METRICS)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


# -- the writer --------------------------------------------------------------------------------------------------------


class RunWriter:
    """Writes to a run directory; created by `RunDirectory.writer()`."""

    def __init__(self, run: RunDirectory, lock: Lock, notice: Callable[[str], None]) -> None:
        self.run = run
        self._lock = lock
        self.log = MetricsLog(run.path, notice)
        newest = run.newest()
        self._files = {} if newest is None else newest.files
        self._finish(newest)
        sweep(run.path, newest)

    def close(self) -> None:
        self.log.close()

    def commit(self, files: Mapping[str, Content], remove: Collection[str] = ()) -> None:
        """Atomically puts all of `files` in place and removes `remove`; other files stay.

        A value is a file's bytes, or tensors for a safetensors file (the caller leaves out tied tensors).
        """
        for name in [*files, *remove]:
            assert is_safe_name(name) and name not in _RESERVED, f"{name}: not a valid name for a run's file"
        assert not set(files) & set(remove), "a file both written and removed"
        self._lock.ensure()
        root = self.run.path
        with writing_to(root, sum(map(_size, files.values()))):
            self.log.sync()  # the position in this commit refers to the log's length
            newest = self.run.newest()
            # Nothing is overwritten that this run did not write: neither another writer's files nor unrelated ones.
            changed = ({} if newest is None else newest.files) != self._files
            refuse_if(changed, f"{root}: changed by another process since this one opened it; nothing was written")
            for path in [inside(root, name) for name in files if name not in self._files]:
                refuse_if(
                    path.exists(),
                    f"{path} is in the way and does not belong to this run: move it, or choose another --out",
                )
            self._finish(newest)
            newest = publish(root, self._files, files, remove)
        self._files = newest.files
        self._finish(newest)

    def _finish(self, newest: Commit | None) -> None:
        with writing_to(self.run.path):  # the commit itself is done; a later writer finishes the renames
            if newest is not None:
                finish(newest)


def _size(content: Content) -> int:
    if isinstance(content, bytes):
        return len(content)
    return sum(tensor.numel() * tensor.element_size() for tensor in content.values())


# -- a new commit ------------------------------------------------------------------------------------------------------


def no_stage(name: str) -> None:
    """The stages of a commit do nothing in a program."""


on_stage: Callable[[str], None] = no_stage
"""Called with a name before each system call of a commit. The fault tests put a kill here; nothing else uses it."""


def publish(root: Path, before: Mapping[str, Stamp], files: Mapping[str, Content], remove: Collection[str]) -> Commit:
    """Everything up to the commit point. The manifest lists `files`, and those of `before` except `remove`."""
    me = Owner.me()
    folder = root / f".staging-{me.host}-{me.pid}-{max(me.started, 0)}-{secrets.token_hex(4)}"
    on_stage("make the folder")
    folder.mkdir()
    try:
        stamps = {name: write_new(folder / name, content) for name, content in files.items()}
        after = {name: entry for name, entry in before.items() if name not in remove} | stamps
        write_new(folder / MANIFEST, manifest_json(after))
        if removed := {name: entry for name, entry in before.items() if name not in after}:
            write_new(folder / _REMOVED, manifest_json(removed))
        for each in {folder, *((folder / name).parent for name in files)}:
            on_stage(f"sync {each.name}")
            sync_folder(each)
        for name in files:  # find a file that cannot be renamed into place before the commit
            inside(root, name).parent.mkdir(parents=True, exist_ok=True)
        commit = commit_of(root, after)
        on_stage("name the folder")
        shutil.rmtree(root / commit.folder, ignore_errors=True)  # left by a failed attempt
        folder = folder.rename(root / commit.folder)
        on_stage("sync the name")
        sync_folder(root)
        on_stage("commit")
        (folder / MANIFEST).replace(root / MANIFEST)
    except BaseException:
        # otherwise the error came after the commit
        if folder.name.startswith(".staging") or (folder / MANIFEST).exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return commit


def finish(commit: Commit) -> None:
    """Everything after the commit point: move the files to their places. Safe to repeat after any interruption."""
    root = commit.root
    if not (root / commit.folder).is_dir() and not (root / JOURNAL).exists():
        return
    on_stage("sync the manifest")
    sync_folder(root)
    folders = {root}
    for name in sorted(commit.staged):
        if waiting := commit.waiting(name):
            place = inside(root, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            on_stage(f"rename {name}")
            with contextlib.suppress(FileNotFoundError):  # a writer that does not see our lock was faster
                waiting.replace(place)
            folders.add(place.parent)
    gone: Collection[str] = commit.removed
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        gone = read_manifest(root / commit.folder / _REMOVED)
    removed = [inside(root, name) for name in gone if name not in commit.files]
    for place in removed:
        on_stage(f"remove {place.name}")
        place.unlink(missing_ok=True)
    for folder in sorted(folders | {place.parent for place in removed if place.parent.is_dir()}):
        on_stage(f"sync {folder.name}")
        sync_folder(folder)
    (root / JOURNAL).unlink(missing_ok=True)
    on_stage("remove the folder")
    shutil.rmtree(root / commit.folder, ignore_errors=True)
    for place in removed:
        if place.parent != root:
            with contextlib.suppress(OSError):
                place.parent.rmdir()  # removes it only if empty


def sweep(root: Path, commit: Commit | None) -> None:
    """Removes what no manifest points to: folders of commits that never happened, and those of writers that are dead or
    are this process. Needs the lock."""
    for folder in root.iterdir():
        if folder.is_symlink() or (commit and folder.name == commit.folder):
            continue
        if staged := STAGING.fullmatch(folder.name):
            owner = Owner(staged[1], int(staged[2]), int(staged[3]))
            over = owner.is_dead() or owner == Owner.me()
        else:
            over = FOLDER.fullmatch(folder.name) is not None
        if over:
            shutil.rmtree(folder, ignore_errors=True)


# -- files that last ---------------------------------------------------------------------------------------------------


def write_new(path: Path, content: Content, metadata: dict[str, str] | None = None) -> Stamp:
    """Writes and syncs a new file; returns the size and hash of what is on the disk. `metadata`: for the header of a
    tensor file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    on_stage(f"write {path.name}")
    if isinstance(content, bytes):
        with path.open("xb") as new:
            new.write(content)
    else:
        _save_tensors(path, content, metadata)
        path.chmod(path.parent.stat().st_mode & 0o666)  # as the user's umask has it; safetensors writes 0600
    with open_plain(path) as file:
        on_stage(f"sync {path.name}")
        sync_file(file.fileno())
        return stamp(file)


def _save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:
        number = _OS_ERROR.search(str(error))  # the only trace that a full disk leaves here
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from None


def sync_file(descriptor: int) -> None:
    """Sync to the disk itself: on macOS fsync alone stops at the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable. Some network file systems cannot do this and need not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


# -- the log -----------------------------------------------------------------------------------------------------------


class MetricsLog:
    """The writing side of metrics.jsonl, one JSON object per line.

    The log is not in the manifest: it grows between checkpoints. A checkpoint records how long the log was, and
    resuming truncates it to that length, so that a resumed run ends with the same log as an uninterrupted one. Lines
    about bad steps are kept when their steps are undone, since users look for them: see `Loop.restore`. The file is
    opened at first use, so a run that logs nothing has none.
    """

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        self.path = folder / METRICS
        self._notice = notice
        self._descriptor: int | None = None

    def _open(self) -> int:
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with writing_to(self.path):
                self._descriptor = os.open(self.path, flags, 0o666)
        return self._descriptor

    def size(self) -> int:
        """Bytes written so far, which a checkpoint records."""
        return os.fstat(self._open()).st_size

    def append(self, line: LogLine) -> None:
        """Adds one line. Non-finite numbers become null: JSON cannot hold them."""
        data = (json.dumps(_finite(line), ensure_ascii=False, allow_nan=False) + "\n").encode()
        descriptor, before = self._open(), self.size()
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(descriptor, before)
            raise write_error(self.path, error, len(data)) from None

    def rows_after(self, size: int, key: str) -> list[LogLine]:
        """The lines beyond `size` bytes that have `key`. Unreadable lines are skipped: they will be cut off anyway."""
        lines = os.pread(self._open(), max(0, self.size() - size), size).split(b"\n")[:-1]
        return [cast(LogLine, row) for row in map(object_in, lines) if row is not None and key in row]

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes, the length at the checkpoint."""
        descriptor, before = self._open(), self.size()
        if before < size:
            self._notice(
                f"{self.path}: {size - before:,} bytes shorter than at the checkpoint; lines of the log are lost"
            )
            size = os.pread(descriptor, before, 0).rfind(b"\n") + 1  # do not leave half a line
        os.ftruncate(descriptor, size)

    def sync(self) -> None:
        if self._descriptor is not None:
            sync_file(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
