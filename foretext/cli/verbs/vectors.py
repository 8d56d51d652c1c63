"""`foretext features` and `nearest`: vectors of texts or of words, as Parquet; the words nearest to a word."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from foretext.cli.input import (
    Documents,
    Errors,
    Json,
    RunArgument,
    TextColumn,
    check_output,
    language_model,
    read_texts,
    text_argument,
)
from foretext.cli.output import Terminal, progress, show, visible
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


def nearest(
    run: RunArgument,
    words: Annotated[list[str], typer.Argument(help="One word or several; each gets its own list.")],
    minus: Annotated[
        list[str] | None,
        typer.Option(help="One list for all words together, minus this word (king woman --minus man)."),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="How many words.")] = 10,
    as_json: Json = False,
) -> None:
    """Show the words whose vectors are nearest to a word's, with cosines."""
    given = [text_argument(word, "WORD") for word in words]
    away = [text_argument(word, "--minus") for word in minus or ()]
    model = language_model(run)
    groups = [given] if away else [[word] for word in given]
    results = [(group, model.nearest(group, n, minus=away)) for group in groups]
    lines = [
        line
        for group, near in results
        for line in (
            " + ".join(group) + "".join(f" - {word}" for word in away),
            *(f"  {cosine:7.4f}  {visible(word)}" for word, cosine in near),
        )
    ]
    show(as_json, [{"words": group, "minus": away, "nearest": dict(near)} for group, near in results], lines)
