"""An LSTM layer over tokens in a `ReadingOrder`: with torch's fused kernel where that is fastest, otherwise step by
step.

The kernel has two forms. A plain [T, B, D] block is for rows of equal length (on a CPU not with a projected state, for
which torch falls back to a slower kernel, with a warning). Other rows are packed. On a CPU the backward pass of the
packed form computes U's gradient with one product per step, which takes several times as long as a single product, so
in training such rows use `lstm_steps`. (Measured in milliseconds for 64 rows of up to 40 steps, 175 → 128, steps
against kernel: unequal rows 21.5 and 27.8 with a backward pass, 8.6 and 6.9 without; equal rows 33.4 and 20.2 with,
12.3 and 6.9 without.) The kernel has no clipping, so a layer with clipping uses the steps too.

The steps, with a hand-written backward pass:

    i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of a_t,   a_t = W x_t + b + U h_{t−1}
    c_t = clip(f ∘ c_{t−1} + i ∘ g),   h_t = clip(P (o ∘ tanh c_t))

W x of all steps is one product, which the caller computes; the gradients of U and P are one product each. δ is the
gradient with respect to what follows it; clipping passes gradients only strictly inside its bounds:

    δm = Pᵀ δh,   δo = δm ∘ tanh c,   δc += δm ∘ o ∘ (1 − tanh² c),   δi, δf, δg = δc ∘ g, δc ∘ c_{t−1}, δc ∘ i
    δa = (δi ∘ i(1−i), δf ∘ f(1−f), δg ∘ (1−g²), δo ∘ o(1−o)),   δh_{t−1} = Uᵀ δa,   δc_{t−1} = δc ∘ f

`BiLstm` has both directions side by side; upper layers read the lower ones' output. The task models use it, and CoVe's
encoder uses its layers. It computes only real words, so padding on either side changes nothing, not even dropout masks.
Dropout is between the layers. (CoVe's encoder also applies dropout to the first input and the last output, and returns
the last states: `cove.py`.)

`ReadingOrder` is the order in which a recurrent layer reads a padded batch: step by step, real tokens only, from either
end.

A fused LSTM kernel would process padding: after a row it would change the final state, before a row the initial one. So
padding is removed. The longest sequences come first, so the ones still active at a step are the first `sizes[t]`. The
tokens of all steps lie end to end as one [N, D] matrix (torch calls this packed; if all rows have equal length, it is a
plain [T, B, D] block for the faster kernel). Padding on any side is not in it and cannot change anything, and what a
layer does to all tokens alike is one product.

`ProjectedLstm` is an LSTM layer with a projected state, and with memory and state clipped (Sak et al., 2014, as used in
ELMo).

    i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of W x_t + U h_{t−1} + b
    c_t = clip(f ∘ c_{t−1} + i ∘ g, ±cell_clip),   h_t = clip(P (o ∘ tanh c_t), ±state_clip)

It reads tokens in a `ReadingOrder`: sequences of unequal length, padded anywhere, from either end. torch's own kernel
has the projection but no clipping, and does not return the c_t that would show whether clipping was needed. So it is
used only without clipping (`lstm_layer`); with clipping the steps are computed one by one (`lstm_steps`).

If the state is as wide as the memory, there is no projection and, as in the released code, the state is not clipped.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from foretext.errors import check_range, refuse_if
from foretext.nn.fused import dropout


@dataclass(frozen=True)
class ReadingOrder:
    places_N: Tensor  # the flattened position in [B · T] of each token, in reading order
    sizes: tuple[int, ...]  # how many sequences have a token at each step; never increases
    rows_B: Tensor  # the batch's rows, longest first, empty ones last
    shape: tuple[int, int]  # B, T

    @property
    def kept(self) -> int:
        """Rows that contain tokens."""
        return self.sizes[0] if self.sizes else 0

    @property
    def even(self) -> bool:
        """Whether those rows all have the same length."""
        return not self.sizes or self.sizes[-1] == self.sizes[0]

    def gather(self, x_BTD: Tensor) -> Tensor:
        """The tokens in reading order: [N, D], or [N] from [B, T]."""
        return x_BTD.flatten(0, 1)[self.places_N]

    def scatter(self, x_ND: Tensor) -> Tensor:
        """Back to [B, T, D], with zeros at padding."""
        rows, columns = self.shape
        x_MD = x_ND.new_zeros(rows * columns, x_ND.shape[-1]).index_copy(0, self.places_N, x_ND)
        return x_MD.view(rows, columns, x_ND.shape[-1])

    def begin(self, state_BH: Tensor) -> Tensor:
        """The states of the rows that contain tokens, in the order of a step: [R, H]."""
        return state_BH.index_select(0, self.rows_B[: self.kept])

    def end(self, before_BH: Tensor, after_RH: Tensor) -> Tensor:
        """Each row's last state, in the batch's order; a row without tokens keeps its previous one."""
        return before_BH.index_copy(0, self.rows_B[: self.kept], after_RH)

    def times(self, x_ND: Tensor, factor_BD: Tensor | None) -> Tensor:
        """Each token times the factors of its row; None: unchanged."""
        return x_ND if factor_BD is None else x_ND * factor_BD[self.places_N // max(1, self.shape[1])]


def reading_orders(mask_BT: Tensor) -> tuple[ReadingOrder, ReadingOrder]:
    """From the first real token of each row to the last, and from the last to the first."""
    return reading_order(mask_BT), reading_order(mask_BT, backward=True)


def reading_order(mask_BT: Tensor, backward: bool = False) -> ReadingOrder:
    """`backward`: from the last real token of each row to the first."""
    rows, columns = mask_BT.shape
    if rows and columns and bool(mask_BT.all()):
        places_BT = torch.arange(rows * columns, device=mask_BT.device).view(rows, columns)
        places_BT = places_BT.flip(1) if backward else places_BT
        each = torch.arange(rows, device=mask_BT.device)
        return ReadingOrder(places_BT.t().flatten(), (rows,) * columns, each, (rows, columns))
    lengths_B = mask_BT.sum(dim=1)
    rows_B = torch.argsort(lengths_B, descending=True, stable=True)
    rank_B = torch.empty_like(rows_B)
    rank_B[rows_B] = torch.arange(rows, device=mask_BT.device)
    steps = torch.arange(int(lengths_B.max()) if rows else 0, device=mask_BT.device)
    sizes = tuple((lengths_B[None, :] > steps[:, None]).sum(dim=1).tolist())
    real_N = mask_BT.flatten().nonzero().squeeze(1)
    step_BT = mask_BT.cumsum(dim=1) - 1
    if backward:
        step_BT = lengths_B[:, None] - 1 - step_BT
    key_N = (step_BT * rows + rank_B[:, None]).flatten()[real_N]
    return ReadingOrder(real_N[torch.argsort(key_N)], sizes, rows_B, (rows, columns))


# -- layers ------------------------------------------------------------------------------------------------------------


KEPT_PER_CELL = 8  # numbers kept for the backward pass, also by torch's kernel: four gates, cell, state, a little more


def lstm_layer(
    x_ND: Tensor, order: ReadingOrder, first_h: Tensor, first_c: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """h of all tokens (at least one), and the last h and c of the rows that contain tokens, for which the initial h and
    c are given too. `weights` are torch's: W, U, both biases, and P if the state is projected."""
    # To the kernel, training means that a backward pass may follow; in evaluation mode one may follow too.
    learning, on_cpu = torch.is_grad_enabled(), x_ND.device.type == "cpu"
    block = order.even and not (on_cpu and len(weights) > 4)
    if learning and on_cpu and not block:
        weight_ih, weight_hh, bias_ih, bias_hh, *projection = weights
        inputs_N4C = F.linear(x_ND, weight_ih, bias_ih + bias_hh)
        return lstm_steps(inputs_N4C, weight_hh, projection[0] if projection else None, first_h, first_c, order.sizes)
    first = [first_h[None], first_c[None]]
    if block:
        x_SRD = x_ND.view(-1, order.kept, x_ND.shape[1])
        h_SRH, h, c = torch.lstm(x_SRD, first, weights, True, 1, 0.0, learning, False, False)
        return h_SRH.flatten(0, 1), h[0], c[0]
    h_NH, h, c = torch.lstm(x_ND, torch.tensor(order.sizes), first, weights, True, 1, 0.0, learning, False)
    return h_NH, h[0], c[0]


def lstm_steps(
    inputs_N4C: Tensor,
    recurrent: Tensor,
    project: Tensor | None,
    first_h: Tensor,
    first_c: Tensor,
    sizes: tuple[int, ...],
    bounds: tuple[float, float] = (0.0, 0.0),
) -> tuple[Tensor, Tensor, Tensor]:
    """h of all tokens in reading order, and the last h and c of each row; `sizes` rows have a token at each step.
    Without P the state is as wide as the memory. `bounds` clip the memory and the state; 0: no clipping."""
    return _Steps.apply(inputs_N4C, recurrent, project, first_h, first_c, sizes, bounds)


class _Steps(torch.autograd.Function):
    """All steps of a layer, given W x + b of all tokens."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_N4C: Tensor,
        recurrent: Tensor,
        project: Tensor | None,
        first_h: Tensor,
        first_c: Tensor,
        sizes: tuple[int, ...],
        bounds: tuple[float, float],
    ) -> tuple[Tensor, Tensor, Tensor]:
        cells, (cell_clip, state_clip) = first_c.shape[1], bounds
        h, c = first_h.clone(), first_c.clone()
        gates = torch.empty_like(inputs_N4C)
        h_ND, c_NC = (inputs_N4C.new_empty(len(gates), part.shape[1]) for part in (h, c))
        tanh_NC, read_NC = torch.empty_like(c_NC), torch.empty_like(c_NC)  # tanh c, and o ∘ tanh c
        recurrent_t, project_t = recurrent.t(), None if project is None else project.t()
        start = 0
        for size in sizes:
            now = slice(start, start + size)
            a, c_now, h_now, read = gates[now], c_NC[now], h_ND[now], read_NC[now]
            torch.addmm(inputs_N4C[now], h[:size], recurrent_t, out=a)
            a[:, : 2 * cells].sigmoid_()
            a[:, 2 * cells : 3 * cells].tanh_()
            a[:, 3 * cells :].sigmoid_()
            i, f, g, o = a.split(cells, dim=1)
            torch.mul(f, c[:size], out=c_now).addcmul_(i, g)
            if cell_clip:
                c_now.clamp_(-cell_clip, cell_clip)
            torch.mul(o, torch.tanh(c_now, out=tanh_NC[now]), out=read)
            if project_t is None:
                h_now.copy_(read)
            else:
                torch.mm(read, project_t, out=h_now)
                if state_clip:
                    h_now.clamp_(-state_clip, state_clip)
            h[:size], c[:size] = h_now, c_now
            start += size
        ctx.save_for_backward(recurrent, project, first_h, first_c, gates, h_ND, c_NC, tanh_NC, read_NC)
        ctx.sizes, ctx.bounds = sizes, bounds
        return h_ND, h, c

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_h_ND: Tensor, grad_last_h: Tensor, grad_last_c: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, project, first_h, first_c, gates, h_ND, c_NC, tanh_NC, read_NC = ctx.saved_tensors
        dh, dc, (cell_clip, state_clip) = grad_last_h.clone(), grad_last_c.clone(), ctx.bounds
        da_N4C, dh_ND = torch.empty_like(gates), torch.empty_like(h_ND)
        before_c, before_h = (_before(x, first, ctx.sizes) for x, first in ((c_NC, first_c), (h_ND, first_h)))
        end = len(gates)
        for size in reversed(ctx.sizes):
            now = slice(end - size, end)
            dh_now = torch.add(dh[:size], grad_h_ND[now], out=dh_ND[now])
            if state_clip:
                dh_now *= h_ND[now].abs() < state_clip
            dm = dh_now if project is None else dh_now @ project
            _gate_gradients(gates[now], tanh_NC[now], c_NC[now], before_c[now], dm, dc[:size], cell_clip, da_N4C[now])
            torch.mm(da_N4C[now], recurrent, out=dh[:size])
            end -= size
        d_recurrent = da_N4C.t() @ before_h if ctx.needs_input_grad[1] else None
        d_project = dh_ND.t() @ read_NC if ctx.needs_input_grad[2] else None
        return da_N4C, d_recurrent, d_project, dh, dc, None, None


def _gate_gradients(
    gates: Tensor, tanh_c: Tensor, c: Tensor, before_c: Tensor, dm: Tensor, dc: Tensor, cell_clip: float, da: Tensor
) -> None:
    """One step's δa, written to `da`; `dc` becomes that of the previous step."""
    i, f, g, o = gates.chunk(4, dim=1)
    d_i, d_f, d_g, d_o = da.chunk(4, dim=1)
    dc.addcmul_(torch.mul(dm, o), 1 - tanh_c * tanh_c)
    if cell_clip:
        dc *= c.abs() < cell_clip
    torch.mul(dm, tanh_c, out=d_o).mul_(o - o * o)
    torch.mul(dc, g, out=d_i).mul_(i - i * i)
    torch.mul(dc, before_c, out=d_f).mul_(f - f * f)
    torch.mul(dc, i, out=d_g).mul_(1 - g * g)
    dc *= f


def _before(x_ND: Tensor, first_BD: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """What each token's step started from: the value of the previous step, or the initial one."""
    following = (x_ND[start : start + size] for start, size in zip(accumulate(sizes, initial=0), sizes[1:]))
    return torch.cat([first_BD[: sizes[0]], *following])


# -- both directions ---------------------------------------------------------------------------------------------------


class BiLstmLayers(nn.Module):
    def __init__(self, inputs: int, cells: int, layers: int = 1, p: float = 0.0) -> None:
        """`cells` per direction; `p`: dropout."""
        super().__init__()
        self.p, self.width = p, 2 * cells
        widths = [inputs] + [2 * cells] * (layers - 1)
        self.layers = nn.ModuleList(nn.LSTM(width, cells, bidirectional=True) for width in widths)


def read_layer(layer: nn.Module, x_ND: Tensor, order: ReadingOrder) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A layer's output for tokens in reading order (at least one): their states, and the last h and c of both
    directions, [2, rows that contain tokens, cells]."""
    packed, last = layer(PackedSequence(x_ND, torch.tensor(order.sizes)))
    return packed.data, last


class BiLstm(BiLstmLayers):
    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """The top layer's states, forward beside backward, [B, T, 2 · cells]; zeros at padding."""
        order = reading_order(mask_BT)
        if not order.sizes:  # only empty rows
            return x_BTD.new_zeros(*mask_BT.shape, self.width)
        x_ND = order.gather(x_BTD)
        for number, layer in enumerate(self.layers):
            x_ND = dropout(x_ND, self.p, self.training and number > 0)
            x_ND, _ = read_layer(layer, x_ND, order)
        return order.scatter(x_ND)


def drop_words(x_BTD: Tensor, mask_BT: Tensor, p: float, training: bool) -> Tensor:
    """Dropout of real words only, so that padding cannot change what is drawn; zeros at padding, whatever was there."""
    return torch.zeros_like(x_BTD).masked_scatter(mask_BT[..., None], dropout(x_BTD[mask_BT], p, training))


# -- a projected state -------------------------------------------------------------------------------------------------


LstmState = tuple[Tensor, Tensor]  # h_BD, c_BC: in the order of the batch's rows


@dataclass(frozen=True)
class ProjectedLstmConfig:
    inputs: int
    cells: int
    width: int  # of the state; equal to the cells: not projected
    cell_clip: float = 3.0  # 0: no clipping
    state_clip: float = 3.0

    def check(self, where: str = "model") -> None:
        refuse_if(
            not 1 <= self.width <= self.cells,
            f"{where}: a state of {self.width} is wider than the {self.cells} cells that it is projected from; give a "
            "smaller one",
        )
        check_range(where, self, "at least 0", "cell_clip", "state_clip")

    @property
    def projects(self) -> bool:
        return self.width != self.cells

    @property
    def bounded(self) -> bool:
        return bool(self.cell_clip or (self.state_clip and self.projects))

    def parameters(self) -> int:
        return 4 * self.cells * (self.inputs + self.width + 1) + self.projects * self.cells * self.width

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
        # One matrix [W U] in the released code, so both are drawn with the sum of their widths.
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
        """The states of all tokens in reading order, and the new state. A row without tokens keeps its state."""
        state = self.new_state(order.shape[0]) if state is None else state
        if not order.sizes:  # an empty result that depends on the weights, so that such a batch has a gradient (0)
            return self.input(x_ND)[:, :1].expand(-1, self.config.width), state
        first_h, first_c = (order.begin(part) for part in state)
        weight, bias, recurrent = self.input.weight, self.input.bias, self.recurrent.weight
        project = [] if self.project is None else [self.project.weight]
        if self.config.bounded:
            bounds = self.config.cell_clip, self.config.state_clip if project else 0.0
            inputs_N4C, into = F.linear(x_ND, weight, bias), project[0] if project else None
            h_ND, h, c = lstm_steps(inputs_N4C, recurrent, into, first_h, first_c, order.sizes, bounds)
        else:
            weights = [weight, recurrent, bias, torch.zeros_like(bias), *project]
            h_ND, h, c = lstm_layer(x_ND, order, first_h, first_c, weights)
        return h_ND, (order.end(state[0], h), order.end(state[1], c))
