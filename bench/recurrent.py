"""LSTM training tokens/s: our AWD-LSTM and ELMo's biLM against a plain `torch.nn.LSTM` loop of the same shape.

    python -m bench.recurrent [--layers 3 --width 256 --hidden 640 --context 70 --vocabulary 8000 --batch 32]

Ours is a step of the product's loop with ULMFiT's objective: contiguous streams with the state carried over, the tied
softmax that never holds all logits, clipping, AdamW. The plain loop is what a tutorial shows: one `nn.LSTM` a layer
(the last is narrower), logits by the tied table, `F.cross_entropy`, `clip_grad_norm_`, `torch.optim.AdamW`; it carries
its state too. Both see the same random ids (no data is needed). Three lines: without dropout; with AWD-LSTM's five,
which the plain loop has as the released code does (Bernoulli masks, the whole table masked, the hidden matrix replaced
before each call); and rows of unequal length, as a classifier reads, which the plain loop packs. Pieces have one length
and the penalties AR and TAR are in neither. A table of its own: ELMo's biLM (`bench/bilm.py`). Target: at least as
fast, 1.0.
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
from torch.nn.utils.rnn import pack_sequence

from bench import bilm
from bench.common import Turns, arguments_for, print_head, repeat
from bench.models import BATCHES, RATE, Asked, Line, compare, product_loop
from foretext.nn.recurrent.awd_lstm import AwdLstm, AwdLstmConfig
from foretext.objectives.base import ListedExamples
from foretext.objectives.stream import StreamConfig, StreamObjective
from foretext.runs.machine import tune_allocator
from foretext.systems.base import TrainingConfig
from foretext.train.loop import Loop

TARGET = 1.0
UNEQUAL = 0.25


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
    """What both sides train; `dropout` multiplies the paper's five. `shortest`: tokens of the shortest rows, as a part
    of the longest; others have lengths between."""

    shape: Shape
    batch: int
    dropout: float = 0.0
    shortest: float = 1.0

    @property
    def tokens(self) -> float:
        """Of a step, on the average."""
        return sum(len(window) - 1 for window in windows_of(self)) / BATCHES


def windows_of(spec: Specification) -> list[np.ndarray]:
    """Row i of a step goes on in the next: the first `BATCHES` are row 0."""
    draw = np.random.default_rng(0)
    least = max(1, round(spec.shortest * spec.shape.context))
    lengths = draw.integers(least, spec.shape.context, BATCHES * spec.batch, endpoint=True)
    return [draw.integers(0, spec.shape.vocabulary, length + 1) for length in lengths]


# -- ours ------------------------------------------------------------------------------------------------------------


def build_ours(spec: Specification) -> Loop:
    """The product's loop over random windows; nothing is written."""
    training = TrainingConfig(optimizer="adamw", rate=RATE, batch_size=spec.batch, dropout=spec.dropout)
    stock = ListedExamples(windows_of(spec))
    torch.manual_seed(0)
    model = spec.shape.config(spec.dropout)
    trunk = AwdLstm(model)
    objective = StreamObjective(model, StreamConfig(activation=0.0, temporal=0.0, length_spread=0.0, length_half=0.0))
    return product_loop(trunk, objective, stock, training, spec.shape.context)


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
                assert isinstance(lstm.weight_hh_l0, nn.Parameter)
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

    def packed(self, windows: Sequence[Tensor], state: list[Any]) -> tuple[Tensor, list[Any]]:
        """The same of rows of unequal length; without dropout."""
        ids, targets = (
            pack_sequence([window[part] for window in windows], False) for part in (slice(-1), slice(1, None))
        )
        x = ids._replace(data=self.tokens(ids.data))
        after = []
        for lstm, before in zip(self.lstms, state):
            x, last = lstm(x, before)
            after.append(tuple(part.detach() for part in last))
        return F.cross_entropy(x.data @ self.tokens.weight.t(), targets.data), after


def plain(spec: Specification, turns: Turns) -> None:
    windows = [torch.from_numpy(window) for window in windows_of(spec)]
    batches = cycle([windows[number::BATCHES] for number in range(BATCHES)])  # row i goes on where it ended
    torch.manual_seed(0)
    model = Plain(spec.shape.config(spec.dropout)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    state: list[Any] = [None] * spec.shape.layers

    def step() -> None:
        nonlocal state
        rows = next(batches)
        optimizer.zero_grad()
        if spec.shortest < 1:
            loss, state = model.packed(rows, state)
        else:
            ids = torch.stack(rows)
            loss, state = model(ids[:, :-1], ids[:, 1:], state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    repeat(turns, step)


# -- the table -------------------------------------------------------------------------------------------------------


def lines_of(spec: Specification) -> list[Line]:
    pairs = (
        ("without dropout", spec),
        ("all five dropouts", replace(spec, dropout=1.0)),
        ("rows of unequal length", replace(spec, shortest=UNEQUAL)),
    )
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
    spec, both = Specification(shape, given.batch), bilm.BilmSpecification(bilm.BilmShape(), given.batch)
    if given.quick:
        asked, spec = Asked((), 2, 2, True), Specification(Shape(2, 32, 48, 16, 500), 4)
        both = bilm.BilmSpecification(bilm.BilmShape(2, 24, 16, 16, 500), 4)
    print_head("Recurrent training", ["torch"], asked.quick)
    compare(ours, plain, "LSTM", lines_of(spec), asked, "state carried over")
    line = Line("ELMo's biLM", both, TARGET)  # type: ignore[arg-type]
    compare(bilm.ours, bilm.plain, "LSTM", [line], asked, "state carried over, both directions")


if __name__ == "__main__":
    main()
