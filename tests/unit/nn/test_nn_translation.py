"""CoVe's translation model against its equations, written out one number after another in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from complaints import refused
from slow_recurrent import lstm, slow_layers
from tolerance import close, terms_of
from torch import Tensor
from translation_under_test import TranslationModel

from foretext.nn.fused import TiedSoftmax
from foretext.nn.recurrent.cove import CoveConfig, CoveTrunk, FixedVectors

CONFIG = CoveConfig(vectors=5, width=6, dropout=0.0, init_range=0.5)
WORDS = 11  # of the target
ENCODED = terms_of((5 + 2) * (6 + 3))  # five words and two layers: the inputs', the state's
# Of six words: two layers' inputs and states, the query, its scores, the softmax's sum, the mixture, what is fed on.
READ = terms_of(ENCODED, 6 * (4 + 6 + 6 + 6 + 6 + 6 + 6 + 5 + 5 + 12))


@pytest.fixture
def model() -> TranslationModel:
    return TranslationModel(CONFIG, WORDS)


# --- the slow version: lists of vectors, no batches, no padding


@torch.no_grad()
def slow_translation(model: TranslationModel, source: list[Tensor], before: list[int]) -> tuple[Tensor, Tensor]:
    """h̃ and α of each step."""
    states, s = slow_layers(model.encoder.layers, source)
    big_h = torch.stack(states)
    decoder = model.decoder
    w1, b1 = decoder.query.weight, decoder.query.bias
    w2, b2 = decoder.merge.weight, decoder.merge.bias
    fed = torch.zeros(CONFIG.width)
    read, looked = [], []
    for word in before:
        x = torch.cat([decoder.words.weight[word], fed])
        for number, cell in enumerate(decoder.cells):
            s[number] = lstm(x, *s[number], dict(cell.named_parameters()), "")
            x = s[number][0]
        scores = [float(h @ (w1 @ x + b1)) for h in big_h]
        alpha = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        context = sum(weight * h for weight, h in zip(alpha, big_h))
        fed = torch.tanh(w2 @ torch.cat([context, x]) + b2)
        read.append(fed)
        looked.append(torch.tensor(alpha))
    return torch.stack(read), torch.stack(looked)


# --- the batch of the tests


def batch(sources: list[int], targets: list[int]) -> tuple[list[Tensor], list[list[int]]]:
    x = [torch.randn(length, CONFIG.vectors) for length in sources]
    return x, [torch.randint(WORDS, (length,)).tolist() for length in targets]


def laid_out(rows: list[Tensor], left: list[int], length: int) -> tuple[Tensor, Tensor]:
    """Rows in a [B, length, …] tensor, `left` places of padding before each; the padding is loud."""
    shape = (len(rows), length, *rows[0].shape[1:])
    integer = not rows[0].is_floating_point()
    x = torch.full(shape, 7, dtype=rows[0].dtype) if integer else torch.full(shape, 1e3, dtype=rows[0].dtype)
    mask = torch.zeros(len(rows), length, dtype=torch.bool)
    for number, (row, begin) in enumerate(zip(rows, left)):
        x[number, begin : begin + len(row)] = row
        mask[number, begin : begin + len(row)] = True
    return x, mask


LAYOUTS = [([0, 0, 0], 5, [0, 0, 0], 6), ([3, 0, 2], 5, [2, 5, 0], 6), ([4, 1, 9], 12, [1, 7, 3], 15)]


@pytest.mark.parametrize(("left", "length", "target_left", "target_length"), LAYOUTS)
def test_equations_whatever_the_padding(
    model: TranslationModel, left: list[int], length: int, target_left: list[int], target_length: int
) -> None:
    sources, targets = batch([2, 5, 3], [4, 1, 6])
    x, mask = laid_out(sources, left, length)
    before, real = laid_out([torch.tensor(row) for row in targets], target_left, target_length)
    read = model(x, before, mask, real)
    assert read.shape == (3, target_length, CONFIG.width)
    for row in range(3):
        expected, _ = slow_translation(model, list(sources[row]), targets[row])
        close(read[row][real[row]], expected, terms=READ)
    assert not read[~real].any()
    assert not torch.allclose(read[0][real[0]][0], read[2][real[2]][0]), "sources differ"


@pytest.mark.parametrize(("left", "length", "target_left", "target_length"), LAYOUTS)
def test_attention_whatever_the_padding(
    model: TranslationModel, left: list[int], length: int, target_left: list[int], target_length: int
) -> None:
    sources, targets = batch([2, 5, 3], [4, 1, 6])
    x, mask = laid_out(sources, left, length)
    before, real = laid_out([torch.tensor(row) for row in targets], target_left, target_length)
    weights = model.decoder.attention(before, model.encoder(x, mask), real)
    assert weights.shape == (3, target_length, length)
    for row in range(3):
        _, expected = slow_translation(model, list(sources[row]), targets[row])
        close(weights[row][real[row]][:, mask[row]], expected, terms=READ)
    assert not weights[~real].any() and not weights.transpose(1, 2)[~mask].any(), "none at padding"


@pytest.mark.parametrize(("left", "length"), [([0, 0, 0], 5), ([4, 1, 9], 12)])
def test_encoder_alone(model: TranslationModel, left: list[int], length: int) -> None:
    sources, _ = batch([2, 5, 3], [1, 1, 1])
    x, mask = laid_out(sources, left, length)
    encoded = model.encoder(x, mask)
    for row, source in enumerate(sources):
        states, last = slow_layers(model.encoder.layers, list(source))
        close(encoded.states_BSD[row][mask[row]], torch.stack(states), terms=ENCODED)
        for ours, expected in zip(encoded.last, last):
            close([ours[0][row], ours[1][row]], expected, terms=ENCODED)
    assert not encoded.states_BSD[~mask].any()


def test_no_mask_is_all_real_and_empty_rows_are_zeros(model: TranslationModel) -> None:
    x = torch.randn(2, 4, CONFIG.vectors)
    every = torch.ones(2, 4, dtype=torch.bool)
    plain, masked = model.encoder(x), model.encoder(x, every)
    assert torch.equal(plain.states_BSD, masked.states_BSD)
    before = torch.randint(WORDS, (2, 3))
    assert torch.equal(model(x, before), model(x, before, every, every[:, :3]))
    every[0] = False
    half = model.encoder(x, every)
    close(half.states_BSD[1], plain.states_BSD[1], terms=ENCODED)
    assert not half.states_BSD[0].any() and not half.last[1][0][0].any() and half.last[1][0][1].any()
    none = model.encoder(x, torch.zeros_like(every))
    assert none.states_BSD.shape == plain.states_BSD.shape and not none.states_BSD.any()
    with pytest.raises(AssertionError, match="without a word"):
        model.encode(x, every)


def test_steps_are_the_whole_and_picked_rows_go_on_as_they_were(model: TranslationModel) -> None:
    sources, targets = batch([2, 5, 3], [4, 4, 4])
    x, mask = laid_out(sources, [1, 0, 2], 5)
    before = torch.tensor(targets)
    whole = model.decoder.output(model(x, before, mask))
    state = model.encode(x, mask)
    for step in range(2):
        logits, state = model.decode_step(before[:, step], state)
        close(logits, whole[:, step], terms=terms_of(READ, 6))
    rows = torch.tensor([2, 0, 2])
    state = state.pick(rows)
    for step in range(2, 4):
        logits, state = model.decode_step(before[rows, step], state)
        close(logits, whole[rows, step], terms=terms_of(READ, 6))


def test_a_place_sees_no_later_words(model: TranslationModel) -> None:
    sources, _ = batch([4, 4], [1, 1])
    x, before = torch.stack(sources), torch.randint(WORDS, (2, 5))
    other = before.clone()
    other[:, 3:] = (other[:, 3:] + 1) % WORDS
    one, two = model(x, before), model(x, other)
    close(one[:, :3], two[:, :3], terms=READ)
    assert not torch.allclose(one[:, 3], two[:, 3])


def test_gradients_do_not_depend_on_padding(model: TranslationModel) -> None:
    sources, targets = batch([2, 5, 3], [4, 1, 6])
    found = []
    for left, length, target_left, target_length in LAYOUTS:
        x, mask = laid_out(sources, left, length)
        before, real = laid_out([torch.tensor(row) for row in targets], target_left, target_length)
        read = model(x, before, mask, real)[real]
        after = torch.arange(len(read)) % WORDS
        output = model.decoder.output
        loss = TiedSoftmax(output.weight, output.bias).loss(read, after)
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    back = terms_of(3 * READ, WORDS, sum(map(len, targets)))  # through the softmax and two products a sum
    for other in found[1:]:
        close(other, found[0], terms=back)
    assert all(bool(grad.any()) for grad in found[0]), "everything learns"


def test_dropout_is_not_drawn_for_padding() -> None:
    """The same seed drops the same places, however much padding there is, and drops something."""
    model = TranslationModel(replace(CONFIG, dropout=0.4, init_range=0.1), WORDS)
    sources, targets = batch([2, 5, 3], [4, 1, 6])
    found = []
    for left, length, target_left, target_length in LAYOUTS:
        x, mask = laid_out(sources, left, length)
        before, real = laid_out([torch.tensor(row) for row in targets], target_left, target_length)
        torch.manual_seed(3)
        found.append(model.train()(x, before, mask, real)[real])
        kept = model.eval()(x, before, mask, real)[real]
    for other in found[1:]:
        close(other, found[0], terms=READ)
    assert 0.2 < float((found[0] == 0).float().mean()) < 0.6 and not bool((kept == 0).any())


def test_unknown_words_are_zeros_and_the_table_stays() -> None:
    table = torch.randn(4, 3)
    vectors = FixedVectors(table)
    found = vectors(torch.tensor([[0, -1, 3], [2, 2, -1]]))
    assert torch.equal(found[0, 0], table[0]) and torch.equal(found[0, 2], table[3])
    assert not found[0, 1].any() and not found[1, 2].any()
    assert not list(vectors.parameters()) and list(vectors.state_dict()) == ["table_VE"]


def test_start_and_shape() -> None:
    model = TranslationModel(replace(CONFIG, dropout=0.2, init_range=0.1), 20)
    every = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert float(every.abs().max()) <= 0.1 and abs(float(every.std()) - 0.1 / math.sqrt(3)) < 0.005
    paper = CoveConfig()
    encoder = CoveTrunk(paper).encoder
    assert [layer.hidden_size for layer in encoder.layers] == [300, 300] and paper.dropout == 0.2
    for wrong in ({"width": 7}, {"layers": 0}, {"dropout": 1.0}):
        ((key, value),) = wrong.items()
        with refused(f"model.{key}", str(value)):
            TranslationModel(CoveConfig(**wrong), 5)
