"""Whole documents, each after the end of the one before, for vocabularies of every kind."""

from __future__ import annotations

import pytest

from foretext.tasks.layouts.base import RunningTextLayout
from foretext.text.tokenizers.base import END, KINDS, TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer

IDS = {END: 99}


def test_documents_stand_after_an_end() -> None:
    layout = RunningTextLayout(IDS, "forward")
    (one,) = layout.sequences("classification", [range(3)])
    assert one.ids == (99, 0, 1, 2) and one.extract == 3 and one.cut == 0
    (pair,) = layout.sequences("entailment", [[1, 2], [3]])
    assert pair.ids == (99, 1, 2, 99, 3) and pair.extract == 4
    assert [made.ids for made in layout.sequences("similarity", [[1], [2, 3]])] == [
        (99, 1, 99, 2, 3),
        (99, 2, 3, 99, 1),
    ]
    assert [made.ids for made in layout.sequences("choice", [[1], [2], [3]])] == [(99, 1, 99, 2), (99, 1, 99, 3)]
    assert len(layout.frame([1, 2]).ids) - 2 == layout.overhead(1)
    assert len(layout.frame([1, 2], [3]).ids) - 3 == layout.overhead(2)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_frame_knows_where_its_tokens_stand(direction: str) -> None:
    texts = [[10, 11, 12], [20, 21]]
    frame = RunningTextLayout(IDS, direction).frame(*texts)  # type: ignore[arg-type]
    assert [
        [frame.ids[frame.place(part, token)] for token in range(len(text))] for part, text in enumerate(texts)
    ] == texts
    inside = (12, 11, 10, 99, 21, 20) if direction == "backward" else (10, 11, 12, 99, 20, 21)
    assert frame.ids == (99, *inside, 99)
    assert frame.extract == 7, "which no token of the texts stands at"


def test_only_what_no_document_has_is_cut() -> None:
    assert RunningTextLayout(IDS, "forward").sequences("classification", [range(9_000)])[0].cut == 0
    (short,) = RunningTextLayout(IDS, "forward", longest=6).sequences("classification", [range(9)])
    assert short.ids == (99, 0, 1, 2, 3) and short.cut == 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_is_the_vocabularys_own(kind: str) -> None:
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, TokenizerConfig(kind, 300, splitter="rules"))
    assert RunningTextLayout(dict(tokenizer.specials), "forward").end == tokenizer.end
