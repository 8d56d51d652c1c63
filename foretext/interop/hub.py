"""Weights to and from Hugging Face folders, for every system with a table of names (`TABLES`), and config.json to and
from our [model].

Besides the trunk's, our names include those of the pre-training objective's head, which begin with `task.` as in a run.
Parts that a folder may lack (`HubNames.absent`) are drawn anew, and import says so.
"""

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foretext.config import Json, Toml
from foretext.errors import UserError, refuse_if
from foretext.interop.hub_decoders import GPT, GPT2, LLAMA, QWEN3
from foretext.interop.hub_encoders import ALBERT, BERT, ROBERTA, XLNET
from foretext.interop.hub_names import HEAD, HubNames, sizes
from foretext.interop.hub_tensors import (
    FolderTensors,
    by_their_names,
    head_of,
    head_tensors,
    read_json,
    read_weights,
)
from foretext.interop.hub_tokenizer import padding_of, read_tokenizer, special_of, tokenizer_files
from foretext.nn.trunk import ModelConfig
from foretext.objectives.base import Objective
from foretext.runs.commit import write_new
from foretext.runs.model import SavedModel, check_amount
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, System, TrunkParts
from foretext.tasks.layouts.base import FramedLayout
from foretext.text.tokenizers.base import Tokenizer

# system → its table, for import and export; a system without one cannot be exchanged yet
TABLES: dict[str, HubNames] = {
    "gpt": GPT,
    "gpt2": GPT2,
    "bert": BERT,
    "roberta": ROBERTA,
    "albert": ALBERT,
    "xlnet": XLNET,
}
# system → tables for export only; the first that fits a run is used
WRITTEN_AS: dict[str, tuple[HubNames, ...]] = {"modern": (QWEN3, LLAMA)}
_POSITIONS = "positions.weight"
_MOST_NUMBER = 1e15
_DRAWS = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)


@dataclass(frozen=True)
class Foreign:
    """Another library's pre-trained model, in our terms."""

    system: System
    model: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]  # under our names
    head_drawn: bool = False  # whether the folder lacked the head that predicts tokens, so that a new one was drawn
    notes: tuple[str, ...] = ()  # notes for the user


# -- in ----------------------------------------------------------------------------------------------------------------


def read_hub(folder: Path, allow_pickle: bool = False) -> Foreign:
    """Reads a folder with config.json, weights and a tokenizer."""
    config_path = folder / "config.json"
    config = read_json(config_path)
    system, names = _system_of(config, config_path)
    model = model_of(config, system, names, config_path)
    tensors, where = read_weights(folder, allow_pickle)
    notes: list[str] = []
    tokenizer = read_tokenizer(folder, model.vocabulary, config, names, notes)
    weights = _ours(tensors, system, names, model, where, tokenizer, rows_before(config, names, model, config_path))
    new = drawn(system, model, tokenizer, weights)
    lacking = [words for start, words in names.absent.items() if any(name.startswith(start) for name in new)]
    head_drawn = any(name.startswith(f"{HEAD}head.") for name in new)
    notes += about_drawn(where, lacking, head_drawn)
    return Foreign(system, model, tokenizer, weights | new, head_drawn, tuple(notes))


def _system_of(config: Json, where: Path) -> tuple[System, HubNames]:
    known = {names.model_type: (SYSTEMS[system], names) for system, names in TABLES.items()}
    kind: Any = config.get("model_type")
    refuse_if(
        not isinstance(kind, str) or kind not in known,
        f"{where}: model_type {kind!r} is not supported; supported: {', '.join(known)}",
    )
    return known[kind]


def _ours(
    tensors: dict[str, Tensor],
    system: System,
    names: HubNames,
    model: ModelConfig,
    where: str,
    tokenizer: Tokenizer | None = None,
    before: int = 0,
) -> dict[str, Tensor]:
    """The folder's weights under our names: the trunk's and, with `tokenizer`, from which a head is built, the
    objective's. `before`: rows of their position table before ours."""
    check_amount(model, tensors, where, "config.json")  # before a trunk is built
    shapes, wanted = shapes_of(system, model), names.names(model.layers)
    if before:
        shapes[_POSITIONS][0] += before
    if tokenizer is not None:
        shapes |= _head_shapes(system, model, tokenizer)
        wanted |= names.head_names()
    theirs = FolderTensors(tensors, names, model, where)
    weights = {ours: theirs.take(ours, name, shapes[ours]) for ours, name in theirs.present(wanted).items()}
    theirs.finish(weights)
    if before:
        weights[_POSITIONS] = weights[_POSITIONS][before:].clone()
    return weights


class _Undrawn(TorchFunctionMode):
    """Leaves tensors uninitialised where numbers would be drawn: on the meta device torch would load its compiler for
    that."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return None if func in _DRAWS else func(*args, **(kwargs or {}))


def shapes_of(system: System, model: ModelConfig) -> dict[str, list[int]]:
    """The shape of each of the trunk's weights, without drawing any."""
    with torch.device("meta"), _Undrawn():
        return {name: list(tensor.shape) for name, tensor in system.build_trunk(TrunkParts(model)).state_dict().items()}


def _head_shapes(system: System, model: ModelConfig, tokenizer: Tokenizer) -> dict[str, list[int]]:
    with torch.device("meta"), _Undrawn():
        state = _objective(system, model, tokenizer).state_dict()
    return {HEAD + name: list(tensor.shape) for name, tensor in state.items()}


def _objective(system: System, model: ModelConfig, tokenizer: Tokenizer) -> Objective:
    return system.build_objective(ObjectiveParts(model, system.sizes["paper"].objective, tokenizer))


def about_drawn(where: str, lacking: Sequence[str], head_drawn: bool) -> list[str]:
    """A note about parts that the file of weights lacks, if any."""
    after = "; fill and perplexity need a trained one: foretext pretrain TEXT --from the new run"
    return (
        [(f"{where}: has no {' and no '.join(lacking)}, so new ones were drawn{after * head_drawn}")] if lacking else []
    )


def drawn(system: System, model: ModelConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """New values for what `weights` lacks; the same each time."""
    trunk, head = shapes_of(system, model), _head_shapes(system, model, tokenizer)
    new: dict[str, Tensor] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if not trunk.keys() <= weights.keys():  # building a trunk takes time, and most folders are complete
            new |= system.build_trunk(TrunkParts(model)).state_dict()
        if not head.keys() <= weights.keys():
            new |= {HEAD + name: tensor for name, tensor in _objective(system, model, tokenizer).state_dict().items()}
    return {name: tensor for name, tensor in new.items() if name not in weights}


# -- out ---------------------------------------------------------------------------------------------------------------


def export_hub(model: SavedModel, out: Path) -> list[str]:
    """Writes a folder that `transformers` loads offline; returns notes for the user."""
    names = table_for(model)
    refuse_if(
        model.views is not None,
        "a head over views has no counterpart in transformers; fine-tune with --views none to export",
    )
    refuse_if(
        model.info.direction == "backward",
        "a right-to-left model cannot be exported: transformers would feed it text from left to right",
    )
    refuse_if(
        out.exists() and (not out.is_dir() or any(out.iterdir())), f"{out} is not an empty folder; choose another --out"
    )
    weights = {name: tensor.detach().float().cpu() for name, tensor in model.trunk.state_dict().items()}
    check_exportable(model, names, weights)
    config, notes = config_of(model, names), list[str]()
    heads = _heads(model, names, weights, config, notes)
    if names.after_padding:
        shape: Any = model.model_config  # as many empty rows before the first position as theirs has
        weights[_POSITIONS] = F.pad(weights[_POSITIONS], (0, 0, padding_id(model) + 1 - shape.first_position, 0))
    tensors = by_their_names(weights, names, model.model_config) | heads
    framed = None if model.system.causal else cast(FramedLayout, model.layout)  # a masked system joins texts like this
    delimited = model.task is not None and framed is None
    files, more = tokenizer_files(model.tokenizer, model.model_config.context, delimited, framed)
    files["config.json"] = (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode()
    _write_folder(out, files, tensors)
    return notes + more


def _heads(
    model: SavedModel, names: HubNames, weights: dict[str, Tensor], config: Json, notes: list[str]
) -> dict[str, Tensor]:
    """The task's head, or else the pre-training head, under their names. `weights`, `config` and `notes` are changed to
    match."""
    if model.task is not None:
        head = head_of(model, names)
        tensors, described = head_tensors(model, names, head, weights)
        config |= described
        padding = padding_of(model.tokenizer)
        if padding is not None and "pad_token_id" not in names.ids and model.task.kind != "choice":
            config["pad_token_id"] = model.tokenizer.specials[padding]
        for name in [name for name in weights if name.startswith(head.without)]:
            del weights[name]
        if not head.automatic:
            notes.append(f"no automatic class of transformers loads a head for choices: load it with {head.model}")
        return tensors
    if not names.pretraining:
        return {}
    if model.objective is None or model.head_drawn:
        config["architectures"] = [names.bare]
        lacked = names.absent.get(f"{HEAD}head.", "head")
        notes.append(f"{lacked} was not trained, so it is not exported: load the model with AutoModel")
        return {}
    state = model.objective.state_dict()
    return {theirs: state[ours].detach().float().cpu() for ours, theirs in names.pretraining.items()}


def _write_folder(out: Path, files: dict[str, bytes], tensors: dict[str, Tensor]) -> None:
    """Writes a folder atomically: into a temporary one, then renamed."""
    out = out.absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
            aside = Path(scratch) / out.name
            aside.mkdir()
            for name, data in files.items():
                write_new(aside / name, data)
            write_new(aside / "model.safetensors", tensors, {"format": "pt"})
            if out.exists():
                out.rmdir()
            aside.rename(out)
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror or error}); nothing was left behind") from None


# -- config.json to our [model] ----------------------------------------------------------------------------------------


def model_of(config: Json, system: System, names: HubNames, where: Path) -> ModelConfig:
    """The trunk that config.json, at `where`, describes."""
    for key, values in names.only.items():
        value = config.get(key, values[0])
        refuse_if(
            value not in values, f"{where}: {key} is {value!r}, but {system.name} here supports only {values[0]!r}"
        )
    model: Any = system.sizes["paper"].model
    changes = _numbers(config, system, names, where) | _words(config, system, names, where)
    inner = config.get("n_inner")
    refuse_if(
        inner is not None and inner != 4 * changes["width"],
        f"{where}: n_inner is {inner}, but {system.name} here supports only 4 × n_embd",
    )
    if changes.get("inner") == 4 * changes["width"]:
        changes["inner"] = 0  # as in our sizes
    if names.after_padding:
        before = _padding(config, names, where) + 1
        changes |= {"context": changes["context"] - before, "first_position": min(before, model.first_position)}
    described: ModelConfig = dataclasses.replace(model, **changes | _dropout(config, names, where))
    check_in(described, where)
    return described


def check_in(model: ModelConfig, where: Path) -> None:
    """UserError, naming the file, if no model can have this shape."""
    try:
        model.check()
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def rows_before(config: Json, names: HubNames, model: Any, where: Path) -> int:
    """Rows of their position table before ours. Where they count positions from the padding id on, the first rows
    belong to no position."""
    return _padding(config, names, where) + 1 - int(model.first_position) if names.after_padding else 0


def _numbers(config: Json, system: System, names: HubNames, where: Path) -> Toml:
    model = system.sizes["paper"].model
    numbers: Toml = {}
    for ours, theirs in names.shape.items():
        value = _number(_given(config, theirs, names, where), theirs, type(getattr(model, ours)), where)
        least = names.least.get(theirs, value)
        refuse_if(value < least, f"{where}: {theirs} is {value}, but {system.name} here needs at least {least}")
        numbers[ours] = value
    rows = numbers["vocabulary"]
    refuse_if(rows < 1, f"{where}: {names.shape['vocabulary']} is {rows}; get the file again")
    return numbers


def _words(config: Json, system: System, names: HubNames, where: Path) -> dict[str, str]:
    settings = {}
    for ours, (key, words) in names.worded.items():
        word = _given(config, key, names, where)
        refuse_if(
            not isinstance(word, str) or word not in words,
            f"{where}: {key} is {word!r}, but {system.name} here supports only {', '.join(map(repr, words))}",
        )
        settings[ours] = words[word]
    return settings


def _given(config: Json, key: str, names: HubNames, where: Path) -> Any:
    refuse_if(key not in config and key not in names.defaults, f"{where}: {key} is missing; get the file again")
    value = config.get(key, names.defaults.get(key))
    return names.defaults[key] if value is None and key in names.unsaid else value


def _dropout(config: Json, names: HubNames, where: Path) -> dict[str, float]:
    """Our single dropout; empty if none is given."""
    given = {key: names.defaults[key] for key in names.dropouts if key in names.defaults} | dict(config)
    dropouts = {key: _number(given[key], key, float, where) for key in names.dropouts if key in given}
    listing = ", ".join(f"{key} {value}" for key, value in dropouts.items())
    refuse_if(
        len(set(dropouts.values())) > 1, f"{where}: {listing}: here one dropout is used in all places; make them equal"
    )
    return {"dropout": next(iter(dropouts.values()))} if dropouts else {}


def _padding(config: Json, names: HubNames, where: Path) -> int:
    padding: int = _number(_given(config, "pad_token_id", names, where), "pad_token_id", int, where)
    refuse_if(padding < 0, f"{where}: pad_token_id is {padding}, but positions are counted from it; get the file again")
    return padding


def _number(value: Any, key: str, wanted: type, where: Path) -> Any:
    """A number of the expected type; other JSON values are refused."""
    refuse_if(
        isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST_NUMBER < value < _MOST_NUMBER,
        f"{where}: {key} must be a number, not {str(value)[:40]}; get the file again",
    )
    refuse_if(wanted(value) != value, f"{where}: {key} must be a whole number, not {value!r}; get the file again")
    return wanted(value)


# -- our [model] to config.json ----------------------------------------------------------------------------------------


def table_for(model: SavedModel) -> HubNames:
    """The table to export a model with. Of several, it is the first whose required settings the model has; UserError if
    none fits."""
    name = model.system.name
    tables = (TABLES[name],) if name in TABLES else WRITTEN_AS.get(name, ())
    refuse_if(not tables, f"{model.system.name} has no counterpart in transformers to export to")
    settings: Any = model.model_config
    unlike = [[name for name, value in table.must.items() if getattr(settings, name) != value] for table in tables]
    nearest = min(range(len(tables)), key=lambda number: len(unlike[number]))
    table, differs = tables[nearest], unlike[nearest]
    if differs:
        theirs = " ".join(f"--set model.{name}={_toml(table.must[name])}" for name in differs)
        raise UserError(
            f"this run cannot be exported: its model.{differs[0]} is {_toml(getattr(settings, differs[0]))}, which "
            f"{table.model_type} of transformers does not have; pre-train with {theirs} to export"
        )
    refuse_if(
        model.task is not None and not table.heads,
        f"the head of a fine-tuned {model.system.name} cannot be exported: the heads of {table.model_type} in "
        "transformers have no bias; export the pre-trained run",
    )
    return table


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_exportable(model: SavedModel, names: HubNames, weights: Mapping[str, Tensor]) -> None:
    """UserError for settings of [model] that transformers' models do not have."""
    papers, settings = model.system.sizes["paper"].model, model.model_config
    different = [field for field in names.fixed if getattr(settings, field) != getattr(papers, field)]
    if not different and names.names(settings.layers).keys() != weights.keys():
        different = ["embedding"]  # ALBERT's may have any width, but must exist
    if different:
        raise UserError(
            f"this run's model.{different[0]} differs from {model.system.name}'s own, and transformers has no such "
            "model; it cannot be exported"
        )
    for field, (key, words) in names.worded.items():
        refuse_if(
            getattr(settings, field) not in words.values(),
            f"this run's model.{field} is {getattr(settings, field)}, which transformers' {names.model_type} does not "
            f"support as {key}; it cannot be exported",
        )


def config_of(model: SavedModel, names: HubNames) -> Json:
    """config.json of the language model."""
    shape: Any = model.model_config
    config: Json = {"architectures": [names.language_model], "model_type": names.model_type}
    config |= {theirs: getattr(shape, ours) for ours, theirs in names.shape.items()}
    if "inner" in names.shape and not shape.inner:
        config[names.shape["inner"]] = 4 * shape.width
    config |= {key: sizes(shape)[what] for key, what in names.derived.items()}
    config |= dict.fromkeys(names.dropouts, shape.dropout)
    config |= {key: values[0] for key, values in names.only.items()}
    for ours, (key, words) in names.worded.items():
        config[key] = next(theirs for theirs, word in words.items() if word == getattr(shape, ours))
    config |= {"tie_word_embeddings": True, "torch_dtype": "float32"}
    config |= {key: special_of(model.tokenizer, role) for key, role in names.ids.items()}
    if names.after_padding:
        config["pad_token_id"] = padding_id(model)
        config[names.shape["context"]] += padding_id(model) + 1
    return config


def padding_id(model: SavedModel) -> int:
    """The id from which they count positions; if there is no padding token, one that keeps our positions."""
    shape: Any = model.model_config
    padding = special_of(model.tokenizer, "pad")
    return int(shape.first_position) - 1 if padding is None else padding
