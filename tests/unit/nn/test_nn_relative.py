"""Relative positions: each key gets the score of its distance."""

from __future__ import annotations

import math

import pytest
import torch
from tolerance import close

from foretext.nn.relative.relative_attention import by_key, distances, sinusoids


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
    angles = [[distance / 10000 ** (2 * k / 6) for k in range(3)] for distance in (3, 0, -2)]
    expected = [[*map(math.sin, row), *map(math.cos, row)] for row in angles]
    close(waves, torch.tensor(expected), terms=4, size=3.0)  # a power, a product and a sine of an angle of up to 3
