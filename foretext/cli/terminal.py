"""What the command line shows: live lines and bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foretext.runs.machine import clock
from foretext.runs.report import StepReport

QUIET_SECONDS = 2.0  # shorter work shows no bar
PLAIN_SECONDS = 15.0  # between plain lines off a terminal


class Terminal:
    """A reporter for people. Everything goes to standard error, so that standard output stays a result."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.live = self.console.is_terminal
        self._bar: Progress | None = None
        self._bar_id: TaskID | None = None
        self._title = ""
        self._since = 0.0
        self._last_plain = 0.0
        self._line_open = False

    def note(self, text: str) -> None:
        self._close()
        self.console.print(text, markup=False, soft_wrap=True)

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        self._close()
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
            self._close()
            return
        now = time.monotonic()
        if title != self._title:
            self._close()
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
            known = (TextColumn("{task.percentage:.0f} %"), TimeRemainingColumn()) if total else (TimeElapsedColumn(),)
            columns = (TextColumn("{task.description}"), BarColumn(), *known)
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.start()
            self._bar_id = self._bar.add_task(title, total=total or None)
        assert self._bar_id is not None
        self._bar.update(self._bar_id, completed=done, total=total or None)

    def close(self) -> None:
        self._close()

    def _show(self, line: str) -> None:
        if self.live:
            self._end_bar()
            width = self.console.width
            sys.stderr.write("\r\x1b[2K" + line[: width - 1])
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

    def _close(self) -> None:
        self._end_bar()
        if self._line_open:
            sys.stderr.write("\n")
            self._line_open = False
