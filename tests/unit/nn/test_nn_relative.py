"""Relative positions: each key gets the score of its distance."""

from __future__ import annotations

import math

import pytest
import torch

from foretext.nn.relative import by_key, distances, sinusoids


@pytest.mark.parametrize(("queries", "memory"), [(1, 0), (1, 4), (5, 0), (5, 3), (4, 9)])
@pytest.mark.parametrize("ahead", [False, True])
def test_each_key_gets_the_score_of_its_distance(queries: int, memory: int, ahead: bool) -> None:
    keys = memory + queries
    far = distances(queries, keys, torch.device("cpu"), ahead=ahead)
    query = torch.arange(queries)[:, None] * 1000
    scores = (query + far).expand(2, 3, queries, len(far))
    moved = by_key(scores, keys)
    assert moved.shape == (2, 3, queries, keys)
    for i in range(queries):
        for j in range(keys if ahead else memory + i + 1):
            assert (moved[:, :, i, j] == 1000 * i + memory + i - j).all()


def test_sinusoids_are_sines_then_cosines() -> None:
    waves = sinusoids(torch.tensor([3, 0, -2]), 6)
    for row, distance in enumerate((3, 0, -2)):
        for k in range(3):
            angle = distance / 10000 ** (2 * k / 6)
            assert waves[row, k].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert waves[row, 3 + k].item() == pytest.approx(math.cos(angle), abs=1e-6)
