"""The run directory as every verb reads it. `commit.py` writes it.

`manifest.json` lists the files with their sizes and hashes, and no file is read that does not match. Only JSON, TOML
and safetensors are read, so loading cannot run code. No symbolic link is followed out of the directory. Reading needs
no lock and no torch, except in `load_tensors`.

Each single read is consistent with the newest commit. To read several files of the same commit while another process
trains there, read them under `writer()`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

from foretext.config import Json
from foretext.errors import UserError, refuse_if
from foretext.runs.machine import is_a_link, size_text, write_error

if TYPE_CHECKING:
    from torch import Tensor

    from foretext.runs.commit import RunWriter

T = TypeVar("T")

MANIFEST = "manifest.json"
JOURNAL = "commit.json"  # of a commit that an earlier version left unfinished
METRICS = "metrics.jsonl"
FORMAT = 1
STAGING = re.compile(r"\.staging-([A-Za-z0-9._]+)-(\d{1,10})-(\d{1,20})-[0-9a-f]+")
_MAX_JSON = 4_000_000  # enough for thousands of files
_MAX_HEADER = 16_000_000  # of a safetensors file: enough for 100,000 tensors
_PART = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,127}")  # no leading dot: such names are for staging
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REMEDY = "restore it from a copy, or train again into a new directory"


class BadStep(TypedDict):
    """A step whose loss or gradient was not finite. JSON has no NaN, so numbers are texts."""

    epoch: int
    samples: list[int]
    losses: dict[str, str]
    norm: str


class LogLine(TypedDict, total=False):
    """A line of the log: the position, and one of losses, samples, validation or bad step."""

    step: int
    tokens: int
    seconds: float
    losses: dict[str, float]  # in the file, a number that is not finite is null
    rate: float
    tokens_per_second: float
    epoch: int
    samples: list[int]
    validation: dict[str, float]
    bad_step: BadStep
    undone: bool  # a resume has undone the step


# -- names and files ---------------------------------------------------------------------------------------------------


def is_safe_name(name: object, most: int = 4) -> bool:
    """Whether `name` is a plain relative path (`training/position.json`) with at most `most` parts, which cannot leave
    its directory."""
    if not isinstance(name, str):
        return False
    parts = name.split("/")
    return len(parts) <= most and all(_PART.fullmatch(part) for part in parts)


def inside(root: Path, name: str) -> Path:
    """The path of `name` under `root`; UserError if it or a folder on the way is a symbolic link."""
    path = root
    for part in name.split("/"):
        path = path / part
        if path.is_symlink():
            raise is_a_link(path)
    return path


def open_plain(path: Path) -> BufferedReader:
    """Opens a regular file for reading; never a link, a device or a pipe."""
    try:  # O_NONBLOCK: opening a pipe must not wait for a writer
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise is_a_link(path) from None
        raise
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise UserError(f"{path}: refused: not a regular file")
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
    folder: str  # the folder with its files that are not in their places yet
    staged: Mapping[str, str]  # their names in that folder
    removed: tuple[str, ...] = ()  # files of the previous commit that a journal names

    def waiting(self, name: str) -> Path | None:
        """Where a file is that is not in its place yet; None if it is in place."""
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
    """The commit that `manifest.json` points to, checked; None without one."""
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
        # A journal implies a manifest: either it was renamed into place just now, or another commit followed.
    raise UserError(f"{path}: missing or cut short, though {JOURNAL} lists it: restore it from a copy")


def read_manifest(path: Path) -> dict[str, Stamp]:
    """Name, size and hash of each listed file. FileNotFoundError passes through; anything malformed is a UserError."""
    return _listed(path, _read_json(path))


def _journal(root: Path) -> Commit | None:
    """The commit described by `commit.json`. Earlier versions committed with it; the manifest may then still be in the
    folder."""
    path = root / JOURNAL
    try:
        value = _read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    files = _listed(path, value)
    removed, folder = value.get("remove"), value.get("staging")
    if not isinstance(removed, list) or not isinstance(folder, str) or not STAGING.fullmatch(folder):
        raise UserError(f"{path}: damaged: not a commit journal; restore it from a copy")
    staged = {name: value["files"][name].get("staged") for name in files}
    for names, parts in ((removed, 4), (staged.values(), 1)):
        _check_names(path, names, parts)
    return Commit(root, files, folder, staged, tuple(removed))


def _read_json(path: Path) -> Json:
    with open_plain(path) as file:
        data = file.read(_MAX_JSON + 1)
    refuse_if(
        len(data) > _MAX_JSON, f"{path}: too large ({_MAX_JSON:,} bytes at most): it is damaged, or not a file of a run"
    )
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise UserError(f"{path}: damaged: not valid JSON; restore it from a copy") from None
    refuse_if(not isinstance(value, dict), f"{path}: damaged: not a JSON object; restore it from a copy")
    return value


def _listed(path: Path, value: Json) -> dict[str, Stamp]:
    """The files that a manifest or a journal lists, checked."""
    refuse_if(
        value.get("format") != FORMAT,
        f"{path}: its format is {str(value.get('format'))[:20]}, but this version reads {FORMAT}: it is damaged, or "
        "was made by another version of foretext",
    )
    files = value.get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise UserError(f"{path}: damaged: it lists no files; restore it from a copy")
    _check_names(path, files)
    for name, entry in files.items():
        size, digest = entry.get("bytes"), entry.get("sha256")
        whole = type(size) is int and size >= 0 and isinstance(digest, str) and _DIGEST.fullmatch(digest)
        refuse_if(not whole, f"{path}: damaged: no size and SHA-256 for {name}; restore it from a copy")
    return {name: Stamp(entry["bytes"], entry["sha256"]) for name, entry in files.items()}


def _check_names(path: Path, names: Iterable[object], parts: int = 4) -> None:
    for name in names:
        refuse_if(
            not is_safe_name(name, parts),
            f"{path}: refused the file name {str(name)[:100]!r}: it points outside the directory",
        )


# -- the directory ----------------------------------------------------------------------------------------------------


class RunDirectory:
    """A run directory for reading; `writer()` is for writing. Creating the object touches no file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self) -> bool:
        """Whether there is a checkpoint; False before a run's first commit."""
        return self.newest() is not None

    def names(self) -> list[str]:
        """The files of the run, as its manifest lists them."""
        return sorted(self._need().files)

    def has(self, name: str) -> bool:
        newest = self.newest()
        return newest is not None and name in newest.files

    def sizes(self) -> dict[str, int]:
        return {name: entry.bytes for name, entry in sorted(self._need().files.items())}

    def read(self, name: str) -> bytes:
        """A file's bytes, verified."""
        return self._consistently(name, lambda path, file: file.read())

    def load_tensors(self, name: str, device: str = "cpu") -> dict[str, Tensor]:
        """The tensors of a safetensors file, verified."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        def use(path: Path, file: BufferedReader) -> dict[str, Tensor]:
            length = int.from_bytes(file.read(8), "little")
            if length > _MAX_HEADER:
                raise UserError(
                    f"{path}: refused: its header has {size_text(length)}; at most {size_text(_MAX_HEADER)} are allowed"
                )
            try:
                tensors = load_file(path, device=device)
            except (SafetensorError, ValueError, OverflowError) as error:
                raise UserError(f"{path}: not a safetensors file: {error}; {_REMEDY}") from None
            if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                raise FileNotFoundError(errno.ENOENT, "replaced while it was read", str(path))
            return tensors

        return self._consistently(name, use)

    def metrics(self) -> list[LogLine]:
        """The log, one dictionary per line, without a last line that is still being written."""
        path = self.path / METRICS
        try:
            rows = [object_in(line) for line in path.read_bytes().split(b"\n")[:-1]]
        except FileNotFoundError:
            return []
        for number, row in enumerate(rows, start=1):
            refuse_if(row is None, f"{path} line {number}: not a JSON object; remove that line")
        return [cast(LogLine, row) for row in rows if row is not None]

    def newest(self) -> Commit | None:
        """The newest commit; None before the first."""
        try:
            return newest_commit(self.path)
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from None

    def _need(self) -> Commit:
        newest = self.newest()
        if newest is None:
            raise self._not_a_run()
        return newest

    def _not_a_run(self) -> UserError:
        if not self.path.exists():
            make = "foretext pretrain … --out"
            return UserError(f"{self.path}: no such run directory; check the path, or make one: {make} {self.path}")
        if not self.path.is_dir():
            return UserError(f"{self.path} is a file, not a run directory")
        return UserError(f"{self.path} is not a run directory: it has no {MANIFEST}")

    def _look(self, name: str) -> tuple[Path, Commit]:
        """Where a file is at this moment, and the commit that it belongs to."""
        newest = self._need()
        refuse_if(
            name not in newest.files,
            f"{self.path} has no {name}; it holds {', '.join(sorted(newest.files)) or 'nothing'}",
        )
        return newest.path(name), newest

    def _consistently(self, name: str, use: Callable[[Path, BufferedReader], T]) -> T:
        """Calls `use` on a file as the manifest has it. Repeats if a writer committed meanwhile, so that an error is
        about the current commit."""
        for attempt in range(100):
            path, newest = self._look(name)
            try:
                with open_plain(path) as file:
                    _check_stamp(path, file, newest.files[name])
                    file.seek(0)
                    return use(path, file)
            except (UserError, OSError) as error:
                if (path, newest) == self._look(name):
                    raise _reading_error(path, error) from None
            time.sleep(min(0.001 * attempt, 0.05))
        raise UserError(f"{self.path}: {name} changes faster than it can be read; try again")

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def writer(self, notice: Callable[[str], None] = lambda message: None) -> Iterator[RunWriter]:
        """The single writer: takes the lock, finishes an interrupted commit, and removes what dead writers left.

        Makes the directory if needed. `notice` gets a line if a lock was taken over.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise self._not_a_run() from None
        except OSError as error:
            raise write_error(self.path, error) from None
        from foretext.runs.commit import RunWriter  # not needed for reading
        from foretext.runs.lock import Lock

        with Lock(self.path, notice) as lock, contextlib.closing(RunWriter(self, lock, notice)) as writer:
            yield writer


def _check_stamp(path: Path, file: BufferedReader, expected: Stamp) -> None:
    """UserError if the file does not match the manifest."""
    size = os.fstat(file.fileno()).st_size
    refuse_if(size != expected.bytes, f"{path}: {size:,} bytes, but {MANIFEST} says {expected.bytes:,}: {_REMEDY}")
    refuse_if(stamp(file) != expected, f"{path}: damaged: its SHA-256 differs from the one in {MANIFEST}: {_REMEDY}")


def _reading_error(path: Path, error: UserError | OSError) -> UserError:
    if isinstance(error, UserError):
        return error
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path}: missing, though {MANIFEST} lists it: {_REMEDY}")
    return UserError(f"cannot read {path}: {error.strerror or error}")


def object_in(line: bytes) -> Json | None:
    """The JSON object in a line of the log or in the lock; None if it is not one."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
