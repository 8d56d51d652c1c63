"""`foretext import`, `export` and `lm-eval`: weights that others trained, models for other libraries, and
lm-evaluation-harness."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import RunArgument
from foretext.cli.output import show_notes, shown_notes


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


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The folder to make (for word vectors: the file).")],
    to: Annotated[str, typer.Option(help="hf (for transformers); for word vectors word2vec, glove or gensim.")] = "hf",
) -> None:
    """Write a run's model for other libraries."""
    from foretext.interop.exchange import export_model

    show_notes(export_model(run, out, to))
    typer.echo(f"the model is in {out}", err=True)


def lm_eval(context: typer.Context) -> None:
    """Run lm-evaluation-harness on a run: --model_args run=RUN --tasks … and all its other options."""
    from foretext.interop.lm_eval import run_harness

    run_harness(context.args)
