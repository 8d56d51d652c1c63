"""XLNet as a trunk that goes on with a text, for the decoder: of all orders that it knows, that of the text.

In that order nothing sees what follows, so that what was read stays as it was, and the memory, which is then as long as
the context, is a cache: of the states that each block was given. A token passes through the blocks once; its keys and
values are projected from these states anew for each token that follows, where GPT and Transformer-XL keep them. After
what is read one place more is asked about, and the query state there tells the next token. What was put into that place
is seen by nobody, and is not remembered.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, Hidden
from foretext.nn.relative.xlnet import MemoryState, OrderedBatch
from foretext.objectives.permutation import PermutationObjective


class LeftToRight:
    def __init__(self, trunk: nn.Module, objective: PermutationObjective, context: int) -> None:
        self.trunk, self.context = trunk.eval(), context
        self.output_bias = objective.head.bias

    def __call__(self, batch: Batch, state: MemoryState) -> Hidden:
        """The top's last column is what the token behind all that was read is predicted from."""
        rows, length = batch.ids_BT.shape
        device = batch.ids_BT.device
        next_B1 = torch.zeros(rows, 1, dtype=torch.long, device=device)
        targets_BT = torch.full((rows, length + 1), IGNORE, device=device)
        targets_BT[:, -1] = 0
        mask_BT = batch.mask_BT
        if mask_BT is not None:
            mask_BT = torch.cat([mask_BT, torch.ones_like(next_B1, dtype=torch.bool)], dim=1)
        ordered = OrderedBatch(
            torch.cat([batch.ids_BT, next_B1], dim=1),
            mask_BT,
            targets_BT=targets_BT,
            ranks_BT=torch.arange(length + 1, device=device).expand(rows, -1),
            kept=length,
            memory=self.context,
        )
        found: Hidden = self.trunk(ordered, state)
        return found

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.trunk.parameters()

    def output_table(self) -> Tensor:
        table: Tensor = self.trunk.output_table()  # type: ignore[operator]
        return table

    def new_state(self, rows: int) -> MemoryState:
        empty: MemoryState = self.trunk.new_state(rows)  # type: ignore[operator]
        return empty

    def room(self, state: MemoryState) -> int:
        return self.context - state[1].shape[1]

    def pick(self, state: MemoryState, rows: Tensor) -> MemoryState:
        return tuple(kept[rows] for kept in state[0]), state[1][rows]
