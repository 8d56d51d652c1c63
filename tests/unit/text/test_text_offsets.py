"""Offsets and word starts, the same properties for every kind of tokenizer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretext.text.tokenizers.base import END, KINDS, Tokenizer, TokenizerConfig
from foretext.text.tokenizers.splitters import aligned
from foretext.text.tokenizers.training import train_tokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "other", "there", "hats", "Crème", "brûlée", "unknowable"]
TEXTS = [" ".join(WORDS[i:] + WORDS[:i]) + ", (one two) café 12 (cats)\n那家酒店很好。" for i in range(len(WORDS))]
ODD = "theca THE,.'-éÉ\u0301中酒店。\r\n\t\xa0\x01\u200b\ufeffßİﬁ½…—“”\U0001f600\u200d\U0001f680\u2028&;<>_"
odd_text = st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=["Cs"])), max_size=25)


def made(kind: str) -> Tokenizer:
    return train_tokenizer(TEXTS, TokenizerConfig(kind, 500, splitter="rules"))


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return made(request.param)


@pytest.fixture(scope="module")
def character() -> Tokenizer:
    return made("char-bpe")


def shown(tokenizer: Tokenizer, id: int) -> str:
    """A piece without the marks that say where words begin and end."""
    return tokenizer.piece(id).removeprefix("##").removeprefix("▁").removesuffix("</w>")


def words_of(tokenizer: Tokenizer, text: str) -> list[str]:
    """What the pieces of each word stand for in the text."""
    ids, offsets = tokenizer.encode_with_offsets(text)
    starts = np.flatnonzero(tokenizer.word_starts(np.array(ids))).tolist()
    spans = [(offsets[first][0], offsets[last - 1][1]) for first, last in pairwise([*starts, len(ids)])]
    return [text[start:end].strip(" ") for start, end in spans]


@given(st.lists(st.sampled_from([*WORDS[:9], "The", "Cat"]), max_size=12))
def test_plain_text_piece_by_piece(tokenizer: Tokenizer, words: list[str]) -> None:
    text = " ".join(words)
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    for id, (start, end) in zip(ids, offsets):
        if shown(tokenizer, id):  # not of a ▁ alone
            exact = text[start:end] if tokenizer.lossless else text[start:end].lower()
            assert exact == shown(tokenizer, id)


@given(odd_text)
def test_any_text(tokenizer: Tokenizer, text: str) -> None:
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text) and len(ids) == len(offsets)
    for start, end in offsets:
        assert 0 <= start <= end <= len(text)
    for (start, end), (following, last) in pairwise(offsets):
        assert start <= following and end <= last


@given(odd_text)
def test_bytes_cover_the_text(text: str) -> None:
    ids, offsets = BYTES.encode_with_offsets(text)
    covered = 0
    for id, (start, end) in zip(ids, offsets):
        assert BYTES.piece_bytes(id) in text[start:end].encode()
        assert start <= covered <= end
        covered = end
    assert covered == len(text)


BYTES = made("byte-bpe")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the cat sat", ["the", "cat", "sat"]),
        ("The  cat\tsat ", ["The", "cat", "sat"]),
        ("Crème brûlée there", ["Crème", "brûlée", "there"]),
        ("cafe\u0301 on a mat", ["cafe\u0301", "on", "a", "mat"]),
        ("the cat\r\nsat", ["the", "cat", "sat"]),
        ("(cats) on, there", ["(", "cats", ")", "on", ",", "there"]),
        ("on 12 hats", ["on", "12", "hats"]),
    ],
)
def test_words(tokenizer: Tokenizer, text: str, words: list[str]) -> None:
    if tokenizer.kind == "byte-bpe" and "\u0301" in text:
        pytest.skip("an accent on its own is apart in the published pattern")
    found = words_of(tokenizer, text)
    assert [word for word in found if word.strip()] == words


def test_chinese(tokenizer: Tokenizer) -> None:
    text = "那家酒店 the 酒店很好。"
    found = [word for word in words_of(tokenizer, text) if word]
    assert "".join(found) == text.replace(" ", "") and "the" in found
    if tokenizer.kind == "wordpiece":
        assert found[:4] == ["那", "家", "酒", "店"]


def test_emoji(tokenizer: Tokenizer) -> None:
    text = "the \U0001f600 cat"
    _, offsets = tokenizer.encode_with_offsets(text)
    at = [span for span in offsets if span[0] <= 4 < span[1]]
    assert at and all(text[start:end].strip() == "\U0001f600" for start, end in at)
    assert text[slice(*offsets[-1])].strip().endswith("t")


def test_two_halves_of_a_surrogate_pair(tokenizer: Tokenizer) -> None:
    text = "the \ud83d\ude00 cat"
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text) and offsets[-1][1] == len(text)
    assert text[offsets[0][0] : offsets[0][1]].startswith("t")
    assert all(end <= 4 or start >= 3 for start, end in offsets)


def test_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_with_offsets("") == ([], [])
    assert tokenizer.word_starts(np.array([], dtype=np.int64)).tolist() == []


def test_word_starts_in_batches_and_beside_specials(tokenizer: Tokenizer) -> None:
    ids = np.array(tokenizer.encode("unknowable there")[:4], dtype=np.uint32)
    special = next(id for id in tokenizer.specials.values() if id != tokenizer.unknown)
    row = np.array([*ids, special, *ids])
    starts = tokenizer.word_starts(row)
    assert starts[len(ids)] and starts[len(ids) + 1] and starts[0]
    both = tokenizer.word_starts(np.stack([row, row[::-1]]))
    assert both.shape == (2, len(row)) and both.dtype == bool
    assert (both[0] == starts).all() and (both[1] == tokenizer.word_starts(row[::-1])).all()


def test_where_documents_end(tokenizer: Tokenizer) -> None:
    own = {"wordpiece": "[SEP]", "unigram": "[SEP]", "words": "</S>"}
    assert tokenizer.end == tokenizer.specials[own.get(tokenizer.kind, END)]


# -- what ftfy repairs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "piece_words"),
    [
        ("the cat donâ€™t sat", ["the", "cat", "don", "â€™t", "sat"]),
        ("“the” cat", ["“", "the", "”", "cat"]),
        ("the …cat", ["the", "…", "cat"]),
        ("the ﬁ cat", ["the", "ﬁ", "cat"]),
        ("the\r\ncat", ["the", "\n", "cat"]),
        ("the &amp; cat", ["the", "&amp;", "cat"]),
        ("a\x07 cat", ["a", "cat"]),
    ],
)
def test_words_of_repaired_text(character: Tokenizer, text: str, piece_words: list[str]) -> None:
    ids, offsets = character.encode_with_offsets(text)
    assert ids == character.encode(text)
    covered = []
    for start, end in offsets:  # pieces that share or touch characters belong together here
        if covered and start < covered[-1][1]:
            covered[-1] = (covered[-1][0], max(end, covered[-1][1]))
        else:
            covered.append((start, end))
    places = []
    place = 0
    for word in piece_words:
        place = text.index(word, place)
        places.append((place, place + len(word)))
        place += len(word)
    for start, end in covered:
        assert any(first <= start and end <= last for first, last in places), text[start:end]
    assert covered[-1][1] == len(text)


@pytest.mark.parametrize(
    ("old", "new", "spans"),
    [
        ("abc", "abc", [(0, 1), (1, 2), (2, 3)]),
        ("a’b", "a'b", [(0, 1), (1, 2), (2, 3)]),
        ("a\r\nb", "a\nb", [(0, 1), (2, 3), (3, 4)]),
        ("xÃ©y", "xéy", [(0, 1), (1, 3), (3, 4)]),
        ("ﬁx", "fix", [(0, 1), (0, 1), (1, 2)]),
        ("ab", "", []),
        ("", "ab", [(0, 0), (0, 0)]),
        ("\n", "ab\n", [(0, 0), (0, 0), (0, 1)]),
    ],
)
def test_alignment(old: str, new: str, spans: list[tuple[int, int]]) -> None:
    assert aligned(old, new) == spans


def test_a_line_without_agreement_is_aligned_word_by_word() -> None:
    old = " ".join(["ÐŸÑ€Ð¸Ð²ÐµÑ‚"] * 9) + "\nplain"
    new = " ".join(["Привет"] * 9) + "\nplain"
    spans = aligned(old, new)
    assert len(spans) == len(new)
    for place, letter in enumerate(new[:62]):
        if letter != " ":
            assert spans[place] == (place // 7 * 13, place // 7 * 13 + 12)
    assert spans[-5:] == [(len(old) - 5 + i, len(old) - 4 + i) for i in range(5)]


@given(odd_text, odd_text)
def test_any_two_texts_are_aligned(old: str, new: str) -> None:
    spans = aligned(old, new)
    assert len(spans) == len(new)
    for start, end in spans:
        assert 0 <= start <= end <= len(old)
    assert all(a <= c and b <= d for (a, b), (c, d) in pairwise(spans))
