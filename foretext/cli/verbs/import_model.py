"""`foretext import`: make a run from weights that others trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.output import shown_notes


def import_(
    source: Annotated[
        Path, typer.Argument(help="A Hugging Face folder, OpenAI's GPT files, or ELMo's options and hdf5 files.")
    ],
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also read pickled weights, with torch's restricted loader.")
    ] = False,
) -> None:
    """Make a run from weights that others trained. No code in their folder is run."""
    from foretext.interop.exchange import import_model

    with shown_notes() as notes:
        path = import_model(source, out, allow_pickle, notes)
    typer.echo(f"the model is in {path}; next: foretext info {path}", err=True)
