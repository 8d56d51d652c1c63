"""Pieces of varying length: contiguous, of one length a step, and a function of seed, epoch and step alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from complaints import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from foretext.text.corpus.shards import TokenShards
from foretext.text.order import LEAST, PieceLengths, PieceOrder, StreamPieces


def shards_of(*files: int) -> TokenShards:
    """Ids that say where they stand, in so many files of such lengths."""
    ids = np.arange(sum(files))
    manifest: Any = None  # nothing here reads it
    return TokenShards(Path("text"), "train", manifest, np.split(ids, np.cumsum(files)[:-1]))


def read(order: PieceOrder, pieces: StreamPieces, epoch: int) -> list[list[np.ndarray]]:
    """The windows of each row in an epoch, as they are read."""
    rows: list[list[np.ndarray]] = [[] for _ in range(order.rows)]
    for step in range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch):
        found, indices = order.batch(step)
        assert found == epoch and len(indices) == order.rows
        for row, index in enumerate(indices):
            window = pieces.example(epoch, index)
            rows[row].append(window[::-1] if order.backward else window)
    return rows


@settings(max_examples=40)
@given(st.integers(1, 400), st.integers(1, 30), st.integers(1, 40), st.booleans(), st.integers(0, 99))
def test_rows_are_read_on_and_nothing_twice(size: int, batch: int, mean: int, backward: bool, seed: int) -> None:
    pieces = StreamPieces(shards_of(size // 2, size + 1 - size // 2), 1)
    order = PieceOrder(len(pieces), batch, PieceLengths(mean, spread=mean / 5, half=0.2), seed, backward)
    for epoch in (0, 1):
        rows = read(order, pieces, epoch)
        assert len({tuple(len(window) for window in row) for row in rows}) == 1, "one length for all rows of a step"
        targets = []
        for row in rows:
            for before, after in itertools.pairwise(row):
                assert after[0] == before[-1], "the last target is what is read next"
            assert all(len(window) > 1 for window in row)
            targets += [int(target) for window in row for target in window[1:]]
            steps = np.diff(np.concatenate([row[0][:1], *(window[1:] for window in row)]))
            assert (steps == (-1 if backward else 1)).all()
        assert len(set(targets)) == len(targets)


def test_a_step_is_a_function_of_seed_epoch_and_step() -> None:
    def order(seed: int = 3) -> PieceOrder:
        return PieceOrder(5_000, 4, PieceLengths(70), seed)

    straight = order()
    steps = 2 * straight.steps_per_epoch
    expected = [straight.batch(step) for step in range(steps)]
    mixed = order()
    for step in np.random.default_rng(0).permutation(steps).tolist():
        assert mixed.batch(step) == expected[step] == order().batch(step)
    borders = [tuple(straight.borders(epoch)) for epoch in range(3)] + [tuple(order(4).borders(0))]
    assert len(set(borders)) == 4
    assert len({border[0] for border in borders}) > 1, "what is left over is not always the same"


def test_lengths_are_those_of_the_paper() -> None:
    """N(70, 5) and, one in twenty, N(35, 5)."""
    order = PieceOrder(64 * 70 * 5_000, 64, PieceLengths(70), seed=0)
    lengths = np.diff(order.borders(0))
    assert len(lengths) == 5_000
    short = lengths < 52
    assert 0.04 < short.mean() < 0.06
    assert lengths[~short].mean() == pytest.approx(69.5, abs=0.3) and lengths[~short].std() == pytest.approx(5, abs=0.3)
    assert lengths[short].mean() == pytest.approx(34.5, abs=1.5)
    assert order.borders(0)[-1] > 0.95 * order.stretch


def test_no_piece_is_shorter_than_the_least() -> None:
    lengths = PieceLengths(12, spread=30.0, half=0.5).draw(2_000, np.random.default_rng(1))
    assert lengths.min() == LEAST
    assert PieceLengths(3, spread=30.0).draw(2_000, np.random.default_rng(1)).min() == 3
    assert (PieceLengths(9, spread=0.0, half=0.0).draw(50, np.random.default_rng(1)) == 9).all()


def test_little_text_gives_fewer_rows_not_shorter_pieces() -> None:
    for size, rows in ((32 * 70, 32), (32 * 70 - 1, 31), (150, 2), (70, 1), (69, 1)):
        order = PieceOrder(size, 32, PieceLengths(70, half=0.0), seed=0)
        assert (order.rows, len(order.batch(0)[1])) == (rows, rows)
        assert np.diff(order.borders(0)).min() >= min(size, 50)


def test_too_little_text() -> None:
    assert len(StreamPieces(shards_of(71), 70)) == 70
    with refused("text", "train", "70 tokens", "context"):
        StreamPieces(shards_of(70), 70)
