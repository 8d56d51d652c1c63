"""A run that exists already: started over, or resumed.

A run that ended before its first checkpoint does not block the corrected command: a user's mistake leaves nothing
behind, and a run that the machine or a bug ended is started over. When resuming with a changed configuration, the
changes are shown, and those that are impossible are refused. A finished run gets its loss curve drawn if it is missing.
"""

import contextlib
import dataclasses
import io
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from foretext.config import Change, Setting, difference, setting_of
from foretext.errors import EXIT_USER, UserError, refuse_if
from foretext.runs.commit import RunWriter
from foretext.runs.directory import MANIFEST, METRICS, LogLine, RunDirectory
from foretext.runs.lock import LOCK
from foretext.runs.run_config import POSITION, FinetuneConfig, PretrainConfig, read_config
from foretext.text.corpus.shards import read_manifest
from foretext.text.corpus.text_files import write_whole

Config = TypeVar("Config", PretrainConfig, FinetuneConfig)

CURVE = "loss.png"
TOKENS = "tokens"  # folder of the token shards inside a run
# Keys of config.toml that follow from something else, and what to use instead.
DERIVED = {
    "model.vocabulary": "it follows from the tokenizer; use --set tokenizer.size=…",
    "model.dropout": "it follows from the training; use --set training.dropout=…",
    "model.lsa_dimensions": "it follows from the text; use --set objective.lsa=…",
    "model.lsa_pairs": "it follows from the text; use --set objective.lsa=…",
    "data.inputs": "name the text before the options",
    "data.source": "use --source FILE",
    "data.target": "use --target FILE",
    "data.vectors": "use --vectors FILE",
    "transfer.reader.given": "use --vectors RUN_OR_FILE",
    "data.starts_from": "use --from RUN",
}
# Keys that may change on resuming, because the weights so far do not depend on them.
CHANGEABLE = (
    "training.save_seconds",
    "training.evaluations",
    "training.log_samples",
    "training.bad_steps",
    "training.rate",
    "training.final_rate",
    "training.micro_batch",
    "budget.",
    "run.foretext",
    "task.texts",  # follow from the rows and the text, which are the same; runs of earlier versions lack them
    "task.sentences",
)


# -- what may be set ---------------------------------------------------------------------------------------------------


def check_seed(seed: int) -> None:
    refuse_if(not 0 <= seed < 1 << 63, f"seed must be at least 0 and below 2**63, not {seed}")


def check_sets(sets: Sequence[str | Setting], options: Mapping[str, str] | None = None) -> None:
    """Refuses to set a key that follows from something else, or that one of `options` (key → its option) sets."""
    for setting in map(setting_of, sets):
        if setting.key in DERIVED:
            raise UserError(f"{setting.where}: {DERIVED[setting.key]}")
        if options and setting.key in options:
            raise UserError(f"{setting.where}: {options[setting.key]} the same; leave one of them out")


def check_vectors(sets: Sequence[str | Setting], vectors: int, width: int, file: str | Path) -> None:
    """Refuses `model.vectors` (its value with `sets` applied) if it differs from the width of the vectors in `file`."""
    for setting in map(setting_of, sets):
        refuse_if(
            setting.key == "model.vectors" and vectors != width,
            f"{setting.where}: the vectors in {file} have {width} dimensions; leave it out",
        )


# -- starting over -----------------------------------------------------------------------------------------------------


def starts_over(run: RunDirectory, resume: bool) -> bool:
    """Whether a new run replaces one that did not reach its first checkpoint; UserError if it did."""
    if resume or not run.exists():
        return False
    refuse_if(
        run.has(POSITION) or run.has("model.safetensors"),
        f"{run.path} already holds a run; continue it with --resume, or choose another --out",
    )
    return True


@contextlib.contextmanager
def writing(run: RunDirectory, notice: Callable[[str], None], over: bool = False) -> Iterator[RunWriter]:
    """`run.writer()`. After a user's mistake it is undone if there is no checkpoint yet. Files that were there before
    stay, except those of a run that is started `over`."""
    new_folder = not run.path.exists()
    try:
        with run.writer(notice=notice) as writer:
            if over and starts_over(run, resume=False):  # again, now that nobody else can write
                notice(f"{run.path}: starting over; the earlier start did not reach its first checkpoint")
                _clear(run, writer)
            before = {entry.name for entry in run.path.iterdir()} | {LOCK}
            new_run = not run.exists()
            try:
                yield writer
            except UserError as error:
                if new_run and error.code == EXIT_USER and not run.has(POSITION):
                    _remove_new(run, before)
                raise
    finally:
        if new_folder:
            with contextlib.suppress(OSError):
                run.path.rmdir()  # removes it only if empty


def _remove_new(run: RunDirectory, before: set[str]) -> None:
    for entry in run.path.iterdir():
        if entry.name in before:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _clear(run: RunDirectory, writer: RunWriter) -> None:
    """Deletes what the run wrote, according to its manifest and that of its shards, and nothing else."""
    with contextlib.suppress(UserError):  # damaged or foreign shards are replaced when new ones are written
        if read_manifest(run.path / TOKENS).tokenizer == read_config(run).run.tokenizer:
            shutil.rmtree(run.path / TOKENS, ignore_errors=True)
    writer.commit({}, remove=run.names())
    for name in (MANIFEST, METRICS):
        (run.path / name).unlink(missing_ok=True)


# -- going on ----------------------------------------------------------------------------------------------------------


def agreed(old: Config, new: Config, where: Path, note: Callable[[Change], None] = lambda change: None) -> Config:
    """`new` if it differs from `old` only in keys that may change; `note` gets each change. The tokenizer's keys are
    known only once the tokenizer exists."""
    run = dataclasses.replace(new.run, tokenizer=old.run.tokenizer)
    model = dataclasses.replace(new.model, vocabulary=old.model.vocabulary)
    new = dataclasses.replace(new, run=run, model=model)
    changes = difference(old.by_name(), new.by_name())
    for change in changes:
        refuse_if(
            not change.key.startswith(CHANGEABLE),
            f"{where}: {change.key} was {change.old!r} and cannot become {change.new!r} on resuming; leave it out, or "
            "start a new run",
        )
    for change in changes:
        note(change)
    return new


def going_on(change: Change) -> str:
    return f"resuming with a changed setting: {change}"


def finished(where: Path, changes: Sequence[Change], then: str = "") -> str:
    """The message for a run that is finished, even if settings were given that would change it."""
    given = ", ".join(str(change) for change in changes if change.key != "run.foretext")
    if not given:
        return f"{where} is finished; nothing to do{then}"
    return f"{where} is finished, so the new settings are not used ({given}){then}"


# -- the picture of one that is done -----------------------------------------------------------------------------------


def loss_curve_png(metrics: list[LogLine], path: Path) -> None:
    """Training and validation loss against tokens (fine-tuning: steps), from the lines of metrics.jsonl, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    training: dict[str, list[tuple[float, float]]] = {}
    for record in metrics:
        for name, loss in record.get("losses", {}).items():
            training.setdefault(name, []).append((record["tokens"], loss))
    validation = [
        (record["tokens"], record["validation"]["loss"]) for record in metrics if "loss" in record.get("validation", {})
    ]
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


def write_curve(run: RunDirectory) -> None:
    """Writes the loss curve of a run into its folder."""
    loss_curve_png(run.metrics(), run.path / CURVE)


def draw_missing_curve(run: RunDirectory, note: Callable[[str], None]) -> None:
    """For a finished run that was killed between its last checkpoint and its picture."""
    drawn = any(record.get("losses") or "validation" in record for record in run.metrics())
    if drawn and not (run.path / CURVE).exists():
        write_curve(run)
        note(f"{run.path / CURVE} was missing; drew it from the log")
