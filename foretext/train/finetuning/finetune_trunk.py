"""Training a trunk with its head: the model to fine-tune, built from the base and the transfer plan; the examples that
it learns from, and as many of them per micro-batch as fit; what the head takes from the rows before it learns; and the
learning rate of each part.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from foretext.errors import refuse_if
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Objective, Stock
from foretext.runs.commit import RunWriter
from foretext.runs.machine import choose_device, out_of_memory_as_user_error
from foretext.runs.model import SavedModel, build_task, need_trained_head
from foretext.runs.report import Note, Work
from foretext.runs.run_config import MICRO_TOKENS, Budget, FinetuneConfig
from foretext.systems.base import TrunkParts
from foretext.tasks.family import Encoded, Encoding, family_of
from foretext.tasks.layouts.windows import unlabelled_rows
from foretext.train.finetuning.finetune_request import FinetuneRequest
from foretext.train.finetuning.finetune_settings import learned_of, size_of, with_length
from foretext.train.loop import Job, Loop, Stage, step_seed
from foretext.train.optim import Group, Optimizer, Rows, layered_names, split_rows
from foretext.train.planning import SMALLER_RUN, check_disk, check_memory, finetuning_memory

Validator = Callable[[], dict[str, float]]
NORMED_TOKENS = 8 * MICRO_TOKENS  # batch norm needs many rows: its statistics matter more than fitting the cache

# -- the model ---------------------------------------------------------------------------------------------------------


def build_finetuned(request: FinetuneRequest, config: FinetuneConfig) -> SavedModel:
    """The model to train: base weights (all, some layers, or none), new special tokens, a new head."""
    base, system = request.base_model, request.base_model.system
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
    refuse_if(
        layers > blocks or layers < -1,
        f"layers must be between 0 and {blocks}, the number of blocks of the pre-trained model, not {layers}",
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


# -- what it learns from -----------------------------------------------------------------------------------------------


def stock_of(model: SavedModel, request: FinetuneRequest, examples: Sequence[Any], note: Note, work: Work) -> Stock:
    """What is learned from: the examples of the rows and, for systems whose heads use them, those of other tasks and of
    unlabelled text."""
    layout, tasks = model.layout, [examples]
    for other in request.also:
        encoding = Encoding(learned_of(other), model.tokenizer, layout)
        progress = functools.partial(work, "encoding")
        tasks.append(family_of(other.kind).encode(other.rows, encoding, True, note, progress).examples)
    text = () if model.finetuned.views is not None else request.unlabelled  # a view learns from it
    if not text:
        return model.head.stock(tasks)
    progress = functools.partial(work, "encoding text")
    return model.head.stock(tasks, unlabelled_rows(text, model.tokenizer, layout, note, progress))


def stage_of(
    model: SavedModel, request: FinetuneRequest, stock: Stock, held_out: Encoded, evaluate: Validator
) -> Stage:
    """The examples, their order, and as many rows per micro-batch as fit in memory."""
    training = model.finetuned.training
    order = model.head.order(stock, training.batch_size, request.seed)
    micro = min(training.micro_batch or rows_at_a_time(model.head, stock), training.batch_size)
    if choose_device(request.device).type == "cpu":
        memory = finetuning_memory(micro, model.model_config, model.head, stock, held_out)
        check_memory(memory, SMALLER_RUN, built=True)
    return Stage(stock.example, order, micro, evaluate)


def rows_at_a_time(task: Objective, stock: Stock) -> int:
    """As many examples as hold about `MICRO_TOKENS` trained tokens; more if batch norm compares them."""
    most = NORMED_TOKENS if task.norms_rows else MICRO_TOKENS
    return max(1, most // max(task.learned_tokens(example) for example in stock.rows))


def make_ready(
    model: SavedModel,
    request: FinetuneRequest,
    learned: Encoded,
    stage: Stage,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Sets how long it learns, moves it to its device and, unless a checkpoint has that (no `progress`), gives the head
    what it takes from the rows before it learns."""
    device = choose_device(request.device)
    model.config = with_length(model.finetuned, size_of(request), len(learned.examples), stage.order)
    model.trunk.to(device)
    model.head.to(device)
    if progress is None:
        return
    with out_of_memory_as_user_error(stage.micro_batch):
        model.head.meet(learned.examples)
        if model.finetuned.transfer.head == "probe":
            model.head.fit_head(model.trunk, learned.examples, device, request.seed, progress)


# -- the loop ----------------------------------------------------------------------------------------------------------


def job_of(model: SavedModel, request: FinetuneRequest, stage: Stage, keep_best: bool) -> Job:
    return Job(
        trunk=model.trunk,
        objective=model.head,
        stages=(stage,),
        optimizer=optimizer_of(model, request.base_model, stage.order.steps_per_epoch),
        config=model.finetuned.training,
        budget=Budget(steps=model.finetuned.updates),
        seed=request.seed,
        device=choose_device(request.device),
        evaluate_every=stage.order.steps_per_epoch,
        keep_best="main" if keep_best else None,
    )


def open_run(writer: RunWriter, model: SavedModel, loop: Loop) -> None:
    """Goes to the run's checkpoint, if there is one, and writes what it needs before the first."""
    check_disk(writer.run, loop.job)
    loop.restore()
    files = {"config.toml": model.config.text().encode()}
    if not writer.run.has("tokenizer.json"):
        files["tokenizer.json"] = model.tokenizer.to_json().encode()
    writer.commit(files)
    model.run = writer.run


def optimizer_of(model: SavedModel, base: SavedModel, per_epoch: int) -> Optimizer:
    plan = model.finetuned.transfer
    names = [*layered_names(model.trunk), [f"task.{name}" for name, _ in model.head.named_parameters()]]
    parameters = {f"trunk.{name}": p for name, p in model.trunk.named_parameters()}
    parameters |= {f"task.{name}": p for name, p in model.head.named_parameters()}
    count, steps = len(names), model.finetuned.updates
    groups = [
        Group(members, plan.rate_factor(number, count), plan.thaws_at(number, count, steps, per_epoch))
        for number, members in enumerate(names)
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
