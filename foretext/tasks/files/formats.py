"""Published layouts of data sets, read as they come: `--format sst2` and the like.

Each reader turns a file (or folder) into a `Table` with the column names that `rows.py` defines for the format's kind,
its other columns kept for the predictions; what is checked about labels and texts is checked in `rows.py`, once.
`FORMATS` is the whole list. The tab-separated layouts
know no quoting: a quote is an ordinary character. Test files that come without a label column can be predicted on.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from foretext.errors import UserError
from foretext.tasks.files.choice_formats import ChoiceNumber, parse_cbt, parse_swag
from foretext.text.corpus.tables import Table, parse_csv, parse_jsonl, parse_tsv, table_of_records
from foretext.text.corpus.text_files import first_line, read_bytes, read_text, text_lines

COPA_QUESTIONS = {"cause": "What was the cause?", "effect": "What happened as a result?"}


@dataclass(frozen=True)
class Source:
    """What a reader is given: where to read, what to do with bad bytes, and where to leave notes for the user."""

    path: Path
    errors: str
    notes: list[str]

    def text(self, encoding: str = "utf-8") -> str:
        return read_text(self.path, self.errors, self.notes, encoding)

    @property
    def is_jsonl(self) -> bool:
        """By the ending, or by the first line: SciTail's snli_format/*.txt are JSON lines under another name."""
        if any(suffix.lower() in (".jsonl", ".ndjson") for suffix in self.path.suffixes[-2:]):
            return True
        try:
            return isinstance(json.loads(first_line(self.path)), dict)
        except (ValueError, RecursionError):
            return False


Reader = Callable[[Source], Table]


@dataclass(frozen=True)
class Format:
    kind: str
    reader: Reader
    description: str
    metric: str | None = None  # what the data set's authors score it by, where it is not the kind's own
    asks: bool = False  # whether the last line of the context is the question, which must not be cut


def read_format(
    path: str | Path, name: str, kind: str, *, errors: str = "strict", notes: list[str] | None = None
) -> Table:
    """Read `path` by the format `name`, which must be one of the task `kind`."""
    chosen = find_format(name)
    if chosen.kind != kind:
        raise UserError(f"--format {name} holds {chosen.kind} rows, not {kind}; use --task {chosen.kind}")
    path = Path(path)
    table = chosen.reader(Source(path, errors, notes if notes is not None else []))
    if not table.rows:
        raise UserError(f"{path}: no rows found in the layout {name}; check that the file is what --format says")
    return table


def find_format(name: str) -> Format:
    if name not in FORMATS:
        raise UserError(f"--format {name}: no such format; the formats are {', '.join(sorted(FORMATS))}")
    return FORMATS[name]


def kind_of(kind: str, format: str | None) -> str:
    """The kind of task that is learned: a similarity that is given by scores (STS-B) is a regression of pairs."""
    scored = kind == "similarity" and format is not None and find_format(format).kind == "regression"
    return "regression" if scored else kind


def question_in(text: str, name: str | None) -> str:
    """The question behind the article in a row's text, with its line break, by the format `name`; empty if none."""
    _, mark, question = text.rpartition("\n")
    return mark + question if mark and name is not None and find_format(name).asks else ""


# ---- helpers: most layouts are one of these with the names of its columns ----


def _headed(names: dict[str, str], *, unlabelled: str | None = None, skip_broken: bool = False) -> Reader:
    """Named columns (theirs → ours) of a tab-separated file with a header, or of JSON lines.

    `unlabelled` is the label of rows without a verdict, which are skipped and counted. With `skip_broken` so are
    rows with a wrong number of cells or a blank text, for published files that have such rows."""

    def reader(source: Source) -> Table:
        broken: list[str] = []
        if source.is_jsonl:
            table = parse_jsonl(source.text(), str(source.path), source.errors, source.notes)
        else:
            text = source.text()
            table = parse_tsv(text, str(source.path), quotes=False, skipped=broken if skip_broken else None)
        table = _named(table, names)
        if skip_broken:
            used = [table.columns.index(name) for name in names.values() if name in table.columns]
            table, blank = _filtered(table, lambda row: all(row[i] is None or str(row[i]).strip() for i in used))
            broken += blank
        if broken:
            source.notes.append(f"{source.path}: {len(broken):,} broken rows skipped, the first is {broken[0]}")
        if unlabelled is not None and "label" in table.columns:
            at = table.columns.index("label")
            table, dropped = _filtered(table, lambda cells: cells[at] != unlabelled)
            if dropped:
                source.notes.append(f"{source.path}: {len(dropped):,} rows without a gold label ({unlabelled}) skipped")
        return table

    return reader


def _filtered(table: Table, keep: Callable[[tuple[Any, ...]], bool]) -> tuple[Table, list[str]]:
    """The rows that `keep` wants, and where the others stand."""
    kept = [keep(row) for row in table.rows]
    rows = [row for row, wanted in zip(table.rows, kept) if wanted]
    where = [place for place, wanted in zip(table.where, kept) if wanted]
    dropped = [place for place, wanted in zip(table.where, kept) if not wanted]
    return Table(table.name, table.columns, rows, where), dropped


def _named(table: Table, names: dict[str, str]) -> Table:
    """Rename columns; those of the texts must be there, the label's need not."""
    missing = [old for old, new in names.items() if new not in ("label", "score") and old not in table.columns]
    if missing:
        raise UserError(
            f"{table.name}: no column {missing[0]!r}, which this layout has; the columns are "
            f"{', '.join(table.columns)}; check --format"
        )
    return table.renamed(names)


def _headless(header: list[str], names: dict[str, str], *, extra: bool = False) -> Reader:
    """Named columns of a tab-separated file without a header. With `extra` a row may have more cells."""

    def reader(source: Source) -> Table:
        return _named(parse_tsv(source.text(), str(source.path), header=header, quotes=False, extra=extra), names)

    return reader


def _begins(source: Source, *first_cells: str) -> bool:
    text = read_text(source.path, "replace")  # faults are for the reader proper to report
    return text_lines(text)[0].split("\t")[: len(first_cells)] == list(first_cells)


def _json_file(path: Path, errors: str, notes: list[str]) -> Any:
    try:
        return json.loads(read_text(path, errors, notes))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}); check --format") from None


# ---- the layouts that need code of their own ----


def _read_cola(source: Source) -> Table:
    if _begins(source, "index", "sentence"):  # GLUE's test file
        return _headed({"sentence": "text"})(source)
    return _headless(["source", "label", "star", "text"], {"text": "text", "label": "label"})(source)


def _trec(fine: bool) -> Reader:
    def reader(source: Source) -> Table:
        records, where = [], []
        for number, line in enumerate(text_lines(source.text("latin-1")), 1):
            label, _, text = line.partition(" ")
            place = f"{source.path} row {number}"
            if ":" not in label:
                raise UserError(f"{place}: no 'COARSE:fine' label at its beginning; check --format")
            records.append({"text": text, "label": label if fine else label.partition(":")[0]})
            where.append(place)
        return table_of_records(records, str(source.path), where)

    return reader


def _read_imdb(source: Source) -> Table:
    if not source.path.is_dir():
        return _headed({"text": "text", "label": "label"})(source)
    records, where = [], []
    for label in ("neg", "pos"):
        files = sorted((source.path / label).glob("*.txt"))
        if not files:
            raise UserError(f"{source.path}: no {label}/*.txt in it; give a folder such as aclImdb/train")
        for file in files:
            text = read_text(file, source.errors, source.notes)
            records.append({"file": f"{label}/{file.name}", "text": text, "label": label})
            where.append(str(file))
    return table_of_records(records, str(source.path), where)


def _read_stsb(source: Source) -> Table:
    if _begins(source, "index", "genre"):
        return _headed({"sentence1": "text", "sentence2": "text2", "score": "score"})(source)
    header = ["genre", "file", "year", "id", "score", "text", "text2"]
    return _headless(header, {"text": "text", "text2": "text2", "score": "score"}, extra=True)(source)


def _read_scitail(source: Source) -> Table:
    if source.is_jsonl:
        return _headed({"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"})(source)
    header = ["premise", "hypothesis", "label"]
    return _headless(header, {name: name for name in header}, extra=True)(source)


def _read_copa(source: Source) -> Table:
    """The question enters the context: the premise, a space, then one of `COPA_QUESTIONS`."""
    data = read_bytes(source.path)
    records, where = [], []
    for item in _safe_xml(data, source.path).iter("item"):
        place = f"{source.path} item {item.get('id')}"
        question = COPA_QUESTIONS.get(item.get("asks-for") or "")
        if question is None:
            raise UserError(f"{place}: asks-for is {item.get('asks-for')!r}, not 'cause' or 'effect'; correct it")
        records.append(
            {
                "id": item.get("id"),
                "context": f"{(item.findtext('p') or '').strip()} {question}",
                "choice1": item.findtext("a1"),
                "choice2": item.findtext("a2"),
                "label": item.get("most-plausible-alternative"),
            }
        )
        where.append(place)
    return table_of_records(records, str(source.path), where)


def _safe_xml(data: bytes, path: Path) -> ElementTree.Element:
    """Parse XML that declares no entity: neither can one be fetched from elsewhere nor can nested ones explode. (A
    named DTD, as COPA's own files have, is not fetched by this parser.)"""

    def refuse(*declaration: Any) -> None:
        raise UserError(f"{path}: declares the XML entity {declaration[0]!r}; entities are refused, remove it")

    try:
        parser = expat.ParserCreate()
        parser.EntityDeclHandler = refuse
        parser.Parse(data, True)
        return ElementTree.fromstring(data)
    except (expat.ExpatError, ElementTree.ParseError, ValueError, LookupError) as error:
        raise UserError(f"{path}: not well-formed XML ({error}); check --format") from None


def _read_storycloze(source: Source) -> Table:
    """The context is the four sentences, joined by spaces; it is a column of its own behind the file's."""
    sentences = [f"InputSentence{i}" for i in range(1, 5)]
    names = {name: name for name in sentences}
    names |= {f"RandomFifthSentenceQuiz{i}": f"choice{i}" for i in (1, 2)} | {"AnswerRightEnding": "label"}
    table = _named(parse_csv(source.text(), str(source.path)), names)
    at = [table.columns.index(name) for name in sentences]
    rows = [(*row, " ".join(row[i].strip() for i in at)) for row in table.rows]
    return Table(table.name, (*table.columns, "context"), rows, table.where)


def _read_race(source: Source) -> Table:
    """A folder (searched to any depth) of JSON files, or one of them, each an article with questions; the context is
    the article, a line break, the question. The columns `id` and `question` say which it is."""
    files = [source.path]
    if source.path.is_dir():
        files = sorted(file for suffix in ("txt", "json") for file in source.path.rglob(f"*.{suffix}"))
        if not files:
            raise UserError(f"{source.path}: no .txt or .json file in it; give a folder such as RACE/dev")
    records, where = [], []
    for file in files:
        passage = _json_file(file, source.errors, source.notes)
        for number, record in enumerate(_race_questions(passage, file), 1):
            records.append(record)
            where.append(f"{file} question {number}")
    return table_of_records(records, str(source.path), where)


def _race_questions(passage: Any, file: Path) -> list[dict[str, Any]]:
    try:
        article, questions, options = passage["article"], passage["questions"], passage["options"]
        answers = passage.get("answers") or [None] * len(questions)
        if not len(questions) == len(options) == len(answers):
            raise UserError(f"{file}: questions, options and answers are not equally many; correct the file")
        asked = [str(question).strip().replace("\n", " ") for question in questions]  # a line each: see `question_in`
        return [
            {"id": passage.get("id", file.name), "question": number, "context": f"{article}\n{question}"}
            | {f"choice{i}": choice for i, choice in enumerate(choices, 1)}
            | {"label": None if answer is None else ChoiceNumber("ABCDEFGHIJ".index(answer) + 1)}
            for number, (question, choices, answer) in enumerate(zip(asked, options, answers), 1)
        ]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(
            f"{file}: not an object with article, questions, options and answers (letters from A); check --format"
        ) from None


_NLI = {"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"}
_SICK_PAIR = ("sentence_A", "sentence_B")

FORMATS: dict[str, Format] = {
    "sst2": Format(
        "classification",
        _headed({"sentence": "text", "label": "label"}),
        "SST-2 of GLUE: TSV, header `sentence label`",
    ),
    "cola": Format(
        "classification", _read_cola, "CoLA: TSV without header: source, label, star, sentence", metric="matthews"
    ),
    "trec": Format("classification", _trec(fine=False), "TREC questions, 6 classes: `COARSE:fine question`, Latin-1"),
    "trec-fine": Format("classification", _trec(fine=True), "TREC questions, 50 classes: the same file"),
    "imdb": Format(
        "classification", _read_imdb, "IMDb: JSON lines `{id,label,rating,text}`, or aclImdb/train with pos/ and neg/"
    ),
    "chnsenticorp": Format(
        "classification",
        _headed({"text_a": "text", "label": "label"}),
        "ChnSentiCorp: TSV, header `label text_a`",
    ),
    "rte": Format(
        "entailment",
        _headed({"sentence1": "premise", "sentence2": "hypothesis", "label": "label"}),
        "RTE of GLUE: TSV, header `index sentence1 sentence2 label`",
    ),
    "sick": Format(
        "entailment",
        _headed(
            dict(zip(_SICK_PAIR, ("premise", "hypothesis")))
            | {"entailment_judgment": "label", "entailment_label": "label"}
        ),
        "SICK, entailment: TSV with header: SemEval's files, or the authors' SICK.txt",
    ),
    "sick-r": Format(
        "regression",
        _headed(dict(zip(_SICK_PAIR, ("text", "text2"))) | {"relatedness_score": "score"}),
        "SICK, relatedness 1 to 5: the same files",
    ),
    "snli": Format(
        "entailment", _headed(_NLI, unlabelled="-", skip_broken=True), "SNLI: JSON lines or the tab-separated .txt"
    ),
    "mnli": Format(
        "entailment", _headed(_NLI, unlabelled="-", skip_broken=True), "MultiNLI: JSON lines, .txt, or GLUE's TSV"
    ),
    "qnli": Format(
        "entailment",
        _headed({"question": "premise", "sentence": "hypothesis", "label": "label"}),
        "QNLI of GLUE: TSV, header `index question sentence label`",
    ),
    "scitail": Format(
        "entailment", _read_scitail, "SciTail: TSV without header (premise, hypothesis, label) or JSON lines"
    ),
    "mrpc": Format(
        "similarity",
        _headed({"#1 String": "text1", "#2 String": "text2", "Quality": "label"}),
        "MRPC: msr_paraphrase_*.txt or GLUE's TSV, header `Quality #1 ID #2 ID #1 String #2 String`",
        metric="f1",
    ),
    "qqp": Format(
        "similarity",
        _headed({"question1": "text1", "question2": "text2", "is_duplicate": "label"}, skip_broken=True),
        "QQP of GLUE: TSV, header `id qid1 qid2 question1 question2 is_duplicate`",
        metric="f1",
    ),
    "stsb": Format("regression", _read_stsb, "STS-B, 0 to 5: sts-*.csv (tab-separated, no header) or GLUE's TSV"),
    "copa": Format("choice", _read_copa, "COPA: XML; the question (cause or effect) is put after the premise"),
    "storycloze": Format("choice", _read_storycloze, "Story Cloze: CSV, four sentences and two endings"),
    "swag": Format(
        "choice",
        lambda source: parse_swag(source.text(), str(source.path)),
        "SWAG: CSV; the choices are the second sentence's beginning with each ending",
    ),
    "cbt": Format(
        "choice",
        lambda source: parse_cbt(text_lines(source.text()), str(source.path)),
        "Children's Book Test: text; 20 sentences, a line break and the question, the missing word is XXXXX",
        asks=True,
    ),
    "race": Format(
        "choice", _read_race, "RACE: a folder of JSON files; the question is put after the article", asks=True
    ),
}
