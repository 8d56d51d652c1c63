"""Readers of published data sets. Each turns a file (or folder) into a `Table` with the column names that `rows.py`
defines for its kind of task; other columns are kept for the predictions. Labels and texts are checked in one place,
`rows.py`. The tab-separated layouts have no quoting: a quote is an ordinary character. Test files without a label
column can be predicted on.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from foretext.errors import UserError, refuse_if
from foretext.text.corpus.tables import Table, parse_csv, parse_jsonl, parse_tsv, table_of_records
from foretext.text.corpus.text_files import first_line, read_bytes, read_text, text_lines

COPA_QUESTIONS = {"cause": "What was the cause?", "effect": "What happened as a result?"}
NLI = {"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"}


class ChoiceNumber(str):
    """A label that a published layout gives as a number or letter: the right choice's number from 1, never its text.
    (Some of RACE's options are numbers themselves.)"""


@dataclass(frozen=True)
class Source:
    """The input of a reader: what to read, what to do with undecodable bytes, and where to leave notes for the user."""

    path: Path
    errors: str
    notes: list[str]

    @property
    def name(self) -> str:
        return str(self.path)

    def text(self, encoding: str = "utf-8") -> str:
        return read_text(self.path, self.errors, self.notes, encoding)

    @property
    def is_jsonl(self) -> bool:
        """Whether a file is JSON lines, by its ending or its first line: SciTail's snli_format/*.txt are JSON lines
        too."""
        if any(suffix.lower() in (".jsonl", ".ndjson") for suffix in self.path.suffixes[-2:]):
            return True
        try:
            return isinstance(json.loads(first_line(self.path)), dict)
        except (ValueError, RecursionError):
            return False


Reader = Callable[[Source], Table]
Record = dict[str, Any]  # the cells of a row by their columns


# ---- helpers: most layouts are one of these with the names of its columns ----


def headed(names: dict[str, str], *, unlabelled: str | None = None, skip_broken: bool = False) -> Reader:
    """Reads named columns (theirs → ours) of a tab-separated file with a header, or of JSON lines.

    `unlabelled` is the label of rows without a gold label, which are skipped and counted. With `skip_broken`, so are
    rows with a wrong number of cells or a blank text, since some published files contain such rows.
    """

    def reader(source: Source) -> Table:
        broken: list[str] = []
        if source.is_jsonl:
            table = parse_jsonl(source.text(), source.name, source.errors, source.notes)
        else:
            table = parse_tsv(source.text(), source.name, quotes=False, skipped=broken if skip_broken else None)
        table = _named(table, names)
        if skip_broken:
            used = [table.columns.index(name) for name in names.values() if name in table.columns]
            table, blank = _filtered(table, lambda row: all(row[i] is None or str(row[i]).strip() for i in used))
            broken += blank
        if broken:
            source.notes.append(f"{source.name}: {len(broken):,} broken rows skipped (the first: {broken[0]})")
        if unlabelled is not None and "label" in table.columns:
            at = table.columns.index("label")
            table, dropped = _filtered(table, lambda cells: cells[at] != unlabelled)
            if dropped:
                source.notes.append(f"{source.name}: {len(dropped):,} rows without a gold label ({unlabelled}) skipped")
        return table

    return reader


def _filtered(table: Table, keep: Callable[[tuple[Any, ...]], bool]) -> tuple[Table, list[str]]:
    """The rows that `keep` accepts, and where the others are."""
    kept = [keep(row) for row in table.rows]
    rows, where = list(compress(table.rows, kept)), list(compress(table.where, kept))
    return Table(table.name, table.columns, rows, where), list(compress(table.where, map(not_, kept)))


def _named(table: Table, names: dict[str, str]) -> Table:
    """Renames columns. Text columns must exist; the label column may be missing."""
    missing = [old for old, new in names.items() if new not in ("label", "score") and old not in table.columns]
    if missing:
        raise UserError(
            f"{table.name}: no column {missing[0]!r}, which this layout needs; the columns are "
            f"{', '.join(table.columns)}; check --format"
        )
    return table.renamed(names)


def headless(header: Sequence[str], *, extra: bool = False) -> Reader:
    """Reads a tab-separated file without a header, given the names of its columns. With `extra`, rows may have more
    cells."""
    return lambda source: parse_tsv(source.text(), source.name, header=list(header), quotes=False, extra=extra)


def glue(first_cells: Sequence[str], headed: Reader, headless: Reader) -> Reader:
    """Reads files without a header, or GLUE's, whose header begins with `first_cells`."""

    def reader(source: Source) -> Table:
        text = read_text(source.path, "replace")  # the actual reader reports errors
        begins = text_lines(text)[0].split("\t")[: len(first_cells)] == list(first_cells)
        return (headed if begins else headless)(source)

    return reader


def of_records(records: Callable[[Source], Iterator[tuple[str, Record]]]) -> Reader:
    """A reader that yields each row as its place and its cells by name."""

    def reader(source: Source) -> Table:
        located = list(records(source))
        return table_of_records([record for _, record in located], source.name, [place for place, _ in located])

    return reader


# ---- the layouts that need code of their own ----


def trec(fine: bool) -> Reader:
    def records(source: Source) -> Iterator[tuple[str, Record]]:
        for number, line in enumerate(text_lines(source.text("latin-1")), 1):
            label, _, text = line.partition(" ")
            place = f"{source.name} row {number}"
            if ":" not in label:
                raise UserError(f"{place}: it does not begin with a 'COARSE:fine' label; check --format")
            yield place, {"text": text, "label": label if fine else label.partition(":")[0]}

    return of_records(records)


def _imdb_records(source: Source) -> Iterator[tuple[str, Record]]:
    for label in ("neg", "pos"):
        files = sorted((source.path / label).glob("*.txt"))
        if not files:
            raise UserError(f"{source.name}: no {label}/*.txt in it; give a folder such as aclImdb/train")
        for file in files:
            text = read_text(file, source.errors, source.notes)
            yield str(file), {"file": f"{label}/{file.name}", "text": text, "label": label}


def read_imdb(source: Source) -> Table:
    reader = of_records(_imdb_records) if source.path.is_dir() else headed({"text": "text", "label": "label"})
    return reader(source)


def read_scitail(source: Source) -> Table:
    reader = headed(NLI) if source.is_jsonl else headless(("premise", "hypothesis", "label"), extra=True)
    return reader(source)


def copa_records(source: Source) -> Iterator[tuple[str, Record]]:
    """The question becomes part of the context: the premise, a space, then one of `COPA_QUESTIONS`."""
    for item in _safe_xml(read_bytes(source.path), source.path).iter("item"):
        place = f"{source.name} item {item.get('id')}"
        question = COPA_QUESTIONS.get(item.get("asks-for") or "")
        if question is None:
            raise UserError(f"{place}: asks-for is {item.get('asks-for')!r}, not 'cause' or 'effect'; correct it")
        context = f"{(item.findtext('p') or '').strip()} {question}"
        choices = {"choice1": item.findtext("a1"), "choice2": item.findtext("a2")}
        label = item.get("most-plausible-alternative")
        yield place, {"id": item.get("id"), "context": context, **choices, "label": label}


def _safe_xml(data: bytes, path: Path) -> ElementTree.Element:
    """Parses XML that declares no entity, so that nothing is fetched and no nested entities expand. (This parser does
    not fetch a named DTD, which COPA's files have.)"""
    declared = re.search(rb"<!ENTITY\s+(\S+)", data)
    if declared is not None:
        name = declared[1].decode("utf-8", "replace")
        raise UserError(f"{path}: declares the XML entity {name!r}; entities are refused, remove it")
    try:
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise UserError(f"{path}: not well-formed XML ({error}); check --format") from None


def read_storycloze(source: Source) -> Table:
    """The context is the four sentences, joined by spaces. It becomes a column of its own after the file's columns."""
    sentences = [f"InputSentence{i}" for i in range(1, 5)]
    names = {name: name for name in sentences}
    names |= {f"RandomFifthSentenceQuiz{i}": f"choice{i}" for i in (1, 2)} | {"AnswerRightEnding": "label"}
    table = _named(parse_csv(source.text(), source.name), names)
    at = [table.columns.index(name) for name in sentences]
    rows = [(*row, " ".join(row[i].strip() for i in at)) for row in table.rows]
    return Table(table.name, (*table.columns, "context"), rows, table.where)


def race_records(source: Source) -> Iterator[tuple[str, Record]]:
    """Reads a folder (to any depth) of JSON files, or one of them. Each holds an article with questions. The context is
    the article, a line break, and the question. The columns `id` and `question` identify each row."""
    files = [source.path]
    if source.path.is_dir():
        files = sorted(file for suffix in ("txt", "json") for file in source.path.rglob(f"*.{suffix}"))
        refuse_if(not files, f"{source.name}: no .txt or .json file in it; give a folder such as RACE/dev")
    for file in files:
        try:
            passage = json.loads(read_text(file, source.errors, source.notes))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file}: not JSON ({error}); check --format") from None
        for number, record in enumerate(_race_questions(passage, file), 1):
            yield f"{file} question {number}", record


def _race_questions(passage: Any, file: Path) -> list[Record]:
    try:
        article, questions, options = passage["article"], passage["questions"], passage["options"]
        answers = passage.get("answers") or [None] * len(questions)
        refuse_if(
            not len(questions) == len(options) == len(answers),
            f"{file}: the numbers of questions, options and answers differ; correct the file",
        )
        texts = [str(question).strip().replace("\n", " ") for question in questions]  # one line each: see `question_in`
        return [
            {"id": passage.get("id", file.name), "question": number, "context": f"{article}\n{question}"}
            | numbered_choices(choices)
            | {"label": None if answer is None else ChoiceNumber("ABCDEFGHIJ".index(answer) + 1)}
            for number, (question, choices, answer) in enumerate(zip(texts, options, answers), 1)
        ]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(
            f"{file}: not an object with article, questions, options and answers (letters from A); check --format"
        ) from None


def numbered_choices(choices: Iterable[Any]) -> Record:
    """The choices, under their column names."""
    return {f"choice{number}": choice for number, choice in enumerate(choices, 1)}


_SWAG_ENDINGS = tuple(f"ending{number}" for number in range(4))


def read_swag(source: Source) -> Table:
    """Reads CSV. The context is `sent1`; the choices are `sent2` with each ending. Labels count from 0 there and from 1
    here. The other columns are kept."""
    table = parse_csv(source.text(), source.name)
    names = {"sent1": "context", **{name: name for name in ("sent2", *_SWAG_ENDINGS)}, "label": "label"}
    table = _named(table, names)
    fields = {column: number for number, column in enumerate(table.columns)}
    rows = []
    for cells, where in zip(table.rows, table.where):
        row = list(cells)
        if "label" in fields:
            row[fields["label"]] = _swag_label(row[fields["label"]], f"{where}, column 'label'")
        begin = row[fields["sent2"]].strip()
        rows.append((*row, *(f"{begin} {row[fields[ending]].strip()}".strip() for ending in _SWAG_ENDINGS)))
    return Table(table.name, (*table.columns, *numbered_choices(_SWAG_ENDINGS)), rows, table.where)


def _swag_label(cell: str, where: str) -> str | None:
    if not cell.strip():
        return None
    refuse_if(
        cell.strip() not in ("0", "1", "2", "3"),
        f"{where}: the label {cell!r} is not a number from 0 to 3; correct it, or check --format",
    )
    return ChoiceNumber(int(cell) + 1)


def cbt_records(source: Source) -> Iterator[tuple[str, Record]]:
    """Reads numbered lines, one story after the other: 20 sentences, then a question with XXXXX for the missing word,
    followed by tabs, the word, an empty cell, and the candidates separated by |. The context is the sentences, a line
    break, and the question; the choices are the candidates."""
    story: list[str] = []
    for number, line in enumerate(text_lines(source.text()), 1):
        if not line.strip():
            continue
        place = f"{source.name} row {number}"
        numbered = re.fullmatch(r"([0-9]+) (.*)", line)
        if numbered is None:
            raise UserError(
                f"{place}: it does not begin with a number and a sentence (1 to 21 in each story); check --format"
            )
        if int(numbered[1]) == 1 and story:
            raise UserError(f"{place}: a new story begins, but the previous one has no question; restore its last line")
        if int(numbered[1]) != len(story) + 1:
            raise UserError(f"{place}: number {numbered[1]}, but {len(story) + 1} is expected; restore what is missing")
        if "\t" not in line:
            story.append(numbered[2].strip())
            continue
        yield place, _cbt_record(story, numbered[2].split("\t"), place)
        story = []
    refuse_if(story, f"{source.name}: its last story has no question; the file may be cut short: download it again")


def _cbt_record(story: list[str], cells: list[str], place: str) -> Record:
    question, answer = cells[0].strip(), cells[1].strip()
    candidates = [candidate.strip() for candidate in cells[-1].split("|") if candidate.strip()]
    refuse_if(
        len(cells) < 3 or len(candidates) < 2,
        f"{place}: the question, the word and the candidates (a|b|…) must be separated by tabs; check --format",
    )
    refuse_if(
        answer and answer not in candidates,
        f"{place}: the word {answer!r} is not among its candidates; correct the row",
    )
    label = ChoiceNumber(candidates.index(answer) + 1) if answer else None
    return {"context": f"{' '.join(story)}\n{question}", **numbered_choices(candidates), "label": label}
