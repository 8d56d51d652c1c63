"""A mistake that ends a new run before its first checkpoint leaves nothing behind, so that the same command, corrected,
can be given again."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator

from foretext.errors import EXIT_USER, UserError
from foretext.train.lock import LOCK
from foretext.train.rundir import RunDirectory, RunWriter


@contextlib.contextmanager
def writing(run: RunDirectory, notice: Callable[[str], None]) -> Iterator[RunWriter]:
    """`run.writer()`, undone by a user's mistake if there is no checkpoint yet. Files that were there before stay."""
    made = not run.path.exists()
    try:
        with run.writer(notice=notice) as writer:
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
