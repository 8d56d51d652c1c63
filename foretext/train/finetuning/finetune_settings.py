"""The configuration of a fine-tuning: what follows from the request, from the rows and, going on, from the run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretext.config import Change, apply_sets, setting_of
from foretext.errors import UserError
from foretext.plan import PAPER, ConcatPoolingConfig, TransferPlan, ViewsConfig, way_named
from foretext.runs.directory import RunDirectory
from foretext.runs.run_config import Budget, FinetuneConfig, RunConfig, read_config
from foretext.systems import size_named
from foretext.systems.base import Size, System, TrainingConfig
from foretext.tasks.family import Family, TaskConfig, family_of
from foretext.tasks.labelled import Split
from foretext.tasks.scores.metrics import check_metric
from foretext.text.order import SampleOrder
from foretext.train.finetuning.finetune_request import FinetuneRequest, OtherTask, check_asked, check_text, check_views
from foretext.train.finetuning.finetune_vectors import AS_VIEWS, views_of
from foretext.train.resume import agreed, check_seed, check_sets

MOST_EPOCHS = 20  # that few rows can lead to


def resolve(
    request: FinetuneRequest,
    family: Family,
    split: Split[Any],
    run: RunDirectory | None,
    note: Callable[[Change], None],
) -> FinetuneConfig:
    """The resolved configuration, but for how long it takes, which `with_length` puts in. When going on, the run's own,
    after comparing: `note` gets each change."""
    base = request.start
    check_asked(request)
    old = read_config(run) if run is not None and run.has("config.toml") else None
    assert old is None or isinstance(old, FinetuneConfig)
    views = views_of(request, family, old)
    check_text(request, views)
    if old is None:
        check_views(request, views)
    settings = _settings(request, family, old)
    task = dataclasses.replace(
        _task_config(request, family, _learned_from(request, family, split, views), old, views),
        epochs=request.epochs or (old.task.epochs if old else 0),
        from_scratch=_from_scratch(request, old),
        rows=rows_fingerprint([*split.train, *split.valid], family),
        also={one.name: f"{one.kind} {len(learned_of(one).labels)}" for one in request.also},
        sentences=len(request.unlabelled),
        unlabelled=_more_fingerprint(request),
        softmax=_words(request, settings.transfer),
    )
    tokenizer = base.tokenizer.with_specials(base.system.specials)
    config = FinetuneConfig(
        RunConfig(
            "finetune", base.info.system, base.info.size, base.info.direction, request.seed, tokenizer.fingerprint()
        ),
        dataclasses.replace(base.model_config, vocabulary=tokenizer.size, dropout=settings.training.dropout),
        budget=old.budget if old else None,
        task=task,
        views=views,
        **vars(settings),
    )
    config.model.check()
    if old is None or run is None:
        return config
    _check_same_data(old, config, run.path)
    return agreed(old, config, run.path, note)


def _learned_from(request: FinetuneRequest, family: Family, split: Split[Any], views: ViewsConfig | None) -> Split[Any]:
    """Views learn from all rows. Those of one label are held out class by class, so that nothing is unknown of them; a
    tag may be of one sentence."""
    if views is None or request.valid is not None or family.fits_head:
        return split
    return Split(list(request.rows), [], "")


def _from_scratch(request: FinetuneRequest, old: FinetuneConfig | None) -> bool:
    return request.from_scratch or (old is not None and old.task.from_scratch)


def size_of(request: FinetuneRequest) -> Size:
    """The size whose settings a fine-tuning starts with: the run's own, or the paper's."""
    return size_named(request.start.system, PAPER if request.plan == PAPER else request.start.info.size)


def _words(request: FinetuneRequest, transfer: TransferPlan) -> int:
    """How many words the language-model loss tells apart, where that needs a softmax which the trunk does not have."""
    base = request.start
    if not transfer.lm_weight or not base.system.softmax_apart:
        return 0
    return base.tokenizer.size if base.objective is None else base.objective.softmax_words()


def learned_of(task: OtherTask) -> TaskConfig:
    """What follows from the rows of a task beside the one that is asked for."""
    family = family_of(task.kind)
    family.check(task.rows, task.kind)
    return family.learned(task.rows, TaskConfig(kind=task.kind))


def _more_fingerprint(request: FinetuneRequest) -> str:
    """Of what is learned from beside the rows. The text of pre-training follows from the run and the seed."""
    unlabelled = () if request.own_text else request.unlabelled
    if not unlabelled and not request.also and request.start.vectors is None:
        return ""
    others = (rows_fingerprint(one.rows, family_of(one.kind)).encode() for one in request.also)
    vectors = [] if request.start.vectors is None else [request.start.vectors.tobytes()]
    return _fingerprint([json.dumps(list(unlabelled)).encode(), *others, *vectors])


def _fingerprint(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def with_length(config: FinetuneConfig, size: Size, examples: int, order: SampleOrder) -> FinetuneConfig:
    """With epochs and budget, which follow from the number of examples, of which a long row gives several, and so are
    known once the rows are encoded; going on with the same rows they are the same."""
    epochs = config.task.epochs or default_epochs(size, examples, config.training)
    task = dataclasses.replace(config.task, epochs=epochs)
    return dataclasses.replace(config, task=task, budget=Budget(steps=epochs * order.steps_per_epoch))


# -- how to train, and how to transfer ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Settings:
    """The sections that --set may change."""

    training: TrainingConfig
    transfer: TransferPlan
    pooling: ConcatPoolingConfig | None
    objective: Any  # of a system that has heads of its own; else None


def _settings(request: FinetuneRequest, family: Family, old: FinetuneConfig | None) -> _Settings:
    """What is asked for, checked, over what the size or the run that is gone on with has."""
    check_seed(request.seed)
    options: dict[str, Any] = {"lm_weight": request.lm_weight, "layers": request.layers}
    given = {name: value for name, value in options.items() if value is not None}
    check_sets(request.sets, {f"transfer.{name}": f"--{name.replace('_', '-')} says" for name in given})
    before = vars(_before_sets(request, old))
    sections = apply_sets({name: section for name, section in before.items() if section is not None}, request.sets)
    settings = _Settings(**before | sections)
    settings.training.check()
    transfer = _followed(dataclasses.replace(settings.transfer, **given), request, family, old)
    if request.epochs is not None and request.epochs < 1:
        raise UserError(f"epochs must be at least 1, not {request.epochs}")
    if settings.objective is not None:
        settings.objective.check()
    return dataclasses.replace(settings, transfer=transfer, pooling=_pooling(settings.pooling, transfer, request))


def _before_sets(request: FinetuneRequest, old: FinetuneConfig | None) -> _Settings:
    """The size's own settings, or the run's that is gone on with; over them those of the plan that is named."""
    size = size_of(request)
    objective = size.objective if request.start.system.build_head is not None else None
    own = _Settings(size.finetuning, size.transfer, size.pooling, objective)
    if old is not None:
        kept = _Settings(old.training, old.transfer, old.pooling or size.pooling, old.objective)
        own = dataclasses.replace(kept, training=own.training, transfer=own.transfer) if request.plan == PAPER else kept
    if request.plan in (None, PAPER):
        return own
    way = way_named(request.plan)
    changed = dataclasses.replace(
        own.training, schedule=way.schedule, warmup=way.warmup, final_rate=way.final_rate, warmup_steps=0
    )
    if old is None:  # a run that goes on has its own rate
        changed = dataclasses.replace(changed, rate=size.rates.get(request.plan, changed.rate))
    return dataclasses.replace(own, training=changed, transfer=way.transfer)


def _followed(
    transfer: TransferPlan, request: FinetuneRequest, family: Family, old: FinetuneConfig | None
) -> TransferPlan:
    """The plan that is asked for, checked, and as far as the system, the task and the weights can follow it."""
    _check_own_model(transfer, request)
    transfer = _with_given(transfer, request)
    transfer.check()
    transfer = _possible(transfer, request, family)
    new = _from_scratch(request, old)
    if new and (transfer.thaw == "never" or request.said("transfer.thaw") is None):
        transfer = dataclasses.replace(transfer, thaw="all")  # nothing is known yet that could be kept
    if new and old is None and request.said("transfer.rate_decay") is None:
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
            f"one new layer: {AS_VIEWS}, give --set transfer.model=recurrent, or leave --vectors out"
        )
    return dataclasses.replace(transfer, reader=dataclasses.replace(transfer.reader, given=vectors.shape[1]))


def _pooling(
    given: ConcatPoolingConfig | None, transfer: TransferPlan, request: FinetuneRequest
) -> ConcatPoolingConfig | None:
    """[pooling], checked; None where nothing is pooled so, and then nothing can be set there."""
    if transfer.pooling == "concat":
        assert given is not None
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
    head, pooling = request.said("transfer.head"), request.said("transfer.pooling")
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
    if not _foretells(system) and transfer.lm_weight:
        if request.asks_for_lm:
            raise UserError(
                f"lm_weight {transfer.lm_weight:g}: {system.name} sees both sides of a token, so that it has no "
                "language-model loss to add; leave it out, or give 0"
            )
        transfer = dataclasses.replace(transfer, lm_weight=0.0)
    # What reads every token's state pools nothing, nor does a model that has pools of its own.
    pooling = "extract" if transfer.pooling == "concat" else transfer.pooling
    if transfer.model == "recurrent":
        if transfer.lm_weight and request.asks_for_lm:
            raise UserError(
                f"lm_weight {transfer.lm_weight:g}: the task's own model (transfer.model=recurrent) has no "
                "language-model loss beside it; leave it out, or give --plan gpt"
            )
        return dataclasses.replace(transfer, lm_weight=0.0, head="random", pooling=pooling)
    return transfer if family.fits_head else dataclasses.replace(transfer, head="random", pooling=pooling)


def _foretells(system: System) -> bool:
    """Whether it has a language-model loss to add."""
    return system.causal or system.softmax_apart


def unused_head(request: FinetuneRequest, family: Family) -> list[str]:
    """What to say where something is asked of the head that the task's does not have."""
    if family.fits_head:
        return []
    head, pooling = request.said("transfer.head"), request.said("transfer.pooling")
    of = f"is for tasks with one label a row: the head for {request.kind}"
    return [
        *([f"transfer.head={head} {of} starts at random"] if head not in (None, "random") else []),
        *([f"transfer.pooling={pooling} {of} reads every token"] if pooling is not None else []),
    ]


def not_followed(request: FinetuneRequest, transfer: TransferPlan) -> list[str]:
    """What to say where the plan asks for something that this system or task does not have."""
    system = request.start.system
    plan = size_of(request).transfer if request.plan in (None, PAPER) else way_named(request.plan).transfer
    thaw = request.said("transfer.thaw") or plan.thaw
    own = "the task's own model"
    sees = f"{system.name} sees both sides of a token and"
    reader = own if transfer.model == "recurrent" else f"the head for {request.kind}"
    named = request.plan is not None  # a size asks for what its own system has; only a plan was asked for by name
    no_loss = named and plan.lm_weight and not transfer.lm_weight and not request.asks_for_lm
    no_pool = named and plan.pooling != transfer.pooling and request.said("transfer.pooling") is None
    said = {
        f"transfer.thaw={thaw} is for pre-trained weights; those of {system.name} are new: all learn at once, at one "
        "rate": thaw != transfer.thaw,
        f"--plan {request.plan} has λ = {plan.lm_weight:g}; {own if _foretells(system) else sees} has no "
        "language-model loss, so λ is 0 here": no_loss,
        f"--plan {request.plan} has transfer.pooling={plan.pooling}; {reader} reads every token instead": no_pool,
        f"λ = {transfer.lm_weight:g} changes no prediction: the trunk is frozen (transfer.thaw=never)": bool(
            transfer.lm_weight and transfer.thaw == "never"
        ),
    }
    return [text for text, holds in said.items() if holds]


def _task_config(
    request: FinetuneRequest,
    family: Family,
    split: Split[Any],
    old: FinetuneConfig | None,
    views: ViewsConfig | None,
) -> TaskConfig:
    given = TaskConfig(
        kind=request.kind,
        columns={field: str(column) for field, column in (request.columns or {}).items()},
        format=request.format,
        base=str(request.start.run.path) if request.start.run else None,
    )
    config = family.learned(split.train, given)
    if old is not None:  # a run of an earlier version goes on as it began
        config = dataclasses.replace(config, both_orders=old.task.both_orders, shrinks=old.task.shrinks)
    elif request.plan == PAPER or not split.valid or views is not None:
        # No paper draws scores to the mean, without validation it cannot be told how far, and a head over views does so
        # by itself.
        config = dataclasses.replace(config, shrinks=False)
    return dataclasses.replace(config, metric=_metric(request, family, config, old))


def _metric(request: FinetuneRequest, family: Family, config: TaskConfig, old: FinetuneConfig | None) -> str | None:
    """What the best epoch is chosen by: what is asked for, or what a run that goes on has, or the layout's."""
    allowed = family.metrics(config)
    if request.metric is not None:
        check_metric(request.metric, allowed)
        return request.metric
    if old is not None:
        return old.task.metric
    published = family.published_metric(request.format)
    return published if published in allowed else None


def default_epochs(size: Size, examples: int, training: TrainingConfig) -> int:
    """The size's epochs; more where the examples are so few that these would give fewer than its least updates."""
    per_epoch = -(-examples // training.batch_size)
    return max(size.epochs, min(MOST_EPOCHS, -(-size.least_updates // per_epoch)))


def rows_fingerprint(rows: Sequence[Any], family: Family) -> str:
    """What tells one set of rows from another: their texts and labels, in order."""
    return _fingerprint(json.dumps(family.content(row)).encode() for row in rows)


def _check_same_data(old: FinetuneConfig, new: FinetuneConfig, where: Path) -> None:
    """Going on with other rows or another vocabulary would give a model of neither."""
    if old.task.unlabelled != new.task.unlabelled:
        raise UserError(
            f"{where}: the unlabelled text or the other tasks are not those it was begun with, or the vectors; give "
            "the same --unlabelled, --also and --vectors, or start a new run"
        )
    if old.run.tokenizer != new.run.tokenizer:
        raise UserError(f"{where}: begun with another tokenizer; name the same RUN and rows, or start a new run")
    # Another seed holds out other rows; it is refused by its name, after this.
    if old.task.rows and old.task.rows != new.task.rows and old.run.seed == new.run.seed:
        raise UserError(
            f"{where}: the rows are not those it was begun with; give the same files, --valid and --hold-out, or start "
            "a new run"
        )
