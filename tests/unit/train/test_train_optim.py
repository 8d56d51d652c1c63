"""Optimisers, schedule, budget and transfer plan."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import refused
from hypothesis import given
from hypothesis import strategies as st
from systems_under_test import PLAIN, objective_of, trunk_of
from tolerance import close, doubles, terms_of
from torch import nn

from foretext.config import apply_sets
from foretext.errors import UserError
from foretext.plan import NEVER, TransferPlan
from foretext.runs.directory import RunDirectory
from foretext.runs.run_config import Budget, Position
from foretext.systems import SYSTEMS
from foretext.systems.base import TrainingConfig
from foretext.train.optim import Group, Optimizer, _orthogonalise, clip_gradients, rate_at, split_rows

SHAPES = {"w": (7, 5), "b": (5,), "e": (4, 3), "s": ()}
UPDATE = 12  # roundings of one element: two means and their corrections, the root, the quotient, decay, the step


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    with doubles():
        yield


def parameters() -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(torch.randn(shape)) for name, shape in SHAPES.items()}


def draw_gradients(params: dict[str, nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in params.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def adams_first(before: torch.Tensor, gradient: torch.Tensor, rate: float) -> torch.Tensor:
    """Weights after the first step of an Adam without decay: the rate towards each gradient's sign, but for ε."""
    return before - rate * gradient / (gradient.abs() + PLAIN.epsilon)


def test_adamw_is_torchs_with_decay_on_matrices_only() -> None:
    config = TrainingConfig(weight_decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-6)
    ours = parameters()
    theirs = {name: nn.Parameter(p.detach().clone()) for name, p in ours.items()}
    optimizer = Optimizer(config, ours, [Group(list(ours))])
    reference = torch.optim.AdamW(
        [
            {"params": [theirs["w"], theirs["e"]], "weight_decay": 0.1},
            {"params": [theirs["b"], theirs["s"]], "weight_decay": 0.0},
        ],
        betas=(0.8, 0.95),
        eps=1e-6,
    )
    for step in range(60):
        rate = 0.01 * (1 + step % 7)
        draw_gradients(ours, step)
        draw_gradients(theirs, step)
        optimizer.step(rate)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
    close(ours, theirs, terms=terms_of(60 * UPDATE))


def test_decay_only_where_the_rank_is_above_one() -> None:
    params = parameters()
    before = {name: p.detach().clone() for name, p in params.items()}
    for parameter in params.values():
        parameter.grad = torch.zeros_like(parameter)
    Optimizer(TrainingConfig(weight_decay=0.5), params, [Group(list(params))]).step(0.1)
    for name, parameter in params.items():
        factor = 0.95 if parameter.dim() > 1 else 1.0
        close(parameter, before[name] * factor, terms=UPDATE)


def test_clipping() -> None:
    params = parameters()
    draw_gradients(params, 0)
    params["b"].grad = None
    gradients = Optimizer(PLAIN, params, [Group(list(params))]).gradients
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in params.values() if p.grad is not None))
    before, terms = params["w"].grad.clone(), terms_of(7 * 5 + 4 * 3 + 1)
    for limit in (0.0, 2 * norm):
        close(clip_gradients(gradients(), limit), norm, terms=terms)
        assert torch.equal(params["w"].grad, before)
    close(clip_gradients(gradients(), 0.5), norm, terms=terms)
    factor = 0.5 / (norm + 1e-6)  # torch's, which no norm of zero can divide by
    close(params["w"].grad, before * factor, terms=terms)
    close(clip_gradients(gradients(), 0.0), norm * factor, terms=2 * terms)
    params["w"].grad[0, 0] = math.inf
    assert not math.isfinite(clip_gradients(gradients(), 1.0))
    assert clip_gradients([], 1.0) == 0.0


# -- Muon ------------------------------------------------------------------------------------------------------------


def test_orthogonalisation_brings_singular_values_near_one() -> None:
    matrices = torch.randn(3, 12, 40) * torch.tensor([1e-4, 1.0, 1e3])[:, None, None]
    values = torch.linalg.svdvals(_orthogonalise(matrices))
    assert float(values.min()) > 0.6 and float(values.max()) < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    polar = left @ right
    cosine = torch.nn.functional.cosine_similarity(_orthogonalise(matrices).flatten(1), polar.flatten(1))
    assert float(cosine.min()) > 0.97


def test_muon_takes_the_blocks_matrices_each_projection_by_itself() -> None:
    trunk = trunk_of("gpt")
    params = {f"trunk.{name}": p for name, p in trunk.named_parameters()}
    optimizer = Optimizer(replace(PLAIN, optimizer="muon", weight_decay=0.0), params, [Group(list(params))])
    expected = {name for name, p in params.items() if ".blocks." in name and p.dim() == 2}
    assert optimizer.muon == expected and len(expected) == 8
    before = {name: p.detach().clone() for name, p in params.items()}
    weights = max(float(tensor.abs().max()) for tensor in before.values())
    draw_gradients(params, 0)
    optimizer.step(0.01)
    for name in sorted(expected):
        change = (params[name].detach() - before[name]) / -0.01
        count = 3 if name.endswith("qkv.weight") else 1
        for part, gradient in zip(change.chunk(count), params[name].grad.chunk(count)):
            rows, columns = gradient.shape
            wide = gradient if rows <= columns else gradient.t()
            direction = _orthogonalise(wide[None])[0]
            orthogonal = 0.2 * max(rows, columns) ** 0.5 * (direction if rows <= columns else direction.t())
            close(part, orthogonal, terms=terms_of(5 * (128 + 32 + 32)), size=weights / 0.01, what=name)
            values = torch.linalg.svdvals(part) / (0.2 * max(part.shape) ** 0.5)
            assert float(values.median()) > 0.6 and float(values.max()) < 1.3, name
    table = "trunk.tokens.weight"
    close(params[table], adams_first(before[table], params[table].grad, 0.01), terms=UPDATE)


def test_muon_takes_what_makes_states_of_states_and_no_tables() -> None:
    trunk, objective = trunk_of("albert"), objective_of("albert")
    params = {f"trunk.{name}": p for name, p in trunk.named_parameters()}
    params |= {f"task.{name}": p for name, p in objective.named_parameters()}
    taken = Optimizer(replace(PLAIN, optimizer="muon"), params, [Group(list(params))]).muon
    between = {"trunk.project.weight", "trunk.pooler.weight", "task.head.dense.weight"}
    assert taken == between | {name for name in params if ".blocks." in name and params[name].dim() == 2}
    tables = {"trunk.tokens.weight", "trunk.positions.weight", "trunk.segments.weight", "task.relation.weight"}
    assert tables <= {name for name, p in params.items() if p.dim() == 2} - taken


def test_muon_equals_its_definition_for_one_tall_matrix() -> None:
    weight = nn.Parameter(torch.randn(9, 4))
    optimizer = Optimizer(
        replace(PLAIN, optimizer="muon"), {"blocks.0.up.weight": weight}, [Group(["blocks.0.up.weight"])]
    )
    momentum, expected = torch.zeros(9, 4), weight.detach().clone()
    for step in range(5):
        draw_gradients({"w": weight}, step)
        gradient = weight.grad.clone()
        optimizer.step(0.02)
        momentum = 0.95 * momentum + 0.05 * gradient
        look_ahead = 0.05 * gradient + 0.95 * momentum
        direction = _orthogonalise(look_ahead.t()[None])[0].t()
        expected = expected * (1 - 0.02 * 0.01) - 0.02 * 0.2 * 3.0 * direction
    close(weight, expected, terms=terms_of(5 * 5 * (9 + 4 + 4)))  # five updates of five Newton–Schulz steps


# -- rates by kind, and cautious decay ---------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "lamb", "sgd"])
def test_tables_and_vectors_have_rates_of_their_own(optimizer: str) -> None:
    """Each kind of parameter ends as with an optimiser at that rate."""
    shapes = {"trunk.tokens.weight": (7, 4), "trunk.blocks.0.up.weight": (8, 4), "trunk.blocks.0.norm1.weight": (4,)}
    first = {name: torch.randn(shape) for name, shape in shapes.items()}
    config = replace(PLAIN, optimizer=optimizer, weight_decay=0.1)

    def learned(config: TrainingConfig, rate: float) -> dict[str, torch.Tensor]:
        params = {name: nn.Parameter(tensor.clone()) for name, tensor in first.items()}
        made = Optimizer(config, params, [Group(list(params))])
        for step in range(3):
            draw_gradients(params, step)
            made.step(rate)
        return {name: parameter.detach() for name, parameter in params.items()}

    weights = learned(replace(config, table_rate=5.0, vector_rate=0.25), 0.01)
    for name, rate in zip(shapes, (0.05, 0.01, 0.0025)):
        assert torch.equal(weights[name], learned(config, rate)[name]), name
        assert not torch.equal(weights[name], learned(config, 0.02)[name]), name


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_cautious_decay_is_where_the_update_agrees(optimizer: str) -> None:
    """The result is the update without decay, plus decay only where weight and update have the same sign."""
    name, rate, decay = "blocks.0.attention.qkv.weight", 0.02, 0.3
    first = torch.randn(12, 4)

    def stepped(cautious: bool, weight_decay: float) -> torch.Tensor:
        weight = nn.Parameter(first.clone())
        config = replace(PLAIN, optimizer=optimizer, weight_decay=weight_decay, cautious=cautious)
        made = Optimizer(config, {name: weight}, [Group([name])])
        draw_gradients({"w": weight}, 7)
        made.step(rate)
        return weight.detach()

    plain, whole = stepped(False, 0.0), stepped(False, decay)
    weights = stepped(True, decay)
    agreed = (first - plain) * first > 0
    assert 0 < int(agreed.sum()) < agreed.numel()
    close(weights, torch.where(agreed, plain - rate * decay * first, plain), terms=UPDATE)
    close(weights[agreed], whole[agreed], terms=UPDATE)
    assert torch.equal(stepped(True, 0.0), plain)


def test_cautious_decay_is_for_two_optimisers() -> None:
    with refused("training.cautious", "sgd"):
        replace(PLAIN, optimizer="sgd", cautious=True).check()


# -- LAMB ------------------------------------------------------------------------------------------------------------


class LiteralLamb:
    """Algorithm 2 of "Large Batch Optimization for Deep Learning" line by line, a number at a time, in double
    precision, for one layer; `excluded`: as the released code has it for norms and biases, no decay and no ratio."""

    def __init__(self, weights: list[float], config: TrainingConfig, excluded: bool) -> None:
        self.x, self.config, self.excluded = weights, config, excluded
        self.m, self.v, self.t = [0.0] * len(weights), [0.0] * len(weights), 0

    def step(self, gradient: list[float], rate: float) -> None:
        c = self.config
        self.t += 1
        update = []
        for i, g in enumerate(gradient):
            self.m[i] = c.beta1 * self.m[i] + (1 - c.beta1) * g
            self.v[i] = c.beta2 * self.v[i] + (1 - c.beta2) * g * g
            m, v = self.m[i] / (1 - c.beta1**self.t), self.v[i] / (1 - c.beta2**self.t)
            r = m / (math.sqrt(v) + c.epsilon)
            update.append(r if self.excluded else r + c.weight_decay * self.x[i])
        norm = math.sqrt(sum(x * x for x in self.x))
        ratio = 1.0 if self.excluded or norm == 0 else norm / math.sqrt(sum(u * u for u in update))
        self.x = [x - rate * ratio * u for x, u in zip(self.x, update)]


def test_lamb_is_the_papers_algorithm() -> None:
    shapes = {
        "w": (7, 5),
        "zero": (3, 4),
        "norm.weight": (6,),
        "up.bias": (5,),
        "blocks.0.attention.qkv.weight": (9, 3),
    }
    params = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    with torch.no_grad():
        params["zero"].zero_()  # no norm to scale to, at first
        params["blocks.0.attention.qkv.weight"][:3] *= 40.0  # the queries: their norm must not move keys and values
    config = TrainingConfig(optimizer="lamb", weight_decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-6)
    optimizer = Optimizer(config, params, [Group(["w", "zero"], factor=0.5), Group(list(shapes)[2:])])
    layers = {
        (name, part): LiteralLamb(rows.flatten().tolist(), config, excluded=p.dim() == 1)
        for name, p in params.items()
        for part, rows in enumerate(p.detach().chunk(3 if "qkv" in name else 1))
    }
    for step in range(8):
        rate = 0.01 * (1 + step % 3)
        draw_gradients(params, step)
        for (name, part), layer in layers.items():
            gradient = params[name].grad
            assert gradient is not None
            rows = gradient.chunk(3 if "qkv" in name else 1)[part]
            layer.step(rows.flatten().tolist(), rate * (0.5 if name in ("w", "zero") else 1.0))
        optimizer.step(rate)
        for (name, part), layer in layers.items():
            rows = params[name].detach().chunk(3 if "qkv" in name else 1)[part]
            close(rows.flatten(), layer.x, terms=terms_of(8 * (UPDATE + 2 * 7 * 5)), what=f"{name} {step}")  # two norms


def test_lamb_moves_each_matrix_by_the_rate_times_its_norm() -> None:
    params = {"small.weight": nn.Parameter(0.01 * torch.randn(6, 6)), "large.weight": nn.Parameter(torch.randn(6, 6))}
    before = {name: p.detach().clone() for name, p in params.items()}
    draw_gradients(params, 0)
    Optimizer(replace(PLAIN, optimizer="lamb"), params, [Group(list(params))]).step(0.02)
    for name, p in params.items():
        moved, whole = float((p.detach() - before[name]).norm()), float(before[name].norm())
        close(moved, 0.02 * whole, terms=terms_of(UPDATE, 4 * 6 * 6), size=whole)  # four norms


def test_lamb_scales_no_norm_and_no_bias_of_albert() -> None:
    """In ALBERT's released code what has "LayerNorm" or "bias" in its name is neither decayed nor scaled."""
    parts = {"trunk": trunk_of("albert"), "task": objective_of("albert")}
    params = {f"{part}.{name}": p for part, module in parts.items() for name, p in module.named_parameters()}
    optimizer = Optimizer(replace(PLAIN, optimizer="lamb", weight_decay=0.5), params, [Group(list(params))])
    for parameter in params.values():
        parameter.grad = torch.zeros_like(parameter)
    before = {name: p.detach().clone() for name, p in params.items()}
    optimizer.step(0.1)
    for name, parameter in params.items():
        excluded = "norm" in name or name.endswith("bias")
        assert torch.equal(parameter, before[name]) == excluded, name  # decay alone: scaled to the norm it is 10 %


def test_alberts_paper_size_uses_lamb() -> None:
    paper = SYSTEMS["albert"].sizes["paper"].pretraining
    assert (paper.optimizer, paper.rate, paper.batch_size, paper.warmup_steps) == ("lamb", 1.76e-3, 4096, 3125)
    assert (paper.beta1, paper.beta2, paper.epsilon, paper.weight_decay) == (0.9, 0.999, 1e-6, 0.01)
    assert [name for name in SYSTEMS if SYSTEMS[name].sizes["paper"].pretraining.optimizer == "lamb"] == ["albert"]


@pytest.mark.parametrize("kind", ["adamw", "muon", "lamb"])
def test_state_goes_through_a_checkpoint_exactly(kind: str, tmp_path: Path) -> None:
    config = replace(PLAIN, optimizer=kind)
    first = trunk_of("gpt")
    params = dict(first.named_parameters())
    optimizer = Optimizer(config, params, [Group(list(params))])
    for step in range(3):
        draw_gradients(params, step)
        optimizer.step(0.01)
    run = RunDirectory(tmp_path / "run")
    with run.writer() as writer:
        writer.commit({"o.safetensors": optimizer.state_tensors()})
    second = trunk_of("gpt")
    second.load_state_dict(first.state_dict())
    copies = dict(second.named_parameters())
    other = Optimizer(config, copies, [Group(list(copies))])
    other.load_state(run.load_tensors("o.safetensors"))
    assert other.state.keys() == optimizer.state.keys()
    steps = [tensor for name, tensor in other.state.items() if name.endswith("/step")]
    assert steps and all(tensor.shape == () and float(tensor) == 3 for tensor in steps)
    for step in range(3, 6):
        for one, its in ((optimizer, params), (other, copies)):
            draw_gradients(its, step)
            one.step(0.01)
    for name in params:
        assert torch.equal(params[name], copies[name]), name


# -- transfer plan ---------------------------------------------------------------------------------------------------


def test_rates_by_depth() -> None:
    plan = TransferPlan(rate_decay=2.0)
    assert [plan.rate_factor(group, 4) for group in range(4)] == [0.125, 0.25, 0.5, 1.0]
    assert [TransferPlan().rate_factor(group, 4) for group in range(4)] == [1.0] * 4
    trunk = trunk_of("gpt")
    params = dict(trunk.named_parameters())
    groups = [Group(names, plan.rate_factor(i, 3)) for i, names in enumerate(trunk.layer_groups())]
    before = {name: p.detach().clone() for name, p in params.items()}
    draw_gradients(params, 0)
    Optimizer(replace(PLAIN, weight_decay=0.0), params, groups).step(0.01)
    for group in groups:
        for name in group.names:
            close(params[name], adams_first(before[name], params[name].grad, 0.01 * group.factor), terms=UPDATE)


def test_gradual_thaw_goes_from_the_top_down() -> None:
    plan = TransferPlan(thaw="gradual")
    assert [plan.thaws_at(group, 4, 100, 10) for group in range(4)] == [30, 20, 10, 0], "one more each epoch"
    assert [TransferPlan().thaws_at(group, 4, 100, 10) for group in range(4)] == [0, 0, 0, 0]
    assert [TransferPlan(thaw="never").thaws_at(group, 4, 100, 10) for group in range(4)] == [NEVER] * 3 + [0]
    params = parameters()
    groups = [Group([name], thaws_at=plan.thaws_at(i, 4, 5, 1)) for i, name in enumerate(params)]
    optimizer = Optimizer(PLAIN, params, groups)
    for step, learning in enumerate([{"s"}, {"e", "s"}, {"b", "e", "s"}, set(params), set(params)]):
        optimizer.thaw(step)
        assert {name for name, p in params.items() if p.requires_grad} == learning


@given(st.integers(2, 40), st.integers(1, 30), st.integers(1, 50))
def test_every_group_learns_for_a_quarter_of_the_run_at_least(groups: int, epochs: int, per_epoch: int) -> None:
    """ULMFiT's fourteen groups in three epochs never reached the bottom."""
    steps = epochs * per_epoch
    thawed = [TransferPlan(thaw="gradual").thaws_at(group, groups, steps, per_epoch) for group in range(groups)]
    assert thawed == sorted(thawed, reverse=True) and thawed[-1] == 0
    assert steps - thawed[0] >= 0.25 * steps
    assert all(above + per_epoch >= below for below, above in itertools.pairwise(thawed)), "no slower than one an epoch"
    if epochs >= 4 / 3 * (groups - 1):
        assert thawed == [per_epoch * (groups - 1 - group) for group in range(groups)], (
            "time enough for the paper's way"
        )


@pytest.mark.parametrize("kind", ["adamw", "lamb", "sgd"])
def test_rows_that_learn_apart_from_the_others_are_a_parameter_of_their_own(kind: str) -> None:
    """Frozen rows stay, their gradients count nowhere, and what is kept of the new ones begins with them."""
    config = replace(PLAIN, optimizer=kind, weight_decay=0.1)
    whole, alone = torch.nn.Parameter(torch.randn(7, 5)), torch.nn.Parameter(torch.zeros(2, 5))
    head = torch.nn.Parameter(torch.randn(3))
    alone.data.copy_(whole.data[5:])
    heads = [head, torch.nn.Parameter(head.detach().clone())]
    groups = [Group(["w"], 0.5, thaws_at=2), Group(["h"])]
    rows = split_rows(groups, "w", 5, 7)
    ours = Optimizer(config, {"w": whole, "h": heads[0]}, groups, rows)
    theirs = Optimizer(config, {"n": alone, "h": heads[1]}, [Group(["h", "n"])])
    before = whole.detach().clone()
    for step in range(2):
        gradients = [torch.randn(7, 5), torch.randn(3)]
        for optimizer, own in ((ours, gradients), (theirs, [gradients[0][5:], gradients[1]])):
            optimizer.thaw(step)
            for parameter, gradient in zip(optimizer.parameters.values(), own):
                parameter.grad = gradient.clone()
        norms = [clip_gradients(optimizer.gradients(), 1.0) for optimizer in (ours, theirs)]
        close(norms[0], norms[1], terms=13, precision=torch.float32)
        ours.step(0.1)
        theirs.step(0.1)
    assert torch.equal(whole[:5], before[:5])
    close([whole[5:], heads[0]], [alone, heads[1]], terms=2 * UPDATE)
    whole.grad = torch.randn(7, 5)
    ours.thaw(2)
    ours.step(0.1)
    assert not torch.equal(whole[:5], before[:5])
    kept = ours.state_tensors()
    again = Optimizer(config, {"w": whole, "h": heads[0]}, groups, rows)
    again.load_state(kept)
    assert kept.keys() == again.state_tensors().keys()


# -- schedule and budget ---------------------------------------------------------------------------------------------


def rates(config: TrainingConfig, steps: int = 100) -> list[float]:
    return [rate_at(config, step / steps, step) for step in range(steps + 1)]


def test_warm_up_then_cosine_to_zero() -> None:
    values = rates(TrainingConfig(rate=2.0, warmup=0.1, schedule="cosine"))
    assert 0 < values[0] < 0.1
    assert values[1:11] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert values[10] == max(values) == 2.0
    assert values[55] == pytest.approx(1.0) and values[100] == pytest.approx(0.0, abs=1e-12)
    assert values[32] == pytest.approx(1 + math.cos(math.pi * 22 / 90))
    assert values[10:] == sorted(values[10:], reverse=True)


def test_linear_constant_and_a_rate_that_remains() -> None:
    linear = rates(TrainingConfig(rate=1.0, warmup=0.0, schedule="linear"))
    assert linear == pytest.approx([1 - step / 100 for step in range(101)])
    assert rates(TrainingConfig(rate=1.0, warmup=0.0, schedule="constant")) == [1.0] * 101
    kept = rates(TrainingConfig(rate=1.0, warmup=0.0, final_rate=0.1))
    assert kept[100] == pytest.approx(0.1) and kept[50] == pytest.approx(0.55)


@pytest.mark.parametrize(("schedule", "half"), [("cosine", 0.5), ("linear", 0.5), ("constant", 1.0)])
def test_warm_up_in_steps(schedule: Any, half: float) -> None:
    """The paper's: linear over a number of updates, whatever the budget, and from the peak down over all the rest."""
    config = TrainingConfig(rate=2.0, warmup_steps=201, warmup=0.5, schedule=schedule)
    values = rates(config, 1000)
    assert values[:201] == pytest.approx([2.0 * (step + 1) / 201 for step in range(201)])
    assert values[200] == 2.0 == max(values) and values[200:] == sorted(values[200:], reverse=True)
    assert values[600] == pytest.approx(2.0 * half)
    assert values[1000] == pytest.approx(0.0 if schedule != "constant" else 2.0, abs=1e-12)
    kept = rates(TrainingConfig(rate=1.0, warmup_steps=201, final_rate=0.1), 1000)
    assert kept[200] == 1.0 and kept[600] == pytest.approx(0.55) and kept[1000] == pytest.approx(0.1)


def test_the_papers_schedule() -> None:
    """Peak at the 2,000th update, then half a cosine: as computed by hand from the position alone."""
    config = SYSTEMS["gpt"].sizes["paper"].pretraining
    values = rates(config, 100_000)
    assert values[0] == pytest.approx(2.5e-4 / 2000) and values[999] == pytest.approx(1.25e-4)
    assert values[1999] == 2.5e-4 == max(values)
    for step in (2000, 30_000, 77_777, 99_999):
        turned = math.pi * (step - 1999) / (100_000 - 1999)
        assert values[step] == pytest.approx(1.25e-4 * (1 + math.cos(turned)), rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("kind", ["tokens", "minutes"])
@pytest.mark.parametrize("uneven", [False, True])
def test_warm_up_in_steps_under_other_budgets(kind: str, uneven: bool) -> None:
    """Steps of unequal length, those of the second half four times as long: still up to the peak and never up again."""
    config = TrainingConfig(rate=1.0, warmup_steps=101, schedule="linear")
    lengths = [(4 if uneven and step >= 500 else 1) * (3 + step % 7 if uneven else 6) for step in range(1000)]
    budget = Budget(tokens=sum(lengths)) if kind == "tokens" else Budget(minutes=sum(lengths) / 60)
    position, values = Position(), []
    for length in [*lengths, 0]:
        values.append(rate_at(config, budget.progress(position), position.step))
        position.step, position.tokens = position.step + 1, position.tokens + length
        position.seconds += length
    assert values[:101] == pytest.approx([(step + 1) / 101 for step in range(101)])
    assert values[100] == 1.0 and values[100:] == sorted(values[100:], reverse=True)
    assert values[-1] == pytest.approx(0.0, abs=1e-9)
    if not uneven:
        assert values == pytest.approx(rates(config, 1000), abs=1e-9)


def test_a_budget_that_ends_in_the_warm_up() -> None:
    config = TrainingConfig(rate=1.0, warmup_steps=200)
    assert rates(config, 100) == pytest.approx([(step + 1) / 200 for step in range(101)])
    assert rates(TrainingConfig(rate=1.0, warmup_steps=1, schedule="linear"), 4) == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_a_budget_of_minutes_has_the_shape_of_one_of_steps() -> None:
    config = TrainingConfig(rate=1.0, warmup=0.1)
    for part in (0.0, 0.05, 0.3, 0.9, 1.0):
        position = Position(step=int(part * 1000), seconds=part * 120, tokens=int(part * 5000))
        by = [budget.progress(position) for budget in (Budget(minutes=2), Budget(steps=1000), Budget(tokens=5000))]
        assert by == pytest.approx([part] * 3)
        values = {round(rate_at(config, progress, position.step), 9) for progress in by}
        assert len(values) == 1


def test_budget_ends_and_refuses() -> None:
    assert not Budget(steps=3).spent(Position(step=2)) and Budget(steps=3).spent(Position(step=3))
    assert Budget(tokens=10).spent(Position(tokens=11))
    assert not Budget(minutes=1).spent(Position(seconds=50), 5) and Budget(minutes=1).spent(Position(seconds=50), 10)
    for wrong in ({}, {"steps": 3, "minutes": 1.0}, {"steps": 0}, {"minutes": -1.0}, {"minutes": math.nan}):
        with pytest.raises(UserError):
            Budget(**wrong)


@pytest.mark.parametrize(
    "text", ["batch_size=0", "micro_batch=-1", "warmup=1.5", "rate=0.0", "clip=-1.0", "rate=nan", "final_rate=2.0"]
)
def test_settings_out_of_range_are_refused_by_name(text: str) -> None:
    key, _, value = text.partition("=")
    with refused(f"training.{key}", value):
        apply_sets({"training": PLAIN}, [f"training.{text}"])["training"].check()


def test_a_warm_up_over_the_whole_budget() -> None:
    assert rate_at(TrainingConfig(rate=1.0, warmup=1.0), 0.5, 5) == pytest.approx(0.5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs_with_decay_apart(momentum: float, tmp_path: Path) -> None:
    config = TrainingConfig(optimizer="sgd", beta1=momentum, weight_decay=0.0)
    ours = parameters()
    theirs = {name: nn.Parameter(p.detach().clone()) for name, p in ours.items()}
    optimizer = Optimizer(config, ours, [Group(list(ours))])
    reference = torch.optim.SGD(theirs.values(), lr=0.1, momentum=momentum)
    for step in range(9):
        draw_gradients(ours, step)
        draw_gradients(theirs, step)
        optimizer.step(0.1)
        reference.step()
    close(ours, theirs, terms=terms_of(9 * UPDATE))
    assert set(optimizer.state) == ({f"{name}/momentum" for name in SHAPES} if momentum else set())
    assert {optimizer.kept(name) for name in SHAPES} == {int(momentum > 0)}
    decaying = parameters()
    before = {name: p.detach().clone() for name, p in decaying.items()}
    for parameter in decaying.values():
        parameter.grad = torch.zeros_like(parameter)
    Optimizer(replace(config, weight_decay=0.5), decaying, [Group(list(decaying))]).step(0.1)
    for name, parameter in decaying.items():
        close(parameter, before[name] * (0.95 if parameter.dim() > 1 else 1.0), terms=UPDATE)


def test_halvings_and_the_root_of_the_steps() -> None:
    halving = TrainingConfig(rate=1.0, schedule="halving", warmup=0.0)
    assert [rate_at(halving, progress, 7, halvings) for progress, halvings in ((0, 0), (0.9, 0), (1, 3))] == [
        1,
        1,
        1 / 8,
    ]
    root = TrainingConfig(rate=0.5, schedule="root", warmup_steps=5_000)
    for step in (0, 2_499, 4_999, 9_999, 40_000):  # the released code's, whose steps count from 1
        wanted = 0.5 * min(step + 1, 5_000) / 5_000 / (1 + 0.005 * math.sqrt(step))
        assert rate_at(root, 0.3, step) == pytest.approx(wanted)
