"""`foretext demo`: every step, on text that is already on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.output import Stopper


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and report.html.")] = Path("demo-out"),
) -> None:
    """Run every step on text that is already on this machine (at most 15 minutes on 2 cores)."""
    from rich.console import Console

    from foretext.demo.runner import Demo

    console = Console()
    with Stopper(console.print) as stopper:
        Demo(out, console=console, stopping=stopper).run()
