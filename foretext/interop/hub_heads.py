"""Heads of fine-tuned models as `transformers` has them, by the tables in `systems/hub_names.py`.

A head is a few named parameters, whatever the task: `head`, for some a `dense` layer before it. A task that reads every
token (tags, spans) is exported by the same function as one that reads a whole text; it needs `kind`, its parameters
under these names, and in [task] the labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from foretext.errors import UserError
from foretext.interop.hub_tokenizer import padding_of
from foretext.runs.model import SavedModel
from foretext.systems.hub_names import HubHead, HubNames
from foretext.tasks.row_family import spread_of

_READ = {  # by `transfer.pooling`
    "extract": "one token's state",
    "mean": "the mean of all states",
    "pooler": "one token's state through the pooler",
}


def head_of(model: SavedModel, names: HubNames) -> HubHead:
    """Their head for the task of this model; UserError if they have none that is the same function."""
    task: Any = model.task
    if model.sections["transfer"].model != "linear":
        raise UserError(
            "the task's own model (transfer.model=recurrent) has no counterpart in transformers; fine-tune with "
            "--set transfer.model=linear to export"
        )
    head = names.heads.get(task.kind)
    if head is None or model.task_config.arrangement not in names.heads:
        what = f"{task.kind} of pairs" if head else task.kind
        raise UserError(f"transformers has no head for {what}; it has for {', '.join(names.heads)}")
    pooling, hidden = getattr(task, "pooling", ""), getattr(task, "dense", None) is not None
    settings = []
    if head.pooling and pooling != head.pooling:
        settings.append(f"--set transfer.pooling={head.pooling}")
    if hidden != head.hidden:
        settings.append(f"--set transfer.head={'hidden' if head.hidden else 'random'}")
    if settings:
        read = _READ.get(pooling, "each token's state") + (" through a tanh layer" if hidden else "")
        raise UserError(
            f"the head of this model reads {read}, and transformers' reads {head.reads or 'each state as it is'}; "
            f"fine-tune with {' '.join(settings)} to export"
        )
    return head


def head_tensors(
    model: SavedModel, names: HubNames, head: HubHead, weights: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The head by their names, and what config.json says about it. A bias that their head does not have goes into the
    trunk's `weights`."""
    task: Any = model.task
    config = model.task_config
    own = {name: tensor.detach().double().cpu() for name, tensor in task.state_dict().items()}
    if task.kind == "regression":
        deviation = config.deviation * spread_of(config, task)
        own["head.weight"] = own["head.weight"] * deviation
        own["head.bias"] = own["head.bias"] * deviation + config.mean
    if "head.bias" not in head.names:
        last = names.last_bias.format(last=model.model_config.layers - 1)
        weights[last] = (weights[last].double() + _folded(own["head.weight"], own["head.bias"])).float()
    tensors = {theirs: own[ours].float().contiguous() for ours, theirs in head.names.items()}
    described = _described(head, task.kind, config.labels, len(own["head.weight"]))
    padding = padding_of(model.tokenizer)
    if padding is not None and "pad_token_id" not in names.ids and task.kind != "choice":
        described["pad_token_id"] = model.tokenizer.specials[padding]
    return tensors, described


def _folded(weight: Tensor, bias: Tensor) -> Tensor:
    """Their head for labels is a matrix W without a bias on the last token's state. Ours has a bias c; since W has full
    row rank there is a d with W d = c, and d goes into the vector that is added last before the head."""
    shift = torch.linalg.lstsq(weight, bias[:, None]).solution[:, 0]
    if not torch.allclose(weight @ shift, bias, atol=1e-6, rtol=1e-6):
        raise UserError("the head's rows are not independent, so its bias cannot be exported; fine-tune again")
    return shift


def _described(head: HubHead, kind: str, labels: Sequence[str], outputs: int) -> dict[str, Any]:
    described: dict[str, Any] = {"architectures": [head.model], "num_labels": outputs, **head.settings}
    if kind == "regression":
        return described | {"problem_type": "regression"}
    if kind in ("choice", "span"):
        return described
    if kind != "tagging":
        described["problem_type"] = "single_label_classification"
    return described | _names_of(labels)


def _names_of(labels: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
