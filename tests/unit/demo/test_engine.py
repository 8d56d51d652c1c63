"""The demonstration with the real engine, in minute sizes."""

import io
from pathlib import Path

import pytest
from complaints import names
from noting import Notes
from rich.console import Console
from systems_under_test import small_of, stopping_after

from foretext.demo.runner import Demo
from foretext.demo.tasks import TASKS
from foretext.errors import Interrupted
from foretext.runs.directory import RunDirectory
from foretext.runs.report import StopRequest
from foretext.runs.run_config import is_finished, read_position

SIZES = {"train": 16, "valid": 8, "test": 8}


class _StopOnce:
    """A request to stop that comes once a file is there: the run of the first fine-tuning."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def requested(self) -> int | None:
        return 130 if self.file.exists() else None


def demo(folder: Path, site: Path, stopping: StopRequest | None = None) -> tuple[Demo, Notes]:
    notes = Notes()
    console = Console(file=io.StringIO())
    made = Demo(folder, 5.0, 0.002, (0,), 1, SIZES, small_of("gpt"), console, [site], reporter=notes)
    made.stopping = stopping or StopRequest()
    return made, notes


@pytest.mark.thorough
def test_a_stop_in_either_training_is_gone_on_from(tmp_path: Path, site: Path) -> None:
    base = RunDirectory(tmp_path / "base")
    with stopping_after(1, code=143) as stop, pytest.raises(Interrupted) as stopped:
        demo(tmp_path, site, stop)[0].run()
    assert stopped.value.code == 143
    names(stopped.value, str(tmp_path), "again")
    assert base.has("training/optimizer.safetensors") and read_position(base).step == 1 and not is_finished(base)

    again, said = demo(tmp_path, site, _StopOnce(tmp_path / "tasks"))
    with pytest.raises(Interrupted) as stopped:
        again.run()
    assert stopped.value.code == 130 and any("step 1" in note for note in said.notes)
    assert is_finished(base)
    done = {f"{task} {side} 0" for task in TASKS for side in ("with", "without")}
    assert set(again.progress["scores"]) == done, "the first fine-tuning beside word vectors did not end"

    results = demo(tmp_path, site)[0].run()
    assert [one.task for one in results] == list(TASKS)
    assert all(len(one.with_pretraining) == len(one.without) == 1 for one in results)
    assert (tmp_path / "report.html").exists()
