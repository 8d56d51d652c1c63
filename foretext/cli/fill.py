"""`foretext fill`: what a masked model puts into blanks."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from foretext.cli.input import Json, RunArgument, language_model, text_argument
from foretext.cli.output import visible


def fill(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="A text with a blank or several: [MASK], or <mask> for RoBERTa.")],
    top: Annotated[int, typer.Option(help="How many candidates a blank.")] = 5,
    as_json: Json = False,
) -> None:
    """What a masked model would put into the blanks of a text, with probabilities."""
    found = language_model(run).fill(text_argument(text, "TEXT"), top)
    if as_json:
        blanks = [
            [{"piece": one.piece, "id": one.id, "probability": one.probability} for one in blank]
            for blank in found.blanks
        ]
        typer.echo(json.dumps({"text": found.text, "blanks": blanks}, ensure_ascii=False))
        return
    for number, blank in enumerate(found.blanks, 1):
        typer.echo(f"blank {number}")
        for one in blank:
            typer.echo(f"  {one.probability:7.4f}  {visible(one.piece)}")
    typer.echo(found.text)
