"""`foretext attention`: an HTML page that shows where each token attends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import RunArgument, check_output, text_argument
from foretext.text.corpus.text_files import write_whole


def attention(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The text to show.")],
    out: Annotated[Path, typer.Option(help="The .html file to write.")],
    target: Annotated[
        str | None, typer.Option(help="With cove: a translation to show instead of the run's own.")
    ] = None,
) -> None:
    """Write a page that shows where each token attends, by layer and head (cove: each word of the translation)."""
    from foretext.evaluate.attention_page import attention_page
    from foretext.runs.model import load_model

    check_output(out)
    given = None if target is None else text_argument(target, "--target")
    page = attention_page(load_model(run), text_argument(text, "the text"), given)
    write_whole(out, page.encode("utf-8"))
    typer.echo(f"the page is {out}; open it in a browser", err=True)
