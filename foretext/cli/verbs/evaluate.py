"""`foretext evaluate`: how good a run is on text, labelled rows or translations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import (
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
    averaged_model,
    check_output,
    language_model,
    parse_columns,
    read_texts,
    rows_for,
)
from foretext.cli.output import Terminal, progress, show, show_perplexity, show_scores
from foretext.evaluate.options import EvaluationOptions


def evaluate(
    run: RunArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Text; labelled rows for a fine-tuned run; word pairs or analogies for word vectors."),
    ] = None,
    source: Source = None,
    target: Target = None,
    beams: Annotated[int | None, typer.Option(help="With --source: beam size (default 5; 1: greedy).")] = None,
    language: Annotated[
        str | None, typer.Option(help="With --target: zh, ja or ko, which BLEU must segment into words.")
    ] = None,
    stride: Annotated[int | None, typer.Option(help="Tokens scored per window (default: half the context).")] = None,
    memory: Annotated[
        int | None,
        typer.Option(help="With transformer_xl: tokens of memory before each token (default: as configured)."),
    ] = None,
    others: With = None,
    columns: Columns = "",
    format: Format = None,
    metric: Metric = None,
    text_column: TextColumn = None,
    documents: Annotated[
        str | None, typer.Option(help="What counts as one document in text: auto (the default), line, blank, file.")
    ] = None,
    errors: Errors = "strict",
    confusion: Annotated[Path | None, typer.Option(help="Write the confusion matrix to this PNG file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure perplexity on text, a task's metrics on labelled rows, BLEU of translations, or how well word vectors
    agree with people."""
    from foretext.api import load

    options = EvaluationOptions(
        {
            "text": {"--stride": stride, "--memory": memory, "--text-column": text_column, "--documents": documents},
            "rows": {"--columns": columns or None, "--format": format},
            "tasks": {"--with": others, "--metric": metric},
            "classes": {"--confusion": confusion},
        },
        {"--beams": beams, "--language": language},
    )
    files = files or []
    translated = options.translation_files(files, source, target)
    if translated is not None:
        size, show_progress = 5 if beams is None else beams, progress("translating")
        translator = language_model(run)
        translations = translator.translation_scores(*translated, size, language or "", errors, show_progress)
        show(as_json, translations.to_dict(), translations.lines())
        return
    if confusion is not None:
        check_output(confusion)
    model = load(run)
    options.check(model, files[0])
    if model.evaluated_on == "word lists":
        agreement = {file: model.word_scores(file) for file in files}
        lines = [line for file, scores in agreement.items() for line in (file, *scores.lines())]
        show(as_json, {file: scores.to_dict() for file, scores in agreement.items()}, lines)
    elif model.evaluated_on == "rows":
        model, names = averaged_model(model, others), parse_columns(columns)
        reads = [rows_for(model, Path(file), names, format, errors, need_labels=True) for file in files]
        rows = [row for read in reads for row in read.rows]
        metrics = model.evaluate(rows, progress("predicting"), metric=metric, reporter=Terminal())
        show_scores(metrics, as_json)
        if confusion is not None:
            from foretext.tasks.scores.confusion_picture import confusion_matrix_png

            confusion_matrix_png(metrics, confusion)
    else:
        texts = read_texts(files, text_column, documents or "auto", errors)
        show_perplexity(model.perplexity(texts, stride, progress("measuring"), Terminal(), memory), as_json)
