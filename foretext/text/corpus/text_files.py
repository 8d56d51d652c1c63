"""Finds files and reads them as clean text: UTF-8 is checked, a byte-order mark is removed, line ends become \n.

Text is streamed in blocks of about a megabyte, or in whole lines, so that no file is held in memory. Bytes that are not
UTF-8 are an error that names the file and the byte; with `errors="replace"` they are replaced and counted. A line ends
where an editor ends it, at \n, \r\n or \r, and nowhere else.

Also: reading small files at once.

`write_whole` writes a file so that a reader sees the old content or the new one, never a part: a temporary file in the
same folder, sync, rename.
"""

import codecs
import contextlib
import glob
import gzip
import io
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from foretext.errors import EXIT_MACHINE, UserError, counted, refuse_if

TABLES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
LONGEST_LINE = 64_000_000  # characters
REPLACEMENT = "\ufffd"
_KNOWN = "a .txt, .jsonl, .csv, .tsv or .parquet file, or one of these with .gz"
_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"
_NEWLINE = b"\n"
_Codec = Callable[[bytes, str, bool], tuple[str, int]]  # bytes, errors, whether they are the last → text, bytes used
_CODECS: dict[str, _Codec] = {
    "utf-8": codecs.utf_8_decode,
    "latin-1": lambda data, errors, final: codecs.latin_1_decode(data, errors),
}
_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


@dataclass(frozen=True)
class TextFile:
    path: Path
    kind: str  # "txt", or one of TABLES
    gzipped: bool

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.path.stat().st_size

    @property
    def packed(self) -> bool:
        """Whether the file is compressed, so that the text is longer than its bytes on disk."""
        return self.gzipped or self.kind == "parquet"


@dataclass
class ReadReport:
    """What the reader has found so far."""

    documents: int = 0
    bytes: int = 0  # UTF-8 bytes of the documents
    replaced: int = 0  # undecodable bytes replaced by U+FFFD
    cut: int = 0  # extra pieces from cutting over-long documents
    blank: int = 0  # rows and lines without text, left out
    empty_files: int = 0
    rules: dict[str, int] = field(default_factory=Counter)  # rule → number of files read by it
    done_bytes: int = 0  # position over all files, as stored on disk, for a progress bar
    total_bytes: int = 0

    @property
    def rule(self) -> str:
        """How the text was split into documents, in words."""
        if len(self.rules) == 1:
            return next(iter(self.rules))
        return "; ".join(f"{rule} ({counted(count, 'file')})" for rule, count in self.rules.items())


def find_files(inputs: Sequence[str | Path]) -> list[TextFile]:
    """Files, folders (with everything below them) and globs, sorted by path, each file once."""
    by_path: dict[Path, TextFile] = {}
    for given in inputs:
        for path in _expand(given):
            file = _as_text_file(path)
            if file is not None:
                by_path.setdefault(path.resolve(), file)
            elif not Path(given).is_dir():
                raise UserError(f"{path}: files of this kind cannot be read; give {_KNOWN}")
    files = sorted(by_path.values(), key=lambda file: str(file.path))
    if not files:
        raise UserError(f"no text files in {_listed(inputs)}; give {_KNOWN}, or a folder of them")
    if not any(file.size for file in files):
        raise UserError(f"{_listed(inputs)}: empty, there is no text in it; give a file with text")
    return files


def _listed(inputs: Sequence[str | Path]) -> str:
    names = ", ".join(str(given) for given in inputs[:3])
    return (
        names + (f" and {len(inputs) - 3} more" if len(inputs) > 3 else "") if names else "the (empty) list of inputs"
    )


def _expand(given: str | Path) -> list[Path]:
    path = Path(given).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        inside = []
        for folder, subfolders, names in os.walk(path):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            inside += [Path(folder) / name for name in names if not name.startswith(".")]
        return inside
    if glob.has_magic(str(given)):
        matches = [Path(match) for match in glob.glob(str(path), recursive=True)]  # noqa: PTH207
        files = [match for match in matches if match.is_file()]
        if files:
            return files
        raise UserError(f"{given}: no file matches this pattern; check it")
    raise UserError(f"{given}: no such file or folder; check the path")


def _as_text_file(path: Path) -> TextFile | None:
    kind = "txt" if ending(path) == ".txt" else TABLES.get(ending(path))
    return None if kind is None else TextFile(path, kind, is_packed(path))


def is_packed(path: Path) -> bool:
    """Whether a file's name says that it is gzipped."""
    return path.suffix.lower() == ".gz"


def ending(path: Path) -> str:
    """The ending of a name (before .gz), with its dot, in lower case; empty if there is none."""
    return Path(path.stem if is_packed(path) else path.name).suffix.lower()


def plain_file(path: str | Path) -> TextFile:
    """The file, whatever its ending; its first bytes tell whether it is gzipped."""
    path = Path(path).expanduser()
    refuse_if(path.is_dir(), f"{path} is a folder where a file is expected; name a file in it")
    refuse_if(not path.exists(), f"{path}: no such file; check the path")
    return TextFile(path, "txt", unpacked_beginning(TextFile(path, "txt", False), len(_GZIP)) == _GZIP)


def unpacked_beginning(file: TextFile, size: int) -> bytes:
    """The first bytes, decompressed; empty if unreadable, which the actual reader reports."""
    try:
        with opened(file) as (_, stream):
            return stream.read(size)
    except UserError:
        return b""


def first_lines(path: Path) -> list[str]:
    """The first lines of a file, to guess what it holds; empty if unreadable."""
    data = unpacked_beginning(TextFile(path, "txt", is_packed(path)), _BLOCK)
    return text_lines(data.decode("utf-8-sig", errors="replace"))


def first_line(path: Path) -> str:
    """The first line that is not blank; empty if there is none."""
    return next((line for line in first_lines(path) if line.strip()), "")


def text_lines(text: str) -> list[str]:
    """The lines of a text, without line ends. (`str.splitlines` also splits at U+2028, form feeds and more.)"""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def line_blocks(file: TextFile, errors: str, report: ReadReport, *, ends: bool = False) -> Iterator[list[str]]:
    """All lines, about a megabyte at a time; with `ends` they keep their line ends."""
    rest, number = "", 1
    for block in text_blocks(file, errors, report, ends=ends):
        text = rest + block
        if ends:
            lines = list(io.StringIO(text, newline=""))
            rest = lines.pop() if text[-1] != "\n" else ""  # \r may be half of a line end
        else:
            *lines, rest = text.split("\n")
        if lines:
            number += len(lines)
            yield lines
        if len(rest) > LONGEST_LINE:
            raise UserError(
                f"{file.path} line {number}: longer than {LONGEST_LINE:,} characters; check that this is the right file"
            )
    if rest:
        yield [rest]


def text_blocks(file: TextFile, errors: str, report: ReadReport, *, ends: bool = False) -> Iterator[str]:
    """The file's text in blocks, which may end between any two characters. With `ends`, line ends are kept as they
    are."""
    before = report.done_bytes
    with opened(file) as (raw, stream):
        for text in decoded(stream, str(file.path), errors, report, ends=ends):
            report.done_bytes = before + raw.tell()
            yield text
    report.done_bytes = before + file.size


@contextlib.contextmanager
def plain_path(file: TextFile) -> Iterator[Path]:
    """A path to the file's uncompressed bytes, for a reader that needs random access. A gzipped file is decompressed
    into a temporary file, not into memory."""
    if not file.gzipped:
        yield file.path
        return
    with tempfile.TemporaryDirectory(prefix="foretext-") as folder:
        path = Path(folder) / f"unpacked.{file.kind}"
        _unpack(file, path)
        yield path


def _unpack(file: TextFile, path: Path) -> None:
    try:
        with path.open("wb") as out:
            out.writelines(_unpacked_blocks(file))
    except OSError as error:  # a write error: read errors are user errors already
        raise UserError(
            f"{file.path}: cannot be decompressed into {path.parent.parent} ({error.strerror}); make room there, or "
            "decompress the file elsewhere",
            EXIT_MACHINE,
        ) from None


def _unpacked_blocks(file: TextFile) -> Iterator[bytes]:
    with opened(file) as (_, stream):
        while block := stream.read(_BLOCK):
            yield block


@contextlib.contextmanager
def opened(file: TextFile) -> Iterator[tuple[io.BufferedIOBase, io.BufferedIOBase]]:
    """The file as stored on disk, and decompressed."""
    try:
        with file.path.open("rb") as raw:
            yield raw, gzip.GzipFile(fileobj=raw) if file.gzipped else raw
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{file.path}: damaged gzip file; get it again") from None
    except FileNotFoundError:
        raise UserError(f"{file.path}: no such file; check the path") from None
    except IsADirectoryError:
        raise UserError(f"{file.path} is a folder where a file is expected; name a file in it") from None
    except OSError as error:
        raise UserError(f"{file.path}: cannot be read ({error.strerror or error}); check its permissions") from None


def decoded(
    stream: io.BufferedIOBase,
    name: str,
    errors: str,
    report: ReadReport,
    *,
    ends: bool = False,
    encoding: str = "utf-8",
) -> Iterator[str]:
    """The text of a stream of bytes, in blocks. With `ends`, line ends are kept as they are."""
    codec = _CODECS[encoding]
    newlines = io.IncrementalNewlineDecoder(None, translate=not ends)
    offset, line, pending = 0, 1, b""  # `pending`: the first bytes of a character that the next block completes
    while True:
        block = stream.read(_BLOCK)
        data = pending + block
        if offset == 0 and encoding == "utf-8":
            data, offset = _without_mark(name, data)
        text, used, place, what = _decode(data, codec, final=not block)
        if what and errors != "replace":
            raise UserError(
                f"{name} byte {offset + place}: {what} (line {line + data.count(_NEWLINE, 0, place)}); convert the "
                "file to UTF-8, or replace such bytes with --errors replace"
            )
        if what:
            real = codec(data[:used], "ignore", not block)[0].count(REPLACEMENT)
            report.replaced += text.count(REPLACEMENT) - real + text.count("\0")
            text = text.replace("\0", REPLACEMENT)
        pending, offset, line = data[used:], offset + used, line + data.count(_NEWLINE, 0, used)
        if text := newlines.decode(text, final=not block):
            yield text
        if not block:
            return


def _without_mark(name: str, data: bytes) -> tuple[bytes, int]:
    if data.startswith(codecs.BOM_UTF8):
        return data[3:], 3
    for mark, kind in _WIDE_MARKS:
        if data.startswith(mark):
            raise UserError(
                f"{name} byte 0: this is {kind} text, but only UTF-8 is read; convert it: iconv -f {kind} -t UTF-8 "
                f"{Path(name).name}"
            )
    return data, 0


def _decode(data: bytes, codec: _Codec, final: bool) -> tuple[str, int, int, str]:
    """The text of bytes, how many were used, the first invalid one and what it is (empty: all are valid). An incomplete
    character at the end waits unless `final`."""
    place, what = data.find(0), "a NUL byte"
    if place < 0:
        try:
            return *codec(data, "strict", final), 0, ""
        except UnicodeDecodeError as error:
            place, what = error.start, f"byte 0x{data[error.start]:02x} is not UTF-8"
    return *codec(data, "replace", final), place, what


# -- whole files -------------------------------------------------------------------------------------------------------


ERRORS = ("strict", "replace")


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """The content of a file, decompressed if its name ends in .gz; UserError if it is longer than `limit` bytes."""
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
    """The text of a file; `notes` collects notes for the user, such as how many bytes were replaced."""
    text = decode(read_bytes(path, limit), str(path), errors, notes, encoding)
    refuse_if(not text.strip(), f"{path}: the file is {'blank' if text else 'empty'}; give a file with rows in it")
    return text


def decode(data: bytes, name: str, errors: str, notes: list[str] | None, encoding: str = "utf-8") -> str:
    """The text of bytes; line ends are kept."""
    report = ReadReport()
    text = "".join(decoded(io.BytesIO(data), name, errors, report, ends=True, encoding=encoding))
    note_replaced(notes, name, report.replaced)
    return text


def note_replaced(notes: list[str] | None, name: str, count: int) -> None:
    """Adds a note for the user if anything was replaced."""
    if count and notes is not None:
        notes.append(f"{name}: {count:,} invalid bytes were replaced by U+FFFD")


# -- whole or not at all -----------------------------------------------------------------------------------------------


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
