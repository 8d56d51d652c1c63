"""config.py: the round trip through TOML, the checks, `--set`, and what a hostile file costs."""

import dataclasses
import time
import tomllib
from dataclasses import dataclass, field
from typing import Literal

import pytest
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
    betas: tuple[float, float] = (0.9, 0.95)
    limit: int | None = None
    either: int | str = "auto"
    inner: Inner = Inner()
    weights: dict[str, float] = field(default_factory=lambda: {"lm": 0.5})

    def __post_init__(self) -> None:
        if self.width <= 0:
            raise ValueError("width must be positive")


@dataclass(frozen=True)
class Needs:
    steps: int


SECTIONS = {"model": Model(), "train": Inner(rate=3.0, name="a b")}
CLASSES = {"model": Model, "train": Inner}


def message(call, *args) -> str:
    with pytest.raises(UserError) as caught:
        call(*args)
    return str(caught.value)


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
    assert "not valid text" in message(to_toml, {"s": {"path": "a\udcffb"}})


@pytest.mark.parametrize(
    ("mapping", "part"),
    [
        ({"widht": 3}, "unknown key 'widht'; did you mean 'width'?"),
        ({"zzzzzz": 3}, "known: width, dropout"),
        ({"width": 3.0}, "width: must be a whole number, not 3.0"),
        ({"width": True}, "width: must be a whole number, not True"),
        ({"width": "3"}, "must be a whole number"),
        ({"width": -1}, "width must be positive"),
        ({"dropout": True}, "dropout: must be a number"),
        ({"dropout": float("nan")}, "dropout: must be a number"),
        ({"dropout": 10**400}, "dropout: must be a number"),
        ({"fused": 1}, "fused: must be true or false"),
        ({"kind": "mid"}, "must be one of pre, post, not 'mid'"),
        ({"sizes": [1, "2"]}, "sizes[1]: must be a whole number"),
        ({"sizes": 1}, "sizes: must be a list"),
        ({"betas": [0.1]}, "list of 2 values, not 1"),
        ({"limit": "x"}, "limit: must be a whole number"),
        ({"either": 0.5}, "either: must be a whole number or text"),
        ({"inner": {"rat": 1}}, "did you mean 'rate'?"),
        ({"inner": 3}, "inner: must be a table"),
        ({"weights": {"lm": "x"}}, "weights.lm: must be a number"),
        ({"weights": 3}, "weights: must be a table"),
    ],
)
def test_what_does_not_fit_is_named(mapping: dict, part: str) -> None:
    text = message(build, Model, mapping, "my.toml [model]")
    assert part in text
    assert text.startswith("my.toml [model]")


def test_int_for_float_and_a_missing_key_and_a_section_that_is_no_table() -> None:
    built = build(Model, {"dropout": 1, "betas": [0, 1]}, "x")
    assert (built.dropout, built.betas) == (1.0, (0.0, 1.0))
    assert type(built.dropout) is float
    assert "'steps' is missing" in message(build, Needs, {}, "x")
    assert "must be a table" in message(build_sections, CLASSES, {"model": 3}, "x")
    assert "did you mean 'model'" in message(build_sections, CLASSES, {"modle": {}}, "x")


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
        ("model.either=7", "either", 7),
        ("model.either=x=y", "either", "x=y"),
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
    ("text", "part"),
    [
        ("model.widht=1", "did you mean 'width'?"),
        ("modle.width=1", "did you mean 'model'?"),
        ("model.inner.rat=1", "did you mean 'rate'?"),
        ("model.width.x=1", "not a table"),
        ("model.width", "section.key=value"),
        ("width=1", "section.key=value"),
        ("model.width=1.5", "a whole number"),
        ("model.width=0", "must be positive"),
        ("model.fused=1", "true or false"),
        ("model.kind=mid", "one of pre, post"),
        ("model.betas=1", "list of 2"),
        ("model.dropout=nan", "must be a number"),
        ("model.inner=3", "a table"),
    ],
)
def test_bad_sets_name_the_flag(text: str, part: str) -> None:
    said = message(apply_sets, SECTIONS, [text])
    assert said.startswith(f"--set {text}: ")
    assert part in said


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
    ("text", "said"),
    [
        ("[model]\nwidht = 1", "my.toml [model] widht: unknown key 'widht'; did you mean 'width'?"),
        ("[modle]\nwidth = 1", "my.toml [modle]: unknown section 'modle'; did you mean 'model'?"),
        ("[modle]", "my.toml [modle]: unknown section 'modle'; did you mean 'model'?"),
        ("[model.inner]\nrat = 1", "my.toml [model] inner.rat: unknown key 'rat'; did you mean 'rate'?"),
        ("[model]\nwidth = '64'", "my.toml [model] width: must be a whole number, not '64'"),
        ("[model]\nwidth.x = 64", "my.toml [model] width.x: width is not a table"),
        ("[model]\nwidth = 0", "my.toml [model] width: width must be positive"),
        ("width = 1", "my.toml: 'width' stands in no section; write it under one, such as [training]"),
    ],
)
def test_mistakes_in_a_file_name_the_place(text: str, said: str) -> None:
    assert message(lambda: apply_sets(SECTIONS, settings_in(text, "my.toml"))) == said


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x" * 1_000_001, "too large"),
        ("x = " + "[" * 100_000, "nested too deeply"),
        ("x = " + "{a=" * 100_000, "nested too deeply"),
        ("[" + ".".join(["a"] * 400_000) + "]", "nested too deeply"),
        (".".join(['"a"'] * 200_000) + "=1", "nested too deeply"),
        ("x = " + "9" * 5000, "not valid TOML"),
        ("a" * 900_000, "not valid TOML"),
        ("a = ", "not valid TOML"),
        ("a = 1\na = 2", "not valid TOML"),
    ],
)
def test_hostile_text_is_refused_quickly(text: str, part: str) -> None:
    start = time.perf_counter()
    said = message(from_toml, text, "evil.toml")
    assert said.startswith("evil.toml: ")
    assert part in said
    assert time.perf_counter() - start < 2


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
