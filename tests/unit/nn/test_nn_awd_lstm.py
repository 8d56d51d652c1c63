"""The AWD-LSTM trunk against an LSTM written out step by step, and the properties that every trunk has."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from complaints import refused
from slow_recurrent import lstm
from systems_under_test import assert_same, gradients
from tolerance import close, terms_of
from torch import Tensor, nn

from foretext.batch import Batch, detached
from foretext.nn.fused import TiedSoftmax
from foretext.nn.recurrent.awd_lstm import (
    DROPOUTS,
    AwdLstm,
    AwdLstmConfig,
    LstmLayer,
    activation_penalty,
    penalty_counts,
    temporal_penalty,
)
from foretext.nn.recurrent.lstm_layer import reading_order
from foretext.train.carried import from_tensors, to_tensors

TINY = AwdLstmConfig(vocabulary=23, layers=3, width=6, hidden=9, context=8, dropout=0.0)
LENGTHS = (5, 12, 1, 0, 7, 7)
THERE = terms_of((12 + 3) * (9 + 9))  # over twelve steps and three layers, each the sums of inputs and states


def trunk_of(**changes: object) -> AwdLstm:
    """With weights so large that all of the past matters."""
    trunk = AwdLstm(replace(TINY, **changes)).eval()
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return trunk


def ids_of(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(0, TINY.vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))


def padded_to(lengths: tuple[int, ...], width: int, side: str, fill: int = 0) -> tuple[Batch, Tensor]:
    """The first tokens of `ids_of` rows, so many of each."""
    whole = ids_of(len(lengths), max(lengths))
    ids, mask = torch.full((len(lengths), width), fill), torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, length in enumerate(lengths):
        start = {"right": 0, "left": width - length, "both": (width - length) // 2}[side]
        ids[row, start : start + length] = whole[row, :length]
        mask[row, start : start + length] = True
    return Batch(ids, mask), mask


def weighted(states: Tensor) -> Tensor:
    """A scalar that every state matters to."""
    return (states * torch.randn(states.shape, generator=torch.Generator().manual_seed(5))).sum()


def some_state(trunk: AwdLstm, rows: int) -> tuple[tuple[Tensor, Tensor], ...]:
    return tuple((torch.randn_like(h), torch.randn_like(c)) for h, c in trunk.new_state(rows))


def literal_lstm(x_TD: Tensor, h: Tensor, c: Tensor, weights: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """One row, step by step."""
    states = []
    for x in x_TD:
        h, c = lstm(x, h, c, weights, "")
        states.append(h)
    return torch.stack(states) if states else x_TD.new_zeros(0, len(h)), h, c


def literal(trunk: AwdLstm, ids_T: Tensor, state: tuple[tuple[Tensor, Tensor], ...], row: int):
    """All layers' states of one row, and its last h and c in each layer."""
    layers, after = [trunk.tokens.weight[ids_T]], []
    for layer, (h, c) in zip(trunk.layers, state):
        y, h, c = literal_lstm(layers[-1], h[row], c[row], dict(layer.named_parameters()))
        layers.append(y)
        after.append((h, c))
    return layers, after


# -- the equations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left", "both"])
@pytest.mark.parametrize("width", [12, 30])
@pytest.mark.parametrize("lengths", [LENGTHS, (12, 12), (4, 0, 4), (0, 3)], ids=str)
def test_states_and_gradients_are_those_of_the_equations(lengths: tuple[int, ...], width: int, side: str) -> None:
    """Whatever the padding, and with rows of unequal length, some of them empty."""
    trunk = trunk_of()
    batch, mask = padded_to(lengths, width, side, fill=3)
    before = some_state(trunk, len(lengths))
    expected = [literal(trunk, batch.ids_BT[row, mask[row]], before, row) for row in range(len(lengths))]
    hidden = trunk(batch, before, keep_layers=True)
    assert len(hidden.layers) == 4 and torch.equal(hidden.layers[-1], hidden.top)
    for number, layer in enumerate(hidden.layers):
        wanted = torch.cat([layers[number] for layers, _ in expected])
        close(layer[mask], wanted, terms=THERE)
        assert not bool(layer[~mask].any())
    for number, (h, c) in enumerate(hidden.state):
        for part, ours in enumerate((h, c)):
            close(ours, torch.stack([after[number][part] for _, after in expected]), terms=THERE)

    (weighted(torch.cat([layers[-1] for layers, _ in expected])) + expected[-1][1][0][1].sum()).backward()
    wanted = gradients(trunk)
    trunk.zero_grad()
    (weighted(hidden.top[mask]) + hidden.state[0][1][-1].sum()).backward()
    assert_same(gradients(trunk), wanted)


@pytest.mark.parametrize("thawed", ["layers.2.", "layers.1.bias_hh", "layers.0.weight_hh", "tokens."])
@pytest.mark.parametrize("lengths", [(7, 7), (7, 3)], ids=str)
def test_frozen_weights_change_no_gradient_of_the_others(thawed: str, lengths: tuple[int, ...]) -> None:
    trunk = trunk_of()
    batch, mask = padded_to(lengths, 7, "right")
    weighted(trunk(batch).top[mask]).backward()
    wanted = {name: gradient for name, gradient in gradients(trunk).items() if name.startswith(f"0.{thawed}")}
    trunk.zero_grad()
    for name, parameter in trunk.named_parameters():
        parameter.requires_grad_(name.startswith(thawed))
    weighted(trunk(batch).top[mask]).backward()
    assert_same(gradients(trunk), wanted)


def test_a_batch_without_a_real_token() -> None:
    trunk = trunk_of()
    for shape in ((2, 3), (1, 1), (2, 0)):
        before = some_state(trunk, shape[0])
        empty = Batch(torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool))
        hidden = trunk(empty, before, keep_layers=True)
        assert hidden.top.shape == (*shape, TINY.width) and not bool(hidden.top.any())
        assert all(torch.equal(a, b) for new, old in zip(hidden.state, before) for a, b in zip(new, old))
        hidden.top.sum().backward()
        assert all(not bool(p.grad.any()) for p in trunk.parameters() if p.grad is not None)


# -- reading on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[1] * 12, [12], [5, 1, 6]], ids=str)
def test_reading_in_pieces_is_reading_at_once(pieces: list[int]) -> None:
    trunk, ids = trunk_of(), ids_of(3, 12)
    with torch.no_grad():
        whole = trunk(Batch(ids), trunk.new_state(3))
        assert trunk(Batch(ids)).state is None and torch.equal(trunk(Batch(ids)).top, whole.top)
        state, start = trunk.new_state(3), 0
        for length in pieces:
            hidden = trunk(Batch(ids[:, start : start + length]), state)
            close(hidden.top, whole.top[:, start : start + length], terms=THERE)
            state, start = hidden.state, start + length
    close(sum(state, ()), sum(whole.state, ()), terms=THERE)
    assert trunk.room(state) is None


def test_documents_of_unequal_length_in_pieces() -> None:
    """Rows that have ended are empty in later pieces, and keep their states; gradients flow through all pieces."""
    trunk = trunk_of()
    batch, mask = padded_to(LENGTHS, 12, "left")
    weighted(trunk(batch).top[mask]).backward()
    wanted = gradients(trunk)
    trunk.zero_grad()
    once = trunk(batch, trunk.new_state(len(LENGTHS)))
    state, tops = trunk.new_state(len(LENGTHS)), []
    for start in range(0, 12, 5):
        hidden = trunk(Batch(batch.ids_BT[:, start : start + 5], mask[:, start : start + 5]), state)
        state = hidden.state
        tops.append(hidden.top)
    top = torch.cat(tops, dim=1)
    close(top, once.top, terms=THERE)
    close(sum(state, ()), sum(once.state, ()), terms=THERE)
    weighted(top[mask]).backward()
    assert_same(gradients(trunk), wanted)


def test_the_state_is_one_that_the_loop_can_carry() -> None:
    trunk = trunk_of()
    state = trunk(Batch(ids_of(2, 4)), trunk.new_state(2)).state
    assert all(part.requires_grad for pair in state for part in pair)
    kept = from_tensors(to_tensors({0: detached(state)}), torch.device("cpu"))[0]
    assert all(not part.requires_grad for pair in kept for part in pair)
    a, b = (trunk(Batch(ids_of(2, 4, seed=2)), one).top for one in (kept, state))
    assert torch.equal(a, b)


def test_rows_of_a_state_are_picked_and_one_row_serves_all() -> None:
    trunk, ids = trunk_of(), ids_of(3, 5, seed=2)
    state = some_state(trunk, 3)
    chosen = torch.tensor([2, 0, 2])
    both = trunk(Batch(ids), trunk.pick(state, chosen)).top
    alone = [trunk(Batch(ids[n : n + 1]), trunk.pick(state, torch.tensor([r]))).top for n, r in enumerate(chosen)]
    close(both, torch.cat(alone), terms=THERE)
    first = trunk.pick(state, torch.tensor([0]))
    batch, _ = padded_to((5, 0, 3), 5, "left")
    for one in (Batch(ids), batch):
        shared, repeated = trunk(one, first), trunk(one, trunk.pick(state, torch.tensor([0, 0, 0])))
        close([shared.top, *sum(shared.state, ())], [repeated.top, *sum(repeated.state, ())], terms=THERE)


def test_a_later_token_changes_nothing_earlier() -> None:
    trunk, ids = trunk_of(), ids_of(2, 12)
    before = trunk(Batch(ids)).top.detach()
    for place in (1, 7, 11):
        changed = ids.clone()
        changed[0, place] = (ids[0, place] + 1) % TINY.vocabulary
        after = trunk(Batch(changed)).top.detach()
        assert torch.equal(after[0, :place], before[0, :place]) and torch.equal(after[1], before[1])
        assert all(not torch.equal(after[0, later], before[0, later]) for later in range(place, 12))


# -- dropout in the trunk --------------------------------------------------------------------------------------------


def only(name: str) -> AwdLstm:
    """In training mode with one of the five dropouts, of very nearly a half: .999 times the multiplier."""
    return trunk_of(dropout=0.5, **dict.fromkeys(DROPOUTS, 0.0) | {name: 0.999}).train()


@pytest.mark.parametrize("lengths", [(7, 7), LENGTHS], ids=str)
def test_padding_changes_nothing_with_dropout_either(lengths: tuple[int, ...]) -> None:
    trunk = trunk_of(dropout=1.0).train()
    found = []
    for width, side in ((max(lengths), "right"), (30, "left")):
        batch, mask = padded_to(lengths, width, side)
        torch.manual_seed(1)
        top = trunk.output_dropout(trunk(batch).top)
        weighted(top[mask]).backward()
        found.append((top[mask], gradients(trunk)))
        trunk.zero_grad()
    close(found[0][0], found[1][0], terms=THERE)
    assert_same(found[0][1], found[1][1])


def test_evaluation_drops_nothing_and_training_does_so_by_the_seed() -> None:
    ids = Batch(ids_of(2, 6))
    trunk, plain = trunk_of(dropout=1.0), trunk_of(dropout=0.0)
    plain.load_state_dict(trunk.state_dict())
    expected = plain(ids).top
    assert torch.equal(trunk(ids).top, expected) and torch.equal(trunk.output_dropout(expected), expected)
    assert torch.equal(plain.train()(ids).top, expected), "no dropout in training either"
    trunk.train()
    tops = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        tops.append(trunk(ids).top)
    assert torch.equal(tops[0], tops[1]) and not torch.allclose(tops[0], tops[2], atol=1e-3)


def test_weight_dropout_is_of_the_hidden_matrices_alone_and_drawn_for_each_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trunk = only("weight_dropout")
    real, seen = torch.lstm, []

    def watched(*arguments):
        seen.append(next(part for part in arguments if isinstance(part, list) and len(part) == 4))
        return real(*arguments)

    monkeypatch.setattr(torch, "lstm", watched)
    raw = {name: parameter.detach().clone() for name, parameter in trunk.named_parameters()}
    for _ in range(2):
        trunk(Batch(ids_of(2, 5))).top.sum().backward()
    assert len(seen) == 6
    scale = 1 / (1 - round(0.4995 * 65536) / 65536)  # sixteen bits decide each
    for layer in range(3):
        first, second = seen[layer], seen[layer + 3]
        for weights in (first, second):
            for name, number in (("weight_ih", 0), ("bias_ih", 2), ("bias_hh", 3)):
                assert torch.equal(weights[number], raw[f"layers.{layer}.{name}"])
            ratio = weights[1] / raw[f"layers.{layer}.weight_hh"]
            dropped = ratio == 0
            assert 0.3 < float(dropped.float().mean()) < 0.7
            assert bool((dropped.any(1) & ~dropped.all(1)).any()), "entries, not rows"
            close(ratio[~dropped], torch.full_like(ratio[~dropped], scale), terms=3)
        assert not torch.equal(first[1] == 0, second[1] == 0)
    for name, parameter in trunk.named_parameters():
        assert torch.equal(parameter, raw[name]), "the weights themselves stay as they are"


def test_gradients_reach_the_weights_through_their_dropout() -> None:
    trunk = only("weight_dropout")
    torch.manual_seed(3)
    trunk(Batch(ids_of(4, 9))).top.pow(2).sum().backward()
    for layer in trunk.layers:
        zero = layer.weight_hh.grad == 0
        assert 0.3 < float(zero.float().mean()) < 0.7, "those that were dropped, and no others, have none"
        assert not bool((layer.weight_ih.grad == 0).all())


def test_input_dropout_is_the_same_at_every_time_step() -> None:
    trunk = only("input_dropout")
    plain = trunk.tokens.weight.detach()
    for lengths in ((6, 6, 6), (6, 2, 5)):
        batch, mask = padded_to(lengths, 6, "left")
        first = trunk(batch, keep_layers=True).layers[0].detach()
        ratio = first / plain[batch.ids_BT]
        masks = []
        for row in range(3):
            steps = ratio[row, mask[row]]
            close(steps, steps[:1].expand_as(steps), terms=3)
            masks.append(steps[0] == 0)
        assert 0 < sum(int(one.sum()) for one in masks) < 3 * TINY.width
        assert not torch.equal(masks[0], masks[1]) or not torch.equal(masks[0], masks[2]), "each row its own"


def test_hidden_dropout_is_between_the_layers_and_output_dropout_on_request() -> None:
    """In the states that are returned nothing is dropped; the next layer reads the dropped ones."""
    batch = Batch(ids_of(2, 6))
    trunk = only("hidden_dropout")
    state = trunk.new_state(2)
    layers = trunk(batch, keep_layers=True).layers
    evaluated = trunk.eval()(batch, keep_layers=True).layers
    assert torch.equal(layers[0], evaluated[0]) and torch.equal(layers[1], evaluated[1])
    assert not torch.allclose(layers[2], evaluated[2], atol=1e-3)
    one = only("hidden_dropout")
    one.layers = one.layers[:1]
    again = one(batch, state[:1]).top
    assert torch.equal(again, one.eval()(batch, state[:1]).top), "nothing passes on from the last layer"
    trunk = only("output_dropout")
    top = trunk(batch).top
    assert torch.equal(top, trunk.eval()(batch).top)
    ratio = (trunk.train().output_dropout(top) / top).detach()
    close(ratio, ratio[:, :1].expand_as(ratio), terms=3)
    assert set(ratio.round(decimals=2).unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(ratio[0], ratio[1])


def test_embedding_dropout_takes_a_token_wherever_it_stands() -> None:
    trunk = only("embedding_dropout")
    ids = ids_of(8, 20)
    ratio = (trunk(Batch(ids), keep_layers=True).layers[0] / trunk.tokens.weight[ids]).detach()
    of_token = ratio[..., 0]
    close(ratio, of_token[..., None].expand_as(ratio), terms=3)
    found = {token: of_token[ids == token].round(decimals=2).unique().tolist() for token in ids.unique().tolist()}
    assert all(len(values) == 1 for values in found.values())
    assert {values[0] for values in found.values()} == {0.0, 2.0}


# -- the penalties ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["none", "right", "left"])
def test_penalties_are_means_of_squares_over_real_tokens(side: str) -> None:
    trunk = trunk_of(dropout=1.0).train()
    if side == "none":
        batch, mask = Batch(ids_of(6, 12)), torch.ones(6, 12, dtype=torch.bool)
    else:
        batch, mask = padded_to(LENGTHS, 15, side)
    top = trunk(batch).top
    dropped = trunk.output_dropout(top)
    activation, steps = [], []
    for row in range(len(mask)):
        activation += dropped[row, mask[row]].reshape(-1).tolist()
        steps += (top[row, mask[row]][1:] - top[row, mask[row]][:-1]).reshape(-1).tolist()
    ar, tar = activation_penalty(dropped, batch.mask_BT), temporal_penalty(top, batch.mask_BT)
    assert (ar.count, tar.count) == (len(activation), len(steps)) == penalty_counts(batch, TINY.width)
    close(ar.total, sum(value**2 for value in activation), terms=len(activation))
    close(tar.total, sum(value**2 for value in steps), terms=len(steps))
    (ar.total + tar.total).backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in trunk.parameters())


# -- shape, vocabulary, learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"layers": 1}, {"layers": 2, "width": 5, "vocabulary": 7}], ids=str)
def test_the_configuration_knows_how_many_parameters(changes: dict[str, int]) -> None:
    config = replace(TINY, **changes)
    config.check()
    trunk = AwdLstm(config)
    assert config.parameters() == sum(p.numel() for p in trunk.parameters())
    names = [name for group in trunk.layer_groups() for name in group]
    assert names == [name for name, _ in trunk.named_parameters()] and len(trunk.layer_groups()) == config.layers + 1
    assert trunk(Batch(ids_of(2, 3) % config.vocabulary)).top.shape == (2, 3, config.width)
    assert str(config.width) in config.describe() and config.activations(20) > config.activations(10) > 0


def test_the_paper_has_twenty_four_million_on_the_penn_treebank() -> None:
    """Its 10,000 words, and 4·1150·(400+1150+2) + 4·1150·(1150+1150+2) + 4·400·(1150+400+2)."""
    assert AwdLstmConfig(vocabulary=10_000).parameters() == 4_000_000 + 7_139_200 + 10_589_200 + 2_483_200


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden": 0}, ["model.hidden"]),
        ({"dropout": -0.1}, ["training.dropout", "-0.1"]),
        ({"dropout": math.nan}, ["training.dropout", "nan"]),
        ({"dropout": 2.0}, ["model.weight_dropout=0.5"]),
        ({"input_dropout": 1.0}, ["model.input_dropout", "1.0"]),
        ({"init_range": 0.0}, ["model.init_range", "0.0"]),
    ],
    ids=str,
)
def test_what_no_trunk_can_have_is_said(changes: dict[str, float], named: list[str]) -> None:
    with refused(*named):
        replace(TINY, **changes).check()


def test_initial_weights_and_growing() -> None:
    trunk = AwdLstm(AwdLstmConfig(vocabulary=50, width=40, hidden=100))
    for name, parameter in trunk.named_parameters():
        bound = 0.1 if name.startswith("tokens") else 100**-0.5 if name[7] in "01" else 40**-0.5
        values = parameter.detach()
        assert float(values.abs().max()) <= bound, name
        few = 4 / math.sqrt(values.numel())
        assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=few), name
        assert abs(float(values.mean())) < few * bound, name
    old = trunk.tokens.weight.detach().clone()
    trunk.grow_vocabulary(90)
    new = trunk.output_table()
    assert new is trunk.tokens.weight and new.requires_grad and torch.equal(new[:50], old)
    fresh = new[50:].detach()
    assert float(fresh.abs().max()) <= 0.1 and float(fresh.std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.1)
    assert bool(torch.isfinite(trunk(Batch(torch.tensor([[89]]))).top).all())


def test_it_learns_over_carried_states() -> None:
    """What follows a token is given by what stood three before it, in the piece before: only the state can know."""
    torch.manual_seed(0)
    trunk = AwdLstm(AwdLstmConfig(vocabulary=4, layers=2, width=16, hidden=24, dropout=0.1)).train()
    optimizer = torch.optim.Adam(trunk.parameters(), lr=0.03)
    losses = []
    for _ in range(70):
        first = torch.randint(0, 4, (16, 3))
        state = trunk(Batch(first), trunk.new_state(16)).state
        top = trunk.output_dropout(trunk(Batch(first.new_zeros(16, 3)), state).top)
        loss = TiedSoftmax(trunk.output_table()).loss(top.flatten(0, 1), first.flatten()) / first.numel()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    chance = math.log(4)  # which nothing can beat that does not know the piece before
    assert sum(losses[-10:]) / 10 < 0.75 * chance


def test_gates_of_a_lively_trunk_hear_their_inputs() -> None:
    """Measured on what the layers read of random tokens; otherwise the first layer's gates hear next to nothing."""
    torch.manual_seed(0)
    wide = AwdLstmConfig(vocabulary=500, width=96, hidden=128, dropout=0.0)
    ids = torch.randint(0, 500, (8, 40))

    def heard(trunk: AwdLstm) -> list[float]:
        read = trunk(Batch(ids), keep_layers=True).layers[:-1]
        return [float((x @ layer.weight_ih.T).std()) for x, layer in zip(read, trunk.layers)]  # type: ignore[operator]

    with torch.no_grad():
        trunk = AwdLstm(replace(wide, lively=True))
        first, *upper = heard(trunk)
        assert first == pytest.approx(1.0, rel=0.05)
        assert all(0.5 < one < 1.5 for one in upper)
        assert float(trunk.output_table().abs().max()) <= 0.1, "the softmax has the embeddings as they are"
        trunk.tokens.weight.mul_(torch.empty(500, 1).uniform_(0.2, 20.0))
        assert heard(trunk) == pytest.approx([first, *upper], rel=0.01), "however large they become"
        assert heard(AwdLstm(wide))[0] < 0.05


def test_rows_of_unequal_length_learn_as_by_torchs_kernel() -> None:
    torch.manual_seed(0)
    layer = LstmLayer(5, 7, weight_dropout=0.0, input_bound=0.4).double()
    peer = nn.LSTM(5, 7).double()
    peer.load_state_dict({f"{name}_l0": tensor for name, tensor in layer.state_dict().items()})
    lengths, state = [4, 1, 6, 0], tuple(torch.randn(4, 7, dtype=torch.double, requires_grad=True) for _ in range(2))
    x_BTD = torch.randn(4, 6, 5, dtype=torch.double, requires_grad=True)
    real_BT = torch.arange(6) < torch.tensor(lengths)[:, None]
    order = reading_order(real_BT)
    assert not order.even
    y, (h, c) = layer(order.gather(x_BTD), order, state)
    packed = nn.utils.rnn.pack_padded_sequence(x_BTD[:3], torch.tensor(lengths[:3]), True, enforce_sorted=False)
    read, last = peer(packed, tuple(part[None, :3] for part in state))
    theirs, _ = nn.utils.rnn.pad_packed_sequence(read, batch_first=True)
    there = terms_of(6 * (5 + 7))  # six steps
    close(order.scatter(y)[:3], theirs, terms=there)
    for own, other, before in zip((h, c), last, state):
        close(own, torch.cat([other[0], before[3:]]), terms=there)
    weights_BTD = torch.randn(4, 6, 7, dtype=torch.double)
    ours = (order.scatter(y) * weights_BTD).sum() + h.sum() - c[:2].sum()
    other = (theirs * weights_BTD[:3]).sum() + last[0].sum() + state[0][3:].sum() - last[1][0, :2].sum()
    found = torch.autograd.grad(ours, [x_BTD, *state, *layer.parameters()])
    wanted = torch.autograd.grad(other, [x_BTD, *state, *peer.parameters()])
    close(found, wanted, terms=terms_of(3 * there, sum(lengths)))  # back through two products a step
    with torch.no_grad():
        again, _ = layer(order.gather(x_BTD), order, state)
    close(again, y, terms=there)
