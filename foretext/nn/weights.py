"""Operations on the weights of any model: checks on loading, growing with the vocabulary, and averaging.

Checks: names, shapes, dtypes and finite values. A kernel given a tensor of another shape may write beyond it, so
everything read from a file is checked first: weights, averages, optimiser state, carried state, imports.

Growing: weights with one row per piece of the vocabulary (embeddings, an output bias) are adapted to another
vocabulary, or to more pieces. As in ULMFiT's released code (Howard and Ruder 2018), a known piece keeps its row and a
new one gets the mean of all old rows, so that it starts with no particular meaning instead of noise. fastai does the
same with the bias of the output layer.

Averaging: an exponential moving average of the weights, which predicts better than the last weights (Polyak averaging).

    a_n = d_n · a_{n−1} + (1 − d_n) · w_n,   a_0 = w_0,   d_n = min(decay, n / (9 + n))

The decay grows to its value: with .998 from the start, the first values, which were drawn, would still have a seventh
of the say after a thousand updates. (n counts updates from 1; d_n is TensorFlow's rule for averages that begin early.)
With d_n = (n − 1) / n instead, every update has the same weight: this is the mean over the tail of a run (Izmailov et
al. 2018). Buffers are not averaged: they are as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from foretext.errors import UserError, refuse_if

# -- checked -----------------------------------------------------------------------------------------------------------

FOREIGN = "the file belongs to another model; restore it from a copy"


def check_tensors(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], where: str) -> None:
    """UserError unless `tensors` has exactly the tensors of `wanted`: names, shapes, dtypes, finite values. float32 may
    be copied into float64."""
    check_names(tensors, wanted, where)
    for name, tensor in wanted.items():
        wider = tensor.dtype == torch.float64 and tensors[name].dtype == torch.float32
        check_tensor(tensors[name], tensor.shape, torch.float32 if wider else tensor.dtype, f"{where}: {name}")


def check_names(tensors: Mapping[str, Tensor], wanted: Mapping[str, object], where: str) -> None:
    """UserError unless both have the same names."""
    for name in wanted:
        refuse_if(name not in tensors, f"{where}: {name} is missing; {FOREIGN}")
    for name in tensors:
        refuse_if(name not in wanted, f"{where}: {name} is not a tensor of this model; {FOREIGN}")


def check_tensor(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, where: str) -> None:
    """UserError unless the tensor has this shape and dtype and is finite; `where` names the file and the tensor."""
    refuse_if(tensor.shape != shape, f"{where} has shape {list(tensor.shape)}, not {list(shape)}; {FOREIGN}")
    if tensor.dtype != dtype:
        raise UserError(f"{where} is {_plain(tensor.dtype)}, not {_plain(dtype)}; {FOREIGN}")
    refuse_if(
        not bool(torch.isfinite(tensor).all()),
        f"{where} is not finite; train again with a lower rate (--set training.rate=…)",
    )


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -- grown -------------------------------------------------------------------------------------------------------------


def carried_rows(rows_V: Tensor, old_ids: np.ndarray) -> Tensor:
    """[new size, …] from [old size, …]: the rows of `old_ids`, and the mean of all rows where that is negative."""
    ids = torch.from_numpy(np.asarray(old_ids, dtype=np.int64)).to(rows_V.device)
    assert int(ids.max()) < len(rows_V), f"row {int(ids.max())} of {len(rows_V)}"
    rows_V = rows_V.detach()
    taken = rows_V[ids.clamp(min=0)]
    taken[ids < 0] = rows_V.mean(0)
    return taken


def grown(tokens: nn.Embedding, size: int, draw: Callable[[Tensor], object]) -> nn.Embedding:
    """The embeddings extended to `size`; `draw` fills the new rows as in a new trunk, old ones stay."""
    old_VD = tokens.weight.detach()
    fresh_VD = torch.empty(size - len(old_VD), old_VD.shape[1], dtype=old_VD.dtype, device=old_VD.device)
    draw(fresh_VD)
    return nn.Embedding.from_pretrained(torch.cat([old_VD, fresh_VD]), freeze=False)


# -- averaged ----------------------------------------------------------------------------------------------------------

COUNT = "updates"


def decay_at(decay: float | None, update: int) -> float:
    """Of the update with this number, from 1. `decay` None: every update has the same weight."""
    assert update >= 1
    return (update - 1) / update if decay is None else min(decay, update / (9.0 + update))


class AveragedWeights:
    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float | None = 0.998) -> None:
        refuse_if(
            decay is not None and not 0.0 <= decay < 1.0,
            f"the decay of averaged weights must be at least 0 and below 1, not {decay}",
        )
        self.parameters = dict(parameters)
        self.decay = decay
        self.updates = 0
        self.averages = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Call it after each optimiser step."""
        self.updates += 1
        weight = 1.0 - decay_at(self.decay, self.updates)
        torch._foreach_lerp_(list(self.averages.values()), list(self.parameters.values()), weight)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own, whatever happened. Before the first update
        nothing is averaged, and the model keeps its own."""
        if not self.updates:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        """Exchanges values, not tensors, so that references to parameters stay valid."""
        for name, parameter in self.parameters.items():
            current = parameter.detach().clone()
            parameter.copy_(self.averages[name])
            self.averages[name].copy_(current)

    def state_tensors(self) -> dict[str, Tensor]:
        return {**self.averages, COUNT: torch.tensor(self.updates)}

    def load_state(self, tensors: Mapping[str, Tensor], where: str = "averaged weights") -> None:
        """Loads the output of `state_tensors`, read from `where`; UserError if it does not fit."""
        check_tensors(tensors, self.state_tensors(), where)
        if int(tensors[COUNT]) < 0:
            raise UserError(f"{where}: {COUNT} is {int(tensors[COUNT])}; {FOREIGN}")
        self.updates = int(tensors[COUNT])
        for name, average in self.averages.items():
            average.copy_(tensors[name])
