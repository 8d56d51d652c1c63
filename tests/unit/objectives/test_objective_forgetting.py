"""Rows that begin anew: which they are, what they are given, and that nothing else is another for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import refused
from systems_under_test import TINY, objective_of, pretrain_request, trunk_of, unlabelled, write_text
from tolerance import close, terms_of
from torch import Tensor

from foretext.objectives.base import Draw, Objective
from foretext.objectives.permutation import PermutationObjective
from foretext.objectives.stream import ForgettingConfig, StreamObjective, begun_anew, fresh_rows
from foretext.systems import SYSTEMS
from foretext.train.loop import Loop
from foretext.train.pretraining.pretrain import pretrain

# Of two layers: norms and projections, keys and memory, inner states; then a softmax's sum, and that over all tokens.
TERMS = terms_of(2 * (6 * 32 + 2 * 36 + 128), 272, 4 * 12)
STREAMS = [name for name in TINY if issubclass(SYSTEMS[name].objective_config, ForgettingConfig)]


def forgetting(system: str, part: float) -> Objective:
    """What a system is pre-trained by, with so many rows that begin anew."""
    objective = objective_of(system)
    if isinstance(objective, PermutationObjective):
        objective.settings = replace(objective.settings, forget=part)
    else:
        assert isinstance(objective, StreamObjective)
        objective.forget = part
    return objective


def test_a_part_of_the_rows_is_drawn_by_their_examples() -> None:
    assert fresh_rows(0.0, 4, Draw(0, 0, (0, 1, 2, 3))) is None and fresh_rows(1.0, 4, None) is None
    indices = tuple(range(2000))
    found = fresh_rows(0.25, 2000, Draw(3, 1, indices))
    assert found is not None and 0.22 < float(found.float().mean()) < 0.28
    alone = [fresh_rows(0.25, 1, Draw(3, 1, (index,))) is not None for index in range(50)]
    assert alone == found[:50].tolist(), "whatever batch they are in"
    other = fresh_rows(0.25, 2000, Draw(3, 2, indices))
    assert other is not None and not torch.equal(found, other), "others in the next epoch"
    assert bool(fresh_rows(1.0, 3, Draw(0, 0, (0, 1, 2))).all())  # type: ignore[union-attr]
    with refused("objective.forget", "1.5"):
        ForgettingConfig(forget=1.5).check()


def test_what_is_carried_is_nothing_for_these_rows() -> None:
    state = {"layers": (torch.ones(3, 2, 4), torch.ones(3, 1)), "real": torch.ones(3, 2, dtype=torch.bool)}
    found = begun_anew(state, torch.tensor([True, False, True]))
    assert found["real"].tolist() == [[False] * 2, [True] * 2, [False] * 2] and found["real"].dtype == torch.bool
    assert [float(part.sum()) for part in found["layers"]] == [8.0, 1.0] and bool(state["real"].all())
    assert begun_anew(state, None) is state and begun_anew(None, torch.tensor([True])) is None


@pytest.mark.parametrize("system", STREAMS)
def test_such_a_row_is_read_as_if_nothing_stood_before_it(system: str) -> None:
    """In training; the others are read after their memory, and in evaluation all are."""
    objective, trunk = forgetting(system, 0.5), trunk_of(system)
    first, rows = (unlabelled(system, (12, 12, 12, 12), seed) for seed in (0, 1))
    indices = next(
        found
        for start in range(0, 400, 4)
        if (drawn := fresh_rows(0.5, 4, Draw(0, 0, found := tuple(range(start, start + 4))))) is not None
        and drawn.tolist() == [False, True, True, False]
    )
    draw = Draw(0, 0, indices)

    def losses(state: Any) -> list[float]:
        """Each row by itself."""
        found = []
        for number in range(4):
            batch = objective.make([rows[number]], Draw(0, 0, indices[number : number + 1]))
            own = None if state is None else row_of(state, number)
            (loss,) = objective(trunk, batch, own).losses.values()
            found.append(float(loss.total))
        return found

    batch = objective.make(rows, draw)
    assert batch.fresh_B is not None and batch.fresh_B.tolist() == [False, True, True, False]
    for training in (True, False):
        trunk.train(training)
        objective.train(training)
        with torch.no_grad():
            state = objective(trunk, objective.make(first, Draw(0, 0, (0, 1, 2, 3))), None).state
            after, anew = losses(state), losses(None)
            (whole,) = objective(trunk, batch, state).losses.values()
        close(whole.total, sum(after), terms=TERMS)
        for number, fresh in enumerate(batch.fresh_B.tolist()):
            if training and fresh:
                close(after[number], anew[number], terms=TERMS)
            else:
                assert abs(after[number] - anew[number]) > 1e-6


def row_of(state: Any, number: int) -> Any:
    if isinstance(state, Tensor):
        return state[number : number + 1]
    if isinstance(state, tuple):
        return tuple(row_of(part, number) for part in state)
    return {name: part if name == "far" else row_of(part, number) for name, part in state.items()}


@pytest.mark.parametrize("system", STREAMS)
@pytest.mark.parametrize(("part", "expected"), [("0", 0), ("1", 1)])
def test_a_run_forgets_as_it_is_told(
    system: str, part: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    real = Loop.gradients

    def watched(loop: Loop, step: int, parts: Any) -> dict[str, float]:
        seen.extend(0.0 if one.fresh_B is None else float(one.fresh_B.float().mean()) for one in parts)
        return real(loop, step, parts)

    monkeypatch.setattr(Loop, "gradients", watched)
    pretrain(pretrain_request(system, write_text(tmp_path), tmp_path / "run", 2, f"objective.forget={part}"))
    assert seen and set(seen) == {float(expected)}


@pytest.mark.parametrize(("system", "part"), [("transformer_xl", 0.25), ("xlnet", 0.0)])
def test_which_sizes_forget(system: str, part: float) -> None:
    """Those of minutes, where it was measured to help; those of papers never."""
    found = {name: size.objective.forget for name, size in SYSTEMS[system].sizes.items()}  # type: ignore[attr-defined]
    assert found == {"tiny": part, "small": part, "paper": 0.0}
