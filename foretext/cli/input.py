"""What the verbs of the command line read: runs, rows, texts, standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from foretext.cli.options import parse_pairs, text_argument
from foretext.cli.output import progress, show_notes
from foretext.errors import UserError

if TYPE_CHECKING:
    from foretext.api import LanguageModel, TaskModel
    from foretext.tasks.family import Read
    from foretext.text.corpus.tables import Table
    from foretext.train.finetuning.finetune_request import OtherTask

BIG_FILE = 20_000_000  # bytes of a table that take a while to read: the user is told


# -- runs ------------------------------------------------------------------------------------------------------------


def load_run(run: Path) -> LanguageModel | TaskModel:
    from foretext.api import load

    return load(run)


def language_model(run: Path) -> LanguageModel:
    from foretext.api import load_language_model

    return load_language_model(run)


def task_model(run: Path) -> TaskModel:
    from foretext.api import TaskModel

    model = load_run(run)
    if not isinstance(model, TaskModel):
        raise UserError(f"{run} has no task: fine-tune it first (foretext finetune {run} rows.csv --task …)")
    return model


def averaged_model(model: TaskModel, others: list[Path] | None) -> TaskModel:
    """The model, or its mean with those of other runs."""
    return model.averaged_with(*(task_model(run) for run in others)) if others else model


# -- rows and texts --------------------------------------------------------------------------------------------------


def _check_errors(errors: str) -> None:
    from foretext.text.corpus.text_files import ERRORS

    if errors not in ERRORS:
        raise UserError(f"--errors must be {' or '.join(ERRORS)}, not {errors!r}")


def _announce(file: Path) -> None:
    if file.is_file() and file.stat().st_size > BIG_FILE:
        typer.echo(f"reading {file} ({file.stat().st_size / 1e6:,.0f} MB)", err=True)


def plain_table(file: Path, errors: str) -> Table:
    """A file's table, whatever its columns are."""
    from foretext.text.corpus.tables import read_table

    _check_errors(errors)
    _announce(file)
    notes: list[str] = []
    table = read_table(file, errors=errors, notes=notes)
    show_notes(notes)
    return table


def labelled_rows(file: Path, task: str, columns: dict[str, str] | None, format: str | None, errors: str) -> list[Any]:
    """Rows with labels, to train on."""
    from foretext.tasks.families import family_of
    from foretext.tasks.family import Reading

    family = family_of(task)
    _check_errors(errors)
    _announce(file)
    reading = Reading(task, columns, format, errors=errors)
    rows = family.read(file, reading).rows
    show_notes(reading.notes)
    return rows


def other_tasks(given: list[str], task: str, format: str | None, errors: str) -> list[OtherTask]:
    """`--also tagging=names.txt`, or with its columns `--also tagging=names.txt:tag=2`: further tasks, called by their
    files' names. `format` is that of files for `task`."""
    from foretext.train.finetuning.finetune_request import OtherTask

    found = []
    for one in given:
        kind, equals, name = text_argument(one, "--also").partition("=")
        if not equals or not name:
            raise UserError(
                f"--also {one}: write a task and its file, as --also tagging=names.txt, or with its columns, as --also "
                "tagging=names.txt:tag=2"
            )
        file, columns = Path(name), None
        if not file.exists() and "=" in name.rpartition(":")[2]:
            before, _, said = name.rpartition(":")
            file, columns = Path(before), parse_pairs(said, "--also", "write field=column, as names.txt:tag=2")
        rows = labelled_rows(file, kind, columns, format if kind == task and not columns else None, errors)
        found.append(OtherTask("-".join([file.name.split(".")[0], *(columns or {}).values()]), kind, rows))
    return found


def unlabelled_lines(files: list[str], errors: str) -> list[str]:
    """Sentences to learn from; of files of columns, as labelled ones are, the words."""
    from foretext.tasks.files.conll import read_sentences

    notes: list[str] = []
    sentences = read_sentences(files, errors, progress("reading"), notes)
    show_notes(notes)
    return sentences


def rows_for(
    model: TaskModel, file: Path, columns: dict[str, str] | None, format: str | None, errors: str, need_labels: bool
) -> Read:
    """A file's rows for a fine-tuned run: as it was trained, unless the user or the file says otherwise."""
    _check_errors(errors)
    _announce(file)
    reading = model.reading(need_labels, columns, format, errors)
    read = model.family.read(file, reading)
    show_notes(reading.notes)
    return read


def rows_to_predict(
    model: TaskModel,
    file: Path | None,
    texts: list[str] | None,
    columns: dict[str, str] | None,
    format: str | None,
    errors: str,
) -> Read:
    """Rows to predict, from a file, from --text, or from standard input (a text a line, or JSON lines)."""
    from foretext.tasks.files.remembered import layout_name

    _check_errors(errors)
    otherwise = "give it in a file or on standard input with --errors replace"
    texts = [text_argument(text, "--text", otherwise) for text in texts or ()]
    if file is not None and texts:
        raise UserError("give either a file of rows or --text, not both")
    if file is not None:
        return rows_for(model, file, columns, format, errors, need_labels=False)
    if layout_name(format) is not None or (texts and columns):
        option = "--columns" if texts and columns else "--format"
        raise UserError(f"{option} is for a file of rows; name one, or leave it out")
    reading = model.reading(False, columns, format, errors)
    if texts:
        return model.family.from_texts(texts, reading)
    data = standard_input(errors)
    if not data.strip():
        raise UserError("nothing to predict: name a file, give --text, or write lines to standard input")
    read = model.family.from_lines(data, reading)
    show_notes(reading.notes)
    return read


def standard_input(errors: str = "strict") -> str:
    """All of standard input, decoded as files are."""
    from foretext.text.corpus.text_files import decode

    notes: list[str] = []
    text = decode(sys.stdin.buffer.read(), "standard input", errors, notes)
    show_notes(notes)
    return text


def read_texts(files: list[str], column: str | None, documents: str, errors: str) -> list[str]:
    """The documents of text files."""
    from foretext.text.corpus.readers import ReadOptions, all_documents, find_files

    notes: list[str] = []
    texts = all_documents(find_files(files), ReadOptions(column, documents, errors), progress("reading"), notes)
    show_notes(notes)
    return texts
