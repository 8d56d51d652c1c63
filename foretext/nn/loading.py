"""What is read from a file is checked before anything is done with it: by name, shape, dtype and finite values.

A kernel that is handed a tensor of another shape may write beyond it, so nothing that was loaded goes anywhere without
this check: weights, averages, optimiser state, carried state, imports.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from foretext.errors import UserError

FOREIGN = "the file belongs to another model; restore it from a copy"


def check_tensors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], where: str) -> None:
    """UserError unless `found` has exactly the tensors of `wanted`: their names, shapes and dtypes, finite. float32 may
    be copied into float64, which loses nothing."""
    check_names(found, wanted, where)
    for name, tensor in wanted.items():
        wider = tensor.dtype == torch.float64 and found[name].dtype == torch.float32
        check_tensor(found[name], tensor.shape, torch.float32 if wider else tensor.dtype, f"{where}: {name}")


def check_names(found: Mapping[str, Tensor], wanted: Mapping[str, object], where: str) -> None:
    """UserError unless both have the same names."""
    for name in wanted:
        if name not in found:
            raise UserError(f"{where}: {name} is missing; {FOREIGN}")
    for name in found:
        if name not in wanted:
            raise UserError(f"{where}: {name} is not a tensor of this model; {FOREIGN}")


def check_tensor(found: Tensor, shape: tuple[int, ...], dtype: torch.dtype, where: str) -> None:
    """UserError unless it has this shape and dtype, and is finite; `where` names the file and the tensor."""
    if found.shape != shape:
        raise UserError(f"{where} has shape {list(found.shape)} instead of {list(shape)}; {FOREIGN}")
    if found.dtype != dtype:
        raise UserError(f"{where} is {_plain(found.dtype)} instead of {_plain(dtype)}; {FOREIGN}")
    if not bool(torch.isfinite(found).all()):
        raise UserError(f"{where} is not finite; train again with a lower rate (--set training.rate=…)")


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
