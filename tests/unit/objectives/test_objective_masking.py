"""Which tokens are masked, and by what: statistics over many draws, and never a special token."""

from __future__ import annotations

import numpy as np
import pytest
from complaints import refused

from foretext.objectives.masked import Masker, MaskingConfig
from foretext.text.tokenizers.base import END
from foretext.text.tokenizers.byte_bpe import ROBERTA_SPECIALS, ByteBPE

BYTES = ByteBPE(bytes(range(256)), [], {END: 256}).with_specials(ROBERTA_SPECIALS)
MASK, FIRST, SEPARATOR = (BYTES.specials[name] for name in ("<mask>", "<s>", "</s>"))


def sequence(text: str) -> np.ndarray:
    return np.array([FIRST, *BYTES.encode(text), SEPARATOR], dtype=np.int64)


def draws(config: MaskingConfig, ids: np.ndarray, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    masker = Masker(config, BYTES, MASK)
    return [masker.mask(ids, np.random.default_rng([1, number])) for number in range(count)]


@pytest.mark.parametrize("unit", ["piece", "word", "n-gram"])
def test_how_many_and_what_is_put_there(unit: str) -> None:
    ids = sequence("the quick brown fox jumps over a lazy dog and runs on to the far side of it " * 3)
    real = len(ids) - 2
    found = draws(MaskingConfig(unit=unit), ids, 400)  # type: ignore[arg-type]
    chosen = np.concatenate([places for places, _ in found])
    put = np.concatenate([what for _, what in found])
    assert not {0, len(ids) - 1} & set(chosen.tolist()), "a special token was chosen"
    assert all((np.diff(places) > 0).all() for places, _ in found), "rising, each place once"
    share = len(chosen) / (400 * real)
    assert 0.15 - (0.01 if unit == "piece" else 0.03) < share <= 0.151
    kept, masked = np.mean(put == ids[chosen]), np.mean(put == MASK)
    assert masked == pytest.approx(0.8, abs=0.02) and kept == pytest.approx(0.1 + 0.1 / 256, abs=0.02)
    assert not set(put.tolist()) & (set(BYTES.specials.values()) - {MASK})
    often = np.bincount(chosen, minlength=len(ids))[1:-1] / 400
    if unit == "piece":
        assert often == pytest.approx(np.full(real, 0.15), abs=0.08), "every place alike"


@pytest.mark.parametrize("unit", ["word", "n-gram"])
@pytest.mark.parametrize("part", [0.01, 0.15, 0.3, 1.0])
def test_whole_words_only(unit: str, part: float) -> None:
    ids = sequence("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu")
    words = np.cumsum(BYTES.word_starts(ids))
    for places, _ in draws(MaskingConfig(unit=unit, part=part), ids, 60):  # type: ignore[arg-type]
        chosen = set(words[places].tolist())
        assert len(places) and set(places.tolist()) == set(np.flatnonzero(np.isin(words, list(chosen))).tolist())


@pytest.mark.parametrize("unit", ["word", "n-gram"])
def test_if_no_word_is_small_enough_a_shortest_one_is_taken(unit: str) -> None:
    """15 % of 20 are 3, and all words are longer."""
    found = [set(p.tolist()) for p, _ in draws(MaskingConfig(unit=unit), sequence("abcde fgh mnopqrs ijkl"), 40)]  # type: ignore[arg-type]
    assert set(map(frozenset, found)) == {frozenset(range(6, 10))}, "the space goes with its word"


def test_lengths_of_runs() -> None:
    """p(n) ∝ 1/n: with much room, runs of one, two and three words stand as 6 : 3 : 2."""
    masker = Masker(MaskingConfig(unit="n-gram", part=1.0), BYTES, MASK)
    words = [np.array([place]) for place in range(1000)]
    draw = np.random.default_rng(0)
    lengths = np.bincount([masker._run(words, int(draw.integers(900)), draw) for _ in range(8_000)], minlength=4)
    assert lengths[1:] / 8_000 == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.02)
    # What is masked in the end, where little is masked, so that runs seldom meet.
    ids = np.array([FIRST, *np.tile([33, 34], 3000), SEPARATOR])  # signs, each a word
    config = MaskingConfig(unit="n-gram", part=0.02)
    runs = [len(run) for p, _ in draws(config, ids, 15) for run in np.split(p, np.flatnonzero(np.diff(p) > 1) + 1)]
    assert np.bincount(runs, minlength=4)[1:4] / len(runs) == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.04)
    apart = [np.array([place]) for place in range(0, 100, 2)]  # a special token between any two
    assert {masker._run(apart, 10, draw) for _ in range(50)} == {1}


@pytest.mark.parametrize(
    ("unit", "text", "count"),
    [
        *(("piece", "a" * length, max(1, round(0.15 * length))) for length in (1, 2, 16)),
        *((unit, *short) for unit in ("word", "n-gram") for short in (("a", 1), ("ab", 2), ("a bcdefgh", 1))),
    ],
)
def test_at_least_one_of_a_short_sequence(unit: str, text: str, count: int) -> None:
    for places, put in draws(MaskingConfig(unit=unit), sequence(text), 30):  # type: ignore[arg-type]
        assert len(places) == len(put) == count


def test_nothing_but_specials_has_no_target() -> None:
    places, put = Masker(MaskingConfig(), BYTES, MASK).mask(np.array([FIRST, SEPARATOR]), np.random.default_rng(0))
    assert len(places) == len(put) == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"part": 0.0}, ("objective.part", "above")),
        ({"part": 1.5}, ("objective.part", "1.5")),
        ({"masked": 0.8, "random": 0.3}, ("objective.masked=0.8", "objective.random=0.3")),
        ({"part": float("nan")}, ("objective.part", "nan")),
        ({"early": 1.0}, ("objective.early", "1.0")),
        ({"early": float("nan")}, ("objective.early", "nan")),
        ({"grown": 1.0}, ("objective.grown", "1.0")),
        ({"early_length": 0.0}, ("objective.early_length", "0.0")),
        ({"longest": 0}, ("objective.longest", "0")),
        ({"longest": 10**12}, ("objective.longest", f"{10**12}")),
    ],
)
def test_settings_that_cannot_be(changes: dict, named: tuple[str, ...]) -> None:
    with refused(*named):
        MaskingConfig(**changes).check()
