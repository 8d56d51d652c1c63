"""ELMo's bidirectional language model up to its softmax (Peters et al., 2018): a character encoder that both directions
share, and a stack of projected LSTMs for each, which share nothing.

    x = encoder(characters),   h_1 = lstm_1(x),   h_l = lstm_l(h_{l−1}) + h_{l−1}   for l > 1
    layers: [x; x], [→h_1; ←h_1], …, [→h_L; ←h_L]

The residual is added to what a layer gives to the next one, not to the state that it goes on from. Dropout, as in the
released code, is on the input of each layer, and the residual adds that same dropped input; the dropout before the
softmax belongs to the objective. →h_t has read the words up to and with t, ←h_t those from t on.

What is carried from one piece of text to the next is, as in the released code, the state of each row and direction
after its last step, also of the backward direction, which then goes on from a sentence's begin to the next sentence's
end. A row without words keeps its state. If a batch has fewer rows than the state, the other rows wait; if it has more,
the new ones start at 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from foretext.nn.fused import dropout
from foretext.nn.model_config import check_range
from foretext.nn.recurrent.char_cnn import CharEncoder, CharEncoderConfig
from foretext.nn.recurrent.lstm_layer import ReadingOrder, reading_orders
from foretext.nn.recurrent.projected_lstm import LstmState, ProjectedLstm, ProjectedLstmConfig

StackState = tuple[LstmState, ...]  # for each layer
BilmState = tuple[StackState, StackState]  # forward, backward


@dataclass(frozen=True)
class BilmConfig:
    layers: int = 2  # of LSTM
    cells: int = 4096  # of each layer and direction
    cell_clip: float = 3.0  # 0: no bound
    state_clip: float = 3.0
    residual: bool = True
    dropout: float = 0.1
    words: CharEncoderConfig = field(default_factory=CharEncoderConfig)  # its width is that of a direction's states

    def check(self, where: str = "model") -> None:
        """UserError if no model can have this shape."""
        check_range(where, self, "at least 1", "layers")
        check_range(where, self, "at least 0 and below 1", "dropout")
        self.words.check(f"{where}.words")
        self.lstm().check(where)

    def lstm(self) -> ProjectedLstmConfig:
        """The shape of every layer."""
        return ProjectedLstmConfig(self.words.width, self.cells, self.words.width, self.cell_clip, self.state_clip)

    @property
    def width(self) -> int:
        """Numbers in a state of a layer, both directions together."""
        return 2 * self.words.width

    def describe(self) -> str:
        return f"{self.layers} layers of {self.cells} cells a direction, projected to {self.words.width}, on characters"

    def parameters(self) -> int:
        return self.words.parameters() + 2 * self.layers * self.lstm().parameters()

    def activations(self, tokens: int) -> int:
        return self.words.activations(tokens) + 2 * self.layers * self.lstm().activations(tokens)


@dataclass(frozen=True)
class BilmStates:
    layers: tuple[Tensor, ...]  # L + 1 of [B, T, 2 · width]; zeros at padding
    state: BilmState

    @property
    def top(self) -> Tensor:
        return self.layers[-1]


class LstmStack(nn.Module):
    """One direction."""

    def __init__(self, config: BilmConfig) -> None:
        super().__init__()
        self.config = config
        self.lstms = nn.ModuleList(ProjectedLstm(config.lstm()) for _ in range(config.layers))

    def new_state(self, rows: int) -> StackState:
        return tuple(lstm.new_state(rows) for lstm in self.lstms if isinstance(lstm, ProjectedLstm))

    def forward(
        self, x_ND: Tensor, order: ReadingOrder, state: StackState | None = None
    ) -> tuple[list[Tensor], StackState]:
        """Each layer's states of the tokens in the order of reading, and what to go on from."""
        rows = order.shape[0]
        given = self.new_state(rows) if state is None else state
        layers, after = [], []
        for number, (lstm, (h, c)) in enumerate(zip(self.lstms, given)):
            x_ND = dropout(x_ND, self.config.dropout, self.training)
            h_ND, (new_h, new_c) = lstm(x_ND, order, (_fitted(h, rows), _fitted(c, rows)))
            x_ND = h_ND + x_ND if number and self.config.residual else h_ND
            layers.append(x_ND)
            after.append((torch.cat([new_h, h[rows:]]), torch.cat([new_c, c[rows:]])))
        return layers, tuple(after)


class Bilm(nn.Module):
    def __init__(self, config: BilmConfig) -> None:
        super().__init__()
        self.config = config
        self.words = CharEncoder(config.words)
        self.forwards = LstmStack(config)
        self.backwards = LstmStack(config)

    def new_state(self, rows: int) -> BilmState:
        return self.forwards.new_state(rows), self.backwards.new_state(rows)

    def forward(self, words_BTD: Tensor, mask_BT: Tensor | None = None, state: BilmState | None = None) -> BilmStates:
        """All layers of encoded words; `mask_BT` is true at real ones, padding may stand on either side."""
        if mask_BT is None:
            mask_BT = torch.ones(words_BTD.shape[:2], dtype=torch.bool, device=words_BTD.device)
        given = (None, None) if state is None else state
        read = []
        for stack, order, one in zip((self.forwards, self.backwards), reading_orders(mask_BT), given):
            layers, after = stack(order.gather(words_BTD), order, one)
            read.append(([order.scatter(layer) for layer in layers], after))
        (forward, forward_state), (backward, backward_state) = read
        encoded_BTD = words_BTD.masked_fill(~mask_BT[..., None], 0.0)
        layers_BTD = [torch.cat(pair, dim=-1) for pair in zip(forward, backward)]
        return BilmStates((torch.cat([encoded_BTD] * 2, dim=-1), *layers_BTD), (forward_state, backward_state))


def _fitted(part_BD: Tensor, rows: int) -> Tensor:
    """A state of so many rows: without those that wait, with new ones at 0."""
    missing = rows - len(part_BD)
    if missing > 0:
        return torch.cat([part_BD, part_BD.new_zeros(missing, part_BD.shape[1])])
    return part_BD[:rows]
