"""One thread: tests do not fight over the machine's cores. (`make portable` asks for another number, which may change
the last digits of a sum and no test's outcome.) No chance and no clock in property tests either: the same examples
every time, however slow the machine is. And what is there before the first test is not searched for garbage after each
of the thousands."""

import gc
import os

# Before torch is loaded, and for child processes.
os.environ["OMP_NUM_THREADS"] = os.environ.get("FORETEXT_TEST_THREADS", "1")
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # tests of two threads wait for a core that another test has: not by spinning

import hypothesis
import pytest
import torch

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` keeps its caller's stack, which is deep here
