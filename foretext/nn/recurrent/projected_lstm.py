"""A layer of LSTM whose state is projected, with the memory and the state held within bounds (Sak et al., 2014, as ELMo
uses it).

    i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of W x_t + U h_{t−1} + b
    c_t = clip(f ∘ c_{t−1} + i ∘ g, ±cell_clip),   h_t = clip(P (o ∘ tanh c_t), ±state_clip)

It reads tokens in a `ReadingOrder`: sequences of unequal length, padded anywhere, from either end. torch's own kernel
has the projection but no bounds, and does not show the c_t by which one could see afterwards that none was needed; so
it serves where there are no bounds (`lstm_layer`). With bounds the steps are taken one by one (`lstm_steps`).

Where the state is as wide as the memory there is no projection and, as in the released code, no bound on the state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.errors import UserError
from foretext.nn.model_config import check_range
from foretext.nn.recurrent.lstm_layer import KEPT_PER_CELL, ReadingOrder, lstm_layer, lstm_steps

LstmState = tuple[Tensor, Tensor]  # h_BD, c_BC: the batch's rows in their own order


@dataclass(frozen=True)
class ProjectedLstmConfig:
    inputs: int
    cells: int
    width: int  # of the state; as many as the cells: not projected
    cell_clip: float = 3.0  # 0: no bound
    state_clip: float = 3.0

    def check(self, where: str = "model") -> None:
        if not 1 <= self.width <= self.cells:
            raise UserError(f"{where}: a state of {self.width} cannot be projected from {self.cells} cells; give fewer")
        check_range(where, self, "at least 0", "cell_clip", "state_clip")

    @property
    def projects(self) -> bool:
        return self.width != self.cells

    @property
    def bounded(self) -> bool:
        return bool(self.cell_clip or (self.state_clip and self.projects))

    def parameters(self) -> int:
        projection = self.cells * self.width if self.projects else 0
        return 4 * self.cells * (self.inputs + self.width + 1) + projection

    def activations(self, tokens: int) -> int:
        return tokens * (KEPT_PER_CELL * self.cells + 3 * self.width)


class ProjectedLstm(nn.Module):
    def __init__(self, config: ProjectedLstmConfig) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Linear(config.inputs, 4 * config.cells)
        self.recurrent = nn.Linear(config.width, 4 * config.cells, bias=False)
        self.project = nn.Linear(config.cells, config.width, bias=False) if config.projects else None
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        # One matrix [W U] in the released code, so both are drawn by the sum of their widths.
        limit = (6.0 / (self.config.inputs + self.config.width + 4 * self.config.cells)) ** 0.5
        self.input.weight.uniform_(-limit, limit)
        self.recurrent.weight.uniform_(-limit, limit)
        self.input.bias.zero_()
        self.input.bias[self.config.cells : 2 * self.config.cells] = 1.0  # of the forget gates
        if self.project is not None:
            nn.init.xavier_uniform_(self.project.weight)

    def new_state(self, rows: int) -> LstmState:
        weight = self.input.weight
        return weight.new_zeros(rows, self.config.width), weight.new_zeros(rows, self.config.cells)

    def forward(self, x_ND: Tensor, order: ReadingOrder, state: LstmState | None = None) -> tuple[Tensor, LstmState]:
        """The states of all tokens in the order of reading, and what to go on from. A row without a token keeps its
        state."""
        state = self.new_state(order.shape[0]) if state is None else state
        if not order.sizes:  # no number, but of the weights: such a batch has a gradient, which is 0
            return self.input(x_ND)[:, :1].expand(-1, self.config.width), state
        first_h, first_c = (order.begin(part) for part in state)
        weight, bias, recurrent = self.input.weight, self.input.bias, self.recurrent.weight
        project = [] if self.project is None else [self.project.weight]
        if self.config.bounded:
            bounds = self.config.cell_clip, self.config.state_clip if project else 0.0
            inputs_N4C, into = F.linear(x_ND, weight, bias), project[0] if project else None
            h_ND, h, c = lstm_steps(inputs_N4C, recurrent, into, first_h, first_c, order.sizes, *bounds)
        else:
            weights = [weight, recurrent, bias, torch.zeros_like(bias), *project]
            h_ND, h, c = lstm_layer(x_ND, order, first_h, first_c, weights)
        return h_ND, (order.end(state[0], h), order.end(state[1], c))
