"""The permutation language model: which orders are drawn, what is predicted, and what the batch says of it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from complaints import refused
from systems_under_test import TINY, masks_drawn, tokenizer_of, trunk_of, windows
from tolerance import close, terms_of

from foretext.batch import IGNORE
from foretext.nn.relative.sights import OrderedBatch
from foretext.objectives.base import Draw
from foretext.objectives.permutation import (
    PermutationConfig,
    PermutationObjective,
    draw_order,
    draw_targets,
    left_to_right,
    ranks_of,
    with_blanks,
)
from foretext.text.order import Stretch


def objective(**settings: object) -> PermutationObjective:
    return PermutationObjective(TINY["xlnet"], PermutationConfig(**settings), tokenizer_of("xlnet"))  # type: ignore[arg-type]


def order_of(length: int, config: PermutationConfig, seed: int, words: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The targets and the order of a text whose words have so many tokens."""
    draw = np.random.default_rng([seed, 3])
    starts, everything = np.arange(length) % words == 0, np.ones(length, dtype=bool)
    chosen = draw_targets(starts, everything, config, draw)
    return chosen, draw_order(chosen, ~everything, draw)


# -- orders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("predicted", "longest"), [(1, 5), (4, 1)])
def test_every_order_is_drawn_about_equally_often(predicted: int, longest: int) -> None:
    """Where all tokens are predicted, whatever the runs; and where one is, and runs are single tokens."""
    config, draws = PermutationConfig(predicted, longest), 4800
    found = Counter(tuple(order_of(4, config, seed)[1].tolist()) for seed in range(draws))
    assert found.keys() == set(itertools.permutations(range(4)))
    expected = draws / math.factorial(4)
    squares = sum((count - expected) ** 2 / expected for count in found.values())
    assert squares < 49.7, "χ² with 23 degrees of freedom: one in a thousand is above that"


@pytest.mark.parametrize(("length", "predicted"), [(5, 2), (6, 3), (7, 6)])
def test_every_order_is_drawn_at_the_settings_that_are_used(length: int, predicted: int) -> None:
    """Runs of up to five tokens, words of two: every set of targets, each in every order, behind every order of what is
    given (where these are more than six they are too many to wait for)."""
    config, last = PermutationConfig(predicted), length // predicted
    orders: dict[frozenset[int], set[tuple[int, ...]]] = {
        frozenset(one): set() for one in itertools.combinations(range(length), last)
    }
    for seed in range(6000):
        chosen, order = order_of(length, config, seed, words=2)
        orders[frozenset(np.flatnonzero(chosen).tolist())].add(tuple(order.tolist()))
    for targets, found in orders.items():
        assert {order[-last:] for order in found} == set(itertools.permutations(targets))
        given = math.factorial(length - last)
        assert len({order[:-last] for order in found}) == given or given > 6


def orders_made(kept: int | None) -> list[Counter[tuple[int, ...]]]:
    """How often each order of each four places comes in what the objective makes of eight, or of four."""
    length, draws = 4 if kept is None else 2 * kept, 2400
    stretches = [Stretch(np.arange(20, 20 + length), kept=kept) for _ in range(draws)]
    made = objective(predicted=4, longest=1, context="ordered").make(stretches, Draw(0, 0, tuple(range(draws))))
    assert isinstance(made, OrderedBatch) and made.ranks_BT is not None
    return [
        Counter(tuple((ranks[first : first + 4] - first).tolist()) for ranks in made.ranks_BT)
        for first in range(0, length, 4)
    ]


@pytest.mark.parametrize("kept", [None, 4])
def test_a_batch_has_every_order_of_what_is_drawn_together(kept: int | None) -> None:
    """All of a stretch; where a half is remembered, each half, the second behind all of the first."""
    for found in orders_made(kept):
        assert found.keys() == set(itertools.permutations(range(4)))
        squares = sum((count - 100) ** 2 / 100 for count in found.values())
        assert squares < 49.7, "χ² with 23 degrees of freedom: one in a thousand is above that"


def test_runs_keep_to_the_text_and_scattered_targets_to_nothing() -> None:
    """Runs of at most five, each within six times its length: the first can begin no later than at 30, whatever the
    draw. As the sizes have it, one sequence in twenty is free of that, and the first half of what is drawn together may
    be given whole."""
    places = np.arange(256)

    def firsts(scattered: float) -> list[int]:
        config = PermutationConfig(scattered=scattered)
        return [int(places[order_of(256, config, seed, words=2)[0]].min()) for seed in range(1500)]

    assert max(firsts(0.0)) <= 30 < max(firsts(1.0))
    assert PermutationConfig().scattered == 0.05, "which every size has"


def test_what_is_predicted_is_last_in_any_order() -> None:
    config = PermutationConfig()
    ends: Counter[tuple[int, ...]] = Counter()
    for seed in range(300):
        chosen, order = order_of(18, config, seed)
        assert sorted(order.tolist()) == list(range(18)) and chosen.sum() == 3
        assert set(order[-3:].tolist()) == set(np.flatnonzero(chosen).tolist())
        ends[tuple(np.argsort(np.argsort(order[-3:])).tolist())] += 1
    assert len(ends) == 6 and min(ends.values()) > 25, "given the places, all orders of them"


def runs_of(chosen: np.ndarray) -> list[tuple[int, int]]:
    """Where each run of chosen places begins, and its length."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    return [(int(begin), int(end - begin)) for begin, end in zip(edges[::2], edges[1::2])]


def test_runs_begin_with_a_word_and_are_as_long_as_in_the_released_code() -> None:
    """p(n) ∝ 1/n, n up to 5. What is left over is drawn token by token, so that single ones may stand anywhere, and now
    and then lengthen a run."""
    found = [
        run for seed in range(300) for run in runs_of(order_of(600, PermutationConfig(scattered=0.0), seed, words=4)[0])
    ]
    several = [(begin, length) for begin, length in found if length > 1]
    assert len(several) > 5000
    assert np.mean([begin % 4 == 0 for begin, _ in several]) > 0.9
    assert np.mean([length > 5 for _, length in several]) < 0.03
    share = np.array([sum(length == n for _, length in several) for n in range(2, 6)]) / len(several)
    np.testing.assert_allclose(share, (1 / np.arange(2, 6)) / sum(1 / n for n in range(2, 6)), atol=0.04)
    everywhere = np.bincount([begin * 4 // 600 for begin, _ in found], minlength=4) / len(found)
    assert everywhere.min() > 0.2, "all over the text"


def test_ranks() -> None:
    chosen = np.array([False, True, False, False, True, False])
    order = np.array([5, 0, 3, 2, 4, 1])
    assert ranks_of(order, 2, PermutationConfig()).tolist() == [0, 2, 0, 0, 1, 0], "given tokens see each other all"
    ordered = ranks_of(order, 2, PermutationConfig(context="ordered"))
    assert ordered.tolist() == [1, 5, 3, 2, 4, 0] and ordered[order].tolist() == list(range(6))
    assert chosen[order][-2:].all()


def test_separators_are_not_predicted_and_not_seen_by_what_is_given() -> None:
    apart = np.zeros(20, dtype=bool)
    apart[[7, 18, 19]] = True
    among = set()
    for seed in range(200):
        draw = np.random.default_rng(seed)
        chosen = draw_targets(np.ones(20, dtype=bool), ~apart, PermutationConfig(), draw)
        assert not (chosen & apart).any() and chosen.sum() == 17 // 6
        order = draw_order(chosen, apart, draw)
        ranks = ranks_of(order, 2 + 3, PermutationConfig())
        assert sorted(ranks[chosen | apart].tolist()) == [1, 2, 3, 4, 5] and not ranks[~(chosen | apart)].any()
        among.add(int(ranks[19]))
    assert among == {1, 2, 3, 4, 5}, "anywhere among what is predicted"


@pytest.mark.parametrize("length", [1, 2, 5, 6, 7, 13])
@pytest.mark.parametrize("predicted", [1, 3, 6])
def test_short_sequences_have_at_least_one_target(length: int, predicted: int) -> None:
    for seed in range(20):
        chosen, order = order_of(length, PermutationConfig(predicted), seed, words=4)
        assert chosen.sum() == max(1, length // predicted) and len(order) == length


@pytest.mark.parametrize(
    ("key", "value"),
    [("predicted", 0), ("longest", 0), ("length", 0.0), ("scattered", -0.1), ("forget", 1.5), ("early", 1.0)],
)
def test_settings_that_cannot_be(key: str, value: float) -> None:
    with refused(f"objective.{key}", str(value)):
        objective(**{key: value})


@pytest.mark.parametrize(
    ("settings", "context", "expected"),
    [
        ({}, 512, [(1.0, 512)]),
        ({"length": 0.25}, 256, [(1.0, 64)]),
        ({"length": 0.5, "early": 0.2, "grown": 0.4}, 256, [(0.2, 32), (0.4, 64), (1.0, 128)]),
        ({"early": 0.2, "early_length": 0.01}, 24, [(0.2, 1), (1.0, 24)]),
        ({"early": 0.2, "early_length": 0.01, "pairs": True}, 24, [(0.2, 7), (1.0, 24)]),  # what two segments need
    ],
)
def test_how_much_is_read_at_a_time(settings: dict[str, object], context: int, expected: list[object]) -> None:
    assert objective(**settings).lengths(context) == expected


# -- batches ---------------------------------------------------------------------------------------------------------


def test_a_sequence_is_drawn_alike_in_any_batch_and_direction() -> None:
    """What is predicted and in which order follows from seed, epoch and index; ids read from the right are turned, and
    all that belongs to them."""
    own = objective()
    rows = windows((20, 13, 20))
    stretches = [Stretch(rows[0]), Stretch(rows[1], backward=True), Stretch(rows[2])]
    batch = own.make(stretches, Draw(4, 1, (8, 2, 5)))
    assert isinstance(batch, OrderedBatch) and batch.backward_B is not None and batch.mask_BT is not None
    assert batch.backward_B.tolist() == [False, True, False] and batch.mask_BT.sum(1).tolist() == [20, 13, 20]
    alone = own.make([Stretch(rows[1])], Draw(4, 1, (2,)))
    assert isinstance(alone, OrderedBatch) and alone.backward_B is None and alone.mask_BT is None
    for name in ("ids_BT", "targets_BT", "ranks_BT"):
        assert torch.equal(getattr(batch, name)[1, :13].flip(0), getattr(alone, name)[0]), name
    others = [own.make([Stretch(rows[0])], draw) for draw in (Draw(4, 2, (8,)), Draw(5, 1, (8,)), Draw(4, 1, (9,)))]
    again = own.make([Stretch(rows[0])], Draw(4, 1, (8,)))
    assert torch.equal(again.ranks_BT[0], batch.ranks_BT[0])  # type: ignore[attr-defined]
    assert any(not torch.equal(other.targets_BT, again.targets_BT) for other in others)


def test_one_way_is_the_first_half_of_the_windows_and_both_are_all() -> None:
    """Eleven windows, each numbered for either way: three rows of three, and what is left over."""

    def seen(both_ways: bool) -> list[int]:
        order = objective(both_ways=both_ways).order([0] * 22, 3, 0)  # type: ignore[arg-type]
        return sorted(index for step in range(order.steps_per_epoch) for index in order.batch(step)[1])

    assert seen(False) == list(range(9))
    assert seen(True) == [*range(10), *range(11, 16)], "two rows from the left, one from the right"


def test_targets_are_the_tokens_themselves() -> None:
    own = objective()
    batch = own.make(
        [Stretch(row, backward=n % 2 == 1) for n, row in enumerate(windows((24, 24, 7, 1)))], Draw(0, 0, (0, 1, 2, 3))
    )
    assert batch.targets_BT is not None
    asked = batch.targets_BT != IGNORE
    assert asked.sum(1).tolist() == [4, 4, 1, 1]
    assert torch.equal(batch.targets_BT[asked], batch.ids_BT[asked])
    assert own.counts(batch) == {"permuted": 10.0}


def test_left_to_right() -> None:
    row = windows((9,))[0]
    batch = left_to_right([row.tolist()], [9])
    assert batch.ranks_BT is not None and batch.ranks_BT.tolist() == [list(range(9))]
    assert torch.equal(batch.targets_BT, batch.ids_BT) and batch.ids_BT.tolist() == [row.tolist()]  # type: ignore[arg-type]
    some = left_to_right([[5, 6, 7], [8]], [2, 1])
    assert some.targets_BT is not None and some.targets_BT.tolist() == [[IGNORE, 6, 7], [8, IGNORE, IGNORE]]


def test_the_loss_is_the_surprise_of_each_target() -> None:
    own, trunk = objective().eval(), trunk_of("xlnet").eval()
    with torch.no_grad():
        own.head.bias.normal_()
        batch = own.make([Stretch(row) for row in windows((24, 24))], Draw(0, 0, (0, 1)))
        outcome = own(trunk, batch)
        top = trunk(batch, trunk.new_state(2)).top
        logs = (top @ trunk.output_table().t() + own.head.bias).log_softmax(-1)  # type: ignore[operator]
        assert batch.targets_BT is not None
        asked = batch.targets_BT != IGNORE
        literal = -logs[asked].gather(1, batch.targets_BT[asked][:, None]).sum()
    # Of two layers: norms and projections, keys, inner states; then a logit, the softmax's sum, and eight targets.
    there = terms_of(2 * (6 * 32 + 2 * 24 + 128), 32, TINY["xlnet"].vocabulary, 8)
    close(outcome.losses["permuted"].total, literal, terms=there)
    assert outcome.losses["permuted"].count == 8 and outcome.state[1].tolist() == [[True] * 8] * 2


def test_what_is_predicted_from_is_dropped_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(TINY["xlnet"], dropout=0.3)
    own = PermutationObjective(config, PermutationConfig(), tokenizer_of("xlnet"))
    batch = own.make([Stretch(row) for row in windows((24, 24))], Draw(0, 0, (0, 1)))
    found, trunk = masks_drawn(monkeypatch), trunk_of("xlnet")
    own(trunk, batch)
    assert found == {(8, 32): 1}, "the states of eight queries; the trunk drops nothing here"
    own.eval()(trunk, batch)
    assert found == {(8, 32): 1}


def test_a_model_without_a_memory_carries_nothing() -> None:
    config = replace(TINY["xlnet"], memory=0)
    own = PermutationObjective(config, PermutationConfig(), tokenizer_of("xlnet"))
    assert not own.carries_state and objective().carries_state
    outcome = own(trunk_of("xlnet", memory=0), own.make([Stretch(windows((24,))[0])], Draw(0, 0, (0,))))
    assert outcome.state is None


def test_blanks_are_told_from_all_that_is_none() -> None:
    trunk = trunk_of("xlnet").eval()
    ids = [5, 9, 3, 40, 12]
    with torch.no_grad():
        states = trunk(with_blanks(ids, [1, 3])).top[0]
        assert not bool(states[[0, 2, 4]].any())
        for place in range(5):
            changed = list(ids)
            changed[place] = 50
            other = trunk(with_blanks(changed, [1, 3])).top[0]
            assert torch.equal(other, states) == (place in (1, 3)), "what a blank holds is nothing to anyone"
        parted = with_blanks(ids, [1, 3], [0, 0, 0, 0, 2])
        assert parted.segments_BT is not None and parted.segments_BT.tolist() == [[0, 0, 0, 0, 2]]
        assert not torch.allclose(trunk(parted).top[0, [1, 3]], states[[1, 3]], atol=1e-4)
