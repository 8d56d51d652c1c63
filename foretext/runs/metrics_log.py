"""metrics.jsonl: the append-only log of a run, one JSON object a line, and its loss curve as a picture.

It is not in the manifest: it grows between checkpoints. A checkpoint's position records how long the log was; going on
cuts it back to that, so that the log of a stopped run ends up equal to that of one that was never stopped. What was
bad about steps that are undone so is kept, since it is what a user looks for: see `Loop.restore`.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretext.errors import refuse_if
from foretext.runs.commit import sync_file
from foretext.runs.machine import write_error
from foretext.text.corpus.text_files import write_whole

METRICS = "metrics.jsonl"
CURVE = "loss.png"


class MetricsLog:
    """The writing side; opened at the first use, so that a run that logs nothing has no log."""

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        self.path = folder / METRICS
        self._notice = notice
        self._descriptor: int | None = None

    def _open(self) -> int:
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                self._descriptor = os.open(self.path, flags, 0o666)
            except OSError as error:
                raise write_error(self.path, error) from None
        return self._descriptor

    def size(self) -> int:
        """Bytes so far: what a checkpoint's position records."""
        return os.fstat(self._open()).st_size

    def append(self, values: Mapping[str, Any]) -> None:
        """Adds one line. A number that is not finite becomes null, because JSON has no other word for it."""
        line = (json.dumps(_finite(values), ensure_ascii=False, allow_nan=False) + "\n").encode()
        descriptor, before = self._open(), self.size()
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(descriptor, before)
            raise write_error(self.path, error, len(line)) from None

    def rows_after(self, size: int, key: str) -> list[dict[str, Any]]:
        """The lines beyond `size` bytes that have `key`; what cannot be read is passed over: it is cut off anyway."""
        lines = os.pread(self._open(), max(0, self.size() - size), size).split(b"\n")[:-1]
        return [row for row in map(_object_in, lines) if row is not None and key in row]

    def truncate(self, size: int) -> None:
        """Back to `size` bytes, where the checkpoint left it."""
        descriptor, before = self._open(), self.size()
        if before < size:
            self._notice(
                f"{self.path}: {size - before:,} bytes shorter than at the checkpoint; lines of the log are lost"
            )
            size = os.pread(descriptor, before, 0).rfind(b"\n") + 1  # no half line
        os.ftruncate(descriptor, size)

    def sync(self) -> None:
        if self._descriptor is not None:
            sync_file(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All whole lines of a run's log; a last line that is still being written is left out."""
    path = folder / METRICS
    try:
        rows = [_object_in(line) for line in path.read_bytes().split(b"\n")[:-1]]
    except FileNotFoundError:
        return []
    for number, row in enumerate(rows, start=1):
        refuse_if(row is None, f"{path} line {number}: not a JSON object; remove that line")
    return [row for row in rows if row is not None]


def _object_in(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None if it has none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


# -- the picture -------------------------------------------------------------------------------------------------------


def loss_curve_png(metrics: list[dict[str, Any]], path: Path) -> None:
    """Training and validation loss against tokens (fine-tuning: against steps), from the lines of metrics.jsonl."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    training: dict[str, list[tuple[float, float]]] = {}
    for record in metrics:
        for name, loss in record.get("losses", {}).items():
            training.setdefault(name, []).append((record["tokens"], loss))
    validation = [(one["tokens"], one["validation"]["loss"]) for one in metrics if "loss" in one.get("validation", {})]
    for name, points in training.items():
        axes.plot(*zip(*points), linewidth=0.8, alpha=0.7, label=f"training ({name})")
    if validation:
        axes.plot(*zip(*validation), marker="o", markersize=3, linewidth=1.4, label="validation")
    axes.set(xlabel="tokens seen", ylabel="loss (nats)")
    axes.grid(alpha=0.3)
    if training or validation:
        axes.legend(frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_whole(path, picture.getvalue())


def write_curve(folder: Path) -> None:
    """The loss curve of the run in a folder, as a picture there."""
    loss_curve_png(read_metrics(folder), folder / CURVE)


def draw_missing_curve(folder: Path, note: Callable[[str], None]) -> None:
    """For a finished run that was killed between its last checkpoint and its picture."""
    drawn = any(record.get("losses") or "validation" in record for record in read_metrics(folder))
    if drawn and not (folder / CURVE).exists():
        write_curve(folder)
        note(f"{folder / CURVE} was missing and is drawn from the log")
