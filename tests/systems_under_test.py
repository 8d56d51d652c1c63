"""Minute configurations of every system, and minute runs, for tests that hold for all of them. A new system is one
line in `TINY`."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from foretext.nn.awd_lstm import AwdLstmConfig
from foretext.nn.encoder import EncoderConfig
from foretext.nn.transformer import TransformerConfig
from foretext.objectives.base import Objective, reads_on
from foretext.objectives.causal import CausalConfig
from foretext.objectives.masked import MaskedObjective
from foretext.objectives.spans import Span
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, System, TrainingConfig
from foretext.tasks.layout import TokenSequence
from foretext.tasks.supervised import Example, SupervisedTask
from foretext.text.byte_bpe import ByteBPE
from foretext.text.tokenizer import END
from foretext.train.budget import Budget
from foretext.train.loop import Loop
from foretext.train.pretrain_request import PretrainRequest
from foretext.train.saved import RunConfig, SavedModel
from foretext.train.signals import StopRequest

SHAPE = TransformerConfig(vocabulary=61, layers=2, width=32, heads=4, context=24, dropout=0.0)
MASKED = EncoderConfig(vocabulary=262, layers=2, width=32, heads=4, context=24, dropout=0.0)
TINY: dict[str, Any] = {
    "gpt": SHAPE,
    "gpt2": replace(SHAPE, norm="pre", scale_residuals=True),
    "bert": MASKED,
    "roberta": replace(MASKED, segments=1, first_position=2, pooler=False, epsilon=1e-5),
    "albert": replace(MASKED, embedding=16, shared=True, gelu="tanh"),
    "ulmfit": AwdLstmConfig(vocabulary=61, layers=2, width=32, hidden=32, context=24, dropout=0.0),
}
assert TINY.keys() == SYSTEMS.keys(), "every system is under test"
CAUSAL = [name for name in TINY if SYSTEMS[name].causal]
ATTENTIVE = [name for name in TINY if hasattr(SYSTEMS[name].build_trunk(TINY[name]), "attention_weights")]
EVEN = [name for name in TINY if SYSTEMS[name].objective_config is CausalConfig]  # all steps have as many tokens
BOUNDED = [name for name in TINY if not reads_on(SYSTEMS[name].build_trunk(TINY[name]))]  # by a context
LM_WEIGHT = {name: 0.5 if name in CAUSAL else 0.0 for name in TINY}  # only those have that loss beside a task's
LM_WEIGHTS = [*LM_WEIGHT.items(), *((name, 0.0) for name in CAUSAL)]
PLAIN = TrainingConfig(optimizer="adamw", rate=1e-2, warmup=0.1, batch_size=4, dropout=0.0, save_seconds=1e9)

AT_ONCE = ("transfer.thaw=all", "transfer.rate_decay=1.0")  # everything learns from the start, at one rate

KINDS = ("classification", "entailment", "similarity", "choice", "regression")


def trunk_of(system: str, **changes: object) -> nn.Module:
    """A trunk with weights large enough that every part of it matters to the result."""
    trunk = SYSTEMS[system].build_trunk(replace(TINY[system], **changes))
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return trunk


def windows(lengths: Sequence[int], vocabulary: int = SHAPE.vocabulary, seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, vocabulary, length) for length in lengths]


def objective_of(system: str) -> Objective:
    """What the system is pre-trained by in its paper, over bytes."""
    found = SYSTEMS[system]
    return found.build_objective(ObjectiveParts(TINY[system], found.sizes["paper"].objective, tokenizer_of(system)))


def unlabelled(system: str, lengths: Sequence[int], seed: int = 0) -> list[Any]:
    """Examples of pre-training: windows, stretches, or two spans and their label."""
    rows = windows(lengths, seed=seed)
    objective = objective_of(system)
    if not isinstance(objective, MaskedObjective):
        return list(rows)
    if objective.pairs == "none":
        return [Span((row,)) for row in rows]
    return [Span((row[: len(row) // 2], row[len(row) // 2 :]), number % 2) for number, row in enumerate(rows)]


def examples(kind: str, count: int, vocabulary: int = SHAPE.vocabulary, seed: int = 0) -> list[Example]:
    """Random transformed rows of unequal lengths; a choice has two to four alternatives."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        number = {"similarity": 2, "choice": draw.randint(2, 4)}.get(kind, 1)
        sequences = []
        for _ in range(number):
            length = draw.randint(3, 20)
            sequences.append(TokenSequence(tuple(draw.randrange(vocabulary) for _ in range(length)), length - 1))
        label = {"regression": draw.gauss(0, 1), "choice": draw.randrange(number)}.get(kind, draw.randrange(3))
        made.append(Example(tuple(sequences), label))
    return made


def task_of(kind: str, lm_weight: float = 0.5, p: float = 0.0, width: int = SHAPE.width) -> SupervisedTask:
    return SupervisedTask(kind, 3, width, lm_weight, p, init_std=0.2)


def gradients(*modules: nn.Module) -> dict[str, torch.Tensor]:
    whole = nn.ModuleList(modules)
    return {name: p.grad.clone() for name, p in whole.named_parameters() if p.grad is not None}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float = 1e-5) -> None:
    assert a.keys() == b.keys() and a
    for name in a:
        scale = max(1.0, float(b[name].abs().max()) if b[name].numel() else 1.0)
        torch.testing.assert_close(
            a[name], b[name], atol=tolerance * scale, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )


# -- whole runs ------------------------------------------------------------------------------------------------------

SMALL = ("tokenizer.size=300", "training.batch_size=4", "training.rate=0.003")
SMALL_SHAPE = {"layers": 2, "width": 32, "heads": 2, "hidden": 24, "context": 16}  # of which a system has what it has


def small(system: str) -> tuple[str, ...]:
    """Settings of a minute run."""
    own = {field.name for field in fields(SYSTEMS[system].config)}
    return (*(f"model.{name}={value}" for name, value in SMALL_SHAPE.items() if name in own), *SMALL)


def write_text(folder: Path, documents: int = 60, seed: int = 1) -> Path:
    """A text with something to learn: sentences of a few words in a fixed order of kinds."""
    draw = random.Random(seed)
    who, does, what = ("cat", "dog", "old man", "child"), ("sees", "likes", "eats"), ("fish", "the sun", "a red ball")
    lines = []
    for _ in range(documents):
        sentences = [f"The {draw.choice(who)} {draw.choice(does)} {draw.choice(what)}." for _ in range(3)]
        lines.append(" ".join(sentences))
    path = folder / "text.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def pretrain_request(
    system: str, text: Path, out: Path, steps: int = 12, *sets: str, **changes: object
) -> PretrainRequest:
    request = PretrainRequest((str(text),), out, system, "tiny", Budget(steps=steps), sets=small(system) + sets)
    return replace(request, **changes)


@contextlib.contextmanager
def stopping_after(steps: int, code: int = 130) -> Iterator[StopRequest]:
    """A request to stop that comes during the given step, as a signal's would."""
    real, done = Loop._step, 0
    stop = SimpleNamespace(requested=None)

    def counted(loop: Loop) -> dict[str, float]:
        nonlocal done
        done += 1
        if done >= steps:
            stop.requested = code
        return real(loop)

    Loop._step = counted  # type: ignore[method-assign]
    try:
        yield stop
    finally:
        Loop._step = real  # type: ignore[method-assign]


def byte_tokenizer() -> ByteBPE:
    """Bytes only, and END."""
    return ByteBPE(bytes(range(256)), [], {END: 256})


def tokenizer_of(system: str) -> ByteBPE:
    """The same with the specials that the system's input has."""
    if SYSTEMS[system].causal:
        return byte_tokenizer()
    return byte_tokenizer().with_specials(SYSTEMS[system].vocabulary)


class Evil:
    """Pickled, it makes the folder `mark` when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


def shaken_model(system: str, by: float) -> SavedModel:
    """The same with weights so large that what it reads matters."""
    found = base_model(system)
    with torch.no_grad():
        for parameter in found.trunk.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return found


def base_model(system: str = "gpt", seed: int = 0) -> SavedModel:
    """An untrained base over bytes, as if it had been pre-trained."""
    tokenizer = tokenizer_of(system)
    shape = replace(TINY[system], vocabulary=tokenizer.size, context=48)
    torch.manual_seed(seed)
    built: System = SYSTEMS[system]
    info = RunConfig("pretrain", system, "tiny", tokenizer=tokenizer.fingerprint())
    return SavedModel(None, {"run": info, "model": shape}, built, tokenizer, built.build_trunk(shape))
