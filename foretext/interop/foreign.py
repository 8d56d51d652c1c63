"""Reading weights that others wrote, without running anything of theirs.

safetensors (one file, or pieces named by an index) is the safe way. Pickled weights (`.bin`, `.pt`, `.ckpt`) can run
any code when they are loaded, so they are refused; `allow_pickle` reads them with torch's restricted loader, which
makes tensors and plain containers and nothing else.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foretext.errors import UserError, refuse_if

_MAX_HEADER = 100_000_000
_MAX_JSON = 500_000_000
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
PICKLE = "pytorch_model.bin"


def read_json(path: Path) -> dict[str, Any]:
    """A file with one JSON object in it."""
    data = any_json(path)
    refuse_if(not isinstance(data, dict), f"{path}: must hold one JSON object; get the file again")
    return data


def any_json(path: Path) -> Any:
    refuse_if(not path.exists(), f"{path}: missing; the folder is not whole")
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
        f"{pickles[0]}: pickled weights can run code when they are loaded, so they are refused; convert them to "
        "safetensors where you trust them, or read them with the restricted loader by --allow-pickle",
    )
    whole = folder / PICKLE if (folder / PICKLE).is_file() else pickles[0]
    names = ", ".join(path.name for path in pickles[:4])
    several = whole.name != PICKLE and len(pickles) > 1
    refuse_if(several, f"{folder}: which of {names} holds the weights? Name that one {PICKLE}")
    return _read_pickle(whole), str(whole)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        with path.open("rb") as file:
            refuse_if(
                int.from_bytes(file.read(8), "little") > _MAX_HEADER,
                f"{path}: refused: the header is larger than 100 MB; get the file again",
            )
        return load_file(path)
    except (SafetensorError, ValueError, OverflowError, OSError) as error:
        raise UserError(f"{path}: not a whole safetensors file ({error}); get the file again") from None


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
        there = (folder / name).is_file()
        refuse_if(not there, f"{folder / name}: missing, though {INDEX} names it; get the file again")
        tensors |= read_safetensors(folder / name)
    for name, file in names.items():
        lost = f"{folder / file}: {name} is not in it, though {INDEX} says so; get the file again"
        refuse_if(name not in tensors, lost)
    return tensors


def _is_plain(value: object) -> bool:
    """A tensor that has all of its numbers: one that repeats a few by its strides could fill any memory."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta:
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the restricted loader may not know; it refuses that
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a malformed stream breaks the loader in any of a dozen ways; none of them runs it
        found = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {found[1]}" if found else "it is not a plain file of tensors"
        raise UserError(
            f"{path}: refused by the restricted loader, which makes tensors only: {reason}; nothing in it was run"
        ) from None
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    refuse_if(
        not isinstance(loaded, dict) or not all(_is_plain(value) for value in loaded.values()),
        f"{path}: does not hold a dictionary of plain tensors; give the weights alone",
    )
    return {str(name): tensor for name, tensor in loaded.items()}
