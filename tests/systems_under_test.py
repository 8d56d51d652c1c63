"""Minute configurations of every system, and minute runs, for tests that hold for all of them. A new system is one
line in `TINY`, and one in `_OWN` where its size `tiny` has more that is large than `SMALL` makes small; what else
differs follows from what systems declare."""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tolerance import close, terms_of
from torch import nn

from foretext.nn.fused import keep_mask
from foretext.nn.recurrent.awd_lstm import AwdLstmConfig
from foretext.nn.recurrent.bilm import BilmTrunkConfig
from foretext.nn.recurrent.char_cnn import CharEncoderConfig
from foretext.nn.recurrent.cove import CoveConfig
from foretext.nn.recurrent.cvt import CvtConfig
from foretext.nn.relative.transformer_xl import TransformerXLConfig
from foretext.nn.relative.xlnet import XLNetConfig
from foretext.nn.static_vectors import StaticVectorsConfig
from foretext.nn.transformer.block import TransformerConfig
from foretext.nn.transformer.encoder import EncoderConfig
from foretext.nn.trunk import reads_on
from foretext.objectives.base import GrowingConfig, Objective
from foretext.objectives.bidirectional import BilmObjective
from foretext.objectives.causal import CausalConfig
from foretext.objectives.masked import MaskedObjective, MaskingConfig
from foretext.objectives.parallel_text import Pair
from foretext.objectives.permutation import PermutationObjective
from foretext.objectives.spans import Span
from foretext.objectives.stream import ForgettingConfig
from foretext.runs.model import SavedModel
from foretext.runs.report import StopRequest
from foretext.runs.run_config import Budget, ModelSections, RunConfig
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, System, TrainingConfig, TrunkParts
from foretext.tasks.heads.supervised import Example, SupervisedTask
from foretext.tasks.layouts.base import RunningTextLayout, TokenSequence
from foretext.text.order import Stretch
from foretext.text.tokenizers.base import END
from foretext.text.tokenizers.byte_bpe import ByteBPE
from foretext.text.tokenizers.word_tokenizer import WordTokenizer, word_tokenizer
from foretext.text.words.word_list import WordList
from foretext.train.loop import Loop
from foretext.train.pretraining.learner_loop import LearnerLoop
from foretext.train.pretraining.pretrain_request import PretrainRequest

SHAPE = TransformerConfig(vocabulary=61, layers=2, width=32, heads=4, context=24, dropout=0.0)
MODERN = replace(  # residual projections are drawn, or a new trunk would return its embeddings; the cap is low
    replace(SHAPE, norm="pre", norm_kind="rms", bias=False, positions="rotary", query_key_norm=True, soft_cap=1.5),
    activation="squared-relu",
    values="embeddings",
    embedding_norm=True,
    embedding_skips=True,
)
MASKED = EncoderConfig(vocabulary=262, layers=2, width=32, heads=4, context=24, dropout=0.0)
CHARACTERS = CharEncoderConfig(16, (1, 2), (8, 12), embedding=6, length=8, highways=1)
TINY: dict[str, Any] = {
    "word2vec": StaticVectorsConfig(vocabulary=262, width=32, lsa_dimensions=5, lsa_pairs=7),
    "gpt": SHAPE,
    "gpt2": replace(SHAPE, norm="pre", scale_residuals=True),
    "modern": MODERN,
    "bert": MASKED,
    "roberta": replace(MASKED, segments=1, first_position=2, pooler=False, epsilon=1e-5),
    "albert": replace(MASKED, embedding=16, shared=True, gelu="tanh"),
    "electra": replace(MASKED, pooler=False),
    "ulmfit": AwdLstmConfig(vocabulary=61, layers=2, width=32, hidden=24, context=24, dropout=0.0),
    "elmo": BilmTrunkConfig(262, cells=24, context=24, reads=48, dropout=0.0, words=CHARACTERS),
    "cove": CoveConfig(vocabulary=262, vectors=32, width=32, layers=2, context=24, dropout=0.0),
    "cvt": CvtConfig(
        *(262, 20, (2, 3, 4), 4),  # so that what is read is as wide as the layers
        **{"char_embedding": 6, "char_length": 8, "cells": 16, "upper_cells": 16, "direction": 16},
        **{"context": 24, "dropout": 0.0, "unlabelled_dropout": 0.0},
    ),
    "transformer_xl": TransformerXLConfig(61, 2, 32, 4, context=24, memory=24, evaluation_memory=47, dropout=0.0),
    "xlnet": XLNetConfig(vocabulary=272, layers=2, width=32, heads=4, context=24, memory=8, dropout=0.0),
}
assert TINY.keys() == SYSTEMS.keys(), "every system is under test"
# What a system has, by what it says of itself.
CAUSAL = [name for name in TINY if SYSTEMS[name].causal]
PRETRAINED = [name for name in TINY if SYSTEMS[name].learns_from != "rows"]  # the others learn their task alone
BY_GRADIENTS = [name for name in PRETRAINED if SYSTEMS[name].learn is None]  # the others learn in a way of their own
CONTEXTUAL = [name for name in TINY if TINY[name].layers]  # in the others a word's vector depends on the word alone
MASKING = [name for name in TINY if SYSTEMS[name].objective_config is MaskingConfig]
FRAMED = [name for name in TINY if issubclass(SYSTEMS[name].objective_config, MaskingConfig)]  # between [CLS] and [SEP]
GROWING = [name for name in TINY if issubclass(SYSTEMS[name].objective_config, GrowingConfig)]  # in length
TRANSFORMERS = [name for name in TINY if hasattr(TINY[name], "heads")]
OWN_MODEL = [name for name in TINY if SYSTEMS[name].sizes["tiny"].transfer.model == "recurrent"]
# All of whose steps have as many tokens.
EVEN = [name for name in TINY if SYSTEMS[name].objective_config in (CausalConfig, ForgettingConfig)]
BOUNDED = [name for name in TINY if not reads_on(SYSTEMS[name].build_trunk(TrunkParts(TINY[name])))]  # by a context
AT_ONCE = ("transfer.thaw=all", "transfer.rate_decay=1.0")  # everything learns from the start, at one rate
NORMED = [name for name in TINY if SYSTEMS[name].sizes["tiny"].transfer.pooling == "concat"]
# What makes a task's own model minute, where there is one.
SMALL_READER = {name: ("transfer.reader.cells=24",) if name in OWN_MODEL else () for name in TINY}
# Epochs, and settings, in which sixteen rows are learned: a model that is new has more to learn than a layer.
LEARNS: dict[str, tuple[int, tuple[str, ...]]] = dict.fromkeys(TINY, (6, ()))
LEARNS |= {name: (10, ("training.rate=0.01", *SMALL_READER[name])) for name in OWN_MODEL}
LEARNS |= {name: (12, ("training.rate=0.004",)) for name in TINY if SYSTEMS[name].build_head is not None}
# Batch norm predicts by a mean over its last ten steps and more, and has to have seen so many.
LEARNS |= dict.fromkeys(NORMED, (14, (*AT_ONCE, "training.rate=0.02")))
# Steps, and what may be left of the loss on the text itself, where there is one: an LSTM learns it more slowly.
LOWERS = {name: ((30, 0.8) if name in BOUNDED else (60, 0.95)) if name in CAUSAL else (15, 0.8) for name in TINY}
LM_WEIGHT = {name: 0.5 if name in CAUSAL else 0.0 for name in TINY}  # only those have that loss beside a task's
LM_WEIGHTS = [*LM_WEIGHT.items(), *((name, 0.0) for name in CAUSAL)]
# The roundings on the way through a minute model and back: for each of two layers the sums over 32 states (norms,
# projections), 24 keys and 128 inner states, twice as many on the way back, and those over a batch of some 200 tokens.
TERMS = terms_of(2 * (5 * 32 + 2 * 24 + 128), 4 * (5 * 32 + 2 * 24 + 128), 200)
PLAIN = TrainingConfig(optimizer="adamw", rate=1e-2, warmup=0.1, batch_size=4, dropout=0.0, save_seconds=1e9)

KINDS = ("classification", "entailment", "similarity", "choice", "regression")


def taught(kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Systems with the kinds of task that each can be taught."""
    return [(name, kind) for name in TINY for kind in kinds if not SYSTEMS[name].tasks or kind in SYSTEMS[name].tasks]


def pairwise(
    pairs: Sequence[tuple[str, Any]], wholly: Sequence[str] = ("gpt", "bert"), once: Sequence[str] = tuple(TINY)
) -> list[Any]:
    """Systems with kinds of task, or with anything else, for `parametrize`: of two systems all kinds, `once` the first.
    The other pairs are for `make test-all`."""
    first = dict(reversed(pairs))

    def often(system: str, kind: Any) -> bool:
        return system in wholly or (system in once and first[system] == kind)

    return [pytest.param(*pair, marks=() if often(*pair) else pytest.mark.thorough) for pair in pairs]


def reshaped(system: str, **changes: Any) -> Any:
    """Its minute configuration with those of the changes that it has a field for."""
    own = {field.name for field in fields(TINY[system])}
    return replace(TINY[system], **{name: value for name, value in changes.items() if name in own})


def trunk_of(system: str, **changes: object) -> nn.Module:
    """A trunk with weights large enough that every part of it matters to the result."""
    trunk = SYSTEMS[system].build_trunk(TrunkParts(replace(TINY[system], **changes), tokenizer_of(system)))
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return trunk


def logits_of(trunk: Any, top: torch.Tensor) -> torch.Tensor:
    """Logits of a tied output layer: W_e h, with a bias and a soft cap if there are any."""
    logits = top @ trunk.output_table().to(top.dtype).t()
    bias, cap = getattr(trunk, "output_bias", None), getattr(trunk.config, "soft_cap", 0.0)
    logits = logits if bias is None else logits + bias.to(top.dtype)
    return cap * torch.tanh(logits / cap) if cap else logits


def windows(lengths: Sequence[int], vocabulary: int = SHAPE.vocabulary, seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, vocabulary, length) for length in lengths]


def objective_of(system: str) -> Objective:
    """What the system is pre-trained by in its paper, over bytes; translations, over words."""
    found = SYSTEMS[system]
    tokenizer = two_vocabularies() if found.learns_from == "pairs" else tokenizer_of(system)
    return found.build_objective(ObjectiveParts(TINY[system], found.sizes["paper"].objective, tokenizer))


def two_vocabularies() -> WordTokenizer:
    """Words of a source and of a target."""
    return word_tokenizer([f"w{number}" for number in range(59)], WordList(tuple(f"t{number}" for number in range(40))))


def unlabelled(system: str, lengths: Sequence[int], seed: int = 0) -> list[Any]:
    """Examples of pre-training."""
    if SYSTEMS[system].learns_from == "pairs":
        rows = windows(lengths, seed=seed)
        return [Pair(row, np.append(row[::-1][: 1 + number % 7] % 40 + 3, 1)) for number, row in enumerate(rows)]
    objective = objective_of(system)
    return [example_for(objective, row, number % 2) for number, row in enumerate(windows(lengths, seed=seed))]


def example_for(objective: Objective, row: np.ndarray, label: int = 0) -> Any:
    """What an objective learns from, of a row of ids: a window, a stretch, two spans and their label, a window for each
    direction, or one for either."""
    if isinstance(objective, BilmObjective):
        return row, np.roll(row, len(row) // 2)
    if isinstance(objective, PermutationObjective):
        return paired(objective, row, label == 1) if objective.settings.pairs else Stretch(row, backward=label == 1)
    if not isinstance(objective, MaskedObjective):
        return row
    if objective.pairs == "none":
        return Span((row,))
    return Span((row[: len(row) // 2], row[len(row) // 2 :]), label)


def paired(objective: PermutationObjective, row: np.ndarray, backward: bool) -> Stretch:
    """A stretch of which one token is remembered; the rest is `A <sep> B <sep> <cls>` where there is room for it."""
    ids, kinds, apart = row.copy(), np.zeros(len(row), dtype=np.int64), np.zeros(len(row), dtype=bool)
    if len(row) >= 6:
        border = len(row) // 2 - 1
        apart[[border, -2, -1]] = True
        ids[apart] = [objective.tokenizer.specials[name] for name in ("<sep>", "<sep>", "<cls>")]
        kinds[border + 1 :] = 1
        kinds[-1] = 2
    turn = -1 if backward else 1
    return Stretch(ids[::turn], backward, kinds[::turn], apart[::turn], kept=1)


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


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    """Gradients of a minute model, up to the order in which they were added up."""
    close(a, b, terms=TERMS)


def masks_drawn(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, ...]]:
    """Will count, by shape, what dropout draws a mask for from now on."""
    found: Counter[tuple[int, ...]] = Counter()

    def counted(shape: tuple[int, ...], p: float, dtype: torch.dtype | None = None) -> torch.Tensor:
        found[tuple(shape)] += 1
        return keep_mask(shape, p, dtype)

    for module in ("fused", "relative.relative_attention"):
        monkeypatch.setattr(f"foretext.nn.{module}.keep_mask", counted)
    return found


# -- whole runs ------------------------------------------------------------------------------------------------------

SMALL = (
    "model.layers=2",
    "model.width=32",
    "model.heads=2",
    "model.context=16",
    "model.memory=8",
    "tokenizer.size=300",
    "training.batch_size=4",
    "training.rate=0.003",
)
_OWN: dict[str, tuple[str, ...]] = {  # what else makes a system minute
    "elmo": (
        *("model.cells=16", "model.words.width=8", "model.words.filter_widths=1,2", "model.words.filter_counts=8,8"),
        *("model.words.length=8", "model.reads=48", "training.micro_batch=0"),
    ),
    "ulmfit": ("model.hidden=24",),
    "word2vec": (
        "model.context=1",
        "objective.lsa=4",
        "objective.negatives=2",
        "training.batch_size=60",
        "training.rate=0.05",
    ),
}


def small_of(system: str) -> tuple[str, ...]:
    """The settings of a minute run, as far as the system has them."""
    if system not in SYSTEMS:
        return SMALL
    own = {field.name for field in fields(SYSTEMS[system].config)}
    had = [one for one in SMALL if not one.startswith("model.") or one[len("model.") : one.index("=")] in own]
    return (*had, *_OWN.get(system, ()))


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
    request = PretrainRequest((str(text),), out, system, "tiny", Budget(steps=steps), sets=small_of(system) + sets)
    if SYSTEMS[system].learns_from == "pairs":
        source, target, vectors = parallel_text(text)
        request = replace(request, inputs=(), source=source, target=target, vectors=vectors)
    if SYSTEMS[system].learn is not None:  # with more threads no two runs are alike
        request = replace(request, threads=1)
    return replace(request, **changes)


def parallel_text(text: Path) -> tuple[Path, Path, Path]:
    """The sentences of a text, the same with each word turned round, and vectors of all words but one."""
    source, target, vectors = (text.with_name(name) for name in ("source.txt", "target.txt", "vectors.txt"))
    if not vectors.exists():
        sentences = [f"{one}." for line in text.read_text().splitlines() for one in line.rstrip(".").split(". ")]
        turned = [" ".join(word[::-1] for word in one.rstrip(".").split()) + "." for one in sentences]
        source.write_text("\n".join(sentences) + "\n")
        target.write_text("\n".join(turned) + "\n")
        draw = random.Random(5)
        words = sorted({word for one in sentences for word in one.lower().rstrip(".").split()} - {"child"})
        lines = [f"{word} {' '.join(f'{draw.gauss(0, 1):.4f}' for _ in range(8))}" for word in [".", *words]]
        vectors.write_text("\n".join(lines) + "\n")
    return source, target, vectors


@contextlib.contextmanager
def stopping_after(steps: int, code: int = 130) -> Iterator[StopRequest]:
    """A request to stop that comes during the given step, as a signal's would."""
    loops = (Loop, LearnerLoop)
    real, done = {loop: loop._step for loop in loops}, 0
    stop = SimpleNamespace(requested=None)

    def counted(loop: Loop) -> dict[str, float]:
        nonlocal done
        done += 1
        if done >= steps:
            stop.requested = code
        return real[type(loop)](loop)  # type: ignore[index]

    for kind in loops:
        kind._step = counted  # type: ignore[method-assign]
    try:
        yield stop
    finally:
        for kind in loops:
            kind._step = real[kind]  # type: ignore[method-assign]


@cache
def byte_tokenizer() -> ByteBPE:
    """Bytes only, and END."""
    return ByteBPE(bytes(range(256)), [], {END: 256})


@cache
def tokenizer_of(system: str) -> ByteBPE:
    """The same with the specials that the system's input has."""
    if SYSTEMS[system].causal:
        return byte_tokenizer()
    return byte_tokenizer().with_specials(SYSTEMS[system].vocabulary)


def reads_whole(system: str) -> bool:
    """Whether a task's rows are read whole, however long: by the layout, as a trunk that reads on may still be bound in
    what a task reads at a time."""
    found, tokenizer = SYSTEMS[system], tokenizer_of(system)
    missing = [name for name in found.specials if name not in tokenizer.specials]
    ids = dict((tokenizer.with_specials(missing) if missing else tokenizer).specials)
    return isinstance(found.build_layout(ids, TINY[system].context, "forward"), RunningTextLayout)


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
    torch.default_generator.manual_seed(seed)
    built: System = SYSTEMS[system]
    info = RunConfig("pretrain", system, "tiny", tokenizer=tokenizer.fingerprint())
    return SavedModel(
        None, ModelSections(info, shape), built, tokenizer, built.build_trunk(TrunkParts(shape, tokenizer))
    )
