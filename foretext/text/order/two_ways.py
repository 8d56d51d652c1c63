"""A text that is read in both directions at once: half of the rows of a step read their stretches from the left, the
other half from the right, as XLNet's bidirectional data streams do.

Each direction goes through the whole text in an epoch, if as many rows read one way as the other. Window i of N is
numbered i for the rows that read forward and 2 N − 1 − i for those that read backward, so that both kinds of row count
upwards: a row's next window is the one whose text its memory leads to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretext.text.order.sample_order import Windows


@dataclass(frozen=True)
class Stretch:
    """Ids in the order of the text, and whether they are read from the right. `segments`: the kind of each, where there
    is more than one kind; `apart`: which of them are no text but stand round it; `kept`: how many of those that are
    read first are remembered, None: all."""

    ids: np.ndarray
    backward: bool = False
    segments: np.ndarray | None = None
    apart: np.ndarray | None = None
    kept: int | None = None


class TwoWays:
    """Windows without the target after their last token: a model that is asked about its own places needs none."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return 2 * len(self.windows)

    def example(self, epoch: int, index: int) -> Stretch:
        backward = index >= len(self.windows)
        place = len(self) - 1 - index if backward else index
        return Stretch(self.windows.example(epoch, place)[:-1], backward)


class TwoWayOrder:
    """`batch_size` stretches side by side, the first half (of an odd number the larger) read from the left, the others
    from the right; one window of each a step. An epoch ends with the forward rows: what is then left over of a
    direction is not seen in it, of an odd number of rows also the share of a backward row that there is not."""

    def __init__(self, size: int, batch_size: int) -> None:
        """`size`: of `TwoWays`."""
        assert size > 0 and size % 2 == 0 and batch_size > 0
        self.windows = size // 2
        self.forward = min(self.windows, -(-batch_size // 2))
        self.backward = min(self.windows, batch_size // 2)
        self.steps_per_epoch = self.windows // self.forward

    def batch(self, step: int) -> tuple[int, list[int]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        firsts = [*range(self.forward), *range(self.backward)]
        sides = [0] * self.forward + [self.windows] * self.backward
        return epoch, [side + row * self.steps_per_epoch + within for side, row in zip(sides, firsts)]
