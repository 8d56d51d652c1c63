"""The tensors of a Hugging Face folder by a table of names: taken one after the other, each checked, none left over."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from foretext.errors import UserError
from foretext.nn.model_config import ModelConfig
from foretext.systems.hub_names import HubNames, Theirs


def parts_of(theirs: Theirs) -> tuple[str, ...]:
    return (theirs,) if isinstance(theirs, str) else theirs


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # what weights may be stored as


class FolderTensors:
    """Names are known with and without the prefix. `model`: our configuration; `where`: the file to name in
    messages."""

    def __init__(self, tensors: Mapping[str, Tensor], names: HubNames, model: ModelConfig, where: str) -> None:
        self.left = {names.plain(name): tensor for name, tensor in tensors.items()}
        self.written = {names.plain(name): name for name in tensors}
        self.names, self.model, self.where = names, model, where

    def present(self, wanted: Mapping[str, Theirs]) -> dict[str, Theirs]:
        """`wanted` without the parts that a folder may lack and of which this one has nothing."""
        there = [ours for ours, theirs in wanted.items() if any(name in self.left for name in parts_of(theirs))]
        lacking = tuple(start for start in self.names.absent if not any(ours.startswith(start) for ours in there))
        return {ours: theirs for ours, theirs in wanted.items() if not ours.startswith(lacking)}

    def take(self, ours: str, theirs: Theirs, shape: list[int]) -> Tensor:
        """One of our parameters; a key or shape that does not fit is named as the file has it."""
        parts = parts_of(theirs)
        transposed = self.names.is_transposed(ours)
        wanted = [shape[0] // len(parts), *shape[1:]]
        wanted = wanted[::-1] if transposed else wanted
        there = self.names.shape_of(ours, self.model) or wanted
        found = [self._one(name, self.names.whole(ours, name), there).reshape(wanted) for name in parts]
        whole = found[0] if len(found) == 1 else torch.cat(found)
        return (whole.t() if transposed else whole).contiguous()

    def _one(self, name: str, shown: str, shape: list[int]) -> Tensor:
        tensor = self.left.pop(name, None)
        if tensor is None:
            raise UserError(f"{self.where}: {shown} is missing; get the file again")
        if list(tensor.shape) != shape:
            found = list(tensor.shape)
            raise UserError(f"{self.where}: {shown} has shape {found}, where config.json needs {shape}")
        if tensor.dtype not in FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise UserError(f"{self.where}: {shown} is {kind}, not float32, float16 or bfloat16; get the file again")
        tensor = tensor.float()
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{self.where}: {shown} holds numbers that are not finite; get the file again")
        return tensor

    def finish(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing may be left over but what repeats one of `weights`, is no weight, or is of no use here."""
        for copy, ours in self.names.copies.items():
            if ours in weights and copy in self.left:
                self._check_copy(copy, ours, self.left.pop(copy), weights[ours])
        of_no_use = self.names.ignored
        left = sorted(name for name in self.left if not name.endswith(self.names.empty))
        left = [name for name in left if not name.startswith(of_no_use)]
        if left:
            raise UserError(
                f"{self.where}: {self.written[left[0]]} has no place in {self.names.language_model} of the shape in "
                "config.json; get both again, or save the language model without other heads"
            )

    def _check_copy(self, copy: str, ours: str, found: Tensor, weight: Tensor) -> None:
        if torch.equal(found.float(), weight):
            return
        if ours == "tokens.weight":
            raise UserError(
                f"{self.where}: {copy} is not the token table, and an output table of its own cannot be read"
            )
        raise UserError(f"{self.where}: {copy} is no copy of the head's bias, and cannot be read beside it")


def by_their_names(weights: Mapping[str, Tensor], names: HubNames, model: ModelConfig) -> dict[str, Tensor]:
    """The trunk's weights as a folder has them; those that are not in `weights` are left out."""
    tensors: dict[str, Tensor] = {}
    for ours, theirs in names.names(model.layers).items():
        if ours not in weights:
            continue
        whole = weights[ours].t() if names.is_transposed(ours) else weights[ours]
        parts = parts_of(theirs)
        if len(parts) == 1:
            tensors[names.whole(ours, parts[0])] = whole.reshape(
                names.shape_of(ours, model) or whole.shape
            ).contiguous()
            continue
        for name, part in zip(parts, whole.chunk(len(parts))):
            tensors[names.whole(ours, name)] = part.clone()  # a file holds no views of one tensor
    return tensors
