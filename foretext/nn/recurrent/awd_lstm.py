"""The AWD-LSTM trunk (Merity, Keskar and Socher 2017), which ULMFiT (Howard and Ruder 2018) pre-trains.

Embeddings have `width`, layers have `hidden` cells, and the last layer has `width` again, so that the softmax can be
tied to the embeddings. Each layer is one call of torch's fused kernel, which gets this pass's weights as arguments. The
hidden-to-hidden matrix after dropout is an argument, not an overwritten parameter, so gradients reach the learned
weights and there is one copy of them. (In training on a CPU the kernel is slow for rows of unequal length; these use
our own steps: `lstm_layer`.)

There are five dropouts: on embedding rows, on the input, on the hidden-to-hidden weights, between layers, and on the
output. The configuration sets their ratios; `dropout` multiplies them all.

`Hidden.top` is the top layer *before* the output dropout: classifiers read it, TAR compares its neighbours, and carried
or scored states have no dropout. A language model applies the dropout itself, with `trunk.output_dropout(hidden.top)`,
and so has both versions without a second field that no other trunk would fill:

    hidden = trunk(batch, state)
    dropped = trunk.output_dropout(hidden.top)
    lm = trunk.output_layer().loss(dropped…, …)
    ar, tar = activation_penalty(dropped, batch.mask_BT), temporal_penalty(hidden.top, batch.mask_BT)

The state is ((h, c), …), one pair of [B, H] per layer. Initial weights are those of the released code: embeddings
uniform in ±.1, a layer's matrices and both biases uniform in ±1/√cells, and no bias that opens the forget gates. With
this initialisation the input contributes a hundredth of what opens a gate, in each of three layers, and hundreds of
updates pass before a token makes a difference. `lively` divides each embedding by its root mean square, and draws every
layer's input weights so that the gates' inputs have standard deviation 1. The softmax uses the original embeddings,
whose size grows severalfold during training; gates that read them at that size would saturate.

AWD-LSTM's regularisation (Merity, Keskar and Socher 2017) is its dropouts and two penalties.

Ordinary dropout draws a new mask at every time step, which erodes a recurrent memory. AWD-LSTM's dropouts do not:

- embedding rows: a token's whole row of the table is zero, wherever it occurs in the batch;
- locked (variational): one mask per sequence, the same at all its time steps; on the input, between the layers and
  on the output;
- weights: single entries of the hidden-to-hidden matrix are zero for a whole forward pass, so the recurrence itself is
  thinned out and the fused kernel still runs it.

Kept values are scaled by 1 / (1 − p). All masks come from torch's own generator, and the number of draws depends on
rows, widths and vocabulary but not on padding, so padding cannot change a mask.

The penalties are the paper's activation regularisation (AR), on the top states after dropout, and temporal activation
regularisation (TAR), on the difference of neighbouring top states before dropout. As in the released code and in fastai
they are means of squares, here sums and counts; the factors α and β are the objective's weights.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden, LossSum
from foretext.errors import check_range, refuse_if
from foretext.nn.fused import dropout, full_precision_on_cpu, keep_mask
from foretext.nn.recurrent.lstm_layer import KEPT_PER_CELL, ReadingOrder, lstm_layer, reading_order
from foretext.nn.trunk import MOST_LAYERS, MOST_WIDE, ModelConfig, TokenTrunk

LEAST_SQUARE = 1e-8  # added to a row's mean square, so that a row of zeros stays unchanged


def kept(shape: tuple[int, ...], p: float, like: Tensor) -> Tensor:
    """A mask of zeros (probability p) and 1 / (1 − p), with the type and device of `like`."""
    if full_precision_on_cpu(like):
        return keep_mask(shape, p, like.dtype)
    return F.dropout(torch.ones(shape, dtype=like.dtype, device=like.device), p)


def embed_dropped(table_VD: Tensor, ids_N: Tensor, p: float, training: bool, level: bool = False) -> Tensor:
    """The embeddings of these ids, with whole rows of the table dropped. Only the rows in use are scaled; the table is
    not copied. `level`: first divides each row by its root mean square."""
    x_ND = F.embedding(ids_N, table_VD)
    if level:
        x_ND = F.rms_norm(x_ND, x_ND.shape[1:], eps=LEAST_SQUARE)
    return x_ND * kept((len(table_VD),), p, table_VD)[ids_N, None] if training and p > 0.0 else x_ND


def locked_dropout(x_BTD: Tensor, p: float, training: bool) -> Tensor:
    """The same mask at all time steps of a sequence."""
    return x_BTD * kept((len(x_BTD), x_BTD.shape[2]), p, x_BTD)[:, None] if training and p > 0.0 else x_BTD


# -- the penalties -----------------------------------------------------------------------------------------------------


def activation_penalty(dropped_BTD: Tensor, mask_BT: Tensor | None = None) -> LossSum:
    """AR: the squares of the top states after the output dropout. Padding is zero there and is not counted."""
    flat = dropped_BTD.reshape(-1)
    tokens = dropped_BTD[..., 0].numel() if mask_BT is None else int(mask_BT.sum())
    return LossSum(torch.dot(flat, flat), float(tokens * dropped_BTD.shape[2]))


def temporal_penalty(top_BTD: Tensor, mask_BT: Tensor | None = None) -> LossSum:
    """TAR: the squares of h_t − h_{t−1} of the top states before the output dropout, over neighbours in this batch (not
    across the border to the previous piece, as in the released code)."""
    steps = top_BTD[:, 1:] - top_BTD[:, :-1]
    if mask_BT is not None:
        steps = steps * _neighbours(mask_BT)[:, :, None]
    flat = steps.reshape(-1)
    return LossSum(torch.dot(flat, flat), _steps(top_BTD.shape[:2], mask_BT) * top_BTD.shape[2])


def penalty_counts(batch: Batch, width: int) -> tuple[float, float]:
    """What the two penalties, AR and TAR, of this batch will be divided by, before anything is computed."""
    return float(batch.real_tokens * width), _steps(batch.ids_BT.shape, batch.mask_BT) * width


def _neighbours(mask_BT: Tensor) -> Tensor:
    """[B, T − 1]: whether a position and the previous one are both real."""
    return mask_BT[:, 1:] & mask_BT[:, :-1]


def _steps(shape: torch.Size, mask_BT: Tensor | None) -> float:
    return float(shape[0] * max(0, shape[1] - 1) if mask_BT is None else _neighbours(mask_BT).sum())


# -- the trunk ---------------------------------------------------------------------------------------------------------


DROPOUTS = ("embedding_dropout", "input_dropout", "weight_dropout", "hidden_dropout", "output_dropout")
OF_EVEN_DRAW = 3**-0.5  # standard deviation of a uniform draw from ±1
OF_STATES = 0.2  # approximate deviation of a layer's states h if its gates' inputs have deviation 1

LayerState = tuple[Tensor, Tensor]  # h and c, [B, H] each
State = tuple[LayerState, ...]


@dataclass(frozen=True)
class AwdLstmConfig(ModelConfig):
    """The defaults are the paper's: shape and dropouts from ULMFiT 4.1, BPTT 70."""

    vocabulary: int
    layers: int = 3
    width: int = 400  # of the embeddings, and of the last layer
    hidden: int = 1150  # cells of the other layers
    context: int = 70  # tokens that gradients flow back through
    dropout: float = 1.0  # factor on all five dropouts
    embedding_dropout: float = 0.05
    input_dropout: float = 0.4
    weight_dropout: float = 0.5
    hidden_dropout: float = 0.3
    output_dropout: float = 0.4
    init_range: float = 0.1  # embeddings start uniform in ± this
    lively: bool = False  # whether embeddings are read at a fixed size, which gates react to from the start
    init_std: float = 0.02  # for what is put on top, such as a task's head; the trunk does not use it

    def check(self) -> None:
        check_range("model", self, f"at least 1 and at most {MOST_LAYERS:,}", "layers")
        check_range("model", self, f"at least 1 and at most {MOST_WIDE:,}", "width", "hidden", "context")
        refuse_if(
            not 0.0 <= self.dropout < math.inf,
            f"training.dropout must be at least 0, not {self.dropout}: it multiplies all five dropouts",
        )
        check_range("model", self, "at least 0 and below 1", *DROPOUTS)
        check_range("model", self, "above 0 and at most 10", "init_range", "init_std")
        for name in DROPOUTS:
            base = getattr(self, name)
            refuse_if(
                self.dropout * base >= 1.0,
                f"training.dropout={self.dropout} times model.{name}={base} is {self.dropout * base:g}: everything "
                "would be dropped; lower one of them",
            )

    @property
    def head_dropout(self) -> float:
        return self.dropout * self.output_dropout

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """The widths of the embeddings and of each layer above."""
        return (self.width, *(cells for _, cells in self.widths()))

    def widths(self) -> list[tuple[int, int]]:
        """Each layer's input width, and its number of cells."""
        cells = [self.hidden] * (self.layers - 1) + [self.width]
        return list(zip([self.width, *cells], cells))

    def input_bounds(self) -> list[float]:
        """Each layer's input weights are drawn uniformly from ± this."""
        if not self.lively:
            return [cells**-0.5 for _, cells in self.widths()]
        read = [1.0] + [OF_STATES] * (self.layers - 1)
        return [1.0 / (OF_EVEN_DRAW * std * inputs**0.5) for std, (inputs, _) in zip(read, self.widths())]

    def describe(self) -> str:
        cells = f"{self.hidden} cells, the last {self.width}" if self.layers > 1 else f"{self.width} cells"
        return f"{self.layers} LSTM layers of {cells}, embeddings of {self.width}, {self.context} steps back"

    def parameters(self) -> int:
        layers = sum(4 * cells * (inputs + cells + 2) for inputs, cells in self.widths())
        return self.vocabulary * self.width + layers

    def activations(self, tokens: int) -> int:
        """The states and what the kernel keeps, plus the dropped matrices and masks, whose size is independent of the
        number of tokens."""
        a_token = sum(inputs + KEPT_PER_CELL * cells for inputs, cells in self.widths()) + 2 * self.width
        matrices = sum(8 * cells * cells for _, cells in self.widths()) if self.dropout * self.weight_dropout else 0
        return tokens * a_token + matrices

    def carried(self, rows: int) -> int:
        """h and c of every layer."""
        return rows * sum(2 * cells for _, cells in self.widths())


class LstmLayer(nn.Module):
    """One layer, with the weights and gate order (input, forget, cell, output) of `torch.nn.LSTM`."""

    def __init__(self, inputs: int, cells: int, weight_dropout: float, input_bound: float) -> None:
        super().__init__()
        self.cells, self.weight_dropout = cells, weight_dropout
        self.weight_ih = nn.Parameter(torch.empty(4 * cells, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * cells, cells))
        self.bias_ih = nn.Parameter(torch.empty(4 * cells))
        self.bias_hh = nn.Parameter(torch.empty(4 * cells))
        for parameter in self.parameters():
            bound = input_bound if parameter is self.weight_ih else cells**-0.5
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x_ND: Tensor, order: ReadingOrder, state: LayerState) -> tuple[Tensor, LayerState]:
        """The states h of all tokens, and each row's last h and c."""
        weight_hh = dropout(self.weight_hh, self.weight_dropout, self.training)  # of single entries
        if not len(x_ND):
            return x_ND @ self.weight_ih[: self.cells].t(), state  # an empty result that can be differentiated
        weights = [self.weight_ih, weight_hh, self.bias_ih, self.bias_hh]
        y, h, c = lstm_layer(x_ND, order, order.begin(state[0]), order.begin(state[1]), weights)
        return y, (order.end(state[0], h), order.end(state[1], c))


class AwdLstm(TokenTrunk):
    """Token embeddings and a stack of LSTM layers."""

    def __init__(self, config: AwdLstmConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.draw(self.tokens.weight)
        weight_dropout = config.dropout * config.weight_dropout
        self.layers = nn.ModuleList(
            LstmLayer(inputs, cells, weight_dropout, bound)
            for (inputs, cells), bound in zip(config.widths(), config.input_bounds())
        )

    def forward(self, batch: Batch, state: State | None = None, keep_layers: bool = False) -> Hidden:
        """`layers`, on request: the input of the first layer and each layer's states, before any dropout on them. The
        inner ones have width `hidden`, not `width`. A state of one row serves all rows."""
        assert batch.attend_BTT is None, "an LSTM reads one token after the other"
        config, rows = self.config, len(batch.ids_BT)
        real_BT = torch.ones_like(batch.ids_BT, dtype=torch.bool) if batch.mask_BT is None else batch.mask_BT
        order = reading_order(real_BT)
        given = self.new_state(rows) if state is None else state
        before = [(h.expand(rows, -1), c.expand(rows, -1)) for h, c in given]
        ids_N = order.gather(batch.ids_BT)
        p = config.dropout * config.embedding_dropout
        x = embed_dropped(self.tokens.weight, ids_N, p, self.training, level=config.lively)
        x = self._locked(x, order, config.input_dropout)
        layers = [order.scatter(x)] if keep_layers else []
        after: list[LayerState] = []
        for number, layer in enumerate(self.layers):
            if number:
                x = self._locked(x, order, config.hidden_dropout)
            x, last = layer(x, order, before[number])
            after.append(last)
            if keep_layers:
                layers.append(order.scatter(x))
        top = layers[-1] if keep_layers else order.scatter(x)
        return Hidden(top, tuple(layers), None if state is None else tuple(after))

    def _locked(self, x_ND: Tensor, order: ReadingOrder, base: float) -> Tensor:
        """One mask for all time steps of a sequence."""
        p = self.config.dropout * base
        return order.times(x_ND, kept((order.shape[0], x_ND.shape[1]), p, x_ND)) if self.training and p > 0.0 else x_ND

    def output_dropout(self, top_BTD: Tensor) -> Tensor:
        """The fifth dropout, for predicting tokens from `Hidden.top`; see the module's docstring."""
        return locked_dropout(top_BTD, self.config.dropout * self.config.output_dropout, self.training)

    def new_state(self, rows: int) -> State:
        """Zeros: nothing has been read."""
        like = self.tokens.weight
        return tuple((like.new_zeros(rows, cells), like.new_zeros(rows, cells)) for _, cells in self.config.widths())

    def room(self, state: State) -> None:
        """Any number of tokens can follow."""

    def pick(self, state: State, rows: Tensor) -> State:
        """The state of these rows, in this order."""
        return tuple((h[rows], c[rows]) for h, c in state)

    def layer_names(self) -> list[tuple[str, ...]]:
        return [(f"layers.{n}.",) for n in range(len(self.layers))]

    def draw(self, weights: Tensor) -> None:
        nn.init.uniform_(weights, -self.config.init_range, self.config.init_range)
