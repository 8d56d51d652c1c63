"""`foretext features`: vectors of texts or of words, as Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from foretext.cli.input import Documents, Errors, RunArgument, TextColumn, check_output, read_texts
from foretext.cli.output import Terminal, progress
from foretext.errors import UserError, counted, refuse_if
from foretext.text.corpus.text_files import write_whole

Number = TypeVar("Number", int, float)


def features(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="Text; each document gets one vector.")],
    out: Annotated[Path, typer.Option(help="The .parquet file to write.")],
    layers: Annotated[
        str, typer.Option(help="Layers to use, such as 4 or 0,4,12 (0: the embeddings; default: the top layer).")
    ] = "",
    weights: Annotated[str, typer.Option(help="Weight of each layer, such as .2,.8 (default: equal).")] = "",
    each: Annotated[
        bool, typer.Option("--each", help="One column per layer (without --layers: all layers) instead of their sum.")
    ] = False,
    words: Annotated[bool, typer.Option("--words", help="One vector per word instead of per text.")] = False,
    text_column: TextColumn = None,
    documents: Documents = "auto",
    errors: Errors = "strict",
) -> None:
    """Write vectors of texts or of words: mean states of one layer, or of a mix of layers."""
    from foretext.api import load
    from foretext.evaluate.features import LayerMix

    check_output(out)
    refuse_if(
        out.suffix.lower() not in (".parquet", ".pq"),
        f"{out}: vectors are written as Parquet; give a name that ends in .parquet",
    )
    mix = LayerMix(tuple(_numbers(layers, "--layers", int)), tuple(_numbers(weights, "--weights", float)), each)
    model = load(run)
    widths = dict.fromkeys(model.vector_widths(mix))
    texts = read_texts([str(file)], text_column, documents, errors)
    table = model.vector_table(texts, words, mix, progress("computing vectors"), Terminal())
    data = io.BytesIO()
    table.write_parquet(data)
    write_whole(out, data.getvalue())
    typer.echo(f"{counted(len(table), 'vector')} of {' or '.join(map(str, widths))} dimensions in {out}", err=True)


def _numbers(written: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in written.split(",")] if written.strip() else []
    except ValueError:
        raise UserError(f"{option} {written!r}: give numbers separated by commas, such as 0,4") from None
