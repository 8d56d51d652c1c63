"""The bidirectional language model: what is read and told, its loss word by word, streams that are carried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import refused
from tolerance import close, terms_of
from torch import Tensor
from word_tables import word_table

from foretext.batch import IGNORE, detached
from foretext.nn.recurrent.bilm import BilmTrunk, BilmTrunkConfig, LstmStack, SpelledBatch
from foretext.nn.recurrent.char_cnn import CharEncoderConfig
from foretext.objectives.bidirectional import BilmObjective, BilmObjectiveConfig, spelling
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Windows
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.wordpiece import wordpiece_from_pieces
from foretext.text.words.characters import END_SENTENCE, border_characters, word_characters

PIECES = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "old", "rare", "##s", "odd"]
TOKENIZER = wordpiece_from_pieces(PIECES, lower=True)  # five specials, then these
CHARACTERS = CharEncoderConfig(width=3, filter_widths=(1, 2), filter_counts=(3, 4), embedding=2, length=9, highways=1)
CONFIG = BilmTrunkConfig(TOKENIZER.size, layers=2, cells=5, context=6, cell_clip=0.8, dropout=0.0, words=CHARACTERS)
FULL = BilmObjectiveConfig(samples=0)
ENCODED = terms_of(2 * 2, 7, 7)  # filters over two characters, a highway, the projection
Pair = tuple[np.ndarray, np.ndarray]


def read(words: int) -> int:
    """The terms of a state after so many words and two layers: the inputs', the state's, the projection's."""
    return terms_of(ENCODED, (words + 2) * (3 + 3 + 5))


def told_of(words: int, tokens: int) -> int:
    """Those of the loss of so many tokens: a logit, the softmax's sum, their sum."""
    return terms_of(read(words), 3, TOKENIZER.size, tokens)


def objective(settings: BilmObjectiveConfig = FULL, config: BilmTrunkConfig = CONFIG) -> BilmObjective:
    return BilmObjective(config, settings, TOKENIZER)


@pytest.fixture
def trunk() -> BilmTrunk:
    torch.manual_seed(1)
    made = BilmTrunk(CONFIG)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def pairs(lengths: Sequence[int], seed: int = 0) -> list[Pair]:
    drawn = np.random.default_rng(seed)
    return [(drawn.integers(0, TOKENIZER.size, n), drawn.integers(0, TOKENIZER.size, n)) for n in lengths]


def shards_of(ids: np.ndarray) -> TokenShards:
    return TokenShards(Path("text"), "train", None, [ids])  # type: ignore[arg-type]


# --- the slow version


def literal(stack: LstmStack, words: list[Tensor]) -> list[Tensor]:
    """The top states of one direction over words in the order of reading, from nothing."""
    for number, lstm in enumerate(stack.lstms):
        h, c, outputs = torch.zeros(3), torch.zeros(5), []
        for word in words:
            i, f, g, o = (lstm.input.weight @ word + lstm.input.bias + lstm.recurrent.weight @ h).view(4, 5)
            c = (f.sigmoid() * c + i.sigmoid() * g.tanh()).clip(-0.8, 0.8)
            h = (lstm.project.weight @ (o.sigmoid() * c.tanh())).clip(-3.0, 3.0)
            outputs.append(h + word if number else h)
        words = outputs
    return words


def told(made: BilmObjective, state: Tensor, target: int) -> Tensor:
    logits = torch.stack([row @ state + bias for row, bias in zip(made.head.table_VD, made.head.bias_V)])
    return -(logits[target] - logits.exp().sum().log())


@torch.no_grad()
def slow_losses(made: BilmObjective, trunk: BilmTrunk, examples: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Each word from those before it, and each word from those after it."""

    def encoded(id: int) -> Tensor:
        row = word_characters([TOKENIZER.piece(id)], 9)[0]
        row = border_characters(END_SENTENCE, 9) if id == TOKENIZER.end else row
        return trunk.bilm.words(torch.from_numpy(row))

    forward = backward = torch.zeros(())
    for left, right in examples:
        for k, state in enumerate(literal(trunk.bilm.forwards, [encoded(id) for id in left[:-1].tolist()])):
            forward = forward + told(made, state, int(left[k + 1]))
        from_end = right[::-1].tolist()
        for k, state in enumerate(literal(trunk.bilm.backwards, [encoded(id) for id in from_end[:-1]])):
            backward = backward + told(made, state, from_end[k + 1])
    return forward, backward


# --- what is read and told


def test_each_word_is_told_from_one_side() -> None:
    made = objective()
    batch = made.make([(np.array([5, 7, 9]), np.array([6, 3, 8])), (np.array([10, 5]), np.array([7, 6]))])
    assert isinstance(batch, SpelledBatch) and batch.characters_UC is not None
    assert batch.back_ids_BT is not None and batch.mask_BT is not None and batch.back_mask_BT is not None
    assert batch.targets_BT is not None and batch.back_targets_BT is not None
    assert batch.targets_BT.tolist() == [[7, 9], [5, IGNORE]]
    assert batch.back_targets_BT.tolist() == [[6, 3], [7, IGNORE]]
    assert batch.mask_BT.tolist() == batch.back_mask_BT.tolist() == [[True, True], [True, False]]
    there = batch.characters_UC[batch.ids_BT[batch.mask_BT]]
    assert torch.equal(there, torch.from_numpy(word_characters(["the", "cat", "ran"], 9)))
    back = batch.characters_UC[batch.back_ids_BT[batch.back_mask_BT]]
    assert torch.equal(back[1:], torch.from_numpy(word_characters(["dog", "a"], 9)))
    assert torch.equal(back[0], torch.from_numpy(border_characters(END_SENTENCE, 9)))  # 3 stands after a document
    assert not batch.characters_UC[0].any() and len(batch.characters_UC) == 1 + 7  # each word once
    assert made.counts(batch) == {"forward": 3.0, "backward": 3.0}


def test_rare_words_are_read_but_not_told() -> None:
    rare = TOKENIZER.encode("rare")[0]
    made = objective(BilmObjectiveConfig(0, targets=rare))
    assert made.head.table_VD.shape == (rare, 3)
    batch = made.make([(np.array([5, rare, 6]), np.array([rare, rare, 6]))])
    assert isinstance(batch, SpelledBatch) and batch.characters_UC is not None and batch.back_targets_BT is not None
    assert batch.targets_BT is not None and batch.targets_BT.tolist() == [[TOKENIZER.unknown, 6]]
    assert batch.back_targets_BT.tolist() == [[TOKENIZER.unknown] * 2]
    assert torch.equal(batch.characters_UC[batch.ids_BT[0, 1]], torch.from_numpy(word_characters(["rare"], 9)[0]))
    with refused("objective.targets=3", "document", "objective.targets=0"):
        objective(BilmObjectiveConfig(0, targets=3))
    assert objective(BilmObjectiveConfig(0, targets=99)).words == TOKENIZER.size


def test_settings() -> None:
    BilmObjectiveConfig().check()
    for settings, named in (
        (BilmObjectiveConfig(samples=-1), ("objective.samples", "-1")),
        (BilmObjectiveConfig(targets=-2), ("objective.targets", "-2")),
        (BilmObjectiveConfig(targets=1), ("objective.targets=1",)),
    ):
        with refused(*named):
            settings.check()
    assert [objective(BilmObjectiveConfig(samples)).samples for samples in (0, 8, 9)] == [0, 8, 0]  # of 17 words


# --- losses


def test_the_loss_word_by_word(trunk: BilmTrunk) -> None:
    made, examples = objective(), pairs([6, 3, 1, 5])
    outcome = made(trunk, made.make(examples))
    expected = slow_losses(made, trunk, examples)
    for name, one in zip(("forward", "backward"), expected):
        close(outcome.losses[name].total, one, terms=told_of(5, 11))
        assert outcome.losses[name].count == 5 + 2 + 0 + 4
    assert made.weights == {"forward": 0.5, "backward": 0.5}


def test_splitting_a_batch_changes_no_gradient(trunk: BilmTrunk) -> None:
    made, examples = objective(), pairs([6, 3, 7, 5])
    learned = [*trunk.parameters(), *made.parameters()]

    def gradients(parts: Sequence[Sequence[Pair]]) -> list[Tensor]:
        losses = [loss.total for part in parts for loss in made(trunk, made.make(part)).losses.values()]
        return list(torch.autograd.grad(torch.stack(losses).sum(), learned))

    whole, split = gradients([examples]), gradients([examples[:1], examples[1:]])
    assert all(bool(one.any()) for one in whole)
    close(split, whole, terms=3 * told_of(6, 2 * 17))  # back through two products a sum


def test_large_vocabularies_are_sampled_in_training_only(trunk: BilmTrunk) -> None:
    full, sampled = objective(), objective(BilmObjectiveConfig(samples=4))
    sampled.load_state_dict(full.state_dict())
    batch = full.make(pairs([6, 6]))

    def loss(made: BilmObjective, seed: int = 0) -> float:
        torch.manual_seed(seed)
        made.begin_step(0, 0.0)
        return float(made(trunk, batch).losses["forward"].total.detach())

    assert loss(sampled.eval()) == loss(full.eval())
    close(loss(full.train()), loss(full.eval()), terms=told_of(5, 10))
    sampled.train()
    assert loss(sampled) == loss(sampled) != loss(sampled, 1)
    assert loss(sampled) != loss(full)


# --- streams


def stream_batches(made: BilmObjective, examples: Any, rows: int) -> list[list[Pair]]:
    order = made.order(examples, rows, seed=0)
    steps = [order.batch(step) for step in range(order.steps_per_epoch)]
    return [[examples.example(epoch, index) for index in indices] for epoch, indices in steps]


@pytest.mark.parametrize("rows", [1, 3])
def test_both_directions_go_on_where_they_stopped(rows: int) -> None:
    ids = np.arange(100)  # each id is its place
    made = objective()
    steps = stream_batches(made, made.examples(shards_of(ids), 4, seed=5), rows)
    assert len(steps) > 3
    for before, after in pairwise(steps):
        for (left, right), (next_left, next_right) in zip(before, after):
            assert next_left[0] == left[-1], "the word that was told last is read first"
            assert next_right[-1] == right[0], "and on the other side, to the left"
    if rows == 1:
        lefts, rights = ({int(pair[0][side]) for step in steps for pair in step} for side in (0, 1))
        assert len(lefts) == len(rights) == len(steps)


@pytest.mark.parametrize("rows", [1, 2])
def test_read_in_pieces_it_is_the_same_as_at_once(trunk: BilmTrunk, rows: int) -> None:
    made = objective()
    windows = Windows(shards_of(np.random.default_rng(2).integers(0, TOKENIZER.size, 6 * 4 + 1)), 4, seed=5)
    steps = stream_batches(made, made.examples(windows.shards, 4, seed=5), rows)
    state, totals = None, {"forward": 0.0, "backward": 0.0}
    for examples in steps:
        outcome = made(trunk, made.make(examples), state)
        state = detached(outcome.state)
        for name, loss in outcome.losses.items():
            totals[name] += float(loss.total.detach())
    whole = []
    for row in range(rows):
        lefts, rights = [step[row][0] for step in steps], [step[row][1] for step in reversed(steps)]
        joined = [np.concatenate([*(piece[:-1] for piece in side), side[-1][-1:]]) for side in (lefts, rights)]
        whole.append((joined[0], joined[1]))
    at_once = made(trunk, made.make(whole)).losses
    for name, total in totals.items():
        close(total, at_once[name].total, terms=told_of(24, 24))
    alone = sum(float(made(trunk, made.make(step)).losses["forward"].total.detach()) for step in steps)
    assert abs(alone - totals["forward"]) > 1e-3, "without the state it is another loss"


# --- words


def test_sentences_and_vocabularies_are_read_alike(trunk: BilmTrunk) -> None:
    batch = word_table([["the", "cat"], ["odd"]], 9, borders=False).batch()
    spelled = BilmTrunk(CONFIG, lambda ids: spelling(TOKENIZER, ids, 9))
    spelled.load_state_dict(trunk.state_dict())
    ids = torch.tensor([[5, 7], [16, 0]])
    assert TOKENIZER.piece(16) == "odd"
    top = spelled(replace(batch, ids_BT=ids, characters_UC=None)).top
    close(top, trunk(batch).top, terms=read(2))


def test_dropout_before_the_softmax_is_in_training_only(trunk: BilmTrunk) -> None:
    made = objective(config=replace(CONFIG, dropout=0.5))
    batch = made.make(pairs([6, 6]))

    def loss() -> float:
        return float(made(trunk, batch).losses["backward"].total.detach())

    assert loss() != loss()
    made.eval()
    assert loss() == loss()


def test_any_tokenizer_can_be_spelled() -> None:
    tokenizer: Tokenizer = TOKENIZER
    table = spelling(tokenizer, np.arange(tokenizer.size), 9)
    assert len({row.tobytes() for row in table}) == tokenizer.size, "no two pieces look alike"
