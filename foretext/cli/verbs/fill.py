"""`foretext fill`: what a masked model predicts for blanks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from foretext.cli.input import Json, RunArgument, language_model, text_argument
from foretext.cli.output import show, visible


def fill(
    run: RunArgument,
    text: Annotated[
        str, typer.Argument(help="A text with one or more blanks: [MASK], or <mask> for RoBERTa and XLNet.")
    ],
    top: Annotated[int, typer.Option(help="How many candidates per blank.")] = 5,
    as_json: Json = False,
) -> None:
    """Show what a masked model predicts for each blank of a text, with probabilities."""
    filled = language_model(run).fill(text_argument(text, "TEXT"), top)
    lines = [
        line
        for number, blank in enumerate(filled.blanks, 1)
        for line in (
            f"blank {number}",
            *(f"  {candidate.probability:7.4f}  {visible(candidate.piece)}" for candidate in blank),
        )
    ]
    record = {"text": filled.text, "blanks": [[asdict(candidate) for candidate in blank] for blank in filled.blanks]}
    show(as_json, record, [*lines, filled.text])
