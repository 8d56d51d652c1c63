"""The two directions together: against one sequence and step at a time, what is carried, padding, and the mixture."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from complaints import refused
from tolerance import close, terms_of
from torch import Tensor
from word_tables import word_table

from foretext.batch import detached
from foretext.nn.recurrent.bilm import Bilm, BilmState, BilmTrunkConfig, LstmStack
from foretext.nn.recurrent.char_cnn import CharEncoderConfig
from foretext.nn.task_models.sentence_models import ScalarMix
from foretext.train.carried import from_tensors, to_tensors

WORDS = CharEncoderConfig(width=3, filter_widths=(1, 2), filter_counts=(3, 4), embedding=2, length=9, highways=1)
CONFIG = BilmTrunkConfig(0, layers=3, cells=5, cell_clip=0.8, state_clip=0.7, dropout=0.0, words=WORDS)
TERMS = terms_of((7 + 3) * (3 + 3 + 5))  # over seven words and three layers: the inputs', the state's, the projection's
MASK = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()


def bilm(config: BilmTrunkConfig = CONFIG) -> Bilm:
    made = Bilm(config).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def literal(stack: LstmStack, words_TD: Tensor, layers: int) -> list[Tensor]:
    """One direction over one sequence, from nothing, its words in the order of reading."""
    x = list(words_TD)
    found = []
    for number in range(layers):
        lstm, config = stack.lstms[number], stack.config
        h, c = torch.zeros(3).double(), torch.zeros(5).double()
        outputs = []
        for word in x:
            a = lstm.input.weight @ word + lstm.input.bias + lstm.recurrent.weight @ h
            i, f, g, o = a.view(4, 5)
            c = (f.sigmoid() * c + i.sigmoid() * g.tanh()).clip(-config.cell_clip, config.cell_clip)
            h = (lstm.project.weight @ (o.sigmoid() * c.tanh())).clip(-config.state_clip, config.state_clip)
            outputs.append(h + word if number > 0 and config.residual else h)
        x = outputs
        found.append(torch.stack(outputs))
    return found


@pytest.mark.parametrize("residual", [True, False])
def test_it_is_the_equations(residual: bool) -> None:
    made, words = bilm(replace(CONFIG, residual=residual)), torch.randn(3, 5, 3).double()
    read = made(words, MASK)
    assert len(read.layers) == 4 and read.top is read.layers[-1]
    for row, real in enumerate(MASK.tolist()):
        places = [place for place, there in enumerate(real) if there]
        for stack, order, half in ((made.forwards, places, slice(0, 3)), (made.backwards, places[::-1], slice(3, 6))):
            assert torch.equal(read.layers[0][row, order, half], words[row, order])
            for layer, expected in zip(read.layers[1:], literal(stack, words[row, order], 3 if places else 0)):
                close(layer[row, order, half], expected, terms=TERMS)
    assert all(not layer[~MASK].any() for layer in read.layers)


def test_each_side_sees_its_own() -> None:
    made, words = bilm(), torch.randn(1, 6, 3).double()
    changed = words.clone()
    changed[0, 3] += 1.0
    moved = (made(words).top - made(changed).top).abs().amax(dim=0)
    assert not moved[:3, :3].any() and moved[3:, :3].any(dim=1).all()  # forward
    assert not moved[4:, 3:].any() and moved[:4, 3:].any(dim=1).all()  # backward


def test_rows_and_padding_change_nothing() -> None:
    made, words = bilm(), torch.randn(3, 5, 3).double()
    words[~MASK] = float("nan")
    together = made(words, MASK)
    assert all(bool(layer.isfinite().all()) for layer in together.layers)
    for row in (0, 1):
        alone = made(words[row, MASK[row]][None])
        for one, other in zip(alone.layers, together.layers):
            close(one[0], other[row, MASK[row]], terms=TERMS)


def test_forward_pieces_equal_the_whole_and_backward_ones_from_the_right() -> None:
    made, words = bilm(), torch.randn(2, 7, 3).double()
    whole = made(words)
    state, pieces = made.new_state(2), []
    for piece in words.split([3, 1, 3], dim=1):
        read = made(piece, state=state)
        state = detached(read.state)
        pieces.append(read.top[..., :3])
    close(torch.cat(pieces, dim=1), whole.top[..., :3], terms=TERMS)
    right = made(words[:, 4:])
    left = made(words[:, :4], state=right.state)
    close(torch.cat([left.top, right.top], dim=1)[..., 3:], whole.top[..., 3:], terms=TERMS)


def parts(state: BilmState) -> list[Tensor]:
    return [part for stack in state for layer in stack for part in layer]


def test_rows_that_come_wait_and_are_empty() -> None:
    made = bilm()
    first = made(torch.randn(2, 4, 3).double())
    words = torch.randn(3, 4, 3).double()
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    more = made(words, mask, first.state)
    for before, after in zip(parts(first.state), parts(more.state)):
        assert after.shape[0] == 3 and torch.equal(before[1], after[1]) and not torch.equal(before[0], after[0])
    fresh = made(words[2:])
    close(more.top[2:], fresh.top, terms=TERMS)
    fewer = made(words[:1], state=more.state)
    for before, after in zip(parts(more.state), parts(fewer.state)):
        assert after.shape[0] == 3 and torch.equal(before[1:], after[1:]) and not torch.equal(before[0], after[0])


def test_the_state_can_be_kept_in_a_checkpoint() -> None:
    made = bilm()
    state = made(torch.randn(2, 4, 3).double()).state
    again = from_tensors(to_tensors({0: state}), torch.device("cpu"))[0]
    assert all(torch.equal(one, other) for one, other in zip(parts(state), parts(again)))
    assert len(again) == 2 and len(again[0]) == 3


def test_dropout_is_on_the_input_of_each_layer_and_in_training_only() -> None:
    made, words = bilm(replace(CONFIG, dropout=0.5)), torch.randn(4, 5, 3).double()
    made.eval()
    assert torch.equal(made(words).top, made(words).top)
    made.train()
    read = made(words)
    assert torch.equal(read.layers[0][..., :3], words)
    assert not torch.equal(read.layers[1], made(words).layers[1])


def test_gradients_reach_every_weight_once() -> None:
    made = bilm()
    table = word_table([["ab", "c"], ["d"]], WORDS.length)
    made(table.encoded(made), table.mask_BT).top.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in made.parameters())


def test_parameters_are_counted_and_impossible_shapes_refused() -> None:
    CONFIG.check()
    assert CONFIG.parameters() == sum(parameter.numel() for parameter in Bilm(CONFIG).parameters())
    for changes, named in (
        ({"layers": 0}, ["model.layers"]),
        ({"dropout": 1.0}, ["model.dropout", "1.0"]),
        ({"cells": 2}, ["model", "3", "2 cells"]),
        ({"words": replace(WORDS, embedding=0)}, ["model.words.embedding"]),
    ):
        with refused(*named):
            replace(CONFIG, **changes).check()  # type: ignore[arg-type]


def test_the_papers_size() -> None:
    """93.6 million weights, as the published model has with its row of zeros for no word."""
    config = BilmTrunkConfig(0)
    config.check()
    assert config.parameters() == 93_600_864


# ── the mixture ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_mixture_begins_as_the_mean() -> None:
    mix, layers = ScalarMix(3), [torch.randn(2, 4, 6) for _ in range(3)]
    close(mix(layers), torch.stack(layers).mean(dim=0), terms=terms_of(3, 3))
    assert float(mix.penalty().detach()) == 0.0


@pytest.mark.parametrize("norm", [False, True])
def test_the_mixture_is_its_equation(norm: bool) -> None:
    mix, layers = ScalarMix(2, norm), [torch.randn(2, 3, 4) * 5 + 1 for _ in range(2)]
    with torch.no_grad():
        mix.weights_L.copy_(torch.tensor([0.3, -1.2]))
        mix.scale.fill_(2.5)
    exponentials = torch.tensor([0.3, -1.2]).exp()
    used = layers
    if norm:
        used = [
            (one - one.mean(-1, True)) / (one.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt() for one in layers
        ]
    expected = 2.5 * sum(one * share for one, share in zip(used, exponentials / exponentials.sum()))
    close(mix(layers), expected, terms=terms_of(2 * 4, 2, 2))  # mean and deviation of four numbers, shares, the sum
    close(mix.penalty(), 0.3**2 + 1.2**2, terms=2)
    mix(layers).square().sum().backward()
    assert mix.weights_L.grad is not None and mix.scale.grad is not None
    assert float(mix.weights_L.grad.abs().max()) > 1e-3
    largest = float(mix.weights_L.grad.abs().max())
    close(mix.weights_L.grad.sum(), 0.0, terms=terms_of(2 * 4, 2, 2, 24), size=largest)  # a softmax's: they cancel
