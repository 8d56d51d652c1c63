"""Bytes in and out: one way to read a text file, one way to write a file whole.

Reading is strict by default: bytes that are not UTF-8, and NUL characters, end in an error that names the file and
the byte offset. With `errors="replace"` each becomes U+FFFD and a note says how many there were. A UTF-8 byte order
mark is dropped. Line ends (LF, CRLF, CR) are left to the readers of each format.
"""

import contextlib
import gzip
import io
import os
import tempfile
import zlib
from pathlib import Path

from foretext.errors import EXIT_MACHINE, UserError

REPLACEMENT = "\ufffd"
ERRORS = ("strict", "replace")


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """The content of a file, unpacked if its name ends in .gz; an error if that is more than `limit` bytes."""
    try:
        if limit is not None and path.stat().st_size > limit:
            raise _too_large(path, limit)
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder where a file is expected; name a file in it") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    if path.suffix.lower() != ".gz":
        return data
    try:
        plain = gzip.decompress(data) if limit is None else _unpacked(data, limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file ({error}); fetch or pack it again") from None
    if limit is not None and len(plain) > limit:
        raise _too_large(path, limit)
    return plain


def _unpacked(data: bytes, most: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        return packed.read(most)


def _too_large(path: Path, limit: int) -> UserError:
    return UserError(f"{path}: more than {limit / 1e6:,.0f} MB, which is not read at once; split the file")


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


def first_line(path: Path, limit: int = 1_000_000) -> str:
    """The first line that is not blank; empty if there is none."""
    return next((line for line in first_lines(path, limit) if line.strip()), "")


def first_lines(path: Path, limit: int = 1_000_000) -> list[str]:
    """The lines of a file's beginning, to tell by them what it holds; none if it cannot be read, for faults are for the
    reader proper to report."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            return text_lines(file.read(limit).decode("utf-8-sig", errors="replace"))
    except (OSError, EOFError, zlib.error):
        return []


def decode(data: bytes, name: str, errors: str, notes: list[str] | None, encoding: str = "utf-8") -> str:
    assert errors in ERRORS, errors
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) and encoding == "utf-8":
        raise UserError(f"{name}: UTF-16 text (byte offset 0 holds its mark); save the file as UTF-8")
    if encoding == "utf-8" and data.startswith(b"\xef\xbb\xbf"):
        skipped, data = 3, data[3:]
    else:
        skipped = 0
    replaced = 0
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if errors == "strict":
            raise UserError(
                f"{name}: not UTF-8 at byte offset {error.start + skipped} (byte 0x{data[error.start]:02x}, "
                f"line {_line_breaks(data, error.start) + 1}); save the file as UTF-8 or use --errors replace"
            ) from None
        text = data.decode(encoding, errors="replace")
        replaced = text.count(REPLACEMENT) - data.decode(encoding, errors="ignore").count(REPLACEMENT)
    if "\0" in text:
        if errors == "strict":
            at = data.index(b"\0")
            raise UserError(
                f"{name}: NUL character at byte offset {at + skipped} (line {_line_breaks(data, at) + 1}); "
                "it may not be a text file: check it, or use --errors replace"
            )
        replaced += text.count("\0")
        text = text.replace("\0", REPLACEMENT)
    if replaced and notes is not None:
        notes.append(f"{name}: {replaced:,} unreadable places replaced by U+FFFD")
    return text


def _line_breaks(data: bytes, end: int) -> int:
    return data.count(b"\n", 0, end)


def text_lines(text: str) -> list[str]:
    """Lines ended by LF, CRLF or CR and nothing else (`str.splitlines` also cuts at U+2028, form feeds and more)."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


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
