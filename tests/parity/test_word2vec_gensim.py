"""Word vectors against gensim by itself: the same vectors from the same lines, the same nearest words and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gensim
import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors, Word2Vec
from tolerance import close

from foretext.evaluate.word_space import Analogies, Similarity, WordSpace, judged_file
from foretext.text.corpus.shards import TokenShards
from foretext.text.words.vector_learning import VectorLearning, VectorSettings, _mixed, id_counts, whole_text

END, UNKNOWN = 0, 1
FILES = Path(gensim.__file__).parent / "test" / "test_data"


def shards(*parts: np.ndarray) -> list[TokenShards]:
    """Token shards that are in memory."""
    return [TokenShards(Path("text"), "train", None, [part]) for part in parts]  # type: ignore[arg-type]


def corpus(words: int = 4000, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    ids = np.minimum(draw.zipf(1.5, words) + 1, 40)
    ids[draw.random(words) < 0.05] = END
    return ids


def learning(tmp_path: Path, ids: np.ndarray, settings: VectorSettings, step_words: int) -> VectorLearning:
    text = whole_text(shards(ids[:1500], ids[1500:]))
    counts = id_counts(text, 50)
    counts[[END, UNKNOWN]] = 0
    return VectorLearning(text, END, counts, settings, 8, step_words, 3, 1, tmp_path / "lines")


@pytest.mark.parametrize("kind", ["cbow", "skipgram"])
def test_a_step_is_gensims_epoch(kind: Any, tmp_path: Path) -> None:
    ids, settings = corpus(), VectorSettings(kind, window=4, negatives=3, sample=1e-2)
    ours = learning(tmp_path, ids, settings, 1000)
    assert ours.steps_per_epoch == 4 and ours.steps == 40
    counts = np.bincount(ids, minlength=50)
    theirs = Word2Vec(
        vector_size=8,
        window=4,
        negative=3,
        sample=1e-2,
        sg=int(kind == "skipgram"),
        min_count=1,
        workers=1,
        sorted_vocab=0,
    )
    theirs.build_vocab_from_freq({str(id): int(counts[id]) for id in range(2, 50) if counts[id]})
    first, told = ours.matrices()
    known = [int(word) for word in theirs.wv.index_to_key]
    theirs.wv.vectors, theirs.syn1neg = first[known].copy(), told[known].copy()
    for number, rates in ((0, (0.05, 0.04)), (1, (0.04, 0.03))):
        chunk = ids[1000 * number : 1000 * (number + 1)]
        words = ours.step(number, rates)
        assert words == int((chunk != END).sum())
        lines = [
            " ".join(str(id) for id in line if id > UNKNOWN) for line in np.split(chunk, np.flatnonzero(chunk == END))
        ]
        file = tmp_path / "theirs.txt"
        file.write_text("\n".join(lines) + "\n")
        theirs.random = np.random.RandomState(_mixed(3, number))
        total = int((chunk > UNKNOWN).sum())
        theirs.train(corpus_file=str(file), total_words=total, epochs=1, start_alpha=rates[0], end_alpha=rates[1])
        found, told = ours.matrices()
        np.testing.assert_array_equal(found[known], theirs.wv.vectors)
        np.testing.assert_array_equal(told[known], theirs.syn1neg)
        assert not found[[END, UNKNOWN]].any() and found[known].any(axis=1).all()
    ours.close()
    assert not (tmp_path / "lines").exists()


def test_steps_depend_on_nothing_but_the_vectors_their_number_and_rates(tmp_path: Path) -> None:
    ids, settings = corpus(), VectorSettings(window=4, sample=0.0)
    whole = learning(tmp_path / "a", ids, settings, 700)
    for number in range(9):
        whole.step(number, (0.05, 0.05))
    parts = learning(tmp_path / "b", ids, settings, 700)
    parts.speed()  # leaves nothing behind
    for number in range(5):
        parts.step(number, (0.05, 0.05))
    on = learning(tmp_path / "b", ids, settings, 700)
    on.put(*parts.matrices())
    for number in range(5, 9):
        on.step(number, (0.05, 0.05))
    for found, expected in zip(on.matrices(), whole.matrices()):
        np.testing.assert_array_equal(found, expected)


def test_several_threads_learn_too(tmp_path: Path) -> None:
    ids, settings = corpus(), VectorSettings(window=4, sample=0.0)
    text = whole_text(shards(ids))
    counts = id_counts(text, 50)
    counts[[END, UNKNOWN]] = 0
    several = VectorLearning(text, END, counts, settings, 8, 1000, 3, 3, tmp_path / "lines")
    before = several.matrices()[0].copy()
    assert sum(several.step(number, (0.05, 0.05)) for number in range(4)) == int((ids != END).sum())
    known = counts > 0
    assert (several.matrices()[0] != before)[known].any(axis=1).mean() > 0.9


# -- what is asked of them -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both() -> tuple[WordSpace, KeyedVectors]:
    """Drawn vectors of words of the files that gensim ships."""
    pairs = [line.split("\t")[:2] for line in (FILES / "wordsim353.tsv").read_text().splitlines() if line[0] != "#"]
    asked = [line.split() for line in (FILES / "questions-words.txt").read_text().splitlines() if line[0] != ":"]
    words = sorted(
        {word.lower() for pair in pairs[::2] for word in pair} | {w.lower() for row in asked[:900] for w in row}
    )
    draw = np.random.default_rng(1)
    base = draw.standard_normal((len(words), 12)).astype(np.float32)
    theirs = KeyedVectors(12)
    theirs.add_vectors(words, base)
    return WordSpace(words, base), theirs


def test_nearest_words_are_gensims(both: tuple[WordSpace, KeyedVectors]) -> None:
    ours, theirs = both
    for words, minus in ((["paris"], []), (["paris", "germany"], ["france"]), (["Rome"], ["athens", "greece"])):
        found = ours.nearest(words, minus, n=7)
        lower = [word.lower() for word in words]
        expected = theirs.most_similar(positive=lower, negative=minus, topn=7)
        assert [word for word, _ in found] == [word for word, _ in expected]
        close(
            [cosine for _, cosine in found],
            [cosine for _, cosine in expected],
            terms=100,
            precision=torch.float32,
        )


def test_similarity_is_gensims(both: tuple[WordSpace, KeyedVectors]) -> None:
    ours, theirs = both
    for name in ("wordsim353.tsv", "simlex999.txt"):
        found = judged_file(ours, FILES / name)
        pearson, spearman, unknown = theirs.evaluate_word_pairs(str(FILES / name))
        assert isinstance(found, Similarity)
        np.testing.assert_allclose([found.spearman, found.pearson], [spearman[0], pearson[0]], atol=1e-6)
        np.testing.assert_allclose(100 * (1 - found.known / found.pairs), unknown, atol=1e-9)


def test_analogies_are_gensims(both: tuple[WordSpace, KeyedVectors], tmp_path: Path) -> None:
    ours, theirs = both
    file = tmp_path / "questions.txt"
    lines = (FILES / "questions-words.txt").read_text().splitlines()
    file.write_text("\n".join([*lines[:200], *lines[508:700], *lines[-50:]]) + "\n")
    found = judged_file(ours, file)
    score, sections = theirs.evaluate_word_analogies(str(file))
    assert isinstance(found, Analogies)
    assert found.whole.accuracy == score and found.whole.known == sum(
        len(sections[-1][key]) for key in ("correct", "incorrect")
    )
    by_name = {one["section"]: len(one["correct"]) for one in sections}
    assert {one.name: one.right for one in found.sections} == {one.name: by_name[one.name] for one in found.sections}
