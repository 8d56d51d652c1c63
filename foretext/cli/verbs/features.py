"""`foretext features`: vectors of texts or of words, as Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from foretext.cli.input import Documents, Errors, RunArgument, TextColumn, check_output, read_texts
from foretext.cli.output import Terminal, progress
from foretext.errors import UserError, counted, refuse_if
from foretext.text.corpus.text_files import write_whole

if TYPE_CHECKING:
    from foretext.evaluate.features import WordVectors

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
    import numpy as np
    import polars

    from foretext.api import load
    from foretext.evaluate.features import LayerMix, text_vectors, word_vectors

    check_output(out)
    refuse_if(
        out.suffix.lower() not in (".parquet", ".pq"),
        f"{out}: vectors are written as Parquet; give a name that ends in .parquet",
    )
    chosen, factors = _numbers(layers, "--layers", int), _numbers(weights, "--weights", float)
    loaded = load(run)
    loaded.check_gives_vectors()
    model = loaded.model
    mix = LayerMix(tuple(chosen), tuple(factors), each)
    widths = list(dict.fromkeys(mix.widths(model)))
    texts = read_texts([str(file)], text_column, documents, errors)
    told = progress("computing vectors")
    if words:
        found = word_vectors(model, texts, told, Terminal(), mix)
        vectors, about = np.concatenate([one.vectors for one in found]), _places_of_words(found)
    else:
        vectors, about = text_vectors(model, texts, told, Terminal(), mix), {"text": texts}
    names = [f"layer_{layer}" for layer in mix.chosen(model.model_config.layers)] if each else ["vector"]
    numbers = polars.List(polars.Float32)
    columns = [
        polars.Series(part, dtype=polars.Array(polars.Float32, part.shape[1])).cast(numbers)
        for part in mix.parts(model, vectors)
    ]
    table = polars.DataFrame({**about, **dict(zip(names, columns))})
    data = io.BytesIO()
    table.write_parquet(data)
    write_whole(out, data.getvalue())
    typer.echo(f"{counted(len(table), 'vector')} of {' or '.join(map(str, widths))} dimensions in {out}", err=True)


def _numbers(written: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in written.split(",")] if written.strip() else []
    except ValueError:
        raise UserError(f"{option} {written!r}: give numbers separated by commas, such as 0,4") from None


def _places_of_words(found: list[WordVectors]) -> dict[str, list[Any]]:
    """One row per word: the number of its text (from 1) and its character offsets there."""
    return {
        "text": [number for number, one in enumerate(found, 1) for _ in one.words],
        "word": [word for one in found for word in one.words],
        "start": [start for one in found for start, _ in one.places],
        "end": [end for one in found for _, end in one.places],
    }
