"""Tagging and span answers from rows to a run and back: learning, windows, going on, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import names, refused
from noting import Notes
from systems_under_test import (
    AT_ONCE,
    CONTEXTUAL,
    SMALL_READER,
    TINY,
    TRANSFORMERS,
    base_model,
    pairwise,
    reads_whole,
    stopping_after,
    taught,
)
from tolerance import close, doubles

import foretext as ft
from foretext.api import TaskModel
from foretext.errors import Interrupted
from foretext.runs.directory import RunDirectory
from foretext.runs.model import encode, example_scores, load_model, mean_losses
from foretext.runs.report import Reporter
from foretext.tasks.family import Reading, family_of
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.files.squad import Answer, Question
from foretext.train.finetuning.finetune import FinetuneRequest, finetune
from foretext.train.loop import Loop

KINDS = ("tagging", "span")
SETS = ("training.dropout=0.0", "training.batch_size=4", "training.rate=0.005")
CONTEXT = 48  # of `base_model`, whose tokens are bytes
ROUND = (("ax", "B-X"), ("by", "I-X"), ("cz", "O"))


def sentences(count: int, words: tuple[int, int] = (3, 9), seed: int = 0) -> list[TaggedSentence]:
    """Words in a fixed round, so that a model that reads left to right can tell a word where it begins."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        first = draw.choice([0, 2])
        chosen = [ROUND[(first + place) % 3] for place in range(draw.randint(*words))]
        made.append(TaggedSentence(*map(tuple, zip(*chosen)), f"sentence {number + 1}"))  # type: ignore[arg-type]
    return made


def questions(count: int, words: tuple[int, int] = (4, 11), seed: int = 0, impossible: bool = False) -> list[Question]:
    """The answer is the one digit of the passage; every third passage has none, if so wanted."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        chosen = [draw.choice(["ab", "cd", "ef"]) for _ in range(draw.randint(*words))]
        none = impossible and number % 3 == 0
        if not none:
            chosen[draw.randrange(len(chosen))] = "7"
        passage = " ".join(chosen)
        answers = () if none else (Answer("7", passage.index("7")),)
        made.append(Question(str(number), "what", passage, answers, none, f"question {number + 1}"))
    return made


ROWS: dict[str, Callable[..., list[Any]]] = {"tagging": sentences, "span": questions}
LONG = (40, 50)  # words, of three bytes each
LONGER = (20, 25)  # than the context, by as little as makes two or three windows


def request_of(kind: str, rows: list[Any] | None = None, **changes: Any) -> FinetuneRequest:
    rows = ROWS[kind](16) if rows is None else rows
    settings: dict[str, Any] = {"base": base_model(), "rows": rows, "kind": kind, "epochs": 2, "sets": SETS}
    return FinetuneRequest(**(settings | changes))


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tuning that stops short of the first step."""
    monkeypatch.setattr(Loop, "run", lambda self: self.position)


@pytest.mark.parametrize(("system", "kind"), pairwise(taught(KINDS), once=("elmo", "cvt")))
def test_a_plain_rule_is_learned_and_comes_back_from_disk(system: str, kind: str, tmp_path: Path) -> None:
    rows = ROWS[kind](16)
    slow = system in TRANSFORMERS and kind == "tagging"
    epochs, rate = (16, "0.005") if slow else (8, "0.01")
    request = request_of(kind, rows, base=base_model(system), out=tmp_path / "run", valid=rows, epochs=epochs)
    sets = (*SETS, *AT_ONCE, *SMALL_READER[system], f"training.rate={rate}")
    model = TaskModel(finetune(replace(request, sets=sets)).model, tmp_path / "run")
    logged = [row["validation"] for row in RunDirectory(tmp_path / "run").metrics() if "validation" in row]
    losses = [figures["loss"] for figures in logged]
    assert len(losses) == epochs and min(losses) < 0.5 * losses[0], losses
    measured = model.evaluate(rows)
    assert measured.main == "f1" and measured.main_value > 0.9, measured
    assert max(figures["f1"] for figures in logged) == pytest.approx(measured.main_value), "the best epoch is kept"
    again = ft.load(tmp_path / "run")
    assert isinstance(again, TaskModel)
    assert again.predict(rows) == model.predict(rows)
    assert again.predictions(rows) == model.predictions(rows), "probabilities and candidates too"


@pytest.mark.parametrize(("system", "kind"), pairwise(taught(KINDS)))
def test_the_loss_of_scores_is_that_of_the_head(system: str, kind: str, untrained: None) -> None:
    rows = ROWS[kind](6, LONG)
    with doubles():
        model = finetune(request_of(kind, rows, base=base_model(system), valid=[])).model
        assert model.task is not None
        with torch.no_grad():
            model.task.head.weight.mul_(20)  # so that the loss is not that of a guess
        encoded = encode(rows, model, Reporter())
        scores = example_scores(model, encoded.examples)
        expected = mean_losses(model.trunk, model.task, [model.task.make(encoded.examples)])["label"]
        loss = family_of(kind).loss(encoded, scores, model.task_config, model.task)
    largest = max(float(np.abs(one[np.isfinite(one)]).max()) for one in scores)
    close(loss, expected, terms=2, size=largest, precision=torch.float32)  # the scores are handed out in float32


# -- windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [name for name in TINY if reads_whole(name)])
@pytest.mark.parametrize("kind", KINDS)
def test_long_rows_are_read_whole_where_no_context_bounds_them(system: str, kind: str, untrained: None) -> None:
    rows, heard = ROWS[kind](5, LONG), Notes()
    model = finetune(request_of(kind, rows, base=base_model(system), valid=[]), heard).model
    examples = encode(rows, model, Reporter()).examples
    assert len(examples) == 5 and all(example.tokens > 2 * CONTEXT for example in examples)
    assert not any("longer" in line for line in heard.notes)


@pytest.mark.parametrize(
    ("system", "kind"), pairwise([one for one in taught(KINDS) if not reads_whole(one[0]) and one[0] in CONTEXTUAL])
)
def test_long_rows_are_read_in_windows(system: str, kind: str) -> None:
    rows, heard = ROWS[kind](3, LONG), Notes()
    sets = (*SETS, *SMALL_READER[system])
    model = finetune(request_of(kind, rows, base=base_model(system), valid=[], epochs=1, sets=sets), heard).model
    encoded = encode(rows, model, Reporter())
    windows = len(encoded.examples)
    assert windows > 3 * len(rows) and all(example.tokens <= CONTEXT for example in encoded.examples)
    assert model.config.budget.steps == -(-windows // 4), "updates count windows"
    names(heard.plans[0]["rows"], "3 ", "0 ", f"{windows:,} windows")
    names(heard.plans[0]["budget"], "of 4 windows")
    what = {"tagging": "sentences", "span": "passages"}[kind]
    (longer,) = (line for line in heard.notes if "longer" in line)
    names(longer, f"3 of 3 {what}", f"{CONTEXT} tokens")
    predicted = TaskModel(model, None).predict(rows)
    if kind == "tagging":
        assert [len(tags) for tags in predicted] == [len(row.words) for row in rows]
    else:
        assert all(text and text in row.passage for text, row in zip(predicted, rows))


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_is_learned_over_windows(kind: str) -> None:
    rows = ROWS[kind](8, LONG)
    model = TaskModel(finetune(request_of(kind, rows, valid=rows, epochs=6), Reporter()).model, None)
    measured = model.evaluate(rows, reporter=Reporter())
    assert measured.main_value > 0.8, measured


@pytest.mark.parametrize("kind", KINDS)
def test_few_windows_are_read_more_often(kind: str, untrained: None) -> None:
    rows = ROWS[kind](8)
    model = finetune(request_of(kind, rows, valid=[], epochs=None)).model
    assert model.task_config.epochs == 20 and model.config.budget.steps == 40
    long = finetune(request_of(kind, ROWS[kind](8, LONG), valid=[], epochs=None), Reporter()).model
    assert long.task_config.epochs < 20, "each row gives several examples"


# -- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("system", "kind"), pairwise(taught(KINDS), once=("elmo", "cvt")))
def test_going_on_equals_never_stopping(system: str, kind: str, tmp_path: Path) -> None:
    rows = ROWS[kind](6, LONGER) if kind == "tagging" else questions(6, LONGER, impossible=True)
    sets = ("training.batch_size=4", "training.dropout=0.2", *SMALL_READER[system])
    request = request_of(kind, rows, base=base_model(system), out=tmp_path / "a", epochs=2, hold_out=0.3, sets=sets)
    with stopping_after(2, 143) as stop, pytest.raises(Interrupted):
        finetune(request, Reporter(), stop)
    with refused(f"{tmp_path / 'a'}:", "rows", "--valid", "--hold-out"):
        finetune(replace(request, rows=ROWS[kind](6, LONGER, seed=9), resume=True), Reporter())
    finetune(replace(request, resume=True, epochs=None), Reporter())
    finetune(replace(request, out=tmp_path / "b"), Reporter())
    a, b = (RunDirectory(tmp_path / name) for name in "ab")
    assert a.read("model.safetensors") == b.read("model.safetensors")
    assert load_model(a.path).config.budget == load_model(b.path).config.budget
    heard = Notes()
    finetune(replace(request, resume=True), heard)
    assert any(str(tmp_path / "a") in line and "finished" in line for line in heard.notes)


# -- what is resolved ------------------------------------------------------------------------------------------------


def test_what_is_kept_of_the_rows(untrained: None) -> None:
    tags = finetune(request_of("tagging")).model.task_config
    assert (tags.labels, tags.scheme, tags.fallback, tags.metric) == (("B-X", "I-X", "O"), "iob2", "O", None)
    old = [replace(row, tags=tuple(tag.replace("B", "I") for tag in row.tags or ())) for row in sentences(16)]
    turned = finetune(request_of("tagging", old)).model.task_config
    assert (turned.labels, turned.scheme) == (("B-X", "I-X", "O"), "iob1")
    speech = [replace(row, tags=tuple(word.upper() for word in row.words)) for row in sentences(16)]
    plain = finetune(request_of("tagging", speech, metric="f1_macro")).model.task_config
    assert (plain.labels, plain.scheme, plain.metric) == (("AX", "BY", "CZ"), "", "f1_macro")
    assert not finetune(request_of("span")).model.task_config.unanswerable
    assert finetune(request_of("span", questions(16, impossible=True))).model.task_config.unanswerable


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_head_is_for_whole_texts(kind: str, untrained: None) -> None:
    for sets, said in ((SETS, False), ((*SETS, "transfer.head=probe"), True)):
        heard = Notes()
        model = finetune(request_of(kind, sets=sets), heard).model
        assert model.config.transfer.head == "random"
        assert any("transfer.head=probe" in line and kind in line for line in heard.notes) == said


@pytest.mark.parametrize("kind", KINDS)
def test_pooling_is_for_whole_texts(kind: str, untrained: None) -> None:
    pooled = (*SETS, "transfer.pooling=concat", "transfer.head=random")
    for changes in ({"plan": "ulmfit"}, {"sets": pooled}):
        heard = Notes()
        model = finetune(request_of(kind, **changes), heard).model
        assert model.config.transfer.pooling == "extract"
        assert any("transfer.pooling=concat" in line and kind in line for line in heard.notes)


@pytest.mark.parametrize("kind", [*KINDS, "classification"])
def test_a_model_that_sees_both_sides_has_no_language_model_loss(kind: str, untrained: None) -> None:
    base = base_model()
    base.system = replace(base.system, causal=False)
    rows = ROWS.get(kind, lambda count: [(f"text {i}", "ab"[i % 2]) for i in range(count)])(16)
    made = family_of(kind).from_data(rows, Reading(kind))
    request = request_of("tagging", made, base=base)
    request = replace(request, kind=kind)
    for changes in ({"lm_weight": 0.5}, {"sets": (*SETS, "transfer.lm_weight=0.5")}):
        with refused("lm_weight 0.5:", "gpt", " 0"):
            finetune(replace(request, **changes))
    for changes in ({}, {"lm_weight": 0.0}):
        assert finetune(replace(request, **changes)).model.config.transfer.lm_weight == 0.0


# -- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("untrained")
def test_rows_that_cannot_be_learned_from() -> None:
    unknown = [*sentences(12), TaggedSentence(("ax",), None, "a.txt line 99")]
    with refused("a.txt line 99:", "tags"):
        finetune(request_of("tagging", unknown))
    same = [replace(row, tags=("O",) * len(row.words)) for row in sentences(12)]
    with refused("sentence 1", "'O'", "--columns tag=NUMBER"):
        finetune(request_of("tagging", same))
    unanswered = [*questions(12), Question("99", "what", "ab", (), False, "a.json question 99")]
    with refused("a.json question 99:", "answer"):
        finetune(request_of("span", unanswered))
    with refused("12 questions"):
        finetune(request_of("span", [replace(one, answers=(), impossible=True) for one in questions(12)], valid=[]))
    for kind, metric in (("tagging", "matthews"), ("span", "accuracy")):
        with refused(f"--metric {metric}:", "f1"):
            finetune(request_of(kind, metric=metric))


def test_a_tag_that_was_not_trained_on_is_wrong_and_said(untrained: None) -> None:
    model = TaskModel(finetune(request_of("tagging")).model, None)
    heard = Notes()
    rows = [TaggedSentence(("ax", "by"), ("B-X", "B-NEW"), "b.txt line 1")]
    scores = model.evaluate(rows, reporter=heard)
    (said,) = heard.notes
    names(said, "1 words", "'B-NEW'")
    assert {item.label for item in scores.per_class} >= {"NEW", "X"} and scores.values["accuracy"] <= 0.5
    with refused("b.txt line 1:", "'.', 'NN'", "'B-X', 'I-X', 'O'", "--columns tag=NUMBER"):
        model.evaluate([TaggedSentence(("ax", "."), ("NN", "."), "b.txt line 1")])


def test_questions_about_a_passage_are_held_out_together() -> None:
    answers = (Answer("7", 5),)
    rows = [replace(one, passage=f"ab {i // 4} 7", answers=answers) for i, one in enumerate(questions(40))]
    for seed in range(5):
        split = family_of("span").hold_out(rows, 0.15, seed)
        assert split.valid and not {one.passage for one in split.train} & {one.passage for one in split.valid}


def test_no_answer_is_learned_with_its_threshold(tmp_path: Path) -> None:
    rows = questions(24, impossible=True)
    request = request_of("span", rows, valid=rows, epochs=20, out=tmp_path / "run")
    model = TaskModel(finetune(request).model, None)
    measured = model.evaluate(rows)
    assert {"has_answer_f1", "no_answer_f1"} <= measured.values.keys()
    assert measured.main_value > 0.9, measured
    predicted = model.predict(rows)
    assert sum(text == "" for text in predicted) == pytest.approx(8, abs=2)
    threshold = load_model(tmp_path / "run").task.state_dict()["threshold"]
    assert threshold == model.model.task.threshold and bool(torch.isfinite(threshold))
