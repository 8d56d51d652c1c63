"""`foretext systems`: the systems, and what each is made of."""

from __future__ import annotations

from foretext.cli.input import Json
from foretext.cli.output import show


def systems(as_json: Json = False) -> None:
    """List the systems, and what each is made of."""
    from foretext.systems import SYSTEMS

    keys = ("paper", "base", "objective", "direction", "tokenizer", "transfer")
    table = {name: {k: getattr(s, k) for k in keys} | {"sizes": list(s.sizes)} for name, s in SYSTEMS.items()}
    lines = [
        line
        for name, facts in table.items()
        for line in (name, *(f"  {k:10} {', '.join(v) if k == 'sizes' else v}" for k, v in facts.items()))
    ]
    show(as_json, table, lines)
