"""Reads weights that others wrote, without running any of their code.

safetensors (one file, or several named by an index) is the safe format. Pickled weights (`.bin`, `.pt`, `.ckpt`) can
run code when they are loaded, so they are refused. `allow_pickle` reads them with torch's restricted loader, which
creates only tensors and plain containers.

`FolderTensors` takes the tensors of a Hugging Face folder by a table of names: one after the other, each checked, none
left over.

`head_of` and `head_tensors` write heads of fine-tuned models in transformers' format, by the tables in
`hub_names.py`. A head is a few named parameters, whatever the task: `head`, and for some a `dense` layer before
it. A task over tokens (tags, spans) is exported by the same function as one over whole texts; it needs `kind`, its
parameters under these names, and the labels in [task].
"""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foretext.config import Json
from foretext.errors import UserError, refuse_if
from foretext.interop.hub_names import HubHead, HubNames, Theirs
from foretext.nn.trunk import ModelConfig
from foretext.runs.model import SavedModel
from foretext.tasks.row_family import spread_of

_MAX_HEADER = 100_000_000
_MAX_JSON = 500_000_000
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
PICKLE = "pytorch_model.bin"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # number formats of weights that can be read


def read_json(path: Path) -> Json:
    """The JSON object in a file."""
    data = any_json(path)
    refuse_if(not isinstance(data, dict), f"{path}: must hold one JSON object; get the file again")
    return data


def any_json(path: Path) -> Any:
    refuse_if(not path.exists(), f"{path}: missing; the folder is incomplete")
    refuse_if(
        not path.is_file() or path.stat().st_size > _MAX_JSON,
        f"{path}: not a file of JSON, or one larger than 500 MB; get the file again",
    )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error}); get the file again") from None


def read_weights(folder: Path, allow_pickle: bool = False) -> tuple[dict[str, Tensor], str]:
    """The tensors of a folder, and the file to name in messages about them."""
    if (folder / WEIGHTS).is_file():
        return read_safetensors(folder / WEIGHTS), str(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_pieces(folder), str(folder / INDEX)
    pickles = sorted(path for path in folder.iterdir() if path.suffix in _PICKLES and path.is_file())
    refuse_if(not pickles, f"{folder}: no weights here; it needs {WEIGHTS} or {INDEX}")
    refuse_if(
        not allow_pickle,
        f"{pickles[0]}: pickled weights can run code when they are loaded, so they are refused; if you trust them, "
        "convert them to safetensors, or read them with the restricted loader (--allow-pickle)",
    )
    whole = folder / PICKLE if (folder / PICKLE).is_file() else pickles[0]
    names = ", ".join(path.name for path in pickles[:4])
    refuse_if(
        whole.name != PICKLE and len(pickles) > 1,
        f"{folder}: which of {names} holds the weights? Name that one {PICKLE}",
    )
    return _read_pickle(whole), str(whole)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        with path.open("rb") as file:
            refuse_if(
                int.from_bytes(file.read(8), "little") > _MAX_HEADER,
                f"{path}: refused: its header is larger than 100 MB; get the file again",
            )
        return load_file(path)
    except (SafetensorError, ValueError, OverflowError, OSError) as error:
        raise UserError(f"{path}: not a complete safetensors file ({error}); get the file again") from None


def _read_pieces(folder: Path) -> dict[str, Tensor]:
    """Weights in several files, named by an index."""
    index = folder / INDEX
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{index}: field 'weight_map' must name a file for each weight; get the file again")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(names.values())):
        plain = Path(name).name == name and name.endswith(".safetensors")
        refuse_if(not plain, f"{index}: {name!r} is not the name of a .safetensors file beside it")
        exists = (folder / name).is_file()
        refuse_if(not exists, f"{folder / name}: missing, though {INDEX} names it; get the file again")
        tensors |= read_safetensors(folder / name)
    for name, file in names.items():
        lost = f"{folder / file}: does not contain {name}, though {INDEX} says so; get the file again"
        refuse_if(name not in tensors, lost)
    return tensors


def _is_plain(value: object) -> bool:
    """Whether a tensor has all of its numbers: one that repeats a few through its strides could fill any memory."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta:
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about types that the restricted loader may not know; it refuses those
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a malformed stream breaks the loader in many ways; none of them runs code
        forbidden = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {forbidden[1]}" if forbidden else "it is not a plain file of tensors"
        raise UserError(
            f"{path}: refused by the restricted loader, which creates tensors only: {reason}; no code in it was run"
        ) from None
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    refuse_if(
        not isinstance(loaded, dict) or not all(_is_plain(value) for value in loaded.values()),
        f"{path}: does not contain a dictionary of plain tensors; give the weights alone",
    )
    return {str(name): tensor for name, tensor in loaded.items()}


# -- by a table of names ----------------------------------------------------------------------------------------------


def parts_of(theirs: Theirs) -> tuple[str, ...]:
    return (theirs,) if isinstance(theirs, str) else theirs


_TABLE = "differs from the token table, and a separate output table is not supported"
_BIAS = "differs from the head's bias, which is not supported"


class FolderTensors:
    """Names are known with and without the prefix. `model`: our configuration; `where`: the file to name in
    messages."""

    def __init__(self, tensors: Mapping[str, Tensor], names: HubNames, model: ModelConfig, where: str) -> None:
        self.written = {names.plain(name): name for name in tensors}
        self.left = {plain: tensors[name] for plain, name in self.written.items()}
        self.names, self.model, self.where = names, model, where

    def present(self, wanted: Mapping[str, Theirs]) -> dict[str, Theirs]:
        """`wanted` without the optional parts of which this folder has nothing."""
        held = [ours for ours, theirs in wanted.items() if any(name in self.left for name in parts_of(theirs))]
        lacking = tuple(start for start in self.names.absent if not any(ours.startswith(start) for ours in held))
        return {ours: theirs for ours, theirs in wanted.items() if not ours.startswith(lacking)}

    def take(self, ours: str, theirs: Theirs, shape: list[int]) -> Tensor:
        """One of our parameters. Errors about a key or shape use the file's own name."""
        parts = parts_of(theirs)
        transposed = self.names.is_transposed(ours)
        wanted = [shape[0] // len(parts), *shape[1:]]
        wanted = wanted[::-1] if transposed else wanted
        their_shape = self.names.shape_of(ours, self.model) or wanted
        tensors = [self._taken(name, self.names.whole(ours, name), their_shape).reshape(wanted) for name in parts]
        whole = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        return (whole.t() if transposed else whole).contiguous()

    def _taken(self, name: str, shown: str, shape: list[int]) -> Tensor:
        tensor = self.left.pop(name, None)
        if tensor is None:
            raise UserError(f"{self.where}: {shown} is missing; get the file again")
        actual, kind = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        refuse_if(actual != shape, f"{self.where}: {shown} has shape {actual}, but config.json needs {shape}")
        refuse_if(
            tensor.dtype not in FLOATS,
            f"{self.where}: {shown} is {kind}, not float32, float16 or bfloat16; get the file again",
        )
        tensor = tensor.float()
        refuse_if(
            not bool(torch.isfinite(tensor).all()),
            f"{self.where}: {shown} holds non-finite numbers; get the file again",
        )
        return tensor

    def finish(self, weights: Mapping[str, Tensor]) -> None:
        """UserError for leftover tensors, except copies of `weights`, buffers, and tensors not used here."""
        for copy, ours in self.names.copies.items():
            if ours in weights and copy in self.left:
                same = torch.equal(self.left.pop(copy).float(), weights[ours])
                what = _TABLE if ours == "tokens.weight" else _BIAS
                refuse_if(not same, f"{self.where}: {copy} {what}")
        of_use = (name for name in self.left if not name.startswith(self.names.ignored))
        left = [self.written[name] for name in sorted(of_use) if not name.endswith(self.names.empty)]
        refuse_if(
            left,
            f"{self.where}: {''.join(left[:1])} does not belong to {self.names.language_model} with the shape in "
            "config.json; get both files again, or save the language model without other heads",
        )


def by_their_names(weights: Mapping[str, Tensor], names: HubNames, model: ModelConfig) -> dict[str, Tensor]:
    """The trunk's weights under a folder's names; those not in `weights` are left out."""
    tensors: dict[str, Tensor] = {}
    for ours, theirs in names.names(model.layers).items():
        if ours not in weights:
            continue
        whole = weights[ours].t() if names.is_transposed(ours) else weights[ours]
        parts = parts_of(theirs)
        for name, part in zip(parts, whole.chunk(len(parts))):
            shape = names.shape_of(ours, model) or part.shape
            # A file cannot hold views of one tensor.
            tensors[names.whole(ours, name)] = (part.clone() if len(parts) > 1 else part).reshape(shape).contiguous()
    return tensors


_READ = {  # by `transfer.pooling`
    "extract": "one token's state",
    "mean": "the mean of all states",
    "pooler": "one token's state through the pooler",
}


def head_of(model: SavedModel, names: HubNames) -> HubHead:
    """Their head for this model's task; UserError if they have no equivalent one."""
    task: Any = model.task
    refuse_if(
        model.finetuned.transfer.model != "linear",
        "a task model (transfer.model=recurrent) has no counterpart in transformers; fine-tune with --set "
        "transfer.model=linear to export",
    )
    head = names.heads.get(task.kind)
    if head is None or model.task_config.arrangement not in names.heads:
        what = f"{task.kind} of pairs" if head else task.kind
        raise UserError(f"transformers has no head for {what}; it has heads for {', '.join(names.heads)}")
    pooling, hidden = getattr(task, "pooling", ""), getattr(task, "dense", None) is not None
    settings = []
    if head.pooling and pooling != head.pooling:
        settings.append(f"--set transfer.pooling={head.pooling}")
    if hidden != head.hidden:
        settings.append(f"--set transfer.head={'hidden' if head.hidden else 'random'}")
    if settings:
        read = _READ.get(pooling, "each token's state") + (" through a tanh layer" if hidden else "")
        raise UserError(
            f"the head of this model reads {read}, but transformers' reads {head.state or 'each state as it is'}; "
            f"fine-tune with {' '.join(settings)} to export"
        )
    return head


def head_tensors(
    model: SavedModel, names: HubNames, head: HubHead, weights: dict[str, Tensor]
) -> tuple[dict[str, Tensor], Json]:
    """The head under their names, and its settings for config.json. A bias that their head lacks is folded into the
    trunk's `weights`."""
    task: Any = model.task
    config = model.task_config
    parameters = {name: tensor.detach().double().cpu() for name, tensor in task.state_dict().items()}
    if task.kind == "regression":
        deviation = config.deviation * spread_of(config, task)
        parameters["head.weight"] = parameters["head.weight"] * deviation
        parameters["head.bias"] = parameters["head.bias"] * deviation + config.mean
    if "head.bias" not in head.names:
        last = names.last_bias.format(last=model.model_config.layers - 1)
        weights[last] = (weights[last].double() + _folded(parameters["head.weight"], parameters["head.bias"])).float()
    tensors = {theirs: parameters[ours].float().contiguous() for ours, theirs in head.names.items()}
    described = _described(head, task.kind, config.labels, len(parameters["head.weight"]))
    return tensors, described


def _folded(weight: Tensor, bias: Tensor) -> Tensor:
    """Their head for labels is a matrix W without a bias on the last token's state. Ours has a bias c. Since W has full
    row rank, there is a d with W d = c, and d is added to the last vector that is added before the head."""
    shift = torch.linalg.lstsq(weight, bias[:, None]).solution[:, 0]
    refuse_if(
        not torch.allclose(weight @ shift, bias, atol=1e-6, rtol=1e-6),
        "the head's rows are not independent, so its bias cannot be exported; fine-tune again",
    )
    return shift


def _described(head: HubHead, kind: str, labels: Sequence[str], outputs: int) -> Json:
    described: Json = {"architectures": [head.model], "num_labels": outputs, **head.settings}
    if kind not in ("choice", "span", "tagging"):
        described["problem_type"] = "regression" if kind == "regression" else "single_label_classification"
    if kind not in ("choice", "span", "regression"):
        described["id2label"] = {str(number): label for number, label in enumerate(labels)}
        described["label2id"] = {label: number for number, label in enumerate(labels)}
    return described
