"""Fine-tuning: labelled rows and a pre-trained run in, a task model out. The loop is that of pre-training."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from foretext.config import Change
from foretext.errors import Interrupted, UserError
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Objective, Stock
from foretext.plan import TransferPlan
from foretext.runs.budget import has_begun, is_finished
from foretext.runs.directory import RunWriter
from foretext.runs.loss_curve import draw_missing_curve, write_curve
from foretext.runs.machine import choose_device, out_of_memory_as_user_error, tune_allocator
from foretext.runs.model import (
    SavedModel,
    build_task,
    config_text,
    load_model,
    need_trained_head,
    open_run,
    read_config,
)
from foretext.runs.report import Reporter, Silent, Warns
from foretext.runs.scoring import example_scores
from foretext.systems.base import TrainingConfig, TrunkParts
from foretext.tasks.families import family_of
from foretext.tasks.family import Encoded, Family
from foretext.tasks.splits import DEFAULT_FRACTION
from foretext.train.finetuning.examples import all_examples, encode
from foretext.train.finetuning.finetune_request import (
    FinetuneRequest,
    not_followed,
    resolve,
    set_length,
    size_of,
    unused_head,
)
from foretext.train.from_run import layered_names
from foretext.train.loop import Job, Loop, Stage, step_seed
from foretext.train.optim import Group, Optimizer, Rows, split_rows
from foretext.train.planning import (
    SMALLER_RUN,
    Memory,
    check_disk,
    check_memory,
    describe_finetuning,
    finetuning_memory,
)
from foretext.train.pretraining.pretrain_request import MICRO_TOKENS
from foretext.train.resume import finished, going_on
from foretext.train.signals import NeverStop, StopRequest
from foretext.train.starting_over import starts_over, writing

NORMED_TOKENS = 8 * MICRO_TOKENS  # statistics of two long documents are worth less than what the cache gives


def finetune(
    request: FinetuneRequest, reporter: Reporter | None = None, stopping: StopRequest | None = None
) -> SavedModel:
    """Fine-tunes and returns the model with the weights of its best epoch on the validation rows."""
    about_rows: Reporter = reporter or Warns()
    reporter, stopping = reporter or Silent(), stopping or NeverStop()
    tune_allocator()
    if request.out is None:
        return _train(request, None, reporter, about_rows, stopping)
    run = open_run(request.out)
    if request.resume and run.has("config.toml") and read_config(run)["run"].kind != "finetune":
        raise UserError(f"{run.path} is a pre-trained run, which is not gone on with here; choose another --out")
    over = starts_over(run, request.resume)
    if request.resume and is_finished(run):
        changes: list[Change] = []
        family = family_of(request.kind)
        resolve(request, family, *_split(request, family, Silent()), run, changes.append)
        reporter.note(finished(run.path, changes))
        draw_missing_curve(run, reporter.note)
        return load_model(run.path)
    with writing(run, reporter.note, over) as writer:
        model = _train(request, writer, reporter, about_rows, stopping)
        write_curve(run)
    return model


def _train(
    request: FinetuneRequest,
    writer: RunWriter | None,
    reporter: Reporter,
    about_rows: Reporter,
    stopping: StopRequest,
) -> SavedModel:
    family = family_of(request.kind)
    train, valid = _split(request, family, reporter)
    run = writer.run if writer else None
    sections = resolve(request, family, train, valid, run, lambda change: reporter.note(going_on(change)))
    for said in (*unused_head(request, family), *not_followed(request, sections)):
        reporter.note(said)
    device = choose_device(request.device)
    if device.type == "cpu":
        check_memory(Memory(sections["model"], 1, 1), SMALLER_RUN)  # the weights; once more when the rows are encoded
    model = _build(request, sections)
    training: TrainingConfig = sections["training"]
    assert model.task is not None
    goes_on = writer is not None and has_begun(writer.run)

    def work(title: str, done: int, total: int) -> None:
        """Before training a signal ends the work at once: there is nothing to save that is not saved."""
        reporter.work(title, done, total)
        if stopping.requested is not None:
            raise Interrupted(stopping.requested, str(writer.run.path) if writer is not None and goes_on else None)

    learned = encode(train, model, about_rows, work)
    held_out = encode(valid, model, about_rows, work)
    examples = learned.examples
    if not examples:
        raise UserError("no word of the rows has a piece in the vocabulary of this run; use another run, or --system")
    stock = all_examples(request, model, examples, about_rows, work)
    order = model.task.order(stock, training.batch_size, request.seed)
    if not goes_on:
        model.task.meet(examples)
    set_length(sections, size_of(request), len(examples), order)
    micro = training.micro_batch or rows_at_a_time(model.task, stock)
    micro = min(micro, training.batch_size)
    if device.type == "cpu":
        memory = finetuning_memory(micro, sections["model"], model.task, stock, held_out)
        check_memory(memory, SMALLER_RUN, built=True)
    model.trunk.to(device)
    model.task.to(device)
    if sections["transfer"].head == "probe" and not goes_on:
        with out_of_memory_as_user_error(micro):
            fitting = functools.partial(work, "fitting the head")
            model.task.fit_head(model.trunk, examples, device, request.seed, fitting)
    job = Job(
        trunk=model.trunk,
        objective=model.task,
        stages=(Stage(stock.example, order, micro, _validator(model, held_out, device)),),
        optimizer=_optimizer(sections, model, request.base, order.steps_per_epoch),
        config=training,
        budget=sections["budget"],
        seed=request.seed,
        device=device,
        evaluate_every=order.steps_per_epoch,
        keep_best="main" if valid else None,
    )
    loop = Loop(job, writer, reporter, stopping)
    if writer is not None:
        check_disk(writer.run, job)
    with out_of_memory_as_user_error(micro):
        if writer is not None:
            _open_run(writer, sections, model, loop)
        reporter.plan(f"fine-tuning for {request.kind}", describe_finetuning(loop, sections, learned, held_out, stock))
        loop.run()
    model.trunk.eval()
    model.task.eval()
    return model


def rows_at_a_time(task: Objective, stock: Stock) -> int:
    """As many examples as hold about `MICRO_TOKENS` that are learned from; more where batch norm compares them."""
    most = NORMED_TOKENS if task.norms_rows else MICRO_TOKENS
    return max(1, most // max(task.learned_tokens(example) for example in stock.rows))


def _open_run(writer: RunWriter, sections: dict[str, Any], model: SavedModel, loop: Loop) -> None:
    loop.restore()
    files = {"config.toml": config_text(sections).encode()}
    if not writer.run.has("tokenizer.json"):
        files["tokenizer.json"] = model.tokenizer.to_json().encode()
    writer.commit(files)
    model.run = writer.run


# -- data ------------------------------------------------------------------------------------------------------------


def _split(request: FinetuneRequest, family: Family, reporter: Reporter) -> tuple[Sequence[Any], Sequence[Any]]:
    if not request.rows:
        raise UserError("there are no rows to fine-tune on")
    remarks = family.check(request.rows, request.kind)
    family.check(request.valid or (), request.kind)
    for remark in remarks:
        reporter.note(remark)
    if request.valid is not None:
        return request.rows, request.valid
    part = DEFAULT_FRACTION if request.hold_out is None else request.hold_out
    split = family.hold_out(request.rows, part, request.seed)
    if split.note:
        reporter.note(split.note)
    return split.train, split.valid


# -- model -----------------------------------------------------------------------------------------------------------


def _build(request: FinetuneRequest, sections: dict[str, Any]) -> SavedModel:
    """The model to train: base weights (all, some layers, or none), new special tokens, a new head."""
    base, system = request.base, request.base.system
    model, transfer, task = sections["model"], sections["transfer"], sections["task"]
    torch.manual_seed(step_seed(request.seed, 0, 1 << 20))
    tokenizer = base.tokenizer.with_specials(system.specials)
    trunk = system.build_trunk(TrunkParts(model, tokenizer, task.softmax, sections["run"].direction))
    if task.from_scratch:
        _copy(base.trunk, trunk, _fixed(base.trunk))
    else:
        _transfer(base.trunk, trunk, transfer.layers)
        if task.softmax and base.objective is not None:
            need_trained_head(base, "the language-model loss")
            base.objective.give_softmax(trunk)
    if base.vectors is not None:  # after the base's own, which were drawn
        trunk.put_vectors(base.vectors)
    head = build_task(system, sections, tokenizer, model.head_dropout)
    head.check(trunk)
    return SavedModel(None, sections, system, tokenizer, trunk, head)


def _transfer(source: Trunk, target: Trunk, layers: int) -> None:
    """Copies the embeddings, what never learns, and the first `layers` blocks (−1: all); rows of new special tokens
    stay as drawn."""
    groups = source.layer_groups()
    blocks = len(groups) - 1
    if layers > blocks or layers < -1:
        raise UserError(f"layers must be between 0 and {blocks}, the blocks of the pre-trained model, not {layers}")
    names = {name for group in groups[: (blocks if layers == -1 else layers) + 1] for name in group}
    _copy(source, target, names | _fixed(source))


def _fixed(trunk: Trunk) -> set[str]:
    """What never learns and is kept with the weights: CoVe's word vectors."""
    return {name for name, _ in trunk.named_buffers()} & trunk.state_dict().keys()


def _copy(source: Trunk, target: Trunk, names: set[str]) -> None:
    old, new = source.state_dict(), target.state_dict()
    with torch.no_grad():
        for name in names:
            new[name][: len(old[name])].copy_(old[name])


def _optimizer(sections: dict[str, Any], model: SavedModel, base: SavedModel, per_epoch: int) -> Optimizer:
    plan: TransferPlan = sections["transfer"]
    assert model.task is not None
    names = [*layered_names(model.trunk), [f"task.{name}" for name, _ in model.task.named_parameters()]]
    parameters = {f"trunk.{name}": p for name, p in model.trunk.named_parameters()}
    parameters |= {f"task.{name}": p for name, p in model.task.named_parameters()}
    count, steps = len(names), sections["budget"].steps
    groups = [
        Group(own, plan.rate_factor(i, count), plan.thaws_at(i, count, steps, per_epoch)) for i, own in enumerate(names)
    ]
    rows: dict[str, Rows] = {}
    if any((group.factor, group.thaws_at) != (groups[-1].factor, groups[-1].thaws_at) for group in groups):
        for name, first in _new_rows(base.trunk, model.trunk).items():
            rows |= split_rows(groups, f"trunk.{name}", first, len(parameters[f"trunk.{name}"]))
    return Optimizer(sections["training"], parameters, groups, rows)


def _new_rows(source: Trunk, target: Trunk) -> dict[str, int]:
    """The weights that have rows for tokens which the pre-trained model does not know, and the first of these rows."""
    old, new = dict(source.named_parameters()), dict(target.named_parameters())
    return {name: len(old[name]) for name in new if name in old and len(old[name]) < len(new[name])}


def _validator(model: SavedModel, held_out: Encoded, device: torch.device) -> Any:
    config, task = model.task_config, model.task
    family = family_of(config.kind)
    assert task is not None

    def evaluate() -> dict[str, float]:
        if not held_out.rows:
            return {}
        scores = example_scores(model.trunk, task, held_out.examples, device)
        family.settle(held_out, scores, config, task)
        result = family.score(held_out.rows, family.predictions(held_out, scores, config, task), config)
        loss = family.loss(held_out, scores, config, task)
        return {"main": family.merit(result, loss, config), "loss": loss} | result.values

    return evaluate
