"""A vocabulary of whole words."""

from __future__ import annotations

import pytest

from foretext.errors import UserError
from foretext.text.tokenizer import tokenizer_from_json
from foretext.text.word_vocabulary import train_word_vocabulary

TEXTS = ["The cat saw the cat, the dog.", "A dog saw the Thing; naïve cat"]


def test_the_most_frequent_words_come_first() -> None:
    made = train_word_vocabulary(TEXTS, 100)
    words = [made.piece(id) for id in range(5, made.size)]
    assert words == ["cat", "the", "dog", "saw", ",", ".", ";", "A", "The", "Thing", "naïve"]
    assert train_word_vocabulary(TEXTS, 8).pieces[5:] == ["cat", "the", "dog"]
    assert train_word_vocabulary(TEXTS, 100, least=2).pieces[5:] == ["cat", "the", "dog", "saw"]
    assert "naive" in train_word_vocabulary(TEXTS, 100, lower=True).pieces


def test_a_word_is_one_id_or_unknown() -> None:
    made = train_word_vocabulary(TEXTS, 100)
    ids = made.encode("the cats, the cat")
    assert [made.piece(id) for id in ids] == ["the", "[UNK]", ",", "the", "cat"] and ids[1] == made.unknown
    assert bool(made.word_starts(made.encode_array("the Thing saw")).all())
    assert made.decode(made.encode("The dog saw the cat.")) == "The dog saw the cat."
    again = tokenizer_from_json(made.to_json(), "tokenizer.json")
    assert again.fingerprint() == made.fingerprint() and again.encode("the dog") == made.encode("the dog")


def test_what_cannot_be_a_vocabulary() -> None:
    with pytest.raises(UserError, match="needs at least 6 ids, not 5"):
        train_word_vocabulary(TEXTS, 5)
    with pytest.raises(UserError, match="no word of at most 100 characters that occurs 9 times"):
        train_word_vocabulary(TEXTS, 50, least=9)
