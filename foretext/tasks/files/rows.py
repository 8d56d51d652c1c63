"""Labelled rows, from a file or from Python data. All checks of rows are here.

Columns by kind (for other names: `columns={"text": "review", "label": "stars"}`, our name → the file's):

| kind | columns | label |
|---|---|---|
| classification | text | label: any text |
| entailment | premise, hypothesis | label: any text |
| similarity | text1, text2 | label: any text |
| choice | context, choice1 … choiceN | label: the right one's number from 1, or its text |
| regression | text, and optionally text2; or text1 and text2 | score: a finite number |

Labels are never coerced: in CSV and TSV the label is the exact cell ("01" is not "1", "1.0" is not "1", "pos " is not
"pos"). Typed values of JSON, Parquet and Python become text: whole numbers their decimal digits, true and false "true"
and "false", other numbers take Python's shortest form (1.0 gives "1.0"). Null, NaN and blank cells are missing labels.
Rows may have different numbers of choices: empty ones at the end count as absent.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretext.errors import UserError, closest, did_you_mean, refuse_if
from foretext.tasks.files.format_readers import ChoiceNumber, Record, numbered_choices
from foretext.tasks.files.formats import find_format, read_format
from foretext.text.corpus.tables import Table, read_table, table_of_records, unpacked

KINDS = ("classification", "entailment", "similarity", "choice", "regression")
TEXT_FIELDS = {
    "classification": ("text",),
    "entailment": ("premise", "hypothesis"),
    "similarity": ("text1", "text2"),
    "choice": ("context",),
    "regression": ("text",),
}
LABEL_FIELDS = {"regression": "score"}  # for other kinds: label
UNORDERED = ("similarity", "regression")  # kinds whose pairs have no order: a causal layout reads both orders
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_CHOICE = re.compile(r"choice([1-9][0-9]*)")
_SCORE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Row:
    """One example. `texts` as in the module's table. `label`: a class name, for a choice its index from 0, for a
    regression a float; None if missing. `where` is for messages."""

    texts: tuple[str, ...]
    label: str | float | int | None
    where: str


def read_rows(
    path: str | Path,
    kind: str,
    *,
    columns: dict[str, str] | None = None,
    format: str | None = None,
    need_labels: bool = True,
    errors: str = "strict",
    notes: list[str] | None = None,
) -> list[Row]:
    """The rows of a file. `notes` collects notes for the user (rows skipped, bytes replaced)."""
    table = read_task_table(path, kind, columns=columns, format=format, errors=errors, notes=notes)
    return rows_of(table, kind, columns=columns, need_labels=need_labels)


def read_task_table(
    path: str | Path,
    kind: str,
    *,
    columns: dict[str, str] | None = None,
    format: str | None = None,
    errors: str = "strict",
    notes: list[str] | None = None,
) -> Table:
    """The table behind `read_rows` with all its columns. `rows_of` makes rows of it, in the same order."""
    if format is None:
        return read_table(path, errors=errors, notes=notes)
    refuse_if(columns, f"{path}: --format {format} already defines its columns; leave out --columns or --format")
    return read_format(path, format, kind, errors=errors, notes=notes)


def text_fields(kind: str, texts: int = 0) -> tuple[str, ...]:
    """The text fields that rows of a kind must have. `texts`: per row of a regression, 2 for pairs."""
    more = {"choice": ("choice1", "choice2"), "regression": ("text2",) if texts == 2 else ()}
    return (*TEXT_FIELDS[kind], *more.get(kind, ()))


def has_own_names(header: Iterable[str], kind: str, texts: int = 0) -> bool:
    """Whether a file's columns use the task's own names for its texts. A scored pair may also use a similarity's
    names."""
    names = set(header)
    return set(text_fields(kind, texts)) <= names or (kind == "regression" and texts != 1 and _named_as_pair(names))


def _named_as_pair(header: Iterable[str]) -> bool:
    names = set(header)
    return "text" not in names and set(TEXT_FIELDS["similarity"]) <= names


def check_texts(rows: Sequence[Row], texts: int) -> None:
    """UserError if single texts and pairs are mixed: they are two different tasks. `texts`: how many a row has, 0 if
    unknown or different by row."""
    for row in rows:
        if texts == 1 and len(row.texts) > 1:
            raise UserError(f"{row.where}: two texts, but the model was trained on single texts; leave out the second")
        if texts == 2 and len(row.texts) < 2:
            raise UserError(f"{row.where}: one text, but the model was trained on pairs; give text and text2")


def kind_of(kind: str, format: str | None) -> str:
    """The kind of task to learn: a similarity given as scores (STS-B) is a regression of pairs."""
    scored = kind == "similarity" and format is not None and find_format(format).kind == "regression"
    return "regression" if scored else kind


def rows_of(table: Table, kind: str, *, columns: dict[str, str] | None = None, need_labels: bool = True) -> list[Row]:
    """The rows of a table, checked. Without `need_labels`, a missing or unreadable label is None; texts are always
    needed."""
    text_columns, label_column = _find_columns(table, kind, columns or {}, need_labels)
    at = [table.columns.index(name) for name in text_columns]
    label_at = table.columns.index(label_column) if label_column is not None else None
    rows = []
    for cells, where in zip(table.rows, table.where):
        texts = _texts([cells[i] for i in at], text_columns, kind, where)
        label = None
        if label_at is not None:
            place = f"{where}, column {label_column!r}"
            try:
                label = _label(cells[label_at], texts, kind, place)
            except UserError:
                if need_labels:
                    raise
            if label is None and need_labels:
                what = f"the {LABEL_FIELDS.get(kind, 'label')} is missing{_other_labels(table, label_at, kind)}"
                raise UserError(f"{place}: {what}; fill it in or remove the row")
        rows.append(Row(texts, label, where))
    return rows


def cell_text(value: Any, where: str) -> str | None:
    """The text of a cell by the rules in the module's docstring; None if it is missing."""
    value = unpacked(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        if not value.isascii() and _HALF_PAIR.search(value):
            raise UserError(f"{where}: half of a surrogate pair, which is not a character; correct the text")
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise UserError(f"{where}: a {type(value).__name__}, but text or a number is needed; store it as text")


def _find_columns(table: Table, kind: str, names: dict[str, str], need_labels: bool) -> tuple[list[str], str | None]:
    """The table's names of the text columns, in order, and of the label column (None if absent and not needed)."""
    label_field = LABEL_FIELDS.get(kind, "label")
    if kind == "regression" and not names.keys() - {label_field} and _named_as_pair(table.columns):
        names = {"text": "text1", "text2": "text2", **names}
    fields = [*TEXT_FIELDS[kind], *_further_fields(table, kind, names)]
    allowed = dict.fromkeys([*fields, *(["text2"] if kind == "regression" else []), label_field])
    for key in names:
        if key not in allowed and not (kind == "choice" and _CHOICE.fullmatch(key)):
            raise UserError(f"--columns {key}=…: {kind} has no field {key!r}; its fields are {', '.join(allowed)}")
    others = [*fields, label_field]
    texts = [_find(table, field, names, others) for field in fields]
    # A column named by the user must exist even if labels are not needed: otherwise it is a misspelling.
    if names.get(label_field, label_field) in table.columns or need_labels or label_field in names:
        return texts, _find(table, label_field, names, others)
    return texts, None


def _further_fields(table: Table, kind: str, names: dict[str, str]) -> list[str]:
    """The optional text fields that a file has."""
    if kind == "regression":
        return ["text2"] if "text2" in names or "text2" in table.columns else []
    if kind != "choice":
        return []
    last = max({int(m[1]) for name in (*table.columns, *names) if (m := _CHOICE.fullmatch(name))}, default=0)
    return [f"choice{number}" for number in range(1, max(last, 2) + 1)]


def _find(table: Table, field: str, names: dict[str, str], fields: Sequence[str]) -> str:
    """The table's column for a field. If it is missing, the error suggests a column that none of the other `fields`
    uses."""
    name = names.get(field, field)
    if name in table.columns:
        return name
    known = ", ".join(table.columns) or "none"
    refuse_if(
        _CHOICE.fullmatch(field) and name == field and sum(bool(_CHOICE.fullmatch(c)) for c in table.columns) == 1,
        f"{table.name}: no column {name!r}; a choice needs at least choice1 and choice2; the columns are {known}; "
        f"add it, or name another with --columns {field}=…",
    )
    taken = {names.get(other, other) for other in fields if other != field}
    free = [column for column in table.columns if column not in taken]
    refuse_if(
        not free, f"{table.name}: no column {name!r}, and the columns {known} are already used; add one for the {field}"
    )
    raise UserError(
        f"{table.name}: no column {name!r}{did_you_mean(name, free)}; the columns are {known}; "
        f'name the right one, for example --columns "{field}={closest(name, free) or free[0]}"'
    )


def _texts(cells: list[Any], names: list[str], kind: str, where: str) -> tuple[str, ...]:
    texts = [cell_text(cell, f"{where}, column {name!r}") or "" for cell, name in zip(cells, names)]
    if kind == "choice":
        while len(texts) > 1 and not texts[-1].strip():
            texts.pop()
        if len(texts) < 3:
            raise UserError(f"{where}: {len(texts) - 1} choice(s); a row needs at least choice1 and choice2")
    for text, name in zip(texts, names):
        if not text.strip():
            raise UserError(f"{where}: the column {name!r} is blank; fill it in or remove the row")
    return tuple(texts)


def _other_labels(table: Table, at: int, kind: str) -> str:
    """The labels of the other rows, for a message; at most twenty. Empty for scores and choice numbers."""
    if kind in ("regression", "choice"):
        return ""
    labels = dict.fromkeys(str(cells[at]).strip() for cells in table.rows if unpacked(cells[at]) is not None)
    names = [name for name in labels if name and name != "nan"]
    shown = ", ".join(repr(name) for name in names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f" (the labels are {shown})" if names else ""


def _label(cell: Any, texts: tuple[str, ...], kind: str, where: str) -> str | float | int | None:
    """The label of a row; None if it is missing."""
    text = cell_text(cell, where)
    if text is None or not text.strip():
        return None
    if kind == "regression":
        return _score(text, where)
    if kind == "choice":
        return _choice_label(text, texts[1:], where, numbered=isinstance(cell, ChoiceNumber))
    return text


def _score(text: str, where: str) -> float:
    if not _SCORE.fullmatch(text.strip()) or not math.isfinite(float(text)):
        raise UserError(f"{where}: the score {text!r} is not a finite number such as 3.5; correct it")
    return float(text)


def _choice_label(text: str, choices: tuple[str, ...], where: str, numbered: bool) -> int:
    readings = {index for index, choice in enumerate(choices) if choice == text and not numbered}
    number = text.strip()
    if re.fullmatch(r"[1-9][0-9]{0,8}", number) and int(number) <= len(choices):
        readings.add(int(number) - 1)
    if len(readings) == 1:
        return readings.pop()
    if readings:
        ways = " or ".join(f"choice{index + 1}" for index in sorted(readings))
        raise UserError(
            f"{where}: the label {text!r} could mean {ways}; give a choice's number and make the choices' texts "
            "distinct"
        )
    raise UserError(
        f"{where}: the label {text!r} is neither a number from 1 to {len(choices)} nor the text of a choice; correct it"
    )


def rows_from(data: Any, kind: str, *, columns: dict[str, str] | None = None, need_labels: bool = True) -> list[Row]:
    """Rows from Python data; see `table_from` for its forms. A list or tuple of `Row` passes through."""
    if isinstance(data, list | tuple) and data and all(isinstance(item, Row) for item in data):
        return data if isinstance(data, list) else list(data)
    return rows_of(table_from(data, kind), kind, columns=columns, need_labels=need_labels)


def table_from(data: Any, kind: str) -> Table:
    """A table of Python data. It may be:

    - a polars or pandas frame, or a list of dicts, with the columns of the kind (a choice may have `choices`, a list);
    - a list of strings (texts without labels) or of tuples in the order of the columns, the label last: `(text,
      label)`, `(premise, hypothesis, label)`, `(context, [choice, …], label)`; the label may be left out, except
      that in a regression `(text, number)` is a text and its score;
    - a tuple `(X, y)` of texts (strings or tuples as above, without labels) and labels, of equal length.
    """
    if hasattr(data, "to_dicts"):  # polars
        records = data.to_dicts()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        records = [{str(key): value for key, value in record.items()} for record in data.to_dict("records")]
    elif isinstance(data, tuple):
        records = _pair_records(data, kind)
    elif isinstance(data, str | bytes | dict) or not isinstance(data, Iterable):
        raise UserError(f"data: a {type(data).__name__}, but a list of rows, a frame or a pair (X, y) is needed")
    else:
        records = [_record(item, kind, f"data[{i}]") for i, item in enumerate(data)]
    refuse_if(not records, "data: no rows; give at least one")
    return table_of_records(records, "data", [f"data[{i}]" for i in range(len(records))])


def listed(data: Any, what: str, name: str | None) -> list[tuple[str, Any]]:
    """The items of Python data that must be a list of `what`, each with its name for messages. `name`: what messages
    call the data, if it is not an argument."""
    if isinstance(data, str | bytes | dict) or not isinstance(data, Iterable):
        raise UserError(f"{name or 'data'}: a {type(data).__name__}, but a list of {what} is needed")
    items = [(f"{name} {i + 1}" if name else f"data[{i}]", item) for i, item in enumerate(data)]
    refuse_if(not items, f"{name or 'data'}: no {what}; give at least one")
    return items


def _pair_records(data: tuple[Any, ...], kind: str) -> list[Record]:
    if len(data) != 2 or any(isinstance(part, str) or not isinstance(part, Iterable) for part in data):
        raise UserError("data: a tuple must be a pair (X, y) of texts and labels; give rows as a list")
    texts, labels = list(data[0]), list(data[1])
    refuse_if(
        len(texts) != len(labels),
        f"data: X has {len(texts)} texts but y has {len(labels)} labels; the numbers must be equal",
    )
    field = LABEL_FIELDS.get(kind, "label")
    return [_record(text, kind, f"X[{i}]") | {field: label} for i, (text, label) in enumerate(zip(texts, labels))]


def _record(item: Any, kind: str, where: str) -> Record:
    if isinstance(item, dict):
        record = dict(item)
        if kind == "choice" and "choices" in record:
            record |= _choices(record.pop("choices"), where)
        return record
    cells = [item] if isinstance(item, str) else list(item) if isinstance(item, tuple | list) else None
    if cells is None:
        raise UserError(f"{where}: a {type(item).__name__}, but a string, a tuple or a dict is needed")
    if kind == "choice":
        if len(cells) not in (2, 3) or isinstance(cells[1], str):
            raise UserError(f"{where}: a choice is a tuple (context, [choice, …], label) or a dict")
        record = {"context": cells[0], **_choices(cells[1], where)}
        return record | {"label": cells[2]} if len(cells) == 3 else record
    fields = _fields(cells, kind)
    if not len(fields) - 1 <= len(cells) <= len(fields):
        raise UserError(f"{where}: {len(cells)} values, but {kind} has {', '.join(fields)}")
    return dict(zip(fields, cells))


def _fields(cells: Sequence[Any], kind: str) -> list[str]:
    """The fields of a tuple's values, in order."""
    if kind != "regression":
        return [*TEXT_FIELDS[kind], "label"]
    paired = len(cells) == 3 or (len(cells) == 2 and isinstance(cells[1], str))
    return ["text", "text2", "score"] if paired else ["text", "score"]


def _choices(choices: Any, where: str) -> Record:
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        raise UserError(f"{where}: the choices must be a list of texts")
    return numbered_choices(choices)
