"""Documents from text files, streamed: .txt, .jsonl, .csv, .tsv, .parquet, each also with .gz.

A table has one document per row, in its text column. Plain text has one per line, one per block between blank lines, or
one per file; `auto` decides, and the report says how. Tables are read like labelled rows (`tables.py`). A document
longer than `LONGEST` characters is cut at white space, and the cuts are counted.

Parallel text is two files where line n of one is the translation of line n of the other, as in Multi30k, WMT and OPUS.

The two are read together, a megabyte at a time. A pair with a blank side teaches nothing: it is left out and counted,
but its line number still counts, so that the files stay aligned. If one file has more lines than the other, that is an
error, found only at the end; blank lines at the end of a file do not count.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretext.errors import UserError, refuse_if
from foretext.text.corpus.prose import is_number
from foretext.text.corpus.tables import check_once, cleaned, json_rows, table_lines, table_rows
from foretext.text.corpus.text_files import (
    ReadReport,
    TextFile,
    find_files,
    line_blocks,
    plain_file,
    text_blocks,
)

if TYPE_CHECKING:
    import polars

__all__ = ["ReadOptions", "ReadReport", "TextFile", "all_documents", "find_files", "read_documents"]

LONGEST = 8_000_000  # characters per document
_DOCUMENT_RULES = ("auto", "line", "blank", "file")
_MANY_FILES, _SMALL_FILE = 20, 1_000_000
_SAMPLE_ROWS = 100  # rows of a table that are used to tell text columns from numbers
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_RULE_WORDS = {
    "line": "one document per line",
    "blank": "blank lines separate documents",
    "file": "one document per file",
}


@dataclass(frozen=True)
class ReadOptions:
    column: str | None = None  # the text column of tables
    documents: str = "auto"  # for .txt: auto, line, blank or file
    errors: str = "strict"  # or "replace"


def read_documents(files: Sequence[TextFile], options: ReadOptions, report: ReadReport) -> Iterator[str]:
    """Every document that is not blank, in the order of the files; fills `report` on the way."""
    refuse_if(
        options.documents not in _DOCUMENT_RULES,
        f"documents must be one of {', '.join(_DOCUMENT_RULES)}, not {options.documents!r}",
    )
    refuse_if(options.errors not in ("strict", "replace"), f"errors must be strict or replace, not {options.errors!r}")
    report.total_bytes = sum(file.size for file in files)
    rule = _rule_for_all(files, options.documents)
    for file in files:
        before = report.documents
        for text in _cut(_read_file(file, rule, options, report), report):
            if text.isspace() or not text:
                report.blank += 1
                continue
            report.documents += 1
            report.bytes += len(text) if text.isascii() else len(text.encode("utf-8"))
            yield text
        report.empty_files += report.documents == before
    if report.documents == 0:
        raise UserError(f"{files[0].path}: blank, there is no text to read; give a file with text in it")


def all_documents(
    files: Sequence[TextFile],
    options: ReadOptions,
    progress: Callable[[int, int], None] | None = None,
    notes: list[str] | None = None,
) -> list[str]:
    """The same as a list. `progress` gets the bytes read; `notes` collects notes for the user."""
    report = ReadReport()
    tell = progress or (lambda done, total: None)
    texts = []
    for text in read_documents(files, options, report):
        texts.append(text)
        if len(texts) % 256 == 0:
            tell(report.done_bytes, report.total_bytes)
    tell(1, 1)
    remarks: list[str] = [] if notes is None else notes
    if report.replaced:
        remarks.append(f"{report.replaced:,} bytes that are not UTF-8 were replaced")
    if report.blank:
        remarks.append(f"{report.blank:,} rows or lines without text were left out")
    return texts


def _rule_for_all(files: Sequence[TextFile], documents: str) -> str:
    sizes = [file.size for file in files if file.kind == "txt"]
    many_small = len(sizes) >= _MANY_FILES and sum(sizes) < _SMALL_FILE * len(sizes)
    return "file" if documents == "auto" and many_small else documents


def _read_file(file: TextFile, rule: str, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    if file.kind == "txt":
        return _read_plain(file, rule, options, report)
    return (_read_json_lines if file.kind == "jsonl" else _read_table)(file, options, report)


def _cut(documents: Iterable[str], report: ReadReport) -> Iterator[str]:
    """Cuts documents over `LONGEST` into pieces, at the last white space of each if there is any."""
    for text in documents:
        while len(text) > LONGEST:
            place = _last_space(text, LONGEST)
            report.cut += 1
            yield text[:place]
            text = text[place:]
        yield text


def _last_space(text: str, end: int) -> int:
    """The place after the last white space in the second half of text[:end]; `end` if there is none."""
    tail = text[end // 2 : end]
    word = tail.rsplit(maxsplit=1)[-1] if not tail[-1].isspace() else ""
    return end - len(word) if len(word) < len(tail) else end


# --- plain text


def _read_plain(file: TextFile, rule: str, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    blocks = text_blocks(file, options.errors, report)
    first = next(blocks, "")
    if rule == "auto":
        rule = "blank" if _BLANK_LINE.search(first.strip()) else "line"
    report.rules[_RULE_WORDS[rule]] += 1
    held: list[str] = []
    length, line_start = 0, True
    for line in _lines(itertools.chain([first], blocks)):
        ends = rule == "line" or (rule == "blank" and line_start and line.isspace())
        line_start = line.endswith("\n")
        if rule != "blank" or not ends:
            held.append(line)
            length += len(line)
        if ends and (line_start or rule == "blank"):
            if held:
                yield "".join(held).strip("\n")
            held, length = [], 0
        elif length > LONGEST:
            text = "".join(held)
            place = _last_space(text, LONGEST)
            report.cut += 1
            yield text[:place]
            held, length = [text[place:]], len(text) - place
    if held:
        yield "".join(held).strip("\n")


def _lines(blocks: Iterable[str]) -> Iterator[str]:
    """Lines with their line ends; a line longer than a block comes in several pieces without them."""
    rest = ""
    for block in blocks:
        lines = (rest + block).split("\n")
        rest = lines.pop()
        for line in lines:
            yield line + "\n"
        if len(rest) > LONGEST:
            yield rest
            rest = ""
    if rest:
        yield rest


# --- tables


def _text(value: Any, column: str, place: str, options: ReadOptions, report: ReadReport) -> str:
    """A cell as a document: a missing one is blank, line ends become \\n."""
    if value is None:
        return ""
    refuse_if(not isinstance(value, str), f"{place}: {type(value).__name__}, not text; choose another --text-column")
    text: str = cleaned(value, column, place, options.errors, report)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _choose_column(file: TextFile, wanted: str | None, names: Sequence[str], textual: Sequence[str]) -> str:
    listed = ", ".join(names)
    if wanted is not None:
        if wanted in names:
            return wanted
        raise UserError(f"{file.path}: no column {wanted!r}; --text-column must be one of: {listed}")
    if "text" in names:
        return "text"
    if len(textual) == 1:
        return textual[0]
    raise UserError(f"{file.path}: which column is the text? Name it with --text-column; the columns are: {listed}")


def _read_json_lines(file: TextFile, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    column: str | None = None
    for number, record in json_rows(table_lines(file, options.errors, report), str(file.path)):
        place = f"{file.path} row {number}"
        if column is None:
            textual = [name for name, value in record.items() if isinstance(value, str)]
            column = _choose_column(file, options.column, list(record), textual)
            report.rules[f"one document per row (column {column})"] += 1
        if column not in record:
            raise UserError(f"{place}: no field {column!r}; the line has: {', '.join(record)}")
        yield _text(record[column], column, place, options, report)


def _read_table(file: TextFile, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    def choose(schema: polars.Schema) -> list[str]:
        textual = [name for name, kind in schema.items() if str(kind) in ("String", "Categorical")]
        return [_choose_column(file, options.column, list(schema), textual)]

    rows = table_rows(file, options.errors, report, choose)
    line, header = next(rows, (0, ()))
    if not header:
        return
    sample = list(itertools.islice(rows, _SAMPLE_ROWS))
    column: str = header[0]
    if file.kind != "parquet":
        cells = zip(*(row for _, row in sample))
        textual = [name for name, values in zip(header, cells) if not all(is_number(cell or 0) for cell in values)]
        column = _choose_column(file, options.column, header, textual)
    check_once([column], header, f"{file.path} row {line}")
    at = header.index(column)
    report.rules[f"one document per row (column {column})"] += 1
    for number, row in itertools.chain(sample, rows):
        yield _text(row[at], column, f"{file.path} row {number}", options, report)


# -- parallel text -----------------------------------------------------------------------------------------------------


@dataclass
class ParallelReport:
    """What the reader has found so far. `source` and `target` count replaced bytes and progress in each file."""

    pairs: int = 0
    blank: int = 0  # pairs left out because a side is blank
    source: ReadReport = field(default_factory=ReadReport)
    target: ReadReport = field(default_factory=ReadReport)


def read_parallel(
    source: str | Path, target: str | Path, report: ParallelReport, errors: str = "strict"
) -> Iterator[tuple[str, str]]:
    """Every pair of lines with text on both sides, without surrounding space. `errors`: "replace" accepts bytes that
    are not UTF-8, and counts them."""
    refuse_if(errors not in ("strict", "replace"), f"errors must be strict or replace, not {errors!r}")
    first, second = plain_file(source), plain_file(target)
    refuse_if(
        first.path.resolve() == second.path.resolve(),
        f"{first.path}: given as both source and target; give the translation as the other one",
    )
    for file, part in ((first, report.source), (second, report.target)):
        part.total_bytes = file.size
    source_lines = chain.from_iterable(line_blocks(first, errors, report.source))
    target_lines = chain.from_iterable(line_blocks(second, errors, report.target))
    for number, (source_line, target_line) in enumerate(zip_longest(source_lines, target_lines)):
        if source_line is None or target_line is None:
            longer, shorter = (first, second) if target_line is None else (second, first)
            rest = chain(
                [source_line or target_line or ""], source_lines, target_lines
            )  # one of the two files has ended
            last = max((place for place, line in enumerate(rest, 1) if line.strip()), default=0)
            refuse_if(
                last,
                f"{longer.path} has {number + last:,} lines but {shorter.path} has {number:,}: line n of one must be "
                "the translation of line n of the other; find where they diverge, or download the files again",
            )
            break
        pair = source_line.strip(), target_line.strip()
        report.blank += not all(pair)
        if all(pair):
            report.pairs += 1
            yield pair
    refuse_if(
        not report.pairs,
        f"{first.path}, {second.path}: no line has text in both; give files with one sentence per line",
    )
