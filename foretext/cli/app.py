"""The command line: its verbs in the order of `--help`, each in a file of its own. A verb builds a request, calls one
function and prints what comes back; torch is imported only by verbs that need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from foretext import __version__
from foretext.cli.attention import attention
from foretext.cli.demo import demo
from foretext.cli.evaluate import evaluate
from foretext.cli.export_model import export
from foretext.cli.features import features
from foretext.cli.fill import fill
from foretext.cli.finetune import finetune
from foretext.cli.generate import generate
from foretext.cli.import_model import import_
from foretext.cli.info import info
from foretext.cli.lm_eval import lm_eval
from foretext.cli.nearest import nearest
from foretext.cli.output import run_app
from foretext.cli.predict import predict
from foretext.cli.pretrain import pretrain
from foretext.cli.prompt import prompt
from foretext.cli.systems import systems
from foretext.cli.tokens import tokens
from foretext.cli.translate import translate

app = typer.Typer(
    help="From a pile of unlabelled text and a few labels to a working language model.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
VERBS: dict[str, Callable[..., None]] = {
    "pretrain": pretrain,
    "finetune": finetune,
    "predict": predict,
    "evaluate": evaluate,
    "generate": generate,
    "translate": translate,
    "features": features,
    "nearest": nearest,
    "fill": fill,
    "tokens": tokens,
    "info": info,
    "prompt": prompt,
    "attention": attention,
    "lm-eval": lm_eval,
    "import": import_,
    "export": export,
    "systems": systems,
    "demo": demo,
}
THEIRS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}  # the harness's options
for name, verb in VERBS.items():
    app.command(name, context_settings=THEIRS if verb is lm_eval else None)(verb)


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
