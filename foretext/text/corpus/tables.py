"""Tables of rows from CSV, TSV, JSON lines and Parquet, cell by cell as the file has them.

`read_table` keeps every column, so that a predictions file can carry the original ones along; `tasks/files/rows.py`
picks what a task needs. Values stay what the file says: text in CSV and TSV, typed values in JSON lines and Parquet.

- **Row numbers** in messages are what an editor shows: the line on which a row begins, the header being row 1 (a
  quoted cell may go on over further lines). In JSON lines it is the line; in Parquet, which has no lines, the row
  counted from 1.
- **CSV** is quoted as in RFC 4180: a cell with the delimiter, a quote or a line break stands in double quotes, and a
  quote inside is doubled. The delimiter is a comma; if the header line has none outside quotes but has a semicolon,
  it is the semicolon, failing that a tab.
- **TSV**: one row a line, always. A line whose quotes are well-formed by the CSV rules, with as many cells as the
  header, is read so; otherwise quotes are ordinary characters.
- Blank lines are skipped. A row with more or fewer cells than the header is an error, never shifted or padded.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretext.errors import UserError
from foretext.text.corpus.prose import is_text_for_rows
from foretext.text.corpus.readers import csv_delimiter
from foretext.text.corpus.whole_files import REPLACEMENT, first_line, first_lines, read_bytes, read_text, text_lines

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Table:
    """Named columns, rows of cells in that order, and for each row where it stands ("train.csv row 17")."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    where: list[str]

    def column(self, name: str) -> list[Any]:
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def renamed(self, names: dict[str, str]) -> "Table":
        """Every column, in the file's order, those that `names` knows (old → new) under their new names. Of two that
        would get one name the first in `names` has it. Another column that is called like a new name is not what the
        name means, and is kept as `input_<name>`."""
        chosen: dict[str, str] = {}
        for old, new in names.items():
            if old in self.columns and new not in chosen.values():
                chosen[old] = new
        taken = {*self.columns, *names.values()}
        columns = []
        for column in self.columns:
            name = chosen.get(column, column)
            if column not in chosen and column in names.values():
                while name in taken:
                    name = f"input_{name}"
                taken.add(name)
            columns.append(name)
        return Table(self.name, tuple(columns), self.rows, self.where)


def read_table(path: str | Path, *, errors: str = "strict", notes: list[str] | None = None) -> Table:
    """Read a table by the file's ending: .csv, .tsv, .jsonl or .parquet, each also .gz."""
    path = Path(path)
    if ending(path) not in SUFFIXES and is_text_for_rows(first_lines(path)):
        raise UserError(
            f"{path}: the ending {ending(path) or '(none)'!r} is not one of .csv, .tsv, .jsonl, .parquet, or .gz of "
            "these, and it looks like running text without labels; labelled rows have columns, such as text and label, "
            "or a published layout (--format); text without labels is for pretrain or --unlabelled, and predict reads "
            "it, a text a line, from standard input"
        )
    kind = table_kind(path)
    if kind == "parquet":
        table = _read_parquet(path, errors, notes)
    else:
        text = read_text(path, errors, notes)
        if kind == "csv":
            table = parse_csv(text, str(path))
        elif kind == "tsv":
            table = parse_tsv(text, str(path))
        else:
            table = parse_jsonl(text, str(path), errors, notes)
    if not table.rows:
        raise UserError(f"{path}: no rows below the header ({', '.join(table.columns)}); give a file with rows in it")
    return table


def ending(path: Path) -> str:
    """The ending of a name (before .gz), with its dot, in small letters; empty if there is none."""
    packed = path.suffix.lower() == ".gz"
    return Path(path.stem).suffix.lower() if packed else path.suffix.lower()


def table_kind(path: Path) -> str:
    """ "csv", "tsv", "jsonl" or "parquet", by the ending of the name (before .gz)."""
    suffix = ending(path)
    kind = SUFFIXES.get(suffix)
    if kind is None:
        raise UserError(
            f"{path}: the ending {suffix or '(none)'!r} is not one of .csv, .tsv, .jsonl, .parquet, or .gz of these; "
            "rename the file, or give --format if it has a published layout"
        )
    return kind


def table_header(path: Path) -> tuple[str, ...]:
    """The names of a file's columns without reading it whole (of JSON lines the first row's keys); none if it is not a
    table, or not one that can be read: faults are for `read_table` to report."""
    try:
        kind = table_kind(path)
        if kind == "parquet":
            import polars

            packed = path.suffix.lower() == ".gz"
            return tuple(polars.read_parquet_schema(io.BytesIO(read_bytes(path)) if packed else path))
        line = first_line(path)
        if kind == "jsonl":
            return tuple(_json_object(line, str(path)))
        cells = next(csv.reader([line], delimiter=_delimiter(line))) if kind == "csv" else _tsv_cells(line, True, None)
    except Exception:  # polars raises several unrelated classes for a damaged file
        return ()
    return tuple(cell.strip() for cell in cells)


def parse_csv(text: str, name: str) -> Table:
    """RFC 4180, with the delimiter found in the header line."""
    delimiter = _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: tuple[str, ...] | None = None
    rows: list[tuple[Any, ...]] = []
    where: list[str] = []
    limit = csv.field_size_limit(max(len(text), 1))  # the module's own limit is 131,072 characters a cell
    begin = 1
    try:
        for cells in reader:
            place, begin = f"{name} row {begin}", reader.line_num + 1
            if not cells:
                continue
            if header is None:
                header = check_header(cells, name)
                continue
            if len(cells) != len(header):
                raise _ragged(place, len(cells), header, f"text with {delimiter!r} in it must stand in double quotes")
            rows.append(tuple(cells))
            where.append(place)
    except csv.Error as error:
        raise UserError(
            f"{name} row {begin}: a double quote is not closed or not doubled ({error}); "
            'inside a quoted cell write " as ""'
        ) from None
    finally:
        csv.field_size_limit(limit)
    assert header is not None, "read_text refuses blank files"
    return Table(name, header, rows, where)


def _delimiter(text: str) -> str:
    return csv_delimiter(next(line for line in io.StringIO(text) if line.strip()))


def parse_tsv(
    text: str, name: str, *, header: Sequence[str] | None = None, quotes: bool = True, skipped: list[str] | None = None
) -> Table:
    """Tab-separated lines. With `header` the file has none of its own. With `skipped` a row whose number of cells is
    wrong is left out and its place appended there; otherwise it is an error."""
    columns = tuple(header) if header is not None else None
    rows: list[tuple[Any, ...]] = []
    where: list[str] = []
    for number, line in enumerate(text_lines(text), 1):
        if not line.strip("\r\n "):
            continue
        cells = _tsv_cells(line, quotes, len(columns) if columns else None)
        if columns is None:
            columns = check_header(cells, name)
            continue
        place = f"{name} row {number}"
        if len(cells) == len(columns):
            rows.append(tuple(cells))
            where.append(place)
        elif skipped is not None:
            skipped.append(place)
        else:
            raise _ragged(place, len(cells), columns, "text may hold no tab and no line break in a TSV file")
    assert columns is not None, "read_text refuses blank files"
    return Table(name, columns, rows, where)


def _tsv_cells(line: str, quotes: bool, expected: int | None) -> list[str]:
    plain = line.split("\t")
    if not quotes or '"' not in line:
        return plain
    try:
        quoted = next(csv.reader([line], delimiter="\t", strict=True))
    except csv.Error:
        return plain
    return quoted if expected is None or len(quoted) == expected else plain


def check_header(cells: Sequence[str], name: str) -> tuple[str, ...]:
    """Column names without the spaces around them; two of one name would make rows ambiguous."""
    columns = tuple(cell.strip() for cell in cells)
    twice = [column for column, count in Counter(columns).items() if count > 1]
    if twice:
        raise UserError(f"{name} row 1: the column {twice[0]!r} stands twice in the header; rename one of them")
    return columns


def _ragged(place: str, found: int, columns: Sequence[str], remedy: str) -> UserError:
    cells = "1 cell" if found == 1 else f"{found} cells"
    return UserError(f"{place}: {cells} where the header has {len(columns)} ({', '.join(columns)}); {remedy}")


def parse_jsonl(text: str, name: str, errors: str = "strict", notes: list[str] | None = None) -> Table:
    """One JSON object a line; the columns are the keys in order of first appearance, an absent key is None."""
    records: list[dict[str, Any]] = []
    where: list[str] = []
    for number, line in enumerate(text_lines(text), 1):
        if not line.strip():
            continue
        place = f"{name} row {number}"
        records.append(_json_object(line, place))
        where.append(place)
    return _checked(table_of_records(records, name, where), errors, notes)


def _json_object(line: str, place: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise UserError(f"{place}: the key {twice!r} stands twice in one JSON object; remove one")
        return record

    try:
        record = json.loads(line, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not JSON ({error}); each line must be one JSON object") from None
    if not isinstance(record, dict):
        raise UserError(f'{place}: a JSON {type(record).__name__}; each line must be an object such as {{"text": …}}')
    return record


class ChoiceNumber(str):
    """A label that a published layout gives by number or letter: the right choice's number from 1, never its text. (Of
    RACE's options some are numbers themselves.)"""


def table_of_records(records: Iterable[dict[str, Any]], name: str, where: list[str]) -> Table:
    records = list(records)
    columns = tuple(dict.fromkeys(key for record in records for key in record))
    return Table(name, columns, [tuple(record.get(column) for column in columns) for record in records], where)


def _checked(table: Table, errors: str, notes: list[str] | None) -> Table:
    """Typed values can hold what decoded text cannot: NUL and half surrogate pairs (JSON's \\u0000 and \\ud800)."""
    replaced = 0
    rows = []
    for row, place in zip(table.rows, table.where):
        try:
            cells, count = _clean(row)
        except RecursionError:
            raise UserError(f"{place}: values nested too deeply; flatten them") from None
        if count and errors == "strict":
            bad = next(name for name, cell in zip(table.columns, row) if _clean(cell)[1])
            raise UserError(
                f"{place}: {bad!a} holds a NUL or half a surrogate pair (an escape such as \\u0000 or \\ud800); "
                "correct the row or use --errors replace"
            )
        replaced += count
        rows.append(tuple(cells))
    columns, count = _clean(table.columns)
    if count and errors == "strict":
        raise UserError(f"{table.name}: a column's name holds a NUL or half a surrogate pair; rename it")
    if replaced + count and notes is not None:
        notes.append(f"{table.name}: {replaced + count:,} unreadable places replaced by U+FFFD")
    return Table(table.name, tuple(columns), rows, table.where)


def _clean(value: Any) -> tuple[Any, int]:
    """The value with such characters replaced at any depth, and how many there were."""
    if isinstance(value, str):
        return _NOT_TEXT.subn(REPLACEMENT, value)
    if isinstance(value, list | tuple):
        parts = [_clean(item) for item in value]
        return [item for item, _ in parts], sum(count for _, count in parts)
    if isinstance(value, dict):
        keys, values = _clean(list(value.keys())), _clean(list(value.values()))
        return dict(zip(keys[0], values[0])), keys[1] + values[1]
    return value, 0


def unpacked(value: Any) -> Any:
    """A numpy scalar as the Python value in it; anything else as it is."""
    is_scalar = hasattr(value, "item") and getattr(value, "ndim", 1) == 0
    return value.item() if is_scalar else value


def _read_parquet(path: Path, errors: str, notes: list[str] | None) -> Table:
    import polars

    data = read_bytes(path)
    if not data:
        raise UserError(f"{path}: the file is empty; give a file with rows in it")
    try:
        frame = polars.read_parquet(io.BytesIO(data))
    except Exception as error:  # polars raises several unrelated classes for a damaged file
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: not a readable Parquet file ({first}); write it again") from None
    where = [f"{path} row {number}" for number in range(1, frame.height + 1)]
    return _checked(Table(str(path), tuple(frame.columns), frame.rows(), where), errors, notes)
