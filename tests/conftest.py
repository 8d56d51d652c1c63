"""One thread: the numbers of a test do not depend on the machine, and tests do not fight over its cores."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded, and for child processes

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
