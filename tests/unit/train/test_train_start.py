"""Pre-training that starts from another run: rates by depth, and a vocabulary of the new text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import refused
from systems_under_test import PRETRAINED, TINY, objective_of, pretrain_request, stopping_after, trunk_of, write_text
from tolerance import close

from foretext.errors import Interrupted
from foretext.runs.directory import RunDirectory
from foretext.runs.model import load_model
from foretext.runs.run_config import Budget, read_config
from foretext.systems import SYSTEMS
from foretext.systems.base import StartConfig
from foretext.train.loop import Loop
from foretext.train.optim import make_optimizer
from foretext.train.pretraining.pretrain import NEW, old_ids, pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest

PIECES = ("tokenizer.size=280",)
RUN_BEFORE = ("gpt", "bert", "ulmfit", "transformer_xl", "xlnet")
VALUE_TABLES = "gpt model.values=embeddings"  # a system, and what is set


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of a general text, for each of some systems."""
    folder = tmp_path_factory.mktemp("bases")
    text = write_text(folder)
    folders = {}
    for name in (*RUN_BEFORE, VALUE_TABLES):
        system, *sets = name.split()
        pretrain(pretrain_request(system, text, folder / name, 2, *sets))
        folders[name] = folder / name
    return folders


def onward(base: Path, tmp_path: Path, steps: int = 3, sets: tuple[str, ...] = (), **changes: Any) -> PretrainRequest:
    """Of another text, with words of its own."""
    text = tmp_path / "target.txt"
    text.write_text("\n".join(f"The zebra and the quokka likes film number {n} very much." for n in range(80)))
    request = PretrainRequest((str(text),), tmp_path / "second", budget=Budget(steps=steps), sets=sets, start=base)
    return replace(request, **changes)


def first_weights(request: PretrainRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Loop, dict[str, torch.Tensor]]:
    """The loop, and what it begins with."""
    begun: list[Any] = []
    real = Loop.run

    def watched(loop: Loop) -> Any:
        begun[:] = loop, {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}
        return real(loop)

    monkeypatch.setattr(Loop, "run", watched)
    pretrain(request)
    monkeypatch.setattr(Loop, "run", real)
    return begun[0], begun[1]


@pytest.mark.parametrize("name", [*RUN_BEFORE, VALUE_TABLES])
def test_a_new_vocabulary_keeps_what_is_known_of_pieces(
    name: str, bases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, *sets = name.split()
    request = onward(bases[name], tmp_path, sets=(*PIECES, *sets), new_vocabulary=True)
    _, weights = first_weights(request, monkeypatch)
    before, after = load_model(bases[name]), load_model(request.out)
    assert after.tokenizer.size != before.tokenizer.size and after.model_config.vocabulary == after.tokenizer.size
    assert read_config(RunDirectory(request.out)).start.vocabulary == "new"
    ids = old_ids(after.tokenizer, before.tokenizer)
    assert (ids == NEW).any() and (ids != NEW).sum() > 20
    old = RunDirectory(bases[name]).load_tensors("model.safetensors")
    assert weights.keys() == old.keys()
    by_piece = {name for name in old if len(old[name]) == before.tokenizer.size != before.model_config.width}
    rows = SYSTEMS[system].piece_rows
    assert by_piece == {name for name in old if name.startswith(rows)} >= {name for name in rows if name[-1] != "."}
    assert any("value_tables" in name for name in by_piece) == bool(sets)
    assert all(float(old[name].std()) > 0 for name in by_piece), "rows that can be told apart, of biases too"
    for name, tensor in weights.items():
        if name not in by_piece:
            assert torch.equal(tensor, old[name]), name
            continue
        mean, size = old[name].double().mean(0), float(old[name].abs().mean(0).max())
        for row, id in zip(tensor, ids):
            if id == NEW:
                close(row, mean, terms=len(old[name]), size=size)
            else:
                assert torch.equal(row, old[name][id])


def test_killed_with_a_new_vocabulary_it_goes_on_as_if_never_stopped(bases: dict[str, Path], tmp_path: Path) -> None:
    request = onward(bases["ulmfit"], tmp_path, sets=PIECES, new_vocabulary=True)
    pretrain(request)
    stopped = replace(request, out=tmp_path / "stopped")
    with stopping_after(2) as stop, pytest.raises(Interrupted):
        pretrain(stopped, stopping=stop)
    pretrain(replace(stopped, inputs=(), resume=True, start=None, new_vocabulary=False, sets=(), budget=None))
    straight, again = (RunDirectory(run.out).read("model.safetensors") for run in (request, stopped))
    assert straight == again


def test_the_second_stage_has_rates_by_depth_where_its_size_says_so(
    bases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for system, sets, factors in (
        ("ulmfit", (), [2.6**-2, 1 / 2.6, 1.0]),
        ("ulmfit", ("start.rate_decay=1.0",), [1.0]),
        ("gpt", (), [1.0]),
        ("gpt", ("start.rate_decay=2.0",), [0.125, 0.25, 0.5, 1.0]),
    ):
        out = tmp_path / f"{system}{len(factors)}"
        loop, weights = first_weights(onward(bases[system], tmp_path, 1, sets, out=out), monkeypatch)
        assert [group.factor for group in loop.job.optimizer.groups] == pytest.approx(factors)
        assert not any(group.thaws_at for group in loop.job.optimizer.groups)
        assert "trunk.tokens.weight" in loop.job.optimizer.groups[-1].names, "the output layer"
        decay = read_config(RunDirectory(out)).start.rate_decay
        assert decay == pytest.approx(factors[-1] / factors[-2] if factors[1:] else 1)
        old = RunDirectory(bases[system]).load_tensors("model.safetensors")
        assert all(torch.equal(weights[name], old[name]) for name in old), "the vocabulary is kept"


def test_the_papers_second_stage() -> None:
    size = SYSTEMS["ulmfit"].sizes["paper"]
    assert size.onward is not None and size.onward.rate == 4e-3 and size.pretraining.rate == 3e-4
    assert size.start == StartConfig(2.6)
    assert all(SYSTEMS[name].sizes["paper"].start == StartConfig() for name in TINY if name != "ulmfit")


@pytest.mark.parametrize("system", PRETRAINED)
def test_groups_by_depth_hold_every_parameter_once(system: str) -> None:
    trunk, objective = trunk_of(system), objective_of(system)
    rows = SYSTEMS[system].piece_rows
    optimizer = make_optimizer(SYSTEMS[system].sizes["tiny"].pretraining, trunk, objective, 2.0, rows)
    names = [name for group in optimizer.groups for name in group.names]
    assert sorted(names) == sorted(optimizer.parameters) and optimizer.groups[-1].factor == 1.0
    predicting = {name for name in rows if name[-1] != "."}  # other tables are read alone
    assert {*predicting, *(f"task.{name}" for name, _ in objective.named_parameters())} in (
        set(optimizer.groups[-1].names),
        set(),  # a system that predicts nothing has its top layer there
    )


def test_an_adaptive_softmax_is_at_the_top() -> None:
    """Its tables are read and predict; what all blocks share stays at the bottom."""
    system, trunk = SYSTEMS["transformer_xl"], trunk_of("transformer_xl", cutoffs=(10, 30), divisor=2)
    objective = objective_of("transformer_xl")
    groups = make_optimizer(system.sizes["tiny"].pretraining, trunk, objective, 2.0, system.piece_rows).groups
    assert [group.factor for group in groups] == [0.125, 0.25, 0.5, 1.0]
    assert {*groups[0].names} == {"trunk.content", "trunk.position"}
    assert trunk.adaptive is not None and len(groups[-1].names) == 12
    assert {*groups[-1].names} == {f"trunk.adaptive.{name}" for name, _ in trunk.adaptive.named_parameters()}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"start": None, "system": "gpt"}, ["--new-vocabulary", "--from RUN"]),
        ({"sets": ("model.layers=3",)}, ["--from ", "model.layers, 2", "3"]),
        ({"sets": ("start.vocabulary=kept",)}, ["start.vocabulary=kept", "--new-vocabulary"]),
        ({"sets": ("start.rate_decay=0",)}, ["start.rate_decay", "0.0"]),
    ],
    ids=str,
)
def test_what_cannot_be(changes: dict[str, Any], parts: list[str], bases: dict[str, Path], tmp_path: Path) -> None:
    request = replace(onward(bases["gpt"], tmp_path, new_vocabulary=True), **changes)
    with refused(*parts):
        pretrain(request)
    assert not request.out.exists()


@pytest.mark.parametrize(
    ("system", "sets"),
    [
        ("transformer_xl", ("model.memory=12", "model.evaluation_memory=40", "model.clamp=30")),
        ("xlnet", ("model.memory=3",)),
    ],
)
def test_how_far_is_remembered_may_change(
    system: str, sets: tuple[str, ...], bases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No weight depends on it, and a run that was too short-sighted can go on."""
    loop, begun = first_weights(onward(bases[system], tmp_path, sets=sets), monkeypatch)
    before = load_model(bases[system])
    assert all(torch.equal(begun[f"trunk.{name}"], weight) for name, weight in before.trunk.state_dict().items())
    model = read_config(RunDirectory(tmp_path / "second")).model
    for one in sets:
        key, _, value = one.removeprefix("model.").partition("=")
        assert getattr(model, key) == int(value) != getattr(before.config.model, key)
    assert all(state.shape[1] == model.memory for state in kept_states(loop))


def kept_states(loop: Loop) -> list[torch.Tensor]:
    """What the layers of each micro-batch carry."""
    parts = [state["layers"] if isinstance(state, dict) else state[0] for state in loop.carried.values()]
    return [states for part in parts for states in part]
