"""Pairs of spans: what they are made of, and that neither label nor length is given away, short documents or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretext.errors import UserError
from foretext.objectives.spans import FullText, SpanPairs
from foretext.text.byte_bpe import ByteBPE
from foretext.text.readers import ReadOptions, find_files
from foretext.text.shards import write_shards
from foretext.text.token_shards import TokenShards
from foretext.text.tokenizer import END

TOKENIZER = ByteBPE(bytes(range(256)), [], {END: 256})
STOP = 256


def shards(folder: Path, documents: list[str]) -> TokenShards:
    path = folder / "text.txt"
    path.write_text("\n".join(documents) + "\n", encoding="utf-8")
    options = ReadOptions(documents="line")
    write_shards(find_files([path]), options, TOKENIZER, folder / "out", seed=0, valid_fraction=0.0, workers=0)
    return TokenShards.open(folder / "out", "train", verify=True)


def text_of(ids: np.ndarray) -> str:
    return TOKENIZER.decode(ids.tolist())


def documents(lengths: list[int]) -> list[str]:
    """Each document has a letter of its own at every third place, so that spans say where they are from."""
    draw = np.random.default_rng(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [
        "".join(letters[draw.integers(26)] for _ in range(length)) + f"#{n:04d}" for n, length in enumerate(lengths)
    ]


@pytest.mark.parametrize("lengths", [[40] * 60, [1, 2, 3] * 40, [500, 3, 7, 90] * 10], ids=["even", "short", "mixed"])
def test_next_sentence_labels_are_balanced_whatever_the_documents(tmp_path: Path, lengths: list[int]) -> None:
    texts = documents(lengths)
    pairs = SpanPairs(shards(tmp_path, texts), 29, 3, STOP, "next sentence", 0.1)
    labels, whole = [], "\n".join(texts)
    for epoch in range(max(1, 2000 // len(pairs))):
        for index in range(len(pairs)):
            span = pairs.example(epoch, index)
            first, second = map(text_of, span.texts)
            assert first and second and len(first) + len(second) <= 29
            if span.label == 0:
                assert first + second in whole
            labels.append(span.label)
    assert np.mean(labels) == pytest.approx(0.5, abs=4 * 0.5 / len(labels) ** 0.5)


def test_another_document_is_another_document(tmp_path: Path) -> None:
    texts = [letter * 60 for letter in "abcdefgh"]
    pairs = SpanPairs(shards(tmp_path, texts), 29, 3, STOP, "next sentence", 0.1)
    seen = set()
    for epoch in range(40):
        for index in range(len(pairs)):
            span = pairs.example(epoch, index)
            first, second = (set(text_of(part)) for part in span.texts)
            assert len(first) == len(second) == 1 and (first != second) == bool(span.label)
            if span.label:
                seen |= second
    assert seen == set("abcdefgh"), "every document is drawn"


@pytest.mark.parametrize(
    "lengths", [[200] * 30, [500, 2, 3, 9] * 10, [60, 1, 1, 1, 1] * 20], ids=["even", "mixed", "short"]
)
def test_lengths_give_nothing_away(tmp_path: Path, lengths: list[int]) -> None:
    pairs = SpanPairs(shards(tmp_path, documents(lengths)), 29, 3, STOP, "next sentence", 0.1)
    by_label: dict[int, list[int]] = {0: [], 1: []}
    for epoch in range(4000 // len(pairs)):
        for index in range(len(pairs)):
            span = pairs.example(epoch, index)
            by_label[span.label].append(len(span.texts[1]))
    error = sum(np.var(found) / len(found) for found in by_label.values()) ** 0.5
    assert np.mean(by_label[0]) == pytest.approx(np.mean(by_label[1]), abs=4 * error)


def test_sentence_order_swaps_half_of_them(tmp_path: Path) -> None:
    texts = documents([120] * 30)
    pairs = SpanPairs(shards(tmp_path, texts), 29, 3, STOP, "sentence order", 0.1)
    whole, labels = "\n".join(texts), []
    for epoch in range(10):
        for index in range(len(pairs)):
            span = pairs.example(epoch, index)
            first, second = map(text_of, span.texts)
            assert (second + first if span.label else first + second) in whole
            labels.append(span.label)
    assert np.mean(labels) == pytest.approx(0.5, abs=4 * 0.5 / len(labels) ** 0.5)


def test_a_pair_is_a_pure_function(tmp_path: Path) -> None:
    pairs = SpanPairs(shards(tmp_path, documents([90] * 10)), 29, 3, STOP, "next sentence", 0.5)
    again = SpanPairs(pairs.shards, 29, 3, STOP, "next sentence", 0.5)
    for index in (7, 0, 7, 3):
        a, b = pairs.example(1, index), again.example(1, index)
        assert a.label == b.label and all(np.array_equal(x, y) for x, y in zip(a.texts, b.texts))
    other = [pairs.example(2, index).label for index in range(len(pairs))]
    assert other != [pairs.example(1, index).label for index in range(len(pairs))]


def test_one_document_gives_another_of_its_pieces(tmp_path: Path) -> None:
    pairs = SpanPairs(shards(tmp_path, documents([300])), 29, 3, STOP, "next sentence", 0.0)
    labels = [pairs.example(epoch, index).label for epoch in range(20) for index in range(len(pairs))]
    assert 0.3 < np.mean(labels) < 0.7


def test_too_little_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no two spans"):
        SpanPairs(shards(tmp_path, ["abcdef"]), 29, 3, STOP, "next sentence", 0.1)
    with pytest.raises(UserError, match="too short to mask"):
        SpanPairs(shards(tmp_path, documents([90] * 4)), 3, 3, STOP, "next sentence", 0.1)


def test_full_text_crosses_documents(tmp_path: Path) -> None:
    stream = shards(tmp_path, documents([13] * 40))
    full = FullText(stream, 30, 0)
    whole = stream.window(0, len(stream)).tolist()
    for index in range(len(full)):
        ids = full.example(0, index).texts[0].tolist()
        assert len(ids) == 30 and STOP in ids
        assert any(whole[start : start + 30] == ids for start in range(len(whole)))
