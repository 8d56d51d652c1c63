"""`foretext nearest`: the words nearest to a word, by word vectors."""

from __future__ import annotations

from typing import Annotated

import typer

from foretext.cli.input import Json, RunArgument, language_model, text_argument
from foretext.cli.output import show, visible


def nearest(
    run: RunArgument,
    words: Annotated[list[str], typer.Argument(help="One word or several; each gets its own list.")],
    minus: Annotated[
        list[str] | None,
        typer.Option(help="One list for all words together, minus this word (king woman --minus man)."),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="How many words.")] = 10,
    as_json: Json = False,
) -> None:
    """Show the words whose vectors are nearest to a word's, with cosines."""
    given = [text_argument(word, "WORD") for word in words]
    away = [text_argument(word, "--minus") for word in minus or ()]
    model = language_model(run)
    groups = [given] if away else [[word] for word in given]
    results = [(group, model.nearest(group, n, minus=away)) for group in groups]
    lines = [
        line
        for group, near in results
        for line in (
            " + ".join(group) + "".join(f" - {word}" for word in away),
            *(f"  {cosine:7.4f}  {visible(word)}" for word, cosine in near),
        )
    ]
    show(as_json, [{"words": group, "minus": away, "nearest": dict(near)} for group, near in results], lines)
