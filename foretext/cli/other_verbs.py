"""The verbs beside the way from text to predictions: what a run knows of texts and words, and what is in it; models of
others, in and out; the systems; the demo."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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
from foretext.cli.output import Stopper, Terminal, progress, show, show_notes, shown_notes, visible
from foretext.errors import UserError, refuse_if
from foretext.text.corpus.text_files import write_whole

if TYPE_CHECKING:
    from foretext.evaluate.features import WordVectors
    from foretext.runs.inspection import Pieces

Number = TypeVar("Number", int, float)


def features(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="Text: a document a vector.")],
    out: Annotated[Path, typer.Option(help="A .parquet file.")],
    layers: Annotated[
        str, typer.Option(help="Layers to take, as 4 or 0,4,12 (0: the embeddings); without it the top.")
    ] = "",
    weights: Annotated[str, typer.Option(help="What each layer counts, as .2,.8; without it all alike.")] = "",
    each: Annotated[
        bool, typer.Option("--each", help="A column for each layer (without --layers: all) instead of their sum.")
    ] = False,
    words: Annotated[bool, typer.Option("--words", help="A vector for each word instead of each text.")] = False,
    text_column: TextColumn = None,
    documents: Documents = "auto",
    errors: Errors = "strict",
) -> None:
    """Vectors of texts or of words: means of the states of a layer, or of a mix of layers."""
    import numpy as np
    import polars

    from foretext.api import load
    from foretext.evaluate.features import LayerMix, check_gives_vectors, text_vectors, word_vectors

    check_output(out)
    refuse_if(
        out.suffix.lower() not in (".parquet", ".pq"),
        f"{out}: vectors are written as Parquet; give a name that ends in .parquet",
    )
    chosen, counted = _numbers(layers, "--layers", int), _numbers(weights, "--weights", float)
    model = load(run).model
    check_gives_vectors(model)
    mix = LayerMix(tuple(chosen), tuple(counted), each)
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
    typer.echo(f"{len(table):,} vectors of {' or '.join(map(str, widths))} numbers in {out}", err=True)


def _numbers(written: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in written.split(",")] if written.strip() else []
    except ValueError:
        raise UserError(f"{option} {written!r}: numbers with commas between them are wanted, as 0,4") from None


def _places_of_words(found: list[WordVectors]) -> dict[str, list[Any]]:
    """A row a word: which text it is of (from 1), and where it stands there in characters."""
    return {
        "text": [number for number, one in enumerate(found, 1) for _ in one.words],
        "word": [word for one in found for word in one.words],
        "start": [start for one in found for start, _ in one.places],
        "end": [end for one in found for _, end in one.places],
    }


def nearest(
    run: RunArgument,
    words: Annotated[list[str], typer.Argument(help="A word, or several: each gets its own list.")],
    minus: Annotated[
        list[str] | None,
        typer.Option(help="One list: the words together without this one (king woman --minus man)."),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="How many words.")] = 10,
    as_json: Json = False,
) -> None:
    """The words whose vectors are nearest to a word's, and their cosines."""
    asked = [text_argument(word, "WORD") for word in words]
    away = [text_argument(word, "--minus") for word in minus or ()]
    model = language_model(run)
    groups = [asked] if away else [[word] for word in asked]
    found = [(group, model.nearest(group, n, minus=away)) for group in groups]
    lines = [
        line
        for group, near in found
        for line in (
            " + ".join(group) + "".join(f" - {word}" for word in away),
            *(f"  {cosine:7.4f}  {visible(word)}" for word, cosine in near),
        )
    ]
    show(as_json, [{"words": group, "minus": away, "nearest": dict(near)} for group, near in found], lines)


def fill(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="A text with a blank or several: [MASK], or <mask> for RoBERTa.")],
    top: Annotated[int, typer.Option(help="How many candidates a blank.")] = 5,
    as_json: Json = False,
) -> None:
    """What a masked model would put into the blanks of a text, with probabilities."""
    found = language_model(run).fill(text_argument(text, "TEXT"), top)
    lines = [
        line
        for number, blank in enumerate(found.blanks, 1)
        for line in (f"blank {number}", *(f"  {one.probability:7.4f}  {visible(one.piece)}" for one in blank))
    ]
    record = {"text": found.text, "blanks": [[asdict(one) for one in blank] for blank in found.blanks]}
    show(as_json, record, [*lines, found.text])


def tokens(
    run: RunArgument,
    text: Annotated[list[str], typer.Argument(help="The text; several for a pair, a choice, a question.")],
    as_json: Json = False,
) -> None:
    """The pieces and ids of a text, and for a fine-tuned run the transformed sequences."""
    from foretext.runs.directory import RunDirectory
    from foretext.runs.inspection import sequences_of

    found = sequences_of(RunDirectory(run), [text_argument(part, "TEXT") for part in text])
    record = [[{"id": id, "piece": piece} for id, piece in sequence] for sequence in found]
    show(as_json, record, map(aligned_pieces, found))


def aligned_pieces(sequence: Pieces, width: int = 100) -> str:
    """Pieces over their ids in lines of at most `width` cells. Spaces show as ␣, other white space and bytes that are
    part of a character as escapes."""
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


def info(run: RunArgument, as_json: Json = False) -> None:
    """What is in a run directory."""
    from foretext.runs.directory import RunDirectory
    from foretext.runs.inspection import describe_run, summary_of

    if as_json:
        typer.echo(json.dumps(describe_run(RunDirectory(run)), ensure_ascii=False))
    else:
        typer.echo(summary_of(RunDirectory(run)))


def attention(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The text to look at.")],
    out: Annotated[Path, typer.Option(help="An .html file.")],
    target: Annotated[
        str | None, typer.Option(help="For cove: the translation to look at; without it the run's own.")
    ] = None,
) -> None:
    """Where each token looks, by layer and head, as a page; of cove, each word of the translation."""
    from foretext.api import load
    from foretext.evaluate.attention_page import attention_page

    check_output(out)
    given = None if target is None else text_argument(target, "--target")
    write_whole(out, attention_page(load(run).model, text_argument(text, "the text"), given).encode("utf-8"))
    typer.echo(f"the page is {out}; open it in a browser", err=True)


def lm_eval(context: typer.Context) -> None:
    """lm-evaluation-harness on a run: --model_args run=RUN --tasks …, as its own command line has them."""
    from foretext.interop.lm_eval import run_harness

    run_harness(context.args)


def import_(
    source: Annotated[
        Path, typer.Argument(help="A Hugging Face folder, OpenAI's GPT files, or ELMo's options and hdf5.")
    ],
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read pickled weights too, with the restricted loader.")
    ] = False,
) -> None:
    """Make a run of weights that others trained; nothing in their folder is run."""
    from foretext.interop.exchange import import_model

    with shown_notes() as notes:
        path = import_model(source, out, allow_pickle, notes)
    typer.echo(f"the model is in {path}; next: foretext info {path}", err=True)


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The folder to make; of word vectors, the file.")],
    to: Annotated[str, typer.Option(help="hf (for transformers), or for word vectors word2vec, glove, gensim.")] = "hf",
) -> None:
    """Write a run's model for other libraries."""
    from foretext.interop.exchange import export_model

    show_notes(export_model(run, out, to))
    typer.echo(f"the model is in {out}", err=True)


def systems(as_json: Json = False) -> None:
    """The systems, and what each is made of."""
    from foretext.systems import SYSTEMS

    keys = ("paper", "base", "objective", "direction", "tokenizer", "transfer")
    table = {name: {k: getattr(s, k) for k in keys} | {"sizes": list(s.sizes)} for name, s in SYSTEMS.items()}
    lines = [
        line
        for name, facts in table.items()
        for line in (name, *(f"  {k:10} {', '.join(v) if k == 'sizes' else v}" for k, v in facts.items()))
    ]
    show(as_json, table, lines)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and report.html.")] = Path("demo-out"),
) -> None:
    """Everything, on text that is already on this machine: at most 15 minutes on 2 cores."""
    from rich.console import Console

    from foretext.demo.runner import Demo

    console = Console()
    with Stopper(console.print) as stopper:
        Demo(out, console=console, stopping=stopper).run()
