"""Any system over any kind of vocabulary: it has the specials that the system's sequences are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from complaints import refused
from systems_under_test import TINY, example_for

from foretext.objectives.base import Draw
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, System, TokenizerConfig, TrunkParts
from foretext.text.tokenizers.base import END, KINDS, Tokenizer, tokenizer_from_json
from foretext.text.tokenizers.training import train_tokenizer
from foretext.train.pretraining.pretrain_request import completed
from foretext.train.pretraining.run_setup import new_tokenizer

TEXTS = ["the cat sat on the mat and looked at another cat, which looked back"] * 9
ALL = [(system, kind) for system in SYSTEMS for kind in KINDS]


def made(system: str, kind: str, size: int = 300) -> Tokenizer:
    config = TokenizerConfig(kind, size, splitter="rules")  # type: ignore[arg-type]
    return new_tokenizer(SYSTEMS[system], TEXTS, config, 0, lambda title, done, total: None)


@pytest.mark.parametrize(("name", "kind"), ALL)
def test_objective_and_layout_work(name: str, kind: str) -> None:
    system, tokenizer = SYSTEMS[name], made(name, kind)
    assert tokenizer.size <= 300 and tokenizer.end is not None
    assert tokenizer_from_json(tokenizer.to_json(), "here").specials == tokenizer.specials
    shape = replace(TINY[name], vocabulary=tokenizer.size)
    ids = np.array(tokenizer.encode(TEXTS[0])[:8], dtype=np.int64)
    # A translation has two vocabularies, which one text does not give; rows are no text; static vectors score none.
    if system.learns_from == "text" and system.learn is None:
        objective_works(system, shape, tokenizer, ids)
    whole = tokenizer.with_specials(system.specials)
    row = system.build_layout(dict(whole.specials), shape.context, "forward").frame(ids.tolist())
    assert max(row.ids) < whole.size


@pytest.mark.parametrize("name", ["ulmfit", "elmo", "cove", "cvt"])
def test_texts_with_ends_need_a_vocabulary_that_has_one(name: str) -> None:
    with refused("vocabulary", "document"):
        SYSTEMS[name].build_layout({"<x>": 1}, 24, "forward")


def objective_works(system: System, shape: Any, tokenizer: Tokenizer, ids: np.ndarray) -> None:
    objective = system.build_objective(ObjectiveParts(shape, system.sizes["tiny"].objective, tokenizer))
    batch = objective.make([example_for(objective, ids)], Draw(0, 0, (0,)))
    assert int(batch.ids_BT.max()) < tokenizer.size
    outcome = objective(system.build_trunk(TrunkParts(shape, tokenizer)), batch)
    assert all(float(loss.total.detach()) > 0 for loss in outcome.losses.values())


@pytest.mark.parametrize(("name", "kind"), ALL)
def test_text_that_spells_a_special_stays_text(name: str, kind: str) -> None:
    tokenizer = made(name, kind)
    text = " ".join([*tokenizer.specials, "[MASK]", "<mask>", END, "a[SEP]b", "[ MASK ]"])
    specials = set(tokenizer.specials.values()) - {tokenizer.unknown}
    assert not specials & set(tokenizer.encode(text))
    assert not any(specials & set(ids.tolist()) for ids in tokenizer.encode_many(text.split()))


def test_the_size_counts_the_specials_that_are_added() -> None:
    """Of enough text a vocabulary has as many ids as were asked for."""
    long = [" ".join(f"{a}{b}{c}" for a in "abcdef" for b in "ghijk" for c in "lmnop")] * 3
    for name, kind in ALL:
        config = TokenizerConfig(kind, 290, splitter="rules")  # type: ignore[arg-type]
        tokenizer = new_tokenizer(SYSTEMS[name], long, config, 0, lambda title, done, total: None)
        assert tokenizer.size == 290 or kind not in ("byte-bpe",), (name, kind)
        assert tokenizer.size <= 290


def test_too_small_for_the_specials() -> None:
    with refused("tokenizer.size=258", "byte-bpe", "roberta", "262 ids"):
        made("roberta", "byte-bpe", 258)
    assert made("gpt2", "byte-bpe", 257).size == 257


def test_what_others_published_gets_what_it_lacks() -> None:
    bytes_only = train_tokenizer(TEXTS, TokenizerConfig("byte-bpe", 300))
    whole = completed(bytes_only, SYSTEMS["bert"].vocabulary)
    assert set(whole.specials) == {END, "[CLS]", "[SEP]", "[MASK]"}
    assert whole.encode(TEXTS[0] + "[MASK]") == bytes_only.encode(TEXTS[0] + "[MASK]")
    pieces = train_tokenizer(TEXTS, TokenizerConfig("wordpiece", 100))
    assert completed(pieces, SYSTEMS["bert"].vocabulary).to_json() == pieces.to_json()
    assert {"<s>", "</s>", "<mask>", "[SEP]"} <= set(completed(pieces, SYSTEMS["roberta"].vocabulary).specials)
