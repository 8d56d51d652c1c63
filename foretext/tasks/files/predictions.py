"""Predictions beside their rows, as a file or as text for standard output.

The original columns come first, unchanged. Then comes `prediction`. Classes and choices add `probability` (of the
prediction) and one column per class, `p_<label>`, or per choice, `p_1` and so on (empty if a row has fewer choices). A
choice is given by its number from 1, as in the input. An original column with the name of a new one is kept as
`input_<name>`, so predicting on a predictions file works, and `prediction` is always the newest.

Tags and answers have their own shapes, which their families make. Files are written atomically. TSV cells cannot hold
line breaks or tabs; these become spaces.
"""

import gzip
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretext.errors import refuse_if
from foretext.text.corpus.tables import Table, set_aside, unpacked
from foretext.text.corpus.text_files import write_whole

_DIGITS = 6
# Characters that need quoting. The csv module leaves a lone carriage return unquoted, which readers take for the end of
# a row.
_SPECIAL_CSV = re.compile('[,;"\t\r\n]')
_SPECIAL_TSV = re.compile('^"')
_BREAKS = re.compile("\r\n|[\t\r\n]")


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for rows. `values`: class names, choice indices from 0, scores, tuples of tags, or
    `Answered`. `probabilities`: for each row one per label or choice; for tags one per word (None if it was not
    predicted); otherwise None. `labels`: class names or tags; otherwise None. `why`: for each row of tags one line per
    word, if explanations were requested."""

    kind: str
    values: Sequence[Any]
    probabilities: Sequence[Sequence[Any]] | None = None
    labels: tuple[str, ...] | None = None
    why: Sequence[Sequence[str]] | None = None


def with_column(table: Table | None, name: str, cells: Sequence[Any]) -> Table:
    """The table with one more column in front."""
    assert table is not None and len(table.rows) == len(cells)
    while name in table.columns:
        name = f"{name}_"
    rows = [(cell, *row) for cell, row in zip(cells, table.rows)]
    return Table(table.name, (name, *table.columns), rows, table.where)


def prediction_table(table: Table, predictions: Predictions, notes: list[str] | None = None) -> Table:
    """The rows of `table` with the prediction columns after their own."""
    names, added = _new_columns(predictions)
    renamed = set_aside(table.columns, names)
    if notes is not None:
        notes += [f"the input's own column {old!r} is kept as {new!r}" for old, new in renamed.items()]
    kept = [renamed.get(column, column) for column in table.columns]
    return Table(
        table.name, (*kept, *names), [(*old, *new) for old, new in zip(table.rows, added, strict=True)], table.where
    )


def _new_columns(predictions: Predictions) -> tuple[list[str], list[tuple[Any, ...]]]:
    if predictions.probabilities is None:
        return ["prediction"], [(_plain(value),) for value in predictions.values]
    most = max(map(len, predictions.probabilities), default=0)
    ends: Sequence[Any] = predictions.labels or range(1, most + 1)
    shown = predictions.values if predictions.labels else [int(value) + 1 for value in predictions.values]
    places = {end: place for place, end in enumerate(ends)}
    rows = []
    for value, row in zip(shown, predictions.probabilities, strict=True):
        rounded = [written_probability(p) for p in row]
        rows.append((value, rounded[places[value]], *rounded, *[None] * (len(ends) - len(rounded))))
    return ["prediction", "probability", *(f"p_{end}" for end in ends)], rows


def probabilities_of(scores: np.ndarray) -> np.ndarray:
    """The softmax of each row of scores."""
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def written_probability(probability: float | None) -> float | None:
    """A probability as it is written."""
    return None if probability is None else round(float(probability), _DIGITS)


def write_output(content: Table | str, path: Path, form: str) -> None:
    """Writes a table in this form, or a text; compressed if the name ends in .gz."""
    if isinstance(content, Table) and form == "parquet":
        data = _parquet(content)
    else:
        data = output_text(content, form).encode()
    write_whole(path, gzip.compress(data, mtime=0) if path.suffix.lower() == ".gz" else data)


def output_text(content: Table | str, form: str) -> str:
    """A table as "csv", "tsv" or "jsonl" text; a text is returned unchanged."""
    if isinstance(content, str):
        return content
    if form == "jsonl":
        lines = [json.dumps(dict(zip(content.columns, map(_plain, row))), ensure_ascii=False) for row in content.rows]
        return "".join(f"{line}\n" for line in lines)
    refuse_if(form not in ("csv", "tsv"), f"a table cannot be written as {form!r}; use csv, tsv or jsonl")
    delimiter, special = ("\t", _SPECIAL_TSV) if form == "tsv" else (",", _SPECIAL_CSV)
    lines = []
    for row in (content.columns, *content.rows):
        cells = [_cell(value) for value in row]
        if form == "tsv":
            cells = [_BREAKS.sub(" ", cell) for cell in cells]
        quoted = ['"' + cell.replace('"', '""') + '"' if special.search(cell) else cell for cell in cells]
        lines.append(delimiter.join(quoted) or '""')
    return "".join(f"{line}\n" for line in lines)


def _plain(value: Any) -> Any:
    """A value that JSON can hold: numpy scalars are unpacked, other types (dates, bytes) become text."""
    value = unpacked(value)
    if value is None or isinstance(value, str | bool | int | list | dict):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return str(value)


def _cell(value: Any) -> str:
    value = _plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def _parquet(table: Table) -> bytes:
    import polars

    columns = []
    for i, name in enumerate(table.columns):
        values = [row[i] for row in table.rows]
        try:
            columns.append(polars.Series(name, values, strict=True))
        except (TypeError, ValueError, OverflowError, polars.exceptions.PolarsError):
            # one column with values of several types, which JSON lines may have
            columns.append(polars.Series(name, [None if v is None else _cell(v) for v in values], dtype=polars.String))
    out = io.BytesIO()
    polars.DataFrame(columns).write_parquet(out)
    return out.getvalue()
