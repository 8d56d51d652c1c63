"""The values that pass between the rooms: `Batch`, `Hidden`, `LossSum`, `Outcome`.

Shape suffixes used in the whole package: B sequences, T positions, D model width, H heads, K head width, V vocabulary,
N packed real tokens (all sequences end to end, padding left out), C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """What trunks and objectives read. Only fields in use are set; the others stay None.

    `mask_BT` is true at real tokens; padding may be on either side. None means that every position is real.
    `positions_BT` is set only if positions are not simply 0, 1, 2 … over the real tokens of each row.
    """

    ids_BT: Tensor
    mask_BT: Tensor | None = None
    positions_BT: Tensor | None = None
    segments_BT: Tensor | None = None
    attend_BTT: Tensor | None = None  # with a state: which new tokens each new token sees; None: all earlier ones
    targets_BT: Tensor | None = None  # token targets; IGNORE where there is none
    extract_B: Tensor | None = None  # index of the state that represents the sequence
    group_B: Tensor | None = None  # the example of each sequence (similarity: 2 sequences each, choice: k each)
    labels: Tensor | None = None  # one per example: class index (int64) or score (float32)
    fresh_B: Tensor | None = None  # rows that start anew, ignoring the carried state; None: no rows
    # true where the top states will be read; a trunk may leave the others 0; None: all are read
    read_BT: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **{name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()})

    def reading(self, read_BT: Tensor) -> Batch:
        """A copy that marks the top states that will be read."""
        return replace(self, read_BT=read_BT)

    def reading_one(self, places_B: Tensor) -> Batch:
        """A copy that marks one top state of each row to be read."""
        return self.reading(torch.arange(self.ids_BT.shape[1], device=self.ids_BT.device) == places_B[:, None])

    @property
    def real_tokens(self) -> int:
        return self.ids_BT.numel() if self.mask_BT is None else int(self.mask_BT.sum())


def padded(rows: Sequence[Sequence[int] | np.ndarray], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of ids as one [B, T] tensor, padded on the right, and the mask of real tokens."""
    longest = max(len(row) for row in rows)
    ids = np.full((len(rows), longest), fill, dtype=np.int64)
    real = np.zeros((len(rows), longest), dtype=bool)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        real[number, : len(row)] = True
    return torch.from_numpy(ids), torch.from_numpy(real)


def padded_segments(rows: Sequence[Sequence[int]], length: int) -> Tensor | None:
    """The segments as one [B, length] tensor, padded with 0; None if no sequence has segments."""
    if not any(rows):
        return None
    return torch.from_numpy(np.array([[*row, *[0] * (length - len(row))] for row in rows], dtype=np.int64))


BATCH_TOKENS = 8192  # tokens per batch when nothing is trained


def length_batches(
    lengths: Sequence[int], limit: int = BATCH_TOKENS, progress: Callable[[int, int], None] | None = None
) -> Iterator[list[int]]:
    """Indices grouped by similar length, at most `limit` tokens per group, longest first. After each group, `progress`
    gets the number of sequences done."""
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    done = 0
    while done < len(lengths):
        count = max(1, limit // max(1, lengths[longest_first[done]]))
        yield longest_first[done : done + count]
        done = min(done + count, len(lengths))
        if progress is not None:
            progress(done, len(lengths))


IGNORE = -100  # target that no loss counts


@dataclass(frozen=True)
class Hidden:
    """What a trunk returns. `layers` (h_0 … h_n) is set only on request, `state` only if a state was passed in."""

    top: Tensor
    layers: tuple[Tensor, ...] = ()
    state: Any = None


@dataclass(frozen=True)
class LossSum:
    """A loss as a sum and the count to divide it by, never as a mean."""

    total: Tensor
    count: float


@dataclass(frozen=True)
class Outcome:
    """What an objective or a task returns: named losses, the state for the next batch, and (tasks) the scores."""

    losses: dict[str, LossSum]
    state: Any = None
    scores: Tensor | None = None  # tasks: logits [examples, C], or predicted scores [examples]


def mapped(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A carried state (tensors, tuples, dictionaries) with `change` applied to each tensor."""
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, tuple):
        return tuple(mapped(part, change) for part in state)
    assert isinstance(state, dict), f"a carried state consists of tensors, tuples and dictionaries, not {type(state)}"
    return {name: mapped(part, change) for name, part in state.items()}


def detached(state: Any) -> Any:
    """The state without its graph, so that gradients do not flow into the previous step."""
    return mapped(state, Tensor.detach)
