"""The projected LSTM against its equations, written out one sequence and step at a time; and against torch's kernel
where there are no bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from complaints import refused
from tolerance import close, terms_of
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from foretext.nn.recurrent.lstm_layer import LstmState, ProjectedLstm, ProjectedLstmConfig, reading_orders

# Bounds so narrow that both bite at some steps and not at others.
CONFIG = ProjectedLstmConfig(inputs=3, cells=6, width=4, cell_clip=0.6, state_clip=0.4)
TERMS = terms_of(11 * (3 + 4 + 6))  # of eleven steps at most: inputs, states, the projection
MASK = torch.tensor([[0, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()


def layer(config: ProjectedLstmConfig = CONFIG) -> ProjectedLstm:
    made = ProjectedLstm(config).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def random_state(rows: int, config: ProjectedLstmConfig = CONFIG) -> LstmState:
    return torch.randn(rows, config.width).double() * 0.3, torch.randn(rows, config.cells).double() * 0.3


def within(x: Tensor, bound: float) -> Tensor:
    limit = torch.full_like(x, bound)
    return torch.minimum(torch.maximum(x, -limit), limit)


def literal(made: ProjectedLstm, x_TD: Tensor, h: Tensor, c: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """One sequence, its tokens in the order of reading."""
    config, states = made.config, []
    for x in x_TD:
        a = made.input.weight @ x + made.recurrent.weight @ h + made.input.bias
        i, f, g, o = (a[number * config.cells : (number + 1) * config.cells] for number in range(4))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        if config.cell_clip:
            c = within(c, config.cell_clip)
        h = torch.sigmoid(o) * torch.tanh(c)
        if made.project is not None:
            h = made.project.weight @ h
            if config.state_clip:
                h = within(h, config.state_clip)
        states.append(h)
    return states, h, c


def run(made: ProjectedLstm, x_BTD: Tensor, mask: Tensor, state: LstmState, backward: bool) -> tuple[Tensor, LstmState]:
    order = reading_orders(mask)[backward]
    h_ND, new = made(order.gather(x_BTD), order, state)
    return order.scatter(h_ND), new


def run_literally(
    made: ProjectedLstm, x_BTD: Tensor, mask: Tensor, state: LstmState, backward: bool
) -> tuple[Tensor, LstmState]:
    top, last_h, last_c = [], [], []
    for row, real in enumerate(mask.tolist()):
        places = [place for place, there in enumerate(real) if there]
        states, h, c = literal(made, x_BTD[row, places[::-1] if backward else places], state[0][row], state[1][row])
        found = dict(zip(places[::-1] if backward else places, states))
        zero = torch.zeros(made.config.width).double()
        top.append(torch.stack([found.get(place, zero) for place in range(len(real))]))
        last_h.append(h)
        last_c.append(c)
    return torch.stack(top), (torch.stack(last_h), torch.stack(last_c))


VARIANTS = [CONFIG, replace(CONFIG, cell_clip=0.0), replace(CONFIG, state_clip=0.0), replace(CONFIG, width=6)]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("config", [*VARIANTS, replace(CONFIG, cell_clip=0.0, state_clip=0.0)])
def test_it_is_the_equations_and_so_are_its_gradients(config: ProjectedLstmConfig, backward: bool) -> None:
    made = layer(config)
    x = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    state = tuple(part.requires_grad_() for part in random_state(5, config))
    gradients = []
    weights = [torch.randn(5, 5, config.width).double(), *random_state(5, config)]
    leaves = [x, *state, *made.parameters()]
    results = []
    for function in (run, run_literally):
        top, new = function(made, x, MASK, state, backward)
        results.append((top, *new))
        total = sum((part * weight).sum() for part, weight in zip(results[-1], weights))
        gradients.append(torch.autograd.grad(total, leaves))
    close(results[0], results[1], terms=TERMS)
    close(gradients[0], gradients[1], terms=terms_of(3 * TERMS, int(MASK.sum())))
    assert torch.equal(results[0][2][2], state[1][2])  # the empty row keeps what it had
    if config is CONFIG:
        for part, bound in ((results[0][0][MASK], 0.4), (results[0][2], 0.6)):
            at_bound = (part.abs() == bound).double().mean()
            assert 0.05 < at_bound < 0.95, "the bounds are to bite here and there"


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, width=6)])
def test_gradients(config: ProjectedLstmConfig) -> None:
    made = layer(config)
    order = reading_orders(MASK)[1]
    names = [name for name, _ in made.named_parameters()]

    def forward(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        h_ND, new = torch.func.functional_call(made, dict(zip(names, weights)), (x, order, (h, c)))
        return h_ND, *new

    leaves = [torch.randn(sum(order.sizes), 3).double(), *random_state(5, config), *made.parameters()]
    assert torch.autograd.gradcheck(
        forward, [leaf.detach().clone().requires_grad_() for leaf in leaves], fast_mode=True
    )


@pytest.mark.parametrize("width", [4, 6])
def test_without_bounds_it_is_torchs_kernel(width: int) -> None:
    config = replace(CONFIG, width=width, cell_clip=0.0, state_clip=0.0)
    made, order = layer(config), reading_orders(MASK)[0]
    theirs = nn.LSTM(3, 6, proj_size=width if width < 6 else 0).double()
    weights = {"weight_ih_l0": made.input.weight, "weight_hh_l0": made.recurrent.weight}
    weights |= {"bias_ih_l0": made.input.bias, "bias_hh_l0": torch.zeros(24).double()}
    if made.project is not None:
        weights["weight_hr_l0"] = made.project.weight
    x, (h, c) = torch.randn(sum(order.sizes), 3).double(), random_state(5, config)
    packed, (last_h, _) = torch.func.functional_call(
        theirs,
        weights,
        (PackedSequence(x, torch.tensor(order.sizes)), (h[order.rows_B][None, :4], c[order.rows_B][None, :4])),
    )
    ours, (our_h, _) = made(x, order, (h, c))
    close(ours, packed.data, terms=TERMS)
    close(our_h[order.rows_B[:4]], last_h[0], terms=TERMS)


EVEN = torch.tensor([[0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]]).bool()


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize(("mask", "even"), [(EVEN, True), (MASK, False)])
@pytest.mark.parametrize("width", [4, 6])
def test_without_bounds_the_kernel_serves_but_for_rows_that_learn_and_are_unequal_or_projected(
    width: int, mask: Tensor, even: bool, learning: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, width=width, cell_clip=0.0, state_clip=0.0)
    made, rows = layer(config), len(mask)
    x, state = torch.randn(rows, mask.shape[1], 3).double(), random_state(rows, config)
    right = run_literally(made, x, mask, state, False)
    fused, kernel = [], torch.lstm

    def watched(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
        fused.append(given)
        return kernel(*given)

    monkeypatch.setattr(torch, "lstm", watched)
    with torch.set_grad_enabled(learning):
        top, new = run(made, x, mask, state, False)
    assert len(fused) == ((even and width == 6) or not learning)
    if fused:  # the block's kernel is given the states in the second place, the packed one the sizes
        assert isinstance(fused[0][1], Tensor) != (even and width == 6), "with a projection it warns, and is slow"
    close((top, *new), (right[0], *right[1]), terms=TERMS)


def test_pieces_equal_the_whole() -> None:
    """Contiguous streams, in pieces of 4, 1 and 6 tokens; what is carried is exact."""
    made, x = layer(), torch.randn(3, 11, 3).double()
    mask = torch.ones(3, 11, dtype=torch.bool)
    whole, last = run(made, x, mask, made.new_state(3), False)
    state, parts = made.new_state(3), []
    for piece in x.split([4, 1, 6], dim=1):
        top, state = run(made, piece, mask[:, : piece.shape[1]], state, False)
        parts.append(top)
    close(torch.cat(parts, dim=1), whole, terms=TERMS)
    close(state, last, terms=TERMS)


@pytest.mark.parametrize("backward", [False, True])
def test_padding_changes_nothing(backward: bool) -> None:
    made, x, state = layer(), torch.randn(2, 4, 3).double(), random_state(2)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    plain, last = run(made, x, mask, state, backward)
    wide = torch.full((2, 9, 3), float("nan")).double()
    wide_mask = torch.zeros(2, 9, dtype=torch.bool)
    wide[0, 5:9], wide_mask[0, 5:9] = x[0], True  # at the very right
    wide[1, 2:4], wide_mask[1, 2:4] = x[1, :2], True  # in the middle
    moved, moved_last = run(made, wide, wide_mask, state, backward)
    close((moved[0, 5:9], moved[1, 2:4]), (plain[0], plain[1, :2]), terms=TERMS)
    assert not moved[~wide_mask].any()
    close(moved_last, last, terms=TERMS)


def test_nothing_to_read() -> None:
    made, state = layer(), random_state(2)
    top, new = run(made, torch.randn(2, 3, 3).double(), torch.zeros(2, 3, dtype=torch.bool), state, False)
    assert top.shape == (2, 3, 4) and not top.any()
    assert all(torch.equal(one, other) for one, other in zip(new, state))


def test_new_weights_remember() -> None:
    bias = ProjectedLstm(CONFIG).input.bias
    assert bias[6:12].eq(1).all() and not bias[:6].any() and not bias[12:].any()


@pytest.mark.parametrize("config", VARIANTS)
def test_parameters_are_counted(config: ProjectedLstmConfig) -> None:
    config.check()
    assert config.parameters() == sum(parameter.numel() for parameter in ProjectedLstm(config).parameters())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"width": 7}, ["7", "6 cells"]),
        ({"width": 0}, ["0", "6 cells"]),
        ({"cell_clip": -1.0}, ["model.cell_clip", "-1.0"]),
        ({"state_clip": float("nan")}, ["model.state_clip", "nan"]),
    ],
)
def test_impossible_shapes(changes: dict[str, float], named: list[str]) -> None:
    with refused(*named):
        replace(CONFIG, **changes).check()  # type: ignore[arg-type]
