"""The configuration of a fine-tuning: what follows from the request, from the rows and, going on, from the run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foretext.config import Change, apply_sets, setting_of
from foretext.errors import UserError
from foretext.plan import PAPER, ConcatPoolingConfig, TransferPlan, Way, way_named
from foretext.runs.budget import Budget
from foretext.runs.directory import RunDirectory
from foretext.runs.model import RunConfig, read_config
from foretext.systems import size_named
from foretext.systems.base import Size, TrainingConfig
from foretext.tasks.families import family_of
from foretext.tasks.family import Family
from foretext.tasks.scores.metrics import check_metric
from foretext.tasks.splits import Split
from foretext.tasks.task_config import TaskConfig
from foretext.text.order.sample_order import SampleOrder
from foretext.train.finetuning.finetune_request import FinetuneRequest, OtherTask
from foretext.train.resume import agreed_sections, check_seed, check_sets

MOST_EPOCHS = 20  # that few rows can lead to


def resolve(
    request: FinetuneRequest,
    family: Family,
    split: Split[Any],
    run: RunDirectory | None,
    note: Callable[[Change], None],
) -> dict[str, Any]:
    """The resolved configuration, but for how long it takes, which `set_length` puts in. When going on, the run's own,
    after comparing: `note` gets each change."""
    base = request.start
    check_asked(request)
    size = size_of(request)
    old = read_config(run) if run is not None and run.has("config.toml") else None
    training, transfer, pooling, objective, epochs = _settings(request, family, size, old)
    task = dataclasses.replace(
        _task_config(request, family, split.train, old),
        epochs=epochs,
        from_scratch=request.from_scratch or (old is not None and old["task"].from_scratch),
        rows=rows_fingerprint([*split.train, *split.valid], family),
        also={one.name: f"{one.kind} {len(learned_of(one).labels)}" for one in request.also},
        sentences=len(request.unlabelled),
        unlabelled=_more_fingerprint(request),
        softmax=_words(request, transfer),
    )
    tokenizer = base.tokenizer.with_specials(base.system.specials)
    sections: dict[str, Any] = {
        "run": RunConfig(
            "finetune", base.info.system, base.info.size, base.info.direction, request.seed, tokenizer.fingerprint()
        ),
        "model": dataclasses.replace(base.model_config, vocabulary=tokenizer.size, dropout=training.dropout),
        "training": training,
        "budget": old["budget"] if old else None,
        "transfer": transfer,
        **({} if pooling is None else {"pooling": pooling}),
        "task": task,
    }
    if base.system.build_head is not None:
        sections["objective"] = objective
    sections["model"].check()
    if old is None:
        return sections
    assert run is not None
    _check_same_data(old, sections, run.path)
    return agreed_sections(old, sections, run.path, note)


def size_of(request: FinetuneRequest) -> Size:
    """The size whose settings a fine-tuning starts with: the run's own, or the paper's."""
    return size_named(request.start.system, PAPER if request.plan == PAPER else request.start.info.size)


def _words(request: FinetuneRequest, transfer: TransferPlan) -> int:
    """How many words the language-model loss tells apart, where that needs a softmax which the trunk does not have."""
    base = request.start
    if not transfer.lm_weight or not base.system.softmax_apart:
        return 0
    return base.tokenizer.size if base.objective is None else base.objective.softmax_words()


def check_asked(request: FinetuneRequest) -> None:
    """UserError for what the system cannot be taught, or not so."""
    system = request.start.system
    if system.tasks and request.kind not in system.tasks:
        raise UserError(
            f"{system.name} is taught {' and '.join(system.tasks)}, not {request.kind}; use another --system"
        )
    if system.build_head is None:
        for option, given in (("--unlabelled", request.unlabelled), ("--also", request.also)):
            if given:
                raise UserError(
                    f"{option} is for a system that learns from rows and text at once (cvt), not {system.name}; "
                    "leave it out"
                )
    else:
        _check_own_heads(request)
    names = [one.name for one in request.also]
    for one in request.also:
        if one.kind not in system.tasks:
            raise UserError(
                f"--also {one.kind}=…: {system.name} is taught {' and '.join(system.tasks)}, not {one.kind}"
            )
        if names.count(one.name) > 1 or "." in one.name:
            raise UserError(
                f"--also: two tasks are called {one.name!r}, by their files' names; rename one of the files"
            )


def _check_own_heads(request: FinetuneRequest) -> None:
    """UserError for what says how a task is put on the trunk, where the system has heads of its own. What says how fast
    which layers learn (`transfer.thaw`, `rate_decay`) is no concern of the head's."""
    name = request.start.system.name
    if request.plan not in (None, PAPER):
        raise UserError(
            f"--plan {request.plan}: a way of transfer is for pre-trained weights under a new head, and {name} has "
            "heads of its own; leave it out"
        )
    for one in map(setting_of, request.sets):
        section, *keys = one.names
        if section != "transfer" or not keys:
            continue
        if keys[0] in ("head", "pooling", "reader") or (keys[0] == "model" and one.value != "linear"):
            raise UserError(f"{one.where}: {name} has heads of its own, and nothing else is put on it; leave it out")


def learned_of(task: OtherTask) -> TaskConfig:
    """What follows from the rows of a task beside the one that is asked for."""
    family = family_of(task.kind)
    family.check(task.rows, task.kind)
    return family.learned(task.rows, TaskConfig(kind=task.kind))


def _more_fingerprint(request: FinetuneRequest) -> str:
    if not request.unlabelled and not request.also and request.start.vectors is None:
        return ""
    digest = hashlib.sha256(json.dumps(list(request.unlabelled)).encode())
    for one in request.also:
        digest.update(rows_fingerprint(one.rows, family_of(one.kind)).encode())
    if request.start.vectors is not None:
        digest.update(request.start.vectors.tobytes())
    return digest.hexdigest()[:16]


def set_length(sections: dict[str, Any], size: Size, examples: int, order: SampleOrder) -> None:
    """Puts epochs and budget in. They follow from the number of examples, of which a long row gives several, and so are
    known once the rows are encoded; going on with the same rows they are the same."""
    task: TaskConfig = sections["task"]
    epochs = task.epochs or default_epochs(size, examples, sections["training"])
    sections["task"] = dataclasses.replace(task, epochs=epochs)
    sections["budget"] = Budget(steps=epochs * order.steps_per_epoch)


def _settings(
    request: FinetuneRequest, family: Family, size: Size, old: dict[str, Any] | None
) -> tuple[TrainingConfig, TransferPlan, ConcatPoolingConfig | None, Any, int]:
    """How to train, how to transfer, the settings of concatenated pooling where that is the way, what [objective] says
    (of a system whose tasks have one), and the epochs asked for (0: not said). A resumed run keeps the rest."""
    check_seed(request.seed)
    given = {"lm_weight": request.lm_weight, "layers": request.layers}
    given = {name: value for name, value in given.items() if value is not None}
    check_sets(request.sets, {f"transfer.{name}": f"--{name.replace('_', '-')} says" for name in given})
    sections = apply_sets(_before_sets(request, size, old), request.sets)
    sections["training"].check()
    transfer = _followed(dataclasses.replace(sections["transfer"], **given), request, family, old)
    if request.epochs is not None and request.epochs < 1:
        raise UserError(f"epochs must be at least 1, not {request.epochs}")
    objective = sections.get("objective")
    if objective is not None:
        objective.check()
    pooling = _pooling(sections["pooling"], transfer, request)
    return sections["training"], transfer, pooling, objective, request.epochs or (old["task"].epochs if old else 0)


def _before_sets(request: FinetuneRequest, size: Size, old: dict[str, Any] | None) -> dict[str, Any]:
    """The size's own settings, or the run's that is gone on with; over them those of the plan that is named."""
    start: dict[str, Any] = {"training": size.finetuning, "transfer": size.transfer, "pooling": size.pooling}
    if request.start.system.build_head is not None:
        start["objective"] = size.objective
    if old is not None:
        start |= {name: old[name] for name in start if name in old}
    if request.plan == PAPER:
        start |= {"training": size.finetuning, "transfer": size.transfer}
    elif request.plan is not None:
        rate = size.rates.get(request.plan) if old is None else None  # a run that goes on has its own
        start |= _planned(way_named(request.plan), start["training"], rate)
    return start


def _followed(
    transfer: TransferPlan, request: FinetuneRequest, family: Family, old: dict[str, Any] | None
) -> TransferPlan:
    """The plan that is asked for, checked, and as far as the system, the task and the weights can follow it."""
    _check_own_model(transfer, request)
    transfer = _with_given(transfer, request)
    transfer.check()
    transfer = _possible(transfer, request, family)
    new = request.from_scratch or (old is not None and old["task"].from_scratch)
    if new and (transfer.thaw == "never" or _setting(request, "transfer.thaw") is None):
        transfer = dataclasses.replace(transfer, thaw="all")  # nothing is known yet that could be kept
    if new and old is None and _setting(request, "transfer.rate_decay") is None:
        transfer = dataclasses.replace(transfer, rate_decay=1.0)  # the lowest layers have as much to learn
    if request.from_scratch and (request.layers is not None or transfer.layers != -1):
        raise UserError(
            "--layers says what is transferred, and by --from-scratch or --system nothing is; leave one out"
        )
    if old is None:
        _check_taken(transfer, request)
    return transfer


def _with_given(transfer: TransferPlan, request: FinetuneRequest) -> TransferPlan:
    """The width of vectors that are read beside a trunk's states follows from them."""
    vectors = request.start.vectors
    if vectors is None or request.start.system.build_head is not None:
        return transfer
    if transfer.model != "recurrent":
        raise UserError(
            f"--vectors are read by a task's own model, as elmo and cove have it, and {request.start.system.name} gets "
            "one new layer; leave it out, or give --set transfer.model=recurrent"
        )
    return dataclasses.replace(transfer, reader=dataclasses.replace(transfer.reader, given=vectors.shape[1]))


def _planned(way: Way, training: TrainingConfig, rate: float | None) -> dict[str, Any]:
    """What a named way of transfer says; `rate`: what the size learns at by it, where that is not its own."""
    changed = dataclasses.replace(training, schedule=way.schedule, warmup=way.warmup, final_rate=way.final_rate)
    changed = dataclasses.replace(changed, warmup_steps=0, rate=training.rate if rate is None else rate)
    return {"training": changed, "transfer": way.transfer}


def _pooling(
    given: ConcatPoolingConfig, transfer: TransferPlan, request: FinetuneRequest
) -> ConcatPoolingConfig | None:
    """[pooling], checked; None where nothing is pooled so, and then nothing can be set there."""
    if transfer.pooling == "concat":
        given.check()
        return given
    for one in map(setting_of, request.sets):
        if one.names[0] == "pooling" and len(one.names) > 1:
            raise UserError(
                f"{one.where}: [pooling] is for transfer.pooling=concat, on tasks with one label a row; this "
                "fine-tuning has none; leave it out"
            )
    return None


def _check_own_model(transfer: TransferPlan, request: FinetuneRequest) -> None:
    """UserError for what is asked of the head where the task has a model of its own, which has no use for it."""
    if transfer.model != "recurrent":
        return
    own = "the task's own model (transfer.model=recurrent)"
    head, pooling = _setting(request, "transfer.head"), _setting(request, "transfer.pooling")
    if head not in (None, "random"):
        raise UserError(f"transfer.head={head}: {own} starts at random; leave it out")
    if pooling is not None:
        raise UserError(f"transfer.pooling={pooling}: {own} reads every token, and pools for itself; leave it out")


def _check_taken(transfer: TransferPlan, request: FinetuneRequest) -> None:
    """UserError where blocks that are not taken over would be read for ever as they were drawn."""
    if transfer.thaw != "never" or transfer.layers < 0:
        return
    blocks = len(request.start.trunk.layer_groups()) - 1
    if transfer.layers < blocks:
        raise UserError(
            f"layers {transfer.layers} of {blocks}: the others would be newly drawn, and with transfer.thaw=never stay "
            "so and be read as features; leave it out, or give --set transfer.thaw=all"
        )


def _possible(transfer: TransferPlan, request: FinetuneRequest, family: Family) -> TransferPlan:
    """The plan as far as the system and the task can follow it. A language-model loss that is asked for and cannot be
    is refused; what only a size or a named plan asks for is left out."""
    system = request.start.system
    if not (system.causal or system.softmax_apart) and transfer.lm_weight:
        if request.lm_weight is not None or _setting(request, "transfer.lm_weight") is not None:
            raise UserError(
                f"lm_weight {transfer.lm_weight:g}: {system.name} sees both sides of a token, so that it has no "
                "language-model loss to add; leave it out, or give 0"
            )
        transfer = dataclasses.replace(transfer, lm_weight=0.0)
    # What reads every token's state pools nothing, nor does a model that has pools of its own.
    pooling = "extract" if transfer.pooling == "concat" else transfer.pooling
    if transfer.model == "recurrent":
        if transfer.lm_weight and (request.lm_weight or _setting(request, "transfer.lm_weight")):
            raise UserError(
                f"lm_weight {transfer.lm_weight:g}: the task's own model (transfer.model=recurrent) has no "
                "language-model loss beside it; leave it out, or give --plan gpt"
            )
        return dataclasses.replace(transfer, lm_weight=0.0, head="random", pooling=pooling)
    return transfer if family.fits_head else dataclasses.replace(transfer, head="random", pooling=pooling)


def _setting(request: FinetuneRequest, key: str) -> Any:
    """What --set or a file says about a key; None if nothing."""
    return next((one.value for one in map(setting_of, reversed(request.sets)) if one.key == key), None)


def unused_head(request: FinetuneRequest, family: Family) -> list[str]:
    """What to say where something is asked of the head that the task's does not have."""
    if family.fits_head:
        return []
    head, pooling = _setting(request, "transfer.head"), _setting(request, "transfer.pooling")
    of = f"is for tasks with one label a row: the head for {request.kind}"
    return [
        *([f"transfer.head={head} {of} starts at random"] if head not in (None, "random") else []),
        *([f"transfer.pooling={pooling} {of} reads every token"] if pooling is not None else []),
    ]


def not_followed(request: FinetuneRequest, sections: dict[str, Any]) -> list[str]:
    """What to say where the plan asks for something that this system or task does not have."""
    system, transfer = request.start.system, sections["transfer"]
    plan = size_of(request).transfer if request.plan in (None, PAPER) else way_named(request.plan).transfer
    said = []
    thaw = _setting(request, "transfer.thaw") or plan.thaw
    if thaw != transfer.thaw:
        said.append(
            f"transfer.thaw={thaw} is for pre-trained weights; those of {system.name} are new: all learn at once, at "
            "one rate"
        )
    if request.plan is None:  # a size asks for what its own system has; only a plan was asked for by name
        return said
    given = request.lm_weight is not None or _setting(request, "transfer.lm_weight") is not None
    if plan.lm_weight and not transfer.lm_weight and not given:
        why = "the task's own model has no language-model loss"
        if not (system.causal or system.softmax_apart):
            why = f"{system.name} sees both sides of a token and has no language-model loss"
        said.append(f"--plan {request.plan} has λ = {plan.lm_weight:g}; {why}, so λ is 0 here")
    if plan.pooling != transfer.pooling and _setting(request, "transfer.pooling") is None:
        reader = "the task's own model" if transfer.model == "recurrent" else f"the head for {request.kind}"
        said.append(f"--plan {request.plan} has transfer.pooling={plan.pooling}; {reader} reads every token instead")
    return said


def _task_config(
    request: FinetuneRequest, family: Family, train: Sequence[Any], old: dict[str, Any] | None
) -> TaskConfig:
    given = TaskConfig(
        kind=request.kind,
        columns={field: str(column) for field, column in (request.columns or {}).items()},
        format=request.format,
        base=str(request.start.run.path) if request.start.run else None,
    )
    config = family.learned(train, given)
    if old is not None:  # a run of an earlier version goes on as it began
        config = dataclasses.replace(config, both_orders=old["task"].both_orders, shrinks=old["task"].shrinks)
    elif request.plan == PAPER:
        config = dataclasses.replace(config, shrinks=False)  # no paper draws scores to the mean
    return dataclasses.replace(config, metric=_metric(request, family, config, old))


def _metric(request: FinetuneRequest, family: Family, config: TaskConfig, old: dict[str, Any] | None) -> str | None:
    """What the best epoch is chosen by: what is asked for, or what a run that goes on has, or the layout's."""
    allowed = family.metrics(config)
    if request.metric is not None:
        check_metric(request.metric, allowed)
        return request.metric
    if old is not None:
        metric: str | None = old["task"].metric
        return metric
    published = family.published_metric(request.format)
    return published if published in allowed else None


def default_epochs(size: Size, examples: int, training: TrainingConfig) -> int:
    """The size's epochs; more where the examples are so few that these would give fewer than its least updates."""
    per_epoch = -(-examples // training.batch_size)
    return max(size.epochs, min(MOST_EPOCHS, -(-size.least_updates // per_epoch)))


def rows_fingerprint(rows: Sequence[Any], family: Family) -> str:
    """What tells one set of rows from another: their texts and labels, in order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(family.content(row)).encode())
    return digest.hexdigest()[:16]


def _check_same_data(old: dict[str, Any], new: dict[str, Any], where: Path) -> None:
    """Going on with other rows or another vocabulary would give a model of neither."""
    if old["task"].unlabelled != new["task"].unlabelled:
        raise UserError(
            f"{where}: the unlabelled text or the other tasks are not those it was begun with, or the vectors; give "
            "the same --unlabelled, --also and --vectors, or start a new run"
        )
    if old["run"].tokenizer != new["run"].tokenizer:
        raise UserError(f"{where}: begun with another tokenizer; name the same RUN and rows, or start a new run")
    # Another seed holds out other rows; it is refused by its name, after this.
    if old["task"].rows and old["task"].rows != new["task"].rows and old["run"].seed == new["run"].seed:
        raise UserError(
            f"{where}: the rows are not those it was begun with; give the same files, --valid and --hold-out, or start "
            "a new run"
        )
