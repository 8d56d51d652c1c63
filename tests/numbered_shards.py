"""Token shards for tests of what is read from where."""

import numpy as np


class Numbers:
    """Shards whose tokens are their places."""

    folder, split = "nowhere", "train"

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def window(self, start: int, length: int) -> np.ndarray:
        assert start >= 0 and start + length <= self.length
        return np.arange(start, start + length)
