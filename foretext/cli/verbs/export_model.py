"""`foretext export`: write a run's model for other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import RunArgument
from foretext.cli.output import show_notes


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The folder to make (for word vectors: the file).")],
    to: Annotated[str, typer.Option(help="hf (for transformers); for word vectors word2vec, glove or gensim.")] = "hf",
) -> None:
    """Write a run's model for other libraries."""
    from foretext.interop.exchange import export_model

    show_notes(export_model(run, out, to))
    typer.echo(f"the model is in {out}", err=True)
