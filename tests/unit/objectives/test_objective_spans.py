"""Pairs of spans: what they are made of, and that nothing but what they say gives the label away: neither lengths nor
half words nor the ends of documents, short documents or not, whatever the vocabulary."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from complaints import refused

from foretext.objectives.spans import Span, SpanPairs
from foretext.text.corpus.readers import ReadOptions, find_files
from foretext.text.corpus.shard_writing import Sharding, write_shards
from foretext.text.corpus.shards import TokenShards
from foretext.text.tokenizers.base import END, KINDS, Tokenizer, TokenizerConfig
from foretext.text.tokenizers.byte_bpe import ByteBPE
from foretext.text.tokenizers.training import train_tokenizer

BYTES = ByteBPE(bytes(range(256)), [], {END: 256})
STOP = 256
ROOM = 29
SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
WORDS = [a + b + c for a, b, c in np.random.default_rng(5).choice(SYLLABLES, (80, 3)).tolist()]  # no word is in another
HAN = [chr(code) for code in range(0x4E00, 0x4E3C)]
LENGTHS = {"even": [9] * 80, "short": [1, 2, 3] * 40, "mixed": [120, 2, 3, 20] * 12, "long": [150] * 10}


def documents(lengths: list[int], chinese: bool = False) -> list[str]:
    """Texts of so many words, with commas in some, all ending in a full stop."""
    draw = np.random.default_rng(0)
    made = []
    for length in lengths:
        words = [str(word) for word in draw.choice(HAN if chinese else WORDS, length)]
        text = ("" if chinese else " ").join(
            word + ("，" if chinese else ",") * (draw.random() < 0.1) for word in words
        )
        made.append(text + ("。" if chinese else "."))
    return made


def prose(lengths: list[int], chinese: bool = False) -> list[str]:
    """Texts of so many words in sentences, each with a capital at its beginning and a full stop at its end."""
    draw = np.random.default_rng(0)
    made = []
    for text in documents(lengths, chinese):
        words = list(text) if chinese else text.split()
        for place, word in enumerate(words[: -2 if chinese else -1]):  # the last sign is one of them
            if draw.random() < 0.2 and not word.endswith((",", "，")):
                words[place] = f"{word}{'。' if chinese else '.'}"
                words[place + 1] = words[place + 1].capitalize()
        made.append(("" if chinese else " ").join([words[0].capitalize(), *words[1:]]))
    return made


@cache
def vocabulary(kind: str, chinese: bool = False) -> Tokenizer:
    """So small that words are in several pieces."""
    size = 300 if kind == "byte-bpe" else 140
    return train_tokenizer(documents([200] * 5, chinese), TokenizerConfig(kind, size, splitter="rules"))


def shards(folder: Path, texts: list[str], tokenizer: Tokenizer = BYTES) -> TokenShards:
    folder.mkdir(exist_ok=True)
    path = folder / "text.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    options = ReadOptions(documents="line")
    write_shards(find_files([path]), options, tokenizer, folder / "out", Sharding(0, 0.0), workers=0)
    return TokenShards.open(folder / "out", "train", verify=True)


def pairs_of(folder: Path, texts: list[str], pairs: str, tokenizer: Tokenizer = BYTES, short: float = 0.1) -> SpanPairs:
    return SpanPairs(shards(folder, texts, tokenizer), ROOM, 3, tokenizer, pairs, short)


def drawn(pairs: SpanPairs, count: int) -> list[Span]:
    return [pairs.example(number // len(pairs), number % len(pairs)) for number in range(count)]


def tells_label(found: list[Span], features: list[Any]) -> float:
    """How far the feature's means under the two labels are apart, in standard errors."""
    labels, values = np.array([span.label for span in found]), np.array(features, dtype=float)
    error = sum(np.var(values[labels == label]) / np.sum(labels == label) for label in (0, 1)) ** 0.5
    gap = abs(values[labels == 0].mean() - values[labels == 1].mean())
    return float(gap / error) if error else float(gap * 1e9)


def text_of(ids: np.ndarray, tokenizer: Tokenizer = BYTES) -> str:
    return tokenizer.decode(ids.tolist()).strip()


# -- whole words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", ["next sentence", "sentence order"])
@pytest.mark.parametrize("kind", KINDS)
def test_spans_are_whole_words(tmp_path: Path, kind: str, pairs: str) -> None:
    tokenizer = vocabulary(kind)
    made = pairs_of(tmp_path, documents(LENGTHS["mixed"]), pairs, tokenizer)
    split = 0
    for span in drawn(made, 300):
        assert sum(map(len, span.texts)) <= ROOM and all(len(text) for text in span.texts)
        for ids in span.texts:
            words = text_of(ids, tokenizer).replace(",", " ").replace(".", " ").split()
            assert set(words) <= set(WORDS), "a word is cut"
            split += len(ids) > len(words) + 5
    assert split, "words are in several pieces"


def test_a_space_alone_is_not_parted_from_its_word() -> None:
    tokenizer = vocabulary("unigram", chinese=True)
    ids = tokenizer.encode("".join(HAN[:3]) + " " + HAN[0])
    pieces = [tokenizer.piece(id) for id in ids]
    starts = tokenizer.word_starts(np.array(ids)).tolist()
    assert "▁" in pieces and not any(start for before, start in zip(pieces, starts[1:]) if before == "▁")
    assert BYTES.word_starts(np.array(BYTES.encode("a b  (\n c"))).tolist() == (
        [True, True, False, True, True, False, True, True, False]
    )


def test_a_single_word_leaves_its_turn_to_another(tmp_path: Path) -> None:
    made = pairs_of(tmp_path, [*WORDS[:30], *(f"{a} {b}" for a, b in zip(WORDS, WORDS[40:]))], "next sentence")
    for span in drawn(made, 300):
        assert {text_of(ids) for ids in span.texts} <= set(WORDS)


@pytest.mark.parametrize("count", [1, 9])
def test_nothing_but_single_words_is_cut_anywhere(tmp_path: Path, count: int) -> None:
    letters = np.random.default_rng(1).choice(list("abcdefghijklmnopqrstuvwxyz"), (count, 90))
    texts = ["".join(row) for row in letters.tolist()]
    found = drawn(pairs_of(tmp_path, texts, "next sentence"), 200)
    assert 0.3 < np.mean([span.label for span in found]) < 0.7
    for span in found:
        first, second = map(text_of, span.texts)
        assert first and second
        if len(first) > 3:  # a few letters may stand before both
            assert any(first + second in text for text in texts) == (span.label == 0)


# -- nothing gives the label away ------------------------------------------------------------------------------------

CASES = [
    *((kind, False, "mixed") for kind in KINDS),
    *(("wordpiece", False, which) for which in ("even", "short", "long")),
    *((kind, True, "even") for kind in ("wordpiece", "unigram")),
]


@pytest.mark.parametrize(("kind", "chinese", "which"), CASES)
def test_next_sentence_is_told_by_content_alone(tmp_path: Path, kind: str, chinese: bool, which: str) -> None:
    tokenizer, texts = vocabulary(kind, chinese), documents(LENGTHS[which], chinese)
    made = pairs_of(tmp_path, texts, "next sentence", tokenizer)
    found = drawn(made, 1000)
    assert np.mean([span.label for span in found]) == pytest.approx(0.5, abs=4 * 0.5 / len(found) ** 0.5)
    stop = "。" if chinese else "."
    begins = tuple(text_of(tokenizer.encode_array(text)[:12], tokenizer) for text in texts)
    first, second = ([text_of(span.texts[number], tokenizer) for span in found] for number in (0, 1))
    starts, ends = [text.startswith(begins) for text in first], [text.endswith(stop) for text in second]
    for name, features in {
        "length of the first": [len(span.texts[0]) for span in found],
        "length of the second": [len(span.texts[1]) for span in found],
        "length of both": [sum(map(len, span.texts)) for span in found],
        "the second is a single piece": [len(span.texts[1]) == 1 for span in found],
        "the second begins with a space": [made.spaced[span.texts[1][0]] for span in found],
        "the second begins inside a word": [tokenizer.piece(int(span.texts[1][0]))[:2] == "##" for span in found],
        "the second ends its document": ends,
        "the first begins its document": starts,
        "both": np.logical_and(starts, ends),
        "the second begins a document": [text.startswith(begins) for text in second],
    }.items():
        assert tells_label(found, list(features)) < 4, name


@pytest.mark.parametrize("texts", [documents, pytest.param(prose, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("kind", "chinese", "which"), CASES)
def test_the_order_of_spans_is_told_by_content_alone(
    tmp_path: Path, kind: str, chinese: bool, which: str, texts: Any
) -> None:
    tokenizer = vocabulary(kind, chinese)
    made = pairs_of(tmp_path, texts(LENGTHS[which] * 5, chinese), "sentence order", tokenizer)
    found = drawn(made, 1000)
    read = {id(ids): text_of(ids, tokenizer) for span in found for ids in span.texts}
    assert np.mean([span.label for span in found]) == pytest.approx(0.5, abs=4 * 0.5 / len(found) ** 0.5)
    for name, feature in {
        "lengths": len,
        "a space": lambda ids: made.spaced[ids[0]],
        "a full stop": lambda ids: read[id(ids)].endswith((".", "。")),
        "a capital": lambda ids: which != "short" and read[id(ids)][:1].isupper(),  # two words: one has it
    }.items():
        values = [[float(feature(ids)) for ids in span.texts] for span in found]
        assert tells_label(found, [first - second for first, second in values]) < 4, name


def test_spans_of_sentence_order_are_whole_sentences(tmp_path: Path) -> None:
    for span in drawn(pairs_of(tmp_path, prose(LENGTHS["even"]), "sentence order", vocabulary("wordpiece"), 0.0), 300):
        ends = [text_of(ids, vocabulary("wordpiece")).endswith(".") for ids in span.texts]
        assert ends[0] == ends[1]


def test_a_tenth_of_the_pairs_is_shorter(tmp_path: Path) -> None:
    texts = documents([150] * 10)
    lengths = {
        short: np.array(
            [
                sum(map(len, span.texts))
                for span in drawn(pairs_of(tmp_path / str(short), texts, "next sentence", short=short), 400)
            ]
        )
        for short in (0.0, 0.1, 1.0)
    }
    much = lengths[0.0].min()
    assert much > ROOM / 2 and (lengths[1.0] < much).mean() > 0.3, "of any length"
    assert (lengths[0.1] < much).mean() == pytest.approx(0.1 * (lengths[1.0] < much).mean(), abs=0.05)


# -- what they are made of -------------------------------------------------------------------------------------------


def test_the_second_span_follows_or_is_of_another_document(tmp_path: Path) -> None:
    texts = [" ".join([letter, letter * 2] * 15) for letter in "abcdefgh"]
    seen = set()
    for span in drawn(pairs_of(tmp_path, texts, "next sentence"), 400):
        first, second = map(text_of, span.texts)
        if span.label:
            assert not set(first) & set(second) - {" "}
            seen |= set(second) - {" "}
        else:
            assert any(f"{first} {second}" in text for text in texts)
    assert seen == set("abcdefgh"), "every document is drawn"


def test_sentence_order_has_both_orders_of_what_follows(tmp_path: Path) -> None:
    texts = documents([120] * 10)
    for span in drawn(pairs_of(tmp_path, texts, "sentence order"), 300):
        first, second = (text_of(ids) for ids in (span.texts[::-1] if span.label else span.texts))
        assert any(first + space + second in text for text in texts for space in ("", " "))


def test_a_pair_is_a_pure_function(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, documents([12] * 10), "next sentence", short=0.5)
    again = SpanPairs(pairs.shards, ROOM, 3, BYTES, "next sentence", 0.5)
    for index in (7, 0, 7, 3):
        a, b = pairs.example(1, index), again.example(1, index)
        assert a.label == b.label and all(np.array_equal(x, y) for x, y in zip(a.texts, b.texts))
    other = [pairs.example(2, index).label for index in range(len(pairs))]
    assert other != [pairs.example(1, index).label for index in range(len(pairs))]


def test_all_of_the_text_is_seen(tmp_path: Path) -> None:
    texts = documents(LENGTHS["mixed"])
    pairs = pairs_of(tmp_path, texts, "next sentence", short=0.0)
    marks = [pairs._marks(index) for index in range(len(pairs))]
    covered = np.zeros(len(pairs.shards), dtype=bool)
    for found in marks:
        covered[found[0] : found[-1]] = True
    whole = pairs.shards.window(0, len(pairs.shards))
    assert covered[whole != STOP].mean() > 0.9 and not covered[whole == STOP].any()


def test_one_document_gives_another_of_its_stretches(tmp_path: Path) -> None:
    found = drawn(pairs_of(tmp_path, documents([60]), "next sentence", short=0.0), 400)
    assert 0.4 < np.mean([span.label for span in found]) < 0.6
    assert tells_label(found, [len(span.texts[1]) for span in found]) < 4


def test_too_little_text(tmp_path: Path) -> None:
    with refused(str(tmp_path / "out"), "train", "--system roberta"):
        pairs_of(tmp_path, ["ab cd"], "next sentence")
    with refused(str(tmp_path / "out"), "train", "3 tokens", "context"):
        SpanPairs(shards(tmp_path, documents([9] * 4)), 3, 3, BYTES, "next sentence", 0.1)
