"""The command line: its verbs in the order of `--help`. Those that only hand over stand here, the others in the `cli_*`
files. Each reads its arguments and leaves the work to the package; torch is imported only by verbs that need it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from foretext import __version__
from foretext.cli.evaluate import evaluate, predict
from foretext.cli.features import attention, features, fill, tokens
from foretext.cli.finetune import finetune, pretrain
from foretext.cli.generate import generate
from foretext.cli.options import Json, RunArgument
from foretext.cli.output import run_app
from foretext.cli.prompt import prompt
from foretext.cli.translate import translate

app = typer.Typer(
    help="From a pile of unlabelled text and a few labels to a working language model.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command()(pretrain)
app.command()(finetune)
app.command()(predict)
app.command()(evaluate)
app.command()(generate)
app.command()(translate)
app.command()(features)
app.command()(fill)
app.command()(tokens)


@app.command()
def info(run: RunArgument, as_json: Json = False) -> None:
    """What is in a run directory."""
    from foretext.runs.directory import RunDirectory
    from foretext.runs.inspection import describe_run, summary_of

    if as_json:
        typer.echo(json.dumps(describe_run(RunDirectory(run)), ensure_ascii=False))
    else:
        typer.echo(summary_of(RunDirectory(run)))


app.command()(prompt)
app.command()(attention)


@app.command(
    "lm-eval", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def lm_eval(context: typer.Context) -> None:
    """lm-evaluation-harness on a run: --model_args run=RUN --tasks …, as its own command line has them."""
    from foretext.interop.lm_eval import run_harness

    run_harness(context.args)


@app.command("import")
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

    notes: list[str] = []
    path = import_model(source, out, allow_pickle, notes)
    for note in notes:
        typer.echo(note, err=True)
    typer.echo(f"the model is in {path}; next: foretext info {path}", err=True)


@app.command()
def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    to: Annotated[str, typer.Option(help="hf: a folder that transformers loads.")] = "hf",
) -> None:
    """Write a run's model for other libraries."""
    from foretext.interop.exchange import export_model

    for note in export_model(run, out, to):
        typer.echo(note, err=True)
    typer.echo(f"the model is in {out}", err=True)


@app.command()
def systems(as_json: Json = False) -> None:
    """The systems, and what each is made of."""
    from foretext.systems import SYSTEMS

    keys = ("paper", "base", "objective", "direction", "tokenizer", "transfer")
    if as_json:
        table = {name: {k: getattr(s, k) for k in keys} | {"sizes": list(s.sizes)} for name, s in SYSTEMS.items()}
        typer.echo(json.dumps(table, ensure_ascii=False))
        return
    for name, system in SYSTEMS.items():
        typer.echo(name)
        for key in keys:
            typer.echo(f"  {key:10} {getattr(system, key)}")
        typer.echo(f"  {'sizes':10} {', '.join(system.sizes)}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and report.html.")] = Path("demo-out"),
) -> None:
    """Everything, on text that is already on this machine: at most 15 minutes on 2 cores."""
    from rich.console import Console

    from foretext.demo.runner import Demo
    from foretext.train.signals import Stopper

    console = Console()
    with Stopper(console.print) as stopper:
        Demo(out, console=console, stopping=stopper).run()


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    if version:
        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """The program `foretext`."""
    run_app(app)


if __name__ == "__main__":
    main()
