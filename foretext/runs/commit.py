"""The commit of several files at once under fixed names: all of them or none, whenever the process dies.

1. Every new file, the new `manifest.json` among them, is written into a staging folder of the writer's own and synced.
2. `commit.json`, the journal, is renamed into place. It says which staged file becomes which, and which files go.
   This one rename is the commit: before it nothing is visible, after it everything is.
3. Each staged file is renamed to its final name (never written in place: whoever has the old one open or mapped keeps
   it), the files to remove are removed, then the journal, then the staging folder.

A reader needs no lock. While there is a journal, a name means its staged file if that is still there, else the one in
place. The next writer rolls a journal that it finds forward, which can be done any number of times.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretext.errors import UserError
from foretext.runs.durable_files import (
    Stamp,
    canonical_json,
    inside,
    is_safe_name,
    open_plain,
    read_json,
    remove_quietly,
    stage,
    stamp,
    sync_file,
    sync_folder,
    to_stamp,
    write_new,
)
from foretext.runs.lock import Owner

if TYPE_CHECKING:
    from torch import Tensor

JOURNAL = "commit.json"
MANIFEST = "manifest.json"
FORMAT = 1
_STAGING = re.compile(r"\.staging-([A-Za-z0-9._]+)-(\d{1,10})-(\d{1,20})-[0-9a-f]+")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


# ── manifest and journal ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Staged:
    """One file of a commit: its name inside the staging folder, its size and hash."""

    staged: str
    stamp: Stamp


@dataclass(frozen=True)
class Journal:
    staging: str
    files: dict[str, Staged]
    remove: tuple[str, ...]

    def resolve(self, root: Path, name: str) -> Path:
        """Where `name` is at this moment."""
        final = inside(root, name)
        entry = self.files.get(name)
        if entry is not None and os.path.lexists(root / self.staging / entry.staged):
            return root / self.staging / entry.staged
        return final

    def to_json(self) -> bytes:
        files = {
            name: {"staged": entry.staged, "bytes": entry.stamp.bytes, "sha256": entry.stamp.sha256}
            for name, entry in self.files.items()
        }
        value = {"format": FORMAT, "staging": self.staging, "files": files, "remove": list(self.remove)}
        return canonical_json(value)


def manifest_json(files: Mapping[str, Stamp]) -> bytes:
    entries = {name: {"bytes": entry.bytes, "sha256": entry.sha256} for name, entry in files.items()}
    return canonical_json({"format": FORMAT, "files": entries})


def read_journal(root: Path) -> Journal | None:
    """The journal of an unfinished commit, checked; None without one."""
    try:
        value = read_json(root / JOURNAL)
    except (FileNotFoundError, NotADirectoryError):
        return None
    files = _entries(root / JOURNAL, value)
    remove, staging = value.get("remove"), value.get("staging")
    if not isinstance(remove, list) or not isinstance(staging, str) or not _STAGING.fullmatch(staging):
        raise UserError(f"{root / JOURNAL}: damaged: not the journal of a commit; restore it from a copy")
    for name in remove:
        if not is_safe_name(name):
            raise _unsafe(root / JOURNAL, name)
    if (root / staging).is_symlink():
        raise UserError(f"{root / staging}: refused: a symbolic link")
    for entry in files.values():
        if not is_safe_name(entry.get("staged")) or "/" in entry["staged"]:
            raise _unsafe(root / JOURNAL, entry.get("staged"))
    staged = {name: Staged(entry["staged"], _stamp(root / JOURNAL, name, entry)) for name, entry in files.items()}
    return Journal(staging, staged, tuple(remove))


def read_manifest(root: Path, journal: Journal | None) -> dict[str, Stamp] | None:
    """Size and hash of every file of the run as it is now; None if there is no manifest."""
    path = journal.resolve(root, MANIFEST) if journal else root / MANIFEST
    try:
        value = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return {name: _stamp(path, name, entry) for name, entry in _entries(path, value).items()}


def _entries(path: Path, value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if value.get("format") != FORMAT:
        raise UserError(
            f"{path}: its format is {str(value.get('format'))[:20]}, this version reads {FORMAT}: "
            "it is damaged, or was made by another version of foretext"
        )
    files = value.get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise UserError(f"{path}: damaged: it lists no files; restore it from a copy")
    for name in files:
        if not is_safe_name(name):
            raise _unsafe(path, name)
    return files


def _stamp(path: Path, name: str, entry: dict[str, Any]) -> Stamp:
    try:
        return to_stamp(entry)
    except (KeyError, ValueError):
        raise UserError(f"{path}: damaged: no size and SHA-256 for {name}; restore it from a copy") from None


def _unsafe(path: Path, name: object) -> UserError:
    return UserError(f"{path}: refused the file name {str(name)[:100]!r}: it does not stay inside the directory")


# ── staging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def new_staging(root: Path) -> Path:
    me = Owner.me()
    folder = root / f".staging-{me.host}-{me.pid}-{max(me.started, 0)}-{secrets.token_hex(4)}"
    stage("make the staging folder")
    folder.mkdir()
    return folder


def sweep(root: Path, keep: str | None = None) -> None:
    """Removes the staging folders whose owner is dead, or is this process. Only under the lock."""
    me = Owner.me()
    for folder in root.iterdir():
        match = _STAGING.fullmatch(folder.name)
        if match is None or folder.name == keep or folder.is_symlink():
            continue
        owner = Owner(match[1], int(match[2]), int(match[3]))
        if owner.is_dead() or owner == me:
            shutil.rmtree(folder, ignore_errors=True)


def write_staged(
    folder: Path, staged: str, content: bytes | Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> Stamp:
    """Writes one new file into the staging folder, synced; returns the size and hash of what is on the disk.
    `metadata`: of tensors, for the file's header."""
    path = folder / staged
    stage(f"write {staged}")
    if isinstance(content, bytes):
        write_new(path, content)
    else:
        _save_tensors(path, content, metadata)
        path.chmod(folder.stat().st_mode & 0o666)  # as the user's umask has it; safetensors writes 0600
    with open_plain(path) as file:
        stage(f"sync {staged}")
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


# ── committing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def publish(root: Path, folder: Path, journal: Journal) -> None:
    """The commit point: the journal becomes visible, and durable."""
    write_staged(folder, JOURNAL, journal.to_json())
    stage("sync the staging folder")
    sync_folder(folder)
    for parent in _folders(root, journal):
        stage(f"make {parent.name}")
        parent.mkdir(parents=True, exist_ok=True)
    stage("commit")
    (folder / JOURNAL).replace(root / JOURNAL)


def roll_forward(root: Path, journal: Journal) -> None:
    """From a published journal to the files in place. Safe to do again after any interruption, and by two at once."""
    _check_complete(root, journal)
    stage("sync the journal")
    sync_folder(root)
    for parent in _folders(root, journal):
        parent.mkdir(parents=True, exist_ok=True)
    for name in sorted(journal.files):
        stage(f"rename {name}")
        with contextlib.suppress(FileNotFoundError):  # renamed by an earlier attempt
            (root / journal.staging / journal.files[name].staged).replace(inside(root, name))
    for name in journal.remove:
        stage(f"remove {name}")
        remove_quietly(inside(root, name))
    for parent in {root, *_folders(root, journal)}:
        stage(f"sync {parent.name}")
        sync_folder(parent)
    stage("remove the journal")
    remove_quietly(root / JOURNAL)
    stage("sync the directory")
    sync_folder(root)
    stage("remove the staging folder")
    shutil.rmtree(root / journal.staging, ignore_errors=True)
    _remove_empty(root, journal)


def _check_complete(root: Path, journal: Journal) -> None:
    for name, entry in journal.files.items():
        path = journal.resolve(root, name)
        if not path.is_file() or path.stat().st_size != entry.stamp.bytes:
            raise UserError(f"{path}: missing or cut short, though {JOURNAL} lists it: restore it from a copy")


def _folders(root: Path, journal: Journal) -> list[Path]:
    return sorted({inside(root, name).parent for name in journal.files} - {root})


def _remove_empty(root: Path, journal: Journal) -> None:
    for name in journal.remove:
        folder = inside(root, name).parent
        if folder != root:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def removed_unless_committed(root: Path, folder: Path) -> Iterator[None]:
    """Takes the staging folder away if the block fails before the commit point."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, UserError):
            journal = read_journal(root)
            if journal is None or journal.staging != folder.name:
                shutil.rmtree(folder, ignore_errors=True)
        raise
