"""Weights in and out of Hugging Face folders, for every system that has a table of names (`systems/hub_names.py`).

Besides the trunk's, our names include those of the head of the pre-training objective, which begin with `task.` as in
a run. A part that a folder may lack (`HubNames.absent`) is drawn anew, and import says so.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foretext.errors import UserError
from foretext.interop.foreign import read_json, read_weights
from foretext.interop.hub_config import check_exportable, config_of, model_of, padding_id, rows_before
from foretext.interop.hub_tensors import FolderTensors, by_their_names, head_of, head_tensors
from foretext.interop.hub_tokenizer import read_tokenizer, tokenizer_files
from foretext.nn.model_config import ModelConfig
from foretext.objectives.base import Objective
from foretext.runs.commit import write_new
from foretext.runs.model import SavedModel, check_amount
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, System, TrunkParts
from foretext.systems.hub_names import HEAD, HubNames
from foretext.tasks.layouts.base import FramedLayout
from foretext.text.corpus.text_files import umask
from foretext.text.tokenizers.base import Tokenizer

_POSITIONS = "positions.weight"
_DRAWS = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)


@dataclass(frozen=True)
class Foreign:
    """A pre-trained model of someone else's, in our terms."""

    system: System
    model: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]  # by our names
    where: str  # the file of the weights
    lacking: tuple[str, ...] = ()  # what the folder did not have, in words; it was drawn anew
    head_drawn: bool = False  # whether the head for masked tokens is among it
    notes: tuple[str, ...] = ()  # what a user must know


# -- in --------------------------------------------------------------------------------------------------------------


def read_hub(folder: Path, allow_pickle: bool = False) -> Foreign:
    """A folder with config.json, weights and a tokenizer."""
    said = folder / "config.json"
    config = read_json(said)
    system, names = _system_of(config, said)
    model = model_of(config, system, names, said)
    tensors, where = read_weights(folder, allow_pickle)
    notes: list[str] = []
    tokenizer = read_tokenizer(folder, model.vocabulary, config, names, notes)
    weights = _ours(tensors, system, names, model, where, tokenizer, rows_before(config, names, model, said))
    drawn = _drawn(system, model, tokenizer, weights)
    lacking = [words for start, words in names.absent.items() if any(name.startswith(start) for name in drawn)]
    head_drawn = any(name.startswith(f"{HEAD}head.") for name in drawn)
    return Foreign(system, model, tokenizer, weights | drawn, where, tuple(lacking), head_drawn, tuple(notes))


def _system_of(config: dict[str, Any], where: Path) -> tuple[System, HubNames]:
    known = {system.hub.model_type: system for system in SYSTEMS.values() if system.hub is not None}
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        raise UserError(f"{where}: model_type {kind!r} cannot be read; {', '.join(known)} can")
    system = known[kind]
    assert system.hub is not None
    return system, system.hub


def _ours(
    tensors: dict[str, Tensor],
    system: System,
    names: HubNames,
    model: ModelConfig,
    where: str,
    tokenizer: Tokenizer | None = None,
    before: int = 0,
) -> dict[str, Tensor]:
    """The weights by our names, without what the folder lacks: the trunk's and, with `tokenizer`, which a head is made
    for, the objective's. `before`: rows of their position table before ours."""
    check_amount(model, tensors, where, "config.json")  # before a trunk is made
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
    """Leaves tensors as they are where numbers would be drawn: on the meta device torch loads its compiler for that."""

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


def _drawn(
    system: System, model: ModelConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """What `weights` lack, as a new model has it; the same each time."""
    trunk, head = shapes_of(system, model), _head_shapes(system, model, tokenizer)
    new: dict[str, Tensor] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if not trunk.keys() <= weights.keys():  # a whole trunk takes its time, and most folders have it
            new |= system.build_trunk(TrunkParts(model)).state_dict()
        if not head.keys() <= weights.keys():
            new |= {HEAD + name: tensor for name, tensor in _objective(system, model, tokenizer).state_dict().items()}
    return {name: tensor for name, tensor in new.items() if name not in weights}


# -- out -------------------------------------------------------------------------------------------------------------


def export_hub(model: SavedModel, out: Path) -> list[str]:
    """Writes a folder that `transformers` loads offline; returns what a user must know about it."""
    names = model.system.hub
    if names is None:
        raise UserError(f"{model.system.name} has no counterpart in transformers to export to")
    if model.views is not None:
        raise UserError("a head over views has no counterpart in transformers; fine-tune with --views none to export")
    if model.info.direction == "backward":
        raise UserError("a right-to-left model cannot be exported: transformers would feed it text from left to right")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not an empty folder; choose another --out")
    weights = {name: tensor.detach().float().cpu() for name, tensor in model.trunk.state_dict().items()}
    check_exportable(model, names, weights)
    config, notes = config_of(model, names), list[str]()
    heads = _heads(model, names, weights, config, notes)
    if names.after_padding:
        weights[_POSITIONS] = _shifted(weights[_POSITIONS], model)
    tensors = by_their_names(weights, names, model.model_config) | heads
    framed = _layout(model)
    delimited = model.task is not None and framed is None
    files, more = tokenizer_files(model.tokenizer, model.model_config.context, delimited, framed)
    files["config.json"] = (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode()
    _write_folder(out, files, tensors)
    return notes + more


def _heads(
    model: SavedModel, names: HubNames, weights: dict[str, Tensor], config: dict[str, Any], notes: list[str]
) -> dict[str, Tensor]:
    """The head by their names: of the task, else of the pre-training. `weights`, `config` and `notes` are made to
    agree with it."""
    if model.task is not None:
        head = head_of(model, names)
        tensors, described = head_tensors(model, names, head, weights)
        config |= described
        for name in [name for name in weights if name.startswith(head.without)]:
            del weights[name]
        if not head.automatic:
            notes.append(f"no automatic class of transformers loads a head for choices: load it by {head.model}")
        return tensors
    if not names.pretraining:
        return {}
    if model.objective is None or model.head_drawn:
        config["architectures"] = [names.bare]
        lacked = names.absent.get(f"{HEAD}head.", "head")
        notes.append(f"no {lacked} was trained, so none is exported: load the model by AutoModel")
        return {}
    state = model.objective.state_dict()
    return {theirs: state[ours].detach().float().cpu() for ours, theirs in names.pretraining.items()}


def _layout(model: SavedModel) -> FramedLayout | None:
    """How a masked system joins texts."""
    if model.system.causal:
        return None
    layout = model.system.build_layout(dict(model.tokenizer.specials), model.model_config.context, "forward")
    assert isinstance(layout, FramedLayout)
    return layout


def _shifted(positions: Tensor, model: SavedModel) -> Tensor:
    """The position table with as many rows before the first position as there are ids up to the padding's."""
    shape: Any = model.model_config
    more = padding_id(model) + 1 - int(shape.first_position)
    return positions[-more:] if more <= 0 else torch.cat([positions.new_zeros(more, positions.shape[1]), positions])


def _write_folder(out: Path, files: dict[str, bytes], tensors: dict[str, Tensor]) -> None:
    """All or nothing: made aside, then renamed."""
    out = out.absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            aside.chmod(0o777 & ~umask())
            for name, data in files.items():
                write_new(aside / name, data)
            write_new(aside / "model.safetensors", tensors, {"format": "pt"})
            if out.exists():
                out.rmdir()
            aside.rename(out)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror or error}); nothing was left behind") from None
