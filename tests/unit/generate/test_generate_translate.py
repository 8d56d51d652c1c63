"""Search against trying everything, on a translation model of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from complaints import refused
from tolerance import close, terms_of
from torch import Tensor
from translation_under_test import TranslationModel

from foretext.generate.many import Hypothesis, Rules, search_translations
from foretext.nn.recurrent.cove import CoveConfig
from foretext.text.words.word_list import END, START, UNKNOWN

NEVER = [START, UNKNOWN]
VOCABULARY = 6  # three of them can be written, and the end
# Two layers over five source words; then nine target words, each two layers, the attention, h̃ and the softmax.
TERMS = terms_of(2 * 5 * (4 + 2), 9 * (2 * (3 + 4 + 4) + 4 + 5 + 2 * 4 + 4 + VOCABULARY))


class Counting:
    """A model that counts the rows it is asked for at each step."""

    def __init__(self, model: TranslationModel) -> None:
        self.model = model
        self.rows: list[int] = []

    def decode_step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        self.rows.append(len(ids_B))
        return self.model.decode_step(ids_B, state)


def small(seed: int = 0) -> TranslationModel:
    torch.manual_seed(seed)
    return TranslationModel(CoveConfig(vectors=3, width=4, dropout=0.2, init_range=1.5), VOCABULARY, 3).double().eval()


def sources(count: int) -> tuple[Tensor, Tensor]:
    mask = torch.arange(5) < torch.randint(1, 6, (count, 1))
    return torch.randn(count, 5, 3, dtype=torch.double), mask


@torch.no_grad()
def exact(model: TranslationModel, x: Tensor, mask: Tensor, limit: int) -> list[Hypothesis]:
    """Every translation of one source, from the decoder that is told all words at once."""
    found = []
    for length in range(limit + 1):
        for ids in product(range(3, VOCABULARY), repeat=length):
            before = torch.tensor([[START, *ids]])
            gains = torch.log_softmax(model.decoder.output(model(x[None], before, mask[None])), 2)[0]
            total = sum(float(gains[place, word]) for place, word in enumerate(ids))
            found.append(Hypothesis(ids, total + float(gains[length, END]), ended=True))
            if length == limit:
                found[-1] = Hypothesis(ids, total, ended=False)
    return found


@torch.no_grad()
def greedy(model: TranslationModel | Counting, state: Any, limits: Sequence[int]) -> list[Hypothesis]:
    """The likeliest word at each step, each sentence by itself."""
    found = []
    for row, limit in enumerate(limits):
        ids, total, ended, last, mine = [], 0.0, False, START, state.pick(torch.tensor([row]))
        while not ended and len(ids) < limit:
            logits, mine = model.decode_step(torch.tensor([last]), mine)
            gains = torch.log_softmax(logits, dim=1)[0]
            gains[NEVER] = -torch.inf
            last = int(gains.argmax())
            total += float(gains[last])
            ended = last == END
            ids += [] if ended else [last]
        found.append(Hypothesis(tuple(ids), total, ended))
    return found


def best(model: TranslationModel | Counting, state: Any, limits: Sequence[int]) -> list[Hypothesis]:
    return [found[0] for found in search_translations(model.decode_step, state, limits, Rules(1, END))]


def assert_same(ours: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [one.ids for one in ours] == [one.ids for one in expected]
    close([one.log_probability for one in ours], [one.log_probability for one in expected], terms=TERMS)


def test_a_wide_beam_finds_the_best_of_all() -> None:
    model, limit = small(), 3
    x, mask = sources(3)
    every = 3**3 + 3**2 + 3 + 1
    rules = Rules(every, END)
    found = search_translations(model.decode_step, model.encode(x, mask), [limit] * 3, rules)
    for row in range(3):
        expected = sorted(exact(model, x[row], mask[row], limit), key=Rules(1, None).rank)
        assert len(found[row]) == len(expected) == every
        assert_same(found[row], expected)


def test_scores_are_those_of_the_whole_translation_and_come_in_order() -> None:
    model, limit = small(2), 3
    x, mask = sources(4)
    for row, found in enumerate(
        search_translations(model.decode_step, model.encode(x, mask), [limit] * 4, Rules(3, END))
    ):
        known = {(one.ids, one.ended): one for one in exact(model, x[row], mask[row], limit)}
        assert 1 <= len(found) <= 3 and len({one.ids for one in found}) == len(found)
        assert_same(found, [known[one.ids, one.ended] for one in found])
        assert found == sorted(found, key=Rules(1, None).rank)


@pytest.mark.parametrize("seed", range(4))
def test_one_beam_is_greedy(seed: int) -> None:
    model = small(seed)
    x, mask = sources(8)
    limits = [3, 9, 4, 5, 1, 7, 2, 6]
    one = search_translations(model.decode_step, model.encode(x, mask), limits, Rules(1, END))
    other = greedy(model, model.encode(x, mask), limits)
    assert all(len(found) == 1 for found in one)
    assert_same([found[0] for found in one], other)
    assert [found[0].ended for found in one] == [simple.ended for simple in other]


def test_greedy_takes_the_likeliest_word_each_time() -> None:
    model = small(3)
    x, mask = sources(6)
    found = best(model, model.encode(x, mask), [6] * 6)
    assert {one.ended for one in found} == {True, False}, "the cases under test"
    for row, one in enumerate(found):
        before = torch.tensor([[START, *one.ids]])
        with torch.no_grad():
            logits = model.decoder.output(model(x[row : row + 1], before, mask[row : row + 1]))[0]
        logits[:, NEVER] = -torch.inf
        expected = [*one.ids, END] if one.ended else list(one.ids)
        assert logits.argmax(1).tolist()[: len(expected)] == expected
        assert len(one.ids) <= 6 and (one.ended or len(one.ids) == 6)


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_neighbours_change_nothing(beams: int) -> None:
    model = small(3)
    x, mask = sources(6)
    limits, rules = [5, 2, 7, 4, 6, 3], Rules(beams, END)
    together = search_translations(model.decode_step, model.encode(x, mask), limits, rules)
    for row in range(6):
        alone = search_translations(
            model.decode_step, model.encode(x[[row]], mask[[row]]), limits[row : row + 1], rules
        )[0]
        assert_same(alone, together[row])


def test_a_wider_beam_finds_what_greedy_misses() -> None:
    """Otherwise the beams might as well not be there."""
    model = small(3)
    x, mask = sources(40)
    limits = [6] * 40
    simple = best(model, model.encode(x, mask), limits)
    wide = search_translations(model.decode_step, model.encode(x, mask), limits, Rules(8, END))
    both = [(a, b[0]) for a, b in zip(simple, wide) if a.ended and b[0].ended]
    assert any(b.log_probability > a.log_probability + 0.01 for a, b in both)


def test_no_work_for_what_is_finished() -> None:
    model = Counting(small(3))
    x, mask = sources(6)
    limits = [6, 3, 6, 6, 2, 6]
    found = best(model, model.model.encode(x, mask), limits)
    steps = [len(one.ids) + one.ended for one in found]
    assert model.rows == [sum(count > step for count in steps) for step in range(max(steps))]
    assert len(set(model.rows)) > 2, "sentences end at different steps"
    model = Counting(small(8))
    beams = search_translations(model.decode_step, model.model.encode(x, mask), limits, Rules(2, END))
    assert model.rows[0] == 6 and all(later <= 12 for later in model.rows)
    longest = max(len(one.ids) + one.ended for row in beams for one in row)
    assert len(model.rows) <= max(limits) and len(model.rows) >= longest
    assert model.rows[2] <= 2 * sum(limit > 2 for limit in limits), "rows at their limit are gone"


def test_scores_and_arguments() -> None:
    assert Hypothesis((3, 4, 5), -8.0, ended=True).score == -2.0
    assert Hypothesis((), -1.0, ended=False).score == -1.0
    assert search_translations(small().decode_step, None, [], Rules(5, END)) == []
    for beams in (0, True):
        with refused("beams", str(beams)):
            Rules(beams, END)
