"""`foretext info`, `tokens`, `systems` and `attention`: what is in a run, how it reads a text, and where it attends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretext.cli.input import Json, RunArgument, check_output, text_argument
from foretext.cli.output import show, visible
from foretext.text.corpus.text_files import write_whole

if TYPE_CHECKING:
    from foretext.runs.inspection import Pieces


def info(run: RunArgument, as_json: Json = False) -> None:
    """Show what is in a run directory."""
    from foretext.runs.directory import RunDirectory
    from foretext.runs.inspection import describe_run, summary_of

    if as_json:
        typer.echo(json.dumps(describe_run(RunDirectory(run)), ensure_ascii=False))
    else:
        typer.echo(summary_of(RunDirectory(run)))


def tokens(
    run: RunArgument,
    text: Annotated[
        list[str], typer.Argument(help="The text; several for a pair, a choice, or a question and its passage.")
    ],
    as_json: Json = False,
) -> None:
    """Show the tokens and ids of a text (for a fine-tuned run: the transformed sequences)."""
    from foretext.runs.directory import RunDirectory
    from foretext.runs.inspection import sequences_of

    sequences = sequences_of(RunDirectory(run), [text_argument(part, "TEXT") for part in text])
    record = [[{"id": id, "piece": piece} for id, piece in sequence] for sequence in sequences]
    show(as_json, record, map(aligned_pieces, sequences))


def aligned_pieces(sequence: Pieces, width: int = 100) -> str:
    """Tokens above their ids, in lines of at most `width` cells. Spaces show as ␣; other white space and partial
    characters as escapes."""
    from rich.cells import cell_len

    lines, used = [["", ""]], 0
    for number, piece in sequence:
        shown = visible(piece)
        cells = max(cell_len(shown), len(str(number)))
        if used and used + cells > width:
            lines.append(["", ""])
            used = 0
        lines[-1][0] += shown + " " * (cells - cell_len(shown) + 1)
        lines[-1][1] += str(number).ljust(cells + 1)
        used += cells + 1
    return "\n".join(line.rstrip() for pair in lines for line in pair)


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
