"""`foretext evaluate`: how good a run is on text, labelled rows or translations."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from foretext.cli.output import Terminal, progress, show, show_notes, show_scores
from foretext.errors import UserError, counted, refuse, refuse_if

if TYPE_CHECKING:
    from foretext.api import LanguageModel
    from foretext.evaluate.perplexity import Perplexity

ALONE = (
    "pseudo-perplexity: each token was masked alone and predicted from both sides; do not compare it with a causal "
    "model's perplexity"
)
LARGE = 1e9  # from here on, figures are written as 1.234e+09


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
    from foretext.api import LanguageModel, load

    of_text = {"--stride": stride, "--memory": memory, "--text-column": text_column, "--documents": documents}
    of_rows = {"--columns": columns or None, "--format": format}
    of_tasks, of_classes = {"--with": others, "--metric": metric}, {"--confusion": confusion}
    if (source, target) != (None, None):
        if files:
            raise UserError(f"translations are scored from --source and --target alone; leave out {files[0]}")
        why = "does not apply to translations (--source and --target); leave it out"
        refuse({**of_text, **of_rows, **of_tasks, **of_classes}, why)
        _translations(run, source, target, 5 if beams is None else beams, language or "", errors, as_json)
        return
    why = "applies to translations only: give both --source FILE and --target FILE, or leave it out"
    refuse({"--beams": beams, "--language": language}, why)
    if not files:
        raise UserError("name the files to evaluate on: text, labelled rows, or --source and --target")
    if confusion is not None:
        check_output(confusion)
    model = load(run)
    if isinstance(model, LanguageModel):
        pairs = model.model.system.reads == "pairs"
        refuse_if(pairs, f"{run} translates: give --source FILE --target FILE instead of {files[0]}")
        refuse(of_rows, f"is for labelled rows, but {run} reads text; leave it out")
        refuse(of_classes, f"is for tasks with classes, but {run} is a language model without a task; leave it out")
        refuse(of_tasks, f"is for tasks, but {run} is a language model without one; leave it out")
        if model.model.system.learn is not None:
            refuse(of_text, f"is for language models, but {run} holds word vectors; leave it out")
            _show_word_scores(model, files, as_json)
        else:
            texts = read_texts(files, text_column, documents or "auto", errors)
            show_perplexity(model, texts, stride, as_json, memory)
        return
    refuse(of_text, f"is for text, but {run} reads labelled rows; leave it out")
    if not model.draws_confusion:
        refuse(of_classes, f"is for tasks with classes, but the task of {run} is {model.task}; leave it out")
    model, names = averaged_model(model, others), parse_columns(columns)
    rows = [row for file in files for row in rows_for(model, Path(file), names, format, errors, need_labels=True).rows]
    scores = model.evaluate(rows, progress("predicting"), metric=metric, reporter=Terminal())
    show_scores(scores, as_json)
    if confusion is not None:
        from foretext.tasks.scores.confusion_picture import confusion_matrix_png

        confusion_matrix_png(scores, confusion)


def _translations(
    run: Path, source: Path | None, target: Path | None, beams: int, language: str, errors: str, as_json: bool
) -> None:
    """Loss, perplexity and BLEU of a run on a source file and its translation."""
    if source is None or target is None:
        missing = "--target" if target is None else "--source"
        raise UserError(f"{missing} is missing: scoring translations needs both files; add it")
    scores = language_model(run).translation_scores(source, target, beams, language, errors, progress("translating"))
    lines = (
        f"pairs       {scores.pairs:,}",
        f"loss        {scores.loss:.4f}  (nats per target word, end of sentence included)",
        f"perplexity  {scores.perplexity:.2f}",
        f"BLEU        {scores.bleu:.2f}  ({scores.signature})",
    )
    show(as_json, dataclasses.asdict(scores), lines)


def _show_word_scores(model: LanguageModel, files: list[str], as_json: bool) -> None:
    """Score word vectors on files of word pairs or of analogies."""
    scores = {file: model.word_scores(file) for file in files}
    lines = [line for file, own in scores.items() for line in (file, *own.lines())]
    show(as_json, {file: own.to_dict() for file, own in scores.items()}, lines)


def show_perplexity(
    model: LanguageModel, texts: list[str], stride: int | None, as_json: bool, memory: int | None = None
) -> None:
    measured = model.perplexity(texts, stride, progress("measuring"), Terminal(), memory)
    notes = _perplexity_notes(measured)
    name = "pseudo-perplexity" if measured.pseudo else "perplexity"
    lines = [
        f"{name} per token  {_figure(measured.per_token)}  ({counted(measured.tokens, 'token')})",
        f"{name} per word   {_figure(measured.per_word)}  ({counted(measured.words, 'word')} between white space)",
        f"{'bits per byte':{len(name) + len(' per token')}}  {_figure(measured.bits_per_byte, 4)}  "
        f"({measured.bytes:,} bytes of UTF-8)",
        _what_was_seen(measured),
        *notes,
    ]
    if measured.pseudo:
        lines.append(ALONE)
    elif not measured.comparable:
        lines.append("the tokenizer loses part of the text: do not compare these bits per byte with another model's")
    show(as_json, measured.to_dict(), lines)
    show_notes(notes if as_json else ())


def _what_was_seen(measured: Perplexity) -> str:
    """The context that each token was scored with."""
    documents = counted(measured.documents, "document")
    if measured.directions == 2:
        return f"{documents}, each read whole in both directions; the figure is the mean of the two"
    windows = f"context {measured.context} tokens, stride {measured.stride}, {documents}"
    if measured.order is not None:
        order = measured.order.replace(" ", "-")
        return f"{windows}; each token is predicted from those before it, in {order} order"
    if measured.memory is not None:
        return f"each token after at most {measured.memory:,} tokens of memory, {documents}"
    if measured.context is None:
        return f"each token after everything before it in its document, {documents}"
    return windows


def _figure(value: float, digits: int = 3) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "too large to show"
    return f"{value:.3e}" if value >= LARGE else f"{value:,.{digits}f}"


def _perplexity_notes(measured: Perplexity) -> list[str]:
    """Notes that a user needs to read the figures correctly."""
    if math.isnan(measured.per_token):
        return ["the model's logits are NaN: training diverged; use an earlier run"]
    if measured.words and measured.per_word >= LARGE:
        length = measured.bytes / measured.words
        return [
            f"a word here is a run of characters between white space, {length:,.0f} bytes on average: if this language "
            "puts no spaces between words, ignore perplexity per word and use per token or bits per byte"
        ]
    return []
