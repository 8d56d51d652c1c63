"""The command line: its verbs in the order of `--help`. A verb builds a request, calls one function and prints the
result. Only verbs that need torch import it. Every failure ends as one line on standard error and a documented exit
code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TextIO

import typer

from foretext import __version__
from foretext.cli.verbs.attention import attention
from foretext.cli.verbs.demo import demo
from foretext.cli.verbs.evaluate import evaluate
from foretext.cli.verbs.export_model import export
from foretext.cli.verbs.features import features
from foretext.cli.verbs.fill import fill
from foretext.cli.verbs.finetune import finetune
from foretext.cli.verbs.generate import generate
from foretext.cli.verbs.import_model import import_
from foretext.cli.verbs.info import info
from foretext.cli.verbs.lm_eval import lm_eval
from foretext.cli.verbs.nearest import nearest
from foretext.cli.verbs.predict import predict
from foretext.cli.verbs.pretrain import pretrain
from foretext.cli.verbs.prompt import prompt
from foretext.cli.verbs.systems import systems
from foretext.cli.verbs.tokens import tokens
from foretext.cli.verbs.translate import translate
from foretext.errors import EXIT_BUG, EXIT_MACHINE, EXIT_USER, Interrupted, UserError

EXIT_BROKEN_PIPE = 141
TRACEBACK = "FORETEXT_TRACEBACK"

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
# the options of lm-evaluation-harness
THEIRS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
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


# -- the end -----------------------------------------------------------------------------------------------------------


class OutputError(UserError):
    """Writing to standard output failed."""


class _Output:
    """Standard output whose write errors say so: the system's own error does not name the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._named():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._named():
            self._stream.flush()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(
                f"standard output cannot be written ({error.strerror or error}); "
                "make room there, or send the output elsewhere",
                EXIT_MACHINE,
            ) from None


def _drop_output() -> None:
    """Discard what is still buffered, so that flushing it at interpreter exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """The program `foretext`. Every failure becomes one line on standard error and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    try:
        with contextlib.redirect_stdout(_Output(sys.stdout)):
            code = _invoke()
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()  # the reader closed the pipe
        code = EXIT_BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        message, code = explained(error)
        if os.environ.get(TRACEBACK) and code == EXIT_BUG:
            raise
        if isinstance(error, OutputError):
            _drop_output()
        typer.echo(f"foretext: {message}", err=True)
    sys.exit(code)


def _invoke() -> int:
    """Run the verb. Typer's own `main` is not used: it handles closed pipes and Ctrl-C differently."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("foretext", spread(sys.argv[1:])) as context:
            command.invoke(context)
    except typer.Exit as ended:  # --help
        return int(ended.exit_code)
    return 0


def spread(arguments: list[str]) -> list[str]:
    """Rewrite `finetune ROWS --text A B C`, which a shell makes of a glob, as `--text A --text B --text C`. If no file
    comes before `--text`, a later argument may be the rows, so nothing is changed."""
    if len(arguments) < 2 or arguments[0] != "finetune" or arguments[1].startswith("-"):
        return arguments
    words: list[str] = []
    of_text = False
    for argument in arguments:
        if of_text and not argument.startswith("-") and words[-1] != "--text":
            words.append("--text")
        words.append(argument)
        of_text = argument == "--text" or (of_text and not argument.startswith("-"))
    return words


def explained(error: BaseException) -> tuple[str, int]:
    """The error line for the user, and the exit code."""
    if isinstance(error, UserError | Interrupted):
        return str(error), error.code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", 130
    # Depending on its version, Typer raises click's usage errors or those of a bundled copy of click. We recognise both
    # by their attributes.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        message = " ".join(error.format_message().split()).removesuffix(".")
        context = getattr(error, "ctx", None)
        return f"{message}; see {context.command_path if context else 'foretext'} --help", EXIT_USER
    from foretext.runs.machine import is_out_of_memory

    if is_out_of_memory(error):
        return "out of memory: close other programs, or use a smaller model or less text at a time", EXIT_MACHINE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", EXIT_MACHINE
    reason = " ".join(str(error).split())
    return (
        f"internal error ({type(error).__name__}: {reason}): a bug in foretext, not your mistake; {TRACEBACK}=1 shows "
        "where",
        EXIT_BUG,
    )


if __name__ == "__main__":
    main()
