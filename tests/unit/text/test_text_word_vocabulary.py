"""A vocabulary of whole words."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from complaints import refused

from foretext.text.corpus.readers import ReadOptions, find_files
from foretext.text.corpus.shard_writing import Sharding, write_shards
from foretext.text.corpus.shards import TokenShards
from foretext.text.tokenizers.base import TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.training import train_tokenizer
from foretext.text.tokenizers.word_vocabulary import PUBLISHED_SPECIALS, SPECIALS, UNKNOWN, Words, learn_words, words_of
from foretext.text.words.characters import BEGIN, END

TEXTS = ["The cat saw the cat, the dog.", "A dog saw the Thing; naïve cat"]
FIRST = len(SPECIALS)


def made() -> Words:
    found = train_tokenizer(TEXTS, TokenizerConfig("words", 100, lower=False))
    assert isinstance(found, Words)
    return found


def test_the_most_frequent_words_come_first() -> None:
    assert made().pieces[:FIRST] == [END, UNKNOWN] and made().end == 0 and made().unknown == 1
    assert made().pieces[FIRST:] == ["cat", "the", "dog", "saw", ",", ".", ";", "A", "The", "Thing", "naïve"]
    assert learn_words(TEXTS, TokenizerConfig("words", FIRST + 3, lower=False), lambda *step: None).pieces[FIRST:] == [
        "cat",
        "the",
        "dog",
    ]
    assert "naive" in learn_words(TEXTS, TokenizerConfig("words", 100), lambda *step: None).pieces


def test_a_word_is_one_id_or_unknown() -> None:
    words = made()
    ids = words.encode("the cats, the cat")
    assert [words.piece(id) for id in ids] == ["the", UNKNOWN, ",", "the", "cat"] and ids[1] == words.unknown
    assert bool(words.word_starts(words.encode_array("the Thing saw")).all())
    assert words.decode(words.encode("The dog saw the cat.")) == "The dog saw the cat."
    assert words.encode_with_offsets("a dog, saw") == (
        [words.unknown, *words.encode("dog, saw")],
        [(0, 1), (2, 5), (5, 6), (7, 10)],
    )
    again = tokenizer_from_json(words.to_json(), "tokenizer.json")
    assert again.fingerprint() == words.fingerprint() and again.encode("the dog") == words.encode("the dog")
    assert words.with_specials([END]) is words and words.with_specials(["[MASK]"]).specials["[MASK]"] == words.size


def test_unknown_words_have_numbers_where_that_is_asked_for() -> None:
    words = made()
    words.number_unknown()
    text = "the cats saw a naïve  Über-cat, cats"
    ids = words.encode(text)
    written = ["the", "cats", "saw", "a", "naïve", "Über", "-", "cat", ",", "cats"]
    assert [words.piece(id) for id in ids] == written
    assert ids[1] == ids[-1] == words.size and words.unknown not in ids
    assert words.encode_many([text, "the cats"])[1].tolist() == words.encode("the cats")
    found, offsets = words.encode_with_offsets(text)
    assert found == ids and [text[start:stop] for start, stop in offsets] == written
    assert words.decode(ids) == "the cats saw a naïve Über - cat, cats"
    assert words.to_json() == made().to_json(), "none of them is kept"
    lowered = words_of(["cat"], lower=True)
    lowered.number_unknown()
    assert [lowered.piece(id) for id in lowered.encode("CAT Naïve")] == ["cat", "naive"]


def test_words_between_spaces_stay_whole() -> None:
    words = words_of(["n't", "cat"], False, "spaces", PUBLISHED_SPECIALS)
    words.number_unknown()
    text = "did n't  U.S. cat. cat <S> </S> <UNK>"
    ids = words.encode(text)
    assert [words.piece(id) for id in ids] == text.split()
    assert not {words.specials[BEGIN], words.specials[END]} & set(ids), "text that spells a special stays text"
    again = tokenizer_from_json(words.to_json(), "tokenizer.json")
    assert isinstance(again, Words) and again.split == "spaces" and again.encode("cat .") == [4, again.unknown]


def test_shards_keep_no_number_of_one_process(tmp_path: Path) -> None:
    words = made()
    words.number_unknown()
    (tmp_path / "text.txt").write_text("the dog saw cats\nthe mouse saw the dog\n" * 20, encoding="utf-8")
    files = find_files([str(tmp_path / "text.txt")])
    write_shards(files, ReadOptions(), words, tmp_path / "tokens", Sharding(0, 0.2))
    shards = TokenShards.open(tmp_path / "tokens", "train", verify=True)
    ids = shards.window(0, len(shards))
    assert int(np.max(ids)) < words.size and words.unknown in ids


def test_what_cannot_be_a_vocabulary() -> None:
    with refused("words", "64", "5"):
        train_tokenizer(TEXTS, TokenizerConfig("words", 5))
    with refused("100 characters", "--set tokenizer.kind=unigram"):
        learn_words(["x" * 101], TokenizerConfig("words", 100, lower=False), lambda *step: None)
    for old, new, named in (
        ('"signs"', '"letters"', ("'split'", "signs", "spaces")),
        ('["</S>","<UNK>"]', '["</S>"]', ("'specials'", "<UNK>")),
    ):
        with refused("tokenizer.json", *named):
            tokenizer_from_json(made().to_json().replace(old, new), "tokenizer.json")


def test_threads_that_meet_a_word_at_once_give_it_one_number() -> None:
    class Slow(dict[str, int]):
        """Asked whether it has a word, it lets others go first."""

        def __contains__(self, word: object) -> bool:
            found = super().__contains__(word)
            time.sleep(0.001)
            return found

    words = words_of(["the"], lower=False)
    words.number_unknown()
    words._met = Slow()
    text = " ".join(f"word{number}" for number in range(20))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(words.encode, [text] * 4))
    assert all(ids == found[0] for ids in found) and len(set(found[0])) == 20
    assert [words.piece(id) for id in found[0]] == text.split()
