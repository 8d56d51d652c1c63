"""What a plan says of memory and of the model on top."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from complaints import names, refused
from systems_under_test import BY_GRADIENTS, SHAPE, base_model, pretrain_request, stopping_after, write_text
from torch import Tensor, nn

from foretext.errors import EXIT_MACHINE, Interrupted
from foretext.nn.recurrent.cove import CoveConfig
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import size_text
from foretext.runs.report import Reporter
from foretext.systems.transformer_xl import SIZES
from foretext.tasks.files.rows import rows_from
from foretext.train import planning
from foretext.train.carried import to_tensors
from foretext.train.finetuning.finetune import FinetuneRequest, finetune
from foretext.train.loop import Job, Loop
from foretext.train.optim import Optimizer
from foretext.train.planning import Memory, check_memory, disk_needed, head_size
from foretext.train.pretraining.pretrain import pretrain

ROWS = [("good one", "a"), ("bad one", "b")] * 6


def test_memory_counts_what_is_learned_on_top_of_the_trunk(monkeypatch: pytest.MonkeyPatch) -> None:
    trunk, whole = Memory(SHAPE, 2, 8), Memory(SHAPE, 2, 8, head=1_000_000)
    assert whole.states() - trunk.states() == 16 * 1_000_000 == whole.needed() - trunk.needed()
    assert head_size(nn.Linear(3, 2)) == 8
    monkeypatch.setattr(planning, "available_memory", lambda: trunk.needed())
    check_memory(trunk)
    with refused("weights", size_text(whole.states()), size_text(trunk.needed()), "--size") as no:
        check_memory(whole)
    assert no.value.code == EXIT_MACHINE and "training." not in str(no.value)


def test_memory_and_disk_count_what_never_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = Memory(CoveConfig(vocabulary=9, vectors=4, width=8), 2, 8)
    many = replace(few, model=CoveConfig(vocabulary=1009, vectors=4, width=8))
    assert many.states() - few.states() == 1000 * 4 * 4
    assert replace(many, keeps_best=True).states() - replace(few, keeps_best=True).states() == 2 * 1000 * 4 * 4
    jobs: list[Job] = []
    monkeypatch.setattr("foretext.train.pretraining.pretrain.check_disk", lambda run, job: jobs.append(job))
    pretrain(pretrain_request("cove", write_text(tmp_path), tmp_path / "run", 1))
    (job,) = jobs
    learned = [p.numel() for p in (*job.trunk.parameters(), *job.objective.parameters())]
    vectors = job.trunk.state_dict()["vectors.table_VE"].numel()
    numbers, tensors = 3 * sum(learned) + vectors, 3 * len(learned) + 1  # AdamW keeps two beside each
    assert disk_needed(job) == 2 * (4 * numbers + 256 * tensors)


@pytest.mark.parametrize("system", BY_GRADIENTS)
def test_memory_and_disk_count_what_is_carried_from_step_to_step(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LSTMs' states and memories, when these are full; nothing of systems that carry nothing."""
    jobs: list[Job] = []
    held: dict[int, Any] = {}
    save = Loop.save

    def watched(loop: Loop) -> None:
        held.update(loop.carried)
        save(loop)

    monkeypatch.setattr("foretext.train.pretraining.pretrain.check_disk", lambda run, job: jobs.append(job))
    monkeypatch.setattr(Loop, "save", watched)
    sets = ("training.micro_batch=3",)
    with stopping_after(4) as stop, pytest.raises(Interrupted):
        pretrain(pretrain_request(system, write_text(tmp_path), tmp_path / "run", 12, *sets), stopping=stop)
    (job,) = jobs
    kept = to_tensors(held)
    actual = sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
    assert actual <= 4 * job.carried <= 1.05 * actual and bool(actual) == job.objective.carries_state
    assert sum(stored(state) for state in held.values()) == actual, "and no more than that is held"
    sizes = RunDirectory(tmp_path / "run").sizes()
    checkpoint = sum(size for name, size in sizes.items() if name.startswith(("model.", "training/")))
    assert disk_needed(job) - disk_needed(replace(job, carried=0)) == 2 * 4 * job.carried
    assert 2 * checkpoint <= disk_needed(job)


def stored(state: Any) -> int:
    """Bytes that the tensors of a state keep in memory."""
    if isinstance(state, Tensor):
        return state.untyped_storage().nbytes()
    return sum(stored(part) for part in (state.values() if isinstance(state, dict) else state))


def test_rows_whose_memories_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = replace(SIZES["paper"].model, vocabulary=300_000)
    numbers = shape.carried(SIZES["paper"].pretraining.batch_size)
    assert numbers == pytest.approx(236e6 / 4, rel=0.01)
    without, whole = (Memory(shape, 1, 8, carried=count) for count in (0, numbers))
    assert whole.needed() - without.needed() == 2 * 4 * numbers and whole.states() == without.states()
    monkeypatch.setattr(planning, "available_memory", lambda: whole.states() + 4 * numbers)
    check_memory(without)
    with refused("carried", "472.4 MB", "--set training.batch_size=") as no:
        check_memory(whole)
    assert no.value.code == EXIT_MACHINE


class Plans(Reporter):
    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        self.lines = dict(lines)


def planned(monkeypatch: pytest.MonkeyPatch, *sets: str, system: str = "gpt", epochs: int = 1) -> dict[str, str]:
    monkeypatch.setattr(Loop, "run", lambda self: self.position)
    heard = Plans()
    rows: list[Any] = rows_from(ROWS, "classification")
    finetune(FinetuneRequest(base_model(system), rows, "classification", valid=[], epochs=epochs, sets=sets), heard)
    return heard.lines


@pytest.mark.parametrize(("epochs", "thaw"), [(6, "gradual"), (3, "gradual"), (1, "gradual"), (6, "all")])
def test_the_time_is_that_of_layers_that_thaw_one_by_one(
    epochs: int, thaw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two layers, embeddings and head: each that learns makes a token half a millisecond dearer."""
    steps = epochs * 4
    starts = [min(4 * below, int(0.75 * steps * below / 3)) for below in (1, 2, 3)] if thaw == "gradual" else []

    def milliseconds(step: int) -> float:
        return 1.0 + 0.5 * sum(step >= start for start in starts)

    monkeypatch.setattr(planning, "LEAST_TO_PROBE", 1)
    monkeypatch.setattr(planning, "probe_speed", lambda loop, stage=None, thawed=0, step=0: 1000 / milliseconds(thawed))
    sets = (f"transfer.thaw={thaw}", "training.batch_size=3")
    said = planned(monkeypatch, *sets, system="ulmfit", epochs=epochs)["time"]
    spent = [milliseconds(step) for step in range(steps)]
    names(said, f" {1000 * steps / sum(spent):,.0f} tokens/s")


def test_what_learns_at_first_and_at_last_is_what_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    real = Optimizer.thaw

    def thaw(self: Optimizer, step: int) -> None:
        heard.append(step)
        real(self, step)

    monkeypatch.setattr(planning, "LEAST_TO_PROBE", 1)
    monkeypatch.setattr(Optimizer, "thaw", thaw)
    planned(monkeypatch, "transfer.thaw=gradual", "training.batch_size=3", system="ulmfit", epochs=4)
    assert {0, 12} == set(heard)


def test_the_plan_says_where_the_text_is_too_short_for_the_streams(tmp_path: Path) -> None:
    text, heard = write_text(tmp_path, 20), Plans()
    pretrain(pretrain_request("ulmfit", text, tmp_path / "long", 1), heard)
    assert "streams" not in heard.lines
    request = pretrain_request("ulmfit", text, tmp_path / "short", 1, "training.batch_size=400")
    pretrain(request, heard)
    assert re.fullmatch(r"\d\d [^\d]* 400\b[^\d]*", heard.lines["streams"]), "so many, not what was asked for"


HALF = "objective.length=0.5"


def test_streams_of_half_a_context_are_twice_as_many(tmp_path: Path) -> None:
    """XLNet reads a part of a context at a time, here half, so a step wants two sequences for each of its batch."""
    text, heard = write_text(tmp_path, 20), Plans()
    pretrain(pretrain_request("xlnet", text, tmp_path / "long", 1, HALF), heard)
    assert "streams" not in heard.lines
    pretrain(pretrain_request("xlnet", text, tmp_path / "short", 1, HALF, "training.batch_size=400"), heard)
    said = re.fullmatch(r"(\d+) [^\d]* 800\b[^\d]*", heard.lines["streams"])
    assert said is not None
    rows = int(said[1])
    between = 3 * rows // 4  # fewer than there are, but not for two each
    pretrain(pretrain_request("xlnet", text, tmp_path / "between", 1, HALF, f"training.batch_size={between}"), heard)
    assert re.fullmatch(rf"{rows} [^\d]* {2 * between}\b[^\d]*", heard.lines["streams"])


def test_the_plan_names_a_task_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "task model" not in planned(monkeypatch)
    sets = ("transfer.model=recurrent", "transfer.reader.cells=4", "transfer.reader.layers=2")
    said = planned(monkeypatch, *sets, "transfer.reader.vectors=3")["task model"]
    names(said, "2 recurrent", "of 4 cells", " of 3")


@pytest.mark.parametrize(("system", "mixed"), [("gpt", 3), ("ulmfit", 2)])
def test_any_system_can_have_a_task_model_on_a_trunk_that_stays_as_it_is(system: str, mixed: int) -> None:
    """GPT's transfer is ELMo's by settings alone, and ULMFiT's, whose middle layers are of another width."""
    base = base_model(system)
    sets = ("transfer.model=recurrent", "transfer.thaw=never", "transfer.reader.cells=4", "training.rate=0.01")
    rows: list[Any] = rows_from(ROWS, "classification")
    model = finetune(FinetuneRequest(base, rows, "classification", epochs=2, valid=[], sets=sets)).model
    old, new = base.trunk.state_dict(), model.trunk.state_dict()
    assert all(bool((new[name][: len(tensor)] == tensor).all()) for name, tensor in old.items())
    assert model.config.transfer.lm_weight == 0.0 and model.task is not None
    weights = model.task.state_dict()["model.read.at_input.weights_L"]
    assert len(weights) == mixed and bool(weights.any()), "the mixture has learned"


@pytest.mark.parametrize("system", ["gpt", "word2vec"])
def test_a_budget_that_reads_next_to_nothing_is_said(system: str, tmp_path: Path) -> None:
    text, heard = write_text(tmp_path, 3000), Plans()
    pretrain(pretrain_request(system, text, tmp_path / "little", 1, "training.batch_size=2"), heard)
    said = names(heard.lines["warning"], "--minutes")
    part = re.search(r"1/([\d,]+) ", said)
    assert part and int(part[1].replace(",", "")) > 100
    text = write_text(tmp_path)
    pretrain(pretrain_request(system, text, tmp_path / "more"), heard)
    assert "warning" not in heard.lines


def test_a_hundredth_of_the_text_is_enough() -> None:
    assert not planning.little_read(0.01, 60.0) and not planning.little_read(12.0, 60.0)
    names(planning.little_read(1 / 140, 60.0), "1/140", "2:20:00", "--minutes")
    assert not planning.little_read(0.0, 60.0), "nothing is known of an empty run"
