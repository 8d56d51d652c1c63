"""Means of vectors against sums written out."""

from __future__ import annotations

import math
import time

import numpy as np
from tolerance import close

from foretext.text.words.latent_semantics import first_words, sif_means

DRAW = np.random.default_rng(0)
MATRIX = DRAW.standard_normal((9, 4)).astype(np.float32)
MATRIX[0] = 0  # no word
COUNTS = np.array([0, 50, 20, 10, 5, 5, 4, 3, 3])
TEXTS = [np.array(ids, dtype=np.uint32) for ids in ([1, 2, 0, 2], [], [0, 0], [8, 77, 3], [4])]


def unit(id: int) -> np.ndarray:
    return MATRIX[id].astype(np.float64) / np.linalg.norm(MATRIX[id].astype(np.float64))


def test_sif_means_are_sums_written_out() -> None:
    found = sif_means(MATRIX, COUNTS, TEXTS)
    assert found.dtype == np.float32 and found.shape == (5, 4)
    for row, text in zip(found, TEXTS):
        known = [id for id in text.tolist() if 0 < id < 9]
        expected = sum((0.001 / (0.001 + COUNTS[id] / 100) * unit(id) for id in known), np.zeros(4))
        close(row, (expected / max(1, len(known))).astype(np.float32), terms=12, size=1.0)


def test_first_words_fall_off_with_their_places() -> None:
    found = first_words(MATRIX, TEXTS, 2.0)
    for row, text in zip(found, TEXTS):
        known = [(place, id) for place, id in enumerate(text.tolist()) if 0 < id < 9]
        total = sum(math.exp(-place / 2.0) for place, _ in known)
        expected = sum((math.exp(-place / 2.0) * unit(id) for place, id in known), np.zeros(4))
        close(row, (expected / (total or 1.0)).astype(np.float32), terms=12, size=1.0)


def test_a_text_is_the_same_in_any_company_and_no_texts_are_none() -> None:
    alone = np.concatenate([sif_means(MATRIX, COUNTS, [text]) for text in TEXTS])
    np.testing.assert_array_equal(alone, sif_means(MATRIX, COUNTS, TEXTS))
    assert sif_means(MATRIX, COUNTS, []).shape == (0, 4) and first_words(MATRIX, [], 1.0).shape == (0, 4)


def test_many_short_texts_a_second() -> None:
    """20,000 a second are asked for, on 2 cores that do nothing else: this is ten times less."""
    matrix, texts = DRAW.standard_normal((5_000, 100)).astype(np.float32), [DRAW.integers(0, 5_000, 20)] * 20_000
    begun = time.perf_counter()
    sif_means(matrix, np.ones(5_000, dtype=np.int64), texts)
    assert time.perf_counter() - begun < 10
