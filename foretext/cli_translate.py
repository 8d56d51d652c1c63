"""`foretext translate`, and what `foretext evaluate` says of a run that translates."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from foretext.cli_input import language_model, standard_input
from foretext.cli_options import Errors, check_output, text_argument
from foretext.cli_output import progress
from foretext.errors import UserError


def translate(
    run: Annotated[Path, typer.Argument(help="A run of pretrain --system cove.")],
    text: Annotated[str, typer.Argument(help="A file with a sentence a line, - for standard input, or the text.")],
    out: Annotated[Path | None, typer.Option(help="A file for the translations; without it standard output.")] = None,
    beams: Annotated[int, typer.Option(help="Hypotheses that are kept; 1: the likeliest word each time.")] = 5,
    errors: Errors = "strict",
) -> None:
    """Translate sentences, a line for each line."""
    from foretext.tasks.files import write_whole

    if out is not None:
        check_output(out)
    lines = _lines(text, errors)
    if not any(line.strip() for line in lines):
        raise UserError("nothing to translate: name a file, give a text, or write lines to standard input")
    found = language_model(run).translate(lines, beams, progress("translating"))
    written = "".join(f"{line}\n" for line in found)
    if out is None:
        typer.echo(written, nl=False)
        return
    write_whole(out, written.encode("utf-8"))
    typer.echo(f"{len(found):,} translations in {out}", err=True)


def _lines(given: str, errors: str) -> list[str]:
    """The lines of a file or of standard input, or a text's. What can only be meant as a file has to be one."""
    from foretext.tasks.files import read_text, text_lines

    if given == "-":
        return list(text_lines(standard_input(errors)))
    text = text_argument(given, "TEXT", "give it in a file or on standard input with --errors replace")
    path = Path(text)
    looks_like_one = len(text.split()) == 1 and ("/" in text or "." in text.strip(".!?…"))
    try:
        there = path.is_file() or (looks_like_one and path.exists())  # a word may be the name of a folder too
    except OSError:  # far too long for a name
        there = False
    if not there and looks_like_one:
        raise UserError(f"{text}: no such file; check the path")
    if not there:
        return [text.replace("\n", " ")]
    notes: list[str] = []
    found = list(text_lines(read_text(path, errors, notes)))
    for note in notes:
        typer.echo(note, err=True)
    return found


def evaluate_translations(
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
