"""Cross-view training's losses against loops over words, who learns from what, and the whole loop on a toy task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.batch import IGNORE
from foretext.errors import UserError
from foretext.nn.averaging import AveragedWeights
from foretext.nn.cvt import CvtConfig, CvtEncoder, WordBatch
from foretext.objectives.cross_view import (
    CrossViewObjective,
    CrossViewSettings,
    CrossViewTask,
    WordExample,
    WordExamples,
)
from foretext.systems.base import TrainingConfig
from foretext.text.buckets import LengthOrder
from foretext.text.turns import ExamplesInTurn, Source, Turns
from foretext.text.word_list import END, START, UNKNOWN, WordList
from foretext.train.budget import Budget
from foretext.train.loop import Job, Loop, Stage
from foretext.train.optim import Group, Optimizer
from foretext.train.report import Silent
from foretext.train.signals import NeverStop

WORDS = WordList(("a", "man", "dog", "sleeps", "00"))
CONFIG = CvtConfig(
    vocabulary=WORDS.size,
    vectors=4,
    char_widths=(2,),
    char_filters=3,
    char_embedding=3,
    char_length=7,
    cells=5,
    upper_cells=4,
    direction=4,
)
SETTINGS = CrossViewSettings(hidden=6)
TASKS = (CrossViewTask("tags", "tagging", 3), CrossViewTask("mood", "sentence", 2))
TAGGED = [
    WordExample(("A", "man", "sleeps"), 0, (0, 1, 2)),
    WordExample(("dog",), 0, (1,)),
    WordExample(("a", "Dog", "sleeps", "12"), 0, (0, 1, IGNORE, 2)),
]
MOODS = [WordExample(("a", "man"), 1, (1,)), WordExample(("dog", "sleeps", "well"), 1, (0,))]
PLAIN = [WordExample(words) for words in (("a", "dog", "sleeps", "!"), ("dog",), ("a", "man"), ("99", "x", "dog"))]
VIEWS = ("forward", "backward", "future", "past")


def parts(p: float = 0.0, settings: CrossViewSettings = SETTINGS) -> tuple[CvtEncoder, CrossViewObjective]:
    config = replace(CONFIG, dropout=p, unlabelled_dropout=p)
    return CvtEncoder(config).double(), CrossViewObjective(config, settings, TASKS, WORDS).double()


# -- batches ---------------------------------------------------------------------------------------------------------


def test_sentences_have_borders_and_words_their_ids() -> None:
    _, objective = parts()
    batch = objective.make(TAGGED)
    assert batch.ids_BT.tolist() == [[START, 3, 4, 6, END, 0], [START, 5, END, 0, 0, 0], [START, 3, 5, 6, 7, END]]
    assert batch.words_BT.tolist()[0] == [False, True, True, True, False, False]
    assert batch.targets_BT.tolist()[2] == [IGNORE, 0, 1, IGNORE, 2, IGNORE] and batch.labels is None
    assert objective.counts(batch)["tags"] == 3 + 1 + 3 and batch.real_tokens == 5 + 3 + 6
    moods = objective.make(MOODS)
    assert moods.labels.tolist() == [1, 0] and moods.targets_BT is None
    assert moods.ids_BT[1, 3] == UNKNOWN and objective.counts(moods)["mood"] == 2
    unlabelled = objective.make(PLAIN)
    assert unlabelled.task is None and unlabelled.targets_BT is None and unlabelled.labels is None
    moved = unlabelled.to(torch.device("cpu"))
    assert isinstance(moved, WordBatch) and torch.equal(moved.spelled_BT, unlabelled.spelled_BT)
    short = CrossViewObjective(replace(CONFIG, context=2), SETTINGS, TASKS, WORDS).make(TAGGED)
    assert short.ids_BT.shape == (3, 4) and short.targets_BT.tolist()[0] == [IGNORE, 0, 1, IGNORE]


def test_names_weights_and_counts() -> None:
    _, objective = parts(settings=replace(SETTINGS, unlabelled_weight=0.5))
    views = {f"tags.{view}" for view in VIEWS} | {"mood.forward", "mood.backward"}
    assert objective.weights == {"tags": 1.0, "mood": 1.0} | dict.fromkeys(views, 0.5)
    assert objective.counts(objective.make(PLAIN)) == {
        **{"tags": 0, "tags.forward": 10, "tags.backward": 10, "tags.future": 6, "tags.past": 6},
        **{"mood": 0, "mood.forward": 4, "mood.backward": 4},
    }
    labelled = objective.counts(objective.make(MOODS))
    assert labelled.pop("mood") == 2 and not any(labelled.values())


# -- losses ----------------------------------------------------------------------------------------------------------


def test_labelled_loss_is_smoothed_cross_entropy_of_the_primary() -> None:
    trunk, objective = parts()
    outcome = objective.train()(trunk, objective.make(TAGGED))
    primary = objective.parts[0].of_view["primary_view"]
    expected, count = 0.0, 0
    for row, example in enumerate(TAGGED):
        states = trunk.states(objective.make([example]), 0.0)
        for place, tag in enumerate(example.labels, 1):
            logits = primary(torch.cat([states.lower_BTD[0, place], states.top_BTD[0, place]])[None])[0]
            torch.testing.assert_close(outcome.scores[row, place], logits)
            if tag != IGNORE:
                wanted = [0.9 * (tag == label) + 0.1 / 3 for label in range(3)]
                expected -= sum(w * float(x) for w, x in zip(wanted, torch.log_softmax(logits.detach(), 0)))
                count += 1
    assert outcome.losses.keys() == {"tags"} and outcome.losses["tags"].count == count == 7
    assert float(outcome.losses["tags"].total.detach()) == pytest.approx(expected)
    plain = objective.eval()(trunk, objective.make(TAGGED)).losses["tags"].total
    assert float(plain.detach()) != pytest.approx(expected), "no smoothing where nothing is learned"
    scores = objective(trunk, objective.make([replace(example, labels=None) for example in TAGGED]))
    assert not scores.losses
    asked = [example.asked(row) for example, row in zip(TAGGED, scores.scores.detach().numpy())]
    assert [len(rows) for rows in asked] == [3, 1, 4]
    np.testing.assert_allclose(asked[2][0], outcome.scores[2, 1].detach().numpy())


def slow_kl(trunk: CvtEncoder, objective: CrossViewObjective) -> dict[str, Tensor]:
    """One word after the other, with the primary's probabilities as plain numbers."""
    found: dict[str, Tensor] = {}

    def add(name: str, primary: Tensor, view: Tensor) -> None:
        p = torch.softmax(primary, 0).tolist()
        q = torch.softmax(view, 0)
        loss = sum(one * (np.log(one) - torch.log(other)) for one, other in zip(p, q))
        found[name] = found.get(name, 0.0) + loss

    tags, moods = objective.parts[0].of_view, objective.parts[1].of_view
    for example in PLAIN:
        states = trunk.states(objective.make([example]), 0.0)
        forward, backward = states.forward_BTD[0], states.backward_BTD[0]
        every = torch.cat([forward, backward, states.top_BTD[0]], 1)
        last = len(example.words)
        for t in range(1, last + 1):
            primary = tags["primary_view"](every[t])
            add("tags.forward", primary, tags["forward_view"](forward[t]))
            add("tags.backward", primary, tags["backward_view"](backward[t]))
            if t > 1:
                add("tags.future", primary, tags["future_view"](forward[t - 1]))
            if t < last:
                add("tags.past", primary, tags["past_view"](backward[t + 1]))
        inner = slice(1, last + 1)
        primary = moods["primary_view"](every[inner].amax(0))
        add("mood.forward", primary, moods["forward_view"](forward[inner].amax(0)))
        add("mood.backward", primary, moods["backward_view"](backward[inner].amax(0)))
    return found


def test_unlabelled_loss_is_kl_and_its_gradient_takes_the_primary_for_a_constant() -> None:
    trunk, objective = parts()
    expected = slow_kl(trunk, objective)
    sum(expected.values()).backward()
    wanted = {name: p.grad for name, p in (*trunk.named_parameters(), *objective.named_parameters())}
    trunk.zero_grad()
    objective.zero_grad()
    losses = objective(trunk, objective.make(PLAIN)).losses
    assert losses.keys() == expected.keys()
    counts = objective.counts(objective.make(PLAIN))
    for name, loss in losses.items():
        torch.testing.assert_close(loss.total, expected[name])
        assert loss.count == counts[name] and float(loss.total.detach()) > 0
    sum(loss.total for loss in losses.values()).backward()
    for name, parameter in (*trunk.named_parameters(), *objective.named_parameters()):
        assert (parameter.grad is None) == (wanted[name] is None)
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, wanted[name])


def test_only_views_and_the_first_layer_learn_from_unlabelled_text() -> None:
    trunk, objective = parts()
    sum(loss.total for loss in objective(trunk, objective.make(PLAIN)).losses.values()).backward()
    for name, parameter in (*trunk.named_parameters(), *objective.named_parameters()):
        learns = parameter.grad is not None and bool(parameter.grad.any())
        assert learns != (name.startswith("upper.") or "primary" in name), name
    trunk, objective = parts()
    objective(trunk, objective.make(TAGGED)).losses["tags"].total.backward()
    for name, parameter in objective.named_parameters():
        assert (parameter.grad is not None) == name.startswith("parts.0.of_view.primary_view."), name


def test_the_primary_teaches_without_dropout_and_views_learn_with_it() -> None:
    trunk, objective = parts(0.5)
    trunk.train()
    objective.train()
    batch = objective.make(PLAIN)
    teachers = [objective.teachers(trunk, batch) for _ in range(2)]
    for one, other in zip(*teachers):
        assert torch.equal(one, other) and not one.requires_grad
    losses = []
    for _ in range(2):
        losses.append(float(objective(trunk, batch).losses["tags.forward"].total.detach()))
    assert losses[0] != losses[1]
    objective.eval()
    plain = [float(objective(trunk, batch).losses["tags.forward"].total.detach()) for _ in range(2)]
    assert plain[0] == plain[1]


def test_the_full_view_sees_everything_and_has_no_relu() -> None:
    trunk, objective = parts(settings=replace(SETTINGS, views=("full",)))
    module = objective.parts[0].of_view["full_view"]
    assert not module.activate and module.project.in_features == 16
    assert objective(trunk, objective.make(PLAIN)).losses.keys() == {"tags.full", "mood.full"}


# -- padding and micro-batches ---------------------------------------------------------------------------------------


def wider(batch: WordBatch, left: int, right: int) -> WordBatch:
    def pad(x: Tensor | None, fill: int) -> Tensor | None:
        return None if x is None else F.pad(x, (left, right), value=fill)

    return replace(
        batch,
        ids_BT=pad(batch.ids_BT, 4),
        mask_BT=pad(batch.mask_BT, 0),
        words_BT=pad(batch.words_BT, 0),
        targets_BT=pad(batch.targets_BT, IGNORE),
        spelled_BT=pad(batch.spelled_BT, 2),
    )


def gradients(trunk: CvtEncoder, objective: CrossViewObjective, batches: list[WordBatch]) -> dict[str, Tensor]:
    """Of the sum of all losses, each divided by its count over all batches."""
    trunk.zero_grad()
    objective.zero_grad()
    counts = [objective.counts(batch) for batch in batches]
    totals = {name: sum(count[name] for count in counts) for name in objective.weights}
    for batch in batches:
        losses = objective(trunk, batch).losses
        sum(loss.total / totals[name] for name, loss in losses.items() if totals[name]).backward()
    named = (*trunk.named_parameters(), *objective.named_parameters())
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


@pytest.mark.parametrize("rows", [TAGGED, MOODS, PLAIN], ids=["tags", "moods", "unlabelled"])
def test_neither_padding_nor_splitting_changes_a_gradient(rows: list[WordExample]) -> None:
    trunk, objective = parts()
    batch = objective.make(rows)
    expected = gradients(trunk, objective, [batch])
    others = [[wider(batch, 0, 3)], [wider(batch, 2, 1)], [objective.make([row]) for row in rows]]
    for other in others:
        found = gradients(trunk, objective, other)
        assert found.keys() == expected.keys()
        for name, grad in found.items():
            torch.testing.assert_close(grad, expected[name])


def test_a_sentence_without_words_counts_nothing() -> None:
    trunk, objective = parts()
    batch = objective.make([WordExample(()), WordExample(())])
    assert not any(objective.counts(batch).values())
    losses = objective(trunk, batch).losses
    assert all(float(loss.total.detach()) == 0 == loss.count for loss in losses.values())
    with_one = gradients(trunk, objective, [objective.make([WordExample(()), *PLAIN])])
    for name, grad in gradients(trunk, objective, [objective.make(PLAIN)]).items():
        if "characters" not in name:
            torch.testing.assert_close(with_one[name], grad)


# -- the whole loop --------------------------------------------------------------------------------------------------


def toy(count: int, seed: int, task: int | None) -> list[WordExample]:
    """Nouns are 1, verbs 2, and `a` is 0; a sentence with a dog is one thing, without it another."""
    rng = np.random.default_rng(seed)
    tags = {"a": 0, "man": 1, "dog": 1, "sleeps": 2}
    rows = []
    for _ in range(count):
        words = tuple(rng.choice(list(tags), rng.integers(2, 6)).tolist())
        labels = {0: tuple(tags[word] for word in words), 1: (int("dog" in words),)}
        rows.append(WordExample(words, task, None if task is None else labels[task]))
    return rows


def toy_loop(unlabelled: bool = True, steps: int = 80) -> tuple[Loop, AveragedWeights]:
    torch.manual_seed(3)
    config = replace(CONFIG, cells=12, upper_cells=8, direction=8, dropout=0.1, unlabelled_dropout=0.1)
    settings = replace(SETTINGS, unlabelled_weight=0.1)  # Adam makes large steps of small gradients
    trunk, objective = CvtEncoder(config), CrossViewObjective(config, settings, TASKS, WORDS)
    trunk.put_vectors(np.random.default_rng(1).normal(size=(WORDS.size, 4)).astype(np.float32))
    rows = [toy(12, 0, 0), toy(20, 1, 1), *([toy(40, 2, None)] if unlabelled else [])]
    sources = [Source(len(part), LengthOrder([row.tokens for row in part], 6, 0)) for part in rows]
    turns = Turns(sources[:2], sources[2] if unlabelled else None, 0)
    examples = ExamplesInTurn(turns, [WordExamples(part) for part in rows])
    training = TrainingConfig(rate=0.03, schedule="constant", warmup=0.0, weight_decay=0.0)
    parameters = {f"trunk.{n}": p for n, p in trunk.named_parameters()}
    parameters |= {f"task.{n}": p for n, p in objective.named_parameters()}
    optimizer = Optimizer(training, parameters, [Group(list(parameters))])
    average = AveragedWeights(parameters, 0.9)
    stage = Stage(examples.example, turns, micro_batch=4)
    job = Job(trunk, objective, (stage,), optimizer, training, Budget(steps=steps), 0, torch.device("cpu"))
    return Loop(job, None, Silent(), NeverStop()), average


def test_the_loop_learns_tasks_and_views_and_the_average_predicts() -> None:
    loop, average = toy_loop()
    trunk, objective = loop.job.trunk, loop.job.objective
    seen: dict[str, list[float]] = {name: [] for name in objective.weights}
    loop.model.train()
    for step in range(80):
        _, batches, _ = loop.batches(step)
        assert (batches[0].task is None) == (step % 2 == 1) and len({batch.task for batch in batches}) == 1
        for name, loss in loop.gradients(step, batches).items():
            if loss:
                seen[name].append(loss)
        loop.job.optimizer.step(0.03)
        loop.job.optimizer.zero_grad()
        average.update()
    assert set(map(bool, seen.values())) == {True}, "every loss has had its turn"
    assert len(seen["tags.forward"]) == 40 and len(seen["tags"]) + len(seen["mood"]) == 40
    for name in ("tags", "mood"):
        assert np.mean(seen[name][-3:]) < 0.7 * seen[name][0]
    late = {name: np.mean(losses[-5:]) for name, losses in seen.items()}
    assert late["tags.forward"] < 0.8 * late["tags.future"], "who sees the word itself comes nearer to the primary"
    assert late["tags.backward"] < 0.8 * late["tags.past"]
    held_out = toy(20, 9, 0)
    batch = objective.make(held_out)
    loop.model.eval()
    with average.swapped(), torch.no_grad():
        told = objective(trunk, batch).scores.argmax(-1)
    wanted = batch.targets_BT != IGNORE
    assert float((told == batch.targets_BT)[wanted].float().mean()) > 0.9


def test_the_loop_runs_alone_and_ends_in_the_same_weights_each_time() -> None:
    found = []
    for _ in range(2):
        loop, _ = toy_loop(steps=4)
        assert loop.run().step == 4
        found.append({name: tensor.clone() for name, tensor in loop.model.state_dict().items()})
    for name, tensor in found[0].items():
        assert torch.equal(tensor, found[1][name])


def test_mistakes() -> None:
    for name, value in (("hidden", 0), ("smoothing", 1.0), ("average", -0.1), ("unlabelled_weight", -1.0)):
        with pytest.raises(UserError, match=rf"objective\.{name} must be"):
            replace(SETTINGS, **{name: value}).check()
    for views in (("forward", "forward"), ("sideways",)):
        with pytest.raises(UserError, match=r"objective\.views must be some of full, forward"):
            replace(SETTINGS, views=views).check()
    for tasks in ((), (TASKS[0], TASKS[0]), (replace(TASKS[0], name="a.b"),)):
        with pytest.raises(UserError, match="names of their own"):
            CrossViewObjective(CONFIG, SETTINGS, tasks, WORDS)
