"""Latent semantic analysis against scikit-learn's TF-IDF and a full decomposition."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from tolerance import close

from foretext.text.words import latent_semantics
from foretext.text.words.latent_semantics import Lsa, learn_lsa

V = 30


def documents(count: int = 120, seed: int = 0) -> list[np.ndarray]:
    """Of two topics; 0 is no word."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(count):
        own = draw.integers(1 + 10 * (number % 2), 16 + 10 * (number % 2), draw.integers(5, 30))
        found.append(np.where(draw.random(len(own)) < 0.1, 0, own).astype(np.uint32))
    return found


def learned(texts: list[np.ndarray], dimensions: int = 5, **changes: int) -> Lsa | None:
    least = {"LEAST_SINGLE": changes.pop("least_single", 3), "LEAST_PAIR": changes.pop("least_pair", 8)}
    with patch.multiple(latent_semantics, **least):
        return learn_lsa(texts, V, dimensions, ignored=[0], **changes)  # type: ignore[arg-type]


def tf_idf(texts: list[np.ndarray], least_single: int = 3, least_pair: int = 8) -> tuple[np.ndarray, dict[str, int]]:
    """Rows of unit length, and the column of each term."""

    def terms(text: np.ndarray) -> list[str]:
        ids = text.tolist()
        pairs = [f"{a}-{b}" for a, b in itertools.pairwise(ids) if a and b]
        return [str(id) for id in ids if id] + pairs

    counted = TfidfVectorizer(analyzer=terms, sublinear_tf=True, dtype=np.float64)
    rows = np.asarray(counted.fit_transform(texts).todense())
    df = np.array([sum(name in set(terms(text)) for text in texts) for name in counted.get_feature_names_out()])
    least = np.array([least_pair if "-" in name else least_single for name in counted.get_feature_names_out()])
    kept = df >= least
    rows = rows[:, kept]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, {name: column for column, name in enumerate(counted.get_feature_names_out()[kept])}


def test_it_is_the_decomposition_of_tf_idf() -> None:
    texts = documents()
    found = learned(texts)
    assert found is not None and found.dimensions == 5 and found.vocabulary == V
    rows, columns = tf_idf(texts)
    names = {str(id) for id in np.flatnonzero(found.idf[:V])}
    names |= {f"{code // V}-{code % V}" for code in found.pairs.tolist()}
    assert names == set(columns) and any("-" in name for name in names) and (np.diff(found.pairs) > 0).all()
    order = [columns[str(id)] for id in np.flatnonzero(found.idf[:V])]
    order += [columns[f"{code // V}-{code % V}"] for code in found.pairs.tolist()]
    _, strengths, right = np.linalg.svd(rows[:, order], full_matrices=False)
    terms = np.concatenate([np.flatnonzero(found.idf[:V]), V + np.arange(len(found.pairs))])
    ours = found.components[terms].astype(np.float64)
    close(ours.T @ ours, np.eye(5), terms=200, precision=torch.float32)
    assert not found.components[np.setdiff1d(np.arange(len(found.idf)), terms)].any()
    np.testing.assert_allclose(np.linalg.norm(rows[:, order] @ ours, axis=0), strengths[:5], rtol=1e-3)
    np.testing.assert_allclose(np.abs(right[:2] @ ours[:, :2]), np.eye(2), atol=1e-2)  # a sign is nothing
    whole = rows[:, order] @ ours
    close(found.read(texts), (whole / np.linalg.norm(whole, axis=1, keepdims=True)).astype(np.float32), terms=200)


def test_reading() -> None:
    texts = documents()
    found = learned(texts)
    assert found is not None
    given = [texts[0], np.array([0, 29, 77], dtype=np.int64), np.array([], dtype=np.int64), texts[1]]
    read = found.read(given)
    assert read.shape == (4, 5) and read.dtype == np.float32 and not read[1:3].any()
    np.testing.assert_allclose(np.linalg.norm(read[[0, 3]], axis=1), 1.0, rtol=1e-5)
    assert found.read([]).shape == (0, 5)
    alone = np.concatenate([found.read([text]) for text in given])
    np.testing.assert_array_equal(alone, read)


def test_the_same_each_time_whatever_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = documents()
    expected = learned(texts)
    assert expected is not None
    monkeypatch.setattr(latent_semantics, "_BLOCK", 100)
    for changes in ({}, {"threads": 3}):
        found = learned(texts, **changes)
        assert found is not None
        for name in ("pairs", "idf", "components"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_of_too_many_words_documents_are_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = latent_semantics._document_counts
    monkeypatch.setattr(
        latent_semantics,
        "_document_counts",
        lambda drawn, *rest: seen.append(sum(map(len, drawn))) or real(drawn, *rest),
    )
    texts = documents(400)
    drawn = [learned(texts, most_words=1500, seed=seed) for seed in (1, 1, 2)]
    assert all(1200 < count <= 1500 for count in seen) and None not in drawn
    assert np.array_equal(drawn[0].idf, drawn[1].idf) and not np.array_equal(drawn[0].idf, drawn[2].idf)  # type: ignore[union-attr]


def test_little_text_has_fewer_dimensions_or_none() -> None:
    few = learned(documents(6), 50, least_single=2)
    assert few is not None and few.dimensions <= 6
    assert learned(documents(120)[:2]) is None, "no word stands in three documents"
    assert learned([]) is None
    assert learned([np.zeros(5, dtype=np.int64)] * 20) is None
