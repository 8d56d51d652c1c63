"""`foretext tokens`: a text as the tokens that a run reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from foretext.cli.input import Json, RunArgument, text_argument
from foretext.cli.output import show, visible

if TYPE_CHECKING:
    from foretext.runs.inspection import Pieces


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
