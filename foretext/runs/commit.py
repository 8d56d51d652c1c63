"""What a run directory's newest commit has, and how one is made of several files at once: all of them or none, whenever
the process dies.

`manifest.json` is the one pointer: which files there are, their sizes and hashes. A reader needs no lock. A file of a
commit is in its place, or still in the folder of that commit, whose name follows from what the manifest says. Nothing
here follows a symbolic link out of the directory.

1. Every new file, the new `manifest.json` among them, is written into a folder of the writer's own and synced. The
   folder then gets the name that follows from this manifest.
2. The manifest is renamed into place. This one rename is the commit: before it nothing is visible, after it everything
   is, since whoever reads the manifest also looks for its files in the folder.
3. The other files are renamed to their places (never written there: whoever has the old one open or mapped keeps it),
   those that the manifest no longer lists are removed, then the folder.

The next writer does what is left of step 3, which can be done any number of times, and removes folders that no manifest
points to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from foretext.errors import UserError, refuse_if
from foretext.runs.lock import Owner
from foretext.runs.machine import is_a_link

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
JOURNAL = "commit.json"  # of a commit that an earlier version left unfinished
FORMAT = 1
STAGING = re.compile(r"\.staging-([A-Za-z0-9._]+)-(\d{1,10})-(\d{1,20})-[0-9a-f]+")
FOLDER = re.compile(r"\.commit-[0-9a-f]{32}")
_MAX_JSON = 4_000_000  # thousands of files fit
_PART = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,127}")  # no leading dot: those names are for staging
Content = bytes | Mapping[str, "Tensor"]
_REMOVED = ".removed.json"  # in a commit's folder: the files that its manifest no longer lists, as a manifest
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


# -- names and files ---------------------------------------------------------------------------------------------------


def is_safe_name(name: object, most: int = 4) -> bool:
    """Whether `name` is a plain relative path (`training/position.json`) of so many parts at most, which cannot leave
    its directory."""
    if not isinstance(name, str):
        return False
    parts = name.split("/")
    return len(parts) <= most and all(_PART.fullmatch(part) for part in parts)


def inside(root: Path, name: str) -> Path:
    """The path of `name` under `root`; UserError if it, or a folder on the way, is a symbolic link."""
    path = root
    for part in name.split("/"):
        path = path / part
        if path.is_symlink():
            raise is_a_link(path)
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


@dataclass(frozen=True)
class Stamp:
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


def stamp(file: BufferedReader) -> Stamp:
    """Hashes an open file from its start."""
    file.seek(0)
    return Stamp(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


# -- the newest commit -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commit:
    """The newest commit, as the directory shows it at one moment."""

    root: Path
    files: dict[str, Stamp]
    folder: str  # where those of its files are that are not in their places yet
    staged: Mapping[str, str]  # their names there
    removed: tuple[str, ...] = ()  # files of the commit before it that a journal names

    def waiting(self, name: str) -> Path | None:
        """Where a file is that is not in its place yet; None if it is."""
        path = inside(self.root, f"{self.folder}/{self.staged.get(name, name)}")
        return path if path.exists() else None

    def path(self, name: str) -> Path:
        """Where a file is at this moment."""
        final = inside(self.root, name)
        return self.waiting(name) or final


def manifest_json(files: Mapping[str, Stamp]) -> bytes:
    entries = {name: {"bytes": entry.bytes, "sha256": entry.sha256} for name, entry in files.items()}
    value = {"format": FORMAT, "files": entries}
    return (json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()


def commit_of(root: Path, files: dict[str, Stamp]) -> Commit:
    """The commit whose manifest lists these files."""
    folder = f".commit-{hashlib.sha256(manifest_json(files)).hexdigest()[:32]}"
    return Commit(root, files, folder, {name: name for name in files})


def newest_commit(root: Path) -> Commit | None:
    """What `manifest.json` points to, checked; None without one."""
    for _ in range(100):
        journal = _journal(root)
        path = root / MANIFEST if journal is None else journal.path(MANIFEST)
        try:
            files = read_manifest(path)
            if journal is None:
                return commit_of(root, files)
            with open_plain(path) as file:
                if stamp(file) == journal.files.get(MANIFEST):
                    return replace(journal, files=files)
        except (FileNotFoundError, NotADirectoryError):
            if journal is None:
                return None
        # A journal has a manifest: it was renamed into its place just now, or followed by another.
    raise UserError(f"{path}: missing or cut short, though {JOURNAL} lists it: restore it from a copy")


def read_manifest(path: Path) -> dict[str, Stamp]:
    """Name, size and hash of each file that is listed. FileNotFoundError passes; anything malformed is a UserError."""
    return {name: _stamp_in(path, name, entry) for name, entry in _entries(path, _read_json(path)).items()}


def _journal(root: Path) -> Commit | None:
    """The commit that `commit.json` tells of. Earlier versions committed by it: the manifest is then one of the files
    that may still be in the folder."""
    path = root / JOURNAL
    try:
        value = _read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    entries = _entries(path, value)
    removed, folder = value.get("remove"), value.get("staging")
    if not isinstance(removed, list) or not isinstance(folder, str) or not STAGING.fullmatch(folder):
        raise UserError(f"{path}: damaged: not the journal of a commit; restore it from a copy")
    staged = {name: entry.get("staged") for name, entry in entries.items()}
    for name, parts in (*((name, 4) for name in removed), *((name, 1) for name in staged.values())):
        if not is_safe_name(name, parts):
            raise _unsafe(path, name)
    files = {name: _stamp_in(path, name, entry) for name, entry in entries.items()}
    return Commit(root, files, folder, {name: str(place) for name, place in staged.items()}, tuple(removed))


def _read_json(path: Path) -> dict[str, object]:
    try:
        with open_plain(path) as file:
            data = file.read(_MAX_JSON + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise is_a_link(path) from None
        raise
    refuse_if(
        len(data) > _MAX_JSON, f"{path}: too large ({_MAX_JSON:,} bytes at most): it is damaged, or not a run's file"
    )
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise UserError(f"{path}: damaged: not valid JSON; restore it from a copy") from None
    refuse_if(not isinstance(value, dict), f"{path}: damaged: not a JSON object; restore it from a copy")
    return value


def _entries(path: Path, value: dict[str, object]) -> dict[str, dict[str, object]]:
    refuse_if(
        value.get("format") != FORMAT,
        f"{path}: its format is {str(value.get('format'))[:20]}, this version reads {FORMAT}: "
        "it is damaged, or was made by another version of foretext",
    )
    files = value.get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise UserError(f"{path}: damaged: it lists no files; restore it from a copy")
    for name in files:
        if not is_safe_name(name):
            raise _unsafe(path, name)
    return files


def _stamp_in(path: Path, name: str, entry: dict[str, object]) -> Stamp:
    size, digest = entry.get("bytes"), entry.get("sha256")
    if type(size) is int and size >= 0 and isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest):
        return Stamp(size, digest)
    raise UserError(f"{path}: damaged: no size and SHA-256 for {name}; restore it from a copy")


def _unsafe(path: Path, name: object) -> UserError:
    return UserError(f"{path}: refused the file name {str(name)[:100]!r}: it does not stay inside the directory")


# -- a new commit ------------------------------------------------------------------------------------------------------


def no_stage(name: str) -> None:
    """What is called in a program."""


on_stage: Callable[[str], None] = no_stage
"""Called with a name before each system call of a commit. The fault tests put a kill here; nothing else uses it."""


def publish(root: Path, before: Mapping[str, Stamp], files: Mapping[str, Content], remove: Collection[str]) -> Commit:
    """Up to the commit point: the manifest lists `files`, and those of `before` but `remove`."""
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
        for name in files:  # what cannot be in its place is noticed before the commit
            inside(root, name).parent.mkdir(parents=True, exist_ok=True)
        commit = commit_of(root, after)
        on_stage("name the folder")
        shutil.rmtree(root / commit.folder, ignore_errors=True)  # of an attempt that failed
        folder = folder.rename(root / commit.folder)
        on_stage("sync the name")
        sync_folder(root)
        on_stage("commit")
        (folder / MANIFEST).replace(root / MANIFEST)
    except BaseException:
        if folder.name.startswith(".staging") or (folder / MANIFEST).exists():  # else it came after the commit
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return commit


def finish(commit: Commit) -> None:
    """From the commit point to the files in their places. Safe to do again after any interruption."""
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
    removed = [inside(root, name) for name in _removed(commit) if name not in commit.files]
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
                place.parent.rmdir()  # which removes an empty one only


def _removed(commit: Commit) -> tuple[str, ...]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return tuple(read_manifest(commit.root / commit.folder / _REMOVED))
    return commit.removed


def sweep(root: Path, commit: Commit | None) -> None:
    """Removes what no manifest points to: folders of commits that were not made, and those of writers that are dead, or
    are this process. Only under the lock."""
    for folder in root.iterdir():
        if folder.is_symlink() or (commit and folder.name == commit.folder):
            continue
        if found := STAGING.fullmatch(folder.name):
            owner = Owner(found[1], int(found[2]), int(found[3]))
            over = owner.is_dead() or owner == Owner.me()
        else:
            over = FOLDER.fullmatch(folder.name) is not None
        if over:
            shutil.rmtree(folder, ignore_errors=True)


# -- files that last ---------------------------------------------------------------------------------------------------


def write_new(path: Path, content: Content, metadata: dict[str, str] | None = None) -> Stamp:
    """Writes a file that does not exist yet, synced; the size and hash of what is on the disk. `metadata`: of tensors,
    for the file's header."""
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
        number = _OS_ERROR.search(str(error))  # the only trace that it leaves of a full disk
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from None


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
