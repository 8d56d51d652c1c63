"""Transformer-XL's memory: where it equals one longer reading, how far it reaches, that nothing is learned through it,
and that padding does not get into it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from complaints import refused
from systems_under_test import TERMS, TINY, masks_drawn, trunk_of
from tolerance import close, terms_of
from torch import Tensor

from foretext.batch import Batch, detached
from foretext.nn.relative.transformer_xl import TransformerXL, TransformerXLConfig
from foretext.nn.trunk import remembering
from foretext.systems import SYSTEMS
from foretext.train.carried import from_tensors, to_tensors

THERE = terms_of(3 * (6 * 32 + 2 * 20 + 128))  # of each of three layers: norms and projections, keys, inner states
SHAPE: TransformerXLConfig = TINY["transformer_xl"]
VARIANTS = [{}, {"untied": True}, {"cutoffs": (10, 30)}, {"cutoffs": (10, 30), "divisor": 2}, {"clamp": 3}]


def ids_of(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, SHAPE.vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def in_segments(trunk: TransformerXL, ids_BT: Tensor, lengths: list[int]) -> Tensor:
    state, tops = trunk.new_state(len(ids_BT)), []
    for segment in ids_BT.split(lengths, dim=1):
        hidden = trunk(Batch(segment), state)
        state = detached(hidden.state)
        tops.append(hidden.top)
    return torch.cat(tops, dim=1)


# -- where it equals one longer reading ------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_memory_of_everything_is_one_longer_reading(changes: dict[str, object]) -> None:
    """Of any depth: each layer's memory is the states that the longer reading has there."""
    trunk = trunk_of("transformer_xl", layers=3, memory=40, evaluation_memory=40, **changes)
    ids = ids_of(2, 14)
    for training in (True, False):
        trunk.train(training)
        whole = trunk(Batch(ids)).top
        for lengths in ([14], [5, 9], [4, 1, 6, 3]):
            close(in_segments(trunk, ids, lengths), whole, terms=THERE)


def test_with_one_layer_a_memory_is_a_reading_from_where_it_begins() -> None:
    """A layer's memory is embeddings, which do not depend on what stood before them."""
    trunk = trunk_of("transformer_xl", layers=1, memory=5)
    ids = ids_of(2, 16)
    found = in_segments(trunk, ids, [6, 6, 4])
    close(found[:, 6:12], trunk(Batch(ids[:, 1:12])).top[:, 5:], terms=THERE)
    close(found[:, 12:], trunk(Batch(ids[:, 7:])).top[:, 5:], terms=THERE)
    deep = trunk_of("transformer_xl", layers=2, memory=5)
    farther = in_segments(deep, ids, [6, 6, 4])[:, 12:]
    assert not torch.allclose(farther, deep(Batch(ids[:, 7:])).top[:, 5:], atol=1e-3), "two layers remember farther"


def test_without_memory_segments_are_read_alone() -> None:
    trunk = trunk_of("transformer_xl", memory=0)
    ids = ids_of(2, 12)
    alone = torch.cat([trunk(Batch(part)).top for part in ids.split(4, dim=1)], dim=1)
    close(in_segments(trunk, ids, [4, 4, 4]), alone, terms=THERE)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("memory", [0, 1, 4, 7])
def test_in_evaluation_pieces_never_matter(memory: int, changes: dict[str, object]) -> None:
    """Each token sees itself and so many before it, however the text is cut; without a state too, and with gradients
    as without."""
    trunk = trunk_of("transformer_xl", layers=3, context=6, memory=3, evaluation_memory=memory, **changes).eval()
    ids = ids_of(2, 20)
    assert ids.shape[1] > trunk.config.reads
    whole = trunk(Batch(ids), trunk.new_state(2)).top
    for lengths in ([1] * 20, [7, 13], [2, 11, 1, 6]):
        close(in_segments(trunk, ids, lengths), whole, terms=THERE)
    at_once = trunk(Batch(ids), keep_layers=True)
    close(at_once.top, whole, terms=THERE)
    with torch.no_grad():
        in_pieces = trunk(Batch(ids), keep_layers=True)
        first = trunk(Batch(ids[:, :12]), trunk.new_state(2))
        close(trunk(Batch(ids[:, 12:]), first.state).top, whole[:, 12:], terms=THERE)
    assert in_pieces.state is None
    assert len(in_pieces.layers) == len(at_once.layers) == 4
    close((in_pieces.top, *in_pieces.layers), (at_once.top, *at_once.layers), terms=THERE)


@pytest.mark.parametrize("memory", [1, 3])
def test_it_reaches_back_by_its_memory_for_each_layer(memory: int) -> None:
    """In evaluation the last of the tokens that matter stands layers · memory places back."""
    trunk = trunk_of("transformer_xl", layers=2, evaluation_memory=memory).eval()
    ids = ids_of(1, 20)
    before = in_segments(trunk, ids, [7, 13])[0, -1]
    for distance in range(20):
        other = ids.clone()
        other[0, 19 - distance] = (other[0, 19 - distance] + 1) % SHAPE.vocabulary
        same = torch.equal(in_segments(trunk, other, [7, 13])[0, -1], before)
        assert same == (distance > 2 * memory), distance


def test_its_length_is_another_for_a_while() -> None:
    trunk = trunk_of("transformer_xl").eval()
    ids = ids_of(2, 12)
    usual = trunk(Batch(ids)).top
    with remembering(trunk, 2):
        short = trunk(Batch(ids)).top
    assert not torch.allclose(short, usual, atol=1e-3)
    close(short, trunk_of_length(trunk, 2)(Batch(ids)).top, terms=THERE)
    with remembering(trunk, None):
        assert torch.equal(trunk(Batch(ids)).top, usual)


@pytest.mark.parametrize(("memory", "made"), [(1000, [1, 2, 4, 8, 16, 32]), (5, [1, 2, 4, 6])])
def test_distances_are_projected_as_a_text_grows(memory: int, made: list[int]) -> None:
    """And not as many as a memory could hold."""
    trunk = trunk_of("transformer_xl", evaluation_memory=memory).eval()
    state, lengths = trunk.new_state(1), []
    with torch.no_grad():
        for id in ids_of(20):
            state = trunk(Batch(id.view(1, 1)), state).state
            lengths.append(len(state["far"][0]))
    assert sorted(set(lengths)) == made and lengths == sorted(lengths)
    assert all(far >= min(place, memory + 1) for place, far in enumerate(lengths, 1))


def trunk_of_length(trunk: TransformerXL, memory: int) -> TransformerXL:
    made = TransformerXL(replace(trunk.config, evaluation_memory=memory)).eval()
    made.load_state_dict(trunk.state_dict())
    return made


# -- what is learned -------------------------------------------------------------------------------------------------


def test_nothing_is_learned_through_memory() -> None:
    """The gradient of the second segment is that of a memory which is a constant: what is read of it learns, what made
    it does not."""
    trunk = trunk_of("transformer_xl", memory=10)
    first, second = torch.arange(8)[None], torch.arange(20, 28)[None]
    state = trunk(Batch(first), trunk.new_state(1)).state
    assert not any(tensor.requires_grad for tensor in (*state["layers"], state["real"]))
    top = trunk(Batch(second), state).top
    asked = torch.randn(top.shape)
    (top * asked).sum().backward()
    rows = trunk.tokens.weight.grad.abs().sum(1)
    assert float(rows[:8].sum()) == 0 and bool((rows[20:28] > 0).all())
    with_memory = trunk.blocks[0].attention.key.weight.grad.clone()
    trunk.zero_grad()
    (trunk(Batch(second), state).top * asked).sum().backward()
    close(trunk.blocks[0].attention.key.weight.grad, with_memory, terms=TERMS)
    trunk.zero_grad()
    constants = {"layers": tuple(torch.zeros_like(states) for states in state["layers"]), "real": state["real"]}
    (trunk(Batch(second), constants).top * asked).sum().backward()
    assert not torch.allclose(with_memory, trunk.blocks[0].attention.key.weight.grad, atol=1e-3)


def test_a_state_is_kept_in_a_checkpoint() -> None:
    trunk = trunk_of("transformer_xl", memory=10)
    state = trunk(Batch(ids_of(2, 8)), trunk.new_state(2)).state
    restored = from_tensors(to_tensors({0: state}), torch.device("cpu"))[0]
    second = Batch(ids_of(2, 8, seed=1))
    assert torch.equal(trunk(second, restored).top, trunk(second, state).top)


@pytest.mark.parametrize("remembers", [False, True])
def test_dropout_falls_on_everything_but_what_is_remembered_of_the_top(
    remembers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two blocks and four heads over two rows of eight tokens; in training two readings differ, in evaluation they
    do not; what is predicted from is dropped once more."""
    drawn = masks_drawn(monkeypatch)
    trunk = trunk_of("transformer_xl", dropout=0.3, attention_dropout=0.3).train()
    batch = Batch(ids_of(2, 8))
    top = trunk(batch, trunk.new_state(2) if remembers else None).top
    assert drawn == {
        (16, 32): 1 + 2 * 2,  # embeddings, and what each block adds to the states twice
        (8, 32): 1,  # distances
        (2 * 4, 8, 8): 2,  # attention weights
        (16, 128): 2,  # the feed-forward part's units
    }
    assert not torch.equal(trunk(batch).top, top)
    dropped = trunk.output_dropout(top)
    zeros = float((dropped == 0).float().mean())
    assert 0.2 < zeros < 0.4 and float((top == 0).float().mean()) < 0.01
    trunk.eval()
    drawn.clear()
    assert torch.equal(trunk(batch).top, trunk(batch).top) and trunk.output_dropout(top) is top and not drawn


# -- padding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("side", ["left", "right", "between"])
def test_padding_does_not_get_into_memory(side: str, training: bool) -> None:
    """Rows that go on by unequal numbers of tokens, some by none, padded in any way, are each as if read alone."""
    trunk = trunk_of("transformer_xl", memory=6, evaluation_memory=6).train(training)
    draw = torch.Generator().manual_seed(2)
    together, alone = trunk.new_state(3), [trunk.new_state(1) for _ in range(3)]
    for step, counts in enumerate([(3, 5, 0), (4, 1, 2), (0, 0, 0), (7, 2, 3)]):
        for width in (8,):
            ids, mask = torch.full((3, width), step), torch.zeros(3, width, dtype=torch.bool)
            tokens = [ids_of(1, count, seed=10 * step + row) for row, count in enumerate(counts)]
            for row, count in enumerate(counts):
                places = {
                    "left": torch.arange(width - count, width),
                    "right": torch.arange(count),
                    "between": torch.randperm(width, generator=draw)[:count].sort().values,
                }[side]
                ids[row, places], mask[row, places] = tokens[row][0], True
            hidden = trunk(Batch(ids, mask), together, keep_layers=True)
            assert float(hidden.top[~mask].detach().abs().sum()) == 0
            together = detached(hidden.state)
            for row, own in enumerate(tokens):
                if own.shape[1]:
                    single = trunk(Batch(own), alone[row], keep_layers=True)
                    alone[row] = detached(single.state)
                    ours = [states[row, mask[row]] for states in (hidden.top, *hidden.layers)]
                    close(ours, [states[0] for states in (single.top, *single.layers)], terms=THERE)


def test_rows_of_a_state_are_picked_and_one_row_serves_all() -> None:
    trunk = trunk_of("transformer_xl").eval()
    state = trunk(Batch(ids_of(3, 9)), trunk.new_state(3)).state
    chosen, second = torch.tensor([2, 0, 2]), ids_of(3, 4, seed=1)
    picked = trunk(Batch(second), trunk.pick(state, chosen)).top
    for number, row in enumerate(chosen):
        alone = trunk(Batch(second[number : number + 1]), trunk.pick(state, row[None])).top
        close(picked[number], alone[0], terms=THERE)
    first = trunk.pick(state, torch.tensor([0]))
    repeated = trunk.pick(state, torch.tensor([0, 0, 0]))
    close(trunk(Batch(second), first).top, trunk(Batch(second), repeated).top, terms=THERE)


# -- the rest --------------------------------------------------------------------------------------------------------


def test_attention_weights_are_what_is_mixed() -> None:
    trunk = trunk_of("transformer_xl").eval()
    ids = ids_of(7)
    weights = trunk.attention_weights(ids)
    assert weights.shape == (2, 4, 7, 7)
    close(weights.sum(-1), torch.ones(2, 4, 7), terms=2 * 7)
    assert torch.equal(weights, weights.tril())
    x = trunk(Batch(ids[None]), keep_layers=True).layers[0][0].detach()
    block = trunk.blocks[0]
    values = (x @ block.attention.value.weight.t()).view(7, 4, 8)
    mixed = torch.einsum("hij,jhk->ihk", weights[0], values).flatten(1)
    after = block._after(x, mixed)
    close(after, trunk(Batch(ids[None]), keep_layers=True).layers[1][0], terms=THERE)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_vocabulary_grows(changes: dict[str, object]) -> None:
    trunk = trunk_of("transformer_xl", **changes).eval()
    before = trunk(Batch(ids_of(1, 6))).top
    trunk.grow_vocabulary(SHAPE.vocabulary + 3)
    close(trunk(Batch(ids_of(1, 6))).top, before, terms=THERE)
    assert bool(torch.isfinite(trunk(Batch(torch.tensor([[SHAPE.vocabulary + 2]]))).top).all())
    shape = replace(trunk.config, vocabulary=SHAPE.vocabulary + 3)
    assert shape.parameters() == sum(parameter.numel() for parameter in trunk.parameters())
    assert TransformerXL(shape).load_state_dict(trunk.state_dict())
    named = [name for group in trunk.layer_groups() for name in group]
    assert sorted(named) == sorted(name for name, _ in trunk.named_parameters())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"memory": -1}, ["model.memory", "-1"]),
        ({"evaluation_memory": 10**9}, ["model.evaluation_memory", str(10**9)]),
        ({"clamp": -2}, ["model.clamp", "-2"]),
        ({"attention_dropout": 1.0}, ["model.attention_dropout", "1.0"]),
        ({"cutoffs": (5, 5)}, ["model.cutoffs=5,5"]),
        ({"cutoffs": (0, 5)}, ["model.cutoffs=0,5"]),
        ({"cutoffs": (5, 61)}, ["model.cutoffs=5,61", "vocabulary", "--set model.cutoffs="]),
        ({"divisor": 2}, ["model.divisor=2", "model.cutoffs"]),
        ({"cutoffs": (5, 9), "divisor": 6}, ["model.divisor=6", "width", "32"]),
        ({"heads": 5}, ["model.width=32", "model.heads=5"]),
        ({"width": 33, "heads": 3}, ["model.width", "even", "33"]),
    ],
    ids=str,
)
def test_shapes_that_cannot_be(changes: dict[str, object], named: list[str]) -> None:
    SHAPE.check()
    with refused(*named):
        replace(SHAPE, **changes).check()


def test_a_task_reads_as_far_as_distances_are_known_and_seen() -> None:
    assert replace(SHAPE, context=10, memory=7, evaluation_memory=50).reads == 17
    assert replace(SHAPE, context=10, memory=7, evaluation_memory=11).reads == 12
    assert SHAPE.activations(40) > SHAPE.activations(20) > 0 and "memory of 24" in SHAPE.describe()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"memory": 25}, ["model.evaluation_memory=48"]),
        ({"context": 500}, ["model.evaluation_memory=523", "model.clamp=523"]),
        ({"context": 500, "clamp": 0}, ["model.evaluation_memory=523"]),
        ({"clamp": 46}, ["model.clamp=47"]),
        ({"memory": 0, "evaluation_memory": 23, "clamp": 23}, []),
    ],
    ids=str,
)
def test_numbers_that_stayed_behind_are_pointed_out(changes: dict[str, object], said: list[str]) -> None:
    shape = replace(SHAPE, **changes)
    shape.check()
    assert [remark.rpartition("--set ")[2] for remark in shape.remarks()] == said
    assert not any("\n" in remark for remark in shape.remarks())


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_size_has_any(system: str) -> None:
    assert not [remark for size in SYSTEMS[system].sizes.values() for remark in size.model.remarks()]
