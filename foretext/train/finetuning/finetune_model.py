"""The model to fine-tune, built from the base and the transfer plan, and the learning rate of each of its parts."""

from __future__ import annotations

import torch

from foretext.errors import UserError
from foretext.nn.trunk import Trunk
from foretext.runs.model import SavedModel, build_task, need_trained_head
from foretext.runs.run_config import FinetuneConfig
from foretext.systems.base import TrunkParts
from foretext.train.finetuning.finetune_request import FinetuneRequest
from foretext.train.loop import step_seed
from foretext.train.optim import Group, Optimizer, Rows, layered_names, split_rows


def build_finetuned(request: FinetuneRequest, config: FinetuneConfig) -> SavedModel:
    """The model to train: base weights (all, some layers, or none), new special tokens, a new head."""
    base, system = request.start, request.start.system
    task = config.task
    torch.manual_seed(step_seed(request.seed, 0, 1 << 20))
    tokenizer = base.tokenizer.with_specials(system.specials)
    trunk = system.build_trunk(TrunkParts(config.model, tokenizer, task.softmax, config.run.direction))
    if task.from_scratch:
        _copy(base.trunk, trunk, _fixed(base.trunk))
    else:
        _transfer(base.trunk, trunk, config.transfer.layers)
        if task.softmax and base.objective is not None:
            need_trained_head(base, "the language-model loss")
            base.objective.give_softmax(trunk)
    head = build_task(system, config, tokenizer, config.model.head_dropout)
    if base.vectors is not None and config.transfer.reader.given:
        head.put_vectors(base.vectors)
    elif base.vectors is not None:  # after the base's own vectors, which were drawn
        trunk.put_vectors(base.vectors)
    head.check(trunk)
    return SavedModel(None, config, system, tokenizer, trunk, head)


def _transfer(source: Trunk, target: Trunk, layers: int) -> None:
    """Copies the embeddings, the weights that never learn, and the first `layers` blocks (−1: all). Embeddings of new
    special tokens stay as drawn."""
    groups = source.layer_groups()
    blocks = len(groups) - 1
    if layers > blocks or layers < -1:
        raise UserError(
            f"layers must be between 0 and {blocks}, the number of blocks of the pre-trained model, not {layers}"
        )
    names = {name for group in groups[: (blocks if layers == -1 else layers) + 1] for name in group}
    _copy(source, target, names | _fixed(source))


def _fixed(trunk: Trunk) -> set[str]:
    """Weights that never learn but are saved with the others: CoVe's word vectors."""
    return {name for name, _ in trunk.named_buffers()} & trunk.state_dict().keys()


def _copy(source: Trunk, target: Trunk, names: set[str]) -> None:
    old, new = source.state_dict(), target.state_dict()
    with torch.no_grad():
        for name in names:
            new[name][: len(old[name])].copy_(old[name])


def optimizer_of(model: SavedModel, base: SavedModel, per_epoch: int) -> Optimizer:
    plan = model.finetuned.transfer
    names = [*layered_names(model.trunk), [f"task.{name}" for name, _ in model.head.named_parameters()]]
    parameters = {f"trunk.{name}": p for name, p in model.trunk.named_parameters()}
    parameters |= {f"task.{name}": p for name, p in model.head.named_parameters()}
    count, steps = len(names), model.finetuned.updates
    groups = [
        Group(own, plan.rate_factor(i, count), plan.thaws_at(i, count, steps, per_epoch)) for i, own in enumerate(names)
    ]
    rows: dict[str, Rows] = {}
    if any((group.factor, group.thaws_at) != (groups[-1].factor, groups[-1].thaws_at) for group in groups):
        for name, first in _new_rows(base.trunk, model.trunk).items():
            rows |= split_rows(groups, f"trunk.{name}", first, len(parameters[f"trunk.{name}"]))
    return Optimizer(model.finetuned.training, parameters, groups, rows)


def _new_rows(source: Trunk, target: Trunk) -> dict[str, int]:
    """The weights with rows for tokens that the pre-trained model does not know, and the first of these rows."""
    old, new = dict(source.named_parameters()), dict(target.named_parameters())
    return {name: len(old[name]) for name in new if name in old and len(old[name]) < len(new[name])}
