"""The plan that is shown before training: how many tokens and steps, how long, how much memory and disk."""

from __future__ import annotations

import time

import torch
from torch import nn

from foretext.errors import EXIT_MACHINE, UserError
from foretext.nn.transformer import TransformerConfig
from foretext.systems.base import TrainingConfig
from foretext.train.loop import Loop
from foretext.train.machine import available_memory, clock, size_text


def parameters_of(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def memory_needed(trunk: nn.Module, training: TrainingConfig, model: TransformerConfig, micro: int) -> int:
    """Bytes: weights, gradients and optimiser, and the activations of one micro-batch (an estimate)."""
    tokens = micro * model.context
    states = 16 * parameters_of(trunk)
    per_token = model.layers * (34 * model.width + 2 * model.heads * model.context * (2 if training.dropout else 0))
    logits = 3 * max(128 * model.vocabulary, 1 << 21)
    return states + 4 * (tokens * per_token + logits)


def check_memory(trunk: nn.Module, training: TrainingConfig, model: TransformerConfig, micro: int) -> None:
    needed, there = memory_needed(trunk, training, model, micro), available_memory()
    if there is not None and needed > there and next(trunk.parameters()).device.type == "cpu":
        raise UserError(
            f"training needs about {size_text(needed)} of memory and {size_text(there)} are free; "
            f"use a smaller --size, or --set training.micro_batch={max(1, micro // 2)}",
            code=EXIT_MACHINE,
        )


def probe_speed(loop: Loop) -> float:
    """Tokens a second, from two gradient computations that are thrown away."""
    best = float("inf")
    tokens = 0
    for _ in range(2):
        begun = time.perf_counter()
        _, parts, _ = loop.batches(0)
        loop.model.train()
        loop.gradients(0, parts[:1])
        best = min(best, time.perf_counter() - begun)
        tokens = parts[0].real_tokens
        loop.job.optimizer.zero_grad()
    loop.carried = {}
    return tokens / best


def describe_plan(loop: Loop, speed: float, corpus: int, model: TransformerConfig) -> list[tuple[str, str]]:
    job = loop.job
    budget = job.budget
    _, parts, _ = loop.batches(0)
    step_tokens = sum(part.real_tokens for part in parts)
    if budget.minutes is not None:
        seconds = 60.0 * budget.minutes
        steps = int(seconds * speed / step_tokens)
    else:
        steps = budget.steps if budget.steps is not None else -(-(budget.tokens or 0) // step_tokens)
        seconds = steps * step_tokens / speed
    parameters = parameters_of(job.trunk)
    return [
        ("model", f"{parameters:,} parameters: {model.layers} blocks, width {model.width}, context {model.context}"),
        ("text", f"{corpus:,} tokens; the run sees {steps * step_tokens / max(1, corpus):.2g} times as many"),
        ("budget", f"{budget}: about {steps:,} steps of {step_tokens:,} tokens at {speed:,.0f} tokens/s"),
        ("time", f"about {clock(seconds)}"),
        ("memory", f"about {size_text(memory_needed(job.trunk, job.config, model, job.micro_batch))}"),
        ("disk", f"about {size_text(2 * 16 * parameters)} while saving"),
        ("threads", f"{torch.get_num_threads()} on {job.device}"),
    ]
