"""ULMFiT as its paper and its released code have it, and right to left from text to predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from systems_under_test import pretrain_request, stopping_after, write_text

import foretext as ft
from foretext.errors import Interrupted
from foretext.nn.recurrent.awd_lstm import AwdLstm
from foretext.systems.ulmfit import POOLING, SIZES, ULMFIT, WAY
from foretext.tasks.heads.concat_pooling import ConcatPoolingTask
from foretext.train.optim import Group, Optimizer, rate_at
from foretext.train.pretraining.pretrain import pretrain

PAPER = SIZES["paper"]


def test_the_papers_model() -> None:
    """30,000 · 400, and for each layer 4 · cells · (inputs + cells + 2)."""
    shape = replace(PAPER.model, vocabulary=30_000)
    assert shape.parameters() == 12_000_000 + 7_139_200 + 10_589_200 + 2_483_200
    assert shape.widths() == [(400, 1150), (1150, 1150), (1150, 400)] and shape.context == 70
    assert (PAPER.objective.activation, PAPER.objective.temporal) == (2.0, 1.0)
    head = ConcatPoolingTask("classification", 2, 400, POOLING).head
    assert [tuple(linear.weight.shape) for linear in head.linears] == [(50, 1200), (2, 50)]
    assert (POOLING.piece, POOLING.learned) == (shape.context, 20 * 70)


@pytest.mark.parametrize("name", SIZES)
def test_every_size_can_be_built_on(name: str) -> None:
    size = SIZES[name]
    size.objective.check()
    replace(size.model, vocabulary=100, dropout=size.finetuning.dropout).check()
    assert isinstance(size.objective, ULMFIT.objective_config) and isinstance(size.model, ULMFIT.config)
    assert size.epochs >= size.model.layers + 2, "embeddings, layers and head all thaw"


def test_rates_over_time_are_the_papers_slanted_triangle() -> None:
    """η_t = η (1 + p (ratio − 1)) / ratio, p rising until T/10 and falling after."""
    config, steps = PAPER.finetuning, 1000
    for step in range(0, steps, 7):
        cut = steps // 10
        p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / 0.1 - 1))
        literal = config.rate * (1 + p * 31) / 32
        found = rate_at(config, step / steps, step)
        if step >= cut:
            assert found == pytest.approx(literal, rel=1e-9)
        else:
            assert abs(found - literal) <= config.rate / 32, "it rises from 0, not from 1/32"


def test_rates_by_depth_and_thawing_are_the_released_codes() -> None:
    """lr/2.6⁴ … lr over embeddings, three layers and head; each epoch exactly one group more learns."""
    trunk = AwdLstm(replace(PAPER.model, vocabulary=4, width=2, hidden=3))
    lstm = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    groups = [["tokens.weight"], *([f"layers.{n}.{part}" for part in lstm] for n in range(3)), ["head"]]
    assert trunk.layer_groups() == groups[:-1]
    factors = [WAY.transfer.rate_factor(number, 5) for number in range(5)]
    assert factors == pytest.approx([2.6**-4, 2.6**-3, 2.6**-2, 1 / 2.6, 1.0])
    parameters = dict(trunk.named_parameters()) | {"head": torch.nn.Parameter(torch.zeros(1))}
    made = [Group(names, factors[i], WAY.transfer.thaws_at(i, 5, 14, 1)) for i, names in enumerate(groups)]
    optimizer = Optimizer(PAPER.finetuning, parameters, made)
    for epoch in range(6):
        optimizer.thaw(epoch)
        thawed = {name for name, parameter in parameters.items() if parameter.requires_grad}
        assert thawed == {name for names in groups[max(0, 4 - epoch) :] for name in names}


SETS = (
    *("model.width=8", "model.hidden=12", "model.context=8", "tokenizer.size=300", "training.batch_size=4"),
    *("training.dropout=0.5", "objective.activation=1", "objective.temporal=1", "objective.length_spread=1"),
)


def test_it_is_pretrained_right_to_left_and_used(tmp_path: Path) -> None:
    """Stopped, gone on with, and fine-tuned with its pooling."""
    text = write_text(tmp_path)
    request = pretrain_request("ulmfit", text, tmp_path / "straight", 5, sets=SETS, direction="backward")
    pretrain(request)
    stopped = replace(request, out=tmp_path / "stopped")
    with stopping_after(3) as stop, pytest.raises(Interrupted):
        pretrain(stopped, stopping=stop)
    pretrain(replace(stopped, resume=True))
    model = ft.load(tmp_path / "straight")
    whole, resumed = (ft.load(path).model.trunk.state_dict() for path in (request.out, stopped.out))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert model.perplexity("The cat sees fish.").per_token > 1
    rows = [("good one " * 30, "a"), ("bad one " * 30, "b")] * 4
    task = model.finetune(rows, task="classification", epochs=1)
    assert isinstance(task.model.task, ConcatPoolingTask) and len(task.predict(["good one"])) == 1
