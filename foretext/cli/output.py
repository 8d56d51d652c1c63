"""What the command line shows, and how it ends: results, progress, one line for each error, documented exit codes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

import typer

from foretext.errors import EXIT_BUG, EXIT_MACHINE, EXIT_USER, Interrupted, UserError

if TYPE_CHECKING:
    from foretext.tasks.scores.metrics import Scores

EXIT_BROKEN_PIPE = 141
TRACEBACK = "FORETEXT_TRACEBACK"


# -- results ---------------------------------------------------------------------------------------------------------


def show_scores(scores: Scores, as_json: bool, title: str = "") -> None:
    """A task's metrics; for people under a title."""
    from foretext.tasks.scores.metrics import format_scores

    typer.echo(json.dumps(scores.to_dict(), ensure_ascii=False) if as_json else title + format_scores(scores))


def show_notes(notes: Iterable[str]) -> None:
    for note in notes:
        typer.echo(note, err=True)


def visible(piece: str) -> str:
    """A piece in which nothing is invisible."""
    return "".join("␣" if c == " " else c if c.isprintable() else c.encode("unicode_escape").decode() for c in piece)


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
