"""The demonstration with the real engine, in minute sizes."""

import io
from pathlib import Path

import pytest
from complaints import names
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


class SmallDemo(Demo):
    minutes, pretrain_minutes, epochs = 5.0, 0.01, 1
    seeds, sizes, sets = (0,), SIZES, small_of("gpt")


def demo(folder: Path, site: Path, stopping: StopRequest | None = None) -> Demo:
    made = SmallDemo(folder, Console(file=io.StringIO()), stopping)
    made.roots = [site]
    return made


@pytest.mark.thorough
def test_a_stop_in_either_training_is_gone_on_from(tmp_path: Path, site: Path) -> None:
    base = RunDirectory(tmp_path / "runs" / "base")
    with stopping_after(1, code=143) as stop, pytest.raises(Interrupted) as stopped:
        demo(tmp_path, site, stop).run()
    assert stopped.value.code == 143
    names(stopped.value, str(tmp_path), "again")
    assert base.has("training/optimizer.safetensors") and read_position(base).step == 1 and not is_finished(base)

    first = tmp_path / "runs" / f"{TASKS[0]}-default-0"
    with pytest.raises(Interrupted) as stopped:
        demo(tmp_path, site, _StopOnce(first)).run()
    assert stopped.value.code == 130
    assert is_finished(base)
    done = {path.name for path in (tmp_path / "runs").iterdir() if is_finished(RunDirectory(path))} - {"base"}
    assert done == {f"{task}-{side}-0" for task in TASKS for side in ("with", "without")}, "the first beside vectors"
    before = {name: (tmp_path / "runs" / name / "model.safetensors").stat().st_mtime_ns for name in done}

    results = demo(tmp_path, site).run()
    assert [one.task for one in results] == list(TASKS)
    assert all(len(one.with_pretraining) == len(one.without) == len(one.default) == 1 for one in results)
    assert before == {name: (tmp_path / "runs" / name / "model.safetensors").stat().st_mtime_ns for name in done}
    assert (tmp_path / "report.html").exists()
