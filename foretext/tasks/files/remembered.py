"""How a fine-tuned run reads further files: as it read the training file, unless the user or the file says otherwise.

1. What the user gives holds, alone: `--columns` puts a remembered layout aside, `--format` remembered columns, and
   `--format none` both, for a file with the task's own column names.
2. Given neither, a file whose header has the task's own text columns (`text`; `premise`, `hypothesis`; …; of scored
   pairs also `text1`, `text2`) is read by its header, unless it has the remembered columns too.
3. Otherwise it is read as the training file was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretext.errors import UserError
from foretext.tasks.files.rows import has_own_names, read_task_table, text_fields
from foretext.text.corpus.tables import Table, table_header

NO_FORMAT = "none"
_LABELS = ("label", "score")


@dataclass(frozen=True)
class Naming:
    """Where a task's fields stand in a file: under other column names (field → column), or in a published layout. With
    neither they have the task's own names."""

    columns: dict[str, str] | None = None
    format: str | None = None


def layout_name(format: str | None) -> str | None:
    """The layout that `--format` names; `none` is none."""
    return None if format == NO_FORMAT else format


def read_as_trained(
    path: str | Path,
    kind: str,
    trained: Naming,
    given: Naming,
    *,
    texts: int = 0,
    need_labels: bool = True,
    errors: str = "strict",
    notes: list[str] | None = None,
) -> tuple[Table, dict[str, str] | None]:
    """The table of a file, and the columns' names to make rows of it with. `texts`: see `text_fields`."""
    if given.columns or given.format is not None:
        format = layout_name(given.format)
        return read_task_table(path, kind, columns=given.columns, format=format, errors=errors, notes=notes), (
            given.columns
        )
    if trained.format is None or has_own_names(table_header(Path(path)), kind, texts):
        table = read_task_table(path, kind, errors=errors, notes=notes)
        return table, names_in(table.columns, kind, texts, trained.columns, need_labels)
    try:
        return read_task_table(path, kind, format=trained.format, errors=errors, notes=notes), None
    except UserError as error:
        if not Path(path).exists():
            raise
        own = text_fields(kind, texts)
        naming = ",".join(f"{field}=…" for field in own)
        raise UserError(
            f"{path}: it has no header with {', '.join(own)}, and cannot be read as {trained.format}, as in the "
            f'fine-tuning ({error}); name its columns by --columns "{naming}", or another layout by --format',
            error.code,
        ) from None


def names_in(
    header: Sequence[str], kind: str, texts: int, trained: dict[str, str] | None, need_labels: bool
) -> dict[str, str] | None:
    """The remembered names, without the label's where none is needed; None, for the task's own, if the header lacks one
    of them for the texts and has the task's own."""
    names = {field: name for field, name in (trained or {}).items() if need_labels or field not in _LABELS}
    remembered = {name for field, name in names.items() if field not in _LABELS}
    if not remembered <= set(header) and has_own_names(header, kind, texts):
        return None
    return names or None
