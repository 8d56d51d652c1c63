"""Whole lines of one text file, in blocks: for files whose lines mean something by their number, such as word vectors
and parallel text.

Bytes become text as everywhere (`text_files.py`). A file may have any ending; whether it is gzipped is told by its
first bytes. A line ends where an editor would end it, at \\n, \\r\\n or \\r, and nowhere else.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from foretext.errors import UserError
from foretext.text.corpus.text_files import ReadReport, TextFile, text_blocks

LONGEST_LINE = 64_000_000  # characters
_GZIP = b"\x1f\x8b"


def plain_file(path: str | Path) -> TextFile:
    """The file, if there is one with anything in it."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise UserError(f"{path} is a folder where a file is expected; name a file in it")
    if not path.exists():
        raise UserError(f"{path}: no such file; check the path")
    return TextFile(path, "txt", _beginning(path, len(_GZIP)) == _GZIP)


def unpacked_beginning(file: TextFile, size: int) -> bytes:
    """The first bytes, unpacked; fewer or none where they cannot be read, for that is for the reader to report."""
    if not file.gzipped:
        return _beginning(file.path, size)
    try:
        with gzip.open(file.path) as stream:
            return stream.read(size)
    except (OSError, EOFError, zlib.error):
        return b""


def _beginning(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(size)
    except OSError:
        return b""


def line_blocks(file: TextFile, errors: str, report: ReadReport) -> Iterator[list[str]]:
    """All lines without their ends, about a megabyte of them at a time."""
    rest, number = "", 1
    for block in text_blocks(file, errors, report):
        lines = (rest + block).split("\n")
        rest = lines.pop()
        if lines:
            number += len(lines)
            yield lines
        if len(rest) > LONGEST_LINE:
            raise UserError(
                f"{file.path} line {number}: longer than {LONGEST_LINE:,} characters; check that the file is what it "
                "should be"
            )
    if rest:
        yield [rest]
