"""GPT as its paper has it: the constants of the size `paper`, and the two places of dropout outside the blocks."""

from __future__ import annotations

import math

import pytest
import torch
from systems_under_test import SHAPE, TERMS, examples, trunk_of, windows
from tolerance import close, doubles, terms_of
from torch import Tensor

from foretext.objectives.causal import CausalObjective
from foretext.systems import SYSTEMS
from foretext.tasks.heads.supervised import SupervisedTask

PAPER = SYSTEMS["gpt"].sizes["paper"]
SAMPLES = 40


def test_the_papers_shape_and_vocabulary() -> None:
    model = PAPER.model
    assert (model.layers, model.width, model.heads, model.context) == (12, 768, 12, 512)
    assert (model.norm, model.epsilon, model.init_std, model.dropout) == ("post", 1e-5, 0.02, 0.1)
    assert (PAPER.tokenizer.kind, PAPER.tokenizer.size) == ("char-bpe", 40478)


def test_the_papers_pre_training() -> None:
    training = PAPER.pretraining
    assert (training.optimizer, training.rate, training.batch_size) == ("adamw", 2.5e-4, 64)
    assert (training.schedule, training.warmup_steps, training.final_rate) == ("cosine", 2000, 0.0)
    assert (training.dropout, training.weight_decay, training.clip) == (0.1, 0.01, 1.0)
    assert (training.beta1, training.beta2, training.epsilon) == (0.9, 0.999, 1e-8)


def test_the_papers_fine_tuning() -> None:
    training = PAPER.finetuning
    assert (training.optimizer, training.rate, training.batch_size) == ("adamw", 6.25e-5, 32)
    assert (training.schedule, training.warmup_steps, training.warmup, training.final_rate) == ("linear", 0, 0.002, 0.0)
    assert (training.dropout, training.weight_decay, training.clip) == (0.1, 0.01, 1.0)
    assert (PAPER.epochs, PAPER.least_updates) == (3, 0)
    plan = PAPER.transfer
    assert (plan.layers, plan.lm_weight, plan.rate_decay, plan.thaw) == (-1, 0.5, 1.0, "all")
    assert (plan.pooling, plan.head) == ("extract", "random")


def assert_dropped(found: Tensor, whole: Tensor, p: float, terms: int) -> None:
    """`found` is `whole` with a part p of it zero, drawn for each element, and the rest scaled by 1 / (1 − p)."""
    zero = found == 0
    assert bool((whole != 0).all()), "a zero says nothing if it was there before"
    part, margin = float(zero.double().mean()), 5 * math.sqrt(p * (1 - p) / zero.numel())
    assert part == pytest.approx(p, abs=margin)
    drawn = round(p * 65536) / 65536  # sixteen bits decide each
    close(found[~zero], (whole / (1 - drawn))[~zero], terms=terms)
    assert len({tuple(row) for row in zero.reshape(-1, zero.shape[-1]).tolist()}) > 1, "one mask for all"


@pytest.mark.parametrize("p", [0.1, 0.6])
@doubles()
def test_dropout_on_the_sum_of_both_embeddings(p: float) -> None:
    batch = CausalObjective().make(windows([SHAPE.context + 1] * SAMPLES))
    trunk = trunk_of("gpt", dropout=p)
    places = torch.arange(batch.ids_BT.shape[1])
    embedded = (trunk.tokens(batch.ids_BT) + trunk.positions(places)).detach()  # type: ignore[operator]
    with torch.no_grad():
        assert_dropped(trunk.train()(batch, keep_layers=True).layers[0], embedded, p, terms=3)  # two, and the scale
        close(trunk.eval()(batch, keep_layers=True).layers[0], embedded, terms=2)


@pytest.mark.parametrize("kind", ["classification", "similarity"])
@pytest.mark.parametrize("p", [0.1, 0.6])
@doubles()
def test_dropout_before_the_head(kind: str, p: float) -> None:
    """With the identity for W_y the scores are what it reads: of a similarity the sum of both orders, dropped once."""
    width = SHAPE.width
    task = SupervisedTask(kind, width, width, lm_weight=0.0, p=p)
    with torch.no_grad():
        task.head.weight.copy_(torch.eye(width))
        batch = task.make(examples(kind, SAMPLES))
        trunk = trunk_of("gpt").eval()
        states = task.pool(trunk, trunk(batch).top, batch)
        terms = terms_of(TERMS, width, 1)  # the model, the head, the scale
        assert_dropped(task.train()(trunk, batch).scores, states, p, terms)
        close(task.eval()(trunk, batch).scores, states, terms=terms)
