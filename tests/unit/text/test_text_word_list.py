"""Words as ids: frequency decides, lines come back, files of another kind are found out."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretext.text.words.word_list import (
    END,
    FIRST_WORD,
    START,
    UNKNOWN,
    WordList,
    looked_up_as,
    marked_text,
    marked_words,
    plain_words,
)


def test_the_most_frequent_come_first_and_ties_by_letter() -> None:
    counts = Counter("bacabda")
    assert WordList.of_counts(counts, 10).words == ("a", "b", "c", "d")
    assert WordList.of_counts(counts, 3).words == ("a", "b", "c")
    assert WordList.of_counts(counts, 10, least=2).words == ("a", "b")
    words = WordList.of_counts(counts, 2)
    assert words.encode(["b", "c", "a"]).tolist() == [FIRST_WORD + 1, UNKNOWN, FIRST_WORD] and words.size == 5
    assert words.decode([START, FIRST_WORD + 1, UNKNOWN, FIRST_WORD, END]) == ["b", "<unk>", "a"]
    assert words.encode([]).dtype == np.int64


def test_marks_say_where_no_space_was() -> None:
    line = "Zwei Männer (in Blau) angeln, 3.5 km weit."
    marked = [*("Zwei", "Männer", "(", "￭in", "Blau", "￭)", "angeln", "￭,", "3.5", "km", "weit", "￭.")]
    assert marked_words(line) == marked and marked_text(marked) == line
    assert plain_words("A woman's hat.") == ["A", "woman", "'s", "hat", "."]
    assert marked_text(["￭.", "a"]) == ". a" and marked_text([]) == ""


@settings(max_examples=50)
@given(st.text("aB1.,'-￭■ \t\u2028\xa0ä中の()\u0301…", max_size=20))
def test_every_line_comes_back_but_for_its_spaces(line: str) -> None:
    text = marked_text(marked_words(line))
    assert "".join(text.split()) == "".join(line.replace("￭", "■").split())
    assert marked_words(text) == marked_words(line)


def test_characters_are_words_where_nothing_stands_between_words() -> None:
    line = "我爱NLP，2 个人。"
    marked = ["我", "￭爱", "￭NLP", "￭，", "￭2", "个", "￭人", "￭。"]
    assert marked_words(line) == marked and marked_text(marked) == line
    assert plain_words("東京タワーです") == list("東京タワーです")
    assert plain_words("ที่ไหน") == ["ที่", "ไ", "ห", "น"], "a character keeps its marks"


def test_the_form_that_is_looked_up() -> None:
    assert looked_up_as("B-52s") == "b-00s"
