"""Beginning anew now and then: rows of a stream that are read as if nothing stood before them.

A model that always reads on never learns to read a beginning, and a sentence that is to be classified, or a text that
is to be scored, is one: there is nothing to attend to but a few tokens, for which its weights were never fitted. So a
part of the rows of a step, drawn by their examples, is given an empty state. Papers that do not transfer have no need
of it, and their sizes do not do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foretext.nn.model_config import check_range
from foretext.objectives.base import Draw


@dataclass(frozen=True, kw_only=True)
class ForgettingConfig:
    """[objective] of Transformer-XL, and a part of XLNet's."""

    forget: float = 0.0  # part of the rows of a step that begin anew

    def check(self) -> None:
        check_range("objective", self, "at least 0 and at most 1", "forget")


def fresh_rows(part: float, count: int, draw: Draw | None) -> Tensor | None:
    """Which of so many rows begin anew, [B] of bools, whatever batch an example is in; None: none do."""
    if not part or draw is None:
        return None
    # Of a generator beside that of the example's other draws, which do not depend on it.
    found = torch.tensor([draw.generator(number).spawn(1)[0].random() < part for number in range(count)])
    return found if bool(found.any()) else None


def begun_anew(state: Any, fresh_B: Tensor | None) -> Any:
    """What is carried, and nothing for these rows: zeros, which are an LSTM's first state, and false, which is a place
    of a memory that holds nothing."""
    if fresh_B is None or state is None:
        return state
    if isinstance(state, Tensor):
        return state.masked_fill(fresh_B.view(-1, *[1] * (state.ndim - 1)), 0)
    if isinstance(state, tuple):
        return tuple(begun_anew(part, fresh_B) for part in state)
    return {name: begun_anew(part, fresh_B) for name, part in state.items()}
