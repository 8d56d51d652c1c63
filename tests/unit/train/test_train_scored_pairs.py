"""Scores of pairs (STS-B) under GPT's transformation: both orders are read and their states added, so that a score does
not depend on which text comes first. Against a dense GPT in numpy that shares only the weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import refused
from dense_gpt import dense_gpt
from systems_under_test import CAUSAL, TERMS, shaken_model
from tolerance import close, doubles

from foretext.api import LanguageModel, TaskModel
from foretext.interop.hub import export_hub
from foretext.runs.report import Reporter
from foretext.tasks.family import Encoded, TaskConfig, family_of
from foretext.tasks.files.rows import Row
from foretext.tasks.heads.supervised import Example
from foretext.tasks.layouts.base import DELIMITER, EXTRACT, START
from foretext.tasks.row_family import LEAST_SPREAD, SPREAD, spread_of
from foretext.tasks.scores import metrics
from foretext.train.loop import Loop

PAIRS = [("a man eats", "a man is eating food", 4.5), ("a dog", "two men sing", 0.5), ("the sun", "the sun is up", 3.0)]
TEXTS = [(first, second) for first, second, _ in PAIRS]
SWAPPED = [(second, first) for first, second in TEXTS]
ROUNDED = 2  # scores are given out in float32
SETS = ("training.dropout=0.0", "transfer.head=random")


@pytest.fixture(autouse=True)
def _in_doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And nothing is trained: scores are those of the weights as drawn, which are large."""
    monkeypatch.setattr(Loop, "run", lambda self: self.position)
    with doubles():
        yield


def scored(system: str, *sets: str, out: Path | None = None, validated: bool = False) -> TaskModel:
    base = LanguageModel(shaken_model(system, 0.2), Path())
    rows: dict[str, Any] = {"valid": PAIRS} if validated else {"hold_out": 0.0}
    clf = base.finetune(PAIRS, task="regression", sets=(*SETS, *sets), out=out, **rows)
    head = clf.model.task
    assert head is not None
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter))
    return clf


@pytest.mark.parametrize("system", CAUSAL)
@pytest.mark.parametrize("pooling", ["extract", "mean", "concat"])
def test_the_order_of_a_pair_does_not_matter(system: str, pooling: str) -> None:
    clf = scored(system, f"transfer.pooling={pooling}")
    predicted, turned = clf.predict(TEXTS), clf.predict(SWAPPED)
    close(predicted, turned, terms=2 * TERMS)
    assert max(predicted) - min(predicted) > 0.01, "they tell pairs apart"


def test_both_orders_are_read_and_their_states_added() -> None:
    clf = scored("gpt", "transfer.pooling=extract")
    tokenizer, head, config = clf.model.tokenizer, clf.model.task.head, clf.model.task_config  # type: ignore[union-attr]
    start, delimiter, extract = (tokenizer.specials[name] for name in (START, DELIMITER, EXTRACT))
    for (first, second), predicted in zip(TEXTS, clf.predict(TEXTS), strict=True):
        orders = [tokenizer.encode(text) for text in (first, second)]
        state = sum(
            dense_gpt(clf.model.trunk, [start, *a, delimiter, *b, extract]).top_TD[-1]
            for a, b in (orders, orders[::-1])
        )
        score = head.weight.detach().numpy()[0] @ state + float(head.bias.detach())
        close(predicted, score * config.deviation + config.mean, terms=ROUNDED, precision=torch.float32)
    mean = sum(score for _, _, score in PAIRS) / 3
    assert config.mean == pytest.approx(mean) and config.both_orders and config.kind == "regression"


def test_a_run_of_an_earlier_version_reads_one_order_as_it_was_trained(tmp_path: Path) -> None:
    clf = scored("gpt", "transfer.pooling=extract")
    old = replace(clf.model, config=replace(clf.model.config, task=replace(clf.model.task_config, both_orders=False)))
    with torch.no_grad():
        predicted = TaskModel(old, None).predict(TEXTS)
    tokenizer, head = old.tokenizer, old.task.head  # type: ignore[union-attr]
    start, delimiter, extract = (tokenizer.specials[name] for name in (START, DELIMITER, EXTRACT))
    for (first, second), score in zip(TEXTS, predicted, strict=True):
        ids = [start, *tokenizer.encode(first), delimiter, *tokenizer.encode(second), extract]
        expected = head.weight.detach().numpy()[0] @ dense_gpt(old.trunk, ids).top_TD[-1] + float(head.bias.detach())
        expected = expected * old.task_config.deviation + old.task_config.mean
        close(score, expected, terms=ROUNDED, precision=torch.float32)


@pytest.mark.parametrize("system", ["gpt", "bert"])
def test_a_similarity_by_scores_is_a_regression(system: str, tmp_path: Path) -> None:
    rows = [f"main\tfile\t2012\t{n:04d}\t{score}\t{a}\t{b}" for n, (a, b, score) in enumerate(PAIRS)]
    (tmp_path / "sts-train.csv").write_text("\n".join(rows) + "\n")
    base = LanguageModel(shaken_model(system, 0.1), Path())
    for task in ("similarity", "regression"):
        clf = base.finetune(tmp_path / "sts-train.csv", task=task, format="stsb", hold_out=0.0)
        assert clf.model.task_config.kind == "regression" and clf.model.task_config.texts == 2
    with refused("--format stsb", "--task regression"):
        base.finetune(tmp_path / "sts-train.csv", task="entailment", format="stsb")


def test_it_is_not_exported_as_a_head_that_reads_one_order(tmp_path: Path) -> None:
    clf = scored("gpt", "transfer.pooling=extract")
    with refused("regression", "transformers", "classification"):
        export_hub(clf.model, tmp_path / "out")
    both = scored("bert", "transfer.pooling=pooler")
    export_hub(both.model, tmp_path / "bert")
    assert json.loads((tmp_path / "bert" / "config.json").read_text())["problem_type"] == "regression"


# -- how far scores lie from the mean --------------------------------------------------------------------------------


def encoded_scores(labels: list[float]) -> Encoded:
    rows = [Row((str(label), "x"), label, "row") for label in labels]
    return Encoded(rows, [Example((), label) for label in labels])


@pytest.mark.parametrize(
    ("scores", "spread"),
    [
        ([1.0, -1.0, 2.0, -2.0], 1.0),  # the labels themselves
        ([0.5, -0.5, 1.0, -1.0], 1.0),  # nothing is spread further than it was
        ([4.0, -4.0, 8.0, -8.0], 0.25),
        ([2.0, 2.0, -2.0, -2.0], LEAST_SPREAD),  # they know nothing
        ([-1.0, 1.0, -2.0, 2.0], LEAST_SPREAD),  # and here less than nothing
    ],
)
def test_scores_are_drawn_to_the_mean_as_far_as_the_validation_rows_ask(scores: list[float], spread: float) -> None:
    clf = scored("gpt", validated=True)
    labels, config, head = [1.0, -1.0, 2.0, -2.0], replace(clf.model.task_config, mean=3.0), clf.model.task
    encoded, family = encoded_scores(labels), family_of("regression")
    assert head is not None
    family.settle(encoded, [np.array(score) for score in scores], config, head)
    assert float(head.get_buffer(SPREAD)) == pytest.approx(spread)
    predicted = family.predictions(encoded, [np.array(score) for score in scores], config, head).values
    assert predicted == pytest.approx([3.0 + config.deviation * spread * score for score in scores])
    best = min(float(np.mean((np.array(labels) - f * np.array(scores)) ** 2)) for f in np.linspace(0.01, 1, 100))
    assert family.loss(encoded, [np.array(score) for score in scores], config, head) == pytest.approx(best, rel=1e-3)


def test_few_rows_draw_scores_further_to_the_mean() -> None:
    """The same scores and labels, once and forty times: a standard error less, which many rows make small."""
    clf = scored("gpt", validated=True)
    family, config, head, spreads = family_of("regression"), clf.model.task_config, clf.model.task, []
    assert head is not None
    for times in (1, 40):
        scores = [np.array(score) for score in (1.0, -1.5, 0.5) * times]
        family.settle(encoded_scores([1.5, -1.0, 0.0] * times), scores, config, head)
        spreads.append(float(head.get_buffer(SPREAD)))
    slope = (1.5 + 1.5) / (1.0 + 2.25 + 0.25)
    error = ((1.5 - slope) ** 2 + (-1.0 + 1.5 * slope) ** 2 + (0.5 * slope) ** 2) / 3 / 3.5
    assert spreads == pytest.approx([slope - error**0.5, slope - (error / 40) ** 0.5])


class Heard(Reporter):
    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        self.lines = dict(lines)


@pytest.mark.parametrize("rows", [{"hold_out": 0.0}, {"valid": PAIRS}], ids=["none", "some"])
def test_without_validation_rows_scores_stay_and_the_plan_says_so(rows: dict[str, Any]) -> None:
    base, heard = LanguageModel(shaken_model("gpt", 0.2), Path()), Heard()
    model = base.finetune(PAIRS, task="regression", sets=SETS, reporter=heard, **rows).model
    assert model.task_config.shrinks == ("valid" in rows) == ("validation" not in heard.lines)
    if "valid" not in rows:
        assert "the mean" in heard.lines["validation"]
        base.finetune([("a b", "x"), ("c d", "y")] * 3, task="classification", reporter=heard, **rows)
        assert "validation" not in heard.lines, "nothing else is chosen there"
    spans = TaskConfig(kind="span", unanswerable=True)
    assert family_of("span").unsettled(spans) and not family_of("span").unsettled(replace(spans, unanswerable=False))


def test_the_level_counts_when_an_epoch_is_chosen() -> None:
    """Two epochs: one orders the rows a little better, the other has their level."""
    family, config = family_of("regression"), TaskConfig(kind="regression")
    far = family.merit(metrics.score("regression", [1.0, 2.0, 3.0], [7.0, 8.0, 9.0]), 36.0 / (2 / 3), config)
    near = family.merit(metrics.score("regression", [1.0, 2.0, 3.0], [1.0, 2.1, 2.8]), 0.05 / 3 / (2 / 3), config)
    assert near > far
    better = family.merit(metrics.score("regression", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), 0.05 / 3 / (2 / 3), config)
    assert better > near, "and so does the order"


def test_a_run_of_an_earlier_version_has_no_factor(tmp_path: Path) -> None:
    clf = scored("gpt", out=tmp_path / "run", validated=True)
    config = replace(clf.model.task_config, shrinks=False)
    head = family_of("regression").head(config, clf.model.model_config, clf.model.config.transfer, 0.0)
    assert SPREAD not in head.state_dict() and SPREAD in clf.model.task.state_dict()  # type: ignore[union-attr]
    assert spread_of(config, head) == 1.0
