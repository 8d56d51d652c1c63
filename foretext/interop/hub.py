"""Weights in and out of Hugging Face folders, for every system that has a table of names (`systems/hub.py`)."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foretext.errors import UserError
from foretext.interop.foreign import read_json, read_weights
from foretext.interop.hub_tokenizer import padding_of, read_tokenizer, tokenizer_files
from foretext.nn.model_config import ModelConfig
from foretext.systems import SYSTEMS
from foretext.systems.base import System
from foretext.systems.hub import HubNames
from foretext.tasks.supervised import SupervisedTask
from foretext.text.tokenizer import Tokenizer
from foretext.train.commit import write_staged
from foretext.train.saved import SavedModel, check_amount

MOST_NUMBER = 1e15  # in a config.json
EXPORTED = ("classification", "entailment", "regression", "choice")  # kinds whose head `transformers` has


@dataclass(frozen=True)
class Foreign:
    """A pre-trained model of someone else's, in our terms."""

    system: System
    model: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]  # the trunk's, by our names
    where: str  # the file of the weights


# -- in --------------------------------------------------------------------------------------------------------------


def read_hub(folder: Path, allow_pickle: bool = False) -> Foreign:
    """A folder with config.json, weights and a tokenizer."""
    config = read_json(folder / "config.json")
    system, names = _system_of(config, folder / "config.json")
    model = _model_of(config, system, names, folder / "config.json")
    tensors, where = read_weights(folder, allow_pickle)
    weights = _ours(tensors, system, names, model, where)
    return Foreign(system, model, read_tokenizer(folder, model.vocabulary, config), weights, where)


def _system_of(config: dict[str, Any], where: Path) -> tuple[System, HubNames]:
    known = {system.hub.model_type: system for system in SYSTEMS.values() if system.hub is not None}
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        raise UserError(f"{where}: model_type {kind!r} cannot be read; {', '.join(known)} can")
    system = known[kind]
    assert system.hub is not None
    return system, system.hub


def _model_of(config: dict[str, Any], system: System, names: HubNames, where: Path) -> ModelConfig:
    for key, values in names.only.items():
        if key in config and config[key] not in values:
            raise UserError(
                f"{where}: {key} is {config[key]!r}, which {system.name} here cannot be (only {values[0]!r})"
            )
    model: Any = system.sizes["paper"].model
    changes: dict[str, Any] = {}
    for ours, theirs in names.shape.items():
        if theirs not in config:
            if theirs in ("layer_norm_epsilon", "initializer_range"):
                continue  # the reference's defaults are ours
            raise UserError(f"{where}: {theirs} is missing; get the file again")
        changes[ours] = _number(config[theirs], theirs, type(getattr(model, ours)), where)
    if changes["vocabulary"] < 1:
        raise UserError(f"{where}: {names.shape['vocabulary']} is {changes['vocabulary']}; get the file again")
    inner = config.get("n_inner")
    if inner is not None and inner != 4 * changes["width"]:
        raise UserError(f"{where}: n_inner is {inner}, which {system.name} here cannot be (only 4 × n_embd)")
    dropouts = {key: _number(config[key], key, float, where) for key in names.dropouts if key in config}
    if len(set(dropouts.values())) > 1:
        different = ", ".join(f"{key} {value}" for key, value in dropouts.items())
        raise UserError(f"{where}: {different}: here one dropout serves all places; make them equal")
    if dropouts:
        changes["dropout"] = next(iter(dropouts.values()))
    found = dataclasses.replace(model, **changes)
    try:
        found.check()
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return found


def _number(value: Any, key: str, wanted: type, where: Path) -> Any:
    """A number of the wanted type; whatever else JSON can hold is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST_NUMBER < value < MOST_NUMBER:
        raise UserError(f"{where}: {key} must be a number, not {str(value)[:40]}; get the file again")
    if wanted(value) != value:
        raise UserError(f"{where}: {key} must be a whole number, not {value!r}; get the file again")
    return wanted(value)


def _ours(
    tensors: dict[str, Tensor], system: System, names: HubNames, model: ModelConfig, where: str
) -> dict[str, Tensor]:
    """The trunk's weights by our names; a key or shape that does not fit is named as the file has it."""
    plain = {name.removeprefix(names.prefix): tensor for name, tensor in tensors.items()}
    written = {name.removeprefix(names.prefix): name for name in tensors}
    check_amount(model, tensors, where, "config.json")  # before a trunk is made
    trunk = shapes_of(system, model)
    weights: dict[str, Tensor] = {}
    for ours, theirs in names.names(model.layers).items():
        tensor = plain.pop(theirs, None)
        if tensor is None:
            raise UserError(f"{where}: {names.prefix}{theirs} is missing; get the file again")
        tensor = tensor.float()
        if names.is_transposed(ours):
            tensor = tensor.t()
        if list(tensor.shape) != trunk[ours]:
            wanted = trunk[ours][::-1] if names.is_transposed(ours) else trunk[ours]
            found = list(tensor.t().shape) if names.is_transposed(ours) else list(tensor.shape)
            raise UserError(f"{where}: {names.prefix}{theirs} has shape {found}, where config.json needs {wanted}")
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{where}: {names.prefix}{theirs} holds numbers that are not finite; get the file again")
        weights[ours] = tensor.contiguous()
    for copy in names.copies:
        if copy in plain and not torch.equal(plain.pop(copy).float(), weights["tokens.weight"]):
            raise UserError(f"{where}: {copy} is not the token table, and an output table of its own cannot be read")
    left = sorted(name for name in plain if not name.endswith(names.empty))
    if left:
        raise UserError(
            f"{where}: {written[left[0]]} has no place in {names.language_model} of the shape in config.json; get both "
            "again, or save the language model without other heads"
        )
    return weights


def shapes_of(system: System, model: ModelConfig) -> dict[str, list[int]]:
    """The shape of each of the trunk's weights, without drawing any."""
    with torch.device("meta"):
        return {name: list(tensor.shape) for name, tensor in system.build_trunk(model).state_dict().items()}


# -- out -------------------------------------------------------------------------------------------------------------


def export_hub(model: SavedModel, out: Path) -> list[str]:
    """Writes a folder that `transformers` loads offline; returns what a user must know about it."""
    names = model.system.hub
    if names is None:
        raise UserError(f"{model.system.name} has no counterpart in transformers to export to")
    if model.info.direction == "backward":
        raise UserError("a right-to-left model cannot be exported: transformers would feed it text from left to right")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not an empty folder; choose another --out")
    weights = {name: tensor.detach().float().cpu() for name, tensor in model.trunk.state_dict().items()}
    if set(names.names(model.model_config.layers)) != set(weights):
        raise UserError(
            f"this run's model.norm is not {model.system.name}'s own, and transformers has no such model; "
            "it cannot be exported"
        )
    config = _config_of(model, names)
    notes = []
    if model.task is not None:
        config |= _head(model, names, weights)
        if model.task.kind == "choice":
            notes.append(f"no automatic class of transformers loads a head for choices: load it by {names.chooser}")
    tensors = _theirs(weights, names, model.model_config.layers)
    files, more = tokenizer_files(model.tokenizer, model.model_config.context, delimited=model.task is not None)
    files["config.json"] = (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode()
    _write_folder(out, files, tensors)
    return notes + more


def _config_of(model: SavedModel, names: HubNames) -> dict[str, Any]:
    shape = model.model_config
    config: dict[str, Any] = {"architectures": [names.language_model], "model_type": names.model_type}
    config |= {theirs: getattr(shape, ours) for ours, theirs in names.shape.items()}
    config |= dict.fromkeys(names.dropouts, shape.dropout)
    config |= {key: values[0] for key, values in names.only.items()}
    config |= {"tie_word_embeddings": True, "torch_dtype": "float32"}
    end = model.tokenizer.end
    return config | {"bos_token_id": end, "eos_token_id": end}


def _head(model: SavedModel, names: HubNames, weights: dict[str, Tensor]) -> dict[str, Any]:
    """The head, put into `weights`, and what config.json says about it.

    Their head for labels is a matrix without a bias on the last token's state. Ours has a bias c; since W has full row
    rank there is a d with W d = c, and d goes into the vector that is added last before the head. Their head for
    choices is ours.
    """
    task, config = model.task, model.task_config
    if config.kind not in EXPORTED:
        raise UserError(f"transformers has no head for {config.kind}; it has for {', '.join(EXPORTED)}")
    assert isinstance(task, SupervisedTask)
    if task.pooling != "extract":
        raise UserError(
            "the head of this model reads the mean of all states, and transformers' reads the last one alone; "
            "fine-tune with --set transfer.pooling=extract to export"
        )
    weight, bias = task.head.weight.detach().double().cpu(), task.head.bias.detach().double().cpu()
    if task.kind == "choice":
        weights |= {f"{CHOICE_HEAD}.weight": weight.float(), f"{CHOICE_HEAD}.bias": bias.float()}
        return {"architectures": [names.chooser], "num_labels": 1, **_CHOICE_SETTINGS}
    if task.kind == "regression":
        weight, bias = weight * config.deviation, bias * config.deviation + config.mean
    shift = torch.linalg.lstsq(weight, bias[:, None]).solution[:, 0]
    if not torch.allclose(weight @ shift, bias, atol=1e-6, rtol=1e-6):
        raise UserError("the head's rows are not independent, so its bias cannot be exported; fine-tune again")
    last = names.last_bias.format(last=model.model_config.layers - 1)
    weights[last] = (weights[last].double() + shift).float()
    weights[HEAD] = weight.float()
    padding = padding_of(model.tokenizer)
    described: dict[str, Any] = {"architectures": [names.classifier], "num_labels": len(weight)}
    if padding is not None:
        described["pad_token_id"] = model.tokenizer.specials[padding]
    if task.kind == "regression":
        return described | {"problem_type": "regression"}
    return described | {
        "problem_type": "single_label_classification",
        "id2label": {str(number): label for number, label in enumerate(config.labels)},
        "label2id": {label: number for number, label in enumerate(config.labels)},
    }


HEAD = "score.weight"
CHOICE_HEAD = "multiple_choice_head.summary"
_CHOICE_SETTINGS = {
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_activation": None,
}


def _theirs(weights: dict[str, Tensor], names: HubNames, layers: int) -> dict[str, Tensor]:
    tensors = {}
    for ours, theirs in names.names(layers).items():
        tensor = weights[ours].t() if names.is_transposed(ours) else weights[ours]
        tensors[names.prefix + theirs] = tensor.contiguous()
    heads = (HEAD, f"{CHOICE_HEAD}.weight", f"{CHOICE_HEAD}.bias")
    return tensors | {name: weights[name].contiguous() for name in heads if name in weights}


def _write_folder(out: Path, files: dict[str, bytes], tensors: dict[str, Tensor]) -> None:
    """All or nothing: made aside, then renamed."""
    out = out.absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            aside.chmod(0o777 & ~_umask())
            for name, data in files.items():
                write_staged(aside, name, data)
            write_staged(aside, "model.safetensors", tensors, {"format": "pt"})
            if out.exists():
                out.rmdir()
            aside.rename(out)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror or error}); nothing was left behind") from None


def _umask() -> int:
    now = os.umask(0o022)
    os.umask(now)
    return now
