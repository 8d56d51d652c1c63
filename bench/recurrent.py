"""LSTM pre-training tokens/s: our AWD-LSTM against a plain `torch.nn.LSTM` loop of the same shape.

    python -m bench.recurrent [--layers 3 --width 256 --hidden 640 --context 70 --vocabulary 8000 --batch 32]

Ours is a step of the product's loop: contiguous streams with the state carried over, the tied softmax that never holds
all logits, clipping, AdamW. The plain loop is what a tutorial shows: one `nn.LSTM` a layer (the last is narrower),
logits by the tied table, `F.cross_entropy`, `clip_grad_norm_`, `torch.optim.AdamW`; it carries its state too. Both see
the same random ids (no data is needed). Two lines: without dropout, and with AWD-LSTM's five, which the plain loop has
as the released code does (Bernoulli masks, the whole table masked, the hidden matrix replaced before each call). The
penalties AR and TAR are in neither. Target: at least as fast, 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.common import Turns, arguments_for, print_head, repeat
from bench.models import BATCHES, RATE, Asked, Line, compare
from foretext.batch import Batch, LossSum, Outcome
from foretext.nn.awd_lstm import AwdLstm, AwdLstmConfig
from foretext.nn.loss import tied_softmax_loss
from foretext.objectives.base import Draw, Objective
from foretext.systems.base import TrainingConfig
from foretext.train.budget import Budget
from foretext.train.examples import ListedExamples
from foretext.train.loop import Job, Loop, Stage
from foretext.train.machine import tune_allocator
from foretext.train.pretrain_request import MICRO_TOKENS
from foretext.train.report import Silent
from foretext.train.signals import NeverStop
from foretext.train.start import make_optimizer

TARGET = 1.0


@dataclass(frozen=True)
class Shape:
    layers: int = 3
    width: int = 256
    hidden: int = 640
    context: int = 70
    vocabulary: int = 8000

    def __str__(self) -> str:
        size = f"{self.layers} layers of {self.hidden} cells, embeddings of {self.width}"
        return f"{size}, {self.context} steps, vocabulary {self.vocabulary:,}"

    def config(self, dropout: float) -> AwdLstmConfig:
        return AwdLstmConfig(self.vocabulary, self.layers, self.width, self.hidden, self.context, dropout)


@dataclass(frozen=True)
class Specification:
    """What both sides train; `dropout` multiplies the paper's five."""

    shape: Shape
    batch: int
    dropout: float = 0.0

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch * self.shape.context


def windows_of(spec: Specification) -> np.ndarray:
    size = (BATCHES * spec.batch, spec.shape.context + 1)
    return np.random.default_rng(0).integers(0, spec.shape.vocabulary, size)


# -- ours ------------------------------------------------------------------------------------------------------------


class Stream(Objective):
    """The next token, the state carried on and the output dropped out; nothing else."""

    carries_state = True

    def __init__(self) -> None:
        super().__init__()
        self.weights = {"lm": 1.0}

    def make(self, examples: Sequence[np.ndarray], draw: Draw | None = None) -> Batch:
        ids = torch.from_numpy(np.stack(examples))
        return Batch(ids[:, :-1], targets_BT=ids[:, 1:])

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"lm": float(batch.ids_BT.numel())}

    def forward(self, trunk: Any, batch: Batch, state: Any = None) -> Outcome:
        assert batch.targets_BT is not None
        hidden = trunk(batch, trunk.new_state(len(batch.ids_BT)) if state is None else state)
        top = trunk.output_dropout(hidden.top).flatten(0, 1)
        total = tied_softmax_loss(top, trunk.output_table(), batch.targets_BT.flatten())
        return Outcome({"lm": LossSum(total, float(len(top)))}, hidden.state)


def build_ours(spec: Specification) -> Loop:
    """The product's loop over random windows; nothing is written."""
    training = TrainingConfig(optimizer="adamw", rate=RATE, batch_size=spec.batch, dropout=spec.dropout)
    stock = ListedExamples(windows_of(spec))
    torch.manual_seed(0)
    trunk, objective = AwdLstm(spec.shape.config(spec.dropout)), Stream()
    micro = max(1, min(spec.batch, MICRO_TOKENS // spec.shape.context))
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=(Stage(stock.example, objective.order(stock, spec.batch, 0), micro),),
        optimizer=make_optimizer(training, trunk, objective),
        config=training,
        budget=Budget(steps=1_000_000),
        seed=0,
        device=torch.device("cpu"),
    )
    loop = Loop(job, None, Silent(), NeverStop())
    loop.model.train()
    return loop


def ours(spec: Specification, turns: Turns) -> None:
    tune_allocator()
    repeat(turns, build_ours(spec)._step)


# -- the plain loop --------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    """A language model of `nn.LSTM` layers, with AWD-LSTM's dropouts as they are usually written."""

    def __init__(self, config: AwdLstmConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        nn.init.uniform_(self.tokens.weight, -config.init_range, config.init_range)
        self.lstms = nn.ModuleList(nn.LSTM(inputs, cells, batch_first=True) for inputs, cells in config.widths())
        self.raw = nn.ParameterList()
        if config.dropout:  # the kernel's matrix is no parameter then, but made of one before each call
            for lstm in self.lstms:
                self.raw.append(nn.Parameter(lstm.weight_hh_l0.data))
                del lstm._parameters["weight_hh_l0"]

    def _locked(self, x_BTD: Tensor, base: float) -> Tensor:
        p = self.config.dropout * base
        if not p:
            return x_BTD
        return x_BTD * x_BTD.new_empty(x_BTD.shape[0], 1, x_BTD.shape[2]).bernoulli_(1 - p).div_(1 - p)

    def forward(self, ids: Tensor, targets: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        config, table = self.config, self.tokens.weight
        if config.dropout:
            p = config.dropout * config.embedding_dropout
            table = table * table.new_empty(len(table), 1).bernoulli_(1 - p).div_(1 - p)
        x = self._locked(F.embedding(ids, table), config.input_dropout)
        after = []
        for number, lstm in enumerate(self.lstms):
            if number:
                x = self._locked(x, config.hidden_dropout)
            if config.dropout:
                lstm.weight_hh_l0 = F.dropout(self.raw[number], config.dropout * config.weight_dropout)
            x, last = lstm(x, state[number])
            after.append(tuple(part.detach() for part in last))
        logits = self._locked(x, config.output_dropout) @ self.tokens.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), after


def plain(spec: Specification, turns: Turns) -> None:
    windows = torch.from_numpy(windows_of(spec))
    streams = windows.view(spec.batch, BATCHES, -1)  # row i goes on where it ended
    batches = cycle(range(BATCHES))
    torch.manual_seed(0)
    model = Plain(spec.shape.config(spec.dropout)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    state: list[Any] = [None] * spec.shape.layers

    def step() -> None:
        nonlocal state
        ids = streams[:, next(batches)]
        optimizer.zero_grad()
        loss, state = model(ids[:, :-1], ids[:, 1:], state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    repeat(turns, step)


# -- the table -------------------------------------------------------------------------------------------------------


def lines_of(spec: Specification) -> list[Line]:
    pairs = (("without dropout", spec), ("all five dropouts", replace(spec, dropout=1.0)))
    return [Line(name, one, TARGET) for name, one in pairs]  # type: ignore[arg-type]


def main() -> None:
    parser = arguments_for(__doc__)
    for name, value in Shape().__dict__.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="steps a turn")
    given = parser.parse_args()
    shape = Shape(given.layers, given.width, given.hidden, given.context, given.vocabulary)
    asked = Asked((), given.rounds, given.steps, given.quick)
    spec = Specification(shape, given.batch)
    if given.quick:
        asked, spec = Asked((), 2, 2, True), Specification(Shape(2, 32, 48, 16, 500), 4)
    print_head("Recurrent pre-training", ["torch"], asked.quick)
    compare(ours, plain, "LSTM", lines_of(spec), asked, "state carried over")


if __name__ == "__main__":
    main()
