"""A bidirectional LSTM over sentences: what the task models are made of, and, by its layers, CoVe's encoder.

Layers of torch's fused kernel, both directions side by side, the upper ones reading what the lower ones give. Real
words only, in a `ReadingOrder`, so that padding of any amount on either side changes nothing, not even what is dropped.
Dropout is between the layers. (CoVe's encoder also drops what the first reads and the last gives, and tells the last
states: `translation.py`.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from foretext.nn.dropout import dropout
from foretext.nn.recurrent.reading_order import ReadingOrder, reading_order


def bilstm_layers(inputs: int, cells: int, layers: int) -> nn.ModuleList:
    """`cells` of each direction."""
    widths = [inputs] + [2 * cells] * (layers - 1)
    return nn.ModuleList(nn.LSTM(width, cells, bidirectional=True) for width in widths)


def read_layer(layer: nn.Module, x_ND: Tensor, order: ReadingOrder) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """What a layer makes of tokens in the order of reading, of which there is at least one: their states, and the last
    h and c of both directions, [2, rows that hold a token, cells]."""
    packed, last = layer(PackedSequence(x_ND, torch.tensor(order.sizes)))
    return packed.data, last


class BiLstm(nn.Module):
    def __init__(self, inputs: int, cells: int, layers: int = 1, p: float = 0.0) -> None:
        """`cells` of each direction."""
        super().__init__()
        assert layers >= 1
        self.p = p
        self.width = 2 * cells
        self.layers = bilstm_layers(inputs, cells, layers)

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """The top layer's states, forward beside backward ones, [B, T, 2 · cells]; zeros at padding."""
        order = reading_order(mask_BT)
        if not order.sizes:  # nothing but empty rows
            return x_BTD.new_zeros(*mask_BT.shape, self.width)
        x_ND = order.gather(x_BTD)
        for number, layer in enumerate(self.layers):
            x_ND = dropout(x_ND, self.p, self.training and number > 0)
            x_ND, _ = read_layer(layer, x_ND, order)
        return order.scatter(x_ND)


def drop_words(x_BTD: Tensor, mask_BT: Tensor, p: float, training: bool) -> Tensor:
    """Dropout of real words alone, so that padding cannot change what is drawn; zeros at padding, whatever stood
    there."""
    real_ND = dropout(x_BTD[mask_BT], p, training)
    return torch.zeros_like(x_BTD).masked_scatter(mask_BT[..., None], real_ND)
