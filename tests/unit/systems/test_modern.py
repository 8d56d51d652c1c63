"""`modern`: its sizes, and how it chooses one from the minutes and the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from systems_under_test import pretrain_request, write_text

from foretext.runs import machine
from foretext.runs.directory import RunDirectory
from foretext.runs.report import Reporter
from foretext.runs.run_config import Budget, read_config
from foretext.systems import SYSTEMS
from foretext.systems.modern import LADDER, SIZES, TOKENS_A_WEIGHT, size_for, tokens_in, weights_at_work
from foretext.train.pretraining import pretrain as module
from foretext.train.pretraining import pretrain_request as requests

FAST = 1e11  # products a second


def known(name: str) -> Any:
    return replace(SIZES[name].model, vocabulary=SIZES[name].tokenizer.size)  # type: ignore[type-var]


def test_sizes_rise() -> None:
    weights = [weights_at_work(SIZES[name]) for name in LADDER]
    assert weights == sorted(weights) and len(set(weights)) == len(LADDER)
    assert {"tiny", "small", "paper"} <= SIZES.keys() and set(LADDER) < SIZES.keys()


@pytest.mark.parametrize("name", LADDER)
def test_weights_at_work_are_those_that_tokens_are_multiplied_by(name: str) -> None:
    """All weights except lookup tables and the final norm. `modern` has no table of positions."""
    model = known(name)
    trunk = SYSTEMS["modern"].build_trunk(module.TrunkParts(model))
    looked_up = sum(table.weight.numel() for table in trunk.value_tables.values())
    assert weights_at_work(SIZES[name]) == sum(p.numel() for p in trunk.parameters()) - looked_up - model.width
    assert model.parameters() == sum(p.numel() for p in trunk.parameters())


def test_the_size_follows_from_minutes_and_machine() -> None:
    found = [size_for(FAST, minutes) for minutes in (0.1, 1, 10, 100, 1000, 10000)]
    assert [LADDER.index(name) for name in found] == sorted(LADDER.index(name) for name in found)
    assert found[0] == LADDER[0] and found[-1] == LADDER[-1]
    assert size_for(10 * FAST, 10) == size_for(FAST, 100)
    for minutes in (3, 30, 300):
        name = size_for(FAST, minutes)
        enough = [
            one
            for one in LADDER
            if tokens_in(SIZES[one], FAST, minutes) >= TOKENS_A_WEIGHT * weights_at_work(SIZES[one])
        ]
        assert name == [LADDER[0], *enough][-1]


def test_a_machine_makes_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROBE_SECONDS", 0.0)
    assert 1e8 < machine.products_a_second("cpu") < 1e15


class Notes(Reporter):
    def __init__(self) -> None:
        self.plans: list[dict[str, str]] = []

    def plan(self, title: str, lines: Any) -> None:
        self.plans.append(dict(lines))


@pytest.mark.parametrize(
    ("budget", "size", "expected", "said"),
    [
        (Budget(minutes=0.02), None, "small", True),
        (Budget(minutes=0.02), "nano", "nano", False),
        (Budget(steps=2), None, "tiny", False),
    ],
    ids=["dial", "named", "steps"],
)
def test_the_plan_says_what_the_dial_chose(
    budget: Budget, size: str | None, expected: str, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float]] = []

    def chosen(products: float, minutes: float) -> str:
        asked.append((products, minutes))
        return "small"

    monkeypatch.setitem(SYSTEMS, "modern", replace(SYSTEMS["modern"], size_for=chosen))
    monkeypatch.setattr(requests, "products_a_second", lambda device: 5e10)
    notes = Notes()
    request = pretrain_request("modern", write_text(tmp_path), tmp_path / "run", budget=budget, size=size)
    module.pretrain(request, notes)
    assert read_config(RunDirectory(tmp_path / "run")).run.size == expected
    assert asked == ([(5e10, 0.02)] if said else [])
    assert ("size" in notes.plans[0]) == said
    if said:
        assert all(part in notes.plans[0]["size"] for part in ("small", "50", "0.02 minutes", "--size"))
    module.pretrain(replace(request, resume=True, size=None), notes)
    assert len(asked) == said, "a resumed run keeps its size"
