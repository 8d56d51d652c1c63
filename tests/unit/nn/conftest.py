"""Modules are built and inputs drawn in float64, where a mistake stands out by ten digits. Tests that are about float32
ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tolerance import doubles


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    with doubles():
        yield
