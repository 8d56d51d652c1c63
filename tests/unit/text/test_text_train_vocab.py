from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from complaints import refused

from foretext.text.tokenizers import unigram_training
from foretext.text.tokenizers.base import KINDS, TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.training import sample_stretches, train_tokenizer

CHINESE = ["酒店的服务很好，早餐也不错。", "房间很干净，酒店的位置很方便。", "服务员很热情，下次还住这个酒店。"] * 20


def corpus(count: int) -> Iterator[str]:
    draw = random.Random(3)
    for number in range(count):
        yield f"document {number}: " + " ".join(draw.choice(["rose", "tulip", "daisy"]) for _ in range(20))


def test_sample_is_bounded_repeatable_and_spread() -> None:
    sample = sample_stretches(corpus(2_000), 20_000, seed=1)
    assert 15_000 < sum(map(len, sample)) <= 20_000
    assert sample == sample_stretches(corpus(2_000), 20_000, seed=1)
    assert sample != sample_stretches(corpus(2_000), 20_000, seed=2)
    numbers = [int(text.split()[1][:-1]) for text in sample]
    assert numbers == sorted(numbers)
    assert 800 < sum(numbers) / len(numbers) < 1_200, "not spread over the whole corpus"


def test_small_corpora_are_taken_whole_and_long_documents_in_stretches() -> None:
    assert sample_stretches(["a b", "c d"], 1_000, seed=0) == ["a b", "c d"]
    long = "x y " * 100_000
    sample = sample_stretches([long], 100_000, seed=0)
    assert 0 < sum(map(len, sample)) <= 100_000 and len(sample) == 2


def test_the_whole_corpus_is_never_held() -> None:
    alive = 0

    class Counted(str):
        def __new__(cls, text: str) -> Counted:
            nonlocal alive
            alive += 1
            return super().__new__(cls, text)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    most = 0

    def documents() -> Iterator[str]:
        nonlocal most
        for text in corpus(3_000):
            most = max(most, alive)
            yield Counted(text)

    sample_stretches(documents(), 10_000, seed=0)
    assert most < 150


@pytest.mark.parametrize("kind", ["byte-bpe", "char-bpe", "unigram"])
def test_chinese_gets_pieces_of_several_characters(kind: str) -> None:
    tokenizer = train_tokenizer(CHINESE, TokenizerConfig(kind, 400, splitter="rules"))
    ids = tokenizer.encode("酒店的服务很好")
    assert tokenizer.decode(ids) == "酒店的服务很好"
    assert len(ids) < 7, [tokenizer.piece(id) for id in ids]


@pytest.mark.parametrize(
    ("kind", "size"),
    [("byte-bpe", 300), *((kind, 150) for kind in ("char-bpe", "wordpiece", "unigram", "word-list", "words"))],
)
def test_progress_is_told_and_changes_nothing(kind: str, size: int) -> None:
    told: list[tuple[str, int, int]] = []
    texts = list(corpus(300))
    seen = train_tokenizer(
        texts, TokenizerConfig(kind, size, splitter="rules"), progress=lambda *step: told.append(step)
    )
    assert seen.fingerprint() == train_tokenizer(texts, TokenizerConfig(kind, size, splitter="rules")).fingerprint()
    titles = {title for title, _, _ in told}
    assert {title.split()[0] for title in titles} <= {"splitting", "counting", "learning"}
    assert any(title.startswith("counting") for title in titles)
    assert all(f" {size} " in title for title in titles if title.startswith("learning"))
    assert all(0 <= done < total or (done, total) == (0, 0) for _, done, total in told)


@pytest.mark.parametrize("title", ["counting", "learning"])
def test_whoever_waits_can_stop_it(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning is one call into a library that nothing interrupts; the caller need not wait for its end."""
    monkeypatch.setattr(unigram_training, "_WAIT", 0.001)
    draw = random.Random(0)
    texts = [" ".join("".join(draw.choices("abcdefghij", k=9)) for _ in range(10)) for _ in range(500)]

    def stop(doing: str, done: int, total: int) -> None:
        if doing.startswith(title):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tokenizer(texts, TokenizerConfig("byte-bpe", 2_000), progress=stop)


def test_same_vocabulary_in_another_process() -> None:
    """Hash tables are seeded anew in each process; the vocabularies must not depend on them."""
    code = """
import random
from foretext.text.tokenizers.base import TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer
draw = random.Random(0)
texts = ["".join(draw.choice("abcdefgh ") for _ in range(300)) for _ in range(10)] + ["酒店 很好 早餐 不错"]
for kind, size in (("byte-bpe", 300), ("char-bpe", 150), ("wordpiece", 150), ("unigram", 150)):
    print(kind, train_tokenizer(texts, TokenizerConfig(kind, size, splitter="rules")).fingerprint())
"""
    root = Path(__file__).resolve().parents[3]
    prints = set()
    for seed in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": seed},
        )
        prints.add(result.stdout)
    assert len(prints) == 1 and prints.pop().count("\n") == 4


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((["text"], "word", 500), ("kind 'word'", "byte-bpe, char-bpe, wordpiece, unigram, words, word-list")),
        ((["text"], "byte-bpe", 100), ("byte-bpe", "257", "100")),
        ((["text"], "char-bpe", 10), ("char-bpe", "64", "10")),
        ((["text"], "wordpiece", 10), ("wordpiece", "64", "10")),
        ((["text"], "unigram", 10), ("unigram", "64", "10")),
        ((["\x01\x02"], "wordpiece", 100), ("empty", "wordpiece")),
        ((["\x01\x02"], "unigram", 100), ("empty",)),
        (([], "byte-bpe", 500), ("empty",)),
        (([" \n"], "byte-bpe", 500), ("empty",)),
    ],
)
def test_mistakes(arguments: tuple, named: tuple[str, ...]) -> None:
    with refused(*named):
        train_tokenizer(arguments[0], TokenizerConfig(*arguments[1:]))


def test_byte_level_takes_text_that_is_not_unicode() -> None:
    assert train_tokenizer(["a\ud800 a a a"], TokenizerConfig("byte-bpe", 300)).size > 256


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_other_kinds_take_text_that_is_not_unicode(kind: str) -> None:
    assert train_tokenizer(["a\ud800 abc abc abc"], TokenizerConfig(kind, 100)).decode([5]) != ""


@pytest.mark.parametrize("title", ["splitting", "counting", "learning"])
@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_whoever_waits_can_stop_the_other_kinds(kind: str, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unigram_training, "_WAIT", 0.001)
    if (kind, title) == ("unigram", "splitting"):
        pytest.skip("unigram counts words as it splits")
    draw = random.Random(0)
    texts = [" ".join("".join(draw.choices("abcdefghij", k=9)) for _ in range(10)) for _ in range(500)]

    def stop(doing: str, done: int, total: int) -> None:
        if doing.startswith(title):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tokenizer(texts, TokenizerConfig(kind, 2_000), progress=stop)


@pytest.mark.parametrize("kind", ["word-list", "words"])
def test_whoever_waits_can_stop_a_count_of_whole_words(kind: str) -> None:
    """At any stretch of the text."""
    heard: list[tuple[str, int, int]] = []

    def stop(doing: str, done: int, total: int) -> None:
        heard.append((doing, done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tokenizer([f"text number {number}" for number in range(5)], TokenizerConfig(kind, 100), progress=stop)
    assert [told for _, *told in heard] == [[done, 5] for done in range(3)]
    assert all(doing.startswith("counting") for doing, _, _ in heard)


ODD = {
    "one character": ["a"],
    "one character, often": ["a a a a"],
    "empty lines": ["", "\n\n", "  ", "x"],
    "chinese": ["我们今天去公园散步，天气很好。" * 9, "", "他说：你好，世界！"],
    "signs": ["😀 👨\u200d👩\u200d👧 (!) …" * 3],
    "marks of pieces": ["## ##a ▁ ▁a▁ </w> a</w> Ġ [MASK] <unk> " * 3],
    "private characters": ["\U000f0000a\U000f0001 b" * 5],
    "numbers": ["1,234 2010, 2011, 99," * 5],
}


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_text_and_more_pieces_than_it_has(kind: str, text: str) -> None:
    """Nothing fails, the vocabulary is as small as the text, and every text has ids, none of them a special one."""
    for size in (300, 30_000):
        tokenizer = train_tokenizer(ODD[text], TokenizerConfig(kind, size, splitter="rules"))
        assert tokenizer.size <= min(size, 600)
        again = tokenizer_from_json(tokenizer.to_json(), "here")
        for sample in [*ODD[text], "hello [MASK] 你好 ▁ ## <unk>"]:
            ids = tokenizer.encode(sample)
            assert again.encode(sample) == ids == tokenizer.encode_with_offsets(sample)[0]
            assert bool(ids) == bool(sample.strip()) or kind == "byte-bpe"
            assert not set(ids) & (set(tokenizer.specials.values()) - {tokenizer.unknown})


def test_no_word_that_wordpiece_could_take() -> None:
    with refused("100 characters", "wordpiece", "--set tokenizer.kind=unigram"):
        train_tokenizer(["ภาษาไทยไม่มีช่องว่าง" * 10], TokenizerConfig("wordpiece", 300))
