"""Text as words for vectors: by hand, and for any text at all."""

from __future__ import annotations

import pytest
from complaints import refused
from hypothesis import given
from hypothesis import strategies as st

from foretext.text.tokenizers.base import tokenizer_from_json
from foretext.text.tokenizers.word_vocabulary import UNKNOWN, Words, count_words, words_of
from foretext.text.words import splitting
from foretext.text.words.splitting import split_with_places, split_words

TEXTS = st.text(max_size=60) | st.lists(
    st.sampled_from(
        ["don't", "İstanbul", "it’s", "n't", "'s", "3.5", "...", "我爱", "ですか", "ไทย", "\u200b", "\x1c", "a", "!"]
    )
    | st.sampled_from(["<br />", "</p>", "<İ", "<a İ>", ">"])
    | st.characters(),
    max_size=12,
).map("".join)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't panic!", "do n't panic !"),
        ("I’d say it's (not) ours'", "i 'd say it 's ( not ) ours '"),
        ("can't cannot shan't n'tx", "ca n't can not sha n't n ' tx".replace("can not", "cannot")),
        ("3.5, 1,000 and 10:30.", "3.5 , 1,000 and 10:30 ."),
        ("wait... what?!!", "wait ... what ? !!"),
        ("我爱北京 and 東京", "我 爱 北 京 and 東 京"),
        ("naïve Ärger über", "naïve ärger über"),
        (" \n\t", ""),
        ("Bad.<br /><BR>Very bad</p>!", "bad . very bad !"),
        ('See <a href="x.html"\ntitle="1">this</a>one', "see this one"),
        ("a < b, b > a, I <3 it, <-, <>, </>", "a < b , b > a , i < 3 it , < - , < > , < / >"),
        (f"<a{'b' * 201}>", f"< a{'b' * 201} >"),
    ],
)
def test_words_by_hand(text: str, words: str) -> None:
    assert split_words(text) == words.split()


def test_a_tag_moves_no_place() -> None:
    text = "İ bad.<br /><br />Don’t<p>go"
    words, places = split_with_places(text)
    assert words[1:] == ["bad", ".", "do", "n't", "go"]
    assert [text[start:stop] for start, stop in places] == ["İ", "bad", ".", "Do", "n’t", "go"]


@given(TEXTS)
def test_words_and_places_of_any_text(text: str) -> None:
    words, places = split_with_places(text)
    assert words == split_words(text)
    end = 0
    for word, (start, stop) in zip(words, places, strict=True):
        assert end <= start < stop and word and not any(letter.isspace() for letter in word)
        assert word == splitting._plain(text)[start:stop] or len(text.lower()) != len(text)
        end = stop
    left = splitting._plain(text)
    for word in words:
        left = left[left.index(word) + len(word) :]
    assert "".join(words) == "".join(left for left in splitting._plain(text).split()), "nothing is lost"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "_KEPT", 3)
    parts = splitting._Parts()
    monkeypatch.setattr(splitting, "_PARTS", parts)
    long = "x" * 50
    assert split_words(f"a b c don't {long} a") == ["a", "b", "c", "do", "n't", long, "a"]
    assert len(parts) <= 3 and long not in parts


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_a_vocabulary_splits_as_the_function_does(texts: list[str], text: str) -> None:
    known = [word for word in dict.fromkeys(word for one in texts for word in split_words(one)) if word.isprintable()]
    tokenizer = words_of(known, lower=True, split="contractions")
    for vocabulary in (tokenizer, tokenizer_from_json(tokenizer.to_json(), "here")):
        found = vocabulary.encode(text)
        expected = [word if word in known else UNKNOWN for word in split_words(text)]
        assert [vocabulary.piece(id) for id in found] == expected
        assert vocabulary.encode_many([text])[0].tolist() == found
        ids, offsets = vocabulary.encode_with_offsets(text)
        assert ids == found and offsets == split_with_places(text)[1]
    tokenizer.number_unknown()
    assert [tokenizer.piece(id) for id in tokenizer.encode(text)] == split_words(text)


def test_counted_words() -> None:
    texts = ["The cat, the DOG.", "the cat don't", "cat\ud800 dog"]
    tokenizer = count_words(texts, 100, least=2)
    assert isinstance(tokenizer, Words) and tokenizer.split == "contractions"
    assert tokenizer.pieces[2:] == ["cat", "the", "dog"], "the most frequent first, then by their letters"
    assert count_words(texts, 4, least=1).pieces[2:] == ["cat", "the"]
    with refused("0 ", "4 ", "tokenizer.least=1"):
        count_words(texts, 100, least=4)


def test_memory_for_counts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many words the rare ones are forgotten, as word2vec does."""
    monkeypatch.setattr("foretext.text.tokenizers.word_vocabulary.MOST_COUNTED", 4)
    texts = ["often also " * 50, *("r" + "x" * number for number in range(40)), "often also"]
    assert count_words(texts, 100, least=2).pieces[2:] == ["also", "often"]
