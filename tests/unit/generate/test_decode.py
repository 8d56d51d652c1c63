"""Sampling and decoding, on a trunk whose logits the tests set themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from complaints import refused
from tolerance import doubles
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.generate.sampling import Sampling, choose, generate_ids, generate_text, stop_at, text_pieces
from foretext.nn.transformer.block import TransformerConfig
from foretext.nn.trunk import Trunk
from foretext.runs.model import SavedModel
from foretext.runs.run_config import ModelSections, RunConfig
from foretext.systems import SYSTEMS
from foretext.text.tokenizers.base import END, Tokenizer
from foretext.text.tokenizers.byte_bpe import byte_bpe_from_merges
from foretext.text.tokenizers.char_bpe import WORD_END, char_bpe_from_merges
from foretext.train.untrained import fresh_model

TOKENIZER = byte_bpe_from_merges([]).with_specials(["<|start|>", "<|extract|>"])
END_ID = TOKENIZER.specials[END]


@dataclass
class Seen:
    length: int


class Scripted(Trunk):
    """A trunk that answers `logits_after(last id)` and keeps what it was given to read."""

    def __init__(self, logits_after: Callable[[int], Tensor], context: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.logits_after, self.context = logits_after, context
        self.read: list[list[int]] = []

    def new_state(self, rows: int) -> Seen:
        return Seen(0)

    def room(self, state: Seen) -> int:
        return self.context - state.length

    def output_table(self) -> Tensor:
        return torch.eye(TOKENIZER.size)

    def forward(self, batch: Batch, state: Any = None) -> Hidden:
        ids = batch.ids_BT[0].tolist()
        self.read.append(ids)
        length = state.length + len(ids)
        assert length <= self.context, "read beyond the context"
        return Hidden(self.logits_after(ids[-1])[None, None], state=Seen(length))


def scripted(
    logits_after: Callable[[int], Tensor],
    context: int = 64,
    tokenizer: Tokenizer = TOKENIZER,
    direction: Any = "forward",
) -> SavedModel:
    config = TransformerConfig(vocabulary=tokenizer.size, layers=1, width=8, heads=1, context=context)
    sections = ModelSections(RunConfig(direction=direction), config)
    return SavedModel(None, sections, SYSTEMS["gpt"], tokenizer, Scripted(logits_after, context))


def only(*numbers: int) -> Tensor:
    """Logits under which the given ids are far above all others, the first highest."""
    logits = torch.full((TOKENIZER.size,), -100.0)
    for rank, number in enumerate(numbers):
        logits[number] = 100.0 - 10 * rank
    return logits


def spelling(text: bytes) -> Callable[[int], Tensor]:
    """A model that writes these bytes (all different, none of them `>`), then ends."""
    order = [*text, END_ID]
    return lambda last: only(order[order.index(last) + 1] if last in order[:-1] else order[0])


# -- choosing a token ------------------------------------------------------------------------------------------------


def drawn(logits: Tensor, sampling: Sampling, times: int = 400) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return [choose(logits, sampling, generator) for _ in range(times)]


def test_top_k_takes_only_the_k_best() -> None:
    logits = torch.tensor([0.0, 0.3, 0.1, 0.2, -0.1])
    assert set(drawn(logits, Sampling(top_k=2))) == {1, 3}
    assert set(drawn(logits, Sampling(top_k=1))) == {1}
    assert set(drawn(logits, Sampling(top_k=0))) == set(drawn(logits, Sampling(top_k=99))) == {0, 1, 2, 3, 4}


def test_top_k_of_equal_tokens_takes_the_lower_ids() -> None:
    assert set(drawn(torch.tensor([0.0, 1.0, 0.5, 0.5, 0.5]), Sampling(top_k=3))) == {1, 2, 3}
    assert set(drawn(torch.zeros(50), Sampling(top_k=4), 1000)) == {0, 1, 2, 3}
    assert set(drawn(torch.tensor([-math.inf, 2.0, -math.inf, 1.0]), Sampling(top_k=3))) == {1, 3}


@pytest.mark.parametrize("temperature", [1e-6, 1e-40, 5e-324])
def test_however_small_a_temperature_takes_the_best(temperature: float) -> None:
    logits = torch.tensor([-math.inf, 30.0, 30.5, -4.0, 29.0])
    for sampling in ({}, {"top_k": 2}, {"top_p": 0.5}):
        assert set(drawn(logits, Sampling(temperature=temperature, **sampling), 50)) == {2}
    assert set(drawn(torch.tensor([1.0, 2.0, 2.0]), Sampling(temperature=temperature))) == {1, 2}


def test_a_temperature_however_great_makes_all_alike() -> None:
    assert set(drawn(torch.tensor([-math.inf, 30.0, -30.0]), Sampling(temperature=1e308))) == {1, 2}


def test_top_p_takes_the_smallest_set_that_reaches_it() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    assert set(drawn(logits, Sampling(top_p=0.4))) == {0}
    assert set(drawn(logits, Sampling(top_p=0.7))) == {0, 1}
    assert set(drawn(logits, Sampling(top_p=0.9))) == {0, 1, 2}
    assert set(drawn(logits, Sampling(top_p=1.0), 2000)) == {0, 1, 2, 3}


def test_draws_follow_the_distribution_and_its_temperature() -> None:
    logits = torch.tensor([0.7, 0.3]).log()
    assert drawn(logits, Sampling(), 4000).count(0) / 4000 == pytest.approx(0.7, abs=0.03)
    hot = 0.7**0.5 / (0.7**0.5 + 0.3**0.5)
    assert drawn(logits, Sampling(temperature=2.0), 4000).count(0) / 4000 == pytest.approx(hot, abs=0.03)


def test_temperature_zero_takes_the_best() -> None:
    assert set(drawn(torch.tensor([0.1, 0.11, 0.0]), Sampling(temperature=0))) == {1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_p": math.nan},
        {"seed": -1},
        {"seed": 1 << 63},
    ],
)
def test_senseless_sampling_is_refused(wrong: dict[str, Any]) -> None:
    ((key, value),) = wrong.items()
    with refused(key, str(value)):
        Sampling(**wrong)


# -- ids -------------------------------------------------------------------------------------------------------------


def test_specials_are_never_emitted_even_if_they_are_the_most_likely() -> None:
    specials = [number for name, number in TOKENIZER.specials.items() if name != END]
    assert len(specials) == 2
    for sampling in (Sampling(8, temperature=0), Sampling(8, top_k=1, seed=1), Sampling(8, temperature=5.0, seed=1)):
        ids = list(generate_ids(scripted(lambda last: only(*specials, ord("a"))), [65], sampling))
        assert ids == [ord("a")] * 8


def test_end_of_text_ends_and_is_not_emitted() -> None:
    model = scripted(lambda last: only(END_ID) if last == ord("b") else only(last + 1))
    assert list(generate_ids(model, [ord("`")], Sampling(10, temperature=0))) == [ord("a"), ord("b")]


def test_the_budget_is_kept() -> None:
    assert len(list(generate_ids(scripted(lambda last: only(65)), [65], Sampling(7)))) == 7


def test_a_seed_repeats_and_another_differs() -> None:
    model = scripted(lambda last: torch.zeros(TOKENIZER.size))
    runs = [list(generate_ids(model, [65], Sampling(30, seed=seed))) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_without_a_seed_two_texts_differ() -> None:
    model = scripted(lambda last: torch.zeros(TOKENIZER.size))
    assert list(generate_ids(model, [65], Sampling(30))) != list(generate_ids(model, [65], Sampling(30)))


def test_beyond_the_context_the_newest_half_is_read_again() -> None:
    model = scripted(lambda last: only((last + 1) % 256), context=8)
    ids = list(generate_ids(model, list(range(5)), Sampling(20, temperature=0)))
    assert ids == list(range(5, 25))
    read = model.trunk.read  # type: ignore[union-attr]
    assert read[:4] == [[0, 1, 2, 3, 4], [5], [6], [7]]
    assert read[4] == [5, 6, 7, 8], "four of the eight positions, ending with the newest"


def test_a_prompt_longer_than_the_context_keeps_its_end() -> None:
    model = scripted(lambda last: only((last + 1) % 256), context=4)
    assert list(generate_ids(model, list(range(10)), Sampling(2, temperature=0))) == [10, 11]
    assert model.trunk.read[0] == [6, 7, 8, 9]  # type: ignore[union-attr]


def test_the_cache_changes_nothing() -> None:
    """Greedy text of a real trunk, token by token, is what reading everything anew at each step gives."""
    sets = ["model.layers=2", "model.width=32", "model.heads=2", "model.context=24", "tokenizer.size=280"]
    with doubles():
        model = fresh_model("gpt", "tiny", ["some words to make a vocabulary of"], sets=sets)
    torch.manual_seed(3)
    with torch.no_grad():  # far from uniform, so that the best token is the best by more than rounding
        for parameter in model.trunk.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    prompt = model.tokenizer.encode("some words")
    fast = list(generate_ids(model, prompt, Sampling(10, temperature=0)))
    slow = list(prompt)
    end = model.tokenizer.specials[END]
    for _ in range(10):
        with torch.no_grad():
            top = model.trunk(Batch(torch.tensor([slow]))).top[0, -1]
        best = int((top @ model.trunk.output_table().t()).argmax())  # type: ignore[operator]
        if best == end:
            break
        slow.append(best)
    assert fast == slow[len(prompt) :] and fast


# -- text ------------------------------------------------------------------------------------------------------------


def test_characters_are_held_back_until_they_are_whole() -> None:
    ids = list("a中é".encode())
    assert list(text_pieces(TOKENIZER, iter(ids))) == ["a", "中", "é"]
    assert list(text_pieces(TOKENIZER, iter(ids[:3]))) == ["a", "\ufffd"], "half a character at the very end"
    assert list(text_pieces(TOKENIZER, iter([0xE4, 65]))) == ["\ufffdA"], "a byte that begins nothing"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_stop_string_is_found_across_pieces_and_left_out(size: int) -> None:
    text = "one two STOP three"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert "".join(stop_at(iter(pieces), ["STOP"])) == "one two "
    assert "".join(stop_at(iter(pieces), ["never"])) == text
    assert "".join(stop_at(iter(pieces), ["STOP", "two"])) == "one "
    assert "".join(stop_at(iter(pieces), [""])) == text


def test_what_only_begins_like_a_stop_string_comes_in_the_end() -> None:
    assert list(stop_at(iter(["a", "S", "T", "x", "S"]), ["STOP"])) == ["a", "STx", "S"]
    assert "".join(stop_at(iter("aab"), ["ab"])) == "a"


def test_text_streams_and_stops() -> None:
    model = scripted(spelling(b"abcdef"))
    assert list(generate_text(model, ">", Sampling(20, temperature=0))) == list("abcdef")
    assert "".join(generate_text(model, ">", Sampling(20, temperature=0, stop=("de",)))) == "abc"


def test_right_to_left_gives_what_stands_before() -> None:
    model = scripted(spelling(b"fedcba"), direction="backward")
    assert "".join(generate_text(model, ">", Sampling(20, temperature=0))) == "abcdef"
    assert "".join(generate_text(model, ">", Sampling(20, temperature=0, stop=("cd",)))) == "ef"


WORDS = char_bpe_from_merges(
    [*"abdegotu", *(letter + WORD_END for letter in "adeoty.")],
    [("g", "o"), ("go", "o"), ("goo", "d" + WORD_END), ("b", "a"), ("ba", "t" + WORD_END), ("t", "o" + WORD_END)],
    "rules",
).with_specials(["<|extract|>"])


def word_ids(*pieces: str) -> list[int]:
    return [WORDS.pieces.index(piece) for piece in pieces]


def writing(order: list[int], direction: str = "forward") -> SavedModel:
    """A model over `WORDS` that writes these ids (`<unk>` and a special being its first wish each time), then ends."""
    left = [*order, WORDS.specials[END]]

    def logits_after(last: int) -> Tensor:
        logits = torch.full((TOKENIZER.size,), -100.0)
        logits[left.pop(0)] = 50.0
        logits[[WORDS.unknown, WORDS.specials["<|extract|>"]]] = 100.0
        return logits

    return scripted(logits_after, tokenizer=WORDS, direction=direction)


@pytest.mark.parametrize(
    ("prompt", "pieces", "whole"),
    [
        ("bat", ["good</w>", "to</w>"], "bat good to"),
        ("bat ", ["good</w>"], "bat good"),
        ("Bat\n", ["good</w>"], "Bat\ngood"),
        ("", ["good</w>", "to</w>"], "good to"),
        ("a", ["goo", "d</w>", ".</w>"], "a good ."),
        ("a", ["good</w>", "\n</w>", "to</w>"], "a good\nto"),
        ("a", ["good</w>", "go"], "a good go"),
    ],
    ids=str,
)
def test_prompt_and_continuation_read_right_with_word_ends(prompt: str, pieces: list[str], whole: str) -> None:
    streamed = list(generate_text(writing(word_ids(*pieces)), prompt, Sampling(20, temperature=0)))
    assert prompt + "".join(streamed) == whole and len(streamed) >= len(pieces) - 1
    # Sampling gives the same: neither `<unk>` nor a special has any probability.
    assert prompt + "".join(generate_text(writing(word_ids(*pieces)), prompt, Sampling(20, 0.01, seed=1))) == whole


@pytest.mark.parametrize(
    ("pieces", "prompt", "whole"),
    [
        (["good</w>", "to</w>"], "bat", "good to bat"),
        (["good</w>", "to</w>"], " bat", "good to bat"),
        (["good</w>", "go"], "bat", "good gobat"),
        (["good</w>"], "", "good"),
    ],
    ids=str,
)
def test_right_to_left_reads_right_with_word_ends(pieces: list[str], prompt: str, whole: str) -> None:
    model = writing(word_ids(*pieces)[::-1], "backward")
    assert "".join(generate_text(model, prompt, Sampling(20, temperature=0))) + prompt == whole


def test_a_stop_string_with_word_ends() -> None:
    pieces = word_ids("good</w>", "to</w>", "bat</w>", "a</w>")
    assert "".join(generate_text(writing(pieces), "a", Sampling(20, temperature=0, stop=("to bat",)))) == " good "


def test_a_prompt_that_spells_a_special_is_read_as_text() -> None:
    model = scripted(lambda last: only(END_ID))
    list(generate_text(model, END + "<|start|>", Sampling(1, temperature=0)))
    read = model.trunk.read[0]  # type: ignore[union-attr]
    assert not set(read) & set(TOKENIZER.specials.values()) and bytes(read) == (END + "<|start|>").encode()
