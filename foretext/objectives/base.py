"""The protocol that pre-training objectives and labelled tasks share.

An objective makes examples into a `Batch` (all corruption and input transformation happens there, drawn from a
generator made of seed, epoch and index), owns its head, calls the trunk, and returns named *(sum, count)* losses. The
loop knows nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from foretext.batch import Batch, Hidden, Outcome


class Trunk(Protocol):
    """What an objective may ask of a trunk."""

    def __call__(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden: ...

    def output_table(self) -> Tensor: ...


class Objective(nn.Module):
    """Base of all objectives and tasks; see the module docstring.

    One that `carries_state` gets back, as `state`, what it returned in `Outcome.state` for the micro-batch of the same
    number in the step before (None at first), detached and kept in checkpoints: a tensor, or tuples and dictionaries
    of them.
    """

    weights: dict[str, float]
    carries_state: bool = False

    def make(self, examples: Sequence[Any], epoch: int, indices: Sequence[int]) -> Batch:
        raise NotImplementedError

    def counts(self, batch: Batch) -> dict[str, float]:
        """What each loss of this batch will be divided by, known before the forward pass."""
        raise NotImplementedError

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        raise NotImplementedError
