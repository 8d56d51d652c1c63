"""The plan that is shown before training: how many tokens and steps, how long, how much memory and disk."""

from __future__ import annotations

import dataclasses
import time

import torch

from foretext.errors import EXIT_MACHINE, UserError
from foretext.nn.loss import CHUNK_ELEMENTS, LEAST_ROWS
from foretext.nn.model_config import ModelConfig
from foretext.train.loop import Job, Loop
from foretext.train.machine import available_memory, check_space, clock, size_text
from foretext.train.rundir import RunDirectory

_HEADER = 256  # bytes, at most, that a tensor takes beside its numbers: its name and shape, and AdamW's count of steps


MANY_TIMES = 4
STATES = 16  # bytes a weight: itself, its gradient, two of the optimiser


def memory_needed(model: ModelConfig, micro: int) -> int:
    """Bytes: weights, gradients and optimiser, and the activations of one micro-batch (an estimate)."""
    tokens = micro * model.context
    states = STATES * model.parameters()
    logits = model.vocabulary * min(tokens, max(LEAST_ROWS, CHUNK_ELEMENTS // model.vocabulary))
    return states + 4 * (model.activations(tokens) + logits)


def check_memory(model: ModelConfig, micro: int) -> None:
    """UserError if training would not fit; from the configuration alone, so before any work is done. A vocabulary that
    is not known yet counts as one piece, so that nothing is refused that might fit."""
    known = dataclasses.replace(model, vocabulary=model.vocabulary or 1)
    needed, states, there = memory_needed(known, micro), STATES * known.parameters(), available_memory()
    if there is None or needed <= there:
        return
    if states > there:
        raise UserError(
            f"the weights alone, with gradients and optimiser, need about {size_text(states)} of memory and "
            f"{size_text(there)} are free; make the model smaller: --size, --set model.width=… or model.layers=…",
            code=EXIT_MACHINE,
        )
    raise UserError(
        f"training needs about {size_text(needed)} of memory and {size_text(there)} are free; "
        f"use a smaller --size, or --set training.micro_batch={max(1, micro // 2)}",
        code=EXIT_MACHINE,
    )


def disk_needed(job: Job) -> int:
    """Bytes that checkpoints take at their most, which is while saving: the old one stands until the new one is whole.

    A checkpoint has the weights, once more if the best ones are kept beside those to go on with, and the optimiser's
    state: two tensors a parameter with AdamW, one where Muon learns it.
    """
    checkpoint = 0
    for name, parameter in job.optimizer.parameters.items():
        tensors = 1 + (job.keep_best is not None) + (1 if name in job.optimizer.muon else 2)
        checkpoint += tensors * (parameter.numel() * parameter.element_size() + _HEADER)
    return 2 * checkpoint


def check_disk(run: RunDirectory, job: Job) -> None:
    """UserError, before training, if the checkpoints would not fit. One that is there already is room well used."""
    there = run.sizes() if run.exists() else {}
    stored = sum(size for name, size in there.items() if name == "model.safetensors" or name.startswith("training/"))
    check_space(run.path, max(0, disk_needed(job) - stored))


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


def describe_plan(loop: Loop, speed: float, corpus: int, model: ModelConfig) -> list[tuple[str, str]]:
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
    return [
        ("model", f"{model.parameters():,} parameters: {model.describe()}"),
        ("text", f"{corpus:,} tokens; {_passes(steps * step_tokens / max(1, corpus), job.config.dropout)}"),
        (
            "budget",
            f"{budget}: about {steps:,} steps of {step_tokens:,} tokens at {speed:,.0f} tokens/s"
            + _warmup(job.config.warmup_steps, steps),
        ),
        ("time", f"about {clock(seconds)}"),
        ("memory", f"about {size_text(memory_needed(model, job.micro_batch))}"),
        ("disk", f"about {size_text(disk_needed(job))} while saving"),
        ("threads", f"{torch.get_num_threads()} on {job.device}"),
    ]


def _warmup(warmup_steps: int, steps: int) -> str:
    """What to know where the warm-up, which counts steps, is longer than the run."""
    if warmup_steps < steps:
        return ""
    return (
        f", all in the warm-up of {warmup_steps:,}: the rate never peaks; shorten it by --set training.warmup_steps=…"
    )


def _passes(times: float, dropout: float) -> str:
    """How often the text is read; a small model without dropout begins to learn it by heart after a few times."""
    text = f"the run sees {times:.2g} times as many"
    if times > MANY_TIMES and dropout == 0.0:
        text += ", so often that it may learn them by heart: less time, or --set training.dropout=0.1, or both"
    return text
