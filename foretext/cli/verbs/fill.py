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
    found = language_model(run).fill(text_argument(text, "TEXT"), top)
    lines = [
        line
        for number, blank in enumerate(found.blanks, 1)
        for line in (f"blank {number}", *(f"  {one.probability:7.4f}  {visible(one.piece)}" for one in blank))
    ]
    record = {"text": found.text, "blanks": [[asdict(one) for one in blank] for blank in found.blanks]}
    show(as_json, record, [*lines, found.text])
