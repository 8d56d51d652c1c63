from __future__ import annotations

import builtins
import itertools
import json
import re
from collections import Counter

import pytest
from complaints import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from foretext.text.tokenizers import splitters
from foretext.text.tokenizers.base import END, TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.char_bpe import UNKNOWN, CharBPE
from foretext.text.tokenizers.splitters import split_by_rules, standardise
from foretext.text.tokenizers.training import train_tokenizer

TEXTS = ["The cat sat on the mat.\nThe other cat didn't.", "The hat was on the cat, then the mat was on the hat!"] * 5


@pytest.fixture(scope="module")
def trained() -> CharBPE:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig("char-bpe", 120, splitter="rules"))
    assert isinstance(tokenizer, CharBPE)
    return tokenizer


def letters(word: str) -> list[str]:
    return [*word[:-1], word[-1] + "</w>"]


def merge(symbols: list[str], left: str, right: str) -> None:
    i = 0
    while i < len(symbols) - 1:
        if (symbols[i], symbols[i + 1]) == (left, right):
            symbols[i : i + 2] = [left + right]
        i += 1


def slow_bpe(tokenizer: CharBPE, word: str) -> list[int]:
    """The merges one by one over one word, as the paper's code reads."""
    ids = {piece: id for id, piece in enumerate(tokenizer.pieces)}
    symbols = letters(word)
    for left, right in tokenizer.merges:
        merge(symbols, left, right)
    return [ids.get(symbol, ids[UNKNOWN]) for symbol in symbols]


def test_layout(trained: CharBPE) -> None:
    assert trained.pieces[0] == UNKNOWN and trained.pieces[-1] == "\n</w>"
    assert trained.specials == {END: trained.size - 1} and trained.size <= 120
    assert not trained.lossless and "the</w>" in trained.pieces


def test_each_merge_is_of_the_commonest_pair(trained: CharBPE) -> None:
    """Of all pairs inside words at that time; the last letter of a word is another symbol than the same one inside."""
    words = Counter(word for text in TEXTS for word in trained.words(text) if not word.isspace())
    cut = {word: letters(word) for word in words}
    assert len(trained.merges) > 10
    for best in trained.merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(cut[word]):
                pairs[pair] += count
        assert pairs[best] == max(pairs.values()) > 1, best
        for symbols in cut.values():
            merge(symbols, *best)


def test_encode_and_decode(trained: CharBPE) -> None:
    ids = trained.encode("THE cat,\n\n the mat")
    assert trained.decode(ids) == "the cat , \n the mat"
    assert trained.piece_bytes(trained.pieces.index("the</w>")) == b"the "
    assert trained.decode([*ids, trained.specials[END]]) == trained.decode(ids)
    assert trained.encode("") == [] and trained.encode_array(" ").tolist() == []


# Letters, and parts that several merges fight over: of "that", th and at, or t and hat?
parts = st.sampled_from([*"thecasmon.!ZQé中", "th", "at", "hat", "that", "the", "cat", "mat", "was"])


@given(st.lists(parts, min_size=1, max_size=8).map("".join))
def test_fast_merging_equals_slow(trained: CharBPE, word: str) -> None:
    word = word.lower()
    assert trained._encode_word(word) == slow_bpe(trained, word)


def test_unknown_characters(trained: CharBPE) -> None:
    assert trained.encode("中文") == [0, 0]
    assert trained.encode("a\ud800") == trained.encode("a\ufffd")


def test_text_that_spells_a_special_or_a_mark_stays_text(trained: CharBPE) -> None:
    ids = trained.encode(f"the {END} {UNKNOWN}")
    assert trained.specials[END] not in ids
    assert len(ids) > 10


def test_json_round_trip(trained: CharBPE) -> None:
    again = tokenizer_from_json(trained.to_json(), "t")
    assert again.fingerprint() == trained.fingerprint()
    assert again.encode("the cat zzz 中\n") == trained.encode("the cat zzz 中\n")
    assert json.loads(trained.to_json())["splitter"] == {"name": "rules"}


def test_with_specials_keeps_ids(trained: CharBPE) -> None:
    more = trained.with_specials(["<start>"])
    assert more.specials["<start>"] == trained.size
    assert more.encode("the hat") == trained.encode("the hat")


@given(st.text(st.sampled_from("ab \n\t\r\xa0-–—…´!?,()_~\x0b\x1c"), max_size=30))
def test_standardise_is_the_original(text: str) -> None:
    import ftfy

    expected = ftfy.fix_text(text)
    for old, new in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
        expected = expected.replace(old, new)
    expected = re.sub(r'(-+|~+|!+|"+|;+|\?+|\++|,+|\)+|\(+|\\+|/+|\*+|\[+|\]+|}+|{+|\|+|_+)', r" \1 ", expected)
    expected = re.sub(r"[^\S\n]+", " ", re.sub(r"\s*\n\s*", " \n ", expected)).strip()
    assert standardise(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 3.14, naïve!!", ["It", "'s", "3.14", ",", "naïve", "!!"]),
        ("我用Python写代码。", ["我用", "Python", "写代码", "。"]),
        ("カタカナーと漢字", ["カタカナーと漢字"]),
        ("ภาษาไทย test", ["ภาษาไทย", "test"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("a \n b", ["a", "\n", "b"]),
    ],
)
def test_rules(text: str, words: list[str]) -> None:
    assert split_by_rules(text) == words


@settings(max_examples=60)
@given(st.text())
def test_rules_lose_nothing_but_space(text: str) -> None:
    text = standardise(text)
    assert "".join(split_by_rules(text)).replace("\n", "") == "".join(text.split())


def test_spacy_splits_and_is_named() -> None:
    spacy = pytest.importorskip("spacy")
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig("char-bpe", 120, splitter="spacy"))
    assert isinstance(tokenizer, CharBPE)
    assert tokenizer.words("The cat didn't\n go.") == ["the", "cat", "did", "n't", "\n ", "go", "."]
    assert tokenizer.encode("cat\ncat")[1] == tokenizer.pieces.index("\n</w>")
    version = ".".join(spacy.__version__.split(".")[:2])
    assert json.loads(tokenizer.to_json())["splitter"] == {"name": "spacy", "spacy": version}


def test_another_version_of_spacy_is_refused() -> None:
    pytest.importorskip("spacy")
    data = json.loads(train_tokenizer(TEXTS, TokenizerConfig("char-bpe", 120, splitter="rules")).to_json())
    data["splitter"] = {"name": "spacy", "spacy": "1.0"}
    with refused("run/tokenizer.json", "spaCy 1.0", "pip install 'spacy==1.0.*'"):
        tokenizer_from_json(json.dumps(data), "run/tokenizer.json")


def test_without_spacy_the_remedy_is_named(trained: CharBPE, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_spacy(name: str, *rest: object) -> object:
        if name == "spacy":
            raise ImportError(name)
        return real(name, *rest)

    data = json.loads(trained.to_json()) | {"splitter": {"name": "spacy", "spacy": "3.8"}}
    monkeypatch.setattr(builtins, "__import__", no_spacy)
    with refused("t.json", "pip install 'foretext[spacy]'"):
        tokenizer_from_json(json.dumps(data), "t.json")


def test_spacy_is_made_anew_before_its_memory_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("spacy")
    splitter = splitters.SpacySplitter("test")
    first = splitter._tokenizer
    monkeypatch.setattr(splitters, "_SPACY_STRINGS", 0)
    assert splitter("it's so") == ["it", "'s", "so"]
    assert splitter._tokenizer is not first
