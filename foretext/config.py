"""Configuration: small frozen dataclasses, one for each section, to and from TOML.

A configuration is a dictionary `section name → dataclass`. What a user writes (a TOML file, `--set section.key=value`)
is checked against the dataclass's annotations; anything that does not fit is a `UserError` that names the place and,
for an unknown key, the nearest known key. The writer is canonical: the same configuration always gives the same bytes,
so that a run's `config.toml` can be compared and hashed. Supported values: str, int, float, bool, lists of one of
these, and one level of tables inside a section. TOML has no null, so None is left out and an optional field must
default to None.
"""

import contextlib
import dataclasses
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from foretext.errors import UserError, check_range, closest, refuse_if

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_BYTES = 1_000_000  # far above any real configuration; limits the memory and time that a hostile one can cost
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'')
# tomllib needs quadratic time for dotted keys
_DEEP_KEY = re.compile(r"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){8}")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE = 120
SET = "--set "
UNIONS = (Union, UnionType)

T = TypeVar("T", bound="DataclassInstance")

# Parsed documents, not yet checked, or as they will be written: any key may hold any value.
Toml = dict[str, Any]
Json = dict[str, Any]
Sections = dict[str, Any]  # section name → its dataclass; the name decides which one


# -- writing -----------------------------------------------------------------------------------------------------------


def to_toml(sections: Mapping[str, Any]) -> str:
    """Sections (dataclasses or mappings) as canonical TOML."""
    blocks: list[str] = []
    for name, section in sections.items():
        plain = to_plain(section)
        tables = {key: value for key, value in plain.items() if isinstance(value, dict)}
        blocks.append(_table(_key(name), {key: value for key, value in plain.items() if key not in tables}))
        for key, table in tables.items():
            assert not any(isinstance(value, dict) for value in table.values()), f"{name}.{key}: nested too deeply"
            blocks.append(_table(f"{_key(name)}.{_key(key)}", table))
    return "\n".join(blocks)


def to_plain(section: Any) -> Toml:
    """A section as a dictionary of plain values: tuples become lists, None is left out."""
    if dataclasses.is_dataclass(section):
        defaults = {field.name: field.default for field in dataclasses.fields(section)}
        section = {name: getattr(section, name) for name in defaults}
        for name, default in defaults.items():
            assert section[name] is not None or default is None, f"{name}: None would read back as its default"
    return {key: _plain(value) for key, value in section.items() if value is not None}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) or isinstance(value, Mapping):
        return to_plain(value)
    return list(value) if isinstance(value, tuple) else value


def _table(heading: str, values: Toml) -> str:
    return "".join([f"[{heading}]\n", *(_entry(key, value) for key, value in values.items())])


def _entry(key: str, value: Any) -> str:
    line = f"{_key(key)} = {_value(value)}\n"
    if isinstance(value, list) and len(line) > _LINE:
        return f"{_key(key)} = [\n" + "".join(f"    {_value(item)},\n" for item in value) + "]\n"
    return line


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    # JSON strings are valid TOML, except that TOML wants DEL escaped.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    refuse_if(
        any("\ud800" <= char <= "\udfff" for char in text),
        f"{value!r} is not valid text and cannot be written to a configuration: use another name",
    )
    return text


# -- reading -----------------------------------------------------------------------------------------------------------


def from_toml(text: str, where: str = "config.toml") -> Toml:
    """Parsed TOML, bounded in size and depth; `where` is named in the error."""
    refuse_if(
        len(text) > MAX_BYTES,
        f"{where}: too large for a configuration ({len(text):,} characters, at most {MAX_BYTES:,})",
    )
    refuse_if(_DEEP_KEY.search(_QUOTED.sub("_", text)), f"{where}: tables are nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{where}: tables or lists are nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, or an integer with thousands of digits
        raise UserError(f"{where}: not valid TOML: {error}") from None


def build(cls: type[T], mapping: Mapping[str, Any], where: str) -> T:
    """`mapping` as a `cls`, with every key and type checked. `where` (a file and section, or an option) is named in
    errors."""
    if not isinstance(mapping, Mapping):
        raise UserError(f"{where}: must be a table, not {_shown(mapping)}")
    hints = _hints(cls)
    for key in mapping:
        _check_known("key", key, hints, where)
    values = {key: _checked(value, hints[key], f"{where}: {key}") for key, value in mapping.items()}
    for field in dataclasses.fields(cls):
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        refuse_if(field.name not in values and not optional, f"{where}: the key {field.name!r} is missing")
    return cls(**values)


def build_sections(classes: Mapping[str, type], mapping: Toml, where: str) -> Sections:
    """A whole configuration. `classes` maps each section to its dataclass; an absent section gets the defaults."""
    for name in mapping:
        _check_known("section", name, classes, where)
    return {name: build(cls, mapping.get(name, {}), f"{where} [{name}]") for name, cls in classes.items()}


@dataclass(frozen=True)
class Setting:
    """One value from the user: text from --set, or already typed from a file."""

    names: tuple[str, ...]  # section and key, or section, table and key; a section alone sets nothing
    value: Any
    where: str  # named in errors
    typed: bool = False

    @property
    def key(self) -> str:
        return ".".join(self.names)


def settings_in(text: str, where: str) -> list[Setting]:
    """The settings in a user's TOML file, named `where`. Sections and keys are checked when they are applied."""
    settings = []
    for section, table in from_toml(text, where).items():
        refuse_if(
            not isinstance(table, dict),
            f"{where}: the key {section!r} belongs to no section; move it under one, such as [training]",
        )
        place = f"{where} [{section}]"
        settings.append(Setting((section,), None, place, typed=True))  # even an empty section must be a known one
        for key, value in table.items():
            inner = value if isinstance(value, dict) and value else {None: value}
            for name, entry in inner.items():
                names = (section, key) if name is None else (section, key, name)
                settings.append(Setting(names, entry, f"{place} {'.'.join(names[1:])}", typed=True))
    return settings


def setting_of(given: str | Setting) -> Setting:
    """Parse `section.key=value` or `section.table.key=value`."""
    if isinstance(given, Setting):
        return given
    where = f"{SET}{given}"
    path, equals, value = given.partition("=")
    names = tuple(path.strip().split("."))
    refuse_if(not equals or not 2 <= len(names) <= 3, f"{where}: must have the form section.key=value")
    return Setting(names, value.strip(), where)


def apply_sets(sections: Mapping[str, Any], sets: Iterable[str | Setting]) -> Sections:
    """A copy of `sections` (dataclasses) with the settings applied; later ones override earlier ones."""
    result = dict(sections)
    for setting in map(setting_of, sets):
        name, *names = setting.names
        _check_known("section", name, result, setting.where)
        if names:
            result[name] = _with(result[name], names, setting)
    return result


def _with(section: Any, names: Sequence[str], setting: Setting) -> Any:
    hints, where = _hints(type(section)), setting.where
    name = names[0]
    _check_known("key", name, hints, where)
    current = getattr(section, name)
    if len(names) == 1:
        value = _read(setting, hints[name])
    elif dataclasses.is_dataclass(current):
        value = _with(current, names[1:], setting)
    elif isinstance(current, dict):
        value = {**current, names[1]: _read(setting, get_args(hints[name])[1])}
    else:
        raise UserError(f"{where}: {name} is not a table")
    return dataclasses.replace(section, **{name: value})


def _hints(cls: type) -> dict[str, object]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _check_known(what: str, name: str, known: Iterable[str], where: str) -> None:
    if name not in known:
        raise UserError(f"{where}: unknown {what} {name!r}{_nearest(name, known)}")


def _nearest(key: str, known: Iterable[str]) -> str:
    near = closest(key, known)
    return f"; did you mean {near!r}?" if near else f"; known: {', '.join(known) or 'none'}"


# -- types -------------------------------------------------------------------------------------------------------------


def _read(setting: Setting, hint: Any) -> Any:
    """A setting's value, converted to the type `hint`; UserError if it does not fit."""
    return _checked(setting.value if setting.typed else _from_text(setting.value, hint), hint, setting.where)


def _checked(value: Any, hint: Any, where: str) -> Any:
    """`value`, converted to the type `hint`; UserError if it does not fit."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return None if value is None else _checked(value, _but_none(hint), where)
    if origin is tuple and isinstance(value, list | tuple):
        # Show a --set as it was typed; the rejected value tells which one it was.
        places = [where if where.startswith(SET) else f"{where}[{index}]" for index in range(len(value))]
        return tuple(_checked(item, args[0], place) for item, place in zip(value, places))
    if origin is dict and isinstance(value, Mapping):
        return {str(key): _checked(item, args[1], f"{where}.{key}") for key, item in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value, where)
    value = _as_float(value) if hint is float else value
    if _fits(value, hint):
        return value
    raise UserError(f"{where}: must be {_described(hint)}, not {_shown(value)}")


def _as_float(value: Any) -> Any:
    """Accept an integer where a float is expected, unless it is too large for one."""
    return float(value) if type(value) is int and abs(value) <= sys.float_info.max else value


def _but_none(hint: Any) -> Any:
    """The type of an optional value without None."""
    return next(arg for arg in get_args(hint) if arg is not NoneType)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a single value has exactly this type: true is not a number, and NaN is not either."""
    if get_origin(hint) is Literal:
        return any(value == arg and type(value) is type(arg) for arg in get_args(hint))
    return type(value) is hint and not (hint is float and math.isnan(value))


def _from_text(text: str, hint: Any) -> Any:
    """The value that the text of a `--set` stands for, given the type `hint`. Quotes are optional; lists are `a,b` or
    `[a, b]`. Text that does not parse stays text, and `_checked` refuses it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return None if text.lower() in ("none", "") else _from_text(text, _but_none(hint))
    if origin is tuple:
        inner = text.removeprefix("[").removesuffix("]").strip()
        return [_from_text(item.strip(), args[0]) for item in inner.split(",")] if inner else []
    if origin is Literal:
        return next((arg for arg in args if str(arg) == text), text)
    with contextlib.suppress(KeyError, ValueError):
        return SINGLE_VALUES[hint](text)
    return text


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text


SINGLE_VALUES: dict[Any, Callable[[str], Any]] = {
    str: _unquoted,
    int: int,
    float: float,
    bool: lambda text: {"true": True, "false": False}[text.lower()],
}


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    kinds = {tuple: "a list", dict: "a table"}
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return words.get(hint) or kinds.get(get_origin(hint), str(hint))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# -- comparing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One key that differs between two configurations; None stands for 'not set'."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        old, new = ("(not set)" if value is None else value for value in (self.old, self.new))
        return f"{self.key}: {old} → {new}"


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """The changes from configuration `a` to `b` (sections are dataclasses or mappings), in the order of `a`, then of
    `b`."""
    old, new = _flat(a), _flat(b)
    changes = [Change(key, old.get(key), new.get(key)) for key in {**old, **new}]
    return [
        change
        for change in changes
        if change.old != change.new or isinstance(change.old, bool) != isinstance(change.new, bool)
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        value = _plain(value)
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


# -- how weights are learned -------------------------------------------------------------------------------------------


MOST_FACTOR = 1000  # on the learning rate


@dataclass(frozen=True)
class TrainingConfig:
    """How weights are trained, in pre-training and fine-tuning alike."""

    optimizer: Literal["adamw", "muon", "lamb", "sgd"] = "adamw"
    rate: float = 2.5e-4
    # halving: constant, then halved after every epoch once a validation loss has risen; root: 1 / (1 + .005 √step)
    schedule: Literal["cosine", "linear", "constant", "halving", "root"] = "cosine"
    warmup_steps: int = 0  # if 0, `warmup` applies
    warmup: float = 0.02  # share of the budget
    final_rate: float = 0.0  # the last rate, as a share of the peak rate
    weight_decay: float = 0.01
    beta1: float = 0.9  # for sgd, the momentum
    beta2: float = 0.999
    epsilon: float = 1e-8
    clip: float = 1.0
    table_rate: float = 1.0  # factor on the rate of embeddings and other weights with one row per token or class
    vector_rate: float = 1.0  # factor on the rate of norms, biases and learned scalars
    cautious: bool = False  # whether weight decay applies only where the update also moves a weight towards 0
    tail: float = 0.0  # share of the budget, at its end, over which weights are averaged; 0: the last weights are kept
    batch_size: int = 64  # sequences per step (fine-tuning: examples)
    micro_batch: int = 0  # sequences per micro-batch; 0: as many as fit 4,096 tokens, which stay in the cache
    dropout: float = 0.1
    save_seconds: float = 300.0
    evaluations: int = 20  # validations, spread evenly over the run
    # stop after more steps than this with a non-finite loss or gradient; until then such steps are skipped
    bad_steps: int = 3
    log_samples: bool = False  # write the ids of each step's samples to metrics.jsonl

    def check(self) -> None:
        """UserError for values that no run can train with. `dropout` is checked by its model (`ModelConfig.check`)."""
        check_range("training", self, "at least 1", "batch_size")
        check_range("training", self, "at least 0", "micro_batch", "warmup_steps", "evaluations", "bad_steps")
        check_range("training", self, "at least 0", "weight_decay", "clip", "save_seconds")
        check_range("training", self, "at least 0 and below 1", "beta1", "beta2", "warmup")
        check_range("training", self, "above 0", "rate", "epsilon")
        check_range("training", self, "at least 0 and at most 1", "final_rate", "tail")
        check_range("training", self, f"above 0 and at most {MOST_FACTOR}", "table_rate", "vector_rate")
        refuse_if(
            self.cautious and self.optimizer not in ("adamw", "muon"),
            f"training.cautious is for adamw and muon, not for {self.optimizer}; leave it out",
        )


@dataclass(frozen=True)
class StartConfig:
    """How pre-training continues from another run, on new text (`--from`)."""

    rate_decay: float = 1.0  # each layer group learns at 1/rate_decay of the rate of the group above (ULMFiT: 2.6)
    vocabulary: Literal["kept", "new"] = "kept"  # new: learned from the new text; known pieces keep their embeddings

    def check(self) -> None:
        """UserError for settings that no run can continue with."""
        check_range("start", self, "above 0", "rate_decay")
