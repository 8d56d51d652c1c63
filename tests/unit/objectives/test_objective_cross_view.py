"""Cross-view training's losses against loops over words, who learns from what, and the whole loop on a toy task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from complaints import refused
from tolerance import close, terms_of
from torch import Tensor

from foretext.batch import IGNORE
from foretext.nn.recurrent.cvt import CvtBatch, CvtConfig, CvtEncoder
from foretext.nn.trunk import AveragedWeights
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget
from foretext.systems.base import TrainingConfig
from foretext.systems.cvt import CVT
from foretext.tasks.heads.cross_view_head import CrossViewHead, CrossViewSettings, Sourced, UnlabelledExample
from foretext.tasks.heads.supervised import Example
from foretext.tasks.heads.token_tasks import TaggedExample
from foretext.tasks.layouts.base import TokenSequence
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.word_forms import WordForms
from foretext.train.loop import Job, Loop, Stage
from foretext.train.optim import Group, Optimizer

BORDER, UNKNOWN = 0, 1
WORDS = Words(["</S>", "<UNK>", "a", "man", "dog", "sleeps", "00"], {"</S>": BORDER, "<UNK>": UNKNOWN}, lower=False)
WORDS.number_unknown()
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
FORMS = WordForms(WORDS, CONFIG.char_length)
SETTINGS = CrossViewSettings(hidden=6)
VIEWS = ("forward", "backward", "future", "past")
# A word's filter over two characters; six tokens read by cells of 5 that are projected to 4, and by cells of 4.
READ = terms_of(2 * 3, 6 * (7 + 4 + 5), 6 * (8 + 4))
SCORED = terms_of(READ, 16, 6)  # a module's two layers
TOLD = terms_of(SCORED, 3, 3, 10)  # a softmax's sum, that of a loss over the labels, of ten words
BACK = 3 * TOLD  # through two products a sum


def ids_of(words: tuple[str, ...]) -> tuple[int, ...]:
    return BORDER, *(WORDS.encode(word)[0] for word in words), BORDER


def tagged(words: tuple[str, ...], tags: tuple[int, ...]) -> Sourced:
    return Sourced(0, TaggedExample(ids_of(words), tuple(range(1, len(words) + 1)), tags))


def mood(words: tuple[str, ...], label: int) -> Sourced:
    return Sourced(1, Example((TokenSequence(ids_of(words), 0),), label))


def plain(words: tuple[str, ...]) -> Sourced:
    asked = np.array([False, *(True for _ in words), False])
    return Sourced(None, UnlabelledExample(np.array(ids_of(words)), asked))


TAGGED = [
    tagged(("A", "man", "sleeps"), (0, 1, 2)),
    tagged(("dog",), (1,)),
    tagged(("a", "Dog", "sleeps", "12"), (0, 1, IGNORE, 2)),
]
MOODS = [mood(("a", "man"), 1), mood(("dog", "sleeps", "well"), 0)]
PLAIN = [plain(words) for words in (("a", "dog", "sleeps", "!"), ("dog",), ("a", "man"), ("99", "x", "dog"))]


def parts(p: float = 0.0, settings: CrossViewSettings = SETTINGS) -> tuple[CvtEncoder, CrossViewHead]:
    config = replace(CONFIG, dropout=p, unlabelled_dropout=p)
    return trunk_of(config), head_of(config, settings)


def trunk_of(config: CvtConfig) -> CvtEncoder:
    return CvtEncoder(config, FORMS.read, FORMS.unknown)


def head_of(config: CvtConfig, settings: CrossViewSettings) -> CrossViewHead:
    """Tags, called `label`, and a label of sentences beside them."""
    return CrossViewHead("tagging", 3, {"mood": ("classification", 2)}, config, settings, (BORDER,), FORMS)


# -- batches ---------------------------------------------------------------------------------------------------------


def test_sentences_have_borders_and_words_their_ids() -> None:
    trunk, objective = parts()
    batch = objective.make(TAGGED)
    forms = trunk._read(batch).ids_BT
    assert forms.tolist() == [[0, 2, 3, 5, 0, 0], [0, 4, 0, 0, 0, 0], [0, 2, 4, 5, 6, 0]]
    assert batch.words_BT is not None and batch.words_BT.tolist()[0] == [False, True, True, True, False, False]
    assert batch.targets_BT is not None and batch.targets_BT.tolist()[2] == [IGNORE, 0, 1, IGNORE, 2, IGNORE]
    assert batch.labels is None
    assert objective.counts(batch)["label"] == 3 + 1 + 3 and batch.real_tokens == 5 + 3 + 6
    moods = objective.make(MOODS)
    assert moods.labels is not None and moods.labels.tolist() == [1, 0] and moods.targets_BT is None
    assert trunk._read(moods).ids_BT[1, 3] == UNKNOWN and objective.counts(moods)["mood"] == 2
    unlabelled = objective.make(PLAIN)
    assert unlabelled.task is None and unlabelled.targets_BT is None and unlabelled.labels is None
    moved = unlabelled.to(torch.device("cpu"))
    assert isinstance(moved, CvtBatch) and moved.words_BT is not None and unlabelled.words_BT is not None
    assert torch.equal(moved.words_BT, unlabelled.words_BT)


def test_names_weights_and_counts() -> None:
    _, objective = parts(settings=replace(SETTINGS, unlabelled_weight=0.5))
    views = {f"label.{view}" for view in VIEWS} | {"mood.forward", "mood.backward"}
    assert objective.weights == {"label": 1.0, "mood": 1.0} | dict.fromkeys(views, 0.5)
    assert objective.counts(objective.make(PLAIN)) == {
        **{"label": 0, "label.forward": 10, "label.backward": 10, "label.future": 6, "label.past": 6},
        **{"mood": 0, "mood.forward": 4, "mood.backward": 4},
    }
    labelled = objective.counts(objective.make(MOODS))
    assert labelled.pop("mood") == 2 and not any(labelled.values())


def test_views_begin_to_learn_over_the_ramp() -> None:
    _, objective = parts(settings=replace(SETTINGS, unlabelled_weight=0.5, ramp=10))
    for step, progress, weight in (
        *((0, 0.0, 0.0), (1, 0.0, 0.05), (5, 0.1, 0.25), (10, 0.2, 0.5), (1_000, 0.9, 0.5), (2, 0.0, 0.1)),
        *((1, 0.13, 0.1), (3, 0.65, 0.5), (4, 1.0, 0.5)),  # a run that is shorter than the ramp
    ):
        objective.begin_step(step, progress)
        assert objective.weights["label"] == objective.weights["mood"] == 1.0
        assert objective.weights["label.past"] == objective.weights["mood.forward"] == pytest.approx(weight)


# -- losses ----------------------------------------------------------------------------------------------------------


def test_labelled_loss_is_smoothed_cross_entropy_of_the_primary() -> None:
    trunk, objective = parts()
    outcome = objective.train()(trunk, objective.make(TAGGED))
    primary = objective.parts[0].of_view["primary_view"]
    smoothed, plain, count = 0.0, 0.0, 0
    for row, example in enumerate(TAGGED):
        states = trunk.states(objective.make([example]), 0.0)
        for place, tag in enumerate(example.example.tags, 1):
            logits = primary(torch.cat([states.lower_BTD[0, place], states.top_BTD[0, place]])[None])[0]
            close(outcome.scores[row, place], logits, terms=SCORED)
            if tag != IGNORE:
                logs = torch.log_softmax(logits.detach(), 0).tolist()
                smoothed -= sum((0.9 * (tag == label) + 0.1 / 3) * log for label, log in enumerate(logs))
                plain -= logs[tag]
                count += 1
    assert outcome.losses.keys() == {"label"} and outcome.losses["label"].count == count == 7
    close(outcome.losses["label"].total, smoothed, terms=TOLD)
    close(objective.eval()(trunk, objective.make(TAGGED)).losses["label"].total, plain, terms=TOLD)
    assert abs(plain - smoothed) > 1e-6, "no smoothing where nothing is learned"
    untold = [replace(one, example=replace(one.example, tags=None)) for one in TAGGED]
    scores = objective(trunk, objective.make(untold))
    assert not scores.losses
    asked = [one.example.asked(row) for one, row in zip(TAGGED, scores.scores.detach().numpy())]
    assert [len(rows) for rows in asked] == [3, 1, 4]
    close(asked[2][0], outcome.scores[2, 1], terms=SCORED)


def slow_kl(trunk: CvtEncoder, objective: CrossViewHead) -> dict[str, Tensor]:
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
        last = example.tokens - 2
        for t in range(1, last + 1):
            primary = tags["primary_view"](every[t])
            add("label.forward", primary, tags["forward_view"](forward[t]))
            add("label.backward", primary, tags["backward_view"](backward[t]))
            if t > 1:
                add("label.future", primary, tags["future_view"](forward[t - 1]))
            if t < last:
                add("label.past", primary, tags["past_view"](backward[t + 1]))
        inner = slice(1, last + 1)
        primary = moods["primary_view"](every[inner].amax(0))
        add("mood.forward", primary, moods["forward_view"](forward[inner].amax(0)))
        add("mood.backward", primary, moods["backward_view"](backward[inner].amax(0)))
    return found


def grads_of(trunk: CvtEncoder, objective: CrossViewHead) -> dict[str, Tensor]:
    named = (*trunk.named_parameters(), *objective.named_parameters())
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def test_unlabelled_loss_is_kl_and_its_gradient_takes_the_primary_for_a_constant() -> None:
    trunk, objective = parts()
    expected = slow_kl(trunk, objective)
    sum(expected.values()).backward()
    wanted = grads_of(trunk, objective)
    trunk.zero_grad()
    objective.zero_grad()
    losses = objective(trunk, objective.make(PLAIN)).losses
    assert losses.keys() == expected.keys()
    counts = objective.counts(objective.make(PLAIN))
    for name, loss in losses.items():
        close(loss.total, expected[name], terms=TOLD, size=np.log(3))  # logarithms that cancel
        assert loss.count == counts[name] and float(loss.total.detach()) > 0
    sum(loss.total for loss in losses.values()).backward()
    close(grads_of(trunk, objective), wanted, terms=BACK, size=1.0)  # differences of probabilities


def test_only_views_and_the_first_layer_learn_from_unlabelled_text() -> None:
    trunk, objective = parts()
    sum(loss.total for loss in objective(trunk, objective.make(PLAIN)).losses.values()).backward()
    for name, parameter in (*trunk.named_parameters(), *objective.named_parameters()):
        learns = parameter.grad is not None and bool(parameter.grad.any())
        assert learns != (name.startswith("upper.") or "primary" in name), name
    trunk, objective = parts()
    objective(trunk, objective.make(TAGGED)).losses["label"].total.backward()
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
        losses.append(float(objective(trunk, batch).losses["label.forward"].total.detach()))
    assert losses[0] != losses[1]
    objective.eval()
    plain = [float(objective(trunk, batch).losses["label.forward"].total.detach()) for _ in range(2)]
    assert plain[0] == plain[1]


def test_the_full_view_sees_everything_and_has_no_relu() -> None:
    trunk, objective = parts(settings=replace(SETTINGS, views=("full",)))
    module = objective.parts[0].of_view["full_view"]
    assert not module.activate and module.project.in_features == 16
    assert objective(trunk, objective.make(PLAIN)).losses.keys() == {"label.full", "mood.full"}


# -- padding and micro-batches ---------------------------------------------------------------------------------------


def wider(batch: CvtBatch, left: int, right: int) -> CvtBatch:
    def pad(x: Tensor | None, fill: int) -> Tensor | None:
        return None if x is None else F.pad(x, (left, right), value=fill)

    return replace(
        batch,
        ids_BT=pad(batch.ids_BT, 4),
        mask_BT=pad(batch.mask_BT, 0),
        words_BT=pad(batch.words_BT, 0),
        targets_BT=pad(batch.targets_BT, IGNORE),
        asked_BT=pad(batch.asked_BT, 0),
    )


def gradients(trunk: CvtEncoder, objective: CrossViewHead, batches: list[CvtBatch]) -> dict[str, Tensor]:
    """Of the sum of all losses, each divided by its count over all batches."""
    trunk.zero_grad()
    objective.zero_grad()
    counts = [objective.counts(batch) for batch in batches]
    totals = {name: sum(count[name] for count in counts) for name in objective.weights}
    for batch in batches:
        losses = objective(trunk, batch).losses
        sum(loss.total / totals[name] for name, loss in losses.items() if totals[name]).backward()
    return grads_of(trunk, objective)


@pytest.mark.parametrize("rows", [TAGGED, MOODS, PLAIN], ids=["tags", "moods", "unlabelled"])
def test_neither_padding_nor_splitting_changes_a_gradient(rows: list[Sourced]) -> None:
    trunk, objective = parts()
    batch = objective.make(rows)
    expected = gradients(trunk, objective, [batch])
    others = [[wider(batch, 0, 3)], [wider(batch, 2, 1)], [objective.make([row]) for row in rows]]
    for other in others:
        close(gradients(trunk, objective, other), expected, terms=BACK)


def test_a_sentence_without_words_counts_nothing() -> None:
    trunk, objective = parts()
    batch = objective.make([plain(()), plain(())])
    assert not any(objective.counts(batch).values())
    losses = objective(trunk, batch).losses
    assert all(float(loss.total.detach()) == 0 == loss.count for loss in losses.values())
    without, with_one = (gradients(trunk, objective, [objective.make(rows)]) for rows in (PLAIN, [plain(()), *PLAIN]))
    close(with_one, without, terms=BACK)


# -- the whole loop --------------------------------------------------------------------------------------------------


def toy(count: int, seed: int, task: int | None) -> list[Sourced]:
    """Nouns are 1, verbs 2, and `a` is 0; a sentence with a dog is one thing, without it another."""
    rng = np.random.default_rng(seed)
    tags = {"a": 0, "man": 1, "dog": 1, "sleeps": 2}
    rows = []
    for _ in range(count):
        words = tuple(rng.choice(list(tags), rng.integers(2, 6)).tolist())
        if task is None:
            rows.append(plain(words))
        else:
            told = tuple(tags[word] for word in words)
            rows.append(tagged(words, told) if task == 0 else mood(words, int("dog" in words)))
    return rows


def toy_loop(unlabelled: bool = True, steps: int = 120, ramp: int = 0) -> tuple[Loop, AveragedWeights]:
    torch.manual_seed(3)
    config = replace(CONFIG, cells=12, upper_cells=8, direction=8, dropout=0.1, unlabelled_dropout=0.1)
    settings = replace(SETTINGS, unlabelled_weight=0.1, ramp=ramp)  # Adam makes large steps of small gradients
    trunk, objective = trunk_of(config), head_of(config, settings)
    trunk.put_vectors(np.random.default_rng(1).normal(size=(WORDS.size, 4)).astype(np.float32))
    rows = [[one.example for one in part] for part in (toy(12, 0, 0), toy(20, 1, 1), toy(40, 2, None))]
    stock = objective.stock(rows[:2], [(one.ids, one.asked) for one in rows[2]] if unlabelled else [])
    turns = objective.order(stock, 6, 0)
    training = TrainingConfig(rate=0.03, schedule="constant", warmup=0.0, weight_decay=0.0)
    parameters = {f"trunk.{n}": p for n, p in trunk.named_parameters()}
    parameters |= {f"task.{n}": p for n, p in objective.named_parameters()}
    optimizer = Optimizer(training, parameters, [Group(list(parameters))])
    average = AveragedWeights(parameters, 0.9)
    stage = Stage(stock.example, turns, micro_batch=4)
    job = Job(trunk, objective, (stage,), optimizer, training, Budget(steps=steps), 0, torch.device("cpu"))
    return Loop(job, None, Reporter(), StopRequest()), average


def test_the_loop_tells_the_ramp_its_step() -> None:
    loop, _ = toy_loop(ramp=10)
    loop.model.eval()  # nothing is dropped, so that the gradients differ by the weight alone
    _, text, _ = loop.batches(1)
    found = []
    for step in (1, 5):
        loop.job.optimizer.zero_grad()
        loop.gradients(step, text)
        found.append({name: part.grad.clone() for name, part in loop.model.named_parameters() if part.grad is not None})
    views = [name for name in found[0] if "forward_view" in name]
    assert views and all(bool(found[0][name].any()) for name in views)
    close({name: 5 * gradient for name, gradient in found[0].items()}, found[1], terms=BACK)
    assert all(CVT.sizes[size].objective.ramp == 1_000 for size in ("tiny", "small"))  # type: ignore[attr-defined]
    assert CVT.sizes["paper"].objective.ramp == 0  # type: ignore[attr-defined]


def test_the_loop_learns_tasks_and_views_and_the_average_predicts() -> None:
    loop, average = toy_loop()
    trunk, objective = loop.job.trunk, loop.job.objective
    seen: dict[str, list[float]] = {name: [] for name in objective.weights}
    loop.model.train()
    for step in range(120):
        _, batches, _ = loop.batches(step)
        assert (batches[0].task is None) == (step % 2 == 1) and len({batch.task for batch in batches}) == 1
        for name, loss in loop.gradients(step, batches).items():
            if loss:
                seen[name].append(loss)
        loop.job.optimizer.step(0.02)
        loop.job.optimizer.zero_grad()
        average.update()
    assert set(map(bool, seen.values())) == {True}, "every loss has had its turn"
    assert len(seen["label.forward"]) == 60 and len(seen["label"]) + len(seen["mood"]) == 60
    for name in ("label", "mood"):
        assert np.mean(seen[name][-5:]) < 0.7 * np.mean(seen[name][:3])
    late = {name: np.mean(losses[-5:]) for name, losses in seen.items()}
    assert late["label.forward"] < 0.8 * late["label.future"], "who sees the word itself comes nearer to the primary"
    assert late["label.backward"] < 0.8 * late["label.past"]
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
    for name, value in (
        ("hidden", 0),
        ("smoothing", 1.0),
        ("average", -0.1),
        ("unlabelled_weight", -1.0),
        ("ramp", -1),
    ):
        with refused(f"objective.{name}", str(value)):
            replace(SETTINGS, **{name: value}).check()
    for views in (("forward", "forward"), ("sideways",)):
        with refused("objective.views", "full, forward", ", ".join(views)):
            replace(SETTINGS, views=views).check()
    for name in ("a.b", "label"):
        with refused("task", name):
            CrossViewHead("tagging", 3, {name: ("tagging", 3)}, CONFIG, SETTINGS, (BORDER,))
