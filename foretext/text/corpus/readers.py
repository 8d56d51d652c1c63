"""Documents out of text files, streamed: .txt, .jsonl, .csv, .tsv, .parquet, each also with .gz.

A table gives a document a row, from its text column. Plain text gives one a line, one between blank lines, or one a
file; `auto` decides, and the report says how. CSV has quotes as spreadsheets write them, and commas, semicolons or
tabs between cells; TSV has no quotes, as the published data sets have it. A document longer than `LONGEST` characters
is cut at white space, and the cuts counted.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from foretext.errors import UserError
from foretext.text.corpus.text_files import ReadReport, TextFile, find_files, plain_path, text_blocks
from foretext.text.tokenizers.base import encodable

__all__ = ["ReadOptions", "ReadReport", "TextFile", "all_documents", "find_files", "read_documents"]

LONGEST = 8_000_000  # characters of one document
_LONGEST_LINE = 64_000_000  # characters of one JSON line or table row
_DOCUMENT_RULES = ("auto", "line", "blank", "file")
_MANY_FILES, _SMALL_FILE = 20, 1_000_000
_PARQUET_ROWS = 2_000
_SAMPLE_ROWS = 100  # rows of a table that tell text columns from numbers
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_RULE_WORDS = {
    "line": "one document a line",
    "blank": "blank lines separate documents",
    "file": "one document a file",
}


@dataclass(frozen=True)
class ReadOptions:
    column: str | None = None  # the text column of tables
    documents: str = "auto"  # .txt: auto, line, blank or file
    errors: str = "strict"  # or "replace"


def read_documents(files: Sequence[TextFile], options: ReadOptions, report: ReadReport) -> Iterator[str]:
    """Every document with text in it, in the order of the files; `report` is filled on the way."""
    if options.documents not in _DOCUMENT_RULES:
        raise UserError(f"documents must be one of {', '.join(_DOCUMENT_RULES)}, not {options.documents!r}")
    if options.errors not in ("strict", "replace"):
        raise UserError(f"errors must be strict or replace, not {options.errors!r}")
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
    """The same as a list. `progress` hears of the bytes that are read; `notes` collects what is to be said."""
    report = ReadReport()
    tell = progress or (lambda done, total: None)
    texts = []
    for text in read_documents(files, options, report):
        texts.append(text)
        if len(texts) % 256 == 0:
            tell(report.done_bytes, report.total_bytes)
    tell(1, 1)
    said: list[str] = [] if notes is None else notes
    if report.replaced:
        said.append(f"{report.replaced:,} bytes that are not UTF-8 were replaced")
    if report.blank:
        said.append(f"{report.blank:,} rows or lines without text were left out")
    return texts


def _rule_for_all(files: Sequence[TextFile], documents: str) -> str:
    plain = [file for file in files if file.kind == "txt"]
    if documents == "auto" and len(plain) >= _MANY_FILES:
        mean = sum(file.size for file in plain) / len(plain)
        return "file" if mean < _SMALL_FILE else "auto"
    return documents


def _read_file(file: TextFile, rule: str, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    if file.kind == "txt":
        return _read_plain(file, rule, options, report)
    readers = {"jsonl": _read_json_lines, "csv": _read_table, "tsv": _read_table, "parquet": _read_parquet}
    rows = readers[file.kind](file, options, report)
    return (_clean(value, file, number, options, report) for number, value in rows)


def _note_rule(report: ReadReport, words: str) -> None:
    report.rules[words] = report.rules.get(words, 0) + 1


def _cut(documents: Iterable[str], report: ReadReport) -> Iterator[str]:
    """Documents over `LONGEST` in pieces, at the last white space of each where there is any."""
    for text in documents:
        while len(text) > LONGEST:
            place = _last_space(text, LONGEST)
            report.cut += 1
            yield text[:place]
            text = text[place:]
        yield text


def _last_space(text: str, end: int) -> int:
    """The place after the last white space in the second half of text[:end], or `end` where there is none."""
    tail = text[end // 2 : end]
    word = tail.rsplit(maxsplit=1)[-1] if not tail[-1].isspace() else ""
    return end - len(word) if len(word) < len(tail) else end


# --- plain text


def _read_plain(file: TextFile, rule: str, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    blocks = text_blocks(file, options.errors, report)
    first = next(blocks, "")
    if rule == "auto":
        rule = "blank" if _BLANK_LINE.search(first.strip()) else "line"
    _note_rule(report, _RULE_WORDS[rule])
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
    """Lines with their line ends; one longer than a block comes in several pieces without."""
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


def _whole_lines(file: TextFile, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    length = 0
    held: list[str] = []
    for number, line in enumerate(_lines(text_blocks(file, options.errors, report)), start=1):
        if line.endswith("\n") and not held:
            yield line
            continue
        held.append(line)
        length += len(line)
        if length > _LONGEST_LINE:
            raise UserError(f"{file.path} line {number}: longer than {_LONGEST_LINE:,} characters; cut it into rows")
        if line.endswith("\n"):
            yield "".join(held)
            held, length = [], 0
    if held:
        yield "".join(held)


def _clean(value: Any, file: TextFile, number: int, options: ReadOptions, report: ReadReport) -> str:
    """A cell as text: missing is blank; NUL and halves of surrogates, which escapes can spell, are faults."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{file.path} row {number}: no text but {type(value).__name__}; choose another --text-column")
    text = encodable(value)
    faults = text.count("\0") + (text is not value)
    if faults and options.errors != "replace":
        raise UserError(
            f"{file.path} row {number}: a NUL or half a surrogate pair in the text; correct it, or use --errors replace"
        )
    report.replaced += faults
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "\ufffd")


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
    raise UserError(f"{file.path}: which column is the text? Say --text-column; there are: {listed}")


def _read_json_lines(file: TextFile, options: ReadOptions, report: ReadReport) -> Iterator[tuple[int, Any]]:
    column: str | None = None
    for number, line in enumerate(_whole_lines(file, options, report), start=1):
        if line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "too deeply nested or not readable"
            raise UserError(f"{file.path} line {number}: not valid JSON ({reason}); correct the line") from None
        if isinstance(record, str):
            record = {"text": record}
        if not isinstance(record, dict):
            raise UserError(f"{file.path} line {number}: each line must be a JSON object with the text in a field")
        if column is None:
            textual = [name for name, value in record.items() if isinstance(value, str)]
            column = _choose_column(file, options.column, list(record), textual)
            _note_rule(report, f"one document a row (column {column})")
        if column not in record:
            raise UserError(f"{file.path} line {number}: no field {column!r}; the line has: {', '.join(record)}")
        yield number, record[column]


def _read_table(file: TextFile, options: ReadOptions, report: ReadReport) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_LINE))
    lines = _whole_lines(file, options, report)
    table = _csv_rows(lines) if file.kind == "csv" else (line.rstrip("\n").split("\t") for line in lines)
    rows = _numbered_rows(file, table)
    header = next(rows, (0, []))[1]
    if not header:
        return
    start = list(itertools.islice(rows, _SAMPLE_ROWS))
    textual = [name for i, name in enumerate(header) if any(_is_text(row[i]) for _, row in start if i < len(row))]
    column = _choose_column(file, options.column, header, textual)
    if header.count(column) > 1:
        raise UserError(f"{file.path} row 1: the column {column!r} stands twice in the header; rename one of them")
    place = header.index(column)
    _note_rule(report, f"one document a row (column {column})")
    for number, row in itertools.chain(start, rows):
        if len(row) != len(header):
            raise UserError(
                f"{file.path} row {number}: {len(row)} fields where the header has {len(header)}; correct the row"
                + (" (quotes have no meaning in .tsv)" if file.kind == "tsv" else "")
            )
        yield number, row[place]


def _csv_rows(lines: Iterator[str]) -> Iterator[list[str]]:
    """Rows by RFC 4180, with the delimiter that the header line shows; quotes that are not closed are an error."""
    for blank, header in enumerate(lines):
        if not header.isspace():
            lines = itertools.chain(["\n"] * blank, [header], lines)  # blank lines count as rows, as in an editor
            return csv.reader(lines, delimiter=csv_delimiter(header), strict=True)
    return iter(())


def csv_delimiter(header: str) -> str:
    """A comma; if the header line has none outside quotes but has a semicolon, that, failing that a tab."""
    bare = re.sub(r'"(?:[^"]|"")*"', "", header)
    return next((mark for mark in ",;\t" if mark in bare), ",")


def _numbered_rows(file: TextFile, table: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, the header being row 1."""
    number = 0
    while True:
        number += 1
        try:
            row = next(table, None)
        except csv.Error as error:
            raise UserError(
                f"{file.path} row {number}: a double quote is not closed or not doubled, or a cell is too long "
                f'({error}); inside a quoted cell write " as ""'
            ) from None
        if row is None:
            return
        if row and row != [""]:
            yield number, row


def _is_text(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return True
    return False


def _read_parquet(file: TextFile, options: ReadOptions, report: ReadReport) -> Iterator[tuple[int, Any]]:
    import polars as pl

    before, size = report.done_bytes, file.size
    try:
        with plain_path(file) as path:
            schema = pl.read_parquet_schema(path)
            textual = [name for name, kind in schema.items() if kind in (pl.String, pl.Categorical)]
            column = _choose_column(file, options.column, list(schema), textual)
            _note_rule(report, f"one document a row (column {column})")
            frame = pl.scan_parquet(path)
            rows = max(1, frame.select(pl.len()).collect().item())
            number = 0
            wanted = frame.select(pl.col(column).cast(pl.String) if column in textual else pl.col(column))
            for batch in wanted.collect_batches(chunk_size=_PARQUET_ROWS, maintain_order=True):
                for value in batch.to_series():
                    number += 1
                    yield number, value
                report.done_bytes = before + size * number // rows
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{file.path}: broken parquet, cannot be read ({reason}); get the file again") from None
    report.done_bytes = before + size
