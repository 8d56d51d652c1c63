"""ULMFiT's classifier against documents that are read one by one: pools, gradients of the last pieces, the head."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from complaints import refused
from systems_under_test import KINDS, PLAIN, TERMS, TINY, assert_same, examples, gradients
from systems_under_test import trunk_of as any_trunk
from tolerance import close, doubles, terms_of
from torch import Tensor

from foretext.batch import Batch
from foretext.errors import Interrupted
from foretext.nn.recurrent.awd_lstm import AwdLstm, AwdLstmConfig
from foretext.nn.trunk import reads_on
from foretext.objectives.base import ListedExamples
from foretext.runs.directory import RunDirectory
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget
from foretext.tasks.heads.concat_pooling import (
    ConcatPoolingConfig,
    ConcatPoolingTask,
    PoolingHead,
    RunningPool,
    read_pieces,
    right_aligned,
)
from foretext.tasks.heads.supervised import Example, SupervisedTask, sequence_lm_loss
from foretext.tasks.layouts.base import TokenSequence
from foretext.text.order import Order
from foretext.train.finetuning.finetune_trunk import NORMED_TOKENS, rows_at_a_time
from foretext.train.loop import Job, Loop, Stage
from foretext.train.optim import make_optimizer
from foretext.train.planning import probe_speed

SHAPE = AwdLstmConfig(vocabulary=61, layers=2, width=5, hidden=7, dropout=0.0)
PLAIN_HEAD = ConcatPoolingConfig(piece=4, learned=8, hidden=6, dropout=0.0, hidden_dropout=0.0)
LENGTHS = (11, 1, 4, 17, 0, 8)
LONGEST = 20
POOL_TERMS = terms_of(LONGEST * (5 + 7 + 7 + 5), LONGEST)  # two layers, word by word, and the mean
HEAD_TERMS = terms_of(2 * 6, 15, 2 * 6, 6)  # two norms over six rows, with a layer behind each


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with doubles():
        yield


def trunk_of(dropout: float = 0.0) -> AwdLstm:
    """With weights so large that all of the past matters."""
    torch.manual_seed(3)
    trunk = AwdLstm(replace(SHAPE, dropout=dropout))
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return trunk


def rows_of(lengths: Sequence[int] = LENGTHS) -> list[Tensor]:
    drawn = torch.randint(0, SHAPE.vocabulary, (len(lengths), LONGEST), generator=torch.Generator().manual_seed(1))
    return [row[:length] for row, length in zip(drawn, lengths)]


def batch_of(rows: Sequence[Tensor], width: int, side: str) -> Batch:
    ids, mask = torch.full((len(rows), width), 9), torch.zeros(len(rows), width, dtype=torch.bool)
    for number, row in enumerate(rows):
        start = {"right": 0, "left": width - len(row), "both": (width - len(row)) // 2}[side]
        ids[number, start : start + len(row)] = row
        mask[number, start : start + len(row)] = True
    return Batch(ids, mask)


def pooled(trunk: AwdLstm, batch: Batch, piece: int, learned: int) -> Tensor:
    pool = None
    for top, mask, _ in read_pieces(trunk, right_aligned(batch), piece, learned):
        new = RunningPool.of(top, mask)
        pool = new if pool is None else pool.then(new)
    assert pool is not None
    return pool.pooled()


def literal(trunk: AwdLstm, ids: Tensor, piece: int, learned_pieces: int) -> Tensor:
    """One document: cut from its end, each piece from the state before; only the last ones' states have a gradient."""
    if not len(ids):
        return torch.zeros(3 * SHAPE.width)
    pieces = []
    while len(ids):
        pieces.insert(0, ids[-piece:])
        ids = ids[:-piece]
    state, states = trunk.new_state(1), []
    for number, part in enumerate(pieces):
        hidden = trunk(Batch(part[None]), state)
        state = tuple((h.detach(), c.detach()) for h, c in hidden.state)
        states.append(hidden.top[0] if number >= len(pieces) - learned_pieces else hidden.top[0].detach())
    whole = torch.cat(states)
    largest = torch.stack([max(unit) for unit in whole.t()])
    return torch.cat([whole[-1], largest, sum(whole) / len(whole)])


def weighted(x: Tensor) -> Tensor:
    return (x * torch.randn(x.shape, generator=torch.Generator().manual_seed(5))).sum()


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("piece", "learned", "pieces"), [(4, 8, 2), (3, 1, 1), (20, 20, 1)])
@pytest.mark.parametrize(("width", "side"), [(17, "right"), (25, "left"), (25, "both")])
def test_pools_and_gradients_are_those_of_each_document_alone(
    piece: int, learned: int, pieces: int, width: int, side: str
) -> None:
    """In whatever batch, behind whatever padding; one document is empty."""
    trunk, rows = trunk_of(), rows_of()
    pools = pooled(trunk, batch_of(rows, width, side), piece, learned)
    expected = torch.stack([literal(trunk, row, piece, pieces) for row in rows])
    close(pools, expected, terms=POOL_TERMS)
    weighted(expected).backward()
    wanted = gradients(trunk)
    trunk.zero_grad()
    weighted(pools).backward()
    assert_same(gradients(trunk), wanted)


@pytest.mark.parametrize("system", ["ulmfit", "transformer_xl"])
def test_what_is_pooled_does_not_depend_on_the_pieces_and_is_the_whole_document(system: str) -> None:
    """Of an LSTM, and of a memory that is longer than the document."""
    trunk, rows = trunk_of() if system == "ulmfit" else any_trunk(system), rows_of((17, 9))
    batch = batch_of(rows, 17, "right")
    for piece, learned in ((1, 1), (4, 8), (100, 100)):
        with torch.no_grad():
            pools = pooled(trunk, batch, piece, learned)
            for row, states in zip(pools, (trunk(Batch(ids[None])).top[0] for ids in rows)):
                wanted = torch.cat([states[-1], states.amax(0), states.mean(0)])
                close(row, wanted, terms=terms_of(TERMS, LONGEST))


def test_words_of_earlier_pieces_count_but_have_no_gradient() -> None:
    trunk = trunk_of()
    ids = torch.arange(12)[None]
    pool = pooled(trunk, Batch(ids), 4, 8)
    weighted(pool).backward()
    learned = trunk.tokens.weight.grad.abs().sum(1) > 0
    assert learned.nonzero().flatten().tolist() == list(range(4, 12))
    assert float((pool - pooled(trunk, Batch(ids[:, 4:]), 4, 8)).detach().abs().max()) > 1e-3


# -- the head --------------------------------------------------------------------------------------------------------


def literal_head(head: PoolingHead, x: Tensor, statistics: Sequence[tuple[Tensor, Tensor]] | None) -> Tensor:
    for number, (norm, linear) in enumerate(zip(head.norms, head.linears)):
        x = x.clamp(min=0) if number else x
        mean, variance = (x.mean(0), x.var(0, correction=0)) if statistics is None else statistics[number]
        x = linear.weight @ ((x - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias).t()
        x = x.t() + linear.bias
    return x


def test_the_head_is_norm_linear_relu_norm_linear() -> None:
    head = PoolingHead(15, 3, PLAIN_HEAD).train()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(6, 15)
    close(head(x), literal_head(head, x, None), terms=HEAD_TERMS)
    running = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in head.norms]
    close(running[0][0], 0.1 * x.mean(0), terms=6)
    alone = head(x[:1])  # no variance in one row: as in prediction
    close(alone, literal_head(head, x[:1], running), terms=HEAD_TERMS)
    assert all(torch.equal(norm.running_mean, mean) for norm, (mean, _) in zip(head.norms, running))
    close(head.eval()(x), literal_head(head, x, running), terms=HEAD_TERMS)


def test_dropout_is_behind_each_norm() -> None:
    """What a linear layer reads is 0 where it was dropped, and nowhere else."""
    head = PoolingHead(15, 3, replace(PLAIN_HEAD, dropout=0.4, hidden_dropout=0.1)).train()
    read: list[Tensor] = []
    for linear in head.linears:
        linear.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    torch.manual_seed(1)
    head(torch.randn(500, 15))
    assert [float((x == 0).float().mean()) for x in read] == pytest.approx([0.4, 0.1], abs=0.03)
    read.clear()
    head.eval()(torch.randn(500, 15))
    assert all(bool((x != 0).all()) for x in read)


# -- the task --------------------------------------------------------------------------------------------------------


def task_of(kind: str = "classification", config: ConcatPoolingConfig = PLAIN_HEAD) -> ConcatPoolingTask:
    torch.manual_seed(4)
    return ConcatPoolingTask(kind, 3, SHAPE.width, config)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_every_kind(kind: str) -> None:
    trunk, task, rows = trunk_of(), task_of(kind).eval(), examples(kind, 5)
    batch = task.make(rows)
    with torch.no_grad():
        scores = task(trunk, batch).scores
        asked = task(trunk, replace(batch, labels=None, targets_BT=None))
    assert asked.losses == {} and torch.equal(asked.scores, scores)
    for number, row in enumerate(rows):
        states = torch.stack([literal(trunk, torch.tensor(one.ids), 4, 2) for one in row.sequences]).detach()
        if kind == "similarity":
            states = states.sum(0, keepdim=True)
        expected = task.head(states).flatten()
        close(scores[number].flatten()[: len(expected)], expected, terms=terms_of(POOL_TERMS, HEAD_TERMS))


def test_losses_are_the_label_and_both_penalties_over_what_learns() -> None:
    """The last eight tokens of each document, written out."""
    trunk, task = trunk_of().train(), task_of().train()
    rows = examples("classification", 6)
    batch = task.make(rows)
    losses, counts = task(trunk, batch).losses, task.counts(batch)
    assert task.weights == {"label": 1.0, "activation": 2.0, "temporal": 1.0}
    assert {name: loss.count for name, loss in losses.items()} == counts
    squares, steps = [], []
    for row in rows:
        top = trunk(Batch(torch.tensor([row.sequences[0].ids]))).top[0, -8:]
        squares += (top**2).flatten().tolist()
        steps += ((top[1:] - top[:-1]) ** 2).flatten().tolist()
    assert counts == {"label": 6.0, "activation": len(squares), "temporal": len(steps)}
    close(losses["activation"].total, sum(squares), terms=terms_of(POOL_TERMS, len(squares)))
    close(losses["temporal"].total, sum(steps), terms=terms_of(POOL_TERMS, len(steps)))
    assert list(task.eval()(trunk, batch).losses) == ["label"]
    assert task_of(config=replace(PLAIN_HEAD, activation=0.0, temporal=0.0)).weights == {"label": 1.0}


@pytest.mark.parametrize("system", [name for name in TINY if not reads_on(any_trunk(name))])
def test_on_a_trunk_with_a_context_it_is_read_at_once_and_the_speaking_state_is_the_last(system: str) -> None:
    """As if each row were alone, whatever the pieces; gradients flow through all of it."""
    trunk, rows = any_trunk(system).eval(), examples("classification", 5)
    speaking = [
        replace(row, sequences=(replace(row.sequences[0], extract=number % 3),)) for number, row in enumerate(rows)
    ]
    task = ConcatPoolingTask("classification", 3, TINY[system].width, PLAIN_HEAD).eval()
    tops = [trunk(Batch(torch.tensor([row.sequences[0].ids]))).top[0] for row in speaking]
    alone = torch.stack([torch.cat([top[place % 3], top.amax(0), top.mean(0)]) for place, top in enumerate(tops)])
    close(task(trunk, task.make(speaking)).scores, task.head(alone), terms=terms_of(TERMS, LONGEST, HEAD_TERMS))
    task.train()
    batch = task.make(speaking)
    losses, counts = task(trunk, batch).losses, task.counts(batch)
    assert {name: loss.count for name, loss in losses.items()} == counts
    wanted = sum(float((top[-8:] ** 2).sum().detach()) for top in tops)
    close(losses["activation"].total, wanted, terms=terms_of(TERMS, 5 * 8 * TINY[system].width))
    losses["label"].total.backward()
    learned = gradients(trunk)
    trunk.zero_grad()
    task.label_loss(task.head(alone), batch.labels).backward()
    assert_same(learned, gradients(trunk))


@pytest.mark.parametrize("system", ["ulmfit", "gpt", "transformer_xl"])
def test_the_language_model_beside_it_is_gpts_l3(system: str) -> None:
    """The mean over each sequence's targets, of the tokens that learn: all of them where so many may."""
    trunk = any_trunk(system).train()
    rows = examples("classification", 5)
    plain = SupervisedTask("classification", 3, TINY[system].width, 0.5, 0.0)
    task = ConcatPoolingTask("classification", 3, TINY[system].width, replace(PLAIN_HEAD, piece=20, learned=20), 0.5)
    assert task.weights["lm"] == 0.5 and task.counts(task.make(rows))["lm"] == 5
    ours, theirs = (one(trunk, one.make(rows)).losses["lm"] for one in (task, plain))
    close(ours.total, theirs.total, terms=terms_of(TERMS, TINY[system].vocabulary))
    assert "lm" not in task.eval()(trunk, task.make(rows)).losses


def test_the_language_model_beside_it_predicts_from_dropped_states() -> None:
    """As in pre-training; GPT's trunk drops nothing there."""
    trunk = AwdLstm(replace(SHAPE, dropout=1.0)).train()
    top_BTD, targets_BT = torch.randn(3, 4, SHAPE.width), torch.randint(SHAPE.vocabulary, (3, 4))
    torch.manual_seed(5)
    dropped_BTD = trunk.output_dropout(top_BTD)
    expected = F.cross_entropy(
        (dropped_BTD @ trunk.tokens.weight.t()).flatten(0, 1), targets_BT.flatten(), reduction="sum"
    )
    torch.manual_seed(5)
    terms = terms_of(SHAPE.width, SHAPE.vocabulary, 3 * 4)
    loss = sequence_lm_loss(trunk, top_BTD, targets_BT)
    close(loss.total, expected / 4, terms=terms)
    assert loss.count == 3
    assert not torch.equal(dropped_BTD, top_BTD)


def test_a_batch_has_documents_of_like_length_and_others_in_each_epoch() -> None:
    draw = random.Random(0)
    documents = [Example((TokenSequence((1,) * draw.randint(1, 400), 0),), 0) for _ in range(300)]
    task = ConcatPoolingTask("classification", 2, 8, ConcatPoolingConfig())
    order = task.order(ListedExamples(documents), 4, seed=3)
    epochs = [[order.batch(epoch * order.steps_per_epoch + step)[1] for step in range(75)] for epoch in range(2)]
    for batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(300))
        lengths = [[documents[index].tokens for index in batch] for batch in batches]
        read = sum(len(batch) * max(batch) for batch in lengths)
        assert read < 1.2 * sum(map(sum, lengths)), "at random it is about 1.6 times"
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}


def test_memory_and_rows_at_a_time_follow_from_what_learns() -> None:
    long = Example((TokenSequence(tuple(range(60)) * 100, 5999),), 0)
    task = task_of(config=ConcatPoolingConfig(piece=70, learned=1400))
    assert task.learned_tokens(long) == 1400 and task.norms_rows
    assert rows_at_a_time(task, ListedExamples([long])) == NORMED_TOKENS // 1400
    plain = SupervisedTask("classification", 3, 5, 0.0, 0.0)
    assert plain.learned_tokens(long) == 6000 and rows_at_a_time(plain, ListedExamples([long])) == 1


class StopAfterOne:
    requested = 130


def loop_of(writer: Any = None, stopping: Any = None) -> Loop:
    """Six rows, four a step, in two micro-batches, one of them of one row."""
    trunk, task, rows = trunk_of(1.0), task_of(config=ConcatPoolingConfig(4, 8, 6)), examples("classification", 6)
    job = Job(
        trunk=trunk,
        objective=task,
        stages=(Stage(lambda _, index: rows[index], Order(6, 4, 0), 3),),
        optimizer=make_optimizer(PLAIN, trunk, task),
        config=PLAIN,
        budget=Budget(steps=4),
        seed=5,
        device=torch.device("cpu"),
    )
    return Loop(job, writer, Reporter(), stopping or StopRequest())


def test_stopping_after_every_step_changes_nothing(tmp_path: Path) -> None:
    """What batch norm has seen is kept with the weights."""
    straight = loop_of()
    straight.run()
    run = RunDirectory(tmp_path / "run")
    for _ in range(4):
        with run.writer() as writer, pytest.raises(Interrupted):
            loop = loop_of(writer, StopAfterOne())
            loop.restore()
            loop.run()
    with run.writer() as writer:
        loop = loop_of(writer)
        loop.restore()
        loop.run()
    whole, resumed = straight.model.state_dict(), loop.model.state_dict()
    assert whole.keys() == resumed.keys() and "task.head.norms.0.running_var" in whole
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not torch.equal(whole["task.head.norms.0.running_mean"], torch.zeros(15))


def test_measuring_the_speed_leaves_what_batch_norm_has_seen() -> None:
    loop = loop_of()
    loop.model.train()
    loop._step()
    before = {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}
    assert probe_speed(loop) > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in loop.model.state_dict().items())


@pytest.mark.parametrize(
    ("key", "value"),
    [("piece", 0), ("dropout", 1.0), ("temporal", -1.0)],
)
def test_settings_that_cannot_be(key: str, value: float) -> None:
    ConcatPoolingConfig().check()
    with refused(f"pooling.{key}", f"{value}"):
        replace(ConcatPoolingConfig(), **{key: value}).check()
