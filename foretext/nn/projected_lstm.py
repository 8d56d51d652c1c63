"""A layer of LSTM whose state is projected, with the memory and the state held within bounds (Sak et al., 2014, as ELMo
uses it).

    i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of W x_t + U h_{t−1} + b
    c_t = clip(f ∘ c_{t−1} + i ∘ g, ±cell_clip),   h_t = clip(P (o ∘ tanh c_t), ±state_clip)

It reads tokens in a `ReadingOrder`: sequences of unequal length, padded anywhere, from either end. torch's own kernel
has the projection but no bounds, and does not show the c_t by which one could see afterwards that none was needed; so
it serves only where there are no bounds, on devices that have it as one kernel. Else the steps are taken here: W x of
all steps is one product, and so are the gradients of U and P, because the backward pass is written out. With δ for the
gradient of what follows it, and a bound letting through only what lies strictly within it:

    δm = Pᵀ δh,   δo = δm ∘ tanh c,   δc += δm ∘ o ∘ (1 − tanh² c),   δi, δf, δg = δc ∘ g, δc ∘ c_{t−1}, δc ∘ i
    δa = (δi ∘ i(1−i), δf ∘ f(1−f), δg ∘ (1−g²), δo ∘ o(1−o)),   δh_{t−1} = Uᵀ δa,   δc_{t−1} = δc ∘ f

Where the state is as wide as the memory there is no projection and, as in the released code, no bound on the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.errors import UserError
from foretext.nn.reading_order import ReadingOrder

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
        for name in ("cell_clip", "state_clip"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(f"{where}.{name} must be a bound, or 0 for none, not {getattr(self, name)}")

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
        return tokens * (8 * self.cells + 3 * self.width)


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
        first_h, first_c = (part[order.rows_B] for part in state)
        if not self.config.bounded and x_ND.device.type != "cpu":
            h_ND, last_h, last_c = self._fused(x_ND, order.sizes, first_h, first_c)
        else:
            project = None if self.project is None else self.project.weight
            bounds = self.config.cell_clip, self.config.state_clip if project is not None else 0.0
            inputs_N4C = F.linear(x_ND, self.input.weight, self.input.bias)
            h_ND, last_h, last_c = _Steps.apply(
                inputs_N4C, self.recurrent.weight, project, first_h, first_c, order.sizes, *bounds
            )
        back_B = torch.argsort(order.rows_B)
        return h_ND, (last_h[back_B], last_c[back_B])

    def _fused(self, x_ND: Tensor, sizes: tuple[int, ...], h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        read = sizes[0]
        weights = [self.input.weight, self.recurrent.weight, self.input.bias, torch.zeros_like(self.input.bias)]
        if self.project is not None:
            weights.append(self.project.weight)
        first = [h[None, :read].contiguous(), c[None, :read].contiguous()]
        h_ND, last_h, last_c = torch.lstm(x_ND, torch.tensor(sizes), first, weights, True, 1, 0.0, self.training, False)
        return h_ND, torch.cat([last_h[0], h[read:]]), torch.cat([last_c[0], c[read:]])


class _Steps(torch.autograd.Function):
    """All steps of a layer, from W x + b of all tokens."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_N4C: Tensor,
        recurrent: Tensor,
        project: Tensor | None,
        first_h: Tensor,
        first_c: Tensor,
        sizes: tuple[int, ...],
        cell_clip: float,
        state_clip: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        cells = first_c.shape[1]
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
        ctx.sizes, ctx.cell_clip, ctx.state_clip = sizes, cell_clip, state_clip
        return h_ND, h, c

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_h_ND: Tensor, grad_last_h: Tensor, grad_last_c: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, project, first_h, first_c, gates, h_ND, c_NC, tanh_NC, read_NC = ctx.saved_tensors
        dh, dc = grad_last_h.clone(), grad_last_c.clone()
        da_N4C, dh_ND = torch.empty_like(gates), torch.empty_like(h_ND)
        before_c, before_h = (_before(x, first, ctx.sizes) for x, first in ((c_NC, first_c), (h_ND, first_h)))
        end = len(gates)
        for size in reversed(ctx.sizes):
            now = slice(end - size, end)
            dh_now = torch.add(dh[:size], grad_h_ND[now], out=dh_ND[now])
            if ctx.state_clip:
                dh_now *= h_ND[now].abs() < ctx.state_clip
            dm = dh_now if project is None else dh_now @ project
            _gate_gradients(
                gates[now], tanh_NC[now], c_NC[now], before_c[now], dm, dc[:size], ctx.cell_clip, da_N4C[now]
            )
            torch.mm(da_N4C[now], recurrent, out=dh[:size])
            end -= size
        d_recurrent = da_N4C.t() @ before_h if ctx.needs_input_grad[1] else None
        d_project = dh_ND.t() @ read_NC if ctx.needs_input_grad[2] else None
        return da_N4C, d_recurrent, d_project, dh, dc, None, None, None


def _gate_gradients(
    gates: Tensor, tanh_c: Tensor, c: Tensor, before_c: Tensor, dm: Tensor, dc: Tensor, cell_clip: float, da: Tensor
) -> None:
    """One step's δa, written to `da`; `dc` becomes that of the step before."""
    i, f, g, o = gates.chunk(4, dim=1)
    d_i, d_f, d_g, d_o = da.chunk(4, dim=1)
    dc.addcmul_(torch.mul(dm, o), 1 - tanh_c * tanh_c)
    if cell_clip:
        dc *= c.abs() < cell_clip
    torch.mul(dm, tanh_c, out=d_o)
    torch.mul(dc, g, out=d_i)
    torch.mul(dc, before_c, out=d_f)
    torch.mul(dc, i, out=d_g)
    d_i.mul_(i - i * i)
    d_f.mul_(f - f * f)
    d_g.mul_(1 - g * g)
    d_o.mul_(o - o * o)
    dc *= f


def _before(x_ND: Tensor, first_BD: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """What each token's step went on from: the value of the step before, or the first."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return torch.cat([first_BD[: sizes[0]], *(x_ND[start : start + size] for start, size in zip(starts, sizes[1:]))])
