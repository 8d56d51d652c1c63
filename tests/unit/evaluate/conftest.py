"""Models are trained and read in float64, where a mistake stands out by ten digits, and the best token is the best by
more than rounding. What is given out (logits, vectors, scores of a task) is rounded to float32 in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tolerance import doubles


@pytest.fixture(autouse=True, scope="module")
def _doubles() -> Iterator[None]:
    with doubles():
        yield
