"""`manifest.json`, the one pointer of a run directory: which files the newest commit has, their sizes and hashes.

A reader needs no lock. A file of a commit is in its place, or still in the folder of that commit, whose name follows
from what the manifest says (`commit.py`). Nothing here follows a symbolic link out of the directory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

from foretext.errors import UserError

MANIFEST = "manifest.json"
JOURNAL = "commit.json"  # of a commit that an earlier version left unfinished
FORMAT = 1
STAGING = re.compile(r"\.staging-([A-Za-z0-9._]+)-(\d{1,10})-(\d{1,20})-[0-9a-f]+")
FOLDER = re.compile(r"\.commit-[0-9a-f]{32}")
_MAX_JSON = 4_000_000  # thousands of files fit
_PART = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,127}")  # no leading dot: those names are for staging


# ── names and files ──────────────────────────────────────────────────────────────────────────────────────────────────


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


def is_a_link(path: Path) -> UserError:
    return UserError(f"{path}: refused: a symbolic link; replace it by the file itself")


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


# ── the newest commit ────────────────────────────────────────────────────────────────────────────────────────────────


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
    staged: dict[str, Any] = {name: entry.get("staged") for name, entry in entries.items()}
    for name, parts in (*((name, 4) for name in removed), *((name, 1) for name in staged.values())):
        if not is_safe_name(name, parts):
            raise _unsafe(path, name)
    files = {name: _stamp_in(path, name, entry) for name, entry in entries.items()}
    return Commit(root, files, folder, staged, tuple(removed))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with open_plain(path) as file:
            data = file.read(_MAX_JSON + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise is_a_link(path) from None
        raise
    if len(data) > _MAX_JSON:
        raise UserError(f"{path}: too large ({_MAX_JSON:,} bytes at most): it is damaged, or not a run's file")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise UserError(f"{path}: damaged: not valid JSON; restore it from a copy") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: damaged: not a JSON object; restore it from a copy")
    return value


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


def _stamp_in(path: Path, name: str, entry: dict[str, Any]) -> Stamp:
    size, digest = entry.get("bytes"), entry.get("sha256")
    if type(size) is int and size >= 0 and isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest):
        return Stamp(size, digest)
    raise UserError(f"{path}: damaged: no size and SHA-256 for {name}; restore it from a copy")


def _unsafe(path: Path, name: object) -> UserError:
    return UserError(f"{path}: refused the file name {str(name)[:100]!r}: it does not stay inside the directory")
