"""Options and arguments that several verbs of the command line share, so that each is said in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="section.key=value, a setting of config.toml.")]
Config = Annotated[Path | None, typer.Option(help="A TOML file of settings; --set counts where both say something.")]
Columns = Annotated[str, typer.Option(help="Other column names: text=review,label=stars; tagging: tag=4.")]
Format = Annotated[str | None, typer.Option(help="A published layout: sst2, trec, conll2000, …; none: by the header.")]
Metric = Annotated[str | None, typer.Option(help="The main metric: accuracy, f1, f1_macro, matthews, exact_match, …")]
With = Annotated[
    list[Path] | None, typer.Option("--with", help="Another run of the task (the backward one): both are averaged.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
Source = Annotated[Path | None, typer.Option(help="For cove: sentences, one a line.")]
Target = Annotated[Path | None, typer.Option(help="For cove: their translations, line by line.")]
TextColumn = Annotated[str | None, typer.Option(help="The text column of tables.")]
Documents = Annotated[str, typer.Option(help="What is a document in .txt: auto, line, blank, file.")]
Errors = Annotated[str, typer.Option(help="Bytes that are not UTF-8: strict (an error) or replace (counted).")]
