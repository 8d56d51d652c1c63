"""Properties of every trunk: padding, batching, causality, the decoding cache, growing the vocabulary."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from systems_under_test import (
    CAUSAL,
    CONTEXTUAL,
    FRAMED,
    SHAPE,
    TINY,
    TRANSFORMERS,
    assert_same,
    gradients,
    reshaped,
    trunk_of,
    windows,
)
from tolerance import close, terms_of
from torch import Tensor

from foretext.batch import Batch
from foretext.nn.packing import _group, pack
from foretext.nn.transformer.transformer import Transformer
from foretext.systems import SYSTEMS
from foretext.systems.base import TrunkParts

THERE = terms_of(2 * (5 * 32 + 2 * 24 + 128))  # of each of two layers: norms and projections, keys, inner states
LENGTHS = (5, 24, 1, 13, 13, 2, 24, 9)
CHOICES: dict[str, dict[str, object]] = {  # of GPT's configuration
    "as it is": {},
    "pre": {"norm": "pre"},
    "modern": {"norm": "pre", "norm_kind": "rms", "activation": "silu", "gated": True, "inner": 48, "bias": False}
    | {"positions": "rotary", "query_key_norm": True, "values": "first"},
    "value tables": {"positions": "none", "activation": "squared-relu", "values": "embeddings"},
}
OTHERS = [("gpt", choice) for choice in CHOICES if choice != "as it is"]


@pytest.fixture(params=[*((name, "as it is") for name in CONTEXTUAL), *OTHERS], ids=" ".join)
def trunk(request: pytest.FixtureRequest) -> torch.nn.Module:
    name, choice = request.param
    return trunk_of(name, **CHOICES[choice])


@pytest.fixture(params=[*((name, "as it is") for name in CAUSAL), *OTHERS], ids=" ".join)
def causal(request: pytest.FixtureRequest) -> torch.nn.Module:
    name, choice = request.param
    return trunk_of(name, **CHOICES[choice])


def padded_rows(rows: list[np.ndarray], length: int, side: str, fill: int) -> tuple[Batch, Tensor]:
    ids, mask = torch.full((len(rows), length), fill), torch.zeros(len(rows), length, dtype=torch.bool)
    for number, row in enumerate(rows):
        start = {"right": 0, "left": length - len(row), "both": (length - len(row)) // 2}[side]
        ids[number, start : start + len(row)] = torch.from_numpy(row)
        mask[number, start : start + len(row)] = True
    return Batch(ids, mask), mask


def weighted(states: Tensor) -> Tensor:
    """A scalar that every state matters to."""
    torch.manual_seed(5)
    return (states * torch.randn(states.shape)).sum()


@pytest.mark.parametrize("side", ["right", "left", "both"])
def test_padding_changes_nothing(trunk, side: str) -> None:
    rows = windows(LENGTHS)
    alone = torch.cat([trunk(Batch(torch.from_numpy(row)[None])).top[0] for row in rows])
    weighted(alone).backward()
    expected = gradients(trunk)
    for length, fill in itertools.product((24, 60), (0, 7)):
        trunk.zero_grad()
        batch, mask = padded_rows(rows, length, side, fill)
        top = trunk(batch).top
        close(top[mask], alone, terms=THERE)
        assert float(top[~mask].detach().abs().sum()) == 0
        weighted(top[mask]).backward()
        assert_same(gradients(trunk), expected)


def test_every_layer_is_as_if_the_row_were_alone(trunk) -> None:
    rows = windows(LENGTHS)
    batch, mask = padded_rows(rows, 24, "right", 0)
    layers = trunk(batch, keep_layers=True).layers
    assert len(layers) == SHAPE.layers + 1
    for number, row in enumerate(rows):
        alone = trunk(Batch(torch.from_numpy(row)[None]), keep_layers=True).layers
        assert len(alone) == len(layers)
        for together, single in zip(layers, alone):
            close(together[number, mask[number]], single[0], terms=THERE)


@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("part", [0.2, 0.9])
def test_states_that_are_read_are_the_same_whatever_else_is(trunk, side: str, part: float) -> None:
    """With few of them the last layer leaves the others out; with many it does not."""
    rows = windows((24, 24, 24) if side == "none" else LENGTHS)
    batch, mask = padded_rows(rows, 24, "right" if side == "none" else side, 0)
    read = mask & (torch.rand(mask.shape, generator=torch.Generator().manual_seed(3)) < part)
    read[0, -1] = True
    weighted(trunk(batch).top[read]).backward()
    expected = gradients(trunk)
    trunk.zero_grad()
    top = trunk(batch.reading(read)).top
    close(top[read], trunk(batch).top[read], terms=THERE)
    leaves_out = part < 0.5 and hasattr(trunk, "blocks")  # a recurrent layer has no step to leave out
    assert bool(top[mask & ~read].any()) != leaves_out, "left out where they are many"
    weighted(top[read]).backward()
    assert_same(gradients(trunk), expected)
    assert len(trunk(batch.reading(read), keep_layers=True).layers) == SHAPE.layers + 1
    close(trunk(batch.reading(read), keep_layers=True).top, trunk(batch).top, terms=THERE)


@pytest.mark.parametrize("system", TINY)
def test_padding_changes_nothing_with_dropout_either(system: str) -> None:
    dropping = trunk_of(system, dropout=0.3).train()
    rows = windows((3, 4, 5, 5))
    batch, mask = padded_rows(rows, 24, "left", 0)
    torch.manual_seed(1)
    top = dropping(batch).top
    weighted(top[mask]).backward()
    narrow, narrow_mask = padded_rows(rows, 5, "right", 0)
    before = gradients(dropping)
    dropping.zero_grad()
    torch.manual_seed(1)
    weighted(dropping(narrow).top[narrow_mask]).backward()
    assert_same(gradients(dropping), before)


def test_a_later_token_changes_nothing_earlier(causal) -> None:
    ids = torch.from_numpy(np.stack(windows((24, 24))))
    before = causal(Batch(ids)).top.detach()
    for place in (1, 7, 23):
        changed = ids.clone()
        changed[0, place] = (ids[0, place] + 1) % SHAPE.vocabulary
        after = causal(Batch(changed)).top.detach()
        assert torch.equal(after[0, :place], before[0, :place])
        assert torch.equal(after[1], before[1])
        for later in range(place, 24):
            assert not torch.equal(after[0, later], before[0, later]), "and everything from there on"


@pytest.mark.parametrize("system", [name for name in CONTEXTUAL if name not in CAUSAL])
def test_a_trunk_that_is_not_causal_sees_both_sides(system: str) -> None:
    trunk = trunk_of(system)
    ids = torch.from_numpy(np.stack(windows((24, 24))))
    before = trunk(Batch(ids)).top.detach()
    changed = ids.clone()
    changed[0, 11] = (ids[0, 11] + 1) % SHAPE.vocabulary
    after = trunk(Batch(changed)).top.detach()
    assert torch.equal(after[1], before[1])
    assert all(not torch.equal(after[0, place], before[0, place]) for place in range(24))


def test_with_one_segment_all_tokens_have_it() -> None:
    trunk = trunk_of("bert", segments=1)
    ids = torch.from_numpy(np.stack(windows((24, 24))))
    assert torch.equal(trunk(Batch(ids, segments_BT=torch.ones_like(ids))).top, trunk(Batch(ids)).top)


@pytest.mark.parametrize("system", [name for name in TINY if getattr(TINY[name], "segments", 1) > 1])
def test_segments_matter_and_the_first_is_the_default(system: str) -> None:
    trunk = trunk_of(system)
    ids = torch.from_numpy(np.stack(windows((9, 9))))
    usual = trunk(Batch(ids)).top
    zeros = torch.zeros_like(ids)
    close(trunk(Batch(ids, segments_BT=zeros)).top, usual, terms=THERE)
    assert not torch.allclose(trunk(Batch(ids, segments_BT=zeros + 1)).top, usual, atol=1e-3)


def test_empty_rows_are_left_alone(trunk) -> None:
    rows = windows((4, 0, 6))
    batch, mask = padded_rows(rows, 8, "right", 0)
    top = trunk(batch).top
    for number in (0, 2):
        alone = trunk(Batch(torch.from_numpy(rows[number])[None])).top[0]
        close(top[number, mask[number]], alone, terms=THERE)
    assert float(top[1].detach().abs().sum()) == 0


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (2, 0)], ids=str)
def test_a_batch_without_a_real_token(trunk, shape: tuple[int, int]) -> None:
    top = trunk(Batch(torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool))).top
    assert top.shape == (*shape, SHAPE.width) and float(top.detach().abs().sum()) == 0
    top.sum().backward()


def test_given_positions_are_used() -> None:
    trunk = trunk_of("gpt")
    ids = torch.from_numpy(np.stack(windows((6, 6))))
    positions = torch.arange(6).expand(2, 6)
    usual = trunk(Batch(ids)).top
    close(trunk(Batch(ids, positions_BT=positions)).top, usual, terms=THERE)
    assert not torch.allclose(trunk(Batch(ids, positions_BT=positions + 3)).top, usual, atol=1e-3)


def test_groups_hold_every_token_once_and_little_else() -> None:
    lengths = [3, 200, 1, 90, 199, 0, 90, 2, 88, 3]
    groups, of_groups, members, to_groups, from_groups = _group(lengths)
    assert sorted(length for group in of_groups for length in group) == sorted(length for length in lengths if length)
    assert from_groups.sort().values.unique().numel() == sum(lengths)
    assert torch.equal(to_groups[from_groups], torch.arange(sum(lengths)))
    slots = sum(rows * length for _, rows, length in groups)
    assert slots == len(to_groups)
    assert slots <= 1.25 * sum(lengths) + 64 * len(groups)
    assert len(groups) > 1
    assert [[lengths[row] for row in rows] for rows in members] == [list(own) for own in of_groups]


def test_groups_are_of_one_kind() -> None:
    lengths, kinds = [3, 9, 4, 0, 9, 4], [0, 1, 1, 0, 0, 1]
    _, of_groups, members, *_ = _group(lengths, kinds)
    assert sorted(members) == [(1, 2, 5), (4, 0)] and sorted(of_groups) == [(9, 3), (9, 4, 4)]
    ids = torch.zeros(6, 2, dtype=torch.long)
    assert pack(Batch(ids), kinds).members == ((0,), (1, 2), (3, 4), (5,)), "as they stand, where nothing is padded"
    assert pack(Batch(ids), kinds).groups == ((0, 1, 2), (2, 2, 2), (6, 2, 2), (10, 1, 2))


def test_a_full_batch_is_not_copied() -> None:
    ids = torch.zeros(2, 3, dtype=torch.long)
    for mask in (None, torch.ones(2, 3, dtype=torch.bool)):
        packing = pack(Batch(ids, mask))
        assert packing.to_groups is None and packing.flat_N is None


# -- the decoding cache ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[1] * 20, [20], [7, 1, 5, 1, 6], [1, 19]], ids=str)
def test_reading_in_pieces_is_reading_at_once(causal, pieces: list[int]) -> None:
    causal.eval()
    ids = torch.from_numpy(np.stack(windows((20, 20, 20))))
    with torch.no_grad():
        whole = causal(Batch(ids)).top
        state, start = causal.new_state(3), 0
        for length in pieces:
            hidden = causal(Batch(ids[:, start : start + length]), state)
            close(hidden.top, whole[:, start : start + length], terms=THERE)
            state, start = hidden.state, start + length
        left = causal.room(causal.new_state(3))
        assert causal.room(state) == (None if left is None else left - 20)


def test_a_state_takes_positions_and_gives_layers_as_without_one(causal) -> None:
    causal.eval()
    batch = Batch(torch.from_numpy(np.stack(windows((7, 7)))), positions_BT=torch.arange(7).flip(0).repeat(2, 1))
    with torch.no_grad():
        without = causal(batch, keep_layers=True)
        given = causal(batch, causal.new_state(2), keep_layers=True)
    assert len(without.layers) > 1
    close((given.top, *given.layers), (without.top, *without.layers), terms=THERE)


# -- shape and vocabulary --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", TINY)
@pytest.mark.parametrize("changes", [{}, {"layers": 3, "width": 20, "heads": 2, "vocabulary": 7}], ids=str)
def test_the_configuration_knows_how_many_parameters(system: str, changes: dict[str, int]) -> None:
    config = reshaped(system, **changes)
    assert config.parameters() == sum(p.numel() for p in SYSTEMS[system].build_trunk(TrunkParts(config)).parameters())


@pytest.mark.parametrize("system", TINY)
def test_layer_groups_name_every_parameter_once(system: str) -> None:
    trunk = trunk_of(system)
    names = [name for group in trunk.layer_groups() for name in group]
    assert sorted(names) == sorted(name for name, _ in trunk.named_parameters())
    layers = len(trunk.blocks) if hasattr(trunk, "blocks") else TINY[system].layers  # ALBERT's share one block
    assert len(trunk.layer_groups()) == layers + 1


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_counts_and_groups_its_parameters(choice: str) -> None:
    trunk = trunk_of("gpt", **CHOICES[choice])
    assert trunk.config.parameters() == sum(p.numel() for p in trunk.parameters())
    named = [name for group in trunk.layer_groups() for name in group]
    assert sorted(named) == sorted(name for name, _ in trunk.named_parameters())
    assert ("final_norm.weight" in trunk.layer_groups()[-1]) == (trunk.config.norm == "pre")
    assert ("value_tables.1.weight" in trunk.layer_groups()[0]) == (choice == "value tables")
    weighted(trunk(Batch(torch.from_numpy(np.stack(windows((9, 9)))))).top).backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in trunk.parameters()), "and learns all of them"


def test_growing_the_vocabulary() -> None:
    trunk = Transformer(replace(SHAPE, width=256, heads=4))
    old = trunk.tokens.weight.detach().clone()
    trunk.grow_vocabulary(SHAPE.vocabulary + 40)
    new = trunk.tokens.weight
    assert new.shape == (SHAPE.vocabulary + 40, 256) and new.requires_grad
    assert torch.equal(new[: SHAPE.vocabulary], old)
    fresh = new[SHAPE.vocabulary :].detach()
    assert abs(float(fresh.std()) - 0.02) < 0.001 and abs(float(fresh.mean())) < 0.001
    top = trunk(Batch(torch.tensor([[SHAPE.vocabulary + 39]]))).top
    assert bool(torch.isfinite(top).all()) and trunk.output_table() is new
    tables = Transformer(replace(SHAPE, values="embeddings"))
    own = tables.value_tables["1"].weight.detach().clone()
    apart = Transformer(replace(SHAPE, untied=True))
    table = apart.output_table().detach().clone()
    apart.grow_vocabulary(SHAPE.vocabulary + 40)
    assert apart.output_table().shape == (SHAPE.vocabulary + 40, SHAPE.width)
    assert torch.equal(apart.output_table()[: SHAPE.vocabulary], table) and not torch.equal(
        apart.output_table()[:5], apart.tokens.weight[:5]
    )
    tables.grow_vocabulary(SHAPE.vocabulary + 40)
    assert tables.value_tables["1"].weight.shape == (SHAPE.vocabulary + 40, SHAPE.width)
    assert torch.equal(tables.value_tables["1"].weight[: SHAPE.vocabulary], own)


def test_zero_residuals_make_a_new_trunk_its_embeddings() -> None:
    plain, zero = (Transformer(replace(SHAPE, norm="pre", zero_residuals=told)) for told in (False, True))
    ids = torch.tensor([[5, 60, 3, 3, 17]])
    layers = zero(Batch(ids), keep_layers=True).layers
    assert len(layers) == 3 and all(torch.equal(layer, layers[0]) for layer in layers)
    assert float((plain(Batch(ids), keep_layers=True).layers[1] - layers[0]).detach().abs().max()) > 1e-3
    drawn = {name for name, parameter in zero.named_parameters() if parameter.dim() > 1 and bool(parameter.any())}
    assert {name for name, p in zero.named_parameters() if p.dim() > 1} - drawn == {
        f"blocks.{layer}.{name}" for layer in (0, 1) for name in RESIDUAL
    }


TRUNCATED = 0.8796  # deviation of a normal distribution that is cut at two deviations
RESIDUAL = ("attention.out.weight", "down.weight")  # what GPT-2 draws smaller


@pytest.mark.parametrize("system", TRANSFORMERS)
def test_initial_weights(system: str) -> None:
    trunk = SYSTEMS[system].build_trunk(TrunkParts(replace(TINY[system], width=128)))
    for name, parameter in trunk.named_parameters():
        if name.endswith(("skip", "shares")):
            assert parameter.tolist() == ([1.0, 0.0] if name.endswith("skip") else [0.5, 0.5])
        elif "norm" in name:
            assert torch.equal(parameter, torch.full_like(parameter, float(name.endswith("weight"))))
        elif name.endswith("bias"):
            assert float(parameter.detach().abs().sum()) == 0
        else:
            shrunk = system == "gpt2" and name.endswith(RESIDUAL)
            wanted = 0.02 / math.sqrt(2 * TINY[system].layers) if shrunk else 0.02
            if system in FRAMED:
                wanted *= TRUNCATED
                assert float(parameter.detach().abs().max()) <= 0.04
            few = 4 / math.sqrt(2 * parameter.numel())  # four deviations of a measured deviation
            assert float(parameter.detach().std()) == pytest.approx(wanted, rel=few), name
