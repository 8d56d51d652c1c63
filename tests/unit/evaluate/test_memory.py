"""A model with a memory: text scored in pieces as at once and as one token at a time, with a memory of any length, and
written on from it; with a plain softmax and with an adaptive one."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import refused
from systems_under_test import CAUSAL, TERMS, base_model
from tolerance import close, terms_of

from foretext.api import LanguageModel
from foretext.batch import Batch
from foretext.evaluate import perplexity as module
from foretext.evaluate.likelihood import Query, score_queries
from foretext.evaluate.perplexity import perplexity
from foretext.generate.sampling import Decoder
from foretext.nn.relative.relative_attention import LONGEST_MEMORY
from foretext.nn.relative.transformer_xl import TransformerXL
from foretext.nn.trunk import remembering
from foretext.runs.model import SavedModel, reach_of
from foretext.systems.base import TrunkParts

TEXTS = ["a text that is longer than the memory, and than a piece: 中文", "x", "", "the film was good"]
VOCABULARIES = {"plain": {}, "adaptive": {"cutoffs": (100, 200), "divisor": 2}}
TOLD = terms_of(TERMS, 2 * 100, 2 * 32 + 257)  # a minute model, up to a hundred keys in a layer, and either softmax


def model_of(memory: int, **changes: object) -> SavedModel:
    base = base_model("transformer_xl")
    shape = replace(base.model_config, context=8, memory=5, evaluation_memory=memory, **changes)
    torch.manual_seed(2)
    trunk = base.system.build_trunk(TrunkParts(shape, base.tokenizer))
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return replace(base, config=replace(base.config, model=shape), trunk=trunk.eval())


def logs_slowly(model: SavedModel, ids: list[int], memory: int) -> torch.Tensor:
    """One token after the other, from a state."""
    trunk = model.trunk
    assert isinstance(trunk, TransformerXL)
    found = []
    with torch.no_grad(), remembering(trunk, memory):
        state = trunk.new_state(1)
        for id in ids:
            hidden = trunk(Batch(torch.tensor([[id]])), state)
            state = hidden.state
            found.append(torch.log_softmax(trunk.output_layer().logits(hidden.top[0]), -1)[0])
    return torch.stack(found)


@functools.cache
def nats_slowly(vocabulary: str, memory: int) -> float:
    """Of all texts."""
    model, nats = model_of(6, **VOCABULARIES[vocabulary]), 0.0
    for text in TEXTS:
        stream = [model.tokenizer.end, *model.tokenizer.encode(text)]
        logs = logs_slowly(model, stream, memory)
        nats -= sum(float(logs[place, id]) for place, id in enumerate(stream[1:]))
    return nats


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(("rows", "piece"), [(16, 512), (2, 7), (1, 1)])
def test_scored_in_pieces_is_scored_token_by_token(
    vocabulary: str, rows: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(module, "PIECE", piece)
    model = model_of(6, **VOCABULARIES[vocabulary])
    assert reach_of(model) is None
    for memory in (None, 0, 3, 200):
        measured, used = perplexity(model, TEXTS, memory=memory), 6 if memory is None else memory
        nats = math.log(measured.per_token) * measured.tokens
        close(nats, nats_slowly(vocabulary, used), terms=terms_of(TOLD, measured.tokens))
        assert measured.memory == measured.to_dict()["memory"] == used
        assert (measured.context, measured.stride) == (None, None)
    assert model.trunk.evaluation_memory == 6, "as it was"


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_logits_and_what_is_written_are_from_the_memory(vocabulary: str) -> None:
    model = model_of(6, **VOCABULARIES[vocabulary])
    ids = model.tokenizer.encode(TEXTS[0])
    slowly = logs_slowly(model, ids, 6)
    found = torch.log_softmax(torch.from_numpy(LanguageModel(model, Path()).logits(ids)).double(), -1)
    rounded: dict[str, Any] = {"terms": 2, "precision": torch.float32}  # a logit, and those that it is compared with
    close(found, slowly, **rounded)
    decoder = Decoder(model, [ids[:20], ids[:5], ids[:9]])  # of unequal length
    for step in range(4):
        logs = torch.log_softmax(decoder.logits().double(), -1)
        for row, start in enumerate((20, 5, 9)):
            close(logs[row], slowly[start + step - 1], **rounded)
        decoder.append([ids[20 + step], ids[5 + step], ids[9 + step]])
    decoder.keep([2, 0])
    logs = torch.log_softmax(decoder.logits().double(), -1)
    close(logs[1], slowly[23], **rounded)


def test_completions_go_on_from_the_memory_of_their_context() -> None:
    model = model_of(6)
    ids = model.tokenizer.encode(TEXTS[0])
    queries = [
        Query(tuple(ids[:20]), (tuple(ids[20:23]), tuple(ids[30:31]))),
        Query(tuple(ids[:9]), (tuple(ids[9:14]),)),
    ]
    for query, found in zip(queries, score_queries(model, queries)):
        for completion, likelihood in zip(query.completions, found):
            logs = logs_slowly(model, [*query.context, *completion], 6)
            first = len(query.context) - 1
            total = sum(float(logs[first + place, id]) for place, id in enumerate(completion))
            close(likelihood.total, total, terms=terms_of(TOLD, len(completion)))
            assert likelihood.cut == 0


def test_a_memory_that_no_text_fills_costs_what_the_texts_have(monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = TransformerXL._waves, list[int]()

    def waves(self: TransformerXL, queries: int, keys: int) -> torch.Tensor:
        made.append(keys)
        return real(self, queries, keys)

    monkeypatch.setattr(TransformerXL, "_waves", waves)
    model = model_of(6)
    longest = max(len(model.tokenizer.encode(text)) for text in TEXTS)
    enough, most = (perplexity(model, TEXTS, memory=memory) for memory in (longest, LONGEST_MEMORY))
    assert max(made) <= longest + 1, "the text, after end-of-text"
    assert most.memory == LONGEST_MEMORY and replace(most, memory=longest) == enough


def test_memory_that_cannot_be() -> None:
    model = model_of(6)
    with refused("memory", "1,000,000", "-1"):
        perplexity(model, TEXTS, memory=-1)
    with refused("memory", "1,000,000", "2.5"):
        LanguageModel(model, Path()).perplexity(TEXTS, memory=2.5)  # type: ignore[arg-type]
    with refused("stride", "transformer_xl"):
        perplexity(model, TEXTS, stride=4)
    for system in [name for name in CAUSAL if name != "transformer_xl"] + ["bert", "xlnet"]:
        with refused("memory", "transformer_xl", f" {system} "):
            LanguageModel(base_model(system), Path()).perplexity(TEXTS, memory=4)
    assert np.isfinite(LanguageModel(model, Path()).perplexity(TEXTS, memory=4).per_token)
