"""The verbs that are little more than one call: what is in a run, and words or pieces of it; models of others, in and
out; the systems; the demo."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretext.cli.input import Json, RunArgument, check_output, language_model, load_run, text_argument
from foretext.cli.output import Stopper, show, show_notes, shown_notes, visible

if TYPE_CHECKING:
    from foretext.runs.inspection import Pieces


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
    from foretext.evaluate.attention_page import attention_page
    from foretext.text.corpus.text_files import write_whole

    check_output(out)
    given = None if target is None else text_argument(target, "--target")
    write_whole(out, attention_page(load_run(run).model, text_argument(text, "the text"), given).encode("utf-8"))
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
