"""Input shared by the verbs: common options and arguments, and the readers that check what the user wrote (runs, rows,
texts, standard input)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretext.cli.output import progress, show_notes, shown_notes
from foretext.errors import UserError, refuse_if
from foretext.text.corpus.text_files import ERRORS, decode, read_bytes, read_text, text_lines

if TYPE_CHECKING:
    from foretext.api import LanguageModel, TaskModel
    from foretext.config import Setting
    from foretext.runs.model import SavedModel
    from foretext.tasks.family import Family, Read, Reading
    from foretext.text.corpus.tables import Table
    from foretext.train.finetuning.finetune_request import OtherTask

BIG_FILE = 20_000_000  # bytes; a table from this size on takes so long to read that the user is told

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of config.toml, as section.key=value; may be repeated.")
]
Config = Annotated[Path | None, typer.Option(help="A TOML file of settings; --set overrides it.")]
Columns = Annotated[str, typer.Option(help="Column names, if different: text=review,label=stars; for tagging: tag=4.")]
Format = Annotated[
    str | None, typer.Option(help="A published layout such as sst2, trec or conll2000; none: use the header.")
]
Metric = Annotated[str | None, typer.Option(help="The main metric: accuracy, f1, f1_macro, matthews, exact_match, …")]
With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", help="Another run of the same task (such as the backward one): average the predictions of both."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")]
Source = Annotated[Path | None, typer.Option(help="For cove: a file with one sentence per line.")]
Target = Annotated[Path | None, typer.Option(help="For cove: their translations, line by line.")]
TextColumn = Annotated[str | None, typer.Option(help="The column of a table that holds the text.")]
Documents = Annotated[str, typer.Option(help="What counts as one document in a .txt file: auto, line, blank or file.")]
Errors = Annotated[
    str, typer.Option(help="Bytes that are not UTF-8: strict (an error) or replace (replaced and counted).")
]


def text_argument(text: str, name: str, otherwise: str = "") -> str:
    """Text from the command line. Python passes bytes that the locale cannot decode as surrogates. We decode them as
    UTF-8 and refuse other bytes. `otherwise` names another way to pass the text."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        data = os.fsencode(text)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}: not UTF-8 at byte offset {error.start} (byte 0x{data[error.start]:02x}); set terminal and locale "
            f"to UTF-8{otherwise and f', or {otherwise}'}"
        ) from None


def parse_columns(text: str) -> dict[str, str] | None:
    """`text=review,label=stars` as a dictionary."""
    return parse_pairs(text, "--columns", "write field=column, field=column; for example text=review,label=stars")


def parse_pairs(text: str, option: str, advice: str) -> dict[str, str] | None:
    """`a=b,c=d` as a dictionary; None if nothing was given."""
    if not text:
        return None
    text = text_argument(text, option)
    pairs = [part.split("=", 1) for part in text.split(",")]
    refuse_if(
        any(len(pair) != 2 or not pair[0].strip() or not pair[1].strip() for pair in pairs),
        f"{option} {text}: {advice}",
    )
    return {field.strip(): column.strip() for field, column in pairs}


def given_settings(config: Path | None, sets: list[str] | None) -> list[Setting]:
    """The settings of the --config file, then those of --set: later ones override earlier ones."""
    from foretext.config import setting_of, settings_in

    settings = [setting_of(option) for option in sets or ()]
    if config is None:
        return settings
    try:
        text = read_bytes(config).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{config}: not UTF-8 at byte offset {error.start}; save the file as UTF-8") from None
    return [*settings_in(text, str(config)), *settings]


def check_output(path: Path) -> None:
    """Check --out before the work starts."""
    refuse_if(path.is_dir(), f"{path} is a folder; give the name of a file")
    refuse_if(not path.parent.is_dir(), f"{path}: the folder {path.parent} does not exist; create it first")
    refuse_if(
        not os.access(path.parent, os.W_OK), f"{path}: the folder {path.parent} is not writable; choose another --out"
    )


# -- runs --------------------------------------------------------------------------------------------------------------


def language_model(run: Path) -> LanguageModel:
    from foretext.language_model import LanguageModel
    from foretext.runs.model import pretrained_model

    return LanguageModel(pretrained_model(run), run)


def reading_model(run: Path, direction: str | None, what: str) -> SavedModel:
    """A pre-trained run that can continue a text (in this direction, if given). UserError if it cannot, and so cannot
    do `what`."""
    from foretext.generate.sampling import reader_of
    from foretext.runs.model import facing, pretrained_model

    model = pretrained_model(run)
    reader_of(model, what)
    return model if direction is None else facing(model, direction)


def task_model(run: Path) -> TaskModel:
    from foretext.runs.model import load_model
    from foretext.task_model import TaskModel

    return TaskModel(load_model(run), run)


def averaged_model(model: TaskModel, others: list[Path] | None) -> TaskModel:
    """The model, or its average with the models of other runs."""
    return model.averaged_with(*(task_model(run) for run in others)) if others else model


# -- rows and texts ----------------------------------------------------------------------------------------------------


def _check_errors(errors: str) -> None:
    refuse_if(errors not in ERRORS, f"--errors must be {' or '.join(ERRORS)}, not {errors!r}")


def _announce(file: Path) -> None:
    if file.is_file() and file.stat().st_size > BIG_FILE:
        typer.echo(f"reading {file} ({file.stat().st_size / 1e6:,.0f} MB)", err=True)


def plain_table(file: Path, errors: str) -> Table:
    """A file's table with all its columns, unchecked."""
    from foretext.text.corpus.tables import read_table

    _check_errors(errors)
    _announce(file)
    with shown_notes() as notes:
        return read_table(file, errors=errors, notes=notes)


def labelled_rows(file: Path, task: str, columns: dict[str, str] | None, format: str | None, errors: str) -> list[Any]:
    """Labelled rows to train on."""
    from foretext.tasks.family import Reading, family_of

    return _read(file, family_of(task), Reading(task, columns, format, errors=errors)).rows


def guessed_task(file: Path, columns: dict[str, str] | None, format: str | None, errors: str) -> str:
    """The task that `prompt` asks a file for, from its layout or its columns."""
    from foretext.evaluate.options import task_of_columns
    from foretext.tasks.files.formats import find_format

    if format is not None:
        return find_format(format).kind
    if not {".csv", ".tsv", ".jsonl", ".parquet"} & {suffix.lower() for suffix in file.suffixes}:
        return "last-word"
    names = plain_table(file, errors).columns
    task = task_of_columns(names, columns or {})
    if task is None:
        raise UserError(
            f"{file}: its columns ({', '.join(names)}) fit no task; give --task, or name the columns with --columns, "
            "such as label=stars"
        )
    return task


def rows_to_ask(file: Path, task: str, columns: dict[str, str] | None, format: str | None, errors: str) -> list[Any]:
    """The rows as a task of `prompt` needs them: labelled rows, whole documents, or pairs of texts."""
    from foretext.evaluate.options import kind_of_rows
    from foretext.evaluate.untaught import pairs_of
    from foretext.tasks.files.rows import Row

    kind = kind_of_rows(task)
    if kind is not None:
        return labelled_rows(file, kind, columns, format, errors)
    if task != "last-word":
        return pairs_of(plain_table(file, errors), task, columns)
    for field in columns or {}:
        refuse_if(field != "text", f"--columns: last-word has no field {field!r}; it has text")
    texts = read_texts([str(file)], (columns or {}).get("text"), "auto", errors)
    return [Row((text,), None, f"{file} document {number}") for number, text in enumerate(texts, 1)]


def _read(file: Path, family: Family, reading: Reading) -> Read:
    _check_errors(reading.errors)
    _announce(file)
    read = family.read(file, reading)
    show_notes(reading.notes)
    return read


def other_tasks(given: list[str], task: str, format: str | None, errors: str) -> list[OtherTask]:
    """Further tasks, named after their files: `--also tagging=names.txt`, or with columns `--also
    tagging=names.txt:tag=2`. `format` applies to files for `task`."""
    from foretext.train.finetuning.finetune_request import OtherTask

    tasks = []
    for option in given:
        kind, equals, name = text_argument(option, "--also").partition("=")
        refuse_if(
            not equals or not name,
            f"--also {option}: write a task and its file, such as --also tagging=names.txt, or with columns --also "
            "tagging=names.txt:tag=2",
        )
        file, columns = Path(name), None
        before, _, named = name.rpartition(":")
        if not file.exists() and "=" in named:
            file, columns = Path(before), parse_pairs(named, "--also", "write field=column, such as names.txt:tag=2")
        rows = labelled_rows(file, kind, columns, format if kind == task and not columns else None, errors)
        tasks.append(OtherTask("-".join([file.name.split(".")[0], *(columns or {}).values()]), kind, rows))
    return tasks


def unlabelled_lines(files: list[str], errors: str) -> list[str]:
    """Unlabelled sentences to learn from. From column files like the labelled ones, the words are read."""
    from foretext.tasks.files.conll import read_sentences

    with shown_notes() as notes:
        return read_sentences(files, errors, progress("reading"), notes)


def rows_for(
    model: TaskModel, file: Path, columns: dict[str, str] | None, format: str | None, errors: str, need_labels: bool
) -> Read:
    """A file's rows for a fine-tuned run, read as in training unless the user or the file says otherwise."""
    return _read(file, model.family, model.reading(need_labels, columns, format, errors))


def rows_to_predict(
    model: TaskModel,
    file: Path | None,
    texts: list[str] | None,
    columns: dict[str, str] | None,
    format: str | None,
    errors: str,
) -> Read:
    """Rows to predict: from a file, --text, or standard input (one text per line, or JSON lines)."""
    from foretext.tasks.family import layout_name

    _check_errors(errors)
    otherwise = "pass it in a file or on standard input with --errors replace"
    texts = [text_argument(text, "--text", otherwise) for text in texts or ()]
    refuse_if(file is not None and texts, "give either a file of rows or --text, not both")
    if file is not None:
        return rows_for(model, file, columns, format, errors, need_labels=False)
    if layout_name(format) is not None or (texts and columns):
        option = "--columns" if texts and columns else "--format"
        raise UserError(f"{option} applies to a file of rows; give one, or leave it out")
    reading = model.reading(False, columns, format, errors)
    if texts:
        return model.family.from_texts(texts, reading)
    data = standard_input(errors)
    refuse_if(not data.strip(), "nothing to predict: give a file or --text, or write lines to standard input")
    read = model.family.from_lines(data, reading)
    show_notes(reading.notes)
    return read


def standard_input(errors: str = "strict") -> str:
    """All of standard input, decoded as files are."""
    with shown_notes() as notes:
        return decode(sys.stdin.buffer.read(), "standard input", errors, notes)


def lines_of(file: Path, errors: str) -> list[str]:
    """The lines of a text file."""
    with shown_notes() as notes:
        return list(text_lines(read_text(file, errors, notes)))


def read_texts(files: list[str], column: str | None, documents: str, errors: str) -> list[str]:
    """The documents of text files."""
    from foretext.text.corpus.readers import ReadOptions, all_documents, find_files

    _check_errors(errors)
    with shown_notes() as notes:
        return all_documents(find_files(files), ReadOptions(column, documents, errors), progress("reading"), notes)
