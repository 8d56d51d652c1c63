"""Several texts at once are the texts one by one; beam search finds what an exhaustive search finds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from complaints import refused
from systems_under_test import CAUSAL, TINY, byte_tokenizer, logits_of, shaken_model
from tolerance import close, doubles, terms_of

from foretext.batch import Batch
from foretext.generate import many
from foretext.generate.many import Written, beam_search, write_in_turn
from foretext.generate.sampling import Decoder, Sampling, penalised
from foretext.runs.model import SavedModel, reach_of
from foretext.runs.run_config import ModelSections, RunConfig
from foretext.systems import SYSTEMS
from foretext.systems.base import TrunkParts
from foretext.text.tokenizers.base import END, TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer

PROMPTS = ["Once upon a time", "a", "", "The cat sat on the mat, and", "xyz"]
# A model reads in float64; its logits are rounded to float32, and a log-probability is one of them less a sum of all.
TERMS = terms_of(1, byte_tokenizer().size)
BEAM_TERMS = terms_of(3 * 2)  # beams add in float64: of three tokens, the logit and those it is compared with


def write_many(*given: Any, **named: Any) -> list[Written]:
    return list(write_in_turn(*given, **named))


@pytest.fixture(autouse=True, scope="module")
def _float64() -> Iterator[None]:
    """Which token is the best, or is drawn, is then no matter of the order of sums."""
    with doubles():
        yield


@pytest.fixture(params=CAUSAL, scope="module")
def model(request: pytest.FixtureRequest) -> SavedModel:
    return shaken_model(request.param, 0.2)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(14, 0.0),
        Sampling(14, 1.0, seed=4),
        Sampling(52, 0.7, top_k=9, top_p=0.9, seed=1, repetition_penalty=1.3),  # beyond the context of 48
        Sampling(30, 1.0, seed=4, stop=("e", "q")),
    ],
    ids=str,
)
def test_together_as_alone(model: SavedModel, sampling: Sampling) -> None:
    together = write_many(model, PROMPTS, sampling)
    alone = write_many(model, PROMPTS, sampling, batch=1)
    for single, written in zip(alone, together):
        assert written.ids == single.ids and written.text == single.text and written.ending == single.ending
        close(written.log_probabilities, single.log_probabilities, terms=TERMS, precision=torch.float32)


def test_the_same_prompt_gives_other_texts_in_other_places(model: SavedModel) -> None:
    texts = [one.ids for one in write_many(model, ["Once"] * 20, Sampling(12, 1.0, seed=1))]
    assert len(set(texts)) == 20
    others = [one.ids for one in write_many(model, ["Once"] * 20, Sampling(12, 1.0, seed=2))]
    assert not set(texts) & set(others)


def test_room_for_what_is_written(model: SavedModel) -> None:
    long = "a long prompt, longer than the context of this model, which is short"
    written = write_many(model, [long, "short"], Sampling(20, 0.0), reserve=True)
    if reach_of(model) is None:
        assert [one.cut for one in written] == [0, 0]
        return
    kept = long.encode()[-(48 - 20) :].decode()
    assert [one.cut for one in written] == [len(long) - 28, 0]
    assert written[0].ids == write_many(model, [kept], Sampling(20, 0.0))[0].ids
    assert write_many(model, [long], Sampling(48, 0.0), reserve=True)[0].cut == len(long) - 24


@pytest.mark.parametrize("stop", ["\n", " d", "c"])
def test_stops_of_a_character_vocabulary(stop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is scripted: what matters is when it ends, and what is shown of it."""
    tokenizer = train_tokenizer(["a b c d e", "a\nb c"] * 9, TokenizerConfig("char-bpe", 64, splitter="rules"))
    shape = replace(TINY["gpt"], vocabulary=tokenizer.size)
    info = RunConfig("pretrain", "gpt", "tiny", tokenizer=tokenizer.fingerprint())
    system = SYSTEMS["gpt"]
    model = SavedModel(None, ModelSections(info, shape), system, tokenizer, system.build_trunk(TrunkParts(shape)))
    script = iter(tokenizer.encode("b \n c d e e e"))
    monkeypatch.setattr(many, "choose", lambda *_: next(script))
    written = write_many(model, ["a"], Sampling(7, 0.0, stop=(stop,)))[0]
    assert written.ending == "stop"
    assert written.text == {"\n": " b", " d": " b\nc", "c": " b\n"}[stop]
    assert len(written.ids) == {"\n": 2, " d": 4, "c": 3}[stop]


def test_log_probabilities_are_the_models_own(model: SavedModel) -> None:
    written = write_many(model, ["Once"], Sampling(8, 0.5, top_k=3, seed=1))[0]
    ids = model.tokenizer.encode("Once")
    whole = torch.tensor([[*ids, *written.ids]])
    with torch.no_grad():
        logs = torch.log_softmax(logits_of(model.trunk, model.trunk.eval()(Batch(whole)).top[0]), -1)
    expected = [float(logs[len(ids) - 1 + place, token]) for place, token in enumerate(written.ids)]
    close(written.log_probabilities, expected, terms=TERMS, precision=torch.float32)


def test_rows_of_unequal_length_read_as_alone(model: SavedModel) -> None:
    rows = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
    decoder = Decoder(model, rows)
    together = []
    for step in range(60):
        together.append(decoder.logits())
        decoder.append([step % 7, (step + 1) % 7, (step + 2) % 7])
    for number, (row, read) in enumerate(zip(rows, decoder.rows)):
        with torch.no_grad():
            top = model.trunk.eval()(Batch(torch.tensor([read[: decoder.context]]))).top[0]
        alone = logits_of(model.trunk, top)[len(row) - 1 :][:60]
        close(torch.stack(together)[: len(alone), number], alone, terms=1)  # rounded to float32 once
    decoder.keep([2, 0])
    assert len(decoder.rows) == 2 and decoder.logits().shape[0] == 2


def test_the_penalty() -> None:
    scores = torch.tensor([2.0, -1.0, 0.5, 3.0])
    assert penalised(scores, [0, 1, 0], 2.0).tolist() == [1.0, -2.0, 0.5, 3.0]
    assert penalised(scores, [0, 1], 1.0) is scores
    with refused("repetition_penalty", "0.0"):
        Sampling(repetition_penalty=0.0)


def best_of_all(model: SavedModel, prompt: str, length: int, letters: list[int]) -> list[tuple[float, tuple[int, ...]]]:
    """Every continuation over a few letters, scored by itself."""
    ids = model.tokenizer.encode(prompt)
    found = []
    end = model.tokenizer.specials[END]
    for tokens in itertools.product(letters, repeat=length):
        if end in tokens[:-1]:
            continue
        whole = torch.tensor([[*ids, *tokens]])
        with torch.no_grad():
            scores = logits_of(model.trunk, model.trunk.eval()(Batch(whole)).top[0].double())
        logs = torch.log_softmax(scores, -1)
        total = sum(float(logs[len(ids) - 1 + place, token]) for place, token in enumerate(tokens))
        found.append((total / length, tokens))
    return sorted(found, reverse=True)


def allow_only(ids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the vocabulary had no other ids, so that all texts can be tried."""
    monkeypatch.setattr(
        Decoder,
        "allowed",
        lambda self, logits: torch.full_like(logits, -math.inf).index_copy(1, torch.tensor(ids), logits[:, ids]),
    )


def test_a_wide_beam_finds_the_best(model: SavedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [97, 98, 99, 100]
    allow_only(letters, monkeypatch)
    expected = best_of_all(model, "ab", 3, letters)
    found = beam_search(model, "ab", 64, Sampling(3))
    assert [written.ids for written, _ in found[:5]] == [tokens for _, tokens in expected[:5]]
    scores = [score for score, _ in expected[:5]]
    close([score for _, score in found[:5]], scores, terms=BEAM_TERMS, precision=torch.float32)
    narrow = beam_search(model, "ab", 1, Sampling(3))[0][0]
    greedy = write_many(model, ["ab"], Sampling(3, 0.0))[0]
    assert narrow.ids == greedy.ids


def test_a_wide_beam_finds_the_best_of_unequal_lengths(model: SavedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    end = model.tokenizer.specials[END]
    letters = [97, 98, end]
    allow_only(letters, monkeypatch)
    whole = [best_of_all(model, "ab", length, letters) for length in (1, 2, 3)]
    expected = [(score, ids) for all_of in whole[:2] for score, ids in all_of if ids[-1] == end] + whole[2]
    expected.sort(reverse=True)
    found = beam_search(model, "ab", 40, Sampling(3))
    scores = [score for score, _ in expected]
    close([score for _, score in found], scores, terms=BEAM_TERMS, precision=torch.float32)
    for (written, _), (_, ids) in zip(found[:4], expected):
        assert written.ids == tuple(token for token in ids if token != end)
        assert written.ending == ("end" if ids[-1] == end else "length")


def test_beams_that_cannot_be(model: SavedModel) -> None:
    for beams in (0, 2.5, "3", True):
        with refused("beams", repr(beams)):
            beam_search(model, "a", beams, Sampling(3))  # type: ignore[arg-type]


def test_a_beam_ends_at_a_stop_string(model: SavedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [97, 98, 99, 100]
    allow_only(letters, monkeypatch)
    found = [written for written, _ in beam_search(model, "ab", 64, Sampling(3, stop=("cd",)))]
    ended = {written.ids: written.text for written in found if written.ending == "stop"}
    assert ended == {(99, 100): "", (97, 99, 100): "a", (98, 99, 100): "b", (99, 99, 100): "c", (100, 99, 100): "d"}
    assert len(found) == 64 - 8 + 5 and all("cd" not in written.text for written in found)
    assert all(len(written.log_probabilities) == len(written.ids) for written in found)


def test_a_beam_with_a_penalty(model: SavedModel) -> None:
    """A penalty so hard that nothing comes twice; the log-probabilities stay the model's own."""
    ((best, _), *_) = beam_search(model, "ab", 1, Sampling(6, repetition_penalty=1e6))
    greedy = write_many(model, ["ab"], Sampling(6, 0.0, repetition_penalty=1e6))[0]
    assert best.ids == greedy.ids
    close(best.log_probabilities, greedy.log_probabilities, terms=TERMS, precision=torch.float32)
