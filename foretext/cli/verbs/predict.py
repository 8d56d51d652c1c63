"""`foretext predict`: predictions of a fine-tuned run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import (
    Columns,
    Errors,
    Format,
    Json,
    RunArgument,
    With,
    averaged_model,
    check_output,
    parse_columns,
    rows_to_predict,
    task_model,
)
from foretext.cli.output import Terminal, progress, shown_notes
from foretext.errors import counted


def predict(
    run: RunArgument,
    file: Annotated[Path | None, typer.Argument(help="Rows to predict; without it --text or standard input.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="A text to predict. Repeat it for the parts of one pair or choice, or for question and passage."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write: csv, tsv, jsonl, parquet; tags also txt, answers json (default: standard output)."
        ),
    ] = None,
    others: With = None,
    columns: Columns = "",
    format: Format = None,
    errors: Errors = "strict",
    explain: Annotated[
        bool, typer.Option("--explain", help="For runs with views: add a column with the reasons.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Predict labels, choices, scores, tags or answers, with probabilities."""
    from foretext.tasks.files.predictions import output_text, write_output

    if out is not None:
        check_output(out)
    model = averaged_model(task_model(run), others)
    form = model.family.form(out, as_json)
    read = rows_to_predict(model, file, text, parse_columns(columns), format, errors)
    predictions = model.predictions(read.rows, progress("predicting"), Terminal())
    if explain:
        read, predictions = model.family.explained(read, predictions, model.explain(read.rows), form)
    with shown_notes() as notes:
        result = model.family.output(read, predictions, form, notes)
    if out is not None:
        write_output(result, out, form)
        typer.echo(f"{counted(len(read.rows), 'prediction')} in {out}", err=True)
    else:
        typer.echo(output_text(result, form), nl=False)
