"""ELMo as an autoregressive model: its forward direction writes and is prompted, its backward one writes before a text.
Against the paper's equations in numpy, which share nothing with the code but the weights and the words' characters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from complaints import refused
from stirred_models import stirred
from systems_under_test import PRETRAINED, base_model, objective_of
from tolerance import close, doubles, terms_of

import foretext as ft
from foretext.api import LanguageModel
from foretext.evaluate.in_context import Template, answer_rows
from foretext.evaluate.likelihood import Query, score_queries
from foretext.generate.sampling import Decoder, reader_of
from foretext.objectives.bidirectional import BilmObjective, spelling
from foretext.runs.model import encode, facing
from foretext.systems import SYSTEMS
from foretext.tasks.files.rows import Row
from foretext.train.loop import Loop

TARGETS = 16
# A word out of its characters; each of ten words through two layers of 16 cells, projected to 8; the softmax.
TERMS = terms_of(2 * 16 + 3 * 16, 10 * 2 * (16 + 2 * 8), 8 + TARGETS)


@pytest.fixture(scope="module", autouse=True)
def _in_doubles() -> Iterator[None]:
    with doubles():
        yield


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return stirred("elmo", tmp_path_factory.mktemp("elmo"), 2, f"objective.targets={TARGETS}", "objective.samples=4")


def log_probabilities(lm: LanguageModel, ids: list[int], backward: bool) -> np.ndarray:
    """log P(next word | ids), read in their order, as Peters et al. write it."""
    trunk, objective = lm.model.trunk, lm.model.objective
    assert isinstance(objective, BilmObjective)
    w = {name: p.detach().numpy() for name, p in trunk.bilm.named_parameters()}  # type: ignore[union-attr]
    config = lm.model.model_config
    characters = spelling(lm.model.tokenizer, np.array(ids), config.words.length)  # type: ignore[attr-defined]

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def word(row: np.ndarray) -> np.ndarray:
        table, found = w["words.characters.weight"][row], []
        for number in itertools.count():
            if f"words.filters.{number}.weight" not in w:
                break
            kernel, bias = w[f"words.filters.{number}.weight"], w[f"words.filters.{number}.bias"]
            width = kernel.shape[2]
            slides = [np.einsum("fec,ce->f", kernel, table[at : at + width]) for at in range(len(row) - width + 1)]
            found.append(np.maximum(np.max(slides, axis=0) + bias, 0))
        x = np.concatenate(found)
        highway = "words.highways.0."
        gate = sigmoid(w[highway + "gate.weight"] @ x + w[highway + "gate.bias"])
        carried = np.maximum(w[highway + "transform.weight"] @ x + w[highway + "transform.bias"], 0)
        x = gate * carried + (1 - gate) * x
        return w["words.project.weight"] @ x + w["words.project.bias"]

    states = [word(row) for row in characters]
    for layer in range(config.layers):
        part = f"{'backwards' if backward else 'forwards'}.lstms.{layer}."
        h, c = np.zeros(w[part + "recurrent.weight"].shape[1]), np.zeros(w[part + "project.weight"].shape[1])
        outputs = []
        for x in states:
            gates = w[part + "input.weight"] @ x + w[part + "input.bias"] + w[part + "recurrent.weight"] @ h
            i, f, g, o = np.split(gates, 4)
            c = np.clip(sigmoid(f) * c + sigmoid(i) * np.tanh(g), -3, 3)
            h = np.clip(w[part + "project.weight"] @ (sigmoid(o) * np.tanh(c)), -3, 3)
            outputs.append(h + x if layer else h)
        states = outputs
    scores = objective.head.table_VD.detach().numpy() @ states[-1] + objective.head.bias_V.detach().numpy()
    return scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_what_comes_next_is_that_of_one_direction(lm: LanguageModel, direction: str) -> None:
    """Whether read at once, beside a longer row, or a word at a time."""
    ids = lm.model.tokenizer.encode("The old man sees the cat.")
    model = facing(lm.model, direction)
    decoder = Decoder(model, [ids[:4], ids])
    for place in (4, 5, 6):
        found = decoder.logits().log_softmax(-1)
        for row in (0, 1):
            read = decoder.rows[row]
            close(found[row].numpy(), log_probabilities(lm, read, direction == "backward"), terms=TERMS)
        decoder.append([ids[place], ids[place]])


def test_logits_are_those_of_the_next_word(lm: LanguageModel) -> None:
    ids = lm.model.tokenizer.encode("The old man")
    found = lm.logits(ids)
    assert found.shape == (3, lm.model.tokenizer.size) and found.dtype == np.float32
    assert (found[:, TARGETS:] == -np.inf).all()
    said = torch.from_numpy(found[:, :TARGETS]).log_softmax(-1)
    for place in range(3):
        close(said[place], log_probabilities(lm, ids[: place + 1], backward=False), terms=TERMS)


def test_completions_after_a_context(lm: LanguageModel) -> None:
    """Words beyond the softmax count as the unknown one; what contexts share is read once."""
    tokenizer = lm.model.tokenizer
    contexts = [tokenizer.encode(text) for text in ("The old man sees", "The old man likes the", "The cat")]
    answers = [tokenizer.encode(text) for text in ("fish.", "the sun.", "a Zyzzyva")]
    assert any(id >= TARGETS for answer in answers for id in answer) and tokenizer.unknown is not None
    queries = [Query(tuple(context), tuple(map(tuple, answers))) for context in contexts]
    for context, found in zip(contexts, score_queries(lm.model, queries), strict=True):
        for answer, one in zip(answers, found, strict=True):
            expected, greedy, read = 0.0, True, list(context)
            for id in answer:
                scores = log_probabilities(lm, read, backward=False)
                told = id if id < TARGETS else tokenizer.unknown
                expected, greedy, read = expected + scores[told], greedy and scores.argmax() == told, [*read, id]
            close(one.total, expected, terms=len(answer) * TERMS)
            assert one.greedy == greedy and one.tokens == len(answer) and one.cut == 0


def test_prompted_from_the_right(lm: LanguageModel) -> None:
    """The backward model tells the answer from what stands behind it, and the context from the answer."""
    model, tokenizer, labels = facing(lm.model, "backward"), lm.model.tokenizer, ("fish.", "a Zyzzyva")
    asked, known = Row(("The old man sees",), "fish.", "row 1"), Row(("The cat likes",), "fish.", "row 2")
    template = Template("classification", "{text} {label}", labels)
    assert tokenizer.end is not None and tokenizer.unknown is not None
    for shots, behind in ((0, [tokenizer.end]), (1, tokenizer.encode("The cat likes fish.")[::-1])):
        ((answered,),) = [one.answers for one in answer_rows(model, template, [asked], [known], shots, [0])]
        for answer, total, channel in zip(labels, answered.scores("sum"), answered.scores("channel"), strict=True):
            first, rest = (tokenizer.encode(text)[::-1] for text in (answer, asked.texts[0]))
            read, told = list(behind), list[float]()
            for id in first + rest:
                told.append(log_probabilities(lm, read, backward=True)[id if id < TARGETS else tokenizer.unknown])
                read.append(id)
            close(total, sum(told), terms=len(told) * TERMS)
            close(channel, sum(told[len(first) :]), terms=len(told) * TERMS)


def test_it_writes_behind_a_prompt_and_before_it(lm: LanguageModel) -> None:
    prompt = "The old man"
    behind = lm.generate(prompt, max_tokens=3, temperature=0)
    before = lm.facing("backward").generate(prompt, max_tokens=3, temperature=0)
    tokenizer, ids = lm.model.tokenizer, lm.model.tokenizer.encode(prompt)
    never = [number for number in tokenizer.specials.values() if number < TARGETS and number != tokenizer.end]
    for backward, text in ((False, behind), (True, before)):
        read, words = ids[::-1] if backward else list(ids), list[int]()
        for _ in range(3):
            scores = log_probabilities(lm, read, backward)
            scores[never] = -np.inf
            best = int(scores.argmax())
            if best == tokenizer.end:
                break
            words, read = [*words, best], [*read, best]
        written = tokenizer.decode(words[::-1] if backward else words)
        assert text.strip() == written
        assert not text or (text.endswith(" ") if backward else text.startswith(" ")), "the two read right together"


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_auxiliary_loss_is_that_of_one_direction(
    lm: LanguageModel, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """λ·L1 of GPT: the mean over a text's words, then over texts. A text stands between two borders; the first is given
    to the forward direction, and the backward one tells the words."""
    monkeypatch.setattr(Loop, "run", lambda self: self.position)
    rows = [("The old man sees the cat.", "a"), ("The Zyzzyva", "b"), ("fish.", "a")]
    model = lm.facing(direction).finetune(rows, task="classification", plan="gpt", hold_out=0.0).model
    task, tokenizer, backward = model.task, lm.model.tokenizer, direction == "backward"
    assert model.task_config.softmax == TARGETS and task is not None and tokenizer.unknown is not None
    examples = encode([Row((text,), label, "row") for text, label in rows], model).examples
    batch = task.make(examples)
    found = task.eval()(model.trunk.eval(), batch).losses["lm"]
    nats = []
    for example in examples:
        ids = list(example.sequences[0].ids)
        ids, last = (ids[::-1], len(ids) - 1) if backward else (ids, len(ids))
        told = [id if id < TARGETS else tokenizer.unknown for id in ids]
        own = [-log_probabilities(lm, ids[:place], backward)[told[place]] for place in range(1, last)]
        nats.append(sum(own) / len(own))
    close(found.total / found.count, sum(nats) / len(nats), terms=TERMS + 10)


def test_the_auxiliary_loss_teaches_its_softmax_and_comes_back_from_disk(lm: LanguageModel, tmp_path: Path) -> None:
    rows = [("The old man", "a"), ("The cat sees", "b")] * 4
    clf = lm.finetune(rows, task="classification", plan="gpt", epochs=1, hold_out=0.0, out=tmp_path / "clf")
    before, after = lm.model.objective.head.table_VD, clf.model.trunk.softmax.table_VD  # type: ignore[union-attr]
    assert before.shape == after.shape and not torch.equal(before, after)
    again = ft.load(tmp_path / "clf")
    np.testing.assert_array_equal(again.predict_proba(["The cat"]), clf.predict_proba(["The cat"]))  # type: ignore[union-attr]


def test_several_at_once_beams_and_penalties(lm: LanguageModel) -> None:
    prompts = ["The old man", "Zyzzyva", ""]
    for written in lm.generate_many(prompts, max_tokens=4, seed=1, repetition_penalty=1.3):
        assert all(id < TARGETS for id in written.ids) and len(written.log_probabilities) == len(written.ids)
    assert lm.beam_search("The Zyzzyva", beams=3, max_tokens=3, repetition_penalty=1.3)


@pytest.mark.parametrize("system", PRETRAINED)
def test_which_systems_write(system: str) -> None:
    """A refusal names those that do."""
    model = replace(base_model(system), objective=objective_of(system))
    if SYSTEMS[system].writes:
        reader_of(model)
        return
    able = [name for name in PRETRAINED if SYSTEMS[name].writes]
    with refused(system, ", ".join(able), *(["foretext fill"] if SYSTEMS[system].fills else [])):
        reader_of(model)


def test_only_elmo_has_both_directions(lm: LanguageModel, tmp_path: Path) -> None:
    assert facing(lm.model, "forward") is lm.model
    with refused("--direction sideways"):
        lm.facing("sideways")
    with refused("--direction backward", "gpt", "foretext pretrain", "--direction backward"):
        facing(base_model("gpt"), "backward")
    for system in ("xlnet", "bert", "electra"):
        with refused("--direction backward", system, "leave") as caught:
            facing(base_model(system), "backward")
        assert "foretext pretrain" not in str(caught.value), "there is none to train"
