"""A text read from both sides at once."""

from __future__ import annotations

import numpy as np
import pytest
from numbered_shards import Numbers

from foretext.text.order import TwoWayOrder, TwoWays, Windows


def made(length: int = 100, context: int = 7) -> TwoWays:
    return TwoWays(Windows(Numbers(length), context, seed=3))  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6, 100])
def test_each_row_goes_on_where_it_ended(rows: int) -> None:
    examples = made()
    order = TwoWayOrder(len(examples), rows)
    for epoch in (0, 2):
        before: list[np.ndarray] | None = None
        seen: dict[bool, list[int]] = {False: [], True: []}
        for step in range(order.steps_per_epoch):
            found, indices = order.batch(epoch * order.steps_per_epoch + step)
            assert found == epoch
            stretches = [examples.example(epoch, index) for index in indices]
            ways = [stretch.backward for stretch in stretches]
            assert ways == sorted(ways) and abs(ways.count(False) - ways.count(True)) <= 1, "half of them each"
            read = [stretch.ids[::-1] if stretch.backward else stretch.ids for stretch in stretches]
            for now, stretch in zip(read, stretches):
                assert len(now) == 7 and abs(int(np.diff(now)[0])) == 1
                seen[stretch.backward] += now.tolist()
            if before is not None:
                for past, now, backward in zip(before, read, ways):
                    assert int(now[0]) == int(past[-1]) + (-1 if backward else 1)
            before = read
        for backward, places in seen.items():
            assert len(set(places)) == len(places), "each token once a direction"
            expected = len(examples.windows) // order.forward * (order.backward if backward else order.forward)
            assert len(places) == 7 * expected


def test_both_directions_begin_at_their_own_end() -> None:
    examples = made()
    assert len(examples) == 2 * len(examples.windows)
    first, last = examples.example(0, 0), examples.example(0, len(examples.windows))
    assert not first.backward and last.backward
    assert np.array_equal(last.ids, examples.windows.example(0, len(examples.windows) - 1)[:-1])
    assert np.array_equal(first.ids, examples.windows.example(0, 0)[:-1])


def test_no_more_rows_than_windows() -> None:
    order = TwoWayOrder(2 * 3, 100)
    assert (order.forward, order.backward, order.steps_per_epoch) == (3, 3, 1)
    assert order.batch(0) == (0, [0, 1, 2, 3, 4, 5])
