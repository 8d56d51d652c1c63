from __future__ import annotations

import base64
import itertools
import json
import math
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from complaints import refused
from hypothesis import given
from hypothesis import strategies as st
from spm_files import ALBERT_LIKE, charmap, model
from tolerance import close, terms_of

from foretext.text.tokenizers import unigram_training
from foretext.text.tokenizers import wordpiece as engine
from foretext.text.tokenizers.base import TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.published import read_sentencepiece
from foretext.text.tokenizers.training import train_tokenizer
from foretext.text.tokenizers.unigram import SPECIALS, Unigram

TEXTS = [
    "The cat sat on the mat; the other cat's hat was there.",
    "那家酒店很好，那家酒店。",
    'Cats, 1234 "hats"!',
] * 10


def published(folder: Path, data: bytes, lower: bool | None = None) -> Unigram:
    (folder / "x.model").write_bytes(data)
    return Unigram.from_published(read_sentencepiece(folder / "x.model"), lower, "x.model")


@pytest.fixture(scope="module")
def albert(tmp_path_factory: pytest.TempPathFactory) -> Unigram:
    return published(tmp_path_factory.mktemp("albert"), model())


@pytest.fixture(scope="module")
def trained() -> Unigram:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig("unigram", 120))
    assert isinstance(tokenizer, Unigram)
    return tokenizer


def pieces_of(tokenizer: Unigram, text: str) -> list[str]:
    return [tokenizer.piece(id) for id in tokenizer.encode(text)]


def best_cut(tokenizer: Unigram, word: str) -> float:
    """The score of the best way to cut a word, all ways tried."""
    scores = {p: s for p, s in zip(tokenizer.pieces, tokenizer.scores) if p not in tokenizer.specials}
    best = [0.0, *(-math.inf for _ in word)]
    for end in range(1, len(word) + 1):
        ways = [best[start] + scores[word[start:end]] for start in range(end) if word[start:end] in scores]
        best[end] = max(ways, default=-math.inf)
    return best[-1]


# -- encoding --------------------------------------------------------------------------------------------------------


def test_specials_are_the_control_symbols_and_those_in_brackets(albert: Unigram) -> None:
    assert albert.specials == {"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "<eop>": 6}
    assert (albert.unknown, albert.end, albert.lossless, albert.size) == (1, 3, False, len(ALBERT_LIKE))
    assert albert.cleaning.lower and albert.cleaning.strip_accents


def test_known_pieces(albert: Unigram) -> None:
    assert pieces_of(albert, "The  cats\n(the") == ["▁the", "▁cat", "s", "▁", "(", "<unk>"]
    assert pieces_of(albert, "THÉ the") == ["▁the", "▁the"]
    assert albert.encode("") == albert.encode(" \n") == []


def test_neighbours_that_are_unknown_are_one(albert: Unigram) -> None:
    assert pieces_of(albert, "zzs zz") == ["▁", "<unk>", "s", "▁", "<unk>"]


def test_numbers_are_cut_from_their_commas(albert: Unigram) -> None:
    assert pieces_of(albert, "the 2010, cat") == ["▁the", "▁2010", ",", "▁cat"]
    assert pieces_of(albert, "cats1,s") == ["▁cat", "s", "1", ",", "s"]  # no ▁ in front: none afterwards
    ids, offsets = albert.encode_with_offsets("the 2010, cat")
    assert offsets == [(0, 3), (4, 8), (8, 9), (10, 13)] and ids == albert.encode("the 2010, cat")
    assert albert.encode_many(["2010, the"])[0].tolist() == albert.encode("2010, the")


def test_quotes_as_some_texts_write_them(trained: Unigram) -> None:
    assert trained.encode("``cat''") == trained.encode('"cat"')


@pytest.mark.parametrize("name", ["[CLS]", "<eop>", "<pad>", "<unk>", "[MASK]"])
def test_text_that_spells_a_special_stays_text(albert: Unigram, name: str, tmp_path: Path) -> None:
    cased = published(tmp_path, model(), lower=False)
    assert not cased.cleaning.lower
    for tokenizer, text in itertools.product((albert, cased), (name, f"the {name}s", f"cat{name}")):
        assert {0, 2, 3, 4, 6}.isdisjoint(tokenizer.encode(text))
    assert pieces_of(albert, "[CLS]") == ["▁", "[", "cls", "]"]


def test_the_table_of_replacements_is_used(tmp_path: Path) -> None:
    plain, replaced = published(tmp_path, model(), False), published(tmp_path, model(charmap=charmap()), False)
    assert pieces_of(plain, "sQ") == ["▁", "s", "<unk>"]
    assert pieces_of(replaced, "sQ") == ["▁", "s", "q"]
    assert replaced.encode_with_offsets("sQ")[1][-1] == (1, 2)


def test_capitals_among_the_pieces_make_it_cased(tmp_path: Path) -> None:
    tokenizer = published(tmp_path, model([*ALBERT_LIKE, ("▁The", -3.0, 1)]))
    assert not tokenizer.cleaning.lower and pieces_of(tokenizer, "The the") == ["▁The", "▁the"]


@given(st.text(st.sampled_from("thecasomn, 12酒店家"), max_size=20))
def test_no_cut_is_better(trained: Unigram, text: str) -> None:
    scores = dict(zip(trained.pieces, trained.scores))
    for word in text.split():
        found = pieces_of(trained, word)
        assert "".join(found) == "▁" + word
        close(sum(scores[piece] for piece in found), best_cut(trained, "▁" + word), terms=len(word) + 1)


@given(st.lists(st.sampled_from(["the", "cats", "Thé", "酒店", "[CLS]", ",", "1234,", "\u0301a"]), max_size=20))
def test_cutting_long_texts_changes_nothing(trained: Unigram, words: list[str]) -> None:
    text = " ".join(words)
    ids, offsets = trained.encode_with_offsets(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "STRETCH", 7)
        assert trained.encode(text) == trained.encode_many([text])[0].tolist() == ids
        assert trained.encode_with_offsets(text) == (ids, offsets)


def test_decoding(albert: Unigram) -> None:
    ids = [2, *albert.encode("The cats the 的"), 3]
    assert albert.decode(ids) == "the cats the 的"
    assert albert.decode(albert.encode("the zz")) == "the <unk>"
    assert albert.piece_bytes(2) == b"" and albert.piece_bytes(albert.pieces.index("▁cat")) == b" cat"


def test_half_a_surrogate_pair(trained: Unigram) -> None:
    assert trained.encode("a\ud800") == trained.encode("a\ufffd")


# -- files -----------------------------------------------------------------------------------------------------------


def test_json_round_trip(tmp_path: Path, trained: Unigram) -> None:
    for tokenizer in (trained, published(tmp_path, model(charmap=charmap())), trained.with_specials(["<start>"])):
        again = tokenizer_from_json(tokenizer.to_json(), "t")
        assert again.fingerprint() == tokenizer.fingerprint() and again.specials == tokenizer.specials
        assert again.encode("the Q cats 2010, 酒") == tokenizer.encode("the Q cats 2010, 酒")


def test_with_specials(albert: Unigram) -> None:
    more = albert.with_specials(["[SEP]", "<start>", "▁the"])
    assert more.specials["<start>"] == albert.size and more.size == albert.size + 1
    assert albert.specials.keys() < more.specials.keys()
    assert more.specials["▁the"] not in more.encode("the cat") and "▁cat" in pieces_of(more, "the cat")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"scores": [0.0]}, "'scores'"),
        ({"scores": "x"}, "'scores'"),
        ({"unknown": "the"}, "'unknown'"),
        ({"unknown": None}, "'unknown'"),
        ({"charmap": 5}, "'charmap'"),
        ({"charmap": "!!"}, "'charmap'"),
        ({"charmap": base64.b64encode(charmap(value=2)).decode()}, "'charmap'"),
        ({"charmap": None}, "'charmap'"),
        ({"lower": 1}, "'lower'"),
        ({"strip_accents": None}, "'strip_accents'"),
        ({"specials": ["<unk>", "nowhere"]}, "'nowhere'"),
    ],
)
def test_a_damaged_file_is_named(albert: Unigram, change: dict, named: str) -> None:
    data = json.loads(albert.to_json()) | change
    with refused("t.json", named):
        tokenizer_from_json(json.dumps(data), "t.json")


@pytest.mark.parametrize("score", ["NaN", "1e999", "true", '"x"', "1" + "0" * 400])
def test_a_score_that_is_no_number(albert: Unigram, score: str) -> None:
    data = albert.to_json().replace('"scores":[0.0,', f'"scores":[{score},')
    with refused("t.json", "'scores'"):
        tokenizer_from_json(data, "t.json")


# -- learning --------------------------------------------------------------------------------------------------------


def test_trained_layout(trained: Unigram) -> None:
    assert list(trained.pieces[:5]) == list(SPECIALS) == list(trained.specials) and trained.size <= 120
    assert trained.end == 3 and trained.unknown == 1
    assert list(trained.scores[5:]) == sorted(trained.scores[5:], reverse=True)
    assert {"▁", "t", "酒", ","} <= set(trained.pieces)
    assert trained.decode(trained.encode("the cats 酒店")) == "the cats 酒店"


def test_frequent_words_become_pieces(trained: Unigram) -> None:
    assert pieces_of(trained, "the cat") == ["▁the", "▁cat"]
    assert len(trained.encode("那家酒店")) <= 2


def test_no_piece_leaves_its_run(trained: Unigram) -> None:
    for piece in trained.pieces[5:]:
        classes = {("digit" if c.isdigit() else "letter" if c.isalpha() else "sign") for c in piece.lstrip("▁")}
        assert len(classes) <= 1 and "▁" not in piece[1:], piece


@pytest.mark.parametrize("size", [100, 150, 200])
def test_size_is_reached(size: int) -> None:
    draw = random.Random(0)
    stems = ["".join(draw.choices("abcdefghijklmnoprstuv", k=draw.randint(3, 6))) for _ in range(120)]
    words = [stem + ending for stem in stems for ending in ("", "s", "ing", "ed", "ly", "er")]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    texts = [" ".join(draw.choices(words, weights, k=50)) for _ in range(200)]
    assert train_tokenizer(texts, TokenizerConfig("unigram", size)).size == size


def test_trained_with_capitals_and_accents() -> None:
    tokenizer = train_tokenizer(["Große Übung, große Äpfel"] * 5, TokenizerConfig("unigram", 100, lower=False))
    assert isinstance(tokenizer, Unigram) and not tokenizer.cleaning.strip_accents
    assert tokenizer.decode(tokenizer.encode("Große Übung")) == "Große Übung"


def cuts(word: str, pieces: dict[str, int]) -> list[list[int]]:
    if not word:
        return [[]]
    return [
        [pieces[word[:size]], *rest]
        for size in range(1, len(word) + 1)
        if word[:size] in pieces
        for rest in cuts(word[size:], pieces)
    ]


@pytest.fixture(scope="module")
def small() -> tuple[list[str], dict[str, int], np.ndarray]:
    pieces = ["a", "b", "c", "ab", "bc", "abc", "cab"]
    scores = np.log(np.array([0.3, 0.1, 0.2, 0.1, 0.05, 0.15, 0.1]))
    return pieces, {"abc": 3, "cabab": 2, "a": 1, "abcabcab": 4, "abababababababababab": 1}, scores


def test_expected_counts_are_those_of_all_cuts(small: tuple[list[str], dict[str, int], np.ndarray]) -> None:
    pieces, runs, scores = small
    ids = {piece: id for id, piece in enumerate(pieces)}
    expected = np.zeros(len(pieces))
    for run, count in runs.items():
        ways = cuts(run, ids)
        weights = [math.exp(sum(scores[id] for id in way)) for way in ways]
        for way, weight in zip(ways, weights):
            for id in way:
                expected[id] += count * weight / sum(weights)
    found = sum(unigram_training._expected(one, scores) for one in unigram_training._lattices(runs, pieces, no_word))
    # The longest run has a thousand cuts, whose exponents add up to 20 scores of up to 3, and 60 edges each way.
    close(found, expected, terms=terms_of(1024, 20 * 60, 2 * 60))


def test_the_best_cut_is_the_best_of_all(small: tuple[list[str], dict[str, int], np.ndarray]) -> None:
    pieces, runs, scores = small
    ids = {piece: id for id, piece in enumerate(pieces)}
    for run in runs:
        (lattice,) = unigram_training._lattices({run: 1}, pieces, no_word)
        found = [int(id[0]) for _, id in unigram_training._best_cut(lattice, scores, whole=True)][::-1]
        assert "".join(pieces[id] for id in found) == run
        best = max(sum(scores[id] for id in way) for way in cuts(run, ids))
        close(sum(scores[id] for id in found), best, terms=len(run))
    (lattice,) = unigram_training._lattices({"abc": 1}, pieces, no_word)
    other = [pieces[id[0]] for _, id in unigram_training._best_cut(lattice, scores, whole=False)][::-1]
    assert other == max((["a", "b", "c"], ["ab", "c"], ["a", "bc"]), key=lambda way: sum(scores[ids[p]] for p in way))


def test_improving_raises_the_likelihood(small: tuple[list[str], dict[str, int], np.ndarray]) -> None:
    """Plain maximisation would never lower it; the small push against rare pieces hardly does on many counts."""
    pieces, runs, scores = small
    many = {run: count * 1000 for run, count in runs.items()}
    lattices = unigram_training._lattices(many, pieces, no_word)
    ids = {piece: id for id, piece in enumerate(pieces)}

    def likelihood(scores: np.ndarray) -> float:
        return sum(
            count * math.log(sum(math.exp(sum(scores[id] for id in way)) for way in cuts(run, ids)))
            for run, count in many.items()
        )

    before = likelihood(scores)
    improved, kept = unigram_training._improved(lattices, scores, 3)
    assert kept.all() and likelihood(improved) > before
    assert math.isclose(np.exp(improved).sum(), 1, abs_tol=0.01)


def test_pieces_that_are_not_used_go_first(small: tuple[list[str], dict[str, int], np.ndarray]) -> None:
    pieces, runs, scores = small
    lattices = unigram_training._lattices(runs, pieces, no_word)
    own = unigram_training._lattices(dict.fromkeys(pieces[3:], 1), pieces, no_word)
    used = Counter(
        int(id)
        for lattice in lattices
        for _, ids in unigram_training._best_cut(lattice, scores, whole=True)
        for id in ids
    )
    kept = unigram_training._missed_most(lattices, own, scores, 3, 5)
    assert kept[:3].all() and kept.sum() == 5
    unused = [id for id in range(3, len(pieces)) if not used[id]]
    assert unused and not kept[unused].any()
    left, smaller, mine = unigram_training._only(kept, pieces, lattices, own)
    again = unigram_training._lattices(runs, left, no_word)
    assert all((a.ids_NS == b.ids_NS).all() for a, b in zip(smaller, again))
    assert sum(len(one.counts_N) for one in mine) == 2


def no_word() -> None:
    pass
