"""RoBERTa's sequences: whole sentences, as many as fit, across documents."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from complaints import refused
from test_objective_spans import BYTES, KINDS, documents, prose, shards

from foretext.objectives import spans
from foretext.objectives.spans import FullSentences
from foretext.text.tokenizers.base import END, Tokenizer, TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer


def texts_of(folder: Path, texts: list[str], room: int, tokenizer: Tokenizer = BYTES) -> list[str]:
    made = FullSentences(shards(folder, texts, tokenizer), room, tokenizer)
    return [tokenizer.decode(made.example(0, index).texts[0].tolist()) for index in range(len(made))]


def test_sequences_by_hand(tmp_path: Path) -> None:
    text = 'It was 3.5 (no more.) "Yes?" she said... A cat!'
    assert texts_of(tmp_path, [text], 30) == ['It was 3.5 (no more.) "Yes?"', " she said... A cat!"]
    assert texts_of(tmp_path, [text], 12) == ["It was 3.5 (", "no more.)", ' "Yes?"', " she said...", " A cat!"]


def test_chinese_sequences_by_hand(tmp_path: Path) -> None:
    signs = train_tokenizer(["猫。", "“对”！"], TokenizerConfig("wordpiece", 64))
    assert [one.replace(" ", "") for one in texts_of(tmp_path, ["猫对猫。“对！”猫猫。对"], 5, signs)] == [
        "猫对猫。",
        "“对！”",
        "猫猫。对",
    ]


def test_a_sentence_that_is_too_long_is_cut_between_words(tmp_path: Path) -> None:
    assert texts_of(tmp_path, ["one two three four. five abcdefghijklmn"], 12) == [
        "one two",
        " three four.",
        " five",
        " abcdefghijk",
        "lmn",
    ]


def test_documents_share_a_sequence_with_a_separator_between(tmp_path: Path) -> None:
    made = FullSentences(shards(tmp_path, ["Ab c."] * 3), 12, BYTES)
    first, second = (made.example(0, index).texts[0].tolist() for index in range(len(made)))
    one = BYTES.encode("Ab c.")
    assert first == [*one, BYTES.specials[END], *one] and second == one, "the last separator comes with the frame"


@pytest.mark.parametrize("chinese", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_as_many_whole_sentences_as_fit(
    tmp_path: Path, kind: str, chinese: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 600 if kind == "byte-bpe" else 200  # so that a full stop is one piece
    tokenizer = train_tokenizer(prose([200] * 5, chinese), TokenizerConfig(kind, size, splitter="rules"))
    stream = shards(tmp_path, prose([60, 3, 25, 1, 90], chinese), tokenizer)
    room = 24
    made = FullSentences(stream, room, tokenizer)
    borders = made.borders.tolist()
    assert borders[0] == 0 and borders[-1] == len(stream) and len(made) > 5
    ids = stream.window(0, len(stream))
    stops = {tokenizer.encode("一。" if chinese else "a.")[-1], tokenizer.end}
    sentences = [0, *(place + 1 for place in range(len(ids)) if ids[place] in stops)]
    whole = 0
    for start, stop in pairwise(borders):
        assert 0 < stop - start <= room
        if stop in sentences and start in sentences:
            whole += 1
            after = [place for place in sentences if place > stop and not (place == stop + 1 and ids[stop] in stops)]
            assert not after or after[0] > start + room, "the next sentence would have fitted"
    assert whole > 3
    monkeypatch.setattr(spans, "CHUNK", 70)
    assert FullSentences(stream, room, tokenizer).borders.tolist() == borders, "whatever is looked at together"


def test_too_short_a_sequence(tmp_path: Path) -> None:
    with refused(str(tmp_path / "out"), "train", "3 tokens", "context"):
        FullSentences(shards(tmp_path, documents([9] * 4)), 3, BYTES)
