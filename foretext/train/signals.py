"""Stopping by a signal: the step ends, a checkpoint is written, the exit code says which signal it was.

Only the command line uses `Stopper`; a library must not take a program's signal handlers, so the loop is handed a
`NeverStop` there. The loop asks `stop.requested` between steps.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest(Protocol):
    """What the loop looks at: the exit code (130 or 143) once a stop was asked for, None until then."""

    @property
    def requested(self) -> int | None: ...


class NeverStop:
    """For library use: nothing is installed and nothing is ever requested."""

    @property
    def requested(self) -> int | None:
        return None

    def __enter__(self) -> NeverStop:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Stopper:
    """A context manager over SIGINT and SIGTERM: the first sets `requested`, the second ends the process at once.

    `notice` gets one line at the first signal. Use it in the main thread; the handlers that stood before come back
    at the end.
    """

    def __init__(self, notice: Callable[[str], None] | None = None) -> None:
        self._requested: int | None = None
        self._notice = notice
        self._before: dict[int, Any] = {}
        self._process = 0

    @property
    def requested(self) -> int | None:
        return self._requested

    def __enter__(self) -> Stopper:
        self._process = os.getpid()
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # None: the handler was not installed from Python, and cannot be put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A forked worker: Ctrl-C goes to the whole group and is the parent's to answer; SIGTERM is how the parent
            # ends its workers.
            if number == signal.SIGTERM:
                _die_by(number)
            return
        if self._requested is not None:
            _die_by(number)
        self._requested = 128 + number
        if self._notice is not None:
            with contextlib.suppress(RuntimeError):  # the signal came in the middle of another write to the terminal
                self._notice("stopping; a second signal aborts at once")


def _die_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
