"""Configuration: small frozen dataclasses, one for each section, to and from TOML.

A configuration is a dictionary `section name → dataclass`. What a user writes (a TOML file, `--set section.key=value`)
is checked against the dataclass's annotations; whatever does not fit is a `UserError` that names the place and, for an
unknown key, the nearest one. The writer is canonical: the same configuration always gives the same bytes, so that a
run's `config.toml` can be compared and hashed. Supported values: str, int, float, bool, lists of these, and one level
of tables inside a section. TOML has no null: None is left out, so an optional field's default has to be None.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from foretext.errors import UserError, closest

MAX_BYTES = 1_000_000  # no honest configuration comes near; a hostile one must not cost memory or time
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'')
_DEEP_KEY = re.compile(r"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){8}")  # tomllib's time grows with its square
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE = 120

T = TypeVar("T")


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def to_plain(section: Any) -> dict[str, Any]:
    """A section as a dictionary of plain values, tuples as lists, without the Nones."""
    if dataclasses.is_dataclass(section):
        pairs = []
        for field in dataclasses.fields(section):
            value = getattr(section, field.name)
            assert value is not None or field.default is None, f"{field.name}: None would read back as its default"
            pairs.append((field.name, value))
    else:
        pairs = list(section.items())
    return {key: _plain(value) for key, value in pairs if value is not None}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) or isinstance(value, Mapping):
        return to_plain(value)
    return list(value) if isinstance(value, tuple) else value


def _table(heading: str, values: Mapping[str, Any]) -> str:
    return "".join([f"[{heading}]\n", *(_entry(key, value) for key, value in values.items())])


def _entry(key: str, value: Any) -> str:
    line = f"{_key(key)} = {_value(value)}\n"
    if isinstance(value, list) and len(line) > _LINE:
        return f"{_key(key)} = [\n" + "".join(f"    {_value(item)},\n" for item in value) + "]\n"
    return line


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"no TOML form for {type(value).__name__}")


def _string(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UserError(f"{text!r} is not valid text and cannot stand in a configuration: use another name")
    # JSON's escapes are TOML's too, except that TOML wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def from_toml(text: str, where: str = "config.toml") -> dict[str, Any]:
    """Parsed TOML, bounded in size and depth; `where` is named in the error."""
    if len(text) > MAX_BYTES:
        raise UserError(f"{where}: too large for a configuration ({len(text):,} characters, at most {MAX_BYTES:,})")
    if _DEEP_KEY.search(_QUOTED.sub("_", text)):
        raise UserError(f"{where}: tables are nested too deeply")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where}: not valid TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{where}: tables or lists are nested too deeply") from None
    except ValueError as error:  # such as a whole number of thousands of digits
        raise UserError(f"{where}: not valid TOML: {error}") from None


def build(cls: type[T], mapping: Mapping[str, Any], where: str) -> T:
    """`mapping` as a `cls`; every key and type is checked, and `where` (a file and section, or a flag) is named."""
    if not isinstance(mapping, Mapping):
        raise UserError(f"{where}: must be a table, not {_shown(mapping)}")
    hints = _hints(cls)
    for key in mapping:
        if key not in hints:
            raise UserError(f"{where}: unknown key {key!r}{_nearest(key, hints)}")
    values = {key: _checked(value, hints[key], f"{where}: {key}") for key, value in mapping.items()}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if field.name not in values and not optional:
            raise UserError(f"{where}: the key {field.name!r} is missing")
    return _construct(cls, values, where)


def build_sections(classes: Mapping[str, type], mapping: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A whole configuration; `classes` maps each section to its dataclass, and an absent section gets its defaults."""
    for name in mapping:
        if name not in classes:
            raise UserError(f"{where}: unknown section {name!r}{_nearest(name, classes)}")
    return {name: build(cls, mapping.get(name, {}), f"{where} [{name}]") for name, cls in classes.items()}


@dataclass(frozen=True)
class Setting:
    """One value that a user gives: by --set, as text, or in a file, where it has a type already."""

    names: tuple[str, ...]  # section and key, or section, table and key; a section alone sets nothing
    value: Any
    where: str  # to be named in an error
    typed: bool = False

    @property
    def key(self) -> str:
        return ".".join(self.names)


def settings_in(text: str, where: str) -> list[Setting]:
    """What a user's TOML file, named `where`, gives; sections and keys are checked where they are put in."""
    settings = []
    for section, table in from_toml(text, where).items():
        if not isinstance(table, dict):
            raise UserError(f"{where}: {section!r} stands in no section; write it under one, such as [training]")
        settings.append(
            Setting((section,), None, f"{where} [{section}]", typed=True)
        )  # also an empty one must be known
        for key, value in table.items():
            inner = value if isinstance(value, dict) and value else {None: value}
            for name, one in inner.items():
                names = (section, key) if name is None else (section, key, name)
                settings.append(Setting(names, one, f"{where} [{section}] {'.'.join(names[1:])}", typed=True))
    return settings


def setting_of(given: str | Setting) -> Setting:
    """`section.key=value` (or `section.table.key=value`) as a setting."""
    if isinstance(given, Setting):
        return given
    where = f"--set {given}"
    path, equals, value = given.partition("=")
    names = tuple(path.strip().split("."))
    if not equals or not 2 <= len(names) <= 3:
        raise UserError(f"{where}: must look like section.key=value")
    return Setting(names, value.strip(), where)


def apply_sets(sections: Mapping[str, Any], sets: Iterable[str | Setting]) -> dict[str, Any]:
    """`sections` (dataclasses) with each setting put in, later ones over earlier ones; none is changed."""
    result = dict(sections)
    for setting in map(setting_of, sets):
        name = setting.names[0]
        if name not in result:
            raise UserError(f"{setting.where}: unknown section {name!r}{_nearest(name, result)}")
        if len(setting.names) > 1:
            result[name] = _with(result[name], setting.names[1:], setting)
    return result


def _with(section: Any, names: Sequence[str], setting: Setting) -> Any:
    hints, where = _hints(type(section)), setting.where
    name = names[0]
    if name not in hints:
        raise UserError(f"{where}: unknown key {name!r}{_nearest(name, hints)}")
    read = _checked if setting.typed else _parsed
    current = getattr(section, name)
    if len(names) > 1 and dataclasses.is_dataclass(current):
        value = _with(current, names[1:], setting)
    elif len(names) > 1 and typing.get_origin(hints[name]) is dict:
        value = {**current, names[1]: read(setting.value, typing.get_args(hints[name])[1], where)}
    elif len(names) > 1:
        raise UserError(f"{where}: {name} is not a table")
    else:
        value = read(setting.value, hints[name], where)
    values = {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
    return _construct(type(section), {**values, name: value}, where)


def _construct(cls: type[T], values: dict[str, Any], where: str) -> T:
    try:
        return cls(**values)
    except ValueError as error:  # raised by a dataclass's own __post_init__
        raise UserError(f"{where}: {error}") from None


def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _nearest(key: str, known: Iterable[str]) -> str:
    near = closest(key, known)
    return f"; did you mean {near!r}?" if near else f"; known: {', '.join(known) or 'none'}"


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _checked(value: Any, hint: Any, where: str) -> Any:
    """`value` as the annotation `hint` has it, or a UserError."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        options = [arg for arg in args if arg is not types.NoneType]
        if value is None:
            return None
        if len(options) == 1:
            return _checked(value, options[0], where)
        return _first_that_fits(value, options, hint, where)
    if origin is Literal:
        if any(value == arg and type(value) is type(arg) for arg in args):
            return value
        raise UserError(f"{where}: must be one of {', '.join(map(str, args))}, not {_shown(value)}")
    if origin in (tuple, list):
        return _checked_sequence(value, origin, args, where)
    if origin is dict and isinstance(value, Mapping):
        return {str(key): _checked(item, args[1], f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, where)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite_or_infinite(value, where)
    if isinstance(hint, type) and type(value) is hint:
        return value
    raise UserError(f"{where}: must be {_described(hint)}, not {_shown(value)}")


def _first_that_fits(value: Any, options: Sequence[Any], hint: Any, where: str) -> Any:
    # An exact type first, so that 3 for `float | int` stays a whole number.
    for option in sorted(options, key=lambda option: option is not type(value)):
        try:
            return _checked(value, option, where)
        except UserError:
            continue
    raise UserError(f"{where}: must be {_described(hint)}, not {_shown(value)}")


def _checked_sequence(value: Any, origin: type, args: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise UserError(f"{where}: must be a list, not {_shown(value)}")
    if origin is list or (len(args) == 2 and args[1] is Ellipsis):
        args = (args[0],) * len(value)
    elif len(args) != len(value):
        raise UserError(f"{where}: must be a list of {len(args)} values, not {len(value)}")
    return origin(_checked(item, arg, f"{where}[{index}]") for index, (item, arg) in enumerate(zip(value, args)))


def _finite_or_infinite(value: float, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.nan
    if math.isnan(number):
        raise UserError(f"{where}: must be a number, not {_shown(value)}")
    return number


def _parsed(text: str, hint: Any, where: str) -> Any:
    """The text of a `--set` value by the type of its field: no quotes needed, lists as `a,b` or `[a, b]`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if types.NoneType in args and text.lower() in ("none", ""):
            return None
        return _parsed_as_any(text, [arg for arg in args if arg is not types.NoneType], hint, where)
    if origin in (tuple, list):
        inner = text.removeprefix("[").removesuffix("]").strip()
        items = [item.strip() for item in inner.split(",")] if inner else []
        kinds = list(args) if origin is tuple and args[-1] is not Ellipsis else [args[0]] * len(items)
        if len(kinds) != len(items):
            raise UserError(f"{where}: must be a list of {len(kinds)} values, not {len(items)}")
        return origin(_parsed(item, kind, where) for item, kind in zip(items, kinds))
    if origin is Literal:
        return _checked(next((arg for arg in args if str(arg) == text), text), hint, where)
    if hint is str:
        quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
        return text[1:-1] if quoted else text
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if hint in (int, float):
        try:
            return _checked(hint(text), hint, where)
        except ValueError:
            pass
    raise UserError(f"{where}: the value must be {_described(hint)}")


def _parsed_as_any(text: str, options: Sequence[Any], hint: Any, where: str) -> Any:
    for option in sorted(options, key=lambda option: (option is str, option is float)):  # the strictest first
        try:
            return _parsed(text, option, where)
        except UserError:
            if len(options) == 1:
                raise
    raise UserError(f"{where}: the value must be {_described(hint)}")


def _described(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_described(arg) for arg in args if arg is not types.NoneType)
    if origin is dict or dataclasses.is_dataclass(hint):
        return "a table"
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return words.get(hint, str(hint))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ── comparing ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Change:
    """One key that two configurations have differently; None stands for 'not set'."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        old, new = ("(not set)" if value is None else value for value in (self.old, self.new))
        return f"{self.key}: {old} → {new}"


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """What changes from configuration `a` to `b` (sections as dataclasses or mappings), in `a`'s order, then `b`'s."""
    old, new = _flat(a), _flat(b)
    changes = [Change(key, old.get(key), new.get(key)) for key in {**old, **new}]
    return [change for change in changes if not _same(change.old, change.new)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        value = _plain(value)
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)
