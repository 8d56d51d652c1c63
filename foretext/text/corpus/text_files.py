"""Which files are read, and their bytes as clean text: UTF-8 checked, byte-order mark off, line ends as \\n.

Text comes in blocks of about a megabyte, so that no file is ever held whole. What is not UTF-8 is an error that names
the file and the byte, unless `errors="replace"` asks for replacement, which is counted.
"""

from __future__ import annotations

import codecs
import contextlib
import glob
import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from foretext.errors import EXIT_MACHINE, EXIT_USER, UserError

KINDS = ("txt", "jsonl", "csv", "tsv", "parquet")
_SUFFIXES = {f".{kind}": kind for kind in KINDS}
_KNOWN = "a .txt, .jsonl, .csv, .tsv or .parquet file, or one of these with .gz"
_BLOCK = 1 << 20
_REPLACEMENT = "\ufffd"
_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


@dataclass(frozen=True)
class TextFile:
    path: Path
    kind: str  # one of KINDS
    gzipped: bool

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.path.stat().st_size

    @property
    def packed(self) -> bool:
        """Whether the text takes less room on disk than its letters do."""
        return self.gzipped or self.kind == "parquet"


@dataclass
class ReadReport:
    """What reading found; filled while the documents are drawn."""

    documents: int = 0
    bytes: int = 0  # UTF-8 bytes of the documents
    replaced: int = 0  # faults that were replaced by U+FFFD
    cut: int = 0  # pieces that over-long documents were cut into, beyond the first of each
    blank: int = 0  # rows and lines with no text in them, left out
    empty_files: int = 0
    rules: dict[str, int] = field(default_factory=dict)  # rule → number of files read by it
    done_bytes: int = 0  # position over all files as they lie on disk, for a progress bar
    total_bytes: int = 0

    @property
    def rule(self) -> str:
        """How the text was taken apart into documents, in words."""
        if len(self.rules) == 1:
            return next(iter(self.rules))
        return "; ".join(f"{rule} ({count} files)" for rule, count in self.rules.items())


def find_files(inputs: Sequence[str | Path]) -> list[TextFile]:
    """Files, folders (with what is below them) and globs, sorted by path, each file once."""
    found: dict[Path, TextFile] = {}
    for given in inputs:
        for path in _expand(given):
            file = _as_text_file(path)
            if file is not None:
                found.setdefault(path.resolve(), file)
            elif not Path(given).is_dir():
                raise UserError(f"{path}: this kind of file is not read; give {_KNOWN}")
    files = sorted(found.values(), key=lambda file: str(file.path))
    if not files:
        raise UserError(f"no text files in {_listed(inputs)}; give {_KNOWN}, or a folder of them")
    if not any(file.size for file in files):
        raise UserError(f"{_listed(inputs)}: empty, there is no text to read; give a file with text in it")
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
    name = path.name.lower()
    gzipped = name.endswith(".gz")
    kind = _SUFFIXES.get(Path(name.removesuffix(".gz")).suffix)
    return None if kind is None else TextFile(path, kind, gzipped)


def text_blocks(file: TextFile, errors: str, report: ReadReport) -> Iterator[str]:
    """The file's text in blocks; their borders fall anywhere between two characters."""
    before = report.done_bytes
    with _opened(file) as (raw, stream):
        for text in _decoded(file, stream, errors, report):
            report.done_bytes = before + raw.tell()
            yield text
    report.done_bytes = before + file.size


@contextlib.contextmanager
def plain_path(file: TextFile) -> Iterator[Path]:
    """Where the file's bytes lie as they are, for a reader that jumps about in them: a packed one is unpacked into a
    temporary file, not into memory."""
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
    except OSError as error:  # of writing: those of reading have become user errors
        raise UserError(
            f"{file.path}: cannot be unpacked into {path.parent.parent} ({error.strerror}); make room there, or unpack "
            "the file elsewhere",
            EXIT_MACHINE,
        ) from None


def _unpacked_blocks(file: TextFile) -> Iterator[bytes]:
    with _opened(file) as (_, stream):
        while block := stream.read(_BLOCK):
            yield block


@contextlib.contextmanager
def _opened(file: TextFile) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The file as it lies on disk, and unpacked."""
    try:
        with file.path.open("rb") as raw:
            yield raw, gzip.GzipFile(fileobj=raw) if file.gzipped else raw  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{file.path}: broken gzip, cut short or damaged; get the file again") from None
    except OSError as error:
        raise UserError(f"{file.path}: cannot be read ({error.strerror or error})", EXIT_USER) from None


def _decoded(file: TextFile, stream: BinaryIO, errors: str, report: ReadReport) -> Iterator[str]:
    offset, pending, carriage = 0, b"", ""  # `pending`: the start of a character whose end is in the next block
    while True:
        block = stream.read(_BLOCK)
        data = pending + block
        if offset == 0:
            data, offset = _without_mark(file, data)
        text, used = _decode(file, data, offset, errors, report, final=not block)
        pending, offset = data[used:], offset + used
        text = carriage + text
        carriage = ""
        if "\r" in text:
            if block and text.endswith("\r"):
                text, carriage = text[:-1], "\r"
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if text:
            yield text
        if not block:
            return


def _without_mark(file: TextFile, data: bytes) -> tuple[bytes, int]:
    if data.startswith(codecs.BOM_UTF8):
        return data[3:], 3
    for mark, name in _WIDE_MARKS:
        if data.startswith(mark):
            raise UserError(
                f"{file.path} byte 0: this is {name} text, and only UTF-8 is read; "
                f"convert it: iconv -f {name} -t UTF-8 {file.path.name}"
            )
    return data, 0


def _decode(
    file: TextFile, data: bytes, offset: int, errors: str, report: ReadReport, *, final: bool
) -> tuple[str, int]:
    """The text of `data` and how many bytes it took; an unfinished character at the end waits unless `final`."""
    fault = data.find(0)
    what = "a NUL byte"
    if fault < 0:
        try:
            return codecs.utf_8_decode(data, "strict", final)
        except UnicodeDecodeError as error:
            fault, what = error.start, f"byte 0x{data[error.start]:02x} is not UTF-8"
    if errors != "replace":
        raise UserError(
            f"{file.path} byte {offset + fault}: {what}; convert the file to UTF-8, or replace such bytes with "
            "--errors replace"
        )
    text, used = codecs.utf_8_decode(data, "replace", final)
    real = data[:used].count(_REPLACEMENT.encode())
    report.replaced += text.count(_REPLACEMENT) - real + text.count("\0")
    return text.replace("\0", _REPLACEMENT), used
