"""`foretext systems`: the systems, and what each is made of."""

from __future__ import annotations

import json

import typer

from foretext.cli.input import Json


def systems(as_json: Json = False) -> None:
    """The systems, and what each is made of."""
    from foretext.systems import SYSTEMS

    keys = ("paper", "base", "objective", "direction", "tokenizer", "transfer")
    if as_json:
        table = {name: {k: getattr(s, k) for k in keys} | {"sizes": list(s.sizes)} for name, s in SYSTEMS.items()}
        typer.echo(json.dumps(table, ensure_ascii=False))
        return
    for name, system in SYSTEMS.items():
        typer.echo(name)
        for key in keys:
            typer.echo(f"  {key:10} {getattr(system, key)}")
        typer.echo(f"  {'sizes':10} {', '.join(system.sizes)}")
