"""Words as character ids, against a literal reading of the released code, one character at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretext.text.words.characters import (
    BEGIN_SENTENCE,
    BEGIN_WORD,
    CHARACTERS,
    END_SENTENCE,
    END_WORD,
    REST,
    border_characters,
    word_characters,
)

ODD = ["", " ", "\x00", "a\x00b", "x" * 47, "x" * 48, "x" * 49, "é" * 24, "é" * 25, "a" + "é" * 40, "\U0001f600" * 13]
ODD += ["\U0001f469\u200d\U0001f680", "\ud83d", "a\udc00b", "\ud800" * 60 + "z" * 60, "我喜欢", "ﬁ", "<s>", "<S>x"]


def literal(word: str, length: int = 50) -> list[int]:
    """bilm's and AllenNLP's numbers: bytes 0–255, 256–257 sentence, 258–259 word, 260 rest; then one more for each."""
    if word in ("<S>", "</S>"):
        characters = [256 if word == "<S>" else 257]
    else:
        characters = list(word.encode("utf-8", "ignore")[: length - 2])
    ids = [258, *characters, 259]
    return [one + 1 for one in ids + [260] * (length - len(ids))]


@pytest.mark.parametrize("length", [50, 3, 4, 17])
def test_odd_words(length: int) -> None:
    words = [*ODD, "<S>", "</S>", "plain"]
    ids = word_characters(words, length)
    assert ids.dtype == np.int64 and ids.shape == (len(words), length)
    assert ids.tolist() == [literal(word, length) for word in words]
    assert ids.min() > 0 and ids.max() < CHARACTERS  # 0 is for no word


@given(st.lists(st.text(st.characters(codec=None), max_size=60), max_size=8))
def test_any_words(words: list[str]) -> None:
    assert word_characters(words).tolist() == [literal(word) for word in words]


def test_a_word_by_hand() -> None:
    row = word_characters(["né"])[0]
    assert row[:6].tolist() == [BEGIN_WORD, 1 + 0x6E, 1 + 0xC3, 1 + 0xA9, END_WORD, REST]
    assert (row[5:] == 261).all()
    assert border_characters(BEGIN_SENTENCE)[:4].tolist() == [259, 257, 260, 261]
    assert border_characters(END_SENTENCE, 5).tolist() == [259, 258, 260, 261, 261]


def test_no_words() -> None:
    assert word_characters([]).shape == (0, 50)
