"""What the command line shows: results, progress lines and bars on a terminal, plain lines elsewhere. Also its signal
handling.

The first signal asks training to stop: the step ends, a checkpoint is written, and the exit code names the signal. Only
programs use `Stopper`: a library must not replace its caller's signal handlers, so there nothing stops the loop.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from foretext.runs.machine import clock
from foretext.runs.report import Reporter, StepReport, StopRequest

if TYPE_CHECKING:
    from rich.progress import Progress

    from foretext.evaluate.perplexity import Perplexity
    from foretext.tasks.scores.metrics import Scores
    from foretext.tasks.views.baselines import Baseline

QUIET_SECONDS = 2.0  # shorter work shows no bar
PLAIN_SECONDS = 15.0  # between plain lines when not on a terminal
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


# -- results -----------------------------------------------------------------------------------------------------------


def show_scores(scores: Scores, as_json: bool, title: str = "", beside: Mapping[str, Any] | None = None) -> None:
    """A task's metrics: for people under a title, for scripts together with the fields of `beside`."""
    from foretext.tasks.scores.metrics import format_scores

    if as_json:
        typer.echo(json.dumps(scores.to_dict() | dict(beside or {}), ensure_ascii=False))
    else:
        typer.echo(title + format_scores(scores))


def show_baselines(scores: Scores, rivals: Sequence[Baseline]) -> None:
    """The cheap baselines beside the model's own score."""
    from foretext.tasks.scores.metrics import wilson

    for rival in rivals:
        typer.echo(f"  {rival.name}: {rival.metric} {rival.value:.4f}")
    best = max(rivals, key=lambda rival: rival.value, default=None)
    if best is None or best.metric not in scores.values:
        return
    value = scores.values[best.metric]
    if best.value >= wilson(value, scores.rows)[0]:
        how = "better on these rows" if best.value > value else "as good on these rows, within the interval"
        typer.echo(f"{best.name} is {how}: more unlabelled text or more labels would help")


def show_perplexity(measured: Perplexity, as_json: bool) -> None:
    """The figures; with JSON, what a user needs to read them correctly is on standard error."""
    show(as_json, measured.to_dict(), measured.lines())
    show_notes(measured.notes() if as_json else ())


def show(as_json: bool, record: object, lines: Iterable[str]) -> None:
    """A result: JSON for a script, lines for people."""
    typer.echo(json.dumps(record, ensure_ascii=False) if as_json else "\n".join(lines))


def show_notes(notes: Iterable[str]) -> None:
    for note in notes:
        typer.echo(note, err=True)


@contextlib.contextmanager
def shown_notes() -> Iterator[list[str]]:
    """A list for a reader's notes; they are shown after it has read."""
    notes: list[str] = []
    yield notes
    show_notes(notes)


def visible(piece: str) -> str:
    """A token as visible characters."""
    return "".join("␣" if c == " " else c if c.isprintable() else c.encode("unicode_escape").decode() for c in piece)


def progress(title: str) -> Callable[[int, int], None]:
    """Show progress if the work takes more than two seconds."""
    return functools.partial(Terminal().work, title)


# -- the terminal ------------------------------------------------------------------------------------------------------


class Terminal(Reporter):
    """A reporter for people. It writes to standard error, so that standard output holds only the result."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False)
        self.live = self.console.is_terminal
        self._bar: Progress | None = None
        self._title = ""
        self._since = 0.0
        self._last_plain = 0.0
        self._line_open = False

    def note(self, text: str) -> None:
        self.close()
        self.console.print(text, markup=False, soft_wrap=True)

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        self.close()
        self.console.print(title, style="bold", markup=False, soft_wrap=True)
        wide = max(len(name) for name, _ in lines)
        for name, value in lines:
            self.console.print(f"  {name:{wide}}  {value}", markup=False, soft_wrap=True)

    def step(self, report: StepReport) -> None:
        parts = [f"step {report.step:,}"]
        for name, loss in report.losses.items():
            parts.append(f"{name} {loss:.3f}")
        if "lm" in report.losses:
            parts.append(f"perplexity {math.exp(min(report.losses['lm'], 50.0)):,.1f}")
        parts += [f"{report.tokens_per_second:,.0f} tokens/s", f"{report.progress:.0%}"]
        self._show("  ".join([*parts, f"{clock(report.seconds_left)} left"]))

    def evaluation(self, step: int, values: dict[str, float]) -> None:
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items() if name != "main")
        if shown:
            self.note(f"step {step:,}  validation: {shown}")

    def work(self, title: str, done: int, total: int) -> None:
        if total and done >= total:
            self.close()
            return
        now = time.monotonic()
        if title != self._title:
            self.close()
            self._title, self._since, self._last_plain = title, now, now
        if now - self._since < QUIET_SECONDS:
            return
        if not self.live:
            if now - self._last_plain > PLAIN_SECONDS:
                self._last_plain = now
                left = (now - self._since) * (total - done) / max(1, done)
                so_far = f"{done / total:.0%}, {clock(left)} left" if total else f"{clock(now - self._since)} so far"
                self.console.print(f"{title}: {so_far}", markup=False)
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            known = (TextColumn("{task.percentage:.0f} %"), TimeRemainingColumn()) if total else (TimeElapsedColumn(),)
            columns = (TextColumn("{task.description}"), BarColumn(), *known)
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.start()
            self._bar.add_task(title, total=total or None)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total or None)

    def _show(self, line: str) -> None:
        if self.live:
            self._end_bar()
            sys.stderr.write("\r\x1b[2K" + line[: self.console.width - 1])
            sys.stderr.flush()
            self._line_open = True
            return
        now = time.monotonic()
        if now - self._last_plain >= PLAIN_SECONDS or not self._last_plain:
            self._last_plain = now
            self.console.print(line, markup=False, soft_wrap=True)

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._title = ""

    def close(self) -> None:
        self._end_bar()
        if self._line_open:
            sys.stderr.write("\n")
            self._line_open = False


class Stopper(StopRequest):
    """A context manager over SIGINT and SIGTERM: the first signal sets `requested`, the second ends the process at
    once.

    `notice` gets one line at the first signal. Use it in the main thread; the previous handlers come back at the end.
    """

    requested: int | None = None

    def __init__(self, notice: Callable[[str], None] | None = None) -> None:
        self._notice = notice
        self._before: dict[int, Any] = {}
        self._process = 0

    def __enter__(self) -> Stopper:
        self._process = os.getpid()
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # None: the handler was not installed from Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A forked worker ignores both: Ctrl-C reaches the whole process group and the parent handles it; the parent
            # ends its workers with SIGTERM.
            if number == signal.SIGTERM:
                _die_by(number)
            return
        if self.requested is not None:
            _die_by(number)
        self.requested = 128 + number
        if self._notice is not None:
            with contextlib.suppress(RuntimeError):  # the signal interrupted another write to the terminal
                self._notice("stopping after this step; a second signal aborts at once")


def _die_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextlib.contextmanager
def watched() -> Iterator[tuple[Terminal, Stopper]]:
    """A terminal reporter and signal handling around a training."""
    terminal = Terminal()
    try:
        with Stopper(terminal.note) as stopper:
            yield terminal, stopper
    finally:
        terminal.close()
