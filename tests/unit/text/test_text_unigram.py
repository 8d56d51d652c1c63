from __future__ import annotations

import base64
import itertools
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from complaints import refused
from hypothesis import given
from hypothesis import strategies as st
from spm_files import ALBERT_LIKE, charmap, model
from tolerance import close

from foretext.text.tokenizers import wordpiece as engine
from foretext.text.tokenizers.base import TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.published import read_sentencepiece
from foretext.text.tokenizers.training import train_tokenizer
from foretext.text.tokenizers.unigram import SPECIALS, Cleaning, Unigram, unigram_from_pieces
from foretext.text.tokenizers.unigram_training import LONGEST_PIECE, learn_unigram, watched

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


@pytest.fixture(scope="module")
def words() -> dict[str, int]:
    """Stems with endings, numbers, signs and Chinese, with counts that fall as in a language."""
    draw = random.Random(0)
    stems = ["".join(draw.choices("abcdefghijklmnoprstuv", k=draw.randint(3, 6))) for _ in range(120)]
    signs = [f"{stem}{sign}" for stem in stems[:20] for sign in (",", ".", "!?", "-12", "2010,", "酒店很好")]
    chinese = ["".join(draw.choices("那家酒店很好早餐不错房间干净", k=draw.randint(1, 6))) for _ in range(60)]
    listed = [stem + ending for stem in stems for ending in ("", "s", "ing", "ed", "ly", "er")] + signs + chinese
    return {word: 3000 // rank for rank, word in enumerate(draw.sample(sorted(set(listed)), 700), start=1)}


def test_words_are_cut_as_sentencepiece_cuts_them(words: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    build = sentencepiece.SentencePieceProcessor

    def noted(**given: Any) -> Any:
        made.append(build(**given))
        return made[-1]

    monkeypatch.setattr(sentencepiece, "SentencePieceProcessor", noted)
    learned = learn_unigram(words, 200, lambda: None)
    assert sorted(piece for piece, _ in learned) == sorted(made[0].id_to_piece(id) for id in range(1, len(made[0])))
    tokenizer = unigram_from_pieces(learned, Cleaning(True, True, b""))
    ids = {piece: id for id, piece in enumerate(tokenizer.pieces)}
    cut = 0
    for word in words:
        theirs = [ids[made[0].id_to_piece(id)] for id in made[0].EncodeAsIds("▁" + word)]
        assert tokenizer.encode(word) == theirs, word
        cut += len(theirs) > 1
    assert cut > 100, "most words are several pieces"


def test_frequent_words_are_whole_even_if_nothing_follows_them(words: dict[str, int]) -> None:
    """SentencePiece alone finds no piece that only ends words, if it is given a list of words."""
    pieces = {piece for piece, _ in learn_unigram({"qqwyz": 5000, "xzzyq": 4000, **words}, 200, lambda: None)}
    assert {"▁qqwyz", "▁xzzyq"} <= pieces


def test_no_piece_is_longer_than_the_longest() -> None:
    fits = "abcdefghijklmno"
    words = {fits: 50, f"{fits}pqrs": 40, fits * 4: 30}
    pieces = {piece for piece, _ in learn_unigram(words, 100, lambda: None)}
    assert max(map(len, pieces)) == LONGEST_PIECE and {f"▁{fits}", *"▁pqrs", *fits} <= pieces


def test_single_characters_are_at_most_half_of_the_vocabulary() -> None:
    chinese = {chr(0x4E00 + number) * 2: 1000 - number for number in range(300)}
    pieces = [piece for piece, _ in learn_unigram(chinese, 100, lambda: None)]
    singles = {piece for piece in pieces if len(piece) == 1}
    assert len(pieces) <= 100 and len(singles) == 50
    assert {"▁", *(chr(0x4E00 + number) for number in range(49))} == singles, "the most frequent ones"


@pytest.mark.parametrize(
    "words", [{"a": 1}, {"ab": 1}, {"酒": 1, "店": 1}, {"▅": 3, "a": 1}, {"▅▅": 2, "▁": 2}, {"\x00a": 2}]
)
def test_tiny_texts_give_tiny_vocabularies(words: dict[str, int]) -> None:
    pieces = {piece for piece, _ in learn_unigram(words, 59, lambda: None)}
    assert pieces >= {*"".join(words)} - {"▅", "\x00"} and len(pieces) <= 59


_LEARN = """
import json, sys, torch
from foretext.text.tokenizers.unigram_training import learn_unigram
torch.set_num_threads(int(sys.argv[1]))
words = json.load(sys.stdin)
print(json.dumps(learn_unigram(words, 200, lambda: None)))
"""


def test_every_process_learns_the_same(words: dict[str, int]) -> None:
    found = []
    for seed, threads in (("1", "1"), ("2", "4")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", _LEARN, threads],
            env=environment,
            input=json.dumps(words),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "" and done.stdout.count("\n") == 1, "SentencePiece prints nothing"
        found.append(done.stdout)
    assert found[0] == found[1] == json.dumps(learn_unigram(words, 200, lambda: None)) + "\n"


def test_a_failure_of_the_library_is_not_lost() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        watched(fail, lambda: None)
