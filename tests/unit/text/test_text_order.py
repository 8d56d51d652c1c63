from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from complaints import refused
from hypothesis import given
from hypothesis import strategies as st

from foretext.text.corpus.readers import ReadOptions, find_files
from foretext.text.corpus.shard_writing import Sharding, write_shards
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Order, Windows, permute
from foretext.text.tokenizers.byte_bpe import byte_bpe_from_merges


@given(st.integers(1, 3_000), st.integers(0, 2**63), st.integers(0, 1_000))
def test_every_epoch_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    assert sorted(permute(np.arange(size), size, seed, epoch).tolist()) == list(range(size))


def test_part_of_a_permutation_equals_the_whole() -> None:
    whole = permute(np.arange(10_007), 10_007, 3, 1)
    assert (permute(np.array([5, 9_999, 0]), 10_007, 3, 1) == whole[[5, 9_999, 0]]).all()


def test_large_ranges() -> None:
    size = 3_000_000_019
    out = permute(np.arange(1_000), size, 0, 0)
    assert len(set(out.tolist())) == 1_000 and out.min() >= 0 and out.max() < size
    assert size * 0.4 < out.mean() < size * 0.6


def test_well_mixed() -> None:
    size = 20_000
    out = permute(np.arange(size), size, 7, 0)
    steps = np.abs(np.diff(out))
    assert 0.3 < steps.mean() / size < 0.37, "neighbours should land anywhere: a third of the range apart on average"
    assert abs(np.corrcoef(np.arange(size), out)[0, 1]) < 0.03
    assert (out == np.arange(size)).sum() < 10
    assert (out == permute(np.arange(size), size, 7, 1)).sum() < 10
    assert (out == permute(np.arange(size), size, 8, 0)).sum() < 10


@pytest.mark.parametrize(("size", "batch", "steps"), [(10, 3, 4), (9, 3, 3), (2, 5, 1)])
def test_batches(size: int, batch: int, steps: int) -> None:
    order = Order(size, batch, seed=4)
    assert order.steps_per_epoch == steps
    for epoch in range(3):
        seen = []
        for step in range(steps):
            at, indices = order.batch(epoch * steps + step)
            assert at == epoch and all(type(index) is int for index in indices)
            seen += indices
        assert len(seen) == len(set(seen)) == size
    assert order.batch(7) == Order(size, batch, 4).batch(7)
    assert Order(1_000, 10, 4).batch(0) != Order(1_000, 10, 4).batch(100)


def stream(folder: Path, tokens: int) -> TokenShards:
    """One document of `tokens` - 1 different-looking bytes, all of it for training."""
    path = folder / f"{tokens}.txt"
    path.write_text("".join(chr(33 + n % 90) for n in range(tokens - 1)))
    tokenizer = byte_bpe_from_merges([])
    write_shards(find_files([path]), ReadOptions(), tokenizer, folder / "out", Sharding(0, 0.0), workers=0)
    return TokenShards.open(folder / "out", "train", verify=True)


def test_windows_lie_end_to_end_and_shift(tmp_path: Path) -> None:
    shards = stream(tmp_path, 1_000)
    windows = Windows(shards, 64, seed=2)
    assert len(windows) == 14
    whole = shards.window(0, 1_000)
    offsets = set()
    for epoch in range(40):
        offset = windows.offset(epoch)
        offsets.add(offset)
        rows = [windows.example(epoch, index) for index in range(len(windows))]
        assert all(len(row) == 65 for row in rows)
        joined = np.concatenate([row[:-1] for row in rows])
        assert (joined == whole[offset : offset + 64 * 14]).all()
        assert all(first[-1] == second[0] for first, second in itertools.pairwise(rows))
    assert len(offsets) > 20 and min(offsets) >= 0 and max(offsets) < 64


@pytest.mark.parametrize("tokens", [9, 10, 15, 16, 17, 24])
def test_small_corpora(tmp_path: Path, tokens: int) -> None:
    windows = Windows(stream(tmp_path, tokens), 8, seed=0)
    assert len(windows) == max(1, (tokens - 8) // 8)
    for epoch in range(20):
        assert len(windows.example(epoch, len(windows) - 1)) == 9


def test_shorter_than_a_context(tmp_path: Path) -> None:
    with refused(str(tmp_path / "out"), "train", "8 tokens", "context"):
        Windows(stream(tmp_path, 8), 8, seed=0)
