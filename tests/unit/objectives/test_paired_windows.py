"""Half of a window remembered, half two segments: what is read, what goes on, what is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from complaints import refused
from numbered_shards import Numbers
from systems_under_test import TINY, tokenizer_of, trunk_of

from foretext.batch import IGNORE
from foretext.nn.relative.sights import OrderedBatch
from foretext.objectives.base import Draw
from foretext.objectives.paired_windows import PairedWindows
from foretext.objectives.permutation import PermutationConfig, PermutationObjective
from foretext.text.order import TwoWayOrder

SEPARATOR, SPEAKER = 1001, 1000


class Words:
    """A word every third place."""

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        return ids % 3 == 0


def made(length: int = 300, context: int = 25) -> PairedWindows:
    return PairedWindows(Numbers(length), context, 7, Words(), SEPARATOR, SPEAKER)  # type: ignore[arg-type]


def parts(examples: PairedWindows, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """The reused half, A and B in the order of reading."""
    stretch = examples.example(epoch, index)
    turn = -1 if stretch.backward else 1
    assert stretch.segments is not None and stretch.apart is not None
    ids, kinds, apart = stretch.ids[::turn], stretch.segments[::turn], stretch.apart[::turn]
    assert len(ids) == 25 and stretch.kept == 12
    assert ids[-2:].tolist() == [SEPARATOR, SPEAKER] and kinds[-1] == 2 and apart.sum() == 3
    border = int(np.flatnonzero(ids == SEPARATOR)[0])
    assert apart[[border, 23, 24]].all() and set(kinds[: border + 1]) == {0} and set(kinds[border + 1 : 24]) == {1}
    return ids[:12], ids[12:border], ids[border + 1 : 23], stretch.backward


def test_segments_of_a_window() -> None:
    examples = made()
    following, begins = [], []
    for index in range(len(examples)):
        reused, first, second, backward = parts(examples, 0, index)
        step = -1 if backward else 1
        assert backward == (index >= examples.windows)
        assert (np.diff(np.concatenate([reused, first])) == step).all() and (np.diff(second) == step).all()
        assert len(first) and len(second) and len(first) + len(second) == 10
        begins += [first[-1] % 3 == (0 if backward else 2)]
        following.append(int(second[0]) == int(first[-1]) + step)
    assert 0.2 < np.mean(following) < 0.8, "about half of the second segments follow"
    assert all(begins), "a word ends where the first does"


def test_rows_go_on_where_the_reused_half_ended() -> None:
    examples = made()
    order = TwoWayOrder(len(examples), 4)
    before = None
    for step in range(order.steps_per_epoch):
        epoch, indices = order.batch(step)
        now = [parts(examples, epoch, index) for index in indices]
        if before is not None:
            for (past, *_), (reused, *_, backward) in zip(before, now):
                assert int(reused[0]) == int(past[-1]) + (-1 if backward else 1)
        before = now


def test_the_draw_is_of_seed_epoch_and_index() -> None:
    one, other = made().example(1, 5), made().example(1, 5)
    assert np.array_equal(one.ids, other.ids)
    assert len({made().example(epoch, 5).ids.tobytes() for epoch in range(6)}) > 3


@pytest.mark.parametrize("length", [25, 26, 37, 49, 50, 61])
def test_every_window_is_inside_the_text(length: int) -> None:
    examples = made(length)
    for epoch in range(8):
        for index in range(len(examples)):
            parts(examples, epoch, index)


def test_too_short_a_text_or_context() -> None:
    with refused("6 tokens", "objective.length", "model.context", "--set objective.pairs=false"):
        made(61, 6)
    with refused("nowhere", "train", "20 tokens", "25", "--set objective.pairs=false"):
        made(20, 25)


def two_ways(objective: PermutationObjective, context: int = 14, seed: int = 0) -> OrderedBatch:
    """A window that is read from the left and one that is read from the right."""
    specials = tokenizer_of("xlnet").specials
    examples = PairedWindows(Numbers(61), context, 0, tokenizer_of("xlnet"), specials["<sep>"], specials["<cls>"])  # type: ignore[arg-type]
    stretches = [examples.example(0, 0), examples.example(0, examples.windows)]
    batch = objective.make(stretches, Draw(seed, 0, (0, 9)))
    assert (
        isinstance(batch, OrderedBatch) and batch.backward_B is not None and batch.backward_B.tolist() == [False, True]
    )
    return batch


def objective_with(**settings: object) -> PermutationObjective:
    return PermutationObjective(TINY["xlnet"], PermutationConfig(pairs=True, **settings), tokenizer_of("xlnet"))  # type: ignore[arg-type]


@pytest.mark.parametrize("context", ["open", "ordered"])
def test_what_is_remembered_has_seen_nothing_of_what_the_next_window_reads(context: str) -> None:
    """Whichever token of the two segments is another, the memory of every layer is the same, number for number; and it
    does follow from the half that is remembered."""
    objective = objective_with(context=context)
    trunk = trunk_of("xlnet", layers=3).eval()
    batch = two_ways(objective)
    with torch.no_grad():
        memory = objective(trunk, batch).state[0]
        assert len(memory) == 3 and memory[0].shape[:2] == (2, 7)
        for place in range(14):
            ids = batch.ids_BT.clone()
            ids[:, place] = 200
            changed = objective(trunk, replace(batch, ids_BT=ids)).state[0]
            for row in range(2):
                same = [torch.equal(before[row], after[row]) for before, after in zip(memory, changed)]
                assert same == [place >= 7] * 3, (place, row)


def test_the_two_segments_come_after_all_that_is_remembered() -> None:
    """A part of either half is predicted, and the second half sees all of the first."""
    objective = objective_with()
    for seed in range(20):
        batch = two_ways(objective, context=31, seed=seed)
        assert batch.ranks_BT is not None and batch.targets_BT is not None
        asked = batch.targets_BT != IGNORE
        assert asked[:, :15].sum(1).tolist() == [2, 2] and asked[:, 15:].sum(1).tolist() == [2, 2]
        for ranks, wanted in zip(batch.ranks_BT, asked):
            assert sorted(ranks[:15].tolist()) == [0] * 13 + [1, 2], "two of fifteen are predicted"
            assert sorted(ranks[15:].tolist()) == [3] * 11 + [4, 5, 6, 7, 8], "two of thirteen, among three separators"
            assert bool((ranks[:15][wanted[:15]] > 0).all()) and bool((ranks[15:][wanted[15:]] > 3).all())


def test_only_the_reused_half_is_remembered() -> None:
    objective, specials = objective_with(), tokenizer_of("xlnet").specials
    batch = two_ways(objective)
    assert batch.segments_BT is not None and batch.segments_BT[:, -1].tolist() == [2, 2]
    trunk = trunk_of("xlnet").eval()
    with torch.no_grad():
        state = objective(trunk, batch).state
    assert state[1].shape == (2, 7) and bool(state[1].all())
    assert torch.equal(state[0][0], trunk.tokens(batch.ids_BT[:, :7]))  # type: ignore[operator]
    assert batch.targets_BT is not None
    assert not bool(((batch.targets_BT == specials["<sep>"]) | (batch.targets_BT == specials["<cls>"])).any())
