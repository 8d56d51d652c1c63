"""Fine-tuning: labelled rows and a pre-trained run in, a task model out. The loop is that of pre-training."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foretext.config import Change, Setting, apply_sets
from foretext.errors import Interrupted, UserError
from foretext.plan import TransferPlan
from foretext.systems import size_named
from foretext.systems.base import Size, TrainingConfig
from foretext.tasks.formats import find_format
from foretext.tasks.labels import LabelSet, label_warnings
from foretext.tasks.metrics import check_metric, metrics_of
from foretext.tasks.rows import Row
from foretext.tasks.splits import DEFAULT_FRACTION, hold_out
from foretext.tasks.supervised import Example, SupervisedTask
from foretext.text.order import Order
from foretext.train.budget import Budget
from foretext.train.checks import check_seed, check_sets, check_training, check_transfer
from foretext.train.examples import encode_rows
from foretext.train.loop import Job, Loop, has_begun, is_finished, step_seed
from foretext.train.machine import out_of_memory_as_user_error, tune_allocator
from foretext.train.optim import Group, Optimizer
from foretext.train.planning import (
    SMALLER_RUN,
    Memory,
    check_disk,
    check_memory,
    describe_finetuning,
    finetuning_memory,
)
from foretext.train.pretrain import choose_device, draw_missing_curve, write_curve
from foretext.train.pretrain_request import MICRO_TOKENS
from foretext.train.probe import fit_head
from foretext.train.report import Reporter, Silent, Warns
from foretext.train.resume import agreed_sections, finished, going_on
from foretext.train.rundir import RunDirectory, RunWriter
from foretext.train.saved import (
    RunConfig,
    SavedModel,
    TaskConfig,
    build_task,
    config_text,
    load_model,
    open_run,
    read_config,
)
from foretext.train.scoring import label_loss, score_rows, task_scores
from foretext.train.signals import NeverStop, StopRequest
from foretext.train.undo import starts_over, writing

MOST_EPOCHS = 20  # that few rows can lead to


@dataclass(frozen=True)
class FinetuneRequest:
    """What a user asks for. `rows` hold the training examples; `valid` None holds some of them out."""

    base: SavedModel
    rows: Sequence[Row]
    kind: str
    out: Path | None = None  # None: nothing is written
    valid: Sequence[Row] | None = None
    seed: int = 0
    epochs: int | None = None
    lm_weight: float | None = None
    layers: int | None = None
    from_scratch: bool = False
    columns: dict[str, str] | None = None
    format: str | None = None
    metric: str | None = None  # what the best epoch is chosen by; None: the format's or the kind's own
    hold_out: float | None = None  # the part of the rows to validate on where `valid` is None; None: .15
    sets: tuple[str | Setting, ...] = ()  # section.key=value, or what a file says; the last counts
    resume: bool = False
    device: str = "auto"


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
        _resolve(request, *_split(request, Silent()), run, changes.append)
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
    train, valid = _split(request, reporter)
    sections = _resolve(
        request, train, valid, writer.run if writer else None, lambda change: reporter.note(going_on(change))
    )
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

    examples = encode_rows(train, model, about_rows, work)
    held_out = encode_rows(valid, model, about_rows, work)
    order = Order(len(examples), training.batch_size, request.seed)
    epochs = sections["task"].epochs
    micro = training.micro_batch or max(1, MICRO_TOKENS // max(example.tokens for example in examples))
    micro = min(micro, training.batch_size)
    if device.type == "cpu":
        memory = finetuning_memory(micro, sections["model"], examples, held_out)
        check_memory(memory, SMALLER_RUN, built=True)
    model.trunk.to(device)
    model.task.to(device)
    if sections["transfer"].head == "probe" and not goes_on:
        assert isinstance(model.task, SupervisedTask)
        with out_of_memory_as_user_error(micro):
            fit_head(
                model.trunk, model.task, examples, device, request.seed, functools.partial(work, "fitting the head")
            )
    job = Job(
        trunk=model.trunk,
        objective=model.task,
        example=lambda epoch, index: examples[index],
        order=order,
        optimizer=_optimizer(training, sections["transfer"], model),
        config=training,
        budget=Budget(steps=epochs * order.steps_per_epoch),
        seed=request.seed,
        micro_batch=micro,
        device=device,
        evaluate=_validator(model, held_out, valid, device),
        evaluate_every=order.steps_per_epoch,
        keep_best="main" if held_out else None,
    )
    loop = Loop(job, writer, reporter, stopping)
    if writer is not None:
        check_disk(writer.run, job)
    with out_of_memory_as_user_error(micro):
        if writer is not None:
            _open_run(writer, sections, model, loop)
        reporter.plan(f"fine-tuning for {request.kind}", describe_finetuning(loop, sections, examples, held_out))
        loop.run()
    model.trunk.eval()
    model.task.eval()
    return model


def _open_run(writer: RunWriter, sections: dict[str, Any], model: SavedModel, loop: Loop) -> None:
    loop.restore()
    files = {"config.toml": config_text(sections).encode()}
    if not writer.run.has("tokenizer.json"):
        files["tokenizer.json"] = model.tokenizer.to_json().encode()
    writer.commit(files)
    model.run = writer.run


# -- data ------------------------------------------------------------------------------------------------------------


def _split(request: FinetuneRequest, reporter: Reporter) -> tuple[Sequence[Row], Sequence[Row]]:
    if not request.rows:
        raise UserError("there are no rows to fine-tune on")
    for row in [*request.rows, *(request.valid or ())]:
        if row.label is None:
            raise UserError(f"{row.where}: no label; every row to fine-tune or validate on needs one")
    if request.kind not in ("regression", "choice"):
        for warning in label_warnings(request.rows):
            reporter.note(warning)
    if request.valid is not None:
        return request.rows, request.valid
    part = DEFAULT_FRACTION if request.hold_out is None else request.hold_out
    split = hold_out(request.rows, fraction=part, seed=request.seed)
    if split.note:
        reporter.note(split.note)
    return split.train, split.valid


# -- model -----------------------------------------------------------------------------------------------------------


def _settings(
    request: FinetuneRequest, size: Size, old: dict[str, Any] | None
) -> tuple[TrainingConfig, TransferPlan, int]:
    """How to train, how to transfer, and the epochs asked for (0: not said). A resumed run keeps what is not given."""
    check_seed(request.seed)
    given = {"lm_weight": request.lm_weight, "layers": request.layers}
    said = {
        f"transfer.{name}": f"--{name.replace('_', '-')} says" for name, value in given.items() if value is not None
    }
    check_sets(request.sets, said)
    start = {"training": size.finetuning, "transfer": size.transfer}
    sections = apply_sets({name: old[name] for name in start} if old else start, request.sets)
    check_training(sections["training"])
    transfer: TransferPlan = dataclasses.replace(
        sections["transfer"], **{name: value for name, value in given.items() if value is not None}
    )
    check_transfer(transfer)
    if request.from_scratch and request.layers is not None:
        raise UserError("--layers says what is transferred and --from-scratch that nothing is; leave one out")
    if request.epochs is not None and request.epochs < 1:
        raise UserError(f"epochs must be at least 1, not {request.epochs}")
    return sections["training"], transfer, request.epochs or (old["task"].epochs if old else 0)


def _resolve(
    request: FinetuneRequest,
    train: Sequence[Row],
    valid: Sequence[Row],
    run: RunDirectory | None,
    note: Callable[[Change], None],
) -> dict[str, Any]:
    """The resolved configuration. When going on, the run's own, after comparing: `note` gets each change."""
    base = request.base
    size = size_named(base.system, base.info.size)
    old = read_config(run) if run is not None and run.has("config.toml") else None
    training, transfer, epochs = _settings(request, size, old)
    task = dataclasses.replace(
        _task_config(request, train, old),
        epochs=epochs or default_epochs(size, len(train), training),
        from_scratch=request.from_scratch or (old is not None and old["task"].from_scratch),
        rows=rows_fingerprint([*train, *valid]),
    )
    tokenizer = base.tokenizer.with_specials(base.system.specials)
    sections = {
        "run": RunConfig(
            "finetune", base.info.system, base.info.size, base.info.direction, request.seed, tokenizer.fingerprint()
        ),
        "model": dataclasses.replace(base.model_config, vocabulary=tokenizer.size, dropout=training.dropout),
        "training": training,
        "budget": Budget(steps=task.epochs * -(-len(train) // training.batch_size)),
        "transfer": transfer,
        "task": task,
    }
    if old is None:
        return sections
    assert run is not None
    _check_same_data(old, sections, run.path)
    return agreed_sections(old, sections, run.path, note)


def _build(request: FinetuneRequest, sections: dict[str, Any]) -> SavedModel:
    """The model to train: base weights (all, some layers, or none), new special tokens, a new head."""
    base, system = request.base, request.base.system
    model, transfer, task = sections["model"], sections["transfer"], sections["task"]
    torch.manual_seed(step_seed(request.seed, 0, 1 << 20))
    trunk = system.build_trunk(model)
    if not task.from_scratch:
        _transfer(base.trunk, trunk, transfer.layers)
    head = build_task(task, model, transfer, sections["training"].dropout)
    return SavedModel(None, sections, system, base.tokenizer.with_specials(system.specials), trunk, head)


def rows_fingerprint(rows: Sequence[Row]) -> str:
    """What tells one set of rows from another: their texts and labels, in order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([*row.texts, row.label]).encode())
    return digest.hexdigest()[:16]


def _check_same_data(old: dict[str, Any], new: dict[str, Any], where: Path) -> None:
    """Going on with other rows or another vocabulary would give a model of neither."""
    if old["run"].tokenizer != new["run"].tokenizer:
        raise UserError(f"{where}: begun with another tokenizer; name the same RUN and rows, or start a new run")
    # Another seed holds out other rows; it is refused by its name, after this.
    if old["task"].rows and old["task"].rows != new["task"].rows and old["run"].seed == new["run"].seed:
        raise UserError(
            f"{where}: the rows are not those it was begun with; give the same files, --valid and --hold-out, or start "
            "a new run"
        )


def default_epochs(size: Size, rows: int, training: TrainingConfig) -> int:
    """The size's epochs; more where the rows are so few that these would give fewer than the size's least updates."""
    per_epoch = -(-rows // training.batch_size)
    return max(size.epochs, min(MOST_EPOCHS, -(-size.least_updates // per_epoch)))


def _task_config(request: FinetuneRequest, train: Sequence[Row], old: dict[str, Any] | None) -> TaskConfig:
    config = TaskConfig(
        kind=request.kind,
        columns=dict(request.columns or {}),
        format=request.format,
        base=str(request.base.run.path) if request.base.run else None,
    )
    if request.kind == "regression":
        values = [float(row.label) for row in train if row.label is not None]
        mean, deviation = statistics.fmean(values), statistics.pstdev(values) or 1.0
        config = dataclasses.replace(config, texts=len(train[0].texts), mean=mean, deviation=deviation)
    elif request.kind == "choice":
        config = dataclasses.replace(config, choices=max(len(row.texts) - 1 for row in train))
    else:
        config = dataclasses.replace(config, labels=LabelSet.from_rows(train).names)
    return dataclasses.replace(config, metric=_metric(request, len(config.labels), old))


def _metric(request: FinetuneRequest, classes: int, old: dict[str, Any] | None) -> str | None:
    """What the best epoch is chosen by: what is asked for, or what a run that goes on has, or the layout's."""
    allowed = metrics_of(request.kind, classes)
    if request.metric is not None:
        check_metric(request.metric, allowed)
        return request.metric
    if old is not None:
        metric: str | None = old["task"].metric
        return metric
    published = find_format(request.format).metric if request.format else None
    return published if published in allowed else None


def _transfer(source: nn.Module, target: nn.Module, layers: int) -> None:
    """Copies the embeddings and the first `layers` blocks (−1: all); rows of new special tokens stay as drawn."""
    groups = source.layer_groups()  # type: ignore[operator]
    blocks = len(groups) - 1
    if layers > blocks or layers < -1:
        raise UserError(f"layers must be between 0 and {blocks}, the blocks of the pre-trained model, not {layers}")
    names = {name for group in groups[: (blocks if layers == -1 else layers) + 1] for name in group}
    old, new = source.state_dict(), target.state_dict()
    with torch.no_grad():
        for name in names:
            new[name][: len(old[name])].copy_(old[name])


def _optimizer(config: TrainingConfig, plan: TransferPlan, model: SavedModel) -> Optimizer:
    assert model.task is not None
    groups = [[f"trunk.{name}" for name in group] for group in model.trunk.layer_groups()]  # type: ignore[operator]
    groups.append([f"task.{name}" for name, _ in model.task.named_parameters()])
    parameters = {f"trunk.{name}": p for name, p in model.trunk.named_parameters()}
    parameters |= {f"task.{name}": p for name, p in model.task.named_parameters()}
    count = len(groups)
    return Optimizer(
        config,
        parameters,
        [Group(names, plan.rate_factor(i, count), plan.thaws_at(i, count)) for i, names in enumerate(groups)],
    )


def _validator(model: SavedModel, examples: Sequence[Example], rows: Sequence[Row], device: torch.device) -> Any:
    task = model.task
    assert isinstance(task, SupervisedTask)

    def evaluate() -> dict[str, float]:
        if not examples:
            return {}
        scores = task_scores(model.trunk, task, examples, device)
        result = score_rows(model, rows, scores)
        loss = label_loss(model, examples, scores)
        # Among epochs of equal score (frequent with few rows) the one with the lower loss is the better one.
        return {"main": result.main_value - 1e-6 * min(loss, 1e3), "loss": loss} | result.values

    return evaluate
