"""Perplexity of both directions, against a literal computation; in pieces as at once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import refused
from stirred_models import stirred
from tolerance import close, terms_of

from foretext.api import LanguageModel
from foretext.batch import BATCH_TOKENS, Batch, Hidden
from foretext.objectives.bidirectional import BilmObjective, OneWay
from foretext.runs.run_config import DataConfig
from foretext.text.tokenizers.word_vocabulary import Words

TEXTS = ["The cat sees fish.", "x", "The old man likes the sun and a Zyzzyva. " * 6, ""]
WORDS = 6 * 10  # of the longest, with its full stops
# A word out of its characters; each of so many words through two layers of 16 cells, projected to 8; the softmax over
# 16 targets; and what all words come to.
TERMS = terms_of(2 * 16 + 3 * 16, WORDS * 2 * (16 + 2 * 8), 8 + 16, 2 * WORDS)


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return stirred("elmo", tmp_path_factory.mktemp("elmo"), 2, "objective.targets=16", "objective.samples=4")


def literal_nats(lm: LanguageModel, ids: list[int]) -> float:
    """Both directions over the whole text at once."""
    objective, tokenizer = lm.model.objective, lm.model.tokenizer
    assert isinstance(objective, BilmObjective) and tokenizer.end is not None and tokenizer.unknown is not None
    with torch.no_grad():
        top = lm.model.trunk.eval()(Batch(torch.tensor([[tokenizer.end, *ids, tokenizer.end]]))).top[0]
        forward, backward = (objective.head.over_all().logits(half).log_softmax(-1) for half in top.chunk(2, dim=-1))
    told = [id if id < objective.words else tokenizer.unknown for id in ids]
    return -sum(float(forward[k, id] + backward[k + 2, id]) / 2 for k, id in enumerate(told))


def test_it_is_the_mean_of_both_directions(lm: LanguageModel) -> None:
    encoded = [lm.model.tokenizer.encode(text) for text in TEXTS]
    assert isinstance(lm.model.tokenizer, Words) and max(map(max, filter(None, encoded))) >= lm.model.tokenizer.size
    nats, tokens = sum(literal_nats(lm, ids) for ids in encoded), sum(map(len, encoded))
    heard: list[tuple[int, int]] = []
    found = lm.perplexity(TEXTS, progress=lambda done, of: heard.append((done, of)))
    close(math.log(found.per_token) * tokens, nats, terms=TERMS)
    assert (found.directions, found.pseudo, found.comparable, found.tokens) == (2, False, False, tokens)
    assert heard[-1] == (6, 6), "three texts that have words, each from either end"


@pytest.mark.parametrize("piece", [1, 3, 7, 10_000])
def test_in_pieces_as_at_once(lm: LanguageModel, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lm.perplexity(TEXTS)
    monkeypatch.setattr("foretext.evaluate.perplexity.PIECE", piece)
    found = lm.perplexity(TEXTS)
    close(math.log(found.per_token), math.log(whole.per_token), terms=TERMS)


def test_batches_are_bounded(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.Size] = []
    real = OneWay.forward

    def seen(self: OneWay, batch: Batch, state: Any) -> Hidden:
        made.append(batch.ids_BT.shape)
        return real(self, batch, state)

    monkeypatch.setattr(OneWay, "forward", seen)
    lm.perplexity(["The cat sees fish ."] * 2000)
    assert sum(rows for rows, _ in made) == 2 * 2000
    assert len(made) > 2 and max(rows * tokens for rows, tokens in made) <= BATCH_TOKENS


def test_unknown_words_are_read_by_their_characters(lm: LanguageModel) -> None:
    one, other = (lm.features([f"The {word} sees fish."], layers=[0]) for word in ("Zyzzyva", "Qat"))
    assert not np.allclose(one, other, atol=1e-4)


def test_what_has_no_perplexity(lm: LanguageModel) -> None:
    with refused("empty"):
        lm.perplexity([""])
    with refused("stride", "elmo"):
        lm.perplexity(["a"], stride=3)
    drawn = replace(lm.model, config=replace(lm.model.config, data=DataConfig(head_drawn=True)))
    with refused(f"{lm.path} ", "softmax", "perplexity", f"foretext pretrain TEXT --from {lm.path} --out"):
        LanguageModel(drawn, Path()).perplexity(["a"])
    with refused(f"{lm.path} ", "softmax", "writing", f"foretext pretrain TEXT --from {lm.path} --out"):
        LanguageModel(drawn, Path()).generate("The")
