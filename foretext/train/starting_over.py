"""A run that ends before its first checkpoint is not in the way of the same command, corrected: a mistake leaves
nothing behind, and what the machine or a fault ended is started over."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator

from foretext.errors import EXIT_USER, UserError
from foretext.runs.directory import RunDirectory, RunWriter
from foretext.runs.lock import LOCK
from foretext.runs.manifest import MANIFEST
from foretext.runs.metrics_log import METRICS
from foretext.runs.model import read_config
from foretext.text.corpus.token_shards import read_manifest

TOKENS = "tokens"  # folder of the token shards inside a run


def starts_over(run: RunDirectory, resume: bool) -> bool:
    """Whether a new run takes the place of one that did not reach its first checkpoint; UserError if it did."""
    if resume or not run.exists():
        return False
    if run.has("training/position.json") or run.has("model.safetensors"):
        raise UserError(f"{run.path} holds a run already; go on with --resume, or choose another --out")
    return True


@contextlib.contextmanager
def writing(run: RunDirectory, notice: Callable[[str], None], over: bool = False) -> Iterator[RunWriter]:
    """`run.writer()`, undone by a user's mistake if there is no checkpoint yet. Files that were there before stay, but
    for those of a run that is started `over`."""
    made = not run.path.exists()
    try:
        with run.writer(notice=notice) as writer:
            if over and starts_over(run, resume=False):  # once more, now that nobody else writes
                notice(f"{run.path}: starting over, an earlier start did not reach its first checkpoint")
                _clear(run, writer)
            before = {entry.name for entry in run.path.iterdir()} | {LOCK}
            fresh = not run.exists()
            try:
                yield writer
            except UserError as error:
                if fresh and error.code == EXIT_USER and not run.has("training/position.json"):
                    _remove_new(run, before)
                raise
    finally:
        if made:
            with contextlib.suppress(OSError):
                run.path.rmdir()  # which removes an empty directory only


def _remove_new(run: RunDirectory, before: set[str]) -> None:
    for entry in run.path.iterdir():
        if entry.name in before:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _clear(run: RunDirectory, writer: RunWriter) -> None:
    """Takes away what the run wrote, as its manifest and that of its shards say, and nothing else."""
    with contextlib.suppress(UserError):  # shards that are damaged, or of another text, are replaced when new ones come
        if read_manifest(run.path / TOKENS).tokenizer == read_config(run)["run"].tokenizer:
            shutil.rmtree(run.path / TOKENS, ignore_errors=True)
    writer.commit({}, remove=run.names())
    for name in (MANIFEST, METRICS):
        (run.path / name).unlink(missing_ok=True)
