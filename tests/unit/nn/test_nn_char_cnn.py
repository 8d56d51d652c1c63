"""The character encoder against its equations, written out one word, filter and window at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from complaints import refused
from tolerance import close, terms_of
from torch import Tensor

from foretext.nn.recurrent.char_cnn import CharEncoder, CharEncoderConfig
from foretext.text.words.characters import word_characters

SMALL = CharEncoderConfig(width=5, filter_widths=(1, 2, 4), filter_counts=(3, 2, 4), embedding=3, length=12)
TERMS = terms_of(12 * 3, 2 * 9, 9)  # a filter as wide as a word, two highways, the projection
WORDS = ["a", "", "horse", "much-too-long-for-it", "naïve", "\x00"]


def encoder(config: CharEncoderConfig = SMALL) -> CharEncoder:
    """In double precision, with every weight drawn, the biases too."""
    made = CharEncoder(config).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
        made.characters.weight[0] = 0.0
    return made


def literal(made: CharEncoder, characters: list[int]) -> Tensor:
    weights, config = dict(made.named_parameters()), made.config
    function = math.tanh if config.activation == "tanh" else lambda number: max(number, 0.0)
    features = []
    for kind, (width, count) in enumerate(config.filters):
        for one in range(count):
            best = -math.inf
            for start in range(len(characters) - width + 1):
                total = float(weights[f"filters.{kind}.bias"][one])
                for offset in range(width):
                    vector = weights["characters.weight"][characters[start + offset]]
                    total += float(weights[f"filters.{kind}.weight"][one, :, offset] @ vector)
                best = max(best, total)
            features.append(function(best))
    x = torch.tensor(features, dtype=torch.float64)
    for layer in range(config.highways):
        part = {name: weights[f"highways.{layer}.{name}"] for name in ("gate.weight", "gate.bias")}
        part |= {name: weights[f"highways.{layer}.{name}"] for name in ("transform.weight", "transform.bias")}
        gate = 1 / (1 + torch.exp(-(part["gate.weight"] @ x + part["gate.bias"])))
        x = gate * (part["transform.weight"] @ x + part["transform.bias"]).clamp(min=0) + (1 - gate) * x
    return weights["project.weight"] @ x + weights["project.bias"] if config.projects else x


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, activation="tanh"),
        replace(SMALL, width=9),  # as many as the filters: nothing is projected
        replace(SMALL, highways=0, filter_widths=(12,), filter_counts=(2,)),  # one window a word
    ],
)
def test_it_is_the_equations(config: CharEncoderConfig) -> None:
    made = encoder(config)
    ids = word_characters(WORDS, config.length)
    with torch.no_grad():
        words = made(torch.from_numpy(ids).view(2, 3, -1))
        expected = torch.stack([literal(made, row) for row in ids.tolist()])
    assert words.shape == (2, 3, config.width)
    close(words.flatten(0, 1), expected, terms=TERMS)
    assert (expected[0] - expected[2]).abs().max() > 0.1


def test_what_follows_a_word_counts_though_it_is_computed_once() -> None:
    """A window of the rest alone can be the largest; and no row depends on the others of its batch."""
    made = encoder()
    ids = torch.from_numpy(word_characters(["a", "horses", "x" * 40], SMALL.length))
    with torch.no_grad():
        made.filters[0].weight.copy_(made.characters.weight[261].expand(3, -1)[..., None] * 10)
        together = made(ids)
        alone = torch.cat([made(row[None]) for row in ids])
        close(alone[0], literal(made, ids[0].tolist()), terms=TERMS)
    close(together, alone, terms=TERMS)


def test_gradients_do_not_depend_on_the_columns_left_out() -> None:
    made = encoder()
    ids = torch.from_numpy(word_characters(["a", "of"], SMALL.length))
    long = torch.from_numpy(word_characters(["x" * 40], SMALL.length))
    weight = torch.randn(2, SMALL.width, dtype=torch.float64)
    gradients = []
    for rows in (ids, torch.cat([ids, long])):
        made.zero_grad()
        (made(rows)[:2] * weight).sum().backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in made.named_parameters()})
    close(gradients[0], gradients[1], terms=terms_of(3 * TERMS, 2 * SMALL.length))
    assert not gradients[0]["characters.weight"][0].any(), "no word has a vector of zeros and keeps it"
    assert gradients[0]["characters.weight"][261].any()


def test_gradients() -> None:
    made = encoder(replace(SMALL, activation="tanh"))
    ids = torch.from_numpy(word_characters(["ab", "cde"], SMALL.length))
    names = [name for name, _ in made.named_parameters() if name != "characters.weight"]
    values = [made.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def run(*weights: Tensor) -> Tensor:
        return torch.func.functional_call(made, dict(zip(names, weights)), (ids,))

    assert torch.autograd.gradcheck(run, values, fast_mode=True)


def test_a_highway_begins_by_copying() -> None:
    made = CharEncoder(replace(SMALL, width=9, filter_counts=(3, 2, 4)))
    assert all((highway.gate.bias == -2).all() for highway in made.highways)
    x = torch.randn(100, 9)
    copied = made.highways[0](x).detach()
    assert float(torch.nn.functional.cosine_similarity(copied, x).mean()) > 0.85


def test_no_words() -> None:
    assert CharEncoder(SMALL)(torch.zeros(0, 4, 12, dtype=torch.int64)).shape == (0, 4, 5)


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, width=9), CharEncoderConfig(filter_counts=(1,) * 7)])
def test_parameters_are_counted(config: CharEncoderConfig) -> None:
    config.check()
    assert config.parameters() == sum(parameter.numel() for parameter in CharEncoder(config).parameters())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"filter_counts": (3, 2)}, ["3 filter_widths", "2 filter_counts"]),
        ({"filter_widths": (), "filter_counts": ()}, ["0 filter_widths"]),
        ({"filter_widths": (1, 2, 13)}, ["4 filters", "13"]),
        ({"filter_counts": (1, 0, 1)}, ["0 filters", "2"]),
        ({"highways": -1}, ["model.highways", "-1"]),
        ({"embedding": 0}, ["model.embedding"]),
    ],
)
def test_impossible_shapes(changes: dict[str, object], named: list[str]) -> None:
    with refused(*named):
        replace(SMALL, **changes).check()  # type: ignore[arg-type]
