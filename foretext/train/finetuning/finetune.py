"""Fine-tuning: labelled rows and a pre-trained run in, a task model out. The loop is that of pre-training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from foretext.config import Change
from foretext.errors import Interrupted, UserError
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Objective, Stock
from foretext.runs.directory import RunDirectory, RunWriter
from foretext.runs.machine import choose_device, out_of_memory_as_user_error, tune_allocator
from foretext.runs.metrics_log import draw_missing_curve, write_curve
from foretext.runs.model import (
    SavedModel,
    build_task,
    encode,
    example_scores,
    facing,
    load_model,
    need_trained_head,
    pretrained_model,
)
from foretext.runs.report import Reporter, StopRequest, Warns, Work
from foretext.runs.run_config import MICRO_TOKENS, Budget, FinetuneConfig, has_begun, is_finished, read_config
from foretext.runs.views import view_scores
from foretext.systems.base import TrunkParts
from foretext.tasks.families import family_of
from foretext.tasks.family import Encoded, Encoding, Family
from foretext.tasks.labelled import DEFAULT_FRACTION, Split
from foretext.tasks.layouts.windows import unlabelled_rows
from foretext.tasks.scores.confusion_picture import confusion_matrix_png
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.views.baselines import Baseline
from foretext.train.checkpoint import Job, Stage
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest
from foretext.train.finetuning.finetune_settings import (
    knowledge_of,
    learned_of,
    not_followed,
    resolve,
    size_of,
    unused_head,
    with_length,
)
from foretext.train.finetuning.finetune_vectors import with_vectors_beside
from foretext.train.finetuning.finetune_views import finetune_views, plan_lines, scored
from foretext.train.loop import Loop, step_seed
from foretext.train.optim import Group, Optimizer, Rows, layered_names, split_rows
from foretext.train.planning import (
    SMALLER_RUN,
    Memory,
    check_disk,
    check_memory,
    describe_finetuning,
    finetuning_memory,
)
from foretext.train.resume import finished, going_on, starts_over, writing
from foretext.train.untrained import new_base

Validator = Callable[[], dict[str, float]]
CONFUSION = "confusion.png"
NORMED_TOKENS = 8 * MICRO_TOKENS  # statistics of two long documents are worth less than what the cache gives


@dataclass
class Finetuned:
    """A task model, and the rows that it was validated on."""

    model: SavedModel
    held_out: Sequence[Any]
    validated: Scores | None = None  # on these rows; None: there are none, or the run was finished before
    how: str = "the best epoch on the validation rows"  # what `validated` is of
    rivals: Sequence[Baseline] = ()  # what is cheap, on the same rows

    def scores(self, reporter: Reporter) -> Scores | None:
        """The best epoch's on the rows held out; None without any."""
        if self.validated is None and self.held_out and self.model.views is not None:
            self.validated = scored(self.model, self.held_out, view_scores(self.model, self.held_out))
        if self.validated is None and self.held_out:
            encoded = encode(self.held_out, self.model, Reporter())  # what was cut is said already
            self.validated = _scored(self.model, encoded, functools.partial(reporter.work, "validating"))
        return self.validated


def finetune(
    request: FinetuneRequest, reporter: Reporter | None = None, stopping: StopRequest | None = None
) -> Finetuned:
    """Fine-tunes, and gives the model with the weights of its best epoch on the validation rows."""
    family = family_of(request.kind)
    split, notes = _split(request, family)
    tune_allocator()
    training = _Finetuning(
        request, family, split, reporter or Reporter(), reporter or Warns(), stopping or StopRequest()
    )
    training = replace(training, request=training.with_base())
    if request.out is None:
        return training.train(None, notes)
    run = RunDirectory(request.out)
    if request.resume and run.has("config.toml") and not isinstance(read_config(run), FinetuneConfig):
        raise UserError(f"{run.path} is a pre-trained run, which is not gone on with here; choose another --out")
    over = starts_over(run, request.resume)
    if request.resume and is_finished(run):
        return training.finished(run)
    with writing(run, training.reporter.note, over) as writer:
        made = training.train(writer, notes)
        if made.model.views is None:
            write_curve(run.path)
        _draw_confusion(made.validated, run)
    return made


def _draw_confusion(scores: Scores | None, run: RunDirectory) -> None:
    if scores is not None and scores.confusion:
        confusion_matrix_png(scores, run.path / CONFUSION)


@dataclass(frozen=True)
class _Finetuning:
    """One fine-tuning: what is asked for, the rows, and who hears of it."""

    request: FinetuneRequest
    family: Family
    split: Split[Any]
    reporter: Reporter
    about_rows: Reporter
    stopping: StopRequest

    def with_base(self) -> FinetuneRequest:
        """The request with the model to start from, where it only names it."""
        request, base = self.request, self.request.base
        if not isinstance(base, Base):
            return request
        if base.run is not None:
            request = replace(request, base=pretrained_model(base.run))
            if base.vectors is not None:
                request = with_vectors_beside(request, base.vectors, self.reporter.note)
        elif base.system is not None:
            work = functools.partial(self.work, None)
            request = new_base(request, base, self.split.train, self.reporter.note, work)
        return request if base.direction is None else replace(request, base=facing(request.start, base.direction))

    def finished(self, run: RunDirectory) -> Finetuned:
        """What is in a run that is finished, and the pictures that it was killed before."""
        changes: list[Change] = []
        resolve(self.request, self.family, self.split, run, changes.append)
        self.reporter.note(finished(run.path, changes))
        made = Finetuned(load_model(run.path), self.split.valid)
        if made.model.views is not None:
            return replace(made, held_out=self.request.valid or ())
        draw_missing_curve(run.path, self.reporter.note)
        if self.family.draws_confusion(made.model.task_config) and not (run.path / CONFUSION).exists():
            _draw_confusion(made.scores(self.reporter), run)
        return made

    def train(self, writer: RunWriter | None, notes: Sequence[str]) -> Finetuned:
        request, reporter, run = self.request, self.reporter, writer.run if writer else None
        config = resolve(request, self.family, self.split, run, lambda change: reporter.note(going_on(change)))
        if config.views is not None:  # nothing is held out
            notes = [note for note in notes if note != self.split.note]
        for note in (*notes, *unused_head(request, self.family), *not_followed(request, config.transfer)):
            reporter.note(note)
        device = choose_device(request.device)
        if device.type == "cpu":
            check_memory(Memory(config.model, 1, 1), SMALLER_RUN)  # the weights; again when the rows are encoded
        model = _build(request, config)
        if config.views is not None:
            return self._fit_views(model, writer)
        goes_on = run is not None and has_begun(run)
        work = functools.partial(self.work, run if goes_on else None)
        learned = encode(self.split.train, model, self.about_rows, work)
        held_out = encode(self.split.valid, model, self.about_rows, work)
        if not learned.examples:
            raise UserError(
                "no word of the rows has a piece in the vocabulary of this run; use another run, or --system"
            )
        stock = self._stock(model, learned.examples, work)
        validations: dict[float, Scores] = {}
        stage = self._stage(model, stock, held_out, _validator(model, held_out, validations))
        model.config = with_length(config, size_of(request), len(learned.examples), stage.order)
        model.trunk.to(device)
        model.head.to(device)
        with out_of_memory_as_user_error(stage.micro_batch):
            if not goes_on:
                self._meet(model, learned, device, functools.partial(work, "fitting the head"))
            loop = Loop(self._job(model, stage, device), writer, reporter, self.stopping)
            if writer is not None:
                _open_run(writer, model, loop)
            plan = describe_finetuning(loop, model.finetuned, learned, held_out, stock)
            reporter.plan(f"fine-tuning for {request.kind}", plan)
            begun = loop.position.step
            loop.run()
        model.trunk.eval()
        model.head.eval()
        made = Finetuned(model, self.split.valid)
        if loop.position.best is not None and loop.position.best_step > begun:  # else an earlier process had the best
            made.validated = validations.get(loop.position.best)
        made.scores(reporter)
        return made

    def _meet(
        self, model: SavedModel, learned: Encoded, device: torch.device, progress: Callable[[int, int], None]
    ) -> None:
        """What a head takes from the rows before it learns."""
        model.head.meet(learned.examples)
        if model.finetuned.transfer.head == "probe":
            model.head.fit_head(model.trunk, learned.examples, device, self.request.seed, progress)

    def _fit_views(self, model: SavedModel, writer: RunWriter | None) -> Finetuned:
        request, knowledge = self.request, knowledge_of(self.request)
        named = self.split.valid if request.valid is not None else []
        rows = self.split.train if named else request.rows
        self.reporter.plan(f"a head over views for {request.kind}", plan_lines(model, rows, knowledge))
        work = functools.partial(self.work, None)
        result = finetune_views(model, rows, named, knowledge, request.seed, work, writer)
        return Finetuned(model, named, result.scores, result.how, result.rivals)

    def work(self, checkpoint: RunDirectory | None, title: str, done: int, total: int) -> None:
        """Before training a signal ends the work at once: there is nothing to save that is not saved."""
        self.reporter.work(title, done, total)
        if self.stopping.requested is not None:
            raise Interrupted(self.stopping.requested, None if checkpoint is None else str(checkpoint.path))

    def _stock(self, model: SavedModel, examples: Sequence[Any], work: Work) -> Stock:
        """What is learned from: the examples of the rows and, where the system has heads that ask for it, those of
        other tasks and of unlabelled text."""
        note, layout, tasks = self.about_rows.note, model.layout, [examples]
        for other in self.request.also:
            encoding = Encoding(learned_of(other), model.tokenizer, layout)
            progress = functools.partial(work, "encoding")
            tasks.append(family_of(other.kind).encode(other.rows, encoding, True, note, progress).examples)
        text = self.request.unlabelled
        if not text:
            return model.head.stock(tasks)
        return model.head.stock(
            tasks, unlabelled_rows(text, model.tokenizer, layout, note, functools.partial(work, "encoding text"))
        )

    def _stage(self, model: SavedModel, stock: Stock, held_out: Encoded, evaluate: Validator) -> Stage:
        """What is learned from, in which order, as many rows at a time as there is memory for."""
        training = model.finetuned.training
        order = model.head.order(stock, training.batch_size, self.request.seed)
        micro = min(training.micro_batch or rows_at_a_time(model.head, stock), training.batch_size)
        if choose_device(self.request.device).type == "cpu":
            memory = finetuning_memory(micro, model.model_config, model.head, stock, held_out)
            check_memory(memory, SMALLER_RUN, built=True)
        return Stage(stock.example, order, micro, evaluate)

    def _job(self, model: SavedModel, stage: Stage, device: torch.device) -> Job:
        return Job(
            trunk=model.trunk,
            objective=model.head,
            stages=(stage,),
            optimizer=_optimizer(model, self.request.start, stage.order.steps_per_epoch),
            config=model.finetuned.training,
            budget=Budget(steps=model.finetuned.updates),
            seed=self.request.seed,
            device=device,
            evaluate_every=stage.order.steps_per_epoch,
            keep_best="main" if self.split.valid else None,
        )


def rows_at_a_time(task: Objective, stock: Stock) -> int:
    """As many examples as hold about `MICRO_TOKENS` that are learned from; more where batch norm compares them."""
    most = NORMED_TOKENS if task.norms_rows else MICRO_TOKENS
    return max(1, most // max(task.learned_tokens(example) for example in stock.rows))


def _open_run(writer: RunWriter, model: SavedModel, loop: Loop) -> None:
    check_disk(writer.run, loop.job)
    loop.restore()
    files = {"config.toml": model.config.text().encode()}
    if not writer.run.has("tokenizer.json"):
        files["tokenizer.json"] = model.tokenizer.to_json().encode()
    writer.commit(files)
    model.run = writer.run


# -- data ------------------------------------------------------------------------------------------------------------


def _split(request: FinetuneRequest, family: Family) -> tuple[Split[Any], list[str]]:
    """The rows to train on and those to validate on, and what to say of them."""
    if not request.rows:
        raise UserError("there are no rows to fine-tune on")
    remarks = family.check(request.rows, request.kind)
    family.check(request.valid or (), request.kind)
    if request.valid is not None:
        return Split(list(request.rows), list(request.valid), ""), remarks
    part = DEFAULT_FRACTION if request.hold_out is None else request.hold_out
    split = family.hold_out(request.rows, part, request.seed)
    return split, [*remarks, *([split.note] if split.note else [])]


# -- model -----------------------------------------------------------------------------------------------------------


def _build(request: FinetuneRequest, config: FinetuneConfig) -> SavedModel:
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
    elif base.vectors is not None:  # after the base's own, which were drawn
        trunk.put_vectors(base.vectors)
    head.check(trunk)
    return SavedModel(None, config, system, tokenizer, trunk, head)


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


def _optimizer(model: SavedModel, base: SavedModel, per_epoch: int) -> Optimizer:
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
    """The weights that have rows for tokens which the pre-trained model does not know, and the first of these rows."""
    old, new = dict(source.named_parameters()), dict(target.named_parameters())
    return {name: len(old[name]) for name in new if name in old and len(old[name]) < len(new[name])}


def _scored(model: SavedModel, encoded: Encoded, progress: Callable[[int, int], None]) -> Scores:
    """The task's metrics on labelled rows."""
    config, family = model.task_config, family_of(model.task_config.kind)
    scores = example_scores(model, encoded.examples, progress)
    return family.score(encoded.rows, family.predictions(encoded, scores, config, model.head), config)


def _validator(model: SavedModel, held_out: Encoded, seen: dict[float, Scores]) -> Validator:
    """What scores the rows held out after an epoch; `seen` keeps, for each figure that an epoch is chosen by, the
    scores of the first epoch that had it."""
    config, task = model.task_config, model.head
    family = family_of(config.kind)

    def evaluate() -> dict[str, float]:
        if not held_out.rows:
            return {}
        scores = example_scores(model, held_out.examples)
        family.settle(held_out, scores, config, task)
        result = family.score(held_out.rows, family.predictions(held_out, scores, config, task), config)
        loss = family.loss(held_out, scores, config, task)
        merit = family.merit(result, loss, config)
        seen.setdefault(merit, result)
        return {"main": merit, "loss": loss} | result.values

    return evaluate
