"""A picture takes longer than many a training here, so a process draws one loss curve and every run gets that one; what
is drawn is `train/test_train_curve.py`'s and the command line's to see. Nor does a process here wait for its disk: what
is left when one ends at any moment is the faults' to see. In the folders of mathematics all is float64, where a mistake
stands out by ten digits; tests there that are about float32 ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tolerance import doubles

from foretext.text.corpus.text_files import write_whole
from foretext.train import resume as curve

IN_DOUBLES = ("nn", "objectives")


@pytest.fixture(autouse=True)
def _doubles(request: pytest.FixtureRequest) -> Iterator[None]:
    """What modules are built and inputs drawn in."""
    with doubles() if request.path.parent.name in IN_DOUBLES else nullcontext():
        yield


def _is_here() -> bool:
    """Whether a test of this folder runs: patches stay for the session, and other folders' tests may run in it."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").startswith("tests/unit/")


@pytest.fixture(scope="session", autouse=True)
def _one_curve() -> Iterator[None]:
    real, drawn = curve.loss_curve_png, list[bytes]()

    def once(metrics: list[dict[str, Any]], path: Path) -> None:
        if drawn and _is_here():
            write_whole(path, drawn[0])
            return
        real(metrics, path)
        if _is_here():
            drawn.append(path.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curve, "loss_curve_png", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    real = os.fsync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None if _is_here() else real(descriptor))
        yield
