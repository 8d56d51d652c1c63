"""What counting gives: the tag of a key, the run of words nearest to the question's."""

from __future__ import annotations

import math

import pytest

from experiments.token_baselines import (
    NEAR,
    Rarity,
    best_length,
    overlap_answer,
    overlap_answers,
    pulls_of,
    rarity,
    tag_table,
    words_of,
)
from foretext.tasks.files.squad import Answer, Question

FLAT = Rarity({}, 1.0)  # every word tells as much


def answer(question: str, passage: str, length: int, rare: Rarity = FLAT) -> str:
    words = words_of(passage)
    return overlap_answer(passage, words, pulls_of(question, words, rare), length)


def test_each_key_gets_its_most_frequent_tag() -> None:
    keys = [["DT", "NN", "NN"], ["NN", "VB", "DT"]]
    tags = [["B-NP", "I-NP", "I-NP"], ["B-NP", "B-VP", "I-NP"]]
    found = tag_table(keys, tags)
    assert found.tags == {"DT": "B-NP", "NN": "I-NP", "VB": "B-VP"}, "of equally frequent tags the first by name"
    assert found.tag([["VB", "UH"], []]) == [["B-VP", "I-NP"], []], "an unknown key gets the most frequent tag"
    with pytest.raises(ValueError):
        tag_table([["DT"]], [["B-NP", "O"]])


def test_words_are_runs_of_letters_and_single_ideographs() -> None:
    text = "The NFL的6½ 联盟, it's_so."
    assert [word for word, _, _ in words_of(text)] == ["the", "nfl", "的", "6½", "联", "盟", "it", "s", "so"]
    assert all(text[start:end].lower() == word for word, start, end in words_of(text))


def test_rare_words_tell_more() -> None:
    found = rarity(["the cat", "the dog", "the dog", "the bird the bird"])
    assert found.of("the") == pytest.approx(math.log(2)), "in all three different passages, however often in one"
    assert found.of("cat") == pytest.approx(math.log(4)) == found.of("zebra")


def test_the_answer_stands_beside_the_words_of_the_question() -> None:
    passage = "The bridge is old. Anna Smith built the tower in 1901. Nobody knows the mill."
    assert answer("Who built the tower?", passage, 2) == "Anna Smith"
    assert answer("key lock", "one key two three lock", 1) == "two", "nearer counts more; of equal ones the first"
    assert answer("the bridge", "The bridge", 1) == "The", "every run has a word of the question"
    assert answer("who", "one two", 5) == "one two"
    assert answer("who", "?!", 3) == ""


def test_rarity_decides_between_two_places() -> None:
    passage = "of north, then some more words and others until the end comes to zebra south"
    weights = Rarity({"of": 0.1, "zebra": 3.0}, 1.0)
    assert answer("of zebra", passage, 1, weights) == "to"
    assert answer("of zebra", passage, 1, Rarity({"of": 3.0, "zebra": 0.1}, 1.0)) == "north"


def test_words_far_away_do_not_count() -> None:
    """If the first word counted, `first` would win; the words between are no answers, being of the question."""
    words = words_of(" ".join(["key", *["asked"] * NEAR, "first", "second", "hint"]))
    pulls = [5.0, *[1e-9] * NEAR, 0.0, 0.0, 0.3]
    passage = " ".join(word for word, _, _ in words)
    assert overlap_answer(passage, words, pulls, 1) == "second"
    assert overlap_answer(passage, words[1:], pulls[1:], 1) == "second"
    assert overlap_answer(passage, words, [0.0, 5.0, *pulls[2:]], 1) == "key"


def test_the_length_is_settled_by_f1() -> None:
    passage = "In the garden of the king stands John Henry Miller today. Of him we know a lot of other things too."
    name = "John Henry Miller"
    gold = (Answer(name, passage.index(name)),)
    question = Question("1", "Who stands in the garden today?", passage, gold, False, "q")
    assert overlap_answers([question], FLAT, 3) == [name]
    assert best_length([question], FLAT) == 3
