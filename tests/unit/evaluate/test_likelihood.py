"""Scoring completions with everything shared gives what scoring each alone gives."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from complaints import refused
from systems_under_test import CAUSAL, logits_of, shaken_model
from tolerance import close, terms_of

from foretext.batch import Batch
from foretext.evaluate import likelihood as likelihood_module
from foretext.evaluate.likelihood import Query, score_queries, split_border
from foretext.runs.model import SavedModel, reach_of
from foretext.text.tokenizers.base import END, TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer

# The longest way is an LSTM's: a hundred tokens one after the other, each through two layers of at most 32 inputs and
# as many cells; then the softmax over bytes, of each token of a completion.
TERMS = terms_of(100 * 2 * (32 + 32), 32 + 257, 60)


@pytest.fixture(params=CAUSAL)
def model(request: pytest.FixtureRequest) -> SavedModel:
    return shaken_model(request.param, 0.1)


def room_of(model: SavedModel) -> int:
    return reach_of(model) or 1000  # none of the queries here is as long


def alone(model: SavedModel, context: tuple[int, ...], completion: tuple[int, ...]) -> tuple[float, bool]:
    """One forward pass over everything, cut on the left if need be."""
    context = context or (model.tokenizer.specials[END],)
    whole = torch.tensor([(*context, *completion)][0][-(room_of(model) + 1) :])
    with torch.no_grad():
        top = model.trunk.eval()(Batch(whole[None, :-1])).top[0]
        logs = torch.log_softmax(logits_of(model.trunk, top), dim=-1)[-len(completion) :]
    targets = whole[-len(completion) :]
    return float(logs.gather(1, targets[:, None]).sum()), bool((logs.argmax(-1) == targets).all())


def some_queries(seed: int, shared: int, longest: int) -> list[Query]:
    draw = random.Random(seed)
    ids = lambda least, most: tuple(draw.randrange(256) for _ in range(draw.randint(least, most)))  # noqa: E731
    before = ids(shared, shared)
    return [Query(before + ids(1, longest), tuple(ids(1, 6) for _ in range(draw.randint(1, 5)))) for _ in range(9)]


@pytest.mark.parametrize("shared, longest", [(0, 5), (12, 6), (30, 9), (30, 30), (60, 5)])
def test_as_one_by_one(model: SavedModel, shared: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read at a time."""
    queries = some_queries(shared, shared, longest)
    expected = [[alone(model, query.context, one) for one in query.completions] for query in queries]
    for tokens, keys in ((4096, 1 << 16), (40, 1 << 16), (4096, 90), (1, 1)):
        monkeypatch.setattr(likelihood_module, "BATCH_TOKENS", tokens)
        monkeypatch.setattr(likelihood_module, "BATCH_KEYS", keys)
        for query, row, singly in zip(queries, score_queries(model, queries), expected, strict=True):
            for completion, likelihood, (total, greedy) in zip(query.completions, row, singly, strict=True):
                close(likelihood.total, total, terms=TERMS, what=f"{tokens}, {keys}")
                assert (likelihood.tokens, likelihood.greedy) == (len(completion), greedy), (tokens, keys)
                fits = len(query.context) + max(len(one) for one in query.completions) - 1 <= room_of(model)
                assert fits or likelihood.cut == max(0, len(query.context) + len(completion) - 1 - room_of(model))


def test_what_is_shared_is_read_once(model: SavedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = type(model.trunk).forward

    def watched(self: Any, batch: Batch, *rest: Any, **more: Any) -> Any:
        read.append(batch.real_tokens)
        return real(self, batch, *rest, **more)

    monkeypatch.setattr(type(model.trunk), "forward", watched)
    before = tuple(range(40))
    score_queries(model, [Query((*before, number), ((1, 2), (3,))) for number in range(100)])
    assert sum(read) < 40 + 100 * 3


def test_a_context_that_is_the_same_for_all_is_no_trouble(model: SavedModel) -> None:
    found = score_queries(model, [Query((5, 6, 7), ((8,), (9,)))] * 3)
    expected = [alone(model, (5, 6, 7), (completion,))[0] for completion in (8, 9)]
    for row in found:
        close([likelihood.total for likelihood in row], expected, terms=TERMS)


def test_an_empty_context_begins_after_end_of_text(model: SavedModel) -> None:
    ((found,),) = score_queries(model, [Query((), ((8, 9),))])
    close(found.total, alone(model, (), (8, 9))[0], terms=TERMS)


def test_a_completion_longer_than_the_context(model: SavedModel) -> None:
    if reach_of(model) is None:
        query = Query((1,), (tuple(range(60)),))
        ((found,),) = score_queries(model, [query])
        close(found.total, alone(model, (1,), query.completions[0])[0], terms=TERMS)
        return
    with refused("a.csv row 7", "60 tokens", "48"):
        score_queries(model, [Query((1,), (tuple(range(60)),), "a.csv row 7")])


def test_what_is_read_at_a_time_has_a_limit(model: SavedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood_module, "BATCH_KEYS", 100)
    rows: list[int] = []
    real = type(model.trunk).forward

    def watched(self: Any, batch: Batch, *rest: Any, **more: Any) -> Any:
        found = real(self, batch, *rest, **more)
        if len(batch.ids_BT) > 1 and reach_of(model) is None:
            rows.append(batch.ids_BT.shape[0])
        if batch.attend_BTT is not None:
            rows.append(batch.ids_BT.shape[0])
            assert found.state is None, "nothing is kept that nobody goes on from"
        return found

    monkeypatch.setattr(type(model.trunk), "forward", watched)
    before = tuple(range(30))
    score_queries(model, [Query((*before, number), ((1, 2),)) for number in range(20)])
    if reach_of(model) is None:  # contexts, then completions
        rows = rows[::2]
    assert sum(rows) == 20 and max(rows) == 3


@pytest.mark.parametrize("kind", ["byte-bpe", "char-bpe"])
def test_the_border(kind: str) -> None:
    texts = ["Question: is it good? Answer: yes", "the answer is no", "答案是好的", "答案是坏的"] * 5
    splitter = None if kind == "byte-bpe" else "rules"
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind, 300, splitter=splitter))
    for context, completion in [
        ("Question: is it good? Answer:", " yes"),
        ("Question: is it good? Answer: ", "yes"),
        ("the answer", " is no"),
        ("the ans", "wer is no"),
        ("答案是", "好的"),
        ("", "yes"),
    ]:
        before, after = split_border(tokenizer, context, completion)
        assert after, "something is scored"
        assert [*before, *after] == tokenizer.encode(context + completion)
    before, after = split_border(tokenizer, "Question: is it good? Answer:", " yes")
    assert before == tokenizer.encode("Question: is it good? Answer:")
    assert tokenizer.decode(after).strip() == "yes"
    before, after = split_border(tokenizer, "the ans", "wer is no")  # "answer" is one token here: it crosses
    assert before == tokenizer.encode("the") and tokenizer.decode(after).strip() == "answer is no"
    assert split_border(tokenizer, "the answer is ", "no") == split_border(tokenizer, "the answer is", " no")
