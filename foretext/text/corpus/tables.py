"""Reads tables (CSV, TSV, JSON lines, Parquet), both for pre-training text and for labelled rows.

`table_rows` and `json_rows` stream a file's rows, whatever its size. `read_table` reads all of them and keeps every
column, so that a predictions file can include the original ones. Values keep their types: text in CSV and TSV, typed
values in JSON lines and Parquet.

- **Row numbers** in messages are as in an editor: the line on which a row begins (a quoted cell may continue over
  further lines). Parquet has no lines, so rows are counted from 1.
- **CSV** is quoted as in RFC 4180: a cell with the delimiter, a quote or a line break is in double quotes, and a
  quote inside is doubled. The delimiter is a comma. If the header line has none outside quotes but has a semicolon,
  it is the semicolon; otherwise it may be a tab.
- **TSV**: always one row per line. A line whose quotes are well-formed by the CSV rules, with as many cells as the
  header, is read by these rules; otherwise quotes are ordinary characters.
- **JSON lines**: one object per line; a plain string becomes the object's `text`.
- Blank lines are skipped. A row with more or fewer cells than the header is an error, never shifted or padded.
"""

import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretext.errors import UserError, refuse_if
from foretext.text.corpus.prose import is_text_for_rows
from foretext.text.corpus.text_files import (
    LONGEST_LINE,
    REPLACEMENT,
    TABLES,
    ReadReport,
    TextFile,
    ending,
    first_lines,
    is_packed,
    line_blocks,
    note_replaced,
    opened,
    plain_path,
    text_lines,
)
from foretext.text.tokenizers.base import encodable

if TYPE_CHECKING:
    import polars

_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")
_PARQUET_ROWS = 2_000  # at a time

Rows = Iterator[tuple[int, Sequence[Any]]]  # each with its number; the header comes first
JsonObject = dict[str, object]
Choose = Callable[["polars.Schema"], list[str]]


# ---- rows one by one ----


def table_rows(file: TextFile, errors: str, report: ReadReport, choose: Choose | None = None) -> Rows:
    """The header and the rows of a table other than JSON lines (`json_rows`). `choose`: the columns of a Parquet file
    to read; None: all."""
    if file.kind == "parquet":
        return _parquet_rows(file, report, choose)
    return (_csv_rows if file.kind == "csv" else _tsv_rows)(table_lines(file, errors, report), str(file.path))


def table_lines(file: TextFile, errors: str, report: ReadReport) -> Iterator[str]:
    """The lines of a table's text. CSV lines keep their line ends, which may be inside a quoted cell."""
    return itertools.chain.from_iterable(line_blocks(file, errors, report, ends=file.kind == "csv"))


def _csv_rows(lines: Iterable[str], name: str) -> Rows:
    """Rows by RFC 4180, with the delimiter of the header line; an unclosed quote is an error."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # the csv module's own limit is 131,072 characters
    lines, header, blank = iter(lines), "", -1
    while not header.strip():
        blank += 1
        if not (header := next(lines, "")):
            return
    delimiter = _csv_delimiter(header)
    reader = csv.reader(itertools.chain([header], lines), delimiter=delimiter, strict=True)
    columns: list[str] = []
    begin = blank + 1
    try:
        for cells in reader:
            number, begin = begin, blank + reader.line_num + 1
            if not cells or (len(cells) == 1 and cells[0].isspace()):
                continue
            if not columns:
                columns = cells = [cell.strip() for cell in cells]
            elif len(cells) != len(columns):
                remedy = f"text that contains {delimiter!r} must be in double quotes"
                raise _ragged(f"{name} row {number}", len(cells), columns, remedy)
            yield number, cells
    except csv.Error as error:
        raise UserError(
            f"{name} row {begin}: a double quote is not closed or not doubled ({error}); "
            'inside a quoted cell write " as ""'
        ) from None


def _csv_delimiter(header: str) -> str:
    """A comma. If the header line has none outside quotes but has a semicolon, that; otherwise it may be a tab."""
    bare = re.sub(r'"(?:[^"]|"")*"', "", header)
    return next((mark for mark in ",;\t" if mark in bare), ",")


def _tsv_rows(
    lines: Iterable[str],
    name: str,
    *,
    header: Sequence[str] = (),
    quotes: bool = True,
    extra: bool = False,
    skipped: list[str] | None = None,
) -> Rows:
    """With `header`, the file has no header line. With `extra`, cells beyond the header's are dropped. With `skipped`,
    a row with the wrong number of cells is skipped and its place appended there; otherwise it is an error."""
    columns = list(header)
    if columns:
        yield 0, columns
    for number, line in enumerate(lines, 1):
        if not line.strip(" "):
            continue
        cells = _tsv_cells(line, quotes, len(columns))
        if not columns:
            columns = cells = [cell.strip() for cell in cells]
        elif extra:
            cells = cells[: len(columns)]
        if len(cells) == len(columns):
            yield number, cells
        elif skipped is not None:
            skipped.append(f"{name} row {number}")
        else:
            remedy = "text in a TSV file must not contain tabs or line breaks"
            raise _ragged(f"{name} row {number}", len(cells), columns, remedy)


def _tsv_cells(line: str, quotes: bool, expected: int) -> list[str]:
    plain = line.split("\t")
    if not quotes or '"' not in line:
        return plain
    try:
        quoted = next(csv.reader([line], delimiter="\t", strict=True))
    except csv.Error:
        return plain
    return quoted if expected in (0, len(quoted)) else plain


def _ragged(place: str, count: int, columns: Sequence[str], remedy: str) -> UserError:
    cells = "1 cell" if count == 1 else f"{count} cells"
    return UserError(f"{place}: {cells}, but the header has {len(columns)} ({', '.join(columns)}); {remedy}")


def check_once(columns: Iterable[str], header: Sequence[str], place: str) -> None:
    """UserError if one of these columns occurs twice in the header, which would be ambiguous."""
    counts = Counter(header)
    twice = next((column for column in columns if counts[column] > 1), None)
    refuse_if(twice is not None, f"{place}: the column {twice!r} occurs twice in the header; rename one of them")


def json_rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, JsonObject]]:
    """The objects of JSON lines, each with its line number."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, _json_object(line, f"{name} row {number}")


def _json_object(line: str, place: str) -> JsonObject:
    try:
        record = _JSON.decode(line)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not JSON ({error}); each line must be one JSON object") from None
    if isinstance(record, str):
        return {"text": record}
    refuse_if(
        not isinstance(record, dict),
        f'{place}: a JSON {type(record).__name__}; each line must be an object such as {{"text": …}}',
    )
    return record


def _unique(pairs: list[tuple[str, object]]) -> JsonObject:
    record = dict(pairs)
    if len(record) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise UserError(f"the key {twice!r} occurs twice in one JSON object; remove one")
    return record


_JSON = json.JSONDecoder(object_pairs_hook=_unique)


def _parquet_rows(file: TextFile, report: ReadReport, choose: Choose | None) -> Rows:
    import polars

    with opened(file) as (_, stream):
        if not stream.read(1):
            return
    before, size, number = report.done_bytes, file.size, 0
    try:
        with plain_path(file) as path:
            schema = polars.read_parquet_schema(path)
            columns = list(schema) if choose is None else choose(polars.Schema(schema))
            yield 0, columns
            frame = polars.scan_parquet(path)
            height = max(1, frame.select(polars.len()).collect().item())
            for batch in frame.select(columns).collect_batches(chunk_size=_PARQUET_ROWS, maintain_order=True):
                yield from enumerate(batch.rows(), number + 1)
                number += batch.height
                report.done_bytes = before + size * number // height
    except UserError:
        raise
    except Exception as error:  # polars raises several unrelated exceptions for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{file.path}: damaged Parquet file ({reason}); get the file again") from None
    report.done_bytes = before + size


def cleaned(value: Any, column: str, place: str, errors: str, report: ReadReport) -> Any:
    """A value with NUL characters and unpaired surrogates replaced at any depth, and counted; UserError if `errors` is
    strict. Unlike decoded text, typed values can contain them: JSON's \\u0000 and \\ud800."""
    try:
        value, count = _clean(value)
    except RecursionError:
        raise UserError(f"{place}: values are nested too deeply; flatten them") from None
    refuse_if(
        count and errors == "strict",
        f"{place}: {column!a} contains a NUL or an unpaired surrogate (an escape such as \\u0000 or \\ud800); "
        "correct the row or use --errors replace",
    )
    report.replaced += count
    return value


def _clean(value: Any) -> tuple[Any, int]:
    """The value without such characters, and how many were replaced."""
    if isinstance(value, str):
        return (value, 0) if "\0" not in value and encodable(value) is value else _NOT_TEXT.subn(REPLACEMENT, value)
    if isinstance(value, list | tuple):
        parts = [_clean(item) for item in value]
        return [item for item, _ in parts], sum(count for _, count in parts)
    if isinstance(value, dict):
        keys, values = _clean(list(value.keys())), _clean(list(value.values()))
        return dict(zip(keys[0], values[0])), keys[1] + values[1]
    return value, 0


# ---- whole tables ----


@dataclass(frozen=True)
class Table:
    """Named columns, rows of cells in that order, and the place of each row ("train.csv row 17")."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    where: list[str]

    def column(self, name: str) -> list[Any]:
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def renamed(self, names: dict[str, str]) -> "Table":
        """Renames the columns in `names` (old → new) and keeps the order. If two would get the same name, the first in
        `names` gets it. An unrelated column that already has a new name is kept as `input_<name>`."""
        chosen: dict[str, str] = {}
        for old, new in names.items():
            if old in self.columns and new not in chosen.values():
                chosen[old] = new
        aside = set_aside(self.columns, names.values())
        columns = tuple(chosen.get(column) or aside.get(column, column) for column in self.columns)
        return Table(self.name, columns, self.rows, self.where)


def set_aside(columns: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """New names, `input_<name>`, for the columns that have one of these names."""
    taken, aside = {*columns, *names}, dict[str, str]()
    for column in columns:
        if column in names:
            name = column
            while name in taken:
                name = f"input_{name}"
            taken.add(name)
            aside[column] = name
    return aside


def read_table(path: str | Path, *, errors: str = "strict", notes: list[str] | None = None) -> Table:
    """Reads a table by the file's ending: .csv, .tsv, .jsonl or .parquet, each also with .gz."""
    path = Path(path)
    if ending(path) not in TABLES and is_text_for_rows(first_lines(path)):
        raise UserError(
            f"{path}: the ending {ending(path) or '(none)'!r} is not one of .csv, .tsv, .jsonl, .parquet, or one of "
            "these with .gz, and it looks like running text without labels; labelled rows have columns, such as text "
            "and label, or a published layout (--format); text without labels is for pretrain or --unlabelled, or for "
            "predict on standard input, one text per line"
        )
    file, report = TextFile(path, table_kind(path), is_packed(path)), ReadReport()
    if file.kind == "jsonl":
        table = _of_objects(json_rows(table_lines(file, errors, report), str(path)), str(path), errors, report)
    else:
        table = _of_rows(table_rows(file, errors, report), str(path))
        if file.kind == "parquet":
            table = _checked(table, errors, report)
    note_replaced(notes, str(path), report.replaced)
    refuse_if(not table.columns, f"{path}: the file is empty or blank; give a file with rows in it")
    refuse_if(
        not table.rows, f"{path}: no rows below the header ({', '.join(table.columns)}); give a file with rows in it"
    )
    return table


def table_kind(path: Path) -> str:
    """ "csv", "tsv", "jsonl" or "parquet", by the file's ending (before .gz)."""
    suffix = ending(path)
    refuse_if(
        suffix not in TABLES,
        f"{path}: the ending {suffix or '(none)'!r} is not one of .csv, .tsv, .jsonl, .parquet, or one of these with "
        ".gz; rename the file, or give --format if it has a published layout",
    )
    return TABLES[suffix]


def table_header(path: Path) -> tuple[str, ...]:
    """The names of a file's columns without reading all of it (for JSON lines the first row's keys). Empty if it is not
    a readable table: `read_table` reports errors."""
    try:
        file, report = TextFile(path, table_kind(path), is_packed(path)), ReadReport()
        if file.kind == "jsonl":
            return tuple(next(json_rows(table_lines(file, "replace", report), str(path)))[1])
        return tuple(next(table_rows(file, "replace", report))[1])
    except (UserError, StopIteration):
        return ()


def parse_csv(text: str, name: str) -> Table:
    """CSV by RFC 4180, with the delimiter found in the header line."""
    return _of_rows(_csv_rows(io.StringIO(text, newline=""), name), name)


def parse_tsv(
    text: str,
    name: str,
    *,
    header: Sequence[str] = (),
    quotes: bool = True,
    extra: bool = False,
    skipped: list[str] | None = None,
) -> Table:
    """Tab-separated lines; see `_tsv_rows`."""
    return _of_rows(_tsv_rows(text_lines(text), name, header=header, quotes=quotes, extra=extra, skipped=skipped), name)


def parse_jsonl(text: str, name: str, errors: str = "strict", notes: list[str] | None = None) -> Table:
    """One JSON object per line. The columns are the keys in order of first appearance; an absent key is None."""
    report = ReadReport()
    table = _of_objects(json_rows(text_lines(text), name), name, errors, report)
    note_replaced(notes, name, report.replaced)
    return table


def _of_rows(rows: Rows, name: str) -> Table:
    line, header = next(rows, (0, ()))
    check_once(header, header, f"{name} row {line}")
    numbered = list(rows)
    return Table(
        name, tuple(header), [tuple(cells) for _, cells in numbered], [f"{name} row {at}" for at, _ in numbered]
    )


def _of_objects(objects: Iterable[tuple[int, JsonObject]], name: str, errors: str, report: ReadReport) -> Table:
    numbered = list(objects)
    where = [f"{name} row {number}" for number, _ in numbered]
    return _checked(table_of_records([record for _, record in numbered], name, where), errors, report)


def _checked(table: Table, errors: str, report: ReadReport) -> Table:
    """The table with invalid characters removed from its typed values and its column names."""
    columns = tuple(cleaned(column, column, table.name, errors, report) for column in table.columns)
    rows = [
        tuple(cleaned(cell, column, place, errors, report) for cell, column in zip(row, table.columns))
        for row, place in zip(table.rows, table.where)
    ]
    return Table(table.name, columns, rows, table.where)


def table_of_records(records: Iterable[JsonObject], name: str, where: list[str]) -> Table:
    records = list(records)
    columns = tuple(dict.fromkeys(key for record in records for key in record))
    return Table(name, columns, [tuple(record.get(column) for column in columns) for record in records], where)


def unpacked(value: Any) -> Any:
    """A numpy scalar as a Python value; anything else unchanged."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
