"""config.json of a Hugging Face folder and our [model], by the tables in `systems/hub_names.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretext.errors import UserError
from foretext.interop.hub_tokenizer import special_of
from foretext.nn.model_config import ModelConfig
from foretext.runs.model import SavedModel
from foretext.systems.base import System
from foretext.systems.hub_names import HubNames

MOST_NUMBER = 1e15


# -- in --------------------------------------------------------------------------------------------------------------


def model_of(config: Mapping[str, Any], system: System, names: HubNames, where: Path) -> ModelConfig:
    """The trunk that config.json, at `where`, describes."""
    for key, values in names.only.items():
        if key in config and config[key] not in values:
            raise UserError(
                f"{where}: {key} is {config[key]!r}, which {system.name} here cannot be (only {values[0]!r})"
            )
    model: Any = system.sizes["paper"].model
    changes = _numbers(config, system, names, where) | _words(config, system, names, where)
    inner = config.get("n_inner")
    if inner is not None and inner != 4 * changes["width"]:
        raise UserError(f"{where}: n_inner is {inner}, which {system.name} here cannot be (only 4 × n_embd)")
    if changes.get("inner") == 4 * changes["width"]:
        changes["inner"] = 0  # as our sizes have it
    if names.after_padding:
        before = _padding(config, names, where) + 1
        changes |= {"context": changes["context"] - before, "first_position": min(before, model.first_position)}
    dropout = _dropout(config, names, where)
    if dropout is not None:
        changes["dropout"] = dropout
    found: ModelConfig = dataclasses.replace(model, **changes)
    try:
        found.check()
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return found


def rows_before(config: Mapping[str, Any], names: HubNames, model: Any, where: Path) -> int:
    """Rows of their position table that stand before ours: where they count from the padding's id on, and that is
    large, the first ones belong to no position."""
    return _padding(config, names, where) + 1 - int(model.first_position) if names.after_padding else 0


def _numbers(config: Mapping[str, Any], system: System, names: HubNames, where: Path) -> dict[str, Any]:
    model = system.sizes["paper"].model
    found: dict[str, Any] = {}
    for ours, theirs in names.shape.items():
        value = _number(_said(config, theirs, names, where), theirs, type(getattr(model, ours)), where)
        if theirs in names.least and value < names.least[theirs]:
            least = names.least[theirs]
            raise UserError(f"{where}: {theirs} is {value}, and {system.name} here needs at least {least}")
        found[ours] = value
    if found["vocabulary"] < 1:
        raise UserError(f"{where}: {names.shape['vocabulary']} is {found['vocabulary']}; get the file again")
    return found


def _words(config: Mapping[str, Any], system: System, names: HubNames, where: Path) -> dict[str, str]:
    found = {}
    for ours, (key, words) in names.worded.items():
        said = _said(config, key, names, where)
        if not isinstance(said, str) or said not in words:
            known = ", ".join(map(repr, words))
            raise UserError(f"{where}: {key} is {said!r}, which {system.name} here cannot be (only {known})")
        found[ours] = words[said]
    return found


def _said(config: Mapping[str, Any], key: str, names: HubNames, where: Path) -> Any:
    if key not in config and key not in names.defaults:
        raise UserError(f"{where}: {key} is missing; get the file again")
    said = config.get(key, names.defaults.get(key))
    return names.defaults[key] if said is None and key in names.unsaid else said


def _dropout(config: Mapping[str, Any], names: HubNames, where: Path) -> float | None:
    """Our one dropout; None where nothing is said."""
    said = {key: names.defaults[key] for key in names.dropouts if key in names.defaults} | dict(config)
    dropouts = {key: _number(said[key], key, float, where) for key in names.dropouts if key in said}
    if len(set(dropouts.values())) > 1:
        different = ", ".join(f"{key} {value}" for key, value in dropouts.items())
        raise UserError(f"{where}: {different}: here one dropout serves all places; make them equal")
    return next(iter(dropouts.values()), None)


def _padding(config: Mapping[str, Any], names: HubNames, where: Path) -> int:
    found: int = _number(_said(config, "pad_token_id", names, where), "pad_token_id", int, where)
    if found < 0:
        raise UserError(f"{where}: pad_token_id is {found}, and positions are counted from it; get the file again")
    return found


def _number(value: Any, key: str, wanted: type, where: Path) -> Any:
    """A number of the wanted type; whatever else JSON can hold is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST_NUMBER < value < MOST_NUMBER:
        raise UserError(f"{where}: {key} must be a number, not {str(value)[:40]}; get the file again")
    if wanted(value) != value:
        raise UserError(f"{where}: {key} must be a whole number, not {value!r}; get the file again")
    return wanted(value)


# -- out -------------------------------------------------------------------------------------------------------------


def check_exportable(model: SavedModel, names: HubNames, weights: Mapping[str, Any]) -> None:
    """Settings of [model] that make a model which they do not have."""
    own, found = model.system.sizes["paper"].model, model.model_config
    different = [field for field in names.fixed if getattr(found, field) != getattr(own, field)]
    if not different and names.names(found.layers).keys() != weights.keys():
        different = ["embedding"]  # ALBERT's may have any width, but must be there
    if different:
        raise UserError(
            f"this run's model.{different[0]} is not {model.system.name}'s own, and transformers has no such model; "
            "it cannot be exported"
        )
    for field, (key, words) in names.worded.items():
        if getattr(found, field) not in words.values():
            raise UserError(
                f"this run's model.{field} is {getattr(found, field)}, and {key} of transformers' {names.model_type} "
                "cannot be that; it cannot be exported"
            )


def config_of(model: SavedModel, names: HubNames) -> dict[str, Any]:
    """config.json of the language model."""
    shape: Any = model.model_config
    config: dict[str, Any] = {"architectures": [names.language_model], "model_type": names.model_type}
    config |= {theirs: getattr(shape, ours) for ours, theirs in names.shape.items()}
    if "inner" in names.shape and not shape.inner:
        config[names.shape["inner"]] = 4 * shape.width
    config |= dict.fromkeys(names.dropouts, shape.dropout)
    config |= {key: values[0] for key, values in names.only.items()}
    for ours, (key, words) in names.worded.items():
        config[key] = next(theirs for theirs, own in words.items() if own == getattr(shape, ours))
    config |= {"tie_word_embeddings": True, "torch_dtype": "float32"}
    config |= {key: special_of(model.tokenizer, role) for key, role in names.ids.items()}
    if names.after_padding:
        config["pad_token_id"] = padding_id(model)
        config[names.shape["context"]] += padding_id(model) + 1
    return config


def padding_id(model: SavedModel) -> int:
    """The id from which positions are counted there; where no token is for padding, one that leaves ours in place."""
    shape: Any = model.model_config
    found = special_of(model.tokenizer, "pad")
    return int(shape.first_position) - 1 if found is None else found
