"""`foretext info`: show what is in a run directory."""

from __future__ import annotations

import json

import typer

from foretext.cli.input import Json, RunArgument


def info(run: RunArgument, as_json: Json = False) -> None:
    """Show what is in a run directory."""
    from foretext.runs.directory import RunDirectory
    from foretext.runs.inspection import describe_run, summary_of

    if as_json:
        typer.echo(json.dumps(describe_run(RunDirectory(run)), ensure_ascii=False))
    else:
        typer.echo(summary_of(RunDirectory(run)))
