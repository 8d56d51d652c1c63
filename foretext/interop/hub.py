"""Weights in and out of Hugging Face folders, for every system that has a table of names (`systems/hub.py`)."""

from __future__ import annotations

import dataclasses
import json
import shutil
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
from foretext.text.tokenizer import END, Tokenizer
from foretext.train.saved import SavedModel, check_amount

EXPORTED = ("classification", "entailment", "regression")  # kinds whose head `transformers` has


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
    model.check()
    tensors, where = read_weights(folder, allow_pickle)
    weights = _ours(tensors, system, names, model, where)
    return Foreign(system, model, read_tokenizer(folder, model.vocabulary), weights, where)


def _system_of(config: dict[str, Any], where: Path) -> tuple[System, HubNames]:
    known = {system.hub.model_type: system for system in SYSTEMS.values() if system.hub is not None}
    kind = config.get("model_type")
    if kind not in known:
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
        wanted = type(getattr(model, ours))
        value = config[theirs]
        if isinstance(value, bool) or not isinstance(value, int | float) or wanted(value) != value:
            raise UserError(f"{where}: {theirs} must be a number, not {value!r}; get the file again")
        changes[ours] = wanted(value)
    inner = config.get("n_inner")
    if inner is not None and inner != 4 * changes["width"]:
        raise UserError(f"{where}: n_inner is {inner}, which {system.name} here cannot be (only 4 × n_embd)")
    dropouts = {float(config[key]) for key in names.dropouts if key in config}
    if len(dropouts) == 1:
        changes["dropout"] = dropouts.pop()
    return dataclasses.replace(model, **changes)


def _ours(
    tensors: dict[str, Tensor], system: System, names: HubNames, model: ModelConfig, where: str
) -> dict[str, Tensor]:
    """The trunk's weights by our names; a key or shape that does not fit is named as the file has it."""
    plain = {name.removeprefix(names.prefix): tensor for name, tensor in tensors.items()}
    check_amount(model, tensors, where, "config.json")  # before a trunk is made
    trunk = {name: list(tensor.shape) for name, tensor in system.build_trunk(model).state_dict().items()}
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
        raise UserError(f"{where}: {left[0]} has no place in {names.language_model}; export the language model alone")
    return weights


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
    config = _config_of(model, names)
    if model.task is not None:
        config |= _classifier(model, names, weights)
    tensors = _theirs(weights, names, model.model_config.layers)
    files, notes = tokenizer_files(model.tokenizer, model.model_config.context, delimited=model.task is not None)
    files["config.json"] = (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode()
    _write_folder(out, files, tensors)
    return notes


def _config_of(model: SavedModel, names: HubNames) -> dict[str, Any]:
    shape = model.model_config
    config: dict[str, Any] = {"architectures": [names.language_model], "model_type": names.model_type}
    config |= {theirs: getattr(shape, ours) for ours, theirs in names.shape.items()}
    config |= dict.fromkeys(names.dropouts, shape.dropout)
    config |= {key: values[0] for key, values in names.only.items()}
    config |= {"tie_word_embeddings": True, "torch_dtype": "float32"}
    end = model.tokenizer.specials.get(END)
    return config | {"bos_token_id": end, "eos_token_id": end}


def _classifier(model: SavedModel, names: HubNames, weights: dict[str, Tensor]) -> dict[str, Any]:
    """The head, put into `weights`, and what config.json says about it.

    Theirs is a matrix without a bias on the last token's state. Ours has a bias c; since W has full row rank there is a
    d with W d = c, and d goes into the vector that is added last before the head.
    """
    task, config = model.task, model.task_config
    assert isinstance(task, SupervisedTask)
    if task.kind not in EXPORTED:
        raise UserError(f"transformers has no head for {task.kind}; it has for {', '.join(EXPORTED)}")
    if task.pooling != "extract":
        raise UserError(
            "the head of this model reads the mean of all states, and transformers' reads the last one alone; "
            "fine-tune with --set transfer.pooling=extract to export"
        )
    weight, bias = task.head.weight.detach().double().cpu(), task.head.bias.detach().double().cpu()
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


def _theirs(weights: dict[str, Tensor], names: HubNames, layers: int) -> dict[str, Tensor]:
    tensors = {}
    for ours, theirs in names.names(layers).items():
        tensor = weights[ours].t() if names.is_transposed(ours) else weights[ours]
        tensors[names.prefix + theirs] = tensor.contiguous()
    if HEAD in weights:
        tensors[HEAD] = weights[HEAD].contiguous()
    return tensors


def _write_folder(out: Path, files: dict[str, bytes], tensors: dict[str, Tensor]) -> None:
    """All or nothing: made aside, then renamed."""
    from safetensors.torch import save_file

    aside = out.with_name(out.name + ".part")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for name, data in files.items():
            (aside / name).write_bytes(data)
        save_file(tensors, aside / "model.safetensors", metadata={"format": "pt"})
        if out.exists():
            out.rmdir()
        aside.rename(out)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise UserError(f"{out}: cannot be written ({error.strerror or error}); nothing was left behind") from None
