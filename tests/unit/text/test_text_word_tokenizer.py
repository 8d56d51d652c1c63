"""Whole words by lookup: as written, else in lower case; both vocabularies of a translation in one file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from complaints import refused

from foretext.text.tokenizers.base import END, TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.splitters import split_by_rules
from foretext.text.tokenizers.training import train_tokenizer
from foretext.text.tokenizers.word_tokenizer import UNKNOWN, WordTokenizer, word_tokenizer, words_of
from foretext.text.words.vectors import WordVectors
from foretext.text.words.word_list import WordList

WORDS = ("the", "US", "us", "dog", "'s", ".", "<unk>")
TOKENIZER = word_tokenizer(WORDS, WordList(("der", "￭.")))


def test_words_are_looked_up_as_vectors_are() -> None:
    text = "The US dog's\nzebra, THE Us."
    vectors = WordVectors(WORDS[:-1], np.zeros((6, 1), dtype=np.float32))
    words = [word for word in split_by_rules(text) if word != "\n"]
    expected = [0 if number < 0 else number + 2 for number in vectors.lookup(words).tolist()]
    assert TOKENIZER.encode(text) == expected == [2, 3, 5, 6, 0, 0, 2, 4, 7]
    ids, offsets = TOKENIZER.encode_with_offsets(text)
    assert ids == expected and [text[start:end] for start, end in offsets] == words
    assert TOKENIZER.word_starts(np.array(ids)).all() and TOKENIZER.size == 8 and TOKENIZER.end == 1
    assert TOKENIZER.decode([2, 3, 0, 1]) == "the US <unk>" and TOKENIZER.encode("<unk>") == [0, 0, 0]
    assert TOKENIZER.encode(" \n\t") == [] and TOKENIZER.piece(3) == "US"


def test_a_script_without_spaces_is_looked_up_by_its_characters() -> None:
    tokenizer = word_tokenizer(("我", "你", "。", "dog"))
    assert tokenizer.encode_with_offsets("我爱你dog。") == (
        [2, 0, 3, 5, 4],
        [(0, 1), (1, 2), (2, 3), (3, 6), (6, 7)],
    )
    assert words_of("我我你") == ["我", "我", "你"]


def test_both_vocabularies_come_back_and_count() -> None:
    again = tokenizer_from_json(TOKENIZER.to_json(), "there")
    assert isinstance(again, WordTokenizer) and again.target_words == WordList(("der", "￭."))
    assert again.fingerprint() == TOKENIZER.fingerprint() != word_tokenizer(WORDS, WordList(("die",))).fingerprint()
    grown = again.with_specials(["<x>"])
    assert grown.size == 9 and grown.targets == again.targets and grown.specials == {UNKNOWN: 0, END: 1, "<x>": 8}
    with refused("vocabulary", "--source FILE --target FILE"):
        _ = word_tokenizer(WORDS).target_words


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"targets": "abc"}, ("'targets'", "list")),
        ({"targets": ["a", "a"]}, ("'targets'", "twice")),
        ({"specials": [END]}, ("'specials'", "<unk>")),
        ({"pieces": ["a", "a"]}, ("'pieces'", "twice")),
    ],
)
def test_files_that_cannot_be(changes: dict[str, object], named: tuple[str, ...]) -> None:
    with refused("there:", *named):
        tokenizer_from_json(json.dumps(json.loads(TOKENIZER.to_json()) | changes), "there")


def test_the_most_frequent_words_of_a_text() -> None:
    learned = train_tokenizer(["b a b", "a b\nc"], TokenizerConfig("word-list", 4))
    assert learned.pieces == [UNKNOWN, END, "b", "a"]
