"""The view of the fine-tuned trunk's scores for a row: logits of its classes or choices, or its score.

A trunk that was trained on a row is very confident about it, and a head fitted on such logits would trust them far too
much. So the head is fitted on logits of trunks that have not seen the row (out of fold). A new row is scored by the
trunk that was fine-tuned on all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np

from foretext.tasks.views.base import Block, Tensors, Units


class Tuned:
    name = "tuned"

    def __init__(self, mean: np.ndarray, deviation: np.ndarray) -> None:
        """Per output, over the training rows; the deviation is a single number, so that outputs stay comparable."""
        self.mean, self.deviation = mean, deviation

    @classmethod
    def learned(cls, units: Units) -> Self:
        assert units.tuned is not None
        mean = units.tuned.mean(0)
        return cls(mean, np.maximum(np.sqrt(np.square(units.tuned - mean).mean(keepdims=True))[0], 1e-6))

    def read(self, units: Units) -> dict[str, Block]:
        assert units.tuned is not None
        return {"logits": (units.tuned - self.mean) / self.deviation}

    def tensors(self) -> Tensors:
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(tensors["mean"], tensors["deviation"])
