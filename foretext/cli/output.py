"""What the command line shows, and how it ends: results, progress, one line for each error, documented exit codes."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from foretext.errors import EXIT_BUG, EXIT_MACHINE, EXIT_USER, Interrupted, UserError

if TYPE_CHECKING:
    from foretext.api import LanguageModel, TaskModel
    from foretext.evaluate.perplexity import Perplexity

EXIT_BROKEN_PIPE = 141
LARGE = 1e9  # figures from here on are written 1.234e+09
TRACEBACK = "FORETEXT_TRACEBACK"


# -- results ---------------------------------------------------------------------------------------------------------


def show_perplexity(
    model: LanguageModel, texts: list[str], stride: int | None, as_json: bool, memory: int | None = None
) -> None:
    from foretext.cli.terminal import Terminal

    measured = model.perplexity(texts, stride, progress("measuring"), Terminal(), memory)
    notes = _perplexity_notes(measured)
    if as_json:
        typer.echo(json.dumps(measured.to_dict(), allow_nan=False))
        for note in notes:
            typer.echo(note, err=True)
        return
    name = "pseudo-perplexity" if measured.pseudo else "perplexity"
    wide = len(name) + len(" per token")
    typer.echo(f"{name} per token  {_figure(measured.per_token)}  ({measured.tokens:,} tokens)")
    typer.echo(f"{name} per word   {_figure(measured.per_word)}  ({measured.words:,} words between white space)")
    typer.echo(f"{'bits per byte':{wide}}  {_figure(measured.bits_per_byte, 4)}  ({measured.bytes:,} bytes of UTF-8)")
    seen = f"context {measured.context} tokens, stride {measured.stride}, {measured.documents:,} documents"
    if measured.directions == 2:
        seen = f"{measured.documents:,} documents, each read whole from either end: the mean of both directions"
    elif measured.order is not None:
        seen += f"; each token by those before it, the {measured.order.replace(' ', '-')} order of the factorisation"
    elif measured.memory is not None:
        seen = f"each token after {measured.memory:,} tokens of memory at most, {measured.documents:,} documents"
    elif measured.context is None:
        seen = f"each token after all that stands before it in its document, {measured.documents:,} documents"
    typer.echo(seen)
    for note in notes:
        typer.echo(note)
    if measured.pseudo:
        typer.echo("each token was masked alone and seen from both sides: this does not compare with a causal model's")
    elif not measured.comparable:
        typer.echo("the tokenizer does not keep the text whole: bits per byte do not compare with other models'")


def _figure(value: float, digits: int = 3) -> str:
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "too large for a number"
    return f"{value:.3e}" if value >= LARGE else f"{value:,.{digits}f}"


def _perplexity_notes(measured: Perplexity) -> list[str]:
    """What a user must know to read the figures."""
    if math.isnan(measured.per_token):
        return ["the model's scores are not numbers (NaN): training went wrong; go back to an earlier run"]
    if measured.words and measured.per_word >= LARGE:
        length = measured.bytes / measured.words
        return [
            f"a word here is an unbroken run of characters, {length:,.0f} bytes on average: where no spaces stand "
            "between words, perplexity per word says little; use per token or bits per byte"
        ]
    return []


def show_validation(model: TaskModel, held_out: list[Any], run: Path | None, as_json: bool) -> None:
    """The best epoch's figures on the validation rows, with a picture of the confusion in the run directory if one is
    given."""
    from foretext.runs.report import Silent
    from foretext.tasks.scores.confusion_picture import confusion_matrix_png
    from foretext.tasks.scores.metrics import format_scores

    if not held_out:
        if as_json:
            typer.echo("null")
        return
    scores = model.evaluate(held_out, progress("validating"), reporter=Silent())  # what was cut is said already
    if as_json:
        typer.echo(json.dumps(scores.to_dict(), ensure_ascii=False))
    else:
        typer.echo(f"the best epoch on the validation rows:\n{format_scores(scores)}")
    if scores.confusion and run is not None:
        confusion_matrix_png(scores, run / "confusion.png")


def progress(title: str) -> Callable[[int, int], None]:
    """Shows work that takes more than two seconds."""
    from foretext.cli.terminal import Terminal

    return functools.partial(Terminal().work, title)


# -- the end ---------------------------------------------------------------------------------------------------------


class OutputError(UserError):
    """Standard output cannot be written."""


class _Output:
    """Standard output; what fails in writing to it says so, since the system's error does not name it."""

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
    """What is still buffered must not fail at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_app(app: typer.Typer) -> None:
    """Runs the command line. Whatever goes wrong is one line on standard error and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    try:
        with contextlib.redirect_stdout(_Output(sys.stdout)):
            code = _invoke(app)
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()  # whoever read the output wants no more
        code = EXIT_BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        message, code = explained(error)
        if os.environ.get(TRACEBACK) and code == EXIT_BUG:
            raise
        if isinstance(error, OutputError):
            _drop_output()
        typer.echo(f"foretext: {message}", err=True)
    sys.exit(code)


def _invoke(app: typer.Typer) -> int:
    """The verb itself. Typer's own `main` is left out, since it answers closed pipes and Ctrl-C in its own way."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("foretext", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as ended:  # --help
        return int(ended.exit_code)
    return 0


def explained(error: BaseException) -> tuple[str, int]:
    """The line for a user, and the exit code."""
    if isinstance(error, UserError):
        return str(error), error.code
    if isinstance(error, Interrupted):
        return str(error), error.code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", 130
    # Typer's usage errors are click's, or those of its own copy of click, by version: told by their shape.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return _usage(error), EXIT_USER
    from foretext.runs.machine import is_out_of_memory

    if is_out_of_memory(error):
        return "out of memory: close other programs, or use a smaller model or less text at a time", EXIT_MACHINE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", EXIT_MACHINE
    said = " ".join(str(error).split())
    return (
        f"internal error ({type(error).__name__}: {said}), which is a fault of foretext, not yours; "
        f"{TRACEBACK}=1 shows where",
        EXIT_BUG,
    )


def _usage(error: BaseException) -> str:
    message = " ".join(error.format_message().split()).removesuffix(".")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path if context else 'foretext'} --help"
