"""config.py: the round trip through TOML, the checks, `--set`, and what a hostile file costs."""

import dataclasses
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pytest
from complaints import names
from hypothesis import given
from hypothesis import strategies as st

from foretext.config import Change, apply_sets, build, build_sections, difference, from_toml, settings_in, to_toml
from foretext.errors import UserError


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    name: str | None = None


@dataclass(frozen=True)
class Model:
    width: int = 128
    dropout: float = 0.1
    fused: bool = True
    kind: Literal["pre", "post"] = "pre"
    sizes: tuple[int, ...] = (1, 2)
    betas: tuple[float, ...] = (0.9, 0.95)
    limit: int | None = None
    inner: Inner = Inner()
    weights: dict[str, float] = field(default_factory=lambda: {"lm": 0.5})


@dataclass(frozen=True)
class Needs:
    steps: int


SECTIONS = {"model": Model(), "train": Inner(rate=3.0, name="a b")}
CLASSES = {"model": Model, "train": Inner}


def message(call, *args) -> str:
    with pytest.raises(UserError) as caught:
        call(*args)
    assert "\n" not in str(caught.value), "one line"
    return str(caught.value)


def placed(said: str, place: str, parts: Sequence[str]) -> None:
    """A message begins with the place and names every part behind it."""
    assert said.startswith(place), said
    names(said.removeprefix(place), *parts)


def test_round_trip_and_canonical_bytes() -> None:
    text = to_toml(SECTIONS)
    assert build_sections(CLASSES, from_toml(text), "x") == SECTIONS
    assert to_toml(build_sections(CLASSES, from_toml(text), "x")) == text
    assert "limit" not in text
    assert "[model.inner]\nrate = 0.1\n" in text
    assert "[model.weights]\nlm = 0.5\n" in text


@given(
    name=st.text(st.characters(exclude_categories=["Cs"])),
    rate=st.floats(allow_nan=False),
    labels=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    key=st.text(st.characters(exclude_categories=["Cs"])),
    number=st.integers(-(2**63), 2**63 - 1),
)
def test_every_value_survives_tomllib(name: str, rate: float, labels: list[str], key: str, number: int) -> None:
    table = {"name": name, "rate": rate, "labels": labels, "flags": [True, False], "n": number, "t": {key: name}}
    assert tomllib.loads(to_toml({"s": table}))["s"] == table


def test_a_long_list_is_broken_into_lines() -> None:
    text = to_toml({"s": {"labels": [f"label {i}" for i in range(1000)]}})
    assert max(map(len, text.splitlines())) < 120
    assert len(tomllib.loads(text)["s"]["labels"]) == 1000


def test_none_that_would_read_back_as_something_else_is_refused() -> None:
    bad = dataclasses.make_dataclass("Bad", [("x", int | None, field(default=5))])
    with pytest.raises(AssertionError):
        to_toml({"s": bad(x=None)})


def test_lone_surrogate_is_a_user_error() -> None:
    names(message(to_toml, {"s": {"path": "a\udcffb"}}), repr("a\udcffb"))


@pytest.mark.parametrize(
    ("mapping", "parts"),
    [
        ({"widht": 3}, ["'widht'", "'width'"]),
        ({"zzzzzz": 3}, ["'zzzzzz'", "width, dropout"]),
        ({"width": 3.0}, ["width:", "whole", "3.0"]),
        ({"width": True}, ["width:", "whole", "True"]),
        ({"width": "3"}, ["width:", "whole", "'3'"]),
        ({"dropout": True}, ["dropout:", "number", "True"]),
        ({"dropout": float("nan")}, ["dropout:", "number", "nan"]),
        ({"dropout": 10**400}, ["dropout:", "number", "1000"]),
        ({"fused": 1}, ["fused:", "true", "false", "1"]),
        ({"kind": "mid"}, ["kind:", "pre, post", "'mid'"]),
        ({"sizes": [1, "2"]}, ["sizes[1]:", "whole", "'2'"]),
        ({"sizes": 1}, ["sizes:", "list", "1"]),
        ({"limit": "x"}, ["limit:", "whole", "'x'"]),
        ({"inner": {"rat": 1}}, ["inner:", "'rat'", "'rate'"]),
        ({"inner": 3}, ["inner:", "table", "3"]),
        ({"weights": {"lm": "x"}}, ["weights.lm:", "number", "'x'"]),
        ({"weights": 3}, ["weights:", "table", "3"]),
    ],
)
def test_what_does_not_fit_is_named(mapping: dict, parts: list[str]) -> None:
    placed(message(build, Model, mapping, "my.toml [model]"), "my.toml [model]: ", parts)


def test_int_for_float_and_a_missing_key_and_a_section_that_is_no_table() -> None:
    built = build(Model, {"dropout": 1, "betas": [0, 1]}, "x")
    assert (built.dropout, built.betas) == (1.0, (0.0, 1.0))
    assert type(built.dropout) is float
    placed(message(build, Needs, {}, "x"), "x: ", ["'steps'"])
    placed(message(build_sections, CLASSES, {"model": 3}, "x"), "x [model]: ", ["table", "3"])
    placed(message(build_sections, CLASSES, {"modle": {}}, "x"), "x: ", ["'modle'", "'model'"])


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("model.width=1_000", "width", 1000),
        ("model.dropout=1e-3", "dropout", 0.001),
        ("model.fused=false", "fused", False),
        ("model.kind=post", "kind", "post"),
        ("model.sizes=3,4,5", "sizes", (3, 4, 5)),
        ("model.sizes=[]", "sizes", ()),
        ("model.betas=[0.5, 0.6]", "betas", (0.5, 0.6)),
        ("model.limit=7", "limit", 7),
        ("model.limit=none", "limit", None),
        ("model.inner.name=x=y", "inner", Inner(name="x=y")),
        ("model.inner.rate=2", "inner", Inner(rate=2.0)),
        ("model.inner.name='q'", "inner", Inner(name="q")),
        ("model.weights.label=1", "weights", {"lm": 0.5, "label": 1.0}),
    ],
)
def test_sets(text: str, key: str, value: object) -> None:
    result = apply_sets(SECTIONS, [text])
    assert getattr(result["model"], key) == value
    assert type(getattr(result["model"], key)) is type(value)
    assert SECTIONS["model"] == Model(), "the sections given are not changed"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("model.widht=1", ["'widht'", "'width'"]),
        ("modle.width=1", ["'modle'", "'model'"]),
        ("model.inner.rat=1", ["'rat'", "'rate'"]),
        ("model.width.x=1", ["width", "table"]),
        ("model.width", ["section.key=value"]),
        ("width=1", ["section.key=value"]),
        ("model.width=1.5", ["whole"]),
        ("model.fused=1", ["true", "false"]),
        ("model.kind=mid", ["pre, post", "'mid'"]),
        ("model.betas=1,x", ["number", "'x'"]),
        ("model.dropout=nan", ["number", "nan"]),
        ("model.inner=3", ["table"]),
    ],
)
def test_bad_sets_name_the_flag(text: str, parts: list[str]) -> None:
    placed(message(apply_sets, SECTIONS, [text]), f"--set {text}: ", parts)


def test_a_file_is_put_in_as_sets_are_and_before_them() -> None:
    text = "[model]\nwidth = 64\nsizes = [3, 4]\nbetas = [0.5, 1]\n[model.inner]\nname = 'a, b'\n[train]\nrate = 9\n"
    given = settings_in(text + "[model.weights]\nlabel = 2\n", "my.toml")
    result = apply_sets(SECTIONS, [*given, "model.width=32", "train.name=c"])
    inner = Inner(name="a, b")
    assert result == {
        "model": Model(width=32, sizes=(3, 4), betas=(0.5, 1.0), inner=inner, weights={"lm": 0.5, "label": 2.0}),
        "train": Inner(rate=9.0, name="c"),
    }


@pytest.mark.parametrize(
    ("text", "place", "parts"),
    [
        ("[model]\nwidht = 1", "my.toml [model] widht: ", ["'widht'", "'width'"]),
        ("[modle]\nwidth = 1", "my.toml [modle]: ", ["'modle'", "'model'"]),
        ("[modle]", "my.toml [modle]: ", ["'modle'", "'model'"]),
        ("[model.inner]\nrat = 1", "my.toml [model] inner.rat: ", ["'rat'", "'rate'"]),
        ("[model]\nwidth = '64'", "my.toml [model] width: ", ["whole", "'64'"]),
        ("[model]\nwidth.x = 64", "my.toml [model] width.x: ", ["width", "table"]),
        ("width = 1", "my.toml: ", ["'width'", "[training]"]),
    ],
)
def test_mistakes_in_a_file_name_the_place(text: str, place: str, parts: list[str]) -> None:
    placed(message(lambda: apply_sets(SECTIONS, settings_in(text, "my.toml"))), place, parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("x" * 1_000_001, ["1,000,001 ", "1,000,000"]),
        ("x = " + "[" * 100_000, ["nested"]),
        ("x = " + "{a=" * 100_000, ["nested"]),
        ("[" + ".".join(["a"] * 400_000) + "]", ["nested"]),
        (".".join(['"a"'] * 200_000) + "=1", ["nested"]),
        ("x = " + "9" * 5000, ["TOML"]),
        ("a" * 900_000, ["TOML"]),
        ("a = ", ["TOML"]),
        ("a = 1\na = 2", ["TOML"]),
    ],
)
def test_hostile_text_is_refused_before_it_takes_long(text: str, parts: list[str]) -> None:
    """Half a minute is no measure of speed: what goes by the square of the length takes hours."""
    begun = time.perf_counter()
    said = message(from_toml, text, "evil.toml")
    assert time.perf_counter() - begun < 30
    placed(said, "evil.toml: ", parts)


def test_dotted_text_in_strings_is_no_nesting() -> None:
    assert (
        from_toml('a = "1.2.3.4.5.6.7.8.9.10.11"\nb = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.5]')["b"][-1]
        == 1.5
    )


def test_difference() -> None:
    changed = apply_sets(SECTIONS, ["model.width=64", "model.limit=3", "model.inner.rate=9"])
    assert difference(SECTIONS, SECTIONS) == []
    assert difference(SECTIONS, changed) == [
        Change("model.width", 128, 64),
        Change("model.inner.rate", 0.1, 9.0),
        Change("model.limit", None, 3),
    ]
    assert str(Change("model.limit", 3, None)) == "model.limit: 3 → (not set)"
    assert difference(SECTIONS, from_toml(to_toml(SECTIONS))) == [], "a file and its dataclasses compare as equal"
    assert difference({"s": {"x": 1}}, {"s": {"x": True}}) == [Change("s.x", 1, True)]
