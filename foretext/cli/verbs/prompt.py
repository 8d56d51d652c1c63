"""`foretext prompt`: in-context learning, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import (
    Json,
    check_output,
    guessed_task,
    parse_columns,
    parse_pairs,
    reading_model,
    rows_to_ask,
    text_argument,
)
from foretext.cli.output import Terminal, show
from foretext.evaluate.options import TASKS, PromptRequest, check_options
from foretext.text.corpus.text_files import write_whole


def prompt(
    run: Annotated[Path, typer.Argument(help="A pre-trained run.")],
    file: Annotated[Path, typer.Argument(help="Rows to answer: csv, tsv, jsonl, parquet, or a published --format.")],
    task: Annotated[str | None, typer.Option(help=f"{', '.join(TASKS)} (default: by FILE's columns).")] = None,
    shots: Annotated[
        str | None, typer.Option(help="Examples in the context: one number, or several such as 0,1,5.")
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(help="Rows to draw examples from (default: the other rows of FILE).")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help=r"Your own template, ending in the answer: 'Review: {text}\nIt is {label}'.")
    ] = None,
    words: Annotated[str | None, typer.Option(help="Words to use for labels: 1=good,0=bad.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many draws of examples (default 3).")] = None,
    rows: Annotated[int, typer.Option(help="Answer this many rows, drawn at random; 0: all.")] = 0,
    direction: Annotated[
        str | None, typer.Option(help="With elmo: forward, or backward to score the text given the answer.")
    ] = None,
    good: Annotated[
        str | None, typer.Option(help="With acceptability: the label of acceptable sentences (default 1).")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="With translation: the target language, if BLEU must segment it: zh, ja, ko.")
    ] = None,
    columns: Annotated[str, typer.Option(help="Column names, if different: text=review,label=stars.")] = "",
    format: Annotated[str | None, typer.Option(help="A published layout such as sst2, cola or copa.")] = None,
    errors: Annotated[str, typer.Option(help="Bytes that are not UTF-8: strict or replace.")] = "strict",
    out: Annotated[
        Path | None, typer.Option(help="Write each row's answers and scores to this JSON lines file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask a pre-trained model without training it: put examples into the context."""
    from foretext.evaluate.in_context import check_prompted
    from foretext.evaluate.prompting import ask, questions_of

    names, guessed = parse_columns(columns), task is None
    task = guessed_task(file, names, format, errors) if task is None else task
    given = {"--template": template, "--words": words, "--seeds": seeds, "--shots": shots, "--examples": examples}
    given |= {"--good": good, "--format": format, "--language": language, "--out": out}
    check_options(task, given)
    request = PromptRequest(
        task,
        shots or "0",
        3 if seeds is None else seeds,
        rows,
        None if template is None else text_argument(template, "--template"),
        parse_pairs(words or "", "--words", "write label=word, such as 1=good,0=bad"),
        "1" if good is None else text_argument(good, "--good"),
        language,
    )
    if out is not None:
        check_output(out)
    model = reading_model(run, direction, "learning in context")
    check_prompted(model, task)
    to_answer = rows_to_ask(file, task, names, format, errors)
    others = None if examples is None else rows_to_ask(examples, task, names, format, errors)
    questions = questions_of(request, to_answer, others)
    if guessed:  # only after all checks, so that an error is the only line shown
        typer.echo(f"task: {task}", err=True)
    answers = ask(model, questions, Terminal().work)
    if out is not None:
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in answers.rows]
        write_whole(out, "".join(lines).encode("utf-8"))
        typer.echo(f"{len(lines):,} answered rows in {out}", err=True)
    show(as_json, answers.record, answers.lines)
