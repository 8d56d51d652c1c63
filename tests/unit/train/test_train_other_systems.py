"""What the next systems need of the contracts, on one that is none of ours: a recurrent trunk with its own
configuration, a state that is carried over contiguous streams, corruption drawn in `make`, a head that belongs to the
objective, and a loss with another name. It is registered by one line of a dictionary; nothing in the package knows of
it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from complaints import refused
from systems_under_test import pretrain_request, stopping_after, write_text
from tolerance import close
from torch import Tensor, nn

import foretext as ft
from foretext.batch import Batch, Hidden, LossSum, Outcome
from foretext.errors import Interrupted, UserError
from foretext.nn.trunk import ModelConfig, Trunk
from foretext.objectives.base import Direction, Draw, Objective
from foretext.runs.directory import RunDirectory
from foretext.runs.inspection import summary_of
from foretext.systems import SYSTEMS
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, TrunkParts
from foretext.tasks.layouts.base import DelimitedLayout
from foretext.text.order import StreamOrder
from foretext.train.pretraining.pretrain import pretrain

SETS = ("model.width=12", "model.context=8", "tokenizer.size=300", "training.batch_size=4", "training.rate=0.01")


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    vocabulary: int
    width: int = 12
    layers: int = 1
    context: int = 8
    dropout: float = 0.0
    init_std: float = 0.1

    def check(self) -> None:
        if self.width < 1:
            raise UserError(f"model.width must be at least 1, not {self.width}")

    def describe(self) -> str:
        return f"a recurrent layer of {self.width}"

    def parameters(self) -> int:
        return self.vocabulary * self.width + 8 * self.width * (self.width + 1)

    def activations(self, tokens: int) -> int:
        return 8 * tokens * self.width


class Recurrent(Trunk):
    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.lstm = nn.LSTM(config.width, config.width, batch_first=True)

    def forward(self, batch: Batch, state: Any = None, keep_layers: bool = False) -> Hidden:
        x = self.tokens(batch.ids_BT)
        top, new = self.lstm(x, None if state is None else tuple(part.transpose(0, 1).contiguous() for part in state))
        after = None if state is None else tuple(part.transpose(0, 1) for part in new)  # rows come first
        return Hidden(top, (x, top) if keep_layers else (), after)

    def output_table(self) -> Tensor:
        return self.tokens.weight

    def new_state(self, rows: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(rows, 1, self.config.width), torch.zeros(rows, 1, self.config.width)

    def room(self, state: Any) -> None:
        return None

    def layer_groups(self) -> list[list[str]]:
        return [["tokens.weight"], [name for name, _ in self.named_parameters() if name != "tokens.weight"]]

    def grow_vocabulary(self, size: int) -> None:
        raise NotImplementedError


class Corrupted(Objective):
    """Next tokens through a head of its own, some inputs replaced at random, with the state carried on."""

    carries_state = True
    seen: ClassVar[list[bool]] = []  # for each training step, whether there was a state

    def __init__(self, config: RecurrentConfig, direction: Direction) -> None:
        super().__init__()
        self.direction = direction
        self.head = nn.Linear(config.width, config.vocabulary)
        self.weights = {"restored": 1.0}

    def make(self, examples: Sequence[np.ndarray], draw: Draw | None = None) -> Batch:
        assert draw is not None
        rows = [row if self.direction == "forward" else row[::-1] for row in examples]
        ids = torch.tensor(np.stack(rows).astype(np.int64))
        inputs = ids[:, :-1].clone()
        for number in range(len(rows)):
            inputs[number, draw.generator(number).integers(inputs.shape[1])] = 0
        return Batch(inputs, targets_BT=ids[:, 1:])

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"restored": float(batch.ids_BT.numel())}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        assert batch.targets_BT is not None
        if self.training:
            self.seen.append(state is not None)
        hidden = trunk(batch, trunk.new_state(len(batch.ids_BT)) if state is None else state)
        logits = self.head(hidden.top).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, batch.targets_BT.flatten(), reduction="sum")
        return Outcome({"restored": LossSum(loss, float(batch.ids_BT.numel()))}, hidden.state)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    training = TrainingConfig(rate=0.01, batch_size=4, dropout=0.0, save_seconds=1e9, log_samples=True)
    size = Size(RecurrentConfig(0), TokenizerConfig("byte-bpe", 300), training, training, epochs=1)
    system = System(
        *("recurrent", "no paper", "LSTM", "restoring", "both", "byte-level BPE", "fine-tuning"),
        specials=DelimitedLayout.specials,
        sizes={"tiny": size},
        config=RecurrentConfig,
        build_trunk=lambda parts: Recurrent(parts.model),
        build_objective=lambda parts: Corrupted(parts.model, parts.direction),
        build_layout=DelimitedLayout,
    )
    monkeypatch.setitem(SYSTEMS, "recurrent", system)
    Corrupted.seen.clear()
    yield


def run(tmp_path: Path, out: str, steps: int = 12, **changes: Any) -> Path:
    text = write_text(tmp_path)
    request = pretrain_request("recurrent", text, tmp_path / out, steps, **{"sets": SETS, **changes})
    return pretrain(request)


def test_it_trains_saves_loads_and_is_used(tmp_path: Path) -> None:
    path = run(tmp_path, "base")
    losses = [line["validation"] for line in ft.load(path).model.run.metrics() if "validation" in line]
    assert losses and set(losses[-1]) == {"loss"}
    assert losses[-1]["loss"] < losses[0]["loss"]
    model = ft.load(path)
    head = model.model.objective.state_dict()["head.weight"]
    stored = model.model.run.load_tensors("model.safetensors")["task.head.weight"]
    assert torch.equal(head, stored)
    assert model.generate("The cat", max_tokens=30, seed=1)  # longer than the context, which does not bind it
    assert model.perplexity("The cat sees fish.").per_token > 1
    assert "a recurrent layer of 12" in summary_of(RunDirectory(path))
    rows = [("good one", "a"), ("bad one", "b")] * 6
    assert len(model.finetune(rows, task="classification", epochs=1).predict(["good one"])) == 1


def test_a_trunk_is_built_with_the_vocabulary_of_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[TrunkParts] = []

    def build(parts: TrunkParts) -> nn.Module:
        given.append(parts)
        return Recurrent(parts.model)

    monkeypatch.setitem(SYSTEMS, "recurrent", replace(SYSTEMS["recurrent"], build_trunk=build))
    model = ft.load(run(tmp_path, "base"))
    task = model.finetune([("good one", "a"), ("bad one", "b")] * 6, task="classification", epochs=1)
    assert len(given) == 3, "pre-training, loading, fine-tuning"
    assert all(parts.tokenizer is not None and parts.tokenizer.size == parts.model.vocabulary for parts in given)
    assert given[1].tokenizer is model.model.tokenizer and given[2].tokenizer is task.model.tokenizer


def test_going_on_takes_the_objectives_head_along(tmp_path: Path) -> None:
    first = run(tmp_path, "base")
    second = run(tmp_path, "more", 1, start=first, sets=("training.rate=1e-9",))
    a, b = (ft.load(path).model.objective.state_dict()["head.weight"] for path in (first, second))
    close(b, a, terms=1)  # a step of 1e-9 is less than float32 resolves


def test_its_settings_are_its_own(tmp_path: Path) -> None:
    with refused("model.heads=2", "'heads'"):
        run(tmp_path, "base", sets=("model.heads=2",))
    with refused("model.width", "1", "0"):
        run(tmp_path, "base", sets=("model.width=0",))


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_carried_state_belongs_to_the_text_before(tmp_path: Path, direction: Direction) -> None:
    path = run(tmp_path, "base", 60, direction=direction)
    samples = [line["samples"] for line in ft.load(path).model.run.metrics() if "samples" in line]
    step = 1 if direction == "forward" else -1
    fresh = 0
    for before, after, carried in zip(samples, samples[1:], Corrupted.seen[-len(samples) + 1 :]):
        assert len(after) == len(before), "a short batch would leave states without their rows"
        follows = after == [index + step for index in before]
        assert carried == follows
        fresh += not carried
    assert fresh, "the run is to see a second epoch"


def test_stopped_and_resumed_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    straight = run(tmp_path, "straight", 14)
    request = pretrain_request("recurrent", tmp_path / "text.txt", tmp_path / "stopped", 14, sets=SETS)
    for resume in (False, True):
        with stopping_after(5) as stop, pytest.raises(Interrupted):
            pretrain(replace(request, resume=resume), stopping=stop)
    pretrain(replace(request, resume=True))
    a = ft.load(straight).model.run.load_tensors("model.safetensors")
    b = ft.load(tmp_path / "stopped").model.run.load_tensors("model.safetensors")
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_same_example_is_drawn_alike_in_any_batch() -> None:
    one, two = Draw(3, 1, (7, 9)), Draw(3, 1, (9,))
    assert one.generator(1).integers(1 << 40) == two.generator(0).integers(1 << 40)
    keys = [(3, 1, 9), (4, 1, 9), (3, 2, 9), (3, 1, 8)]
    values = {Draw(seed, epoch, (index,)).generator(0).integers(1 << 40) for seed, epoch, index in keys}
    assert len(values) == 4


@pytest.mark.parametrize(("size", "rows"), [(10, 3), (7, 7), (2, 5), (100, 16)])
@pytest.mark.parametrize("backward", [False, True])
def test_streams(size: int, rows: int, backward: bool) -> None:
    order = StreamOrder(size, rows, backward)
    seen = [order.batch(step) for step in range(2 * order.steps_per_epoch)]
    epochs = [[indices for epoch, indices in seen if epoch == number] for number in (0, 1)]
    assert epochs[0] == epochs[1]
    flat = [index for indices in epochs[0] for index in indices]
    assert len(set(flat)) == len(flat) == order.steps_per_epoch * min(size, rows) > size - rows
    for before, after in zip(epochs[0], epochs[0][1:]):
        assert after == [index + (-1 if backward else 1) for index in before]
