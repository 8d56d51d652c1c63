"""Shared pieces of two vocabularies, against a comparison piece by piece, for every kind."""

from __future__ import annotations

import pytest

from foretext.text.tokenizers.base import END, KINDS, Tokenizer, TokenizerConfig
from foretext.text.tokenizers.byte_bpe import byte_bpe_from_merges
from foretext.text.tokenizers.training import train_tokenizer
from foretext.train.pretraining.pretrain import NEW, old_ids

GENERAL = ["the old cat sat on the mat and looked at another cat, which looked back"] * 9
TARGET = ["the cat of the clinic looked ill and was given a drip, another was not given a drip"] * 9


def made(kind: str, texts: list[str]) -> Tokenizer:
    return train_tokenizer(texts, TokenizerConfig(kind, 320, splitter="rules" if kind == "char-bpe" else "auto"))


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_both_keep_their_ids_and_others_are_new(kind: str) -> None:
    old, new = made(kind, GENERAL), made(kind, TARGET)
    of_new = old_ids(new, old)
    assert of_new.shape == (new.size,)
    written = {old.piece(id): id for id in range(old.size)}  # of one kind, what is written is what is meant
    assert of_new.tolist() == [written.get(new.piece(id), NEW) for id in range(new.size)]
    assert new.end is not None and of_new[new.end] == old.end
    assert 0 < (of_new == NEW).sum() < new.size
    assert any(id not in (NEW, place) for place, id in enumerate(of_new.tolist())), "ids are not simply kept"


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_maps_onto_itself(kind: str) -> None:
    whole = made(kind, TARGET).with_specials(["<|start|>"])
    assert old_ids(whole, whole).tolist() == list(range(whole.size))
    added = old_ids(whole, made(kind, TARGET))
    assert [id for id in range(whole.size) if added[id] == NEW] == [whole.specials["<|start|>"]]


@pytest.mark.parametrize("old_kind", ["wordpiece", "unigram"])
def test_between_kinds_what_stands_for_the_same_text_is_the_same(old_kind: str) -> None:
    old, new = made(old_kind, GENERAL), made("byte-bpe", GENERAL)
    of_new = old_ids(new, old)
    shared = {new.piece_bytes(id) for id in range(new.size) if of_new[id] != NEW}
    assert {b" the", b" cat"} <= shared
    for id in range(new.size):
        if of_new[id] != NEW and id != new.end:
            assert old.piece_bytes(int(of_new[id])) == new.piece_bytes(id)
    assert of_new[new.specials[END]] == old.end, "the end of a document, whatever its name"


def test_text_that_spells_a_special_is_not_that_special() -> None:
    old = byte_bpe_from_merges([("a", "b")]).with_specials(["ab", "<x>"])
    new = byte_bpe_from_merges([("a", "b"), ("ab", "c")]).with_specials(["<x>", "ab"])
    of_new = old_ids(new, old)
    assert of_new[new.encode("ab")[0]] == old.encode("ab")[0] != old.specials["ab"] == of_new[new.specials["ab"]]
    assert of_new[new.specials["<x>"]] == old.specials["<x>"]
    assert of_new[new.encode("abc")[0]] == NEW
