import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from complaints import names, refused
from rich.console import Console

from foretext.demo.engine import FineTuning, read_curve
from foretext.demo.report import LossPoint
from foretext.demo.results import Finished, ResultBook
from foretext.demo.runner import MEASURED, ROW_LADDER, Demo, DemoSettings, count_rows
from foretext.demo.tasks import TASKS, TaskLimits
from foretext.errors import Interrupted
from foretext.train.signals import StopRequest

LIMITS = TaskLimits(train=40, train_entailment=40, valid=20, test=20, valid_share=0.2, test_share=0.3)
MEASURING = len(MEASURED)  # fine-tunings before the first that counts


class FakeEngine:
    """Takes no time but on the fake clock; fine-tuning with pre-training is better by a constant."""

    def __init__(self, seconds: float = 5.0, stop_at: int | None = None) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.stop_at = stop_at
        self.jobs: list[FineTuning] = []
        self.pretrained: list[float] = []
        self.width = 128

    def settings(self) -> dict[str, object]:
        return {"width": self.width}

    def pretrain(self, corpus: Path, minutes: float, out: Path, seed: int, stopping: StopRequest) -> None:
        assert corpus.is_file()
        out.mkdir(parents=True, exist_ok=True)
        if self.stop_at == -1:
            (out / "half").write_text("")
            raise KeyboardInterrupt
        self.now += 60 * minutes
        self.pretrained.append(minutes)

    def finetune(self, base: Path, job: FineTuning, stopping: StopRequest) -> tuple[str, float]:
        if self.stop_at is not None and len(self.jobs) == self.stop_at:
            raise KeyboardInterrupt
        self.jobs.append(job)
        self.now += self.seconds * count_rows(job.train) / 40 * job.epochs / 3
        return "accuracy", 0.5 + 0.2 * job.pretrained + 0.01 * job.seed

    def generate(self, base: Path, prompt: str, seed: int) -> str:
        return "[bold]a sample[/bold] <b>"

    def curve(self, base: Path) -> list[LossPoint]:
        return [LossPoint(1, 10, 9.0, 9.0), LossPoint(2, 20, 5.0, 5.0)]

    def facts(self, base: Path) -> dict[str, str]:
        return {"engine": "fake"}


def demo(
    folder: Path, site: Path, engine: FakeEngine, settings: DemoSettings | None = None
) -> tuple[Demo, io.StringIO]:
    stream = io.StringIO()
    settings = settings or DemoSettings(folder, limits=LIMITS)
    return Demo(settings, engine, Console(file=stream, width=200), roots=[site], now=lambda: engine.now), stream


def test_it_promises_the_time_trains_both_sides_and_writes_everything(tmp_path: Path, site: Path) -> None:
    engine = FakeEngine()
    runner, stream = demo(tmp_path, site, engine)
    results = runner.run()
    text = stream.getvalue()
    assert "at most 15 minutes on 2 cores" in text.splitlines()[0]
    assert text.count(" left]") >= 26  # every stage says how much time is left
    assert [one.task for one in results] == list(TASKS)
    for one in results:
        assert one.with_pretraining == pytest.approx([0.7, 0.71, 0.72])
        assert one.without == pytest.approx([0.5, 0.51, 0.52])
    assert len(engine.jobs) == MEASURING + 24
    assert engine.pretrained == [pytest.approx(5.25)]
    assert "+20.0 ✓" in text
    assert "[bold]a sample[/bold] <b>" in text
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    names(page, "4 of 4 tasks")
    assert "[bold]a sample[/bold] &lt;b&gt;" in page


def test_both_sides_see_the_same_rows_and_test_rows_choose_nothing(tmp_path: Path, site: Path) -> None:
    engine = FakeEngine()
    demo(tmp_path, site, engine)[0].run()
    for job in engine.jobs[MEASURING:]:
        assert job.valid.name == f"{job.task}-valid.csv"
        assert job.test.name == f"{job.task}-test.csv"
    for task in TASKS:
        assert len({(job.train, job.epochs) for job in engine.jobs[MEASURING:] if job.task == task}) == 1
    assert [job.out.name for job in engine.jobs if job.out] == list(TASKS)


def test_after_ctrl_c_what_is_done_is_used_again(tmp_path: Path, site: Path) -> None:
    first = FakeEngine(stop_at=MEASURING + 9)
    with refused(str(tmp_path), "again", kind=Interrupted) as stopped:
        demo(tmp_path, site, first)[0].run()
    assert stopped.value.code == 130  # type: ignore[attr-defined]
    second = FakeEngine()
    results = demo(tmp_path, site, second)[0].run()
    assert second.pretrained == []
    assert len(second.jobs) == 24 - 9
    assert all(len(one.with_pretraining) == len(one.without) == 3 for one in results)


def test_another_engine_starts_over(tmp_path: Path, site: Path) -> None:
    demo(tmp_path, site, FakeEngine())[0].run()
    wider = FakeEngine()
    wider.width = 256
    demo(tmp_path, site, wider)[0].run()
    assert len(wider.pretrained) == 1 and len(wider.jobs) == MEASURING + 24


def test_pretraining_cut_short_is_gone_on_with(tmp_path: Path, site: Path) -> None:
    with pytest.raises(Interrupted):
        demo(tmp_path, site, FakeEngine(stop_at=-1))[0].run()
    assert (tmp_path / "base" / "half").exists()
    engine = FakeEngine()
    demo(tmp_path, site, engine)[0].run()
    assert engine.pretrained == [pytest.approx(5.25)]
    assert (tmp_path / "base" / "half").exists()


def test_it_touches_no_folder_that_is_not_its_own(tmp_path: Path, site: Path) -> None:
    mine = tmp_path / "runs" / "base" / "model.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_text("three days of work")
    with refused(str(tmp_path / "runs"), "--out"):
        demo(tmp_path / "runs", site, FakeEngine())[0].run()
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == [mine]
    (tmp_path / "empty").mkdir()
    demo(tmp_path / "empty", site, FakeEngine())[0].run()
    with refused(str(mine), "--out"):
        demo(mine, site, FakeEngine())[0].run()


def test_results_of_another_plan_are_not_used(tmp_path: Path, site: Path) -> None:
    demo(tmp_path, site, FakeEngine())[0].run()
    engine = FakeEngine()
    settings = DemoSettings(tmp_path, epochs=2, limits=LIMITS)
    demo(tmp_path, site, engine, settings)[0].run()
    assert len(engine.jobs) == MEASURING + 24
    assert engine.pretrained == [pytest.approx(5.25)]


@pytest.mark.parametrize("seconds", [30.0, 60.0, 100.0])
def test_a_slower_machine_gets_fewer_rows_and_stays_within_the_time(tmp_path: Path, site: Path, seconds: float) -> None:
    engine = FakeEngine(seconds)
    runner, stream = demo(tmp_path, site, engine)
    results = runner.run()
    assert engine.now <= 15 * 60
    share = json.loads((runner.folder / "plan.json").read_text())["share"]
    assert share in ROW_LADDER[1:]
    for job in engine.jobs[MEASURING:]:
        whole = count_rows(runner.folder / "data" / f"{job.task}-train.csv")
        assert count_rows(job.train) == int(whole * share)
    names(stream.getvalue(), f" {share:.0%} ")
    assert len({len(one.with_pretraining) for one in results} | {len(one.without) for one in results}) == 1


def test_seeds_that_do_not_fit_are_left_out_whole_and_said_so(tmp_path: Path, site: Path) -> None:
    engine = FakeEngine(seconds=200.0)
    runner, stream = demo(tmp_path, site, engine)
    results = runner.run()
    done = {len(one.with_pretraining) for one in results} | {len(one.without) for one in results}
    assert done == {1}
    (note,) = runner.notes
    names(note, "seed 1")
    assert note in stream.getvalue() and note in (tmp_path / "report.html").read_text(encoding="utf-8")


ONE = Finished("choice", True, 0, "accuracy", 0.5, 3.0, 40, 20)


def test_the_book_survives_a_line_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultBook(path, {"a": 1}).add(ONE)
    with path.open("a") as stream:
        stream.write('{"plan": "x", "task": "cho')
    ResultBook(path, {"a": 1}).add(replace(ONE, seed=1, score=0.6))
    assert ResultBook(path, {"a": 1}).scores("choice", True) == [0.5, 0.6]
    assert ResultBook(path, {"a": 2}).all() == []


def test_the_curve_is_read_from_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"step": 1, "tokens": 8, "losses": {"lm": 9.0}, "rate": 0.1},
        {"step": 1, "tokens": 8, "samples": [1, 2]},
        {"step": 2, "tokens": 16, "validation": {"loss": 8.5, "perplexity": 4914.8}},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    first, second = read_curve(path)
    assert first == LossPoint(1, 8, 9.0, None)
    assert (second.step, second.tokens, second.valid_loss) == (2, 16, 8.5) and math.isnan(second.train_loss)
    assert read_curve(tmp_path / "none") == []
