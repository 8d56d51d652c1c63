"""Two published layouts of choice that need code of their own: SWAG's and the Children's Book Test's. `formats.py`
lists them with the others."""

import re
from typing import Any

from foretext.errors import UserError
from foretext.text.corpus.tables import Table, parse_csv, table_of_records

_SWAG_ENDINGS = tuple(f"ending{number}" for number in range(4))
_NUMBERED = re.compile(r"([0-9]+) (.*)")


class ChoiceNumber(str):
    """A label that a published layout gives by number or letter: the right choice's number from 1, never its text. (Of
    RACE's options some are numbers themselves.)"""


def parse_swag(text: str, name: str) -> Table:
    """CSV: the context is `sent1`, the choices are `sent2` with each ending; labels count from 0 there, from 1 here.
    The other columns are kept."""
    table = parse_csv(text, name)
    for column in ("sent1", "sent2", *_SWAG_ENDINGS):
        if column not in table.columns:
            raise UserError(
                f"{name}: no column {column!r}, which this layout has; the columns are {', '.join(table.columns)}; "
                "check --format"
            )
    table = table.renamed({"sent1": "context", "label": "label"})
    fields = {column: number for number, column in enumerate(table.columns)}
    rows = []
    for cells, where in zip(table.rows, table.where):
        row = list(cells)
        if "label" in fields:
            row[fields["label"]] = _swag_label(row[fields["label"]], f"{where}, column 'label'")
        begin = row[fields["sent2"]].strip()
        rows.append((*row, *(f"{begin} {row[fields[ending]].strip()}".strip() for ending in _SWAG_ENDINGS)))
    return Table(name, (*table.columns, *(f"choice{number}" for number in range(1, 5))), rows, table.where)


def _swag_label(cell: str, where: str) -> str | None:
    if not cell.strip():
        return None
    if cell.strip() not in ("0", "1", "2", "3"):
        raise UserError(f"{where}: the label {cell!r} is not a number from 0 to 3; correct it, or check --format")
    return ChoiceNumber(int(cell) + 1)


def parse_cbt(lines: list[str], name: str) -> Table:
    """Numbered lines, a story at a time: 20 sentences, then a question with XXXXX for the missing word, and behind tabs
    the word, an empty cell and the candidates with | between. The context is the sentences, a line break, the question;
    the choices are the candidates."""
    records: list[dict[str, Any]] = []
    where: list[str] = []
    story: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{name} row {number}"
        found = _NUMBERED.fullmatch(line)
        if found is None:
            raise UserError(f"{place}: no number and sentence in it, as 1 to 21 in each story; check --format")
        if int(found[1]) == 1 and story:
            raise UserError(f"{place}: a new story, and the one before has no question; restore its last line")
        if int(found[1]) != len(story) + 1:
            raise UserError(f"{place}: number {found[1]} where {len(story) + 1} is expected; restore what is missing")
        if "\t" not in line:
            story.append(found[2].strip())
            continue
        records.append(_cbt_record(story, found[2].split("\t"), place))
        where.append(place)
        story = []
    if story:
        raise UserError(f"{name}: its last story has no question; the file may be cut short: get it again")
    return table_of_records(records, name, where)


def _cbt_record(story: list[str], cells: list[str], place: str) -> dict[str, Any]:
    question, answer = cells[0].strip(), cells[1].strip()
    candidates = [candidate.strip() for candidate in cells[-1].split("|") if candidate.strip()]
    if len(cells) < 3 or len(candidates) < 2:
        raise UserError(f"{place}: no question, word and candidates (a|b|…) with tabs between; check --format")
    if answer and answer not in candidates:
        raise UserError(f"{place}: the word {answer!r} is not among its candidates; correct the row")
    return (
        {"context": f"{' '.join(story)}\n{question}"}
        | {f"choice{number}": candidate for number, candidate in enumerate(candidates, 1)}
        | {"label": ChoiceNumber(candidates.index(answer) + 1) if answer else None}
    )
