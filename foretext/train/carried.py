"""State that an objective carries from one step to the next (Transformer-XL's memory, BPTT's hidden state), as tensors
of a checkpoint.

A state is a tensor, or tuples and string-keyed dictionaries of states. Each micro-batch of a step has a state of its
own: its rows go on where the same rows of the step before ended, however a step is split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def on_its_own(state: Any) -> Any:
    """The same state without the rest of what it is a part of: a memory is the end of a longer tensor, all of which
    would be held with it from step to step."""
    if isinstance(state, Tensor):
        whole = state.untyped_storage().nbytes() <= state.numel() * state.element_size()
        return state if whole else state.clone()
    if isinstance(state, tuple):
        return tuple(on_its_own(part) for part in state)
    return {name: on_its_own(part) for name, part in state.items()}


def to_tensors(states: Mapping[int, Any]) -> dict[str, Tensor]:
    """The states of all micro-batches under names like `0/2/hidden`."""
    tensors: dict[str, Tensor] = {}
    for number, state in states.items():
        _flatten(state, str(number), tensors)
    return tensors


def _flatten(state: Any, path: str, tensors: dict[str, Tensor]) -> None:
    if isinstance(state, Tensor):
        tensors[path] = state.detach().cpu().contiguous().clone()
        return
    items = list(enumerate(state)) if isinstance(state, tuple) else list(state.items())
    assert items, "an empty state cannot be kept; carry none instead"
    for key, part in items:
        assert isinstance(key, int) or not (key.isdigit() or "/" in key), f"{key!r}: not a name for a part of a state"
        _flatten(part, f"{path}/{key}", tensors)


def from_tensors(tensors: Mapping[str, Tensor], device: torch.device) -> dict[int, Any]:
    """The reverse of `to_tensors`: numbered parts are tuples, named ones dictionaries."""
    tree: dict[str, Any] = {}
    for path, tensor in tensors.items():
        *parents, last = path.split("/")
        branch = tree
        for name in parents:
            branch = branch.setdefault(name, {})
        branch[last] = tensor.to(device)
    return {int(number): _grow(branch) for number, branch in tree.items()}


def _grow(branch: Any) -> Any:
    if isinstance(branch, Tensor):
        return branch
    if all(name.isdigit() for name in branch):
        return tuple(_grow(branch[str(number)]) for number in range(len(branch)))
    return {name: _grow(part) for name, part in branch.items()}
