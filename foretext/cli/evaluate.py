"""`foretext predict` and `evaluate`: what a run says of rows, and how good it is on rows, text or translations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import averaged_model, load_run, read_texts, rows_for, rows_to_predict, task_model
from foretext.cli.options import (
    Columns,
    Errors,
    Format,
    Json,
    Metric,
    RunArgument,
    Source,
    Target,
    TextColumn,
    With,
    check_output,
    parse_columns,
)
from foretext.cli.output import progress, show_perplexity
from foretext.cli.translate import evaluate_translations
from foretext.errors import UserError


def predict(
    run: RunArgument,
    file: Annotated[Path | None, typer.Argument(help="Rows to predict; without it --text or standard input.")] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A text to predict; the parts of one pair or choice; question, passage.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="csv, tsv, jsonl, parquet; tags also txt, answers json; or standard output.")
    ] = None,
    others: With = None,
    columns: Columns = "",
    format: Format = None,
    errors: Errors = "strict",
    as_json: Json = False,
) -> None:
    """Predict labels, choices, scores, tags or answers, with probabilities."""
    from foretext.cli.terminal import Terminal
    from foretext.tasks.files.predictions import output_text, write_output

    if out is not None:
        check_output(out)
    model = averaged_model(task_model(run), others)
    form = model.family.form(out, as_json)
    read = rows_to_predict(model, file, text, parse_columns(columns), format, errors)
    predictions = model.predictions(read.rows, progress("predicting"), Terminal())
    notes: list[str] = []
    result = model.family.output(read, predictions, form, notes)
    for note in notes:
        typer.echo(note, err=True)
    if out is not None:
        write_output(result, out, form)
        typer.echo(f"{len(read.rows):,} predictions in {out}", err=True)
    else:
        typer.echo(output_text(result, form), nl=False)


def evaluate(
    run: RunArgument,
    files: Annotated[
        list[str] | None, typer.Argument(help="Text for a pre-trained run, labelled rows for a fine-tuned one.")
    ] = None,
    source: Source = None,
    target: Target = None,
    beams: Annotated[
        int | None, typer.Option(help="For --source: hypotheses that are kept (default 5); 1: greedy.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="For --target: zh, ja or ko, which BLEU splits into words.")
    ] = None,
    stride: Annotated[int | None, typer.Option(help="Tokens scored a window; default half the context.")] = None,
    memory: Annotated[
        int | None, typer.Option(help="transformer_xl: tokens before each that are seen; default as configured.")
    ] = None,
    others: With = None,
    columns: Columns = "",
    format: Format = None,
    metric: Metric = None,
    text_column: TextColumn = None,
    documents: Annotated[str | None, typer.Option(help="For text: auto (the default), line, blank, file.")] = None,
    errors: Errors = "strict",
    confusion: Annotated[Path | None, typer.Option(help="Write the confusion matrix as a PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Perplexity of text, the task's metrics on labelled rows, or BLEU of translations."""
    from foretext.api import LanguageModel

    if source is not None or target is not None:
        if files:
            raise UserError(f"translations are scored on --source and --target alone; leave out {files[0]}")
        other: dict[str, object] = {
            "--stride": stride,
            "--memory": memory,
            "--with": others,
            "--columns": columns or None,
            "--format": format,
        }
        other |= {"--metric": metric, "--text-column": text_column, "--documents": documents, "--confusion": confusion}
        for option, given in other.items():
            if given is not None:
                raise UserError(f"{option} is not for translations, which --source and --target are; leave it out")
        evaluate_translations(run, source, target, 5 if beams is None else beams, language or "", errors, as_json)
        return
    for option, given in {"--beams": beams, "--language": language}.items():
        if given is not None:
            raise UserError(f"{option} is for translations: give --source FILE and --target FILE, or leave it out")
    if not files:
        raise UserError("name the files to evaluate on: text, labelled rows, or --source and --target")
    if confusion is not None:
        check_output(confusion)
    model = load_run(run)
    if isinstance(model, LanguageModel):
        if model.model.system.reads == "pairs":
            raise UserError(f"{run} translates: give --source FILE --target FILE instead of {files[0]}")
        for option, given in (("columns", columns or None), ("format", format)):
            if given is not None:
                raise UserError(f"--{option} is for labelled rows, and {run} reads text; leave it out")
        if confusion is not None:
            raise UserError(f"--confusion is for classes, and {run} is a language model without a task; leave it out")
        if others:
            raise UserError(f"--with is for a task, and {run} is a language model without one; leave it out")
        if metric is not None:
            raise UserError(f"--metric is for a task, and {run} is a language model without one; leave it out")
        show_perplexity(model, read_texts(files, text_column, documents or "auto", errors), stride, as_json, memory)
        return
    from foretext.cli.terminal import Terminal
    from foretext.tasks.scores.confusion_picture import confusion_matrix_png
    from foretext.tasks.scores.metrics import format_scores

    texts_only = {"stride": stride, "memory": memory, "text-column": text_column, "documents": documents}
    for option, said in texts_only.items():
        if said is not None:
            raise UserError(f"--{option} is for text, and {run} reads labelled rows; leave it out")
    if confusion is not None and not model.draws_confusion:
        raise UserError(f"--confusion is for classes, and {run} has none (its task is {model.task}); leave it out")
    model = averaged_model(model, others)
    names = parse_columns(columns)
    rows = [row for file in files for row in rows_for(model, Path(file), names, format, errors, need_labels=True).rows]
    scores = model.evaluate(rows, progress("predicting"), metric=metric, reporter=Terminal())
    typer.echo(json.dumps(scores.to_dict(), ensure_ascii=False) if as_json else format_scores(scores))
    if confusion is not None:
        confusion_matrix_png(scores, confusion)
