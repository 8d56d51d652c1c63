"""The loss curve of a run, as a picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foretext.runs.directory import RunDirectory
from foretext.text.corpus.whole_files import write_whole


def loss_curve_png(metrics: list[dict[str, Any]], path: Path) -> None:
    """Training and validation loss against tokens (fine-tuning: against steps), from the lines of metrics.jsonl."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    training: dict[str, list[tuple[float, float]]] = {}
    validation: list[tuple[float, float]] = []
    for record in metrics:
        for name, loss in record.get("losses", {}).items():
            training.setdefault(name, []).append((record["tokens"], loss))
        if "loss" in record.get("validation", {}):
            validation.append((record["tokens"], record["validation"]["loss"]))
    for name, points in training.items():
        axes.plot(*zip(*points), linewidth=0.8, alpha=0.7, label=f"training ({name})")
    if validation:
        axes.plot(*zip(*validation), marker="o", markersize=3, linewidth=1.4, label="validation")
    axes.set_xlabel("tokens seen")
    axes.set_ylabel("loss (nats)")
    axes.grid(alpha=0.3)
    if training or validation:
        axes.legend(frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_whole(path, picture.getvalue())


def write_curve(run: RunDirectory) -> None:
    """The loss curve as a picture in the run directory."""
    loss_curve_png(run.metrics(), run.path / "loss.png")


def _has_losses(run: RunDirectory) -> bool:
    """What learns in a way of its own may have none."""
    return any(record.get("losses") or record.get("validation") for record in run.metrics())


def draw_missing_curve(run: RunDirectory, note: Callable[[str], None]) -> None:
    """For a finished run that was killed between its last checkpoint and its picture."""
    if not (run.path / "loss.png").exists() and _has_losses(run):
        write_curve(run)
        note(f"{run.path / 'loss.png'} was missing and is drawn from the log")
