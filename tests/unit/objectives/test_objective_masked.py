"""What a masked objective makes of examples: the sequence, its targets, and draws that are pure functions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from systems_under_test import MASKING, TINY, objective_of, tokenizer_of, trunk_of, unlabelled

from foretext.batch import IGNORE, Batch
from foretext.nn import fused
from foretext.objectives.base import Draw
from foretext.objectives.masked import MaskedObjective
from foretext.objectives.spans import Span
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, TokenizerConfig
from foretext.text.tokenizers.base import KINDS
from foretext.train.pretraining.run_setup import new_tokenizer

TEXTS = ["the cat sat on the mat and looked at another cat, which looked back"] * 9
LENGTHS = [20, 3, 17, 1]


def objective(system: str) -> MaskedObjective:
    found = objective_of(system)
    assert isinstance(found, MaskedObjective)
    return found


def made(system: str, draw: Draw | None) -> Batch:
    return objective(system).make(unlabelled(system, [LENGTHS[i] for i in draw.indices] if draw else LENGTHS), draw)


@pytest.mark.parametrize("system", MASKING)
def test_the_sequence_and_its_targets(system: str) -> None:
    plain, masked = made(system, None), made(system, Draw(1, 0, (0, 1, 2, 3)))
    assert plain.targets_BT is not None and bool((plain.targets_BT == IGNORE).all())
    assert masked.targets_BT is not None and masked.mask_BT is not None
    chosen = masked.targets_BT != IGNORE
    assert torch.equal(masked.targets_BT[chosen], plain.ids_BT[chosen]), "what stood there is to be told"
    assert torch.equal(masked.ids_BT[~chosen], plain.ids_BT[~chosen]), "nothing else is changed"
    assert bool(chosen.any(1).all()) and not bool((chosen & ~masked.mask_BT).any())
    special = torch.tensor(sorted(tokenizer_of(system).specials.values()))
    assert not bool(torch.isin(plain.ids_BT[chosen], special).any())
    frame = objective(system)
    for row, real in zip(plain.ids_BT, masked.mask_BT):
        ids = row[real].tolist()
        assert ids[0] == frame.first and ids[-1] == frame.separator and frame.mask not in ids
    if objective(system).pairs != "none":
        assert plain.segments_BT is not None and plain.labels is not None
        for row, segments, real in zip(plain.ids_BT, plain.segments_BT, masked.mask_BT):
            separators = np.flatnonzero(row[real].numpy() == frame.separator)
            assert segments[real].tolist() == [int(place > separators[0]) for place in range(int(real.sum()))]


@pytest.mark.parametrize("system", MASKING)
def test_masks_are_a_function_of_seed_epoch_and_index(system: str) -> None:
    """Drawn anew in each epoch; whatever batch an example is in, the same for the same three."""

    def targets(draw: Draw) -> list[list[int]]:
        batch = made(system, draw)
        assert batch.targets_BT is not None
        return [np.flatnonzero(row != IGNORE).tolist() for row in batch.targets_BT.numpy()]

    rows = unlabelled(system, LENGTHS)

    def alone(number: int, draw: Draw) -> list[int]:
        batch = objective(system).make([rows[number]], draw)
        assert batch.targets_BT is not None
        return np.flatnonzero(batch.targets_BT[0].numpy() != IGNORE).tolist()

    together = targets(Draw(1, 5, (0, 1, 2, 3)))
    assert together == [alone(number, Draw(1, 5, (number,))) for number in range(4)]
    others = [Draw(1, 6, (0,)), Draw(2, 5, (0,)), Draw(1, 5, (9,))]
    assert all(alone(0, draw) != together[0] for draw in others)
    assert len({tuple(alone(0, Draw(1, epoch, (0,)))) for epoch in range(20)}) > 10


@pytest.mark.parametrize("system", MASKING)
def test_a_micro_batch_without_a_target_counts_as_zero(system: str) -> None:
    found, trunk = objective(system), trunk_of(system)
    end = tokenizer_of(system).specials[sorted(tokenizer_of(system).specials)[0]]
    nothing = np.array([end, end], dtype=np.int64)
    batch = found.make([Span((nothing,) if found.pairs == "none" else (nothing, nothing))], Draw(0, 0, (0,)))
    counts, outcome = found.counts(batch), found(trunk, batch)
    assert counts["masked"] == outcome.losses["masked"].count == 0 == float(outcome.losses["masked"].total.detach())
    sum(loss.total for loss in outcome.losses.values()).backward()
    assert all(bool(p.grad.isfinite().all()) for p in trunk.parameters() if p.grad is not None)


@pytest.mark.parametrize("system", MASKING)
def test_the_softmax_is_taken_at_the_masked_places_alone(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else reaches the head, nor, behind it, the table."""
    found, trunk, batch = objective(system), trunk_of(system), made(system, Draw(1, 0, (0, 1, 2, 3)))
    rows: list[int] = []
    found.head.register_forward_hook(lambda module, given, states: rows.append(len(states)))
    chunks = fused._chunks

    def counted(states: int, vocabulary: int) -> list[slice]:
        rows.append(states)
        return chunks(states, vocabulary)

    monkeypatch.setattr(fused, "_chunks", counted)
    found(trunk, batch)
    assert batch.targets_BT is not None
    assert rows == [int((batch.targets_BT != IGNORE).sum())] * 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("system", MASKING)
def test_specials_are_never_masked_wherever_they_stand(system: str, kind: str) -> None:
    """Over many draws, in whole sequences: the frame, and the ends of documents inside a stretch of text."""
    parts, config = SYSTEMS[system], TokenizerConfig(kind, 300, splitter="rules")  # type: ignore[arg-type]
    tokenizer = new_tokenizer(parts, TEXTS, config, 0, lambda title, done, total: None)
    shape = replace(TINY[system], vocabulary=tokenizer.size)
    found = parts.build_objective(ObjectiveParts(shape, parts.sizes["paper"].objective, tokenizer))
    assert isinstance(found, MaskedObjective)
    ids = np.array([*tokenizer.encode(TEXTS[0]), tokenizer.end, *tokenizer.encode(TEXTS[0])])
    span = Span((ids,) if found.pairs == "none" else (ids, ids[::-1].copy()))
    plain, special = found.make([span]).ids_BT[0], sorted(tokenizer.specials.values())
    count, ordinary, fates = 0, int((~torch.isin(plain, torch.tensor(special))).sum()), np.zeros(3)
    for epoch in range(200):
        batch = found.make([span], Draw(3, epoch, (0,)))
        assert batch.targets_BT is not None
        chosen = batch.targets_BT[0] != IGNORE
        count += int(chosen.sum())
        assert not np.isin(plain[chosen], special).any(), "a special token was chosen"
        put = batch.ids_BT[0][chosen]
        fates += [int((put == found.mask).sum()), int((put == plain[chosen]).sum()), 0]
        fates[2] += len(put)
        assert not np.isin(put, [id for id in special if id != found.mask]).any(), "a special token was put"
    assert 0.1 < count / (200 * ordinary) < 0.16
    assert fates[:2] / fates[2] == pytest.approx([0.8, 0.1], abs=0.03)


@pytest.mark.parametrize(
    ("settings", "context", "expected"),
    [
        ({}, 256, [(1.0, 256)]),
        ({"early": 0.9}, 512, [(0.9, 128), (1.0, 512)]),  # BERT's paper
        ({"early": 0.2, "early_length": 0.125, "grown": 0.6}, 256, [(0.2, 32), (0.4, 64), (0.6, 128), (1.0, 256)]),
        ({"early": 0.6, "early_length": 0.125, "grown": 0.2}, 256, [(0.6, 32), (1.0, 256)]),
        ({"early": 0.5, "grown": 0.7}, 100, [(0.5, 25), (0.7, 50), (1.0, 100)]),
        ({"early": 0.5, "early_length": 0.01}, 24, [(0.5, 7), (1.0, 24)]),
        ({"early": 0.5, "early_length": 1.0, "grown": 0.7}, 24, [(1.0, 24)]),
    ],
)
def test_how_long_sequences_are(settings: dict, context: int, expected: list[tuple[float, int]]) -> None:
    short = objective("bert")
    short.masking = replace(short.masking, early=0.0, early_length=0.25, grown=0.0)
    short.masking = replace(short.masking, **settings)
    found = short.lengths(context)
    assert [length for _, length in found] == [length for _, length in expected]
    assert [until for until, _ in found] == pytest.approx([until for until, _ in expected])
