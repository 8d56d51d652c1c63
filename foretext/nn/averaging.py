"""An exponential moving average of weights, which predict better than the last ones do (Polyak averaging).

    a_n = d_n · a_{n−1} + (1 − d_n) · w_n,   a_0 = w_0,   d_n = min(decay, n / (9 + n))

The decay grows to its value: with .998 from the start, the first values, which were drawn, would still have a seventh
of the say after a thousand updates. (n counts updates from 1; d_n is TensorFlow's rule for averages that begin early.)

Buffers are not averaged: they are as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from foretext.errors import UserError
from foretext.nn.loading import FOREIGN, check_tensors

COUNT = "updates"


def decay_at(decay: float, update: int) -> float:
    """Of the update with this number, from 1."""
    assert update >= 1
    return min(decay, update / (9.0 + update))


class AveragedWeights:
    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float = 0.998) -> None:
        if not 0.0 <= decay < 1.0:
            raise UserError(f"the decay of averaged weights must be at least 0 and below 1, not {decay}")
        self.parameters = dict(parameters)
        self.decay = decay
        self.updates = 0
        self.averages = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """After each step of the optimiser."""
        self.updates += 1
        weight = 1.0 - decay_at(self.decay, self.updates)
        torch._foreach_lerp_(list(self.averages.values()), list(self.parameters.values()), weight)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own, whatever happened."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        """Values change places, tensors do not: who holds a parameter goes on holding it."""
        for name, parameter in self.parameters.items():
            own = parameter.detach().clone()
            parameter.copy_(self.averages[name])
            self.averages[name].copy_(own)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def state_tensors(self) -> dict[str, Tensor]:
        return {**self.averages, COUNT: torch.tensor(self.updates)}

    def load_state(self, tensors: Mapping[str, Tensor], where: str = "averaged weights") -> None:
        """What `state_tensors` gave, read from `where`: UserError if it does not fit."""
        check_tensors(tensors, self.state_tensors(), where)
        if int(tensors[COUNT]) < 0:
            raise UserError(f"{where}: {COUNT} is {int(tensors[COUNT])}; {FOREIGN}")
        self.updates = int(tensors[COUNT])
        for name, average in self.averages.items():
            average.copy_(tensors[name])
