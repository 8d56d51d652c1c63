"""Words of two senses: the sentences are what they are said to be, and the measures measure."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tolerance import close, terms_of

from experiments.results import Results
from experiments.two_senses import (
    LAYERS,
    MIX,
    Separation,
    cosines,
    layer_rows,
    projected,
    sense_numbers,
    sentences_of,
    separation,
    word_places,
    word_rows,
)
from experiments.two_senses_sentences import SENTENCES


@pytest.mark.parametrize("word", SENTENCES)
def test_each_word_has_two_senses_and_stands_once_in_each_sentence(word: str) -> None:
    senses = SENTENCES[word]
    assert len(senses) == 2
    assert min(map(len, senses.values())) >= 4
    sentences = sentences_of(senses)
    assert len(set(sentences)) == len(sentences)
    for sentence in sentences:
        assert len(re.findall(rf"\b{word}\b", sentence, re.IGNORECASE)) == 1, sentence
    first, second = map(len, senses.values())
    assert sense_numbers(senses) == [0] * first + [1] * second


def test_there_are_enough_words_and_no_sentence_twice() -> None:
    assert len(SENTENCES) >= 12
    every = [sentence for senses in SENTENCES.values() for sentence in sentences_of(senses)]
    assert len(set(every)) == len(every)


def test_a_word_is_found_whatever_its_case() -> None:
    assert word_places(["Apple", "sold", "an", "apple", "pie", "."], "apple") == [0, 3]
    assert word_places(["pineapple"], "apple") == []


def test_cosines_are_those_of_the_definition() -> None:
    found = cosines(np.array([[3.0, 0.0], [0.0, 0.5], [1.0, 1.0]]))
    half = 0.5**0.5
    close(found, np.array([[1, 0, half], [0, 1, half], [half, half, 1]]), terms=terms_of(2 + 2, 2))  # norms, product


def test_two_heaps_are_apart_and_a_mixture_is_not() -> None:
    draw = np.random.default_rng(0)
    noise = 0.1 * draw.standard_normal((10, 6)).astype(np.float32)
    senses = [0] * 5 + [1] * 5
    centres = np.eye(6, dtype=np.float32)[senses]
    apart = separation(centres + noise, senses)
    assert apart.accuracy == 1.0 and apart.within > 0.9 and abs(apart.between) < 0.3
    mixed = separation(centres + noise, [0, 1] * 5)
    assert mixed.accuracy < 0.9 and mixed.within < mixed.between + 0.3 < apart.within


def test_a_place_is_not_its_own_neighbour() -> None:
    """The two of one sense are opposite; the nearest to each is of the other sense."""
    found = separation(np.array([[1.0, 0.1], [-1.0, 0.1], [1.0, 0.0], [-1.0, 0.0]]), [0, 0, 1, 1])
    assert found.accuracy == 0.0
    terms = terms_of(2 + 2, 2, 4)  # norms, product, mean
    close(found.within, (-1.0 + (0.01 - 1) / 1.01) / 2, terms=terms)
    close(found.between, 0.0, terms=terms, size=1.0)


def test_projection_keeps_what_differs_most() -> None:
    draw = np.random.default_rng(1)
    plane = draw.standard_normal((12, 2)) * [5.0, 2.0]
    axes, _ = np.linalg.qr(draw.standard_normal((20, 2)))
    points = projected(plane @ axes.T + 7.0)
    assert points.shape == (12, 2)
    terms = terms_of(12, 12 * 20)  # a mean, and all of a matrix that is taken apart
    close(points.mean(axis=0), np.zeros(2), terms=terms, size=float(np.abs(points).max()))
    centred = plane - plane.mean(axis=0)
    close(points @ points.T, centred @ centred.T, terms=terms)
    assert points[:, 0].var() > points[:, 1].var()
    assert (np.abs(points).max(axis=0) == points.max(axis=0)).all(), "the sign is settled"


def test_tables(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    words = {"apple": vars(Separation(0.5, 0.25, 1.0)), "bank": vars(Separation(0.25, 0.25, 0.5))}
    results.append({"layers": MIX, "words": words, "seconds": 1.0, "commit": "c"})
    assert layer_rows(Results(results.path).records) == [[MIX, "0.375", "0.250", "75.0"]]
    assert word_rows(SENTENCES, words)[0] == ["apple: fruit, company", "0.500", "0.250", "100"]
    assert LAYERS[MIX] == (3, 4, 5, 6)
