"""Task models of their own on the layers of any trunk: what they read of it, and what cannot change them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from complaints import refused
from systems_under_test import CONTEXTUAL, SHAPE, TERMS, TINY, gradients, pairwise, trunk_of
from tolerance import close, doubles, terms_of
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch
from foretext.objectives.base import Objective
from foretext.plan import ReaderPlan
from foretext.systems import SYSTEMS
from foretext.tasks.family import Encoded, TaskConfig
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.heads.recurrent_models import RecurrentRows, RecurrentSpan, RecurrentTagging, TextsBatch, TrunkWords
from foretext.tasks.heads.supervised import Example
from foretext.tasks.heads.token_tasks import SpanExample, TaggedExample, tagged_example
from foretext.tasks.layouts.base import PlainLayout, TokenSequence
from foretext.tasks.layouts.windows import tag_windows
from foretext.tasks.tag_family import TagFamily
from foretext.text.tokenizers.base import END

LABELS = ("O", "B-X", "I-X", "B-Y")
PLAN = ReaderPlan(twice=True, norm=True, penalty=0.1, vectors=3, cells=5)
KINDS = ("tagging", "classification", "entailment", "similarity", "choice", "regression", "span")
# A trunk, there and back; on it up to two LSTMs of 5 cells that read 35 numbers of each of up to 15 tokens, likewise.
MODEL_TERMS = terms_of(TERMS, 2 * 3 * 15 * (35 + 5))
# A random field: the sums over four tags at each of up to 15 words of all paths, and that of one path.
FIELD_TERMS = terms_of(15 * 4, 15)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with doubles():
        yield


def task_of(kind: str, plan: ReaderPlan = PLAN, p: float = 0.0, model: Any = SHAPE) -> Any:
    torch.manual_seed(1)
    if kind == "tagging":
        task: Any = RecurrentTagging(LABELS, True, model, plan, p)
    elif kind == "span":
        task = RecurrentSpan(model, plan, p)
    else:
        task = RecurrentRows(kind, 3, kind != "classification", model, plan, p)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return task


def sequence(draw: random.Random, texts: int) -> TokenSequence:
    """Special tokens 60 between texts of unequal lengths."""
    ids, parts = [60], []
    for _ in range(texts):
        length = draw.randint(1, 6)
        parts.append((len(ids), length))
        ids += [*(draw.randrange(60) for _ in range(length)), 60]
    return TokenSequence(tuple(ids), 0, parts=tuple(parts))


def examples(kind: str, count: int, seed: int = 0) -> list[Any]:
    draw = random.Random(seed)
    made: list[Any] = []
    for _ in range(count):
        if kind == "tagging":
            ids = sequence(draw, 1).ids
            firsts = tuple(sorted(draw.sample(range(1, len(ids) - 1), draw.randint(1, len(ids) - 2))))
            made.append(TaggedExample(ids, firsts, tuple(draw.choice((0, 1, 3)) for _ in firsts)))
        elif kind == "span":
            ids = sequence(draw, 2).ids
            made.append(SpanExample(ids, (1, len(ids) - 2), 1, draw.randrange(1, len(ids))))
        else:
            number = {"similarity": 2, "choice": draw.randint(2, 3)}.get(kind, 1)
            sequences = tuple(sequence(draw, 1 if kind == "classification" else 2) for _ in range(number))
            label = {"regression": draw.gauss(0, 1), "choice": draw.randrange(number)}.get(kind, draw.randrange(3))
            made.append(Example(sequences, label))
    return made


def step(trunk: nn.Module, task: Objective, parts: Sequence[Batch]) -> tuple[dict[str, Tensor], float]:
    trunk.zero_grad()
    task.zero_grad()
    count = sum(task.counts(batch)["label"] for batch in parts)
    mean = 0.0
    for batch in parts:
        loss = task(trunk, batch).losses["label"].total / count
        mean += float(loss.detach())
        loss.backward()
    return gradients(trunk, task), mean


def wider(batch: Batch, left: int, right: int) -> Batch:
    def more(rows: Tensor | None, value: Any) -> Any:
        return None if rows is None else F.pad(rows, (left, right), value=value)

    changes: dict[str, Any] = {
        "ids_BT": more(batch.ids_BT, 7),
        "mask_BT": more(batch.mask_BT, False),
        "targets_BT": more(batch.targets_BT, IGNORE),
    }
    if isinstance(batch, TextsBatch):
        changes["parts_BT"] = more(batch.parts_BT, 0)
    elif batch.labels is not None:
        changes["labels"] = batch.labels + left
    return replace(batch, **changes)


@pytest.mark.parametrize(("system", "kind"), pairwise([(system, kind) for system in TINY for kind in KINDS]))
def test_neither_splitting_nor_padding_changes_a_step(system: str, kind: str) -> None:
    trunk, task, data = trunk_of(system), task_of(kind, model=TINY[system]), examples(kind, 6)
    whole = task.make(data)
    expected, loss = step(trunk, task, [whole])
    assert any(name.startswith("0.") for name in expected), "a trunk that learns has gradients"
    for parts in ([task.make(data[:1]), task.make(data[1:])], [wider(whole, 0, 4)], [wider(whole, 3, 1)]):
        gradients, same = step(trunk, task, parts)
        close(same, loss, terms=MODEL_TERMS)
        close(gradients, expected, terms=MODEL_TERMS)


@pytest.mark.parametrize("system", CONTEXTUAL)
def test_a_trunk_that_does_not_learn_gives_features(system: str) -> None:
    trunk, words = trunk_of(system, dropout=0.5).train(), TrunkWords(ReaderPlan(), TINY[system], 0.0)
    batch = Batch(torch.tensor([[4, 5, 6]]))
    assert words(trunk, batch).layers[-1].requires_grad
    for parameter in trunk.parameters():
        parameter.requires_grad_(False)
    trunk.train()
    layers = words(trunk, batch).layers
    hidden = trunk.eval()(batch, keep_layers=True)
    expected = [layer for layer in hidden.layers if layer.shape[-1] == TINY[system].width]
    assert len(layers) >= 2 and not any(layer.requires_grad for layer in layers)
    close(layers, expected, terms=TERMS)  # without dropout


@pytest.mark.parametrize(("system", "mixed"), [("ulmfit", [0, 2]), ("gpt", [0, 1, 2]), ("elmo", [0, 1, 2])])
def test_layers_as_wide_as_the_top_are_mixed(system: str, mixed: list[int]) -> None:
    trunk, words = trunk_of(system), TrunkWords(ReaderPlan(), TINY[system], 0.0)
    batch = Batch(torch.tensor([[4, 5, 6]]))
    assert words.mixed == mixed and words.inputs.layers == len(mixed)
    layers = trunk.eval()(batch, keep_layers=True).layers
    close(words.eval()(trunk, batch).layers, [layers[number] for number in mixed], terms=TERMS)
    for size in SYSTEMS[system].sizes.values():
        assert {0, size.model.layers} <= set(TrunkWords(ReaderPlan(), size.model, 0.0).mixed)


def test_characters_are_read_where_the_trunk_has_them() -> None:
    with refused("transfer.reader.characters", "0"):
        RecurrentSpan(TINY["gpt"], replace(PLAN, characters=4), 0.0).check(trunk_of("gpt"))
    RecurrentSpan(TINY["elmo"], replace(PLAN, characters=4), 0.0).check(trunk_of("elmo"))
    task_of("classification").check(trunk_of("gpt"))


def unread(batch: Batch, keep_layers: bool = False) -> None:
    raise AssertionError("read")


def vectors(words: TrunkWords, *ids: int) -> Tensor:
    """Of a batch of one sequence."""
    vectors_BTD = words(unread, Batch(torch.tensor([ids]))).vectors_BTD  # type: ignore[arg-type]
    assert vectors_BTD is not None
    return vectors_BTD[0]


def met_words(p: float) -> TrunkWords:
    """4 comes once, 5 nine times."""
    words = TrunkWords(ReaderPlan(mix=False, vectors=3), SHAPE, p)
    words.meet([(5, 4, 5), (5,) * 7, (5000,)])
    return words


@pytest.mark.parametrize("training", [True, False])
def test_words_that_the_rows_do_not_have_share_one_vector(training: bool) -> None:
    words = met_words(0.0).train(training)
    seen, rare, unseen, other, past = vectors(words, 5, 4, 6, 7, 5000)
    assert torch.equal(unseen, other) and torch.equal(unseen, past) and not unseen.any()
    assert not torch.equal(seen, rare) and seen.any() and rare.any()
    assert torch.equal(seen, words.vectors.weight[5]), "as it was drawn"


def test_rare_words_are_read_as_unknown_in_training_where_there_is_dropout() -> None:
    torch.manual_seed(0)
    words = met_words(0.5).train()
    for id, count in ((4, 1), (5, 9), (6, 0)):
        unknown = (vectors(words, *(id,) * 20_000) == 0).all(1).double().mean()
        assert float(unknown) == pytest.approx(0.25 / (0.25 + count), abs=0.01)
    assert vectors(words.eval(), *(4,) * 200).any(1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_meets_its_rows(kind: str) -> None:
    task, data = task_of(kind), examples(kind, 5)
    task.meet(data)
    batch = task.make(data)
    expected = torch.bincount(batch.ids_BT[batch.mask_BT], minlength=SHAPE.vocabulary + 1)
    assert task.words.counts_V.tolist() == expected.tolist() and "words.counts_V" in task.state_dict()


def test_without_the_mixture_the_trunk_is_not_read() -> None:
    task = task_of("tagging", ReaderPlan(mix=False, vectors=4, cells=5))
    assert task(unread, task.make(examples("tagging", 3))).losses["label"].count > 0


# -- tags ------------------------------------------------------------------------------------------------------------


def paths(scores: np.ndarray, task: RecurrentTagging) -> dict[tuple[int, ...], float]:
    """Every path that IOB2 allows and the logarithm of its weight, by the plain sum."""
    crf = task.model.crf
    assert crf is not None
    starts, ends, transitions = (table.tolist() for table in (crf.starts, crf.ends, crf.transitions))
    of_paths = {}
    for tags in itertools.product(range(len(LABELS)), repeat=len(scores)):
        named = [LABELS[tag] for tag in tags]
        if any(tag == "I-X" and before not in ("B-X", "I-X") for before, tag in zip(["O", *named], named)):
            continue
        total = starts[tags[0]] + ends[tags[-1]] + sum(float(row[tag]) for row, tag in zip(scores, tags))
        of_paths[tags] = total + sum(transitions[a][b] for a, b in itertools.pairwise(tags))
    return of_paths


def test_tags_are_chosen_together() -> None:
    task = task_of("tagging")
    scores = np.random.default_rng(0).normal(size=(4, len(LABELS)))
    scores[0] = [0, -3, 4, 0]  # the best tag by itself cannot come first
    known = paths(scores, task)
    best = max(known, key=lambda tags: known[tags])
    assert task.best(scores).tolist() == list(best) != scores.argmax(axis=1).tolist()
    total = math.log(sum(math.exp(value) for value in known.values()))
    table = np.zeros(scores.shape)
    for tags, value in known.items():
        for place, tag in enumerate(tags):
            table[place, tag] += math.exp(value - total)
    terms = terms_of(FIELD_TERMS, len(known))  # which are added up one by one
    close(task.probabilities(scores), table, terms=terms)
    close(task.surprise(scores, np.array(best)), total - known[best], terms=terms, size=abs(known[best]))
    fewer = paths(scores[[0, 2, 3]], task)
    asked = np.array([1, IGNORE, 2, 0])
    expected = math.log(sum(math.exp(value) for value in fewer.values())) - fewer[1, 2, 0]
    close(task.surprise(scores, asked), expected, terms=terms)


def test_a_window_inside_a_sentence_may_begin_inside_a_chunk() -> None:
    """A chunk over the border of two windows, in the loss and in what is predicted."""
    layout = PlainLayout({END: 60}, 4)
    words = tag_windows([[number] for number in range(1, 7)], layout)
    assert len(words) > 1 and [window.words[0] == 0 for window in words] == [True] + [False] * (len(words) - 1)
    tags = (0, 1, 2, 2, 2, 0)  # O B-X I-X I-X I-X O
    data = [tagged_example(window, tags) for window in words]
    assert any(example.tags is not None and example.tags[0] == 2 for example in data), "one begins with I-X"
    trunk, task = trunk_of("bert"), task_of("tagging", replace(PLAN, penalty=0.0))
    batch = task.make(data)
    outcome = task(trunk, batch)
    assert 0 < float(outcome.losses["label"].total.detach()) < 100, "a forbidden tag would cost 10,000"
    scores = task(trunk, replace(batch, targets_BT=None)).scores.detach().numpy()
    total = sum(task.surprise(one.asked(row), np.array(one.tags), one.begins) for one, row in zip(data, scores))
    close(outcome.losses["label"].total, total, terms=terms_of(FIELD_TERMS, len(data)))

    loud = [np.eye(len(LABELS))[list(example.tags or ())] * 50 for example in data]
    row = TaggedSentence(tuple("abcdef"), tuple(LABELS[tag] for tag in tags), "here")
    config = TaskConfig(kind="tagging", labels=list(LABELS), scheme="iob2", fallback="O")
    predictions = TagFamily().predictions(Encoded([row], data, words), loud, config, task)
    assert predictions.values == [row.tags] and min(predictions.probabilities[0]) > 0.99  # type: ignore[index, type-var]
    first = np.array([[0.0, 0.0, 5.0, 0.0]])
    assert task.best(first, begins=False).tolist() == [2] != task.best(first).tolist()
    inside, starts = task.probabilities(first, begins=False)[0], task.model.crf.ends.detach().numpy()
    weights = np.exp(first[0] + starts)
    close(inside, weights / weights.sum(), terms=FIELD_TERMS)  # what comes before is not known
    assert task.probabilities(first)[0, 2] == 0


def test_tags_each_by_itself() -> None:
    task = task_of("tagging", replace(PLAN, crf=False))
    scores = np.array([[0.0, 1.0, 5.0, 0.0], [3.0, 1.0, 0.0, 0.0]])
    assert task.best(scores).tolist() == [2, 0]
    close(task.probabilities(scores).sum(axis=1), np.ones(2), terms=len(LABELS))
    expected = -math.log(task.probabilities(scores)[1, 0])
    close(task.surprise(scores, np.array([IGNORE, 0])), expected, terms=len(LABELS))


@pytest.mark.parametrize("crf", [True, False])
def test_the_surprise_of_examples_is_the_loss(crf: bool) -> None:
    trunk, task, data = (
        trunk_of("bert"),
        task_of("tagging", replace(PLAN, crf=crf, penalty=0.0)),
        examples("tagging", 5),
    )
    batch = task.make(data)
    outcome = task(trunk, batch)
    scores = task(trunk, replace(batch, targets_BT=None)).scores.detach().numpy()
    total = sum(task.surprise(one.asked(row), np.array(one.tags)) for one, row in zip(data, scores))
    close(outcome.losses["label"].total, total, terms=terms_of(FIELD_TERMS, len(data)))
    assert outcome.losses["label"].count == task.counts(batch)["label"] == sum(len(one.tags) for one in data)


# -- rows ------------------------------------------------------------------------------------------------------------


def test_a_pair_is_two_texts_and_special_tokens_are_none() -> None:
    task = task_of("entailment")
    row = Example((TokenSequence((60, 1, 2, 60, 3, 60), 0, parts=((1, 2), (4, 1))),), 0)
    batch = task.make([row])
    assert isinstance(batch, TextsBatch) and batch.parts_BT is not None
    assert batch.parts_BT.tolist() == [[0, 1, 1, 0, 2, 0]]
    trunk = trunk_of("bert")
    words = task.words(trunk, batch)
    alone = [replace(words, mask_BT=batch.parts_BT == number) for number in (1, 2)]
    assert torch.equal(task(trunk, batch).scores, task.model(*alone))


@pytest.mark.parametrize("kind", ["classification", "entailment"])
def test_the_loss_of_rows_is_the_surprise_of_their_labels(kind: str) -> None:
    trunk, task, data = trunk_of("bert"), task_of(kind, replace(PLAN, penalty=0.0)), examples(kind, 4)
    outcome = task(trunk, task.make(data))
    logs = outcome.scores.detach().log_softmax(1)
    expected = -sum(float(logs[row, one.label]) for row, one in enumerate(data))
    close(outcome.losses["label"].total, expected, terms=terms_of(3, len(data)))
    assert outcome.losses["label"].count == 4


def test_both_orders_of_a_pair_count_alike() -> None:
    trunk, task = trunk_of("gpt"), task_of("similarity")
    row = examples("similarity", 1)[0]
    turned = replace(row, sequences=row.sequences[::-1])
    scores = [task(trunk, task.make([each])).scores for each in (row, turned)]
    close(scores[0], scores[1], terms=MODEL_TERMS)
    each = [task.model(*texts(task, trunk, one)) for one in row.sequences]
    close(scores[0], (each[0] + each[1]) / 2, terms=MODEL_TERMS)


def texts(task: RecurrentRows, trunk: nn.Module, one: TokenSequence) -> list[Any]:
    batch = task.make([Example((one,), 0)])
    assert isinstance(batch, TextsBatch) and batch.parts_BT is not None
    words = task.words(trunk, batch)  # type: ignore[arg-type]
    return [replace(words, mask_BT=batch.parts_BT == number) for number in (1, 2)]


def test_the_penalty_is_whole_however_a_batch_is_split() -> None:
    """λ‖w‖² of both mixtures, once."""
    for kind in ("tagging", "entailment", "span"):
        trunk, data = trunk_of("bert"), examples(kind, 4)
        with_, without = task_of(kind), task_of(kind, replace(PLAN, penalty=0.0))
        read = with_.read if kind == "span" else with_.model.read
        expected = 0.1 * float((read.at_input.penalty() + read.at_output.penalty()).detach())
        assert expected > 0
        parts = [with_.make(data[:1]), with_.make(data[1:])]
        loss = step(trunk, without, [without.make(data)])[1]
        close(step(trunk, with_, parts)[1], loss + expected, terms=MODEL_TERMS)
