"""Being asked to stop. The loop looks at `stop.requested` between steps; who asks (the command line's `Stopper`, by a
signal) is no concern of it."""

from __future__ import annotations

from typing import Protocol


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
