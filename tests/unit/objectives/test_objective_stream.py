"""The language model over streams: carried state, both penalties, splitting, directions, and going on exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from complaints import refused
from systems_under_test import PLAIN, assert_same, gradients
from tolerance import close, terms_of
from torch import Tensor

from foretext.batch import Batch
from foretext.errors import Interrupted
from foretext.nn.recurrent.awd_lstm import AwdLstm, AwdLstmConfig
from foretext.objectives.base import Direction
from foretext.objectives.stream import StreamConfig, StreamObjective
from foretext.runs.directory import RunDirectory
from foretext.runs.model import mean_losses
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import PieceOrder, StreamOrder, StreamPieces, Windows
from foretext.train.loop import CARRIED, Job, Loop, Stage
from foretext.train.optim import make_optimizer

SHAPE = AwdLstmConfig(vocabulary=23, layers=2, width=6, hidden=9, context=8, dropout=0.0)
VARIED = StreamConfig(length_spread=2.0, length_half=0.2)
FIXED = replace(VARIED, length_spread=0.0, length_half=0.0)


def told(steps: int, tokens: int) -> int:
    """The terms of a loss: over the steps and two layers the sums of inputs and states, a logit, the softmax's sum, and
    that of the tokens."""
    return terms_of((steps + 2) * (9 + 9), SHAPE.width, SHAPE.vocabulary, tokens)


def trunk_of(dropout: float = 0.0) -> AwdLstm:
    """With weights so large that all of the past matters."""
    torch.manual_seed(2)
    trunk = AwdLstm(replace(SHAPE, dropout=dropout))
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return trunk


def ids_of(length: int, rows: int = 1) -> np.ndarray:
    return np.random.default_rng(4).integers(0, SHAPE.vocabulary, (rows, length))


def shards_of(length: int) -> TokenShards:
    manifest: Any = None  # nothing here reads it
    return TokenShards(Path("text"), "train", manifest, [ids_of(length)[0]])


class StopAfterOne:
    requested = 130


def loop_of(
    config: StreamConfig = VARIED,
    micro: int = 4,
    direction: Direction = "forward",
    dropout: float = 0.0,
    steps: int = 7,
    writer: Any = None,
    stopping: Any = None,
) -> Loop:
    """Four rows of a text of 161 tokens: five pieces, or four windows, an epoch."""
    trunk, objective = trunk_of(dropout), StreamObjective(SHAPE, config, direction)
    examples = objective.examples(shards_of(161), SHAPE.context, 0)
    training = replace(PLAIN, rate=0.02)
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=(Stage(examples.example, objective.order(examples, 4, 0), micro),),
        optimizer=make_optimizer(training, trunk, objective),
        config=training,
        budget=Budget(steps=steps),
        seed=5,
        device=torch.device("cpu"),
    )
    return Loop(job, writer, Reporter(), stopping or StopRequest())


def weights_of(loop: Loop) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}


# -- carried state ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("pieces", [[1] * 60, [8] * 7 + [4], [60], [31, 2, 27]], ids=lambda pieces: f"{len(pieces)}")
def test_scoring_in_pieces_is_scoring_at_once(pieces: list[int], direction: Direction) -> None:
    trunk, objective = trunk_of().eval(), StreamObjective(SHAPE, VARIED, direction).eval()
    text = ids_of(61, rows=2)

    def loss_of(lengths: list[int]) -> float:
        batches, start = [], 0
        for length in lengths:
            windows = [row[start : start + length + 1] for row in (text if direction == "forward" else text[:, ::-1])]
            batches.append(objective.make([window if direction == "forward" else window[::-1] for window in windows]))
            start += length
        return mean_losses(trunk, objective, batches)["lm"]

    whole = loss_of([60])
    close(loss_of(pieces), whole, terms=told(60, 120))
    with torch.no_grad():
        forgetful = [objective(trunk, objective.make(list(text[:, at : at + 13]))) for at in range(0, 60, 12)]
    without = sum(float(outcome.losses["lm"].total) for outcome in forgetful) / 120
    assert abs(without - whole) > 1e-6, "the state matters"


@pytest.mark.parametrize("config", [VARIED, FIXED], ids=["varied", "fixed"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_loss_of_an_epoch_is_that_of_each_row_read_at_once(config: StreamConfig, direction: Direction) -> None:
    """The loop's own batches and carried states, against rows that are put together from what was read."""
    loop = loop_of(config, micro=3, direction=direction)
    loop.model.eval()
    rows: list[list[Tensor]] = [[] for _ in range(4)]
    total = 0.0
    steps = loop.job.stages[0].order.steps_per_epoch
    assert steps > 3
    for step in range(steps):
        _, parts, _ = loop.batches(step)
        tokens = sum(part.real_tokens for part in parts)
        total += loop.gradients(step, parts)["lm"] * tokens
        for row, (ids, targets) in enumerate((i, t) for p in parts for i, t in zip(p.ids_BT, p.targets_BT)):
            rows[row].append(torch.stack([ids, targets]))
    read = torch.stack([torch.cat(row, dim=1) for row in rows])
    assert torch.equal(read[:, 0, 1:], read[:, 1, :-1]), "each target is what is read next"
    trunk = loop.job.trunk
    logits = trunk(Batch(read[:, 0])).top @ trunk.output_table().t()
    expected = F.cross_entropy(logits.flatten(0, 1), read[:, 1].flatten(), reduction="sum")
    close(total, expected, terms=told(40, 160))
    if direction == "backward":
        text = ids_of(161)[0].tolist()
        first = read[0, 0].tolist()[::-1]
        assert any(text[at : at + len(first)] == first for at in range(len(text))), "the text, right to left"


# -- the loss --------------------------------------------------------------------------------------------------------


def test_the_loss_is_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-entropy and both penalties as means, written out token by token, under a given output dropout."""
    trunk, objective = trunk_of().train(), StreamObjective(SHAPE, replace(VARIED, activation=2.5, temporal=0.7)).train()
    keep = (torch.rand(3, 1, SHAPE.width, generator=torch.Generator().manual_seed(1)) > 0.4) / 0.6
    monkeypatch.setattr(trunk, "output_dropout", lambda top: top * keep)
    batch = objective.make(list(ids_of(8, rows=3)))
    outcome = objective(trunk, batch, state=None)
    counts = objective.counts(batch)
    loss = sum(objective.weights[name] * outcome.losses[name].total / counts[name] for name in objective.weights)
    assert {name: part.count for name, part in outcome.losses.items()} == counts
    loss.backward()
    found = gradients(trunk)
    trunk.zero_grad()

    top = trunk(batch).top
    surprise, squares, steps = [], [], []
    for row in range(3):
        for t in range(7):
            dropped = top[row, t] * keep[row, 0]
            surprise.append(-torch.log_softmax(trunk.tokens.weight @ dropped, 0)[batch.targets_BT[row, t]])
            squares.append((dropped**2).mean())
            if t:
                steps.append(((top[row, t] - top[row, t - 1]) ** 2).mean())
    means = [torch.stack(values).mean() for values in (surprise, squares, steps)]
    literal = means[0] + 2.5 * means[1] + 0.7 * means[2]
    close(loss, literal, terms=told(7, 3 * 7 * SHAPE.width))
    literal.backward()
    assert_same(found, gradients(trunk))


def test_penalties_are_of_training_and_can_be_left_out() -> None:
    trunk, batch = trunk_of(), StreamObjective(SHAPE, VARIED).make(list(ids_of(8, rows=2)))
    for config, names in (
        (VARIED, ["lm", "activation", "temporal"]),
        (replace(VARIED, temporal=0.0), ["lm", "activation"]),
        (replace(VARIED, activation=0.0), ["lm", "temporal"]),
    ):
        objective = StreamObjective(SHAPE, config)
        assert list(objective.weights) == list(objective.counts(batch)) == names
        assert list(objective.train()(trunk, batch).losses) == names
        assert list(objective.eval()(trunk, batch).losses) == ["lm"]


@pytest.mark.parametrize("config", [VARIED, FIXED], ids=["varied", "fixed"])
def test_splitting_a_step_changes_no_gradient(config: StreamConfig) -> None:
    """Over three steps, so that carried states of the micro-batches count too."""
    found = {}
    for micro in (4, 3, 1):
        loop = loop_of(config, micro)
        loop.model.train()
        for step in range(3):
            loop.job.optimizer.zero_grad()
            _, parts, _ = loop.batches(step)
            losses = loop.gradients(step, parts)
        found[micro] = gradients(loop.job.trunk), losses
    for micro in (3, 1):
        assert_same(found[micro][0], found[4][0])
        close(found[micro][1], found[4][1], terms=told(3 * 10, 4 * 10 * SHAPE.width))
    assert set(found[4][1]) == {"lm", "activation", "temporal"}


def test_rows_of_unequal_length_split_alike() -> None:
    """Padding counts in no loss."""
    trunk, objective = trunk_of(), StreamObjective(SHAPE, VARIED).train()
    rows = [row[:length] for row, length in zip(ids_of(9, rows=4), (9, 2, 1, 6))]

    def found(groups: list[list[np.ndarray]]) -> dict[str, Tensor]:
        batches = [objective.make(group) for group in groups]
        totals = {name: sum(objective.counts(batch)[name] for batch in batches) for name in objective.weights}
        trunk.zero_grad()
        for batch in batches:
            losses = objective(trunk, batch).losses
            sum(objective.weights[name] * losses[name].total / totals[name] for name in losses).backward()
        return gradients(trunk)

    assert_same(found([rows[:3], rows[3:]]), found([rows]))
    assert_same(found([[row] for row in rows]), found([rows]))


# -- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "micro", "direction"), [(VARIED, 3, "backward"), (FIXED, 4, "forward")], ids=["varied", "fixed"]
)
def test_stopping_after_every_step_changes_nothing(
    tmp_path: Path, config: StreamConfig, micro: int, direction: Direction
) -> None:
    """With all dropouts and both penalties, over the border of an epoch."""
    settings: dict[str, Any] = {"config": config, "micro": micro, "direction": direction, "dropout": 1.0}
    straight = loop_of(**settings)
    assert straight.job.stages[0].order.steps_per_epoch < 7
    straight.run()
    run = RunDirectory(tmp_path / "run")
    for turn in range(7):
        with run.writer() as writer:
            loop = loop_of(**settings, writer=writer, stopping=StopAfterOne())
            assert loop.restore() == (turn > 0) and loop.position.step == turn
            with pytest.raises(Interrupted):
                loop.run()
            assert run.has(CARRIED)
    with run.writer() as writer:
        loop = loop_of(**settings, writer=writer)
        loop.restore()
        loop.run()
    whole, resumed = weights_of(straight), weights_of(loop)
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert loop.position.tokens == straight.position.tokens > 0
    start = trunk_of(1.0).state_dict()
    assert all(not torch.equal(start[name], whole[f"trunk.{name}"]) for name in start), "everything learned"


# -- settings --------------------------------------------------------------------------------------------------------


def test_lengths_vary_only_where_they_are_said_to() -> None:
    shards = shards_of(200)
    for config, examples, order in ((VARIED, StreamPieces, PieceOrder), (FIXED, Windows, StreamOrder)):
        objective = StreamObjective(SHAPE, config, "backward")
        found = objective.examples(shards, 8, 0)
        assert isinstance(found, examples)
        made = objective.order(found, 4, 0)
        assert isinstance(made, order) and made.backward
    assert replace(FIXED, length_half=0.1).varies and replace(FIXED, length_spread=1.0).varies


@pytest.mark.parametrize(
    ("key", "value"),
    [("activation", -1.0), ("temporal", float("nan")), ("length_spread", float("inf")), ("length_half", 1.5)],
)
def test_settings_that_cannot_be(key: str, value: float) -> None:
    StreamConfig().check()
    with refused(f"objective.{key}", str(value)):
        replace(StreamConfig(), **{key: value}).check()
