"""State that an objective carries from one step to the next (Transformer-XL's memory, BPTT's hidden state), as tensors
of a checkpoint.

A state is a tensor, or tuples and string-keyed dictionaries of states; the first axis of each tensor is the rows. Each
micro-batch of a step has a state of its own: its rows go on where the same rows of the step before ended, however a
step is split. A run may go on in micro-batches of another size, and `split_again` hands each row its own state then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from foretext.errors import UserError
from foretext.nn.weights import FOREIGN, check_names, check_tensor


def on_its_own(state: Any) -> Any:
    """The same state without the rest of what it is a part of: a memory is the end of a longer tensor, all of which
    would be held with it from step to step."""
    if isinstance(state, Tensor):
        whole = state.untyped_storage().nbytes() <= state.numel() * state.element_size()
        return state if whole else state.clone()
    if isinstance(state, tuple):
        return tuple(on_its_own(part) for part in state)
    return {name: on_its_own(part) for name, part in state.items()}


def split_again(states: Mapping[int, Any], size: int) -> dict[int, Any]:
    """The states of micro-batches of so many rows, the last perhaps of fewer, from those of micro-batches of any."""
    parts = [states[number] for number in sorted(states)]
    if not parts:
        return {}
    whole = _joined(parts)
    rows = _rows(whole)
    if all(_rows(part) == min(size, rows - number * size) for number, part in enumerate(parts)):
        return dict(states)
    starts = range(0, rows, size)
    return {number: _of_rows(whole, slice(start, start + size)) for number, start in enumerate(starts)}


def _rows(state: Any) -> int:
    while not isinstance(state, Tensor):
        state = state[0] if isinstance(state, tuple) else next(iter(state.values()))
    return len(state)


def _joined(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, tuple):
        return tuple(_joined(same) for same in zip(*parts, strict=True))
    if isinstance(first, dict):
        return {name: _joined([part[name] for part in parts]) for name in first}
    if first.ndim < 2:
        return torch.cat(list(parts))
    # A memory that is not full yet may be shorter in one than in another. What it holds stands at its right end.
    longest = max(part.shape[1] for part in parts)
    missing = [part.new_zeros(len(part), longest - part.shape[1], *part.shape[2:]) for part in parts]
    return torch.cat([torch.cat(pair, dim=1) for pair in zip(missing, parts)])


def _of_rows(state: Any, rows: slice) -> Any:
    if isinstance(state, tuple):
        return tuple(_of_rows(part, rows) for part in state)
    if isinstance(state, dict):
        return {name: _of_rows(part, rows) for name, part in state.items()}
    return state[rows].clone()


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


def check_carried(tensors: Mapping[str, Tensor], new: Any, rows: int, longest: int, where: str) -> None:
    """UserError unless these are the states of micro-batches that have `rows` rows in all. `new` is the state of one
    row that has read nothing; where it has an empty axis, a memory, any length up to `longest` will do. None: nothing
    is carried."""
    wanted: dict[str, Tensor] = {}
    if new is not None:
        _flatten(new, "", wanted)
    numbers = {path.partition("/")[0] for path in tensors}
    parts = {str(number) for number in range(len(numbers))}
    check_names(tensors, {number + name: wanted[name] for number in parts for name in wanted}, where)
    found = 0
    for number in sorted(parts):
        own = {name: tensors[number + name] for name in wanted}
        first = next(iter(own.values()))
        of_part = len(first) if first.ndim else 0
        length = max((tensor.shape[1] for tensor in own.values() if tensor.ndim > 1), default=0)
        found += of_part
        if length > longest and any(like.ndim > 1 and like.shape[1] == 0 for like in wanted.values()):
            raise UserError(f"{where}: a memory of {length} tokens instead of at most {longest}; {FOREIGN}")
        for name, tensor in own.items():
            like = wanted[name]
            memory = like.ndim > 1 and like.shape[1] == 0
            shape = (of_part, *((length, *like.shape[2:]) if memory else like.shape[1:]))
            check_tensor(tensor, shape, like.dtype, f"{where}: {number}{name}")
    if found != rows:
        raise UserError(f"{where}: states of {found} rows instead of {rows}; {FOREIGN}")


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
