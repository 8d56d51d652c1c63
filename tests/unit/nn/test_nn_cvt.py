"""Cross-view training's encoder against its equations written out, and what each view can see, word by word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from complaints import refused
from tolerance import close, terms_of
from torch import Tensor
from word_tables import word_table

from foretext.nn.recurrent.cvt import (
    CvtBatch,
    CvtConfig,
    CvtEncoder,
    CvtStates,
    PredictionModule,
    sentence_states,
    view_places,
    view_states,
    view_width,
)
from foretext.nn.recurrent.lstm_layer import ProjectedLstm

CONFIG = CvtConfig(
    vocabulary=20,
    vectors=4,
    char_widths=(2, 3),
    char_filters=3,
    char_embedding=3,
    char_length=8,
    cells=5,
    upper_cells=4,
    direction=4,
)
WORDS = ("a", "man", "sleeps", "in", "green")
# A word's filters over three characters; seven tokens read by cells of 5 that are projected to 4, and by cells of 4.
TERMS = terms_of(3 * 3, 7 * (10 + 4 + 5), 7 * (8 + 4))
VIEWS = ("primary", "full", "forward", "backward", "future", "past")


def encoder(config: CvtConfig = CONFIG) -> CvtEncoder:
    return CvtEncoder(config).double()


def batch_of(sentences: list[tuple[str, ...]], left: int = 0, right: int = 0) -> CvtBatch:
    """Begin, words, end; ids by spelling; padding on both sides."""
    table = word_table(sentences, CONFIG.char_length)
    columns = table.places_BT.shape[1]
    ids = np.full((len(sentences), columns + left + right), 7)
    spelled, mask, words = np.zeros_like(ids), np.zeros_like(ids, dtype=bool), np.zeros_like(ids, dtype=bool)
    for row, sentence in enumerate(sentences):
        end = left + len(sentence) + 2
        ids[row, left:end] = [0, *(3 + sum(map(ord, word)) % 17 for word in sentence), 1]
        spelled[row, left : left + columns] = table.places_BT[row].numpy()
        mask[row, left:end], words[row, left + 1 : end - 1] = True, True
    tensors = (torch.from_numpy(x) for x in (ids, mask, words, spelled))
    ids_BT, mask_BT, words_BT, spelled_BT = tensors
    return CvtBatch(
        ids_BT,
        mask_BT,
        words_BT=words_BT,
        characters_UC=table.characters_UC,
        spelled_BT=spelled_BT,
    )


def seen(states: CvtStates, view: str, words_BT: Tensor) -> Tensor:
    """[B, T, ·] with what the view sees at its places, nan elsewhere."""
    places = view_places(words_BT, view)
    read = view_states(states, view, words_BT)
    found = read.new_full((*words_BT.shape, read.shape[1]), torch.nan)
    found[places] = read
    return found


def test_future_and_past_see_no_part_of_their_word() -> None:
    """Words of one, three and two parts. Whatever an embedding holds, a view of a word that it does not see stays."""
    batch = batch_of([("ab", "c", "d", "e", "f", "g")])
    firsts_BT = torch.tensor([[False, True, True, False, False, True, False, False]])
    words = [(1, 2), (2, 5), (5, 7)]
    trunk = encoder()

    def seen_by(view: str) -> Tensor:
        return view_states(trunk.states(batch, 0.0), view, batch.words_BT, firsts_BT)

    for view, asked in {"future": words[1:], "past": words[:-1]}.items():
        places = view_places(batch.words_BT, view, firsts_BT)[0].nonzero().flatten()
        assert places.tolist() == [first for first, _ in asked]
        with torch.no_grad():
            before = seen_by(view)
        for place in range(8):
            whole = batch.ids_BT[0, place].clone()
            batch.ids_BT[0, place] = 2  # which stands nowhere else
            with torch.no_grad():
                changed = (seen_by(view) != before).any(1).tolist()
            batch.ids_BT[0, place] = whole
            expected = [place < first if view == "future" else place >= end for first, end in asked]
            assert changed == expected, (view, place)


# -- the equations ---------------------------------------------------------------------------------------------------


def slow_lstm(lstm: ProjectedLstm, xs: list[Tensor]) -> list[Tensor]:
    h = torch.zeros(lstm.config.width, dtype=torch.double)
    c = torch.zeros(lstm.config.cells, dtype=torch.double)
    found = []
    for x in xs:
        gates = lstm.input.weight @ x + lstm.input.bias + lstm.recurrent.weight @ h
        i, f, g, o = gates.split(lstm.config.cells)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        h = h if lstm.project is None else lstm.project.weight @ h
        found.append(h)
    return found


@torch.no_grad()
def test_encoder_is_two_layers_each_way_whatever_the_padding() -> None:
    trunk = encoder()
    sentences = [WORDS, ("sleeps",), WORDS[1:4]]
    assert [lstm.project is None for lstm in (*trunk.lower, *trunk.upper)] == [False, False, True, True]
    with torch.no_grad():
        trunk.scale.fill_(1.5)
    for left, right in ((0, 0), (2, 3)):
        batch = batch_of(sentences, left, right)
        states = trunk.states(batch, 0.0)
        for row in range(3):
            real = batch.mask_BT[row]
            ids, spelled = batch.ids_BT[row][real], batch.spelled_BT[row][real]
            xs = [
                torch.cat([1.5 * trunk.words.weight[id], trunk.characters(batch.characters_UC[[place]])[0]])
                for id, place in zip(ids.tolist(), spelled.tolist())
            ]
            first = slow_lstm(trunk.lower[0], xs), slow_lstm(trunk.lower[1], xs[::-1])[::-1]
            both = [torch.cat(pair) for pair in zip(*first)]
            second = slow_lstm(trunk.upper[0], both), slow_lstm(trunk.upper[1], both[::-1])[::-1]
            expected = (xs, *first, [torch.cat(pair) for pair in zip(*second)])
            ours = (states.x_BTE, states.forward_BTD, states.backward_BTD, states.top_BTD)
            for one, other in zip(ours, expected):
                close(one[row][real], torch.stack(other), terms=TERMS)
        assert not any(bool(part[~batch.mask_BT].any()) for part in ours)


def test_what_the_released_code_has() -> None:
    config = CvtConfig(vocabulary=10)
    assert [(lstm.inputs, lstm.cells, lstm.width) for lstm in config.lstms()] == [(600, 1024, 512), (1024, 512, 512)]
    assert view_width(config, "primary") == 2048 and view_width(config, "past") == 512
    assert (config.dropout, config.unlabelled_dropout, config.width, config.layers) == (0.5, 0.2, 1024, 2)


def test_shape_and_mistakes() -> None:
    for config in (CONFIG, replace(CONFIG, char_filters=0)):
        trunk = CvtEncoder(config)
        assert sum(parameter.numel() for parameter in trunk.parameters()) == config.parameters()
        names = [name for group in trunk.layer_groups() for name in group]
        assert sorted(names) == sorted(name for name, _ in trunk.named_parameters())
        assert len(trunk.layer_groups()) == 3 and all(trunk.layer_groups())
    wrong = {"cells": 0, "dropout": 1.0, "unlabelled_dropout": -0.1, "char_filters": -1, "init_std": 0.0}
    for name, value in wrong.items():
        with refused(f"model.{name}"):
            replace(CONFIG, **{name: value}).check()
    with refused("3 vectors", "20", "--set model.vectors=9"):
        trunk.put_vectors(np.zeros((3, 9), dtype=np.float32))


def test_vectors_are_where_words_start() -> None:
    trunk = CvtEncoder(CONFIG)
    drawn = trunk.words.weight.detach().clone()
    given = np.zeros((20, 4), dtype=np.float32)
    given[5] = [1, 2, 3, 4]
    trunk.put_vectors(given)
    assert trunk.words.weight[5].tolist() == [1, 2, 3, 4]
    assert torch.equal(trunk.words.weight[6:], drawn[6:]) and bool(drawn[6:].any(1).all())
    trunk.grow_vocabulary(23)
    assert trunk.words.weight.shape == (23, 4) and trunk.words.weight[5].tolist() == [1, 2, 3, 4]


def test_dropout_is_what_the_caller_says_and_not_drawn_for_padding() -> None:
    trunk = CvtEncoder(replace(CONFIG, dropout=0.9)).train()
    found = []
    for left, right in ((0, 0), (2, 3)):
        batch = batch_of([WORDS, WORDS[:2]], left, right)
        torch.manual_seed(4)
        states = trunk.states(batch, 0.5)
        found.append(states.top_BTD[batch.mask_BT])
        share = float((states.forward_BTD[batch.mask_BT] == 0).float().mean())
        assert 0.2 < share < 0.8 and bool((found[-1] == 0).any())
        plain = trunk.states(batch, 0.0).top_BTD
        assert torch.equal(plain, trunk.eval()(batch).top) and not bool((plain[batch.mask_BT] == 0).any())
        trunk.train()
    close(found[0], found[1], terms=TERMS)
    torch.manual_seed(4)
    labelled = trunk(replace(batch, task=0)).top
    torch.manual_seed(4)
    unlabelled = trunk(batch).top
    assert (labelled == 0).sum() > (unlabelled == 0).sum(), "each has its own ratio"


# -- what views see --------------------------------------------------------------------------------------------------


def may_see(view: str, place: int, other: int) -> bool:
    allowed = {
        "forward": other <= place,
        "backward": other >= place,
        "future": other < place,
        "past": other > place,
    }
    return allowed.get(view, True)


@pytest.mark.parametrize("left", [0, 2])
@torch.no_grad()
def test_each_view_sees_its_part_of_the_sentence_and_all_of_that(left: int) -> None:
    """Every word is changed in turn: a view's input changes exactly where the word is in its sight."""
    trunk = encoder()
    batch = batch_of([WORDS, WORDS[:2]], left)
    before = trunk.states(batch, 0.0)
    for changed in range(len(WORDS)):
        other = (*WORDS[:changed], "bus", *WORDS[changed + 1 :])
        again = batch_of([other, WORDS[:2]], left)
        assert int((again.ids_BT != batch.ids_BT).sum()) == 1
        after = trunk.states(again, 0.0)
        for view in VIEWS:
            one, two = (seen(states, view, batch.words_BT)[0, left + 1 :] for states in (before, after))
            for place in range(len(WORDS)):
                asked = not (view == "future" and place == 0) and not (view == "past" and place == len(WORDS) - 1)
                assert bool(one[place].isnan().any()) != asked
                if asked:
                    same = torch.equal(one[place], two[place])
                    assert same != may_see(view, place, changed), (view, place, changed)


def test_views_take_the_states_that_the_paper_names() -> None:
    batch = batch_of([WORDS, WORDS[:1]])
    states = encoder().states(batch, 0.0)
    t = 3  # the word `sleeps`, behind the begin
    found = {view: seen(states, view, batch.words_BT)[0, t] for view in VIEWS}
    assert torch.equal(found["forward"], states.forward_BTD[0, t])
    assert torch.equal(found["backward"], states.backward_BTD[0, t])
    assert torch.equal(found["future"], states.forward_BTD[0, t - 1])
    assert torch.equal(found["past"], states.backward_BTD[0, t + 1])
    assert torch.equal(found["primary"], torch.cat([states.lower_BTD[0, t], states.top_BTD[0, t]]))
    assert not view_places(batch.words_BT, "future")[1].any(), "a single word has nothing before it"


def test_sentence_views_are_maxima_of_one_direction() -> None:
    trunk = encoder()
    batch = batch_of([WORDS, ("in",), ()], 1, 2)
    states = trunk.states(batch, 0.0)
    parts = {
        "forward": states.forward_BTD,
        "backward": states.backward_BTD,
        "primary": torch.cat([states.lower_BTD, states.top_BTD], -1),
    }
    for view, part in parts.items():
        found = sentence_states(states, view, batch.words_BT)
        for row, length in enumerate((5, 1, 0)):
            words = [part[row, 2 + place] for place in range(length)]
            expected = torch.stack(words).amax(0) if words else torch.zeros_like(found[row])
            assert torch.equal(found[row], expected)
    gone = {"forward": ("lower.1", "upper"), "backward": ("lower.0", "upper"), "primary": ()}
    for view, unused in gone.items():
        trunk.zero_grad()
        sentence_states(trunk.states(batch, 0.0), view, batch.words_BT).sum().backward()
        for name, parameter in trunk.named_parameters():
            learns = parameter.grad is not None and bool(parameter.grad.any())
            assert learns != name.startswith(unused or ("none",)), (view, name)
            assert parameter.grad is None or bool(parameter.grad.isfinite().all())


def test_module_is_its_equation() -> None:
    for activate in (True, False):
        module = PredictionModule(4, 3, 5, activate)
        x = torch.randn(4)
        hidden = module.project.weight @ x + module.project.bias
        hidden = torch.stack([value if value > 0 or not activate else torch.zeros(()) for value in hidden])
        close(module(x[None])[0], module.predict.weight @ hidden + module.predict.bias, terms=terms_of(4, 3))
