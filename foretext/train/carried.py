"""State carried from step to step (Transformer-XL's memory, the hidden state of BPTT), as a checkpoint stores it.

A state is a tensor, or tuples and string-keyed dictionaries of states; the first axis of each tensor is the rows. Each
micro-batch of a step has its own state: its rows continue where the same rows of the previous step ended, however a
step is split. A resumed run may use another micro-batch size; `split_again` then gives each row its own state.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from foretext.batch import mapped
from foretext.errors import refuse_if
from foretext.nn.trunk import FOREIGN, check_names, check_tensor


def on_its_own(state: Any) -> Any:
    """A copy of the state. A memory is the end of a longer tensor, and without the copy the whole tensor would be
    kept."""

    def alone(tensor: Tensor) -> Tensor:
        whole = tensor.untyped_storage().nbytes() <= tensor.numel() * tensor.element_size()
        return tensor if whole else tensor.clone()

    return mapped(state, alone)


def split_again(states: Mapping[int, Any], size: int) -> dict[int, Any]:
    """Regroups the states of micro-batches of any size into micro-batches of so many rows (the last one may have
    fewer)."""
    parts = [dict(_leaves(states[number])) for number in sorted(states)]
    if not parts:
        return {}
    whole = {path: _joined([part[path] for part in parts]) for path in parts[0]}
    counts = [len(next(iter(leaves.values()))) for leaves in (whole, *parts)]
    if all(count == min(size, counts[0] - number * size) for number, count in enumerate(counts[1:])):
        return dict(states)
    starts = range(0, counts[0], size)
    return {number: _grown(whole, slice(start, start + size)) for number, start in enumerate(starts)}


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all states. Memories that are not full yet may differ in length; their contents are at the right
    end."""
    if parts[0].ndim < 2:
        return torch.cat(list(parts))
    longest = max(part.shape[1] for part in parts)
    missing = [part.new_zeros(len(part), longest - part.shape[1], *part.shape[2:]) for part in parts]
    return torch.cat([torch.cat(pair, dim=1) for pair in zip(missing, parts)])


def to_tensors(states: Mapping[int, Any]) -> dict[str, Tensor]:
    """The states of all micro-batches under names like `0/2/hidden`."""
    return {
        str(number) + path: tensor.detach().cpu().contiguous().clone()
        for number, state in states.items()
        for path, tensor in _leaves(state)
    }


def _leaves(state: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a state by their paths in it, such as `/2/hidden`. A state that is a single tensor has an empty
    path."""
    if isinstance(state, Tensor):
        yield path, state
        return
    items = list(enumerate(state)) if isinstance(state, tuple) else list(state.items())
    assert items, "an empty state cannot be saved; carry none instead"
    for key, part in items:
        assert isinstance(key, int) or not (key.isdigit() or "/" in key), (
            f"{key!r}: not a valid name for a part of a state"
        )
        yield from _leaves(part, f"{path}/{key}")


def from_tensors(tensors: Mapping[str, Tensor], device: torch.device) -> dict[int, Any]:
    """The inverse of `to_tensors`: numbered parts become tuples, named ones dictionaries."""
    parts: dict[int, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        number, slash, rest = path.partition("/")
        parts.setdefault(int(number), {})[slash + rest] = tensor.to(device)
    return {number: _grown(leaves) for number, leaves in parts.items()}


def _grown(leaves: Mapping[str, Tensor], rows: slice | None = None) -> Any:
    """The inverse of `_leaves`; with `rows`, a copy of only these rows."""
    if "" in leaves:
        return leaves[""] if rows is None else leaves[""][rows].clone()
    branches: dict[str, dict[str, Tensor]] = {}
    for path, tensor in leaves.items():
        key, slash, rest = path[1:].partition("/")
        branches.setdefault(key, {})[slash + rest] = tensor
    if all(key.isdigit() for key in branches):
        return tuple(_grown(branches[str(number)], rows) for number in range(len(branches)))
    return {key: _grown(branch, rows) for key, branch in branches.items()}


def check_carried(tensors: Mapping[str, Tensor], new: Any, rows: int, longest: int, where: str) -> None:
    """UserError unless these are the states of micro-batches with `rows` rows in all. `new` is the state of one row
    that has read nothing; where it has an empty axis, any memory length up to `longest` is valid. None: nothing is
    carried."""
    wanted = {} if new is None else dict(_leaves(new))
    numbers = {path.partition("/")[0] for path in tensors}
    parts = {str(number) for number in range(len(numbers))}
    check_names(tensors, {number + name: wanted[name] for number in parts for name in wanted}, where)
    counted = 0
    for number in sorted(parts):
        counted += _check_part({name: tensors[number + name] for name in wanted}, wanted, longest, where, number)
    refuse_if(counted != rows, f"{where}: states of {counted} rows, not {rows}; {FOREIGN}")


def _check_part(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], longest: int, where: str, number: str
) -> int:
    """The number of rows in one micro-batch's state; UserError if its tensors do not have the expected shapes."""
    first = next(iter(tensors.values()))
    rows = len(first) if first.ndim else 0
    length = max((tensor.shape[1] for tensor in tensors.values() if tensor.ndim > 1), default=0)
    memories = {name for name, like in wanted.items() if like.ndim > 1 and like.shape[1] == 0}
    refuse_if(
        length > longest and memories,
        f"{where}: a memory of {length} tokens, but at most {longest} are allowed; {FOREIGN}",
    )
    for name, tensor in tensors.items():
        like = wanted[name]
        shape = (rows, *((length, *like.shape[2:]) if name in memories else like.shape[1:]))
        check_tensor(tensor, shape, like.dtype, f"{where}: {number}{name}")
    return rows
