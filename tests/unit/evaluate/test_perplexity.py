"""Perplexity against a literal computation, token by token; and sentence vectors."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import names, refused
from systems_under_test import TERMS
from tolerance import close, terms_of

from foretext.api import LanguageModel
from foretext.batch import Batch
from foretext.cli.output import show_perplexity
from foretext.evaluate.features import text_vectors
from foretext.evaluate.perplexity import Perplexity, perplexity, windows_of
from foretext.runs.model import SavedModel
from foretext.runs.report import Reporter
from foretext.text.tokenizers.base import END
from foretext.text.tokenizers.byte_bpe import ByteBPE
from foretext.train.untrained import fresh_model

CONTEXT = 12
TEXTS = ["the film was good", "x", "a long text, much longer than the context of twelve tokens: 中文也有 " * 3]

TOLD = terms_of(TERMS, 16 + 290)  # a minute model, and the softmax over its vocabulary


@pytest.fixture(scope="module")
def model() -> SavedModel:
    sets = ["model.layers=2", "model.width=16", "model.heads=2", f"model.context={CONTEXT}", "tokenizer.size=290"]
    made = fresh_model("gpt", "tiny", TEXTS, sets=sets)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in made.trunk.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def backward(model: SavedModel) -> SavedModel:
    config = dataclasses.replace(model.config, run=dataclasses.replace(model.info, direction="backward"))
    return dataclasses.replace(model, config=config)


def literal_nats(model: SavedModel, text: str, stride: int) -> list[float]:
    """−log p of every token, one forward pass each, with the past that the sliding window gives it."""
    ids = model.tokenizer.encode(text)
    if model.info.direction == "backward":
        ids = ids[::-1]
    stream = [model.tokenizer.specials[END], *ids]
    nats = []
    for target in range(1, len(stream)):
        if target <= CONTEXT:
            first = 0
        else:  # windows end at CONTEXT, CONTEXT + stride, …; the first that reaches the target scores it
            end = min(len(stream) - 1, CONTEXT + stride * -(-(target - CONTEXT) // stride))
            first = end - CONTEXT
        with torch.no_grad():
            top = model.trunk.eval()(Batch(torch.tensor([stream[first:target]]))).top[0, -1]
            logits = top @ model.trunk.output_table().t()  # type: ignore[operator]
        nats.append(-float(torch.log_softmax(logits, -1)[stream[target]]))
    return nats


def assert_surprise(found: Perplexity, nats: float) -> None:
    """Each figure comes to so many nats in all."""
    terms = terms_of(TOLD, found.tokens)
    close(math.log(found.per_token) * found.tokens, nats, terms=terms)
    close(math.log(found.per_word) * found.words, nats, terms=terms)
    close(found.bits_per_byte * math.log(2) * found.bytes, nats, terms=terms)


@pytest.mark.parametrize("stride", [1, 3, 6, CONTEXT])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_equals_the_literal_computation(model: SavedModel, stride: int, direction: str) -> None:
    tested = model if direction == "forward" else backward(model)
    nats = [value for text in TEXTS for value in literal_nats(tested, text, stride)]
    measured = perplexity(tested, TEXTS, stride)
    words = sum(len(text.split()) for text in TEXTS)
    octets = sum(len(text.encode()) for text in TEXTS)
    assert (measured.tokens, measured.words, measured.bytes) == (len(nats), words, octets)
    assert_surprise(measured, sum(nats))
    assert (measured.context, measured.stride, measured.documents) == (CONTEXT, stride, 3)
    assert measured.comparable


def test_without_end_of_text_the_first_token_counts_as_the_others_do(model: SavedModel) -> None:
    bare = ByteBPE(model.tokenizer.alphabet, model.tokenizer.merges, {})  # type: ignore[attr-defined]
    changed = dataclasses.replace(model, tokenizer=bare)
    text = "the film"
    ids = bare.encode(text)
    with torch.no_grad():
        top = model.trunk.eval()(Batch(torch.tensor([ids[:-1]]))).top[0]
        logs = torch.log_softmax(top @ model.trunk.output_table().t(), -1)  # type: ignore[operator]
    mean = -float(logs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].mean())
    measured = perplexity(changed, [text, text])
    assert measured.tokens == 2 * len(ids)
    assert measured.words == 2 * 2
    assert_surprise(measured, mean * 2 * len(ids))
    with refused("predict"):
        perplexity(changed, ["x", "y"])


@pytest.mark.parametrize("stride", [1, 2, 5, 11, CONTEXT])
@pytest.mark.parametrize("length", [1, 2, CONTEXT - 1, CONTEXT, CONTEXT + 1, 2 * CONTEXT, 40])
def test_each_token_is_scored_exactly_once(model: SavedModel, stride: int, length: int) -> None:
    ids = list(range(length))
    scored: list[int] = []
    for window, count in windows_of(model, [ids], CONTEXT, stride):
        assert len(window) <= CONTEXT + 1 and 1 <= count < len(window)
        if scored:
            assert len(window) - 1 == CONTEXT, "from the second window on the context is full"
            assert count <= stride
        scored += window[len(window) - count :]
    assert scored == ids


def test_a_smaller_stride_never_gives_a_token_less_context(model: SavedModel) -> None:
    def least(stride: int) -> int:
        windows = list(windows_of(model, [list(range(100))], CONTEXT, stride))[1:]
        return min(len(window) - count for window, count in windows)

    assert [least(stride) for stride in (1, 4, CONTEXT)] == [CONTEXT, CONTEXT - 3, 1]


def test_documents_do_not_see_each_other(model: SavedModel) -> None:
    both = perplexity(model, TEXTS[:2])
    one, two = perplexity(model, TEXTS[:1]), perplexity(model, TEXTS[1:2])
    nats = one.tokens * math.log(one.per_token) + two.tokens * math.log(two.per_token)
    assert_surprise(both, nats)


def test_a_text_that_spells_end_of_text_is_text(model: SavedModel) -> None:
    assert perplexity(model, ["a" + END]).tokens == len(model.tokenizer.encode("a" + END)) > 2


@pytest.mark.parametrize("stride", [0, -1, CONTEXT + 1])
def test_a_stride_outside_the_context_is_refused(model: SavedModel, stride: int) -> None:
    with refused("stride", "12", f"{stride}"):
        perplexity(model, TEXTS, stride)


@pytest.mark.parametrize("texts", [[], [""]])
def test_no_text_is_refused(model: SavedModel, texts: list[str]) -> None:
    with refused("empty"):
        perplexity(model, texts)


def shown(model: SavedModel, texts: list[str], capsys: pytest.CaptureFixture[str], as_json: bool) -> tuple[str, str]:
    show_perplexity(LanguageModel(model, Path()).perplexity(texts), as_json)
    said = capsys.readouterr()
    return said.out, said.err


def line_of(out: str, title: str) -> str:
    (line,) = (line for line in out.splitlines() if line.startswith(title))
    return line


def valid_json(text: str) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_long_run_without_spaces_has_no_figure_per_word(
    model: SavedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chinese: one "word" of 400 characters, whose perplexity no float holds."""
    texts = ["中文也有" * 100]
    measured = perplexity(model, texts)
    assert measured.per_word == math.inf and 1 < measured.per_token < math.inf and measured.words == 1
    written = measured.to_dict()
    assert written["per_word"] is None and written["per_token"] == measured.per_token
    out, err = shown(model, texts, capsys, as_json=True)
    assert valid_json(out) == written
    names(err, "spaces", "1,200 bytes", "token", "byte")
    out, err = shown(model, texts, capsys, as_json=False)
    names(line_of(out, "perplexity per word"), "large", "(1 word ")
    names(out, "spaces", "1,200 bytes")
    assert max(map(len, out.splitlines())) < 250 and not err


def test_large_figures_are_in_scientific_form(model: SavedModel, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["中文也有" * 4]
    measured = perplexity(model, texts)
    assert 1e9 < measured.per_word < math.inf
    out, _ = shown(model, texts, capsys, as_json=False)
    names(line_of(out, "perplexity per word"), f" {measured.per_word:.3e} ")
    names(out, "spaces")
    assert "spaces" not in "".join(shown(model, ["a b c d e f"], capsys, as_json=True))


def test_a_model_that_is_not_finite_writes_valid_json(model: SavedModel, capsys: pytest.CaptureFixture[str]) -> None:
    broken = dataclasses.replace(model, trunk=copy.deepcopy(model.trunk))
    with torch.no_grad():
        for parameter in broken.trunk.parameters():
            parameter.fill_(math.nan)
    out, err = shown(broken, TEXTS, capsys, as_json=True)
    written = valid_json(out)
    assert written["per_token"] is written["per_word"] is written["bits_per_byte"] is None and written["documents"] == 3
    names(err, "logits")
    out, _ = shown(broken, TEXTS, capsys, as_json=False)
    names(line_of(out, "perplexity per token"), "NaN")
    names(out, "logits")
    assert "nan" not in out


def test_blanks_alone_have_no_words(model: SavedModel) -> None:
    measured = perplexity(model, ["   "])
    assert measured.words == 0 and math.isnan(measured.per_word) and measured.to_dict()["per_word"] is None


def test_progress_ends_at_the_end(model: SavedModel) -> None:
    told: list[tuple[int, int]] = []
    perplexity(model, TEXTS, 3, lambda done, total: told.append((done, total)))
    assert told and told[-1][0] == told[-1][1]


def test_vectors_do_not_depend_on_the_company(model: SavedModel) -> None:
    together = text_vectors(model, TEXTS)
    alone = np.concatenate([text_vectors(model, [text]) for text in TEXTS])
    assert together.shape == (3, 16) and together.dtype == np.float32
    close(together, alone, terms=terms_of(1, CONTEXT))  # rounded to float32, and the mean over so many tokens
    assert np.abs(together[0] - together[1]).max() > 1e-3


def test_a_vector_is_the_mean_of_the_top_states(model: SavedModel) -> None:
    ids = [model.tokenizer.specials[END], *model.tokenizer.encode(TEXTS[0])]
    with torch.no_grad():
        mean = model.trunk.eval()(Batch(torch.tensor([ids[:CONTEXT]]))).top[0].mean(0)
    close(text_vectors(model, TEXTS[:1])[0], mean, terms=terms_of(1, CONTEXT))


class Heard(Reporter):
    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def work(self, title: str, done: int, total: int) -> None:
        self.told.append((title, done, total))


def test_encoding_is_told_chunk_by_chunk_and_changes_nothing(
    model: SavedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, vectors = perplexity(model, TEXTS), text_vectors(model, TEXTS)
    monkeypatch.setattr("foretext.text.tokenizers.base.BATCH_DOCUMENTS", 2)
    heard = Heard()
    assert perplexity(model, TEXTS, reporter=heard) == measured
    assert heard.told == [("encoding", done, 3) for done in (0, 2, 3)]
    assert np.array_equal(text_vectors(model, TEXTS, reporter=heard), vectors)
    assert heard.told == 2 * [("encoding", done, 3) for done in (0, 2, 3)]


def test_a_new_models_vocabulary_is_told() -> None:
    heard = Heard()
    sets = ["model.layers=1", "model.width=16", "model.heads=2", "tokenizer.size=290"]
    fresh_model("gpt", "tiny", TEXTS, sets=sets, note=heard.note, work=heard.work)
    assert {title for title, _, _ in heard.told} >= {"counting words"}
