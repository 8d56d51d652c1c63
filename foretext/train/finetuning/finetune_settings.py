"""The configuration of a fine-tuning, from the request, the rows and, when resuming, the run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretext.config import Change, apply_sets, setting_of
from foretext.errors import refuse_if
from foretext.plan import PAPER, ConcatPoolingConfig, TransferPlan, ViewsConfig, way_named
from foretext.runs.directory import RunDirectory
from foretext.runs.run_config import Budget, FinetuneConfig, RunConfig, read_config
from foretext.systems import size_named
from foretext.systems.base import Size, System, TrainingConfig
from foretext.tasks.family import Family, TaskConfig, family_of
from foretext.tasks.labelled import Split
from foretext.tasks.scores.metrics import check_metric
from foretext.text.order import SampleOrder
from foretext.train.finetuning.finetune_knowledge import AS_VIEWS, views_of
from foretext.train.finetuning.finetune_request import FinetuneRequest, OtherTask, check_asked, check_text, check_views
from foretext.train.resume import agreed, check_seed, check_sets

MOST_EPOCHS = 20  # upper limit when there are few rows


def resolve(
    request: FinetuneRequest,
    family: Family,
    split: Split[Any],
    run: RunDirectory | None,
    note: Callable[[Change], None],
) -> FinetuneConfig:
    """The resolved configuration without its length, which `with_length` adds. When resuming, it is the run's own,
    after a comparison: `note` gets each change."""
    base = request.base_model
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
        also={other.name: f"{other.kind} {len(learned_of(other).labels)}" for other in request.also},
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
    """The rows that views learn from: all of them. Rows with one label are held out class by class, so no class is
    missing; a tag may occur in one sentence only."""
    if views is None or request.valid is not None or family.fits_head:
        return split
    return Split(list(request.rows), [], "")


def _from_scratch(request: FinetuneRequest, old: FinetuneConfig | None) -> bool:
    return request.from_scratch or (old is not None and old.task.from_scratch)


def size_of(request: FinetuneRequest) -> Size:
    """The size whose settings a fine-tuning starts with: the run's own, or the paper's."""
    return size_named(request.base_model.system, PAPER if request.plan == PAPER else request.base_model.info.size)


def _words(request: FinetuneRequest, transfer: TransferPlan) -> int:
    """The vocabulary of the language-model loss, if it needs a softmax that the trunk does not have."""
    base = request.base_model
    if not transfer.lm_weight or not base.system.softmax_apart:
        return 0
    return base.tokenizer.size if base.objective is None else base.objective.softmax_words()


def learned_of(task: OtherTask) -> TaskConfig:
    """Settings that follow from the rows of an additional task."""
    family = family_of(task.kind)
    family.check(task.rows, task.kind)
    return family.learned(task.rows, TaskConfig(kind=task.kind))


def _more_fingerprint(request: FinetuneRequest) -> str:
    """Fingerprint of what is learned from besides the rows. The text of pre-training needs none: it follows from the
    run and the seed."""
    unlabelled = () if request.own_text else request.unlabelled
    if not unlabelled and not request.also and request.base_model.vectors is None:
        return ""
    others = (rows_fingerprint(other.rows, family_of(other.kind)).encode() for other in request.also)
    vectors = [] if request.base_model.vectors is None else [request.base_model.vectors.tobytes()]
    return _fingerprint([json.dumps(list(unlabelled)).encode(), *others, *vectors])


def _fingerprint(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def with_length(config: FinetuneConfig, size: Size, examples: int, order: SampleOrder) -> FinetuneConfig:
    """Adds epochs and budget. They depend on the number of examples, which is known once the rows are encoded (a long
    row gives several). When resuming with the same rows they are the same."""
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
    objective: Any  # of a system with its own heads; otherwise None


def _settings(request: FinetuneRequest, family: Family, old: FinetuneConfig | None) -> _Settings:
    """The requested settings, checked, over those of the size or of the run that is resumed."""
    check_seed(request.seed)
    options: dict[str, Any] = {"lm_weight": request.lm_weight, "layers": request.layers}
    given = {name: value for name, value in options.items() if value is not None}
    check_sets(request.sets, {f"transfer.{name}": f"--{name.replace('_', '-')} says" for name in given})
    before = vars(_before_sets(request, old))
    sections = apply_sets({name: section for name, section in before.items() if section is not None}, request.sets)
    settings = _Settings(**before | sections)
    settings.training.check()
    transfer = _followed(dataclasses.replace(settings.transfer, **given), request, family, old)
    refuse_if(request.epochs is not None and request.epochs < 1, f"epochs must be at least 1, not {request.epochs}")
    if settings.objective is not None:
        settings.objective.check()
    return dataclasses.replace(settings, transfer=transfer, pooling=_pooling(settings.pooling, transfer, request))


def _before_sets(request: FinetuneRequest, old: FinetuneConfig | None) -> _Settings:
    """The settings of the size, or of the run that is resumed, overridden by those of the named plan."""
    size = size_of(request)
    objective = size.objective if request.base_model.system.build_head is not None else None
    usual = _Settings(size.finetuning, size.transfer, size.pooling, objective)
    if old is not None:
        kept = _Settings(old.training, old.transfer, old.pooling or size.pooling, old.objective)
        papers = dataclasses.replace(kept, training=usual.training, transfer=usual.transfer)
        usual = papers if request.plan == PAPER else kept
    if request.plan in (None, PAPER):
        return usual
    way = way_named(request.plan)
    changed = dataclasses.replace(
        usual.training, schedule=way.schedule, warmup=way.warmup, final_rate=way.final_rate, warmup_steps=0
    )
    if old is None:  # a resumed run keeps its rate
        changed = dataclasses.replace(changed, rate=size.rates.get(request.plan, changed.rate))
    return dataclasses.replace(usual, training=changed, transfer=way.transfer)


def _followed(
    transfer: TransferPlan, request: FinetuneRequest, family: Family, old: FinetuneConfig | None
) -> TransferPlan:
    """The requested plan, checked, as far as the system, the task and the weights can follow it."""
    _check_own_model(transfer, request)
    transfer = _with_given(transfer, request)
    transfer.check()
    transfer = _possible(transfer, request, family)
    new = _from_scratch(request, old)
    if new and (transfer.thaw == "never" or request.setting("transfer.thaw") is None):
        transfer = dataclasses.replace(transfer, thaw="all")  # there are no pre-trained weights to protect
    if new and old is None and request.setting("transfer.rate_decay") is None:
        transfer = dataclasses.replace(transfer, rate_decay=1.0)  # the lowest layers have as much to learn
    refuse_if(
        request.from_scratch and (request.layers is not None or transfer.layers != -1),
        "--layers says what is transferred, but --from-scratch and --system transfer nothing; leave one of them out",
    )
    if old is None:
        _check_taken(transfer, request)
    return transfer


def _with_given(transfer: TransferPlan, request: FinetuneRequest) -> TransferPlan:
    """Sets the width of the vectors that are read beside a trunk's states."""
    vectors = request.base_model.vectors
    if vectors is None or request.base_model.system.build_head is not None:
        return transfer
    refuse_if(
        transfer.model != "recurrent",
        f"--vectors are read by a task model (elmo, cove), but {request.base_model.system.name} gets one linear "
        f"layer: {AS_VIEWS}, give --set transfer.model=recurrent, or leave --vectors out",
    )
    return dataclasses.replace(transfer, reader=dataclasses.replace(transfer.reader, given=vectors.shape[1]))


def _pooling(
    given: ConcatPoolingConfig | None, transfer: TransferPlan, request: FinetuneRequest
) -> ConcatPoolingConfig | None:
    """[pooling], checked; None if nothing is pooled that way, and then it must not be set."""
    if transfer.pooling == "concat":
        assert given is not None
        given.check()
        return given
    for setting in map(setting_of, request.sets):
        refuse_if(
            setting.names[0] == "pooling" and len(setting.names) > 1,
            f"{setting.where}: [pooling] is for transfer.pooling=concat, on tasks with one label per row; this "
            "fine-tuning has none; leave it out",
        )
    return None


def _check_own_model(transfer: TransferPlan, request: FinetuneRequest) -> None:
    """UserError for settings of the head that a task model has no use for."""
    if transfer.model != "recurrent":
        return
    task_model = "the task model (transfer.model=recurrent)"
    head, pooling = request.setting("transfer.head"), request.setting("transfer.pooling")
    refuse_if(head not in (None, "random"), f"transfer.head={head}: {task_model} starts at random; leave it out")
    refuse_if(
        pooling is not None,
        f"transfer.pooling={pooling}: {task_model} reads every token and pools by itself; leave it out",
    )


def _check_taken(transfer: TransferPlan, request: FinetuneRequest) -> None:
    """UserError if blocks that are not transferred would stay untrained."""
    blocks = len(request.base_model.trunk.layer_groups()) - 1
    refuse_if(
        transfer.thaw == "never" and 0 <= transfer.layers < blocks,
        f"layers {transfer.layers} of {blocks}: the other blocks would be random, and with transfer.thaw=never "
        "they would stay so; leave it out, or give --set transfer.thaw=all",
    )


def _possible(transfer: TransferPlan, request: FinetuneRequest, family: Family) -> TransferPlan:
    """The plan as far as the system and the task can follow it. An impossible language-model loss is refused if the
    user asked for it, and dropped if a size or a named plan did."""
    system = request.base_model.system
    if not _foretells(system) and transfer.lm_weight:
        refuse_if(
            request.asks_for_lm,
            f"lm_weight {transfer.lm_weight:g}: {system.name} sees both sides of a token, so it has no "
            "language-model loss to add; leave it out, or give 0",
        )
        transfer = dataclasses.replace(transfer, lm_weight=0.0)
    # A head that reads every token's state pools nothing; a task model pools by itself.
    pooling = "extract" if transfer.pooling == "concat" else transfer.pooling
    if transfer.model == "recurrent":
        refuse_if(
            transfer.lm_weight and request.asks_for_lm,
            f"lm_weight {transfer.lm_weight:g}: the task model (transfer.model=recurrent) has no language-model "
            "loss beside it; leave it out, or give --plan gpt",
        )
        return dataclasses.replace(transfer, lm_weight=0.0, head="random", pooling=pooling)
    return transfer if family.fits_head else dataclasses.replace(transfer, head="random", pooling=pooling)


def _foretells(system: System) -> bool:
    """Whether it has a language-model loss to add."""
    return system.causal or system.softmax_apart


def _new_tokens(request: FinetuneRequest) -> bool:
    """Whether there are rows of new tokens, which learn also where the trunk is frozen."""
    tokenizer = request.base_model.tokenizer
    return tokenizer.with_specials(request.base_model.system.specials).size > tokenizer.size


def unused_head(request: FinetuneRequest, family: Family) -> list[str]:
    """The note for settings of the head that this task's head does not have."""
    if family.fits_head:
        return []
    head, pooling = request.setting("transfer.head"), request.setting("transfer.pooling")
    of = f"is for tasks with one label per row: the head for {request.kind}"
    return [
        *([f"transfer.head={head} {of} starts at random"] if head not in (None, "random") else []),
        *([f"transfer.pooling={pooling} {of} reads every token"] if pooling is not None else []),
    ]


def not_followed(request: FinetuneRequest, transfer: TransferPlan, new: bool) -> list[str]:
    """The notes for parts of the plan that this system or task does not have."""
    system = request.base_model.system
    plan = size_of(request).transfer if request.plan in (None, PAPER) else way_named(request.plan).transfer
    thaw = request.setting("transfer.thaw") or plan.thaw
    task_model = "the task model"
    sees = f"{system.name} sees both sides of a token and"
    reader = task_model if transfer.model == "recurrent" else f"the head for {request.kind}"
    named = request.plan is not None  # a size asks for what its own system has; only a plan was asked for by name
    no_loss = named and plan.lm_weight and not transfer.lm_weight and not request.asks_for_lm
    no_pool = named and plan.pooling != transfer.pooling and request.setting("transfer.pooling") is None
    remarks = {
        f"transfer.thaw={thaw} is for pre-trained weights, but those of {system.name} are new: "
        "all learn from the start, at one rate": new and thaw != transfer.thaw,
        f"--plan {request.plan} has λ = {plan.lm_weight:g}, but {task_model if _foretells(system) else sees} has no "
        "language-model loss, so λ is 0 here": no_loss,
        f"--plan {request.plan} has transfer.pooling={plan.pooling}, but {reader} reads every token": no_pool,
        f"λ = {transfer.lm_weight:g} has no effect: the trunk is frozen (transfer.thaw=never)": bool(
            transfer.lm_weight and transfer.thaw == "never" and not _new_tokens(request)
        ),
    }
    return [text for text, holds in remarks.items() if holds]


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
        base=str(request.base_model.run.path) if request.base_model.run else None,
    )
    config = family.learned(split.train, given)
    if old is not None:  # a run of an earlier version continues as it began
        config = dataclasses.replace(config, both_orders=old.task.both_orders, shrinks=old.task.shrinks)
    elif request.plan == PAPER or not split.valid or views is not None:
        # No paper shrinks scores towards the mean. Without validation rows the factor is unknown, and a head over views
        # shrinks by itself.
        config = dataclasses.replace(config, shrinks=False)
    return dataclasses.replace(config, metric=_metric(request, family, config, old))


def _metric(request: FinetuneRequest, family: Family, config: TaskConfig, old: FinetuneConfig | None) -> str | None:
    """The metric that chooses the best epoch: the requested one, that of the resumed run, or the layout's."""
    allowed = family.metrics(config)
    if request.metric is not None:
        check_metric(request.metric, allowed)
        return request.metric
    if old is not None:
        return old.task.metric
    published = family.published_metric(request.format)
    return published if published in allowed else None


def default_epochs(size: Size, examples: int, training: TrainingConfig) -> int:
    """The size's epochs, or more if these would give fewer than its least number of updates."""
    per_epoch = -(-examples // training.batch_size)
    return max(size.epochs, min(MOST_EPOCHS, -(-size.least_updates // per_epoch)))


def rows_fingerprint(rows: Sequence[Any], family: Family) -> str:
    """Identifies a set of rows: their texts and labels, in order."""
    return _fingerprint(json.dumps(family.content(row)).encode() for row in rows)


def _check_same_data(old: FinetuneConfig, new: FinetuneConfig, where: Path) -> None:
    """UserError when resuming with other rows or another vocabulary."""
    refuse_if(
        old.task.unlabelled != new.task.unlabelled,
        f"{where}: --unlabelled, --also or --vectors differ from those it was started with; give the same ones, or "
        "start a new run",
    )
    refuse_if(
        old.run.tokenizer != new.run.tokenizer,
        f"{where}: started with another tokenizer; name the same RUN and rows, or start a new run",
    )
    # Another seed holds out other rows; it is refused by name, later.
    refuse_if(
        old.task.rows and old.task.rows != new.task.rows and old.run.seed == new.run.seed,
        f"{where}: the rows differ from those it was started with; give the same files, --valid and --hold-out, or "
        "start a new run",
    )
