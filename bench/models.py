"""The two sides of the training benchmarks: ours through the product's own loop, and a plain `transformers` GPT-2.

The plain loop is what a tutorial shows: `GPT2LMHeadModel` with `labels=input_ids`, `torch.optim.AdamW` as it comes,
`clip_grad_norm_`. It is spared the key/value cache that the library would otherwise fill while training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from foretext.nn.transformer import Transformer, TransformerConfig
from foretext.objectives.causal import CausalObjective
from foretext.systems.base import TrainingConfig
from foretext.systems.gpt import SIZES
from foretext.text.order import Order
from foretext.train.budget import Budget
from foretext.train.loop import Job, Loop
from foretext.train.pretrain import make_optimizer
from foretext.train.pretrain_request import MICRO_TOKENS
from foretext.train.report import Silent
from foretext.train.signals import NeverStop


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

    def ours(self, dropout: float) -> TransformerConfig:
        return dataclasses.replace(SIZES["tiny"].model, **dataclasses.asdict(self), dropout=dropout)

    def theirs(self, dropout: float, in_attention: bool = True, attention: str = "sdpa") -> GPT2Config:
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
            attn_implementation=attention,
        )


Window = Callable[[int, int], np.ndarray]  # (epoch, index) → context + 1 ids


def build_ours(
    shape: Shape,
    training: TrainingConfig,
    window: Window,
    windows: int,
    budget: Budget,
    dropout_in_attention: bool = True,
) -> Loop:
    """Trunk, objective, optimiser and batches as `foretext pretrain` puts them together; nothing is written."""
    torch.manual_seed(0)
    trunk = Transformer(shape.ours(training.dropout))
    if not dropout_in_attention:
        for block in trunk.blocks:
            assert block.attention.p == training.dropout
            block.attention.p = 0.0
    objective = CausalObjective()
    job = Job(
        trunk=trunk,
        objective=objective,
        example=window,
        order=Order(windows, training.batch_size, 0),
        optimizer=make_optimizer(training, trunk, objective),
        config=training,
        budget=budget,
        seed=0,
        micro_batch=training.micro_batch or max(1, min(training.batch_size, MICRO_TOKENS // shape.context)),
        device=torch.device("cpu"),
        evaluate=dict,
    )
    loop = Loop(job, None, Silent(), NeverStop())
    loop.model.train()
    return loop


class PlainLoop:
    """An ordinary PyTorch training loop."""

    def __init__(self, config: GPT2Config, rate: float = 1e-3) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = GPT2LMHeadModel(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)

    def step(self, ids: Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
