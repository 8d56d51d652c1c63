"""What the training benchmarks share: both sides of a comparison, the options of a pre-training benchmark, its table.

Ours goes through the product's own loop. The plain loop is what a tutorial shows: a `transformers` model that is given
its labels and returns its loss, `torch.optim.AdamW` as it comes, `clip_grad_norm_`. GPT-2 is spared the key/value cache
that the library would otherwise fill while training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, GPT2Config

from bench.common import Side, Turns, alternate, arguments_for, medians, ratio_cell, repeat, table
from foretext.nn.transformer.block import Attention
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Examples, ListedExamples, Objective
from foretext.runs.machine import tune_allocator
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import MICRO_TOKENS, Budget
from foretext.systems import system_named
from foretext.systems.base import ObjectiveParts, TrainingConfig, TrunkParts
from foretext.systems.gpt import SIZES
from foretext.text.tokenizers.wordpiece import SPECIALS, WordPiece, wordpiece_from_pieces
from foretext.train.loop import Job, Loop, Stage
from foretext.train.optim import make_optimizer

BATCHES = 16  # different ones, seen again and again
RATE = 3e-4
ENDLESS = Budget(steps=1_000_000)


@dataclass(frozen=True)
class Shape:
    layers: int = 4
    width: int = 256
    heads: int = 4
    context: int = 256
    vocabulary: int = 8000

    def __str__(self) -> str:
        size = f"{self.layers}×{self.width}, {self.heads} heads"
        return f"{size}, context {self.context}, vocabulary {self.vocabulary:,}"

    def ours(self, system: str, dropout: float) -> Any:
        """The system's own configuration, otherwise as its `tiny` has it."""
        tiny = system_named(system).sizes["tiny"].model
        return dataclasses.replace(tiny, **dataclasses.asdict(self), dropout=dropout)

    def gpt2(self, dropout: float, in_attention: bool = True, attention: str = "sdpa") -> GPT2Config:
        return GPT2Config(
            vocab_size=self.vocabulary,
            n_positions=self.context,
            n_embd=self.width,
            n_layer=self.layers,
            n_head=self.heads,
            embd_pdrop=dropout,
            resid_pdrop=dropout,
            attn_pdrop=dropout if in_attention else 0.0,
            bos_token_id=self.vocabulary - 1,
            eos_token_id=self.vocabulary - 1,
            use_cache=False,
            attn_implementation=attention,  # type: ignore[call-arg]  # taken by the class under it
        )

    def bert(self, dropout: float, in_attention: bool = True, attention: str = "sdpa") -> BertConfig:
        return BertConfig(
            vocab_size=self.vocabulary,
            max_position_embeddings=self.context,
            hidden_size=self.width,
            intermediate_size=4 * self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout if in_attention else 0.0,
            attn_implementation=attention,  # type: ignore[call-arg]  # taken by the class under it
        )


SECOND = Shape(6, 384, 6, 256, 16000)


# -- the two sides ---------------------------------------------------------------------------------------------------


def made_up_vocabulary(size: int) -> WordPiece:
    """Of so many pieces, the specials first: random ids need no text."""
    return wordpiece_from_pieces([str(number) for number in range(size - len(SPECIALS))], lower=True)


def build_ours(
    system: str,
    shape: Shape,
    training: TrainingConfig,
    stock: Examples,
    budget: Budget,
    dropout_in_attention: bool = True,
) -> Loop:
    """Trunk, objective, optimiser and batches as `foretext pretrain` puts them together; nothing is written."""
    found = system_named(system)
    model = shape.ours(system, training.dropout)
    torch.manual_seed(0)
    trunk = found.build_trunk(TrunkParts(model))
    if not dropout_in_attention:
        assert isinstance(trunk.blocks, nn.ModuleList)
        for block in trunk.blocks:
            assert isinstance(block.attention, Attention) and block.attention.p == training.dropout
            block.attention.p = 0.0
    parts = ObjectiveParts(model, found.sizes["paper"].objective, made_up_vocabulary(shape.vocabulary))
    objective = found.build_objective(parts)
    return product_loop(trunk, objective, stock, training, shape.context, budget)


def product_loop(
    trunk: Trunk,
    objective: Objective,
    stock: Examples,
    training: TrainingConfig,
    context: int,
    budget: Budget = ENDLESS,
) -> Loop:
    """The loop of the product over `stock`, in micro-batches as it would choose them; nothing is written."""
    micro = training.micro_batch or max(1, min(training.batch_size, MICRO_TOKENS // context))
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=(Stage(stock.example, objective.order(stock, training.batch_size, 0), micro),),
        optimizer=make_optimizer(training, trunk, objective),
        config=training,
        budget=budget,
        seed=0,
        device=torch.device("cpu"),
    )
    loop = Loop(job, None, Reporter(), StopRequest())
    loop.model.train()
    return loop


class PlainLoop:
    """An ordinary PyTorch training loop."""

    def __init__(self, build: Callable[[Any], nn.Module], config: GPT2Config | BertConfig, rate: float = 1e-3) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = build(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)

    def step(self, inputs: dict[str, Tensor]) -> None:
        """`inputs` by the names that the library's model has for them, labels among them."""
        self.optimizer.zero_grad()
        self.model(**inputs).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


# -- a pre-training benchmark ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Specification:
    """What both sides train, and on batches of which size."""

    shape: Shape
    batch: int
    dropout: float = 0.0
    in_attention: bool = True
    attention: str = "sdpa"  # of the plain model

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch * self.shape.context

    @property
    def rows(self) -> int:
        """Different ones."""
        return BATCHES * self.batch


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    specifications: tuple[Specification, ...]
    rounds: int
    steps: int  # a turn
    quick: bool


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    name: str
    specification: Specification
    target: float | None


def asked_for(doc: str | None, other: str) -> Asked:
    """Reads the command line; `other` names the plain model."""
    parser = arguments_for(doc)
    for name, value in Shape().__dict__.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--batch", type=int, default=SIZES["tiny"].pretraining.batch_size)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="steps a turn")
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"], help=f"of the plain {other}")
    parser.add_argument("--one-shape", action="store_true", help=f"leave out the second shape, {SECOND}")
    given = parser.parse_args()
    shapes = [Shape(given.layers, given.width, given.heads, given.context, given.vocabulary), SECOND]
    rounds, steps, batch = given.rounds, given.steps, given.batch
    if given.quick:
        shapes, rounds, steps, batch = [Shape(1, 64, 2, 64, 500)], 2, 2, 2
    chosen = shapes[:1] if given.one_shape else shapes
    specifications = tuple(Specification(shape, batch, attention=given.attention) for shape in chosen)
    return Asked(specifications, rounds, steps, given.quick)


def run_ours(system: str, spec: Specification, examples: Sequence[Any], turns: Turns) -> None:
    """Our side: asked for n, it makes n steps of the product's loop."""
    tune_allocator()
    training = TrainingConfig(optimizer="adamw", rate=RATE, batch_size=spec.batch, dropout=spec.dropout)
    budget = Budget(steps=1_000_000)
    loop = build_ours(system, spec.shape, training, ListedExamples(examples), budget, spec.in_attention)
    repeat(turns, loop._step)


def compare(ours: Side, plain: Side, other: str, lines: Sequence[Line], asked: Asked, remark: str) -> None:
    """Prints the tokens/s of both sides, line by line; `lines` are of one shape and batch."""
    rows = []
    for line in lines:
        spec = line.specification
        found = medians(alternate({"ours": (ours, spec), "plain": (plain, spec)}, asked.rounds, asked.steps))
        rates = {side: asked.steps * spec.tokens / seconds for side, seconds in found.items()}
        ratio, verdict = ratio_cell(found["plain"] / found["ours"], line.target or 0.0)
        cells = [line.name, f"{rates['ours']:,.0f}", f"{rates['plain']:,.0f}", ratio]
        rows.append([*cells, "–" if line.target is None else verdict])
    spec = lines[0].specification
    print(f"{spec.shape}, batch {spec.batch}; {remark}; median of {asked.rounds} turns of {asked.steps} steps\n")
    print(table(["tokens/s", "ours", f"plain {other}", "ratio", "target"], rows) + "\n", flush=True)
