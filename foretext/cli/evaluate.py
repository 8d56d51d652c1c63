"""`foretext evaluate`: how good a run is on text, labelled rows or translations."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    load_run,
    parse_columns,
    read_texts,
    refuse,
    rows_for,
)
from foretext.cli.output import Terminal, progress, show_notes, show_scores
from foretext.errors import UserError

if TYPE_CHECKING:
    from foretext.api import LanguageModel, TaskModel
    from foretext.evaluate.perplexity import Perplexity

LARGE = 1e9  # figures from here on are written 1.234e+09


def evaluate(
    run: RunArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Text, labelled rows for a fine-tuned run, word pairs or analogies for vectors."),
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
    """Perplexity of text, the task's metrics on labelled rows, BLEU of translations, or how well vectors of words agree
    with people."""
    from foretext.api import LanguageModel

    of_text = {"--stride": stride, "--memory": memory, "--text-column": text_column, "--documents": documents}
    of_rows = {"--columns": columns or None, "--format": format}
    of_tasks = {"--with": others, "--metric": metric}
    if source is not None or target is not None:
        if files:
            raise UserError(f"translations are scored on --source and --target alone; leave out {files[0]}")
        why = "is not for translations, which --source and --target are; leave it out"
        refuse({**of_text, **of_rows, **of_tasks, "--confusion": confusion}, why)
        _translations(run, source, target, 5 if beams is None else beams, language or "", errors, as_json)
        return
    why = "is for translations: give --source FILE and --target FILE, or leave it out"
    refuse({"--beams": beams, "--language": language}, why)
    if not files:
        raise UserError("name the files to evaluate on: text, labelled rows, or --source and --target")
    if confusion is not None:
        check_output(confusion)
    model = load_run(run)
    if isinstance(model, LanguageModel):
        if model.model.system.reads == "pairs":
            raise UserError(f"{run} translates: give --source FILE --target FILE instead of {files[0]}")
        refuse(of_rows, f"is for labelled rows, and {run} reads text; leave it out")
        refuse(
            {"--confusion": confusion}, f"is for classes, and {run} is a language model without a task; leave it out"
        )
        refuse(of_tasks, f"is for a task, and {run} is a language model without one; leave it out")
        if model.model.system.learn is not None:
            refuse(of_text, f"is for text that is scored, and {run} has vectors of words; leave it out")
            show_word_scores(model, [Path(file) for file in files], as_json)
            return
        show_perplexity(model, read_texts(files, text_column, documents or "auto", errors), stride, as_json, memory)
        return
    refuse(of_text, f"is for text, and {run} reads labelled rows; leave it out")
    if not model.draws_confusion:
        why = f"is for classes, and {run} has none (its task is {model.task}); leave it out"
        refuse({"--confusion": confusion}, why)
    model, names = averaged_model(model, others), parse_columns(columns)
    rows = [row for file in files for row in rows_for(model, Path(file), names, format, errors, need_labels=True).rows]
    _scores(model, rows, metric, confusion, as_json)


def _scores(model: TaskModel, rows: list[Any], metric: str | None, confusion: Path | None, as_json: bool) -> None:
    """A task's metrics on labelled rows."""
    from foretext.tasks.scores.confusion_picture import confusion_matrix_png

    scores = model.evaluate(rows, progress("predicting"), metric=metric, reporter=Terminal())
    show_scores(scores, as_json)
    if confusion is not None:
        confusion_matrix_png(scores, confusion)


def _translations(
    run: Path, source: Path | None, target: Path | None, beams: int, language: str, errors: str, as_json: bool
) -> None:
    """Loss, perplexity and BLEU of a run on two files."""
    if source is None or target is None:
        missing = "--target" if target is None else "--source"
        raise UserError(f"{missing} is missing: translations are scored on two files; add it")
    scores = language_model(run).translation_scores(source, target, beams, language, errors, progress("translating"))
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(scores), ensure_ascii=False))
        return
    typer.echo(f"pairs       {scores.pairs:,}")
    typer.echo(f"loss        {scores.loss:.4f}  (nats a target word, its end counted)")
    typer.echo(f"perplexity  {scores.perplexity:.2f}")
    typer.echo(f"BLEU        {scores.bleu:.2f}  ({scores.signature})")


def show_word_scores(model: LanguageModel, files: list[Path], as_json: bool) -> None:
    """Vectors of words on files of pairs with scores, or of analogies."""
    from foretext.evaluate.word_space import Similarity

    found = {str(file): model.word_scores(file) for file in files}
    if as_json:
        typer.echo(json.dumps({name: one.to_dict() for name, one in found.items()}, ensure_ascii=False))
        return
    for name, one in found.items():
        typer.echo(name)
        if isinstance(one, Similarity):
            typer.echo(f"  Spearman  {one.spearman:.4f}  ({one.known:,} of {one.pairs:,} pairs are known)")
            typer.echo(f"  Pearson   {one.pearson:.4f}")
            continue
        for section in (*one.sections, one.whole):
            known = f"{section.known:,} of {section.questions:,} questions are known"
            typer.echo(f"  {section.accuracy:7.2%}  {section.name}  ({known})")


def show_perplexity(
    model: LanguageModel, texts: list[str], stride: int | None, as_json: bool, memory: int | None = None
) -> None:
    measured = model.perplexity(texts, stride, progress("measuring"), Terminal(), memory)
    notes = _perplexity_notes(measured)
    if as_json:
        typer.echo(json.dumps(measured.to_dict(), allow_nan=False))
        show_notes(notes)
        return
    name = "pseudo-perplexity" if measured.pseudo else "perplexity"
    wide = len(name) + len(" per token")
    typer.echo(f"{name} per token  {_figure(measured.per_token)}  ({measured.tokens:,} tokens)")
    typer.echo(f"{name} per word   {_figure(measured.per_word)}  ({measured.words:,} words between white space)")
    typer.echo(f"{'bits per byte':{wide}}  {_figure(measured.bits_per_byte, 4)}  ({measured.bytes:,} bytes of UTF-8)")
    seen = f"context {measured.context} tokens, stride {measured.stride}, {measured.documents:,} documents"
    if measured.directions == 2:
        seen = f"{measured.documents:,} documents, each read whole from either end: the mean of both directions"
    elif measured.order is not None:
        seen += f"; each token by those before it, the {measured.order.replace(' ', '-')} order of the factorisation"
    elif measured.memory is not None:
        seen = f"each token after {measured.memory:,} tokens of memory at most, {measured.documents:,} documents"
    elif measured.context is None:
        seen = f"each token after all that stands before it in its document, {measured.documents:,} documents"
    typer.echo(seen)
    for note in notes:
        typer.echo(note)
    if measured.pseudo:
        typer.echo("each token was masked alone and seen from both sides: this does not compare with a causal model's")
    elif not measured.comparable:
        typer.echo("the tokenizer does not keep the text whole: bits per byte do not compare with other models'")


def _figure(value: float, digits: int = 3) -> str:
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "too large for a number"
    return f"{value:.3e}" if value >= LARGE else f"{value:,.{digits}f}"


def _perplexity_notes(measured: Perplexity) -> list[str]:
    """What a user must know to read the figures."""
    if math.isnan(measured.per_token):
        return ["the model's scores are not numbers (NaN): training went wrong; go back to an earlier run"]
    if measured.words and measured.per_word >= LARGE:
        length = measured.bytes / measured.words
        return [
            f"a word here is an unbroken run of characters, {length:,.0f} bytes on average: where no spaces stand "
            "between words, perplexity per word says little; use per token or bits per byte"
        ]
    return []
