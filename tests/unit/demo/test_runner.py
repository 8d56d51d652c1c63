import base64
import io
from pathlib import Path

import pytest
from complaints import names, refused
from rich.console import Console

from foretext.demo.runner import Demo
from foretext.demo.tasks import CORPUS, TASKS, DemoData
from foretext.errors import Interrupted

CURVE = b"\x89PNG a picture"
SIZES = {"train": 40, "valid": 20, "test": 20}


class FakeDemo(Demo):
    """Takes no time but on the fake clock; fine-tuning with pre-training is better by a constant. A run that is there
    needs no time, but says how long it took."""

    sizes = SIZES
    clock = 0.0

    def __init__(self, folder: Path, site: Path, seconds: float = 5.0, stop_at: int | None = None) -> None:
        super().__init__(folder, Console(file=io.StringIO(), width=200))
        self.roots, self.seconds, self.stop_at = [site], seconds, stop_at
        self.deadline = 60 * self.minutes
        self.jobs: list[tuple[str, str, int]] = []
        self.pretrained: list[float] = []

    def now(self) -> float:
        return self.clock

    def pretrain(self, data: DemoData) -> None:
        assert (data.folder / CORPUS).is_file()
        base = self.runs / "base"
        base.mkdir(parents=True, exist_ok=True)
        if self.stop_at == -1:
            (base / "half").write_text("")
            raise KeyboardInterrupt
        (base / "loss.png").write_bytes(CURVE)
        self.clock += 60 * self.pretrain_minutes
        self.pretrained.append(self.pretrain_minutes)

    def finetune(self, data: DemoData, task: str, side: str, seed: int) -> tuple[float, float]:
        if self.stop_at is not None and len(self.jobs) == self.stop_at:
            raise KeyboardInterrupt
        run, spent = self.runs / f"{task}-{side}-{seed}", self.seconds * (4 if side == "default" else 1)
        if not run.exists():
            self.jobs.append((task, side, seed))
            self.clock += spent
            run.mkdir()
        return {"without": 0.5, "with": 0.7, "default": 0.9}[side] + 0.01 * seed, spent

    def generate(self, prompt: str) -> str:
        return "[bold]a sample[/bold] <b>"


def demo(folder: Path, site: Path, seconds: float = 5.0, stop_at: int | None = None, epochs: int = 3) -> FakeDemo:
    made = FakeDemo(folder, site, seconds, stop_at)
    made.epochs = epochs
    return made


def shown(made: Demo) -> str:
    assert isinstance(made.console.file, io.StringIO)
    return made.console.file.getvalue()


def test_it_promises_the_time_trains_both_sides_and_writes_everything(tmp_path: Path, site: Path) -> None:
    made = demo(tmp_path, site)
    results = made.run()
    text = shown(made)
    assert "at most 15 minutes on 2 cores" in text.splitlines()[0]
    assert text.count(" left]") >= 30  # every stage says how much time is left
    assert [one.task for one in results] == list(TASKS)
    for one in results:
        assert one.with_pretraining == pytest.approx([0.7, 0.71, 0.72])
        assert one.without == pytest.approx([0.5, 0.51, 0.52])
        assert one.default == pytest.approx([0.9])
    assert len(made.jobs) == len(set(made.jobs)) == 28
    assert made.pretrained == [pytest.approx(4.5)]
    assert "+20.0 ✓" in text
    assert "[bold]a sample[/bold] <b>" in text
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    names(page, "4 of 4 tasks")
    assert "[bold]a sample[/bold] &lt;b&gt;" in page
    assert base64.b64encode(CURVE).decode() in page, "the curve of the run"


def test_a_stage_says_how_much_time_is_left(tmp_path: Path, site: Path) -> None:
    made = demo(tmp_path, site)
    with made._stage("working"):
        made.clock += 61
    with made._stage("working on"):
        pass
    assert shown(made).splitlines() == ["[15:00 left] working", "[13:59 left] working on"]


def test_after_ctrl_c_what_is_done_is_used_again(tmp_path: Path, site: Path) -> None:
    with refused(str(tmp_path), "again", kind=Interrupted) as stopped:
        demo(tmp_path, site, stop_at=9).run()
    assert stopped.value.code == 130  # type: ignore[attr-defined]
    second = demo(tmp_path, site)
    results = second.run()
    assert len(second.jobs) == 28 - 9
    assert all(len(one.with_pretraining) == len(one.without) == 3 for one in results)


def test_pretraining_cut_short_is_gone_on_with(tmp_path: Path, site: Path) -> None:
    with pytest.raises(Interrupted):
        demo(tmp_path, site, stop_at=-1).run()
    assert (tmp_path / "runs" / "base" / "half").exists()
    again = demo(tmp_path, site)
    again.run()
    assert again.pretrained == [pytest.approx(4.5)]
    assert (tmp_path / "runs" / "base" / "half").exists()


def test_it_touches_no_folder_that_is_not_its_own(tmp_path: Path, site: Path) -> None:
    mine = tmp_path / "runs" / "base" / "model.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_text("three days of work")
    with refused(str(tmp_path / "runs"), "--out"):
        demo(tmp_path / "runs", site).run()
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == [mine]
    (tmp_path / "empty").mkdir()
    demo(tmp_path / "empty", site).run()
    with refused(str(mine), "--out"):
        demo(mine, site).run()


def test_results_of_another_plan_are_not_used(tmp_path: Path, site: Path) -> None:
    demo(tmp_path, site).run()
    (tmp_path / "runs" / "base" / "old").write_text("")
    other = demo(tmp_path, site, epochs=2)
    other.run()
    assert len(other.jobs) == 28 and other.pretrained == [pytest.approx(4.5)]
    assert not (tmp_path / "runs" / "base" / "old").exists()


@pytest.mark.parametrize(("seconds", "seeds"), [(15.0, 3), (19.0, 2), (60.0, 1)])
def test_seeds_that_do_not_fit_are_left_out_whole_and_said_so(
    tmp_path: Path, site: Path, seconds: float, seeds: int
) -> None:
    made = demo(tmp_path, site, seconds)
    results = made.run()
    assert made.clock <= 15 * 60
    assert {len(one.with_pretraining) for one in results} | {len(one.without) for one in results} == {seeds}
    late = [one.task for one in results if not one.default]
    assert bool(late) == (seconds == 60.0)
    assert len(made.notes) == len(late) + (seeds < 3)
    for note, said in zip(made.notes, [*late, f"seed {seeds}"], strict=False):
        names(note, said)
        assert note in shown(made) and note in (tmp_path / "report.html").read_text(encoding="utf-8")
