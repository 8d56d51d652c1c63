"""One minute pre-trained run and one fine-tuned run for all tests of the command line; nobody writes into them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from cli_harness import MINUTE, works, write_files


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are laid out but not drawn, which takes as long as a minute training; `drawn` has them drawn."""
    if "drawn" not in request.fixturenames:
        from matplotlib.figure import Figure

        def blank(figure: Figure, file: BinaryIO, format: str) -> None:
            file.write(b"\x89PNG")

        monkeypatch.setattr(Figure, "savefig", blank)


@pytest.fixture
def drawn() -> None:
    """For tests of pictures."""


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


@pytest.fixture(scope="session")
def base(files: Path) -> Iterator[Path]:
    run = files / "base"
    works("pretrain", files / "text.txt", "--out", run, "--steps", 4, *MINUTE)
    before = contents(run)
    yield run
    assert contents(run) == before, "a test changed the base run"


@pytest.fixture(scope="session")
def clf(files: Path, base: Path) -> Iterator[Path]:
    run = files / "clf"
    works("finetune", base, files / "cls.csv", "--task", "classification", "--out", run, "--epochs", 1)
    before = contents(run)
    yield run
    assert contents(run) == before, "a test changed the fine-tuned run"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    """What is in a folder, by hash."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
