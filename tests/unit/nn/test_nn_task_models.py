"""Tagger and classifier against slow versions, padding and the rest of the batch, and on toy tasks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
import torch.nn.functional as F
from slow_recurrent import (
    INPUTS,
    LENGTHS,
    PADDINGS,
    quiet,
    randomised,
    repadded,
    sentences,
    slow_beside,
    slow_bilstm,
    slow_words,
)
from tolerance import close, terms_of
from torch import Tensor

from foretext.batch import IGNORE, LossSum
from foretext.nn.task_models.crf import iob2_allowed
from foretext.nn.task_models.sentence_models import (
    BiLstmTagger,
    Pooling,
    SentenceClassifier,
    WordInput,
    WordInputConfig,
    WordReader,
    masked_softmax,
)

TAGGER = {"inputs": INPUTS, "classes": 3, "cells": 2, "layers": 2, "dropout": 0.0}
CLASSIFIER = {"inputs": INPUTS, "classes": 2, "cells": 2, "layers": 1, "dropout": 0.0}
# Filters over three characters of two numbers; four words of nine numbers read by two layers of two cells each way; the
# scores of eight numbers, which are pooled by four words and in four ways.
READ = terms_of(3 * 2, 4 * (9 + 2), 4 * (4 + 2))
TAGGED, LABELLED = terms_of(READ, 8), terms_of(READ, 8, 4, 4 * 8)
PATHS = terms_of(TAGGED, 3 * 4, 3**4)  # scores along a path, and the sum over all paths
TAGS = torch.tensor([[0, 2, 1, 1], [2, IGNORE, IGNORE, IGNORE], [1, 0, 0, IGNORE]])


def tagger(crf: bool = True) -> BiLstmTagger:
    made = randomised(BiLstmTagger(**TAGGER, crf=crf))
    assert isinstance(made, BiLstmTagger)
    return made


def classifier() -> SentenceClassifier:
    made = randomised(SentenceClassifier(**CLASSIFIER))
    assert isinstance(made, SentenceClassifier)
    return made


def slow_states(made: BiLstmTagger | SentenceClassifier, words: WordInput, row: int) -> list[Tensor]:
    states = slow_bilstm(made.recurrent, slow_words(made.read, words, row))
    return slow_beside(made.read, states, words, row)


# --- against slow versions


@torch.no_grad()
def test_the_tagger_word_by_word() -> None:
    made, words = tagger(), sentences()
    found = made(words)
    for row, length in enumerate(LENGTHS):
        for word, state in enumerate(slow_states(made, words, row)):
            expected = made.scores.weight @ state + made.scores.bias
            close(found[row, word], expected, terms=TAGGED)
        assert word == length - 1


def loss_of_tags(made: BiLstmTagger, words: WordInput, tags: Tensor) -> LossSum:
    return made.loss_of(made(words), words.mask_BT, tags)


def best_tags(made: BiLstmTagger, words: WordInput) -> Tensor:
    assert made.crf is not None
    return made.crf.viterbi(made(words), words.mask_BT)[0]


@torch.no_grad()
def test_the_taggers_loss_over_all_paths() -> None:
    made, words = tagger(), sentences()
    assert made.crf is not None
    total, best = 0.0, []
    for row, length in enumerate(LENGTHS):
        x = made(words)[row]
        scores = {}
        for path in product(range(3), repeat=length):
            value = made.crf.starts[path[0]] + made.crf.ends[path[-1]] + sum(x[t, tag] for t, tag in enumerate(path))
            scores[path] = float(value + sum(made.crf.transitions[a, b] for a, b in pairwise(path)))
        every = torch.tensor(list(scores.values()), dtype=torch.double).logsumexp(0)
        total += float(every) - scores[tuple(TAGS[row, :length].tolist())]
        best.append([*max(scores, key=lambda path: scores[path]), *[IGNORE] * (4 - length)])
    loss = loss_of_tags(made, words, TAGS)
    close(loss.total, total, terms=terms_of(PATHS, 3))
    assert loss.count == sum(LENGTHS)
    assert best_tags(made, words).tolist() == best


@torch.no_grad()
def test_without_a_field_each_tag_is_for_itself() -> None:
    made, words = tagger(crf=False), sentences()
    tags = TAGS.clone()
    tags[0, 1] = IGNORE  # a tag that was not trained on
    logs = made(words).log_softmax(2)
    expected = -sum(float(logs[row, word, tag]) for (row, word), tag in _tagged(tags))
    loss = loss_of_tags(made, words, tags)
    close(loss.total, expected, terms=terms_of(TAGGED, 3, sum(LENGTHS)))
    assert loss.count == sum(LENGTHS) - 1


def _tagged(tags: Tensor) -> list[tuple[tuple[int, int], int]]:
    return [((row, word), int(tags[row, word])) for row, word in (tags != IGNORE).nonzero().tolist()]


@torch.no_grad()
def test_the_classifier_word_by_word() -> None:
    made, words = classifier(), sentences()
    found = made(words)
    assert made.pool.attend is not None
    for row in range(len(LENGTHS)):
        states = slow_states(made, words, row)
        scores = [made.pool.attend.weight[0] @ state + made.pool.attend.bias[0] for state in states]
        weights = [score.exp() / sum(other.exp() for other in scores) for score in scores]
        columns = list(zip(*(state.tolist() for state in states)))
        pooled = torch.tensor(
            [
                *map(max, columns),
                *(sum(column) / len(column) for column in columns),
                *map(min, columns),
                *sum(weight * state for weight, state in zip(weights, states)).tolist(),
            ],
            dtype=torch.double,
        )
        close(found[row], made.scores.weight @ pooled + made.scores.bias, terms=LABELLED)


# --- padding and batches


@pytest.mark.parametrize("padding", PADDINGS)
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(padding: str) -> None:
    words, tags, label = sentences(), tagger(), classifier()
    for row in (None, 0, 1, 2):
        rows = slice(None) if row is None else slice(row, row + 1)
        other = repadded(words, padding, row)
        expected = tags(words)[rows][words.mask_BT[rows]]
        close(tags(other)[other.mask_BT], expected, terms=TAGGED)
        close(label(other), label(words)[rows], terms=LABELLED)
        assert torch.equal(best_tags(tags, other)[other.mask_BT], best_tags(tags, words)[rows][words.mask_BT[rows]])


def test_padding_does_not_change_what_is_dropped() -> None:
    words = sentences()
    for made in (
        BiLstmTagger(**TAGGER | {"dropout": 0.5, "inputs": replace(INPUTS, dropout=0.5)}),
        SentenceClassifier(**CLASSIFIER | {"dropout": 0.5, "layers": 2, "inputs": replace(INPUTS, dropout=0.5)}),
    ):
        made.double()
        found = []
        for padding in PADDINGS:
            torch.manual_seed(0)
            other = repadded(words, padding)
            scores = made(other)
            found.append(scores[other.mask_BT] if isinstance(made, BiLstmTagger) else scores)
        for other in found[1:]:
            close(other, found[0], terms=LABELLED)
        assert not torch.equal(made(words), made(words))


def test_a_batch_may_hold_sentences_without_words() -> None:
    words = repadded(sentences(), "none")
    words.mask_BT[1] = False
    assert words.vectors_BTD is not None
    clean = replace(
        words, vectors_BTD=words.vectors_BTD.nan_to_num(), layers=tuple(x.nan_to_num() for x in words.layers)
    )
    made = classifier()
    scores = made(clean)
    close(scores[1], made.scores.bias, terms=4 * 8)
    nothing = replace(clean, mask_BT=torch.zeros_like(clean.mask_BT))
    F.cross_entropy(made(nothing), torch.tensor([0, 1, 0]), reduction="sum").backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in made.parameters())
    for crf in (True, False):
        loss = loss_of_tags(tagger(crf), nothing, TAGS)
        assert loss.count == 0 and float(loss.total.detach()) == 0.0


def test_splitting_a_batch_changes_no_gradient_with_the_penalty() -> None:
    made = BiLstmTagger(**TAGGER | {"inputs": replace(INPUTS, mix_penalty=0.1)})
    randomised(made)
    words = sentences()
    whole = loss_of_tags(made, words, TAGS)
    mixes = [made.read.at_input, made.read.at_output]
    squares = sum(float(mix.weights_L.detach().square().sum()) for mix in mixes if mix is not None)
    plain = randomised(BiLstmTagger(**TAGGER))
    assert isinstance(plain, BiLstmTagger)
    without = float(loss_of_tags(plain, words, TAGS).total.detach())
    close(whole.total, without + whole.count * 0.1 * squares, terms=terms_of(PATHS, 3))
    parts, wider = [], F.pad(TAGS, (2, 1), value=IGNORE)
    for row in range(3):
        parts.append(loss_of_tags(made, quiet(repadded(words, "left", row)), wider[row : row + 1]).total)
    learned = list(made.parameters())
    found, wanted = (torch.autograd.grad(loss, learned) for loss in (torch.stack(parts).sum(), whole.total))
    assert all(bool(one.any()) for one in wanted)
    close(found, wanted, terms=terms_of(3 * PATHS, sum(LENGTHS)))


# --- parts


def test_pools_by_hand() -> None:
    x = torch.tensor([[[1.0, -2.0], [3.0, -5.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    pooled = Pooling(2)(x, mask)
    assert pooled[:, :6].tolist() == [[3.0, -2.0, 2.0, -3.5, 1.0, -5.0]] and pooled.shape == (1, 8)
    assert not Pooling(2)(x, torch.zeros_like(mask)).any() and not Pooling(2)(x[:, :0], mask[:, :0]).any()
    assert masked_softmax(torch.tensor([0.0, 0.0, 1e4]), torch.tensor([True, True, False])).tolist() == [0.5, 0.5, 0.0]


def test_parts_can_be_left_out() -> None:
    words = sentences()
    for changes, width in (
        ({"vectors": 0}, 6),
        ({"layers": 0, "layer_width": 0, "at_output": False}, 5),
        ({"characters": 0}, 7),
    ):
        config = replace(INPUTS, **changes)  # type: ignore[arg-type]
        read = WordReader(config).double()
        assert read(words).shape[-1] == width == config.width
        states = torch.zeros(3, 4, 5).double()
        assert read.beside(states, words).shape[-1] == 5 + config.output_width
    assert WordReader(replace(INPUTS, layers=2)).penalty() == 0.0


# --- toy tasks


def toy(length: int, rows: int) -> tuple[Tensor, Tensor]:
    """Sentences of four different words, as ids and as vectors."""
    drawn = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 4, (rows, length), generator=drawn)
    return ids, torch.randn(4, 6, generator=drawn)[ids]


def test_the_tagger_learns_what_follows() -> None:
    """A word's tag is B where the next one is greater, then I as long as it goes on so."""
    torch.manual_seed(0)
    ids, vectors = toy(6, 16)
    rises = torch.cat([ids[:, 1:] > ids[:, :-1], torch.zeros(16, 1).bool()], dim=1)
    before = torch.cat([torch.zeros(16, 1).bool(), rises[:, :-1]], dim=1)
    tags = rises.long() + (rises & before).long()  # O, B, I
    inputs = WordInputConfig(vectors=6, dropout=0.0)
    made = BiLstmTagger(inputs, 3, 8, 1, 0.0, True, iob2_allowed(["O", "B", "I"]))
    words = WordInput(torch.ones(16, 6).bool(), vectors)
    optimizer = torch.optim.Adam(made.parameters(), 0.05)
    for _ in range(40):
        optimizer.zero_grad()
        loss_of_tags(made, words, tags).total.backward()
        optimizer.step()
    assert float((best_tags(made, words) == tags).float().mean()) > 0.95
    assert len(tags.unique()) == 3


def test_the_classifier_learns_from_the_right_layer() -> None:
    """Whether the first word is one of two; only the second layer shows words, the first is noise."""
    torch.manual_seed(0)
    ids, vectors = toy(5, 24)
    labels = (ids[:, 0] >= 2).long()
    inputs = WordInputConfig(layers=2, layer_width=6, dropout=0.0)
    made = SentenceClassifier(inputs, 2, 8, 1, 0.0)
    optimizer = torch.optim.Adam(made.parameters(), 0.05)
    for _ in range(30):
        words = WordInput(torch.ones(24, 5).bool(), layers=(torch.randn(24, 5, 6), vectors))
        optimizer.zero_grad()
        F.cross_entropy(made(words), labels, reduction="sum").backward()
        optimizer.step()
    assert float((made(words).argmax(1) == labels).float().mean()) > 0.95
    assert made.read.at_input is not None and float(made.read.at_input.shares()[1].detach()) > 0.7
