"""Files at once: their bytes and their text by the rules of `text_files.py`, and one way to write a file whole."""

import contextlib
import io
import os
import tempfile
from pathlib import Path

from foretext.errors import EXIT_MACHINE, UserError
from foretext.text.corpus.text_files import ReadReport, TextFile, decoded, is_packed, opened

ERRORS = ("strict", "replace")


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """The content of a file, unpacked if its name ends in .gz; an error if that is more than `limit` bytes."""
    with opened(TextFile(path, "", is_packed(path))) as (_, stream):
        plain = stream.read(-1 if limit is None else limit + 1)
    if limit is not None and len(plain) > limit:
        raise UserError(f"{path}: more than {limit / 1e6:,.0f} MB, which is not read at once; split the file")
    return plain


def read_text(
    path: Path,
    errors: str = "strict",
    notes: list[str] | None = None,
    encoding: str = "utf-8",
    limit: int | None = None,
) -> str:
    """The text of a file; `notes` collects sentences for the user, such as how many bytes were replaced."""
    text = decode(read_bytes(path, limit), str(path), errors, notes, encoding)
    if not text.strip():
        raise UserError(f"{path}: the file is {'blank' if text else 'empty'}; give a file with rows in it")
    return text


def decode(data: bytes, name: str, errors: str, notes: list[str] | None, encoding: str = "utf-8") -> str:
    """The text of bytes, its line ends as they are."""
    assert errors in ERRORS, errors
    report = ReadReport()
    text = "".join(decoded(io.BytesIO(data), name, errors, report, ends=True, encoding=encoding))
    note_replaced(notes, name, report.replaced)
    return text


def note_replaced(notes: list[str] | None, name: str, count: int) -> None:
    """A note for the user, if anything was replaced."""
    if count and notes is not None:
        notes.append(f"{name}: {count:,} unreadable places replaced by U+FFFD")


def write_whole(path: Path, data: bytes) -> None:
    """Write aside in the same folder, sync, rename: a reader sees the old file or the new one, never a part."""
    staging = None
    try:
        handle, staging = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        Path(staging).chmod(0o666 & ~_umask())
        Path(staging).replace(path)
    except OSError as error:
        if staging is not None:
            with contextlib.suppress(OSError):
                Path(staging).unlink()
        if isinstance(error, FileNotFoundError):
            raise UserError(f"{path}: the folder {path.parent} does not exist; create it first") from None
        if isinstance(error, IsADirectoryError):
            raise UserError(f"{path} is a folder; give the name of a file to write") from None
        raise UserError(f"{path}: cannot be written ({error.strerror}); nothing was changed", EXIT_MACHINE) from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
