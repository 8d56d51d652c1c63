"""The loop over a toy objective: going on, carried state, non-finite losses, thawing, the best weights, time."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from complaints import names, refused
from noting import Notes
from systems_under_test import PLAIN
from tolerance import close, doubles, terms_of
from torch import Tensor, nn

import foretext.train.loop as module
from foretext.batch import Batch, LossSum, Outcome
from foretext.errors import EXIT_NOT_FINITE, Interrupted
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Draw, Objective
from foretext.plan import TransferPlan
from foretext.runs.directory import RunDirectory
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget, is_finished
from foretext.text.order import Order
from foretext.train.carried import from_tensors, split_again, to_tensors
from foretext.train.loop import AVERAGE, CARRIED, CURRENT, OPTIMIZER, Job, Loop, Stage
from foretext.train.optim import Group, Optimizer
from foretext.train.planning import expected, probe_speed


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    with doubles():
        yield


class ToyTrunk(Trunk):
    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Linear(3, 4)
        self.top = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.top(torch.tanh(self.bottom(x)))

    def new_state(self, rows: int) -> dict[str, Any]:
        """What `Toy` carries."""
        return {"memory": torch.zeros(rows, 4), "older": (torch.zeros(rows, 3), {"sum": torch.zeros(rows)})}


class Toy(Objective):
    """Squared distance of a projected vector from its own sum; with a memory, from the memory too.

    Rows of a batch keep their memory from step to step. Samples in `bad` make the loss NaN.
    """

    def __init__(self, carries: bool = False, bad: Sequence[int] = ()) -> None:
        super().__init__()
        self.head = nn.Linear(4, 1)
        self.weights = {"toy": 1.0}
        self.carries_state = carries
        self.bad = set(bad)

    def make(self, examples: Sequence[Tensor], draw: Draw) -> Batch:
        wrong = torch.tensor([math.nan if index in self.bad else 0.0 for index in draw.indices])
        return Batch(torch.stack(list(examples)), labels=wrong)

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"toy": float(len(batch.ids_BT))}

    def forward(self, trunk: Any, batch: Batch, state: Any = None) -> Outcome:
        x = batch.ids_BT
        hidden = trunk(x)
        assert (state is None) or self.carries_state
        if state is not None:
            assert not state["memory"].requires_grad
            hidden = hidden + state["memory"]
        noise = torch.rand(len(x))  # from the generator that the loop seeds
        losses = (self.head(hidden).squeeze(1) - x.sum(1) - 0.1 * noise) ** 2 + batch.labels
        total = LossSum(losses.sum(), float(len(x)))
        kept = {"memory": 0.5 * hidden, "older": (x, {"sum": hidden.sum(dim=-1)})} if self.carries_state else None
        return Outcome({"toy": total}, kept)


def toy_loop(
    writer: Any = None,
    objective: Toy | None = None,
    steps: int = 12,
    micro: int = 4,
    plan: TransferPlan | None = None,
    size: int = 8,
    **changes: Any,
) -> Loop:
    torch.manual_seed(7)
    trunk = ToyTrunk()
    objective = objective or Toy()
    objective.head.reset_parameters()
    data = torch.randn(size, 3, generator=torch.Generator().manual_seed(3))
    parameters = {f"trunk.{n}": p for n, p in trunk.named_parameters()}
    parameters |= {f"task.{n}": p for n, p in objective.named_parameters()}
    plan = plan or TransferPlan()
    names = [[name for name in parameters if part in name] for part in ("bottom", "top", "head")]
    groups = [
        Group(
            names[i],
            plan.rate_factor(i, 3),
            plan.thaws_at(i, 3, steps, -(-size // changes.get("batch_size", PLAIN.batch_size))),
        )
        for i in range(3)
    ]
    training = {name: changes.pop(name) for name in list(changes) if hasattr(PLAIN, name)}
    config = replace(PLAIN, **training)
    stage = Stage(lambda epoch, index: data[index], Order(size, config.batch_size, 0), micro)
    stage = replace(stage, **{name: changes.pop(name) for name in list(changes) if hasattr(stage, name)})
    settings: dict[str, Any] = {
        "trunk": trunk,
        "objective": objective,
        "stages": (stage,),
        "optimizer": Optimizer(config, parameters, groups),
        "config": config,
        "budget": Budget(steps=steps),
        "seed": 5,
        "device": torch.device("cpu"),
    }
    stopping, reporter = changes.pop("stopping", StopRequest()), changes.pop("reporter", Reporter())
    return Loop(Job(**(settings | changes)), writer, reporter, stopping)


def weights_of(loop: Loop) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}


def assert_equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


class StopAfter:
    """Asks for a stop at a given number of questions, which is a given number of steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    @property
    def requested(self) -> int | None:
        self.left -= 1
        return 130 if self.left <= 0 else None


# -- going on --------------------------------------------------------------------------------------------------------


def test_measuring_the_speed_in_the_middle_of_a_run_changes_nothing() -> None:
    loops = [toy_loop(objective=Toy(carries=True), steps=4) for _ in range(2)]
    for number, loop in enumerate(loops):
        loop._step()
        if number:
            assert loop.carried and probe_speed(loop) > 0.0
        loop.run()
    assert_equal(*(weights_of(loop) for loop in loops))


@pytest.mark.parametrize("carries", [False, True], ids=["stateless", "carried state"])
@pytest.mark.parametrize("micro", [4, 3, 1])
def test_stopping_after_every_step_changes_nothing(tmp_path: Path, carries: bool, micro: int) -> None:
    straight = toy_loop(objective=Toy(carries), micro=micro)
    straight.run()
    run = RunDirectory(tmp_path / "run")
    for turn in range(12):
        with run.writer() as writer:
            loop = toy_loop(writer, Toy(carries), micro=micro, stopping=StopAfter(1))
            assert loop.restore() == (turn > 0)
            assert loop.position.step == turn
            with pytest.raises(Interrupted) as stopped:
                loop.run()
            assert stopped.value.code == 130 and run.has(CARRIED) == carries and run.has(OPTIMIZER)
    with run.writer() as writer:
        loop = toy_loop(writer, Toy(carries), micro=micro)
        loop.restore()
        loop.run()
    assert_equal(weights_of(loop), weights_of(straight))
    assert_equal(run.load_tensors("model.safetensors"), weights_of(straight))
    assert is_finished(run) and run.names() == ["model.safetensors", "training/position.json"]


def test_two_runs_are_the_same_and_another_seed_is_not() -> None:
    first, second, other = toy_loop(), toy_loop(), toy_loop(seed=6)
    for loop in (first, second, other):
        loop.run()
    assert_equal(weights_of(first), weights_of(second))
    assert not torch.equal(weights_of(first)["task.head.weight"], weights_of(other)["task.head.weight"])


def test_the_log_of_a_resumed_run_has_no_step_twice(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        # Killed before the first checkpoint: the log has lines, the directory has no position.
        writer.log.append({"step": 0, "samples": [99]})
    for stop, saves in ((3, True), (4, False), (100, True)):
        with run.writer() as writer:
            loop = toy_loop(writer, stopping=StopAfter(stop), log_samples=True)
            loop.restore()
            if not saves:
                loop.save = lambda: None  # type: ignore[method-assign]  # killed before it could
            if stop < 100:
                with pytest.raises(Interrupted):
                    loop.run()
            else:
                loop.run()
    samples = [(row["step"], row["samples"]) for row in run.metrics() if "samples" in row]
    order = Order(8, 4, 0)
    assert samples == [(step, order.batch(step)[1]) for step in range(12)]


# -- stages ----------------------------------------------------------------------------------------------------------


def staged(writer: Any = None, **changes: Any) -> Loop:
    """Twelve steps: seven of two rows a step from ones, then five of three rows from twos."""

    def stage(value: float, rows: int, until: float) -> Stage:
        return Stage(lambda _, index: torch.full((3,), value), Order(6, rows, 0), rows, lambda: {"main": value}, until)

    changes = {"stages": (stage(1.0, 2, 0.55), stage(2.0, 3, 1.0))} | changes
    return toy_loop(writer, steps=12, log_samples=True, evaluations=12, **changes)


def test_each_stage_has_its_part_of_the_budget(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        loop = staged(writer)
        loop.run()
    assert [len(row["samples"]) for row in run.metrics() if "samples" in row] == [2] * 7 + [3] * 5
    assert loop.position.tokens == 3 * (7 * 2 + 5 * 3)
    # After the seventh step the eighth is next, and the second stage's examples are what validation is of.
    assert [row["validation"]["main"] for row in run.metrics() if "validation" in row] == [1.0] * 6 + [2.0] * 6


@pytest.mark.parametrize("carries", [False, True])
def test_going_on_is_in_the_stage_that_was_left(tmp_path: Path, carries: bool) -> None:
    straight = staged(objective=Toy(carries))
    straight.run()
    run = RunDirectory(tmp_path / "run")
    for _ in range(12):
        with run.writer() as writer:
            loop = staged(writer, objective=Toy(carries), stopping=StopAfter(1))
            loop.restore()
            with pytest.raises(Interrupted):
                loop.run()
    with run.writer() as writer:
        loop = staged(writer, objective=Toy(carries))
        loop.restore()
        loop.run()
    assert_equal(weights_of(loop), weights_of(straight))


@pytest.mark.parametrize("rows", [2, 3])
def test_nothing_is_carried_from_one_stage_to_the_next(rows: int) -> None:
    """Also where both have as many rows: those of the next read elsewhere. Within a stage, and over the end of none of
    its epochs, rows keep theirs."""
    ones, twos = (
        Stage(lambda _, index, value=value: torch.full((3,), value), Order(60, rows, 0), rows, dict, until)
        for value, until in ((1.0, 0.5), (2.0, 1.0))
    )
    given: list[bool] = []

    class Noting(Toy):
        def forward(self, trunk: Any, batch: Batch, state: Any = None) -> Outcome:
            given.append(state is not None)
            return super().forward(trunk, batch, state)

    toy_loop(objective=Noting(True), steps=8, stages=(ones, twos)).run()
    assert given == [False, True, True, True] * 2


@pytest.mark.parametrize(
    ("budget", "steps", "tokens", "seconds"),
    [
        (Budget(steps=100), 100, 6 * 55 + 9 * 45, 6 * 55 / 3 + 9 * 45 / 2),
        (Budget(tokens=3600), 330 + 180, 3600, 1980 / 3 + 1620 / 2),
        (Budget(minutes=1), 22, 99 + 54, 60.0),
    ],
    ids=["steps", "tokens", "minutes"],
)
def test_what_a_budget_comes_to(budget: Budget, steps: int, tokens: int, seconds: float) -> None:
    assert expected(staged(budget=budget), [3.0, 2.0]) == (steps, tokens, pytest.approx(seconds))


# -- carried state ---------------------------------------------------------------------------------------------------


def test_rows_keep_their_state_however_a_step_is_split() -> None:
    whole, split = toy_loop(objective=Toy(True), micro=4), toy_loop(objective=Toy(True), micro=2)
    for loop in (whole, split):
        for step in range(3):
            _, parts, _ = loop.batches(step)
            loop.gradients(step, parts)
    memory = torch.cat([split.carried[number]["memory"] for number in (0, 1)])
    close(memory, whole.carried[0]["memory"], terms=terms_of(3 * (3 + 4)))  # three steps of two layers


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_states_are_split_again(size: int) -> None:
    rows = torch.arange(5)

    def state(part: slice, places: int) -> Any:
        real = torch.arange(places).expand(len(rows[part]), -1) >= places - 2
        return {"h": rows[part], "memory": (rows[part, None, None] * real[..., None], real)}

    parts = split_again({0: state(slice(0, 2), 2), 1: state(slice(2, 4), 3), 2: state(slice(4, 5), 2)}, size)
    for number, part in parts.items():
        own = slice(number * size, (number + 1) * size)
        assert torch.equal(part["h"], rows[own])
        states, real = part["memory"]
        assert torch.equal(states[:, -2:], rows[own, None, None].expand(-1, 2, 1)) and bool(real[:, -2:].all())
        assert not bool(real[:, :-2].any())
    assert sum(len(part["h"]) for part in parts.values()) == 5 and split_again({}, size) == {}


def test_states_go_through_tensors() -> None:
    states = {0: (torch.ones(2), {"h": torch.zeros(1, 2), "c": (torch.tensor(3),)}), 11: torch.arange(4)}
    back = from_tensors(to_tensors(states), torch.device("cpu"))
    assert set(back) == {0, 11} and torch.equal(back[11], torch.arange(4))
    assert isinstance(back[0], tuple) and torch.equal(back[0][1]["h"], torch.zeros(1, 2))
    assert isinstance(back[0][1]["c"], tuple) and back[0][1]["c"][0] == 3
    many = (torch.tensor(0), *(torch.tensor(i) for i in range(1, 12)))
    assert [int(t) for t in from_tensors(to_tensors({0: many}), torch.device("cpu"))[0]] == list(range(12))


# -- losses that are not finite --------------------------------------------------------------------------------------


def test_a_bad_step_updates_nothing_and_is_logged(tmp_path: Path) -> None:
    notes = Notes()
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        loop = toy_loop(writer, Toy(True, bad=[2]), steps=4, reporter=notes)
        before, updates = weights_of(loop), []
        for _ in range(4):
            loop._step()
            updates.append(not torch.equal(before["task.head.weight"], loop.model.state_dict()["task.head.weight"]))
            before = weights_of(loop)
            assert all(bool(torch.isfinite(state["memory"]).all()) for state in loop.carried.values())
    bad = [step for step in range(4) if 2 in Order(8, 4, 0).batch(step)[1]]
    assert updates == [step not in bad for step in range(4)] and len(bad) == 2 == loop.position.bad_steps
    logged = [row for row in run.metrics() if "bad_step" in row]
    assert [row["step"] for row in logged] == bad
    assert [row["bad_step"]["samples"] for row in logged] == [Order(8, 4, 0).batch(step)[1] for step in bad]
    assert all(row["bad_step"]["losses"] == {"toy": "nan"} for row in logged)
    assert len(notes.notes) == 2
    for step, said in zip(bad, notes.notes):
        names(said, f"step {step}", str(run.path / "metrics.jsonl"))


@pytest.mark.parametrize("micro", [4, 2])
def test_after_a_bad_step_the_carried_state_is_that_before_it(micro: int) -> None:
    """Also where the state itself is finite: it belongs to samples that were passed over."""
    order = Order(24, 4, 0)  # six steps an epoch, at whose start no state is left
    loop = toy_loop(objective=Toy(True, bad=order.batch(3)[1][:1]), steps=6, micro=micro, size=24)
    seen = set()
    for step in range(6):
        before, bad = to_tensors(loop.carried), step == 3
        before = {name: tensor.clone() for name, tensor in before.items()}
        loop._step()
        after = to_tensors(loop.carried)
        if bad:
            assert_equal(after, before)
        else:
            assert after and not all(name in before and torch.equal(after[name], before[name]) for name in after)
        seen.add((bad, bool(before)))
    assert {(True, True), (False, True)} <= seen


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_bad_steps_are_bounded(tmp_path: Path, allowed: int) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        loop = toy_loop(writer, Toy(bad=range(8)), bad_steps=allowed)
        before = weights_of(loop)
        with refused(f"step {allowed}", str(run.path / "metrics.jsonl"), "training.rate", "--resume") as stopped:
            loop.run()
        assert_equal(weights_of(loop), before)
    assert stopped.value.code == EXIT_NOT_FINITE == 3
    assert len([row for row in run.metrics() if "bad_step" in row]) == allowed + 1


@pytest.mark.parametrize("on_disk", [True, False])
def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path, on_disk: bool) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        loop = toy_loop(writer if on_disk else None, rate=math.inf, steps=1)
        with refused("step 1", "trunk.bottom.weight", "training.rate", "--resume") as stopped:
            loop.run()
    assert stopped.value.code == EXIT_NOT_FINITE and not run.exists() and not loop.position.finished


def test_a_gradient_that_is_not_finite_is_no_update_either() -> None:
    loop = toy_loop(bad_steps=0)
    loop.job.trunk.top.register_full_backward_hook(lambda *_: (torch.full((4, 4), math.inf),))
    before = weights_of(loop)
    with refused("step 0", "training.rate") as stopped:
        loop.run()
    assert stopped.value.code == EXIT_NOT_FINITE
    assert_equal(weights_of(loop), before)


def test_the_count_of_bad_steps_survives_going_on(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        loop = toy_loop(writer, Toy(bad=range(8)), bad_steps=3, stopping=StopAfter(2))
        with pytest.raises(Interrupted):
            loop.run()
    with run.writer() as writer:
        loop = toy_loop(writer, Toy(bad=range(8)), bad_steps=3)
        loop.restore()
        with refused("step 3", "--resume"):
            loop.run()
        assert loop.position.bad_steps == 4


@pytest.mark.parametrize("saved", [True, False])
def test_the_samples_of_bad_steps_outlive_going_on(tmp_path: Path, saved: bool) -> None:
    """Also twice over, without growing: those after the checkpoint are kept once for each step, and marked."""
    run = RunDirectory(tmp_path / "run")
    if saved:
        with run.writer() as writer, pytest.raises(Interrupted):
            toy_loop(writer, Toy(bad=range(8)), bad_steps=3, stopping=StopAfter(2)).run()
    start = 2 if saved else 0
    for _ in range(3):
        with run.writer() as writer:
            loop = toy_loop(writer, Toy(bad=range(8)), bad_steps=3)
            assert loop.restore() == saved
            with refused("step 3", "--resume"):
                loop.run()
            assert loop.position.bad_steps == 4
    with (tmp_path / "run" / "metrics.jsonl").open("a") as log:
        log.write('{"bad_step": not JSON\n{"bad_step": {"samp')
    with run.writer() as writer:
        loop = toy_loop(writer, Toy(), bad_steps=3, steps=6)
        loop.restore()
        loop.run()
    logged = [row for row in run.metrics() if "bad_step" in row]
    assert [(row["step"], row.get("undone")) for row in logged] == [
        (step, True if step >= start else None) for step in range(4)
    ]
    assert [row["bad_step"]["samples"] for row in logged] == [Order(8, 4, 0).batch(step)[1] for step in range(4)]
    assert all(isinstance(row["step"], int) for row in run.metrics())


# -- thawing ---------------------------------------------------------------------------------------------------------


def test_frozen_groups_neither_learn_nor_count_in_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = toy_loop(plan=TransferPlan(thaw="gradual"), steps=8)  # two steps an epoch
    clipped: list[int] = []
    real = module.clip_gradients

    def watched(gradients: list[Tensor], limit: float) -> float:
        clipped.append(len(gradients))
        return real(gradients, limit)

    monkeypatch.setattr(module, "clip_gradients", watched)
    parts = {"bottom": "trunk.bottom.weight", "top": "trunk.top.weight", "head": "task.head.weight"}
    for step in range(8):
        before = weights_of(loop)
        loop._step()
        after = weights_of(loop)
        learning = {"head", "top", "bottom"} if step >= 4 else {"head", "top"} if step >= 2 else {"head"}
        assert clipped[-1] == sum(name.split(".")[1] in learning for name in after)
        assert {part for part, name in parts.items() if not torch.equal(before[name], after[name])} == learning
    assert {name for name in loop.job.optimizer.state if "bottom.weight" in name}


# -- the best weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("values", "best"), [((1, 5, 3, 2), 1), ((1, 1, 1, 1), 0), ((math.nan, 1, math.nan, 2), 3)])
def test_the_weights_of_the_best_evaluation_are_kept(tmp_path: Path, values: tuple[float, ...], best: int) -> None:
    seen: list[dict[str, Tensor]] = []

    def evaluate() -> dict[str, float]:
        seen.append(weights_of(loop))
        return {"main": float(values[len(seen) - 1])}

    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        loop = toy_loop(writer, steps=8, evaluate=evaluate, evaluate_every=2, keep_best="main", save_seconds=0.0)
        loop.run()
    assert len(seen) == 4
    assert_equal(weights_of(loop), seen[best])
    assert_equal(run.load_tensors("model.safetensors"), seen[best])
    position = json.loads(run.read("training/position.json"))
    assert position["best"] == values[best] and position["best_step"] == 2 * (best + 1)
    assert not run.has(CURRENT)


def test_going_on_keeps_both_the_best_and_the_current_weights(tmp_path: Path) -> None:
    values = iter([5.0, 1.0, 2.0, 3.0])
    table = {2: 5.0, 4: 1.0, 6: 2.0, 8: 3.0}

    def build(writer: Any, stopping: Any) -> Loop:
        def evaluate() -> dict[str, float]:
            return {"main": table[loop.position.step]}

        loop = toy_loop(writer, steps=8, evaluate_every=2, keep_best="main", stopping=stopping, evaluate=evaluate)
        return loop

    straight = build(None, StopRequest())
    straight.run()
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer, pytest.raises(Interrupted):
        build(writer, StopAfter(5)).run()
    assert run.has(CURRENT)
    with run.writer() as writer:
        loop = build(writer, StopRequest())
        loop.restore()
        assert loop.position.best == next(values)
        loop.run()
    assert_equal(weights_of(loop), weights_of(straight))


def test_without_anything_to_validate_on_the_last_weights_are_kept() -> None:
    plain, kept = toy_loop(steps=8), toy_loop(steps=8, evaluate_every=2)
    plain.run()
    kept.run()
    assert_equal(weights_of(kept), weights_of(plain))


# -- time ------------------------------------------------------------------------------------------------------------


class Clock:
    """Time that passes only where the test says so: .01 s for a sample, .2 s for a validation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(module, "REPORT_SECONDS", 0.0)

    def sample(self, epoch: int, index: int) -> Tensor:
        self.now += 0.01
        return torch.ones(3)

    def evaluate(self) -> dict[str, float]:
        self.now += 0.2
        return {"loss": 1.0}

    def loop(self, writer: Any, **changes: Any) -> Loop:
        budget = Budget(minutes=0.05)
        return toy_loop(writer, budget=budget, example=self.sample, evaluate=self.evaluate, evaluations=4, **changes)


def test_a_budget_of_minutes_ends_when_the_time_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rates = Clock(monkeypatch), []

    class Watch(Reporter):
        def step(self, report: Any) -> None:
            rates.append(report.rate)

    loop = clock.loop(None, reporter=Watch())
    loop.run()
    assert loop.position.finished
    assert 2.9 < clock.now - 1000.0 <= 3.0 + 1e-9, "with its last validation, and not a step early"
    assert loop.position.seconds == pytest.approx(clock.now - 1000.0)
    assert 50 < loop.position.step < 70
    assert max(rates) == pytest.approx(PLAIN.rate, rel=0.02) and rates[-1] < 0.05 * PLAIN.rate


@pytest.mark.parametrize("saved", [True, False], ids=["after a checkpoint", "before any"])
def test_time_spent_since_the_last_checkpoint_counts_too(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill leaves the log, and no checkpoint of what it tells."""
    clock = Clock(monkeypatch)
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        loop = clock.loop(writer, stopping=StopAfter(25))
        if not saved:
            monkeypatch.setattr(Loop, "save", lambda self: None)
        with pytest.raises(Interrupted):
            loop.run()
        writer.log.append({"step": 99, "tokens": 1, "seconds": 1.4})  # a step that nothing was kept of
    with run.writer() as writer:
        loop = clock.loop(writer)
        assert loop.restore() is saved
        assert loop.position.seconds == pytest.approx(1.4)
        assert (loop.position.step == 25) is saved
        assert all(record["step"] <= 25 for record in run.metrics())
        begun = clock.now
        loop.run()
    assert 1.4 < clock.now - begun <= 1.6 + 1e-9, "what is left of three seconds"


def test_checkpoints_are_a_tenth_of_the_minutes_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    saves: list[float] = []
    monkeypatch.setattr(Loop, "save", lambda self: (saves.append(clock.now), setattr(self, "_last_saved", clock.now)))
    with RunDirectory(tmp_path / "run").writer() as writer:
        clock.loop(writer).run()
    gaps = [after - before for before, after in itertools.pairwise([1000.0, *saves])]
    assert len(saves) >= 8 and max(gaps) < 0.3 + 0.2


def test_time_already_spent_counts_when_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer, pytest.raises(Interrupted):
        clock.loop(writer, stopping=StopAfter(25)).run()
    spent = clock.now - 1000.0
    assert spent > 1.0
    clock.now += 500.0  # nobody trains meanwhile
    with run.writer() as writer:
        loop = clock.loop(writer)
        loop.restore()
        assert loop.position.seconds == pytest.approx(spent)
        loop.run()
    assert 2.9 < clock.now - 1500.0 <= 3.0 + 1e-9
    assert loop.position.seconds == pytest.approx(clock.now - 1500.0)


# -- halving ---------------------------------------------------------------------------------------------------------


def test_the_rate_is_halved_every_epoch_after_a_loss_has_risen(tmp_path: Path) -> None:
    """An evaluation an epoch, of two steps; also after going on."""
    table = {2: 9.0, 4: 7.0, 6: 8.0, 8: 6.0, 10: 5.0, 12: 5.0}

    def build(writer: Any, stopping: Any, rates: list[float]) -> Loop:
        def evaluate() -> dict[str, float]:
            return {"loss": table[loop.position.step]}

        changes = {"schedule": "halving", "warmup": 0.0, "rate": 0.01}
        loop = toy_loop(writer, steps=12, stopping=stopping, evaluate=evaluate, **changes)
        real = loop.job.optimizer.step

        def stepping(rate: float) -> None:
            rates.append(rate)
            real(rate)

        loop.job.optimizer.step = stepping  # type: ignore[method-assign]
        return loop

    rates: list[float] = []
    straight = build(None, StopRequest(), rates)
    straight.run()
    assert rates == [0.01 * factor for factor in (1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125)]
    run, again = RunDirectory(tmp_path / "run"), list[float]()
    with run.writer() as writer, pytest.raises(Interrupted):
        build(writer, StopAfter(7), again).run()
    with run.writer() as writer:
        loop = build(writer, StopRequest(), again)
        loop.restore()
        loop.run()
    assert again == rates
    assert_equal(weights_of(loop), weights_of(straight))


# -- losses in turn, averaged weights --------------------------------------------------------------------------------


class InTurn(Toy):
    """Two losses of which a batch has one, by its first sample; averaged weights predict."""

    average = 0.8

    def __init__(self) -> None:
        super().__init__()
        self.weights = {"toy": 1.0, "other": 2.0}

    def make(self, examples: Sequence[Tensor], draw: Draw) -> Batch:
        return Batch(torch.stack(list(examples)), labels=torch.tensor([draw.indices[0] % 2]))

    def counts(self, batch: Batch) -> dict[str, float]:
        odd = float(batch.labels[0])  # type: ignore[index]
        return {"toy": len(batch.ids_BT) * (1 - odd), "other": len(batch.ids_BT) * odd}

    def forward(self, trunk: Any, batch: Batch, state: Any = None) -> Outcome:
        name = "other" if int(batch.labels[0]) else "toy"  # type: ignore[index]
        total = (self.head(trunk(batch.ids_BT)).squeeze(1) - batch.ids_BT.sum(1)).square().sum()
        return Outcome({name: LossSum(total, float(len(batch.ids_BT)))})


def test_a_loss_that_a_step_is_not_about_is_not_reported() -> None:
    reported: list[dict[str, float]] = []

    class Watch(Reporter):
        def step(self, report: Any) -> None:
            reported.append(report.losses)

    loop = toy_loop(objective=InTurn(), batch_size=1, micro=1, reporter=Watch())
    loop.model.train()
    single = [loop._step() for _ in range(8)]
    assert {tuple(losses) for losses in single} == {("toy",), ("other",)}
    loop._step_seconds, loop._last_reported = 1.0, math.inf  # nothing is reported before step 50
    for losses in single:
        loop._report(losses, 1)
    loop.position.step = 50
    loop._report({"toy": 4.0}, 1)
    mean = [sum(own) / len(own) for own in ([each[n] for each in single if n in each] for n in ("toy", "other"))]
    close(reported[-1]["other"], mean[1], terms=8)
    assert reported[-1].keys() == {"toy", "other"}


@pytest.mark.parametrize("keep_best", [None, "main"])
def test_averaged_weights_predict_are_saved_and_survive_every_stop(tmp_path: Path, keep_best: str | None) -> None:
    table = {2: 1.0, 4: 9.0, 6: 2.0, 8: 3.0}
    evaluated: list[dict[str, Tensor]] = []

    def build(writer: Any, stopping: Any = None) -> Loop:
        def evaluate() -> dict[str, float]:
            evaluated.append(weights_of(loop))
            return {"main": table[loop.position.step]}

        changes = {"evaluate": evaluate, "evaluate_every": 2, "keep_best": keep_best}
        loop = toy_loop(writer, InTurn(), steps=8, stopping=stopping or StopRequest(), **changes)
        return loop

    straight = build(None)
    slow = {name: p.detach().clone() for name, p in straight.job.optimizer.parameters.items()}
    at_step: dict[int, dict[str, Tensor]] = {}
    real = straight.job.optimizer.step

    def stepping(rate: float) -> None:
        real(rate)
        update = straight.position.step + 1
        decay = min(0.8, update / (9 + update))
        for name, parameter in straight.job.optimizer.parameters.items():
            slow[name] = decay * slow[name] + (1 - decay) * parameter.detach()
        at_step[update] = dict(slow)

    straight.job.optimizer.step = stepping  # type: ignore[method-assign]
    straight.run()
    terms = terms_of(8 * 3)  # eight means of two
    for step, seen in zip((2, 4, 6, 8), evaluated):
        close({name: seen[name] for name in slow}, at_step[step], terms=terms)
    close(weights_of(straight), at_step[4 if keep_best else 8], terms=terms)
    run = RunDirectory(tmp_path / "run")
    for stops in (3, 2, 1):
        with run.writer() as writer, pytest.raises(Interrupted):
            loop = build(writer, StopAfter(stops))
            loop.restore()
            loop.run()
        assert run.has(CURRENT) and run.has(AVERAGE)
        if keep_best is None:
            saved = run.load_tensors("model.safetensors")
            close({name: saved[name] for name in slow}, at_step[loop.position.step], terms=terms)
    with run.writer() as writer:
        loop = build(writer)
        loop.restore()
        loop.run()
    assert_equal(weights_of(loop), weights_of(straight))
    assert_equal(run.load_tensors("model.safetensors"), weights_of(straight))
    assert not run.has(CURRENT) and not run.has(AVERAGE) and not run.has(OPTIMIZER)
