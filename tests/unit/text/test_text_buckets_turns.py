"""Orders by length and in turn: nothing is lost, everything is a function of (seed, step), the shares are kept."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from foretext.text.order import LengthOrder, Order, Turns, shares_of

LENGTHS = np.random.default_rng(5).integers(1, 60, 251)


def epoch_of(order: LengthOrder, epoch: int) -> list[list[int]]:
    first = epoch * order.steps_per_epoch
    found = [order.batch(step) for step in range(first, first + order.steps_per_epoch)]
    assert {number for number, _ in found} == {epoch}
    return [indices for _, indices in found]


@pytest.mark.parametrize("pool", [1, 7, 100])
def test_every_epoch_sees_each_example_once(pool: int) -> None:
    order = LengthOrder(LENGTHS, 8, 3, pool)
    batches = [epoch_of(order, epoch) for epoch in range(2)]
    for epoch in batches:
        assert sorted(index for batch in epoch for index in batch) == list(range(251))
        assert sorted(map(len, epoch)) == [3] + [8] * 31
    assert batches[0] != batches[1] and epoch_of(LengthOrder(LENGTHS, 8, 4, pool), 0) != batches[0]


def test_batches_are_of_like_length_and_not_sorted() -> None:
    batches = epoch_of(LengthOrder(LENGTHS, 8, 3), 0)
    padded = sum(max(LENGTHS[batch]) * len(batch) for batch in batches)
    plain = Order(251, 8, 3)
    unsorted = sum(max(LENGTHS[plain.batch(step)[1]]) * len(plain.batch(step)[1]) for step in range(32))
    assert padded < 1.05 * LENGTHS.sum() < 1.5 * LENGTHS.sum() < unsorted
    means = [LENGTHS[batch].mean() for batch in batches]
    rises = sum(one < other for one, other in pairwise(means))
    assert 7 < rises < 24, "batches come in no order of length"


def test_a_step_does_not_depend_on_those_before() -> None:
    whole = LengthOrder(LENGTHS, 8, 3, 5)
    expected = [whole.batch(step) for step in range(60)]
    jumping = LengthOrder(LENGTHS, 8, 3, 5)
    for step in np.random.default_rng(0).permutation(60):
        assert jumping.batch(int(step)) == expected[step]


# -- turns -----------------------------------------------------------------------------------------------------------

SIZES = (100, 25, 4)


def turns(seed: int = 1, unlabelled: int = 70) -> Turns:
    tasks = [Order(size, 5, seed) for size in SIZES]
    return Turns(tasks, Order(unlabelled, 5, seed) if unlabelled else None, seed)


def test_shares_follow_the_root_and_add_up() -> None:
    assert shares_of([100, 100], 10) == [5, 5] and shares_of([7], 3) == [3]
    found = shares_of(SIZES, 26)
    roots = np.sqrt(SIZES) / np.sqrt(SIZES).sum()
    assert sum(found) == 26 and found == sorted(found, reverse=True)
    assert all(abs(share - 1 - root * 23) < 1 for share, root in zip(found, roots))
    assert shares_of([1_000_000, 1], 2) == [1, 1], "no task goes without"


def test_every_second_step_is_unlabelled() -> None:
    order = turns()
    sources = [order.turn(step)[0] for step in range(2 * order.steps_per_epoch)]
    assert order.steps_per_epoch == 2 * (20 + 5 + 1)
    assert sources[1::2] == [3] * len(sources[1::2]) and 3 not in sources[::2]
    for epoch in range(2):
        own = sources[epoch * order.steps_per_epoch : (epoch + 1) * order.steps_per_epoch : 2]
        assert [own.count(task) for task in range(3)] == order.shares
    first, second = sources[: order.steps_per_epoch : 2], sources[order.steps_per_epoch :: 2]
    assert first != second and first != sorted(first)


def test_own_steps_follow_each_other_and_a_step_is_a_function_of_its_number() -> None:
    order, seen = turns(), dict.fromkeys(range(4), 0)
    for step in range(order.steps_per_epoch + 20):
        source, own = order.turn(step)
        assert own == seen[source]
        seen[source] += 1
    expected = [order.batch(step) for step in range(60)]
    fresh = turns()
    assert [fresh.batch(step) for step in reversed(range(60))] == expected[::-1]
    assert [turns(2).turn(step)[0] for step in range(52)] != [order.turn(step)[0] for step in range(52)]


def test_indices_count_through_the_sources() -> None:
    order = turns()
    named = [(name, index) for name, size in zip("abcu", (100, 25, 4, 70)) for index in range(size)]
    assert order.starts == [0, 100, 125, 129, 199]
    for step in range(60):
        (source, own_step), (_, indices) = order.turn(step), order.batch(step)
        own = order.sources[source].batch(own_step)[1]
        assert [named[index] for index in indices] == [("abcu"[source], one) for one in own]


def test_one_task_without_text_is_its_own_order() -> None:
    order = Turns([Order(23, 5, 9)], None, 9)
    assert [order.batch(step) for step in range(12)] == [Order(23, 5, 9).batch(step) for step in range(12)]
