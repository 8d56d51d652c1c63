"""Fine-tuning: labelled rows and a pre-trained run in, a task model out. It uses the same loop as pre-training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from foretext.config import Change
from foretext.errors import Interrupted, UserError
from foretext.objectives.base import Objective, Stock
from foretext.plan import ViewsConfig
from foretext.runs.commit import RunWriter
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import choose_device, out_of_memory_as_user_error, tune_allocator
from foretext.runs.model import (
    SavedModel,
    encode,
    example_scores,
    facing,
    load_model,
    pretrained_model,
)
from foretext.runs.report import Reporter, StopRequest, Warns, Work
from foretext.runs.run_config import MICRO_TOKENS, Budget, FinetuneConfig, has_begun, is_finished, read_config
from foretext.runs.views import SPAN, unit_outputs, view_scores
from foretext.tasks.family import Encoded, Encoding, Family, family_of
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.labelled import DEFAULT_FRACTION, Split
from foretext.tasks.layouts.windows import unlabelled_rows
from foretext.tasks.scores.confusion_picture import confusion_matrix_png
from foretext.tasks.scores.metrics import Scores, with_interval
from foretext.tasks.views.baselines import Baseline, baselines
from foretext.train.finetuning.finetune_model import build_finetuned, optimizer_of
from foretext.train.finetuning.finetune_questions import learned_questions
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest
from foretext.train.finetuning.finetune_settings import (
    learned_of,
    not_followed,
    resolve,
    size_of,
    unused_head,
    with_length,
)
from foretext.train.finetuning.finetune_vectors import knowledge_of, views_of, with_own_words, with_vectors_beside
from foretext.train.finetuning.finetune_views import (
    ViewsResult,
    choose_trunk,
    copies,
    finetune_views,
    plan_lines,
    scored,
    stack_views,
    view_lines,
    worth_reading,
)
from foretext.train.finetuning.out_of_fold import Counted, Fold, folds_for, out_of_fold
from foretext.train.finetuning.own_text import with_own_text
from foretext.train.finetuning.views_alone import (
    as_begun,
    check_views_alone,
    forget_learning,
    is_learning,
    with_views_learned,
)
from foretext.train.loop import Job, Loop, Stage
from foretext.train.planning import (
    SMALLER_RUN,
    Memory,
    check_disk,
    check_memory,
    describe_finetuning,
    finetuning_memory,
)
from foretext.train.resume import draw_missing_curve, finished, going_on, starts_over, write_curve, writing
from foretext.train.untrained import new_base

Validator = Callable[[], dict[str, float]]
Judged = tuple[Scores, Predictions]
CONFUSION = "confusion.png"
NORMED_TOKENS = 8 * MICRO_TOKENS  # batch norm needs many rows: its statistics matter more than fitting the cache


@dataclass
class Finetuned:
    """A task model, and the rows that it was validated on."""

    model: SavedModel
    held_out: Sequence[Any]
    validated: Scores | None = None  # on these rows; None: no validation rows, or the run was already finished
    how: str = "the best epoch on the validation rows"  # what `validated` measures
    rivals: Sequence[Baseline] = ()  # cheap baselines on the same rows
    learned: Sequence[Any] = ()  # the training rows, if `with_rivals` may need them

    @property
    def compared(self) -> int:
        """The number of epochs that `validated` is the best of, chosen on these same rows."""
        return 1 if self.model.views is not None else max(1, self.model.finetuned.task.epochs)

    def with_rivals(self) -> Finetuned:
        """Adds the cheap baselines on the same rows. They are measured now, which takes seconds; only for tasks with
        one label per row."""
        config = self.model.task_config
        if self.rivals or self.validated is None or not self.learned or not family_of(config.kind).fits_head:
            return self
        return replace(self, rivals=baselines(config, self.learned, self.held_out, self.model.info.seed))

    def scores(self, reporter: Reporter) -> Scores | None:
        """The best epoch's scores on the rows held out; None without such rows."""
        if self.validated is None and self.held_out and self.model.views is not None:
            self.validated = scored(self.model, self.held_out, view_scores(self.model, self.held_out))
        if self.validated is None and self.held_out:
            encoded = encode(self.held_out, self.model, Reporter())  # rows that were cut have been reported already
            self.validated = _scored(self.model, encoded, functools.partial(reporter.work, "validating"))
        return self.validated


def finetune(
    request: FinetuneRequest, reporter: Reporter | None = None, stopping: StopRequest | None = None
) -> Finetuned:
    """Fine-tunes, and returns the model with the weights of its best epoch on the validation rows."""
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
        raise UserError(f"{run.path} is a pre-trained run, which finetune cannot resume; choose another --out")
    over = starts_over(run, request.resume)
    if request.resume and is_finished(run):
        return training.finished(run)
    with writing(run, training.reporter.note, over) as writer:
        made = training.train(writer, notes)
        if made.model.finetuned.trains:
            write_curve(run)
        _draw_confusion(made.validated, run)
        if request.views_alone:
            forget_learning(run)
    return made


def _draw_confusion(scores: Scores | None, run: RunDirectory) -> None:
    if scores is not None and scores.confusion:
        confusion_matrix_png(scores, run.path / CONFUSION)


@dataclass(frozen=True)
class _Finetuning:
    """One fine-tuning: the request, the rows, and the reporter."""

    request: FinetuneRequest
    family: Family
    split: Split[Any]
    reporter: Reporter
    about_rows: Reporter
    stopping: StopRequest

    def with_base(self) -> FinetuneRequest:
        """The request with the model to start from, the views that it offers, and the text that these learn from."""
        request = self._with_model()
        if request.views_alone or views_of(request, self.family, None) is None:
            return request
        sources = [model for model in (request.knowledge, request.start) if model is not None]
        return with_own_text(request, sources, self.reporter.note)

    def _with_model(self) -> FinetuneRequest:
        """The request with its starting model, loaded if the request only names it."""
        request, base = self.request, self.request.base
        if not isinstance(base, Base):
            return with_own_words(request)
        if request.views_alone:
            check_views_alone(request, self.family, self.split)
            return request  # the model is learned inside the run
        if base.run is not None:
            request = with_vectors_beside(
                replace(request, base=pretrained_model(base.run)), base.vectors, self.reporter.note
            )
        elif base.system is not None:
            work = functools.partial(self.work, None)
            request = new_base(request, base, self.split.train, self.reporter.note, work)
        if base.direction is not None:
            request = replace(request, base=facing(request.start, base.direction))
        return with_own_words(request)

    def finished(self, run: RunDirectory) -> Finetuned:
        """The result of a finished run, and the pictures if the run was killed before drawing them."""
        changes: list[Change] = []
        alone = self.request.views_alone
        request = as_begun(self.request, run) if alone else self.request
        resolve(request, self.family, self.split, run, changes.append)
        if alone:
            forget_learning(run)
            changes = [change for change in changes if change.key != "task.sentences"]  # the text has been deleted
        self.reporter.note(finished(run.path, changes))
        made = Finetuned(load_model(run.path), self.split.valid, learned=self.split.train)
        if made.model.views is not None:
            return replace(made, held_out=self.request.valid or ())
        draw_missing_curve(run, self.reporter.note)
        if self.family.draws_confusion(made.model.task_config) and not (run.path / CONFUSION).exists():
            _draw_confusion(made.scores(self.reporter), run)
        return made

    def train(self, writer: RunWriter | None, notes: Sequence[str]) -> Finetuned:
        request, reporter, run = self.request, self.reporter, writer.run if writer else None
        if request.views_alone:
            rows = self.split.train if request.valid is not None else request.rows
            request = with_views_learned(request, list(self.family.texts(rows)), reporter, self.stopping)
            return replace(self, request=request).train(writer, notes)
        config = resolve(request, self.family, self.split, run, lambda change: reporter.note(going_on(change)))
        if config.views is not None:  # nothing is held out
            notes = [note for note in notes if note != self.split.note]
        unlike = not_followed(request, config.transfer, config.task.from_scratch)
        for note in (*notes, *unused_head(request, self.family), *unlike):
            reporter.note(note)
        if choose_device(request.device).type == "cpu":
            check_memory(Memory(config.model, 1, 1), SMALLER_RUN)  # for the weights; repeated once the rows are encoded
        model = build_finetuned(request, config)
        return self._fit_trunk(model, writer) if config.views is None else self._fit_head(model, config.views, writer)

    def _fit_head(self, model: SavedModel, views: ViewsConfig, writer: RunWriter | None) -> Finetuned:
        """Fits a head over the views, and the trunk if one of them reads it fine-tuned."""
        named = self.split.valid if self.request.valid is not None else []
        rows = self.split.train if named else self.request.rows
        if self.request.kind == SPAN:
            rows = self._drawn(rows)
        if not views.tuned or not self._worth_tuning(model, rows):
            return self._fit_views(model, rows, named, writer)
        made = replace(self, split=Split(list(rows), [], ""))._fit_trunk(model, writer)
        if named:
            made = replace(made, held_out=named, validated=None, how=f"{len(named):,} validation rows")
            made.scores(self.reporter)
        return made

    def _drawn(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The questions that views learn from."""
        drawn = learned_questions(rows, self.request.seed)
        if len(drawn) < len(rows):
            self.reporter.note(f"{len(drawn):,} of {len(rows):,} questions are drawn for the views to learn from")
        return drawn

    def _worth_tuning(self, model: SavedModel, rows: Sequence[Any]) -> bool:
        """Whether to fine-tune the trunk. If it may be read as it is or left out instead, its states decide."""
        views = model.finetuned.views
        assert views is not None
        if len(views.alternatives) == 1:
            return views.tuned
        work = functools.partial(self.work, None)
        worth, why = worth_reading(model, rows, knowledge_of(self.request), self.request.seed, work)
        if why:
            self.reporter.note(why)
        if not worth:
            model.config = replace(model.finetuned, views=views.without_trunk, budget=None)
        return worth

    def _fit_trunk(self, model: SavedModel, writer: RunWriter | None) -> Finetuned:
        """Runs the loop. With views, first computes what their head needs."""
        request, reporter, run = self.request, self.reporter, writer.run if writer else None
        config, device = model.finetuned, choose_device(request.device)
        goes_on = run is not None and has_begun(run)
        work = functools.partial(self.work, run if goes_on else None)
        learned = encode(self.split.train, model, self.about_rows, work)
        held_out = encode(self.split.valid, model, self.about_rows, work)
        if not learned.examples:
            raise UserError("this run's vocabulary has no piece for any word of the rows; use another run, or --system")
        stock = self._stock(model, learned.examples, work)
        validations: dict[float, Judged] = {}
        stage = self._stage(model, stock, held_out, _validator(model, held_out, validations))
        self._ready(model, learned, stage, functools.partial(work, "fitting the head"), fits=not goes_on)
        with out_of_memory_as_user_error(stage.micro_batch):
            loop = Loop(self._job(model, stage, device), writer, reporter, self.stopping)
            if writer is not None:
                _open_run(writer, model, loop)
            plan = describe_finetuning(loop, model.finetuned, learned, held_out, stock)
            if config.views is not None:
                plan += view_lines(model, knowledge_of(request), request.unlabelled)
            reporter.plan(f"fine-tuning for {request.kind}", plan)
            stacked = None if config.views is None else self._stack(config, model, learned, writer)
            begun = loop.position.step
            if model.finetuned.trains:
                loop.run()
        model.trunk.eval()
        model.head.eval()
        if stacked is not None:
            if stacked.remark:
                reporter.note(stacked.remark)
            return Finetuned(model, [], stacked.scores, stacked.how, stacked.rivals)
        made = Finetuned(model, self.split.valid, learned=self.split.train)
        # otherwise an earlier process had the best
        if loop.position.best is not None and loop.position.best_step > begun:
            made.validated = _of_best(model, held_out, validations.get(loop.position.best))
        made.scores(reporter)
        return made

    def _ready(
        self, model: SavedModel, learned: Encoded, stage: Stage, progress: Callable[[int, int], None], fits: bool
    ) -> None:
        """The time it takes, the device, and what the head takes from the rows before it learns."""
        device = choose_device(self.request.device)
        model.config = with_length(model.finetuned, size_of(self.request), len(learned.examples), stage.order)
        model.trunk.to(device)
        model.head.to(device)
        if fits:
            with out_of_memory_as_user_error(stage.micro_batch):
                self._meet(model, learned, device, progress)

    def _meet(
        self, model: SavedModel, learned: Encoded, device: torch.device, progress: Callable[[int, int], None]
    ) -> None:
        """What a head takes from the rows before it learns."""
        model.head.meet(learned.examples)
        if model.finetuned.transfer.head == "probe":
            model.head.fit_head(model.trunk, learned.examples, device, self.request.seed, progress)

    def _stack(
        self, config: FinetuneConfig, model: SavedModel, learned: Encoded, writer: RunWriter | None
    ) -> ViewsResult:
        """The head over the views. It is fitted on scores by trunks that have not seen the row; then the trunk of the
        run learns all rows."""
        request, rows = self.request, learned.rows
        classes = [row.label for row in rows] if config.task.labels else None
        folds = folds_for(classes, copies(rows), request.seed)

        def scores_of(number: int, fold: Fold) -> list[np.ndarray]:
            return self._left_out(config, learned, fold, f"fold {number + 1} of {len(folds)}")

        tuned = unit_outputs(out_of_fold(folds, scores_of, writer), rows, request.kind)
        work, knowledge = functools.partial(self.work, None if writer is None else writer.run), knowledge_of(request)
        assert config.views is not None
        if len(config.views.alternatives) > 1:
            self.reporter.note(choose_trunk(model, rows, tuned, knowledge, request.seed, work))
        if not model.finetuned.trains:
            return finetune_views(model, rows, (), knowledge, request.seed, work, writer, request.unlabelled)
        return stack_views(model, rows, tuned, knowledge, request.seed, work, writer, request.unlabelled)

    def _left_out(self, config: FinetuneConfig, learned: Encoded, fold: Fold, title: str) -> list[np.ndarray]:
        """The scores of a fold's rows by a trunk that was fine-tuned on the other folds."""
        own, asked = (
            Encoded([learned.rows[row] for row in part], [learned.examples[row] for row in part]) for part in fold
        )
        model = build_finetuned(self.request, config)
        stage = self._stage(model, model.head.stock([own.examples], []), Encoded([], []), dict)
        self._ready(model, own, stage, lambda done, total: None, fits=True)
        job = self._job(model, stage, choose_device(self.request.device))
        Loop(job, None, Counted(self.reporter, f"fine-tuning, {title}", model.finetuned.updates), self.stopping).run()
        return example_scores(model, asked.examples)

    def _fit_views(
        self, model: SavedModel, rows: Sequence[Any], named: Sequence[Any], writer: RunWriter | None
    ) -> Finetuned:
        request, knowledge = self.request, knowledge_of(self.request)
        plan = plan_lines(model, rows, knowledge, request.unlabelled)
        self.reporter.plan(f"a head over views for {request.kind}", plan)
        work = functools.partial(self.work, writer.run if writer and is_learning(writer.run) else None)
        result = finetune_views(model, rows, named, knowledge, request.seed, work, writer, request.unlabelled)
        if result.remark:
            self.reporter.note(result.remark)
        return Finetuned(model, named, result.scores, result.how, result.rivals)

    def work(self, checkpoint: RunDirectory | None, title: str, done: int, total: int) -> None:
        """Before training a signal ends the work at once: everything worth saving has been saved."""
        self.reporter.work(title, done, total)
        if self.stopping.requested is not None:
            raise Interrupted(self.stopping.requested, None if checkpoint is None else str(checkpoint.path))

    def _stock(self, model: SavedModel, examples: Sequence[Any], work: Work) -> Stock:
        """What is learned from: the examples of the rows and, for systems whose heads use them, those of other tasks
        and of unlabelled text."""
        note, layout, tasks = self.about_rows.note, model.layout, [examples]
        for other in self.request.also:
            encoding = Encoding(learned_of(other), model.tokenizer, layout)
            progress = functools.partial(work, "encoding")
            tasks.append(family_of(other.kind).encode(other.rows, encoding, True, note, progress).examples)
        text = () if model.finetuned.views is not None else self.request.unlabelled  # a view learns from it
        if not text:
            return model.head.stock(tasks)
        return model.head.stock(
            tasks, unlabelled_rows(text, model.tokenizer, layout, note, functools.partial(work, "encoding text"))
        )

    def _stage(self, model: SavedModel, stock: Stock, held_out: Encoded, evaluate: Validator) -> Stage:
        """The examples, their order, and as many rows per micro-batch as fit in memory."""
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
            optimizer=optimizer_of(model, self.request.start, stage.order.steps_per_epoch),
            config=model.finetuned.training,
            budget=Budget(steps=model.finetuned.updates),
            seed=self.request.seed,
            device=device,
            evaluate_every=stage.order.steps_per_epoch,
            keep_best="main" if self.split.valid else None,
        )


def rows_at_a_time(task: Objective, stock: Stock) -> int:
    """As many examples as hold about `MICRO_TOKENS` trained tokens; more if batch norm compares them."""
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


# -- data --------------------------------------------------------------------------------------------------------------


def _split(request: FinetuneRequest, family: Family) -> tuple[Split[Any], list[str]]:
    """The rows to train on and to validate on, and notes about them."""
    if not request.rows:
        raise UserError("there are no rows to fine-tune on")
    remarks = family.check(request.rows, request.kind)
    family.check(request.valid or (), request.kind)
    if request.valid is not None:
        return Split(list(request.rows), list(request.valid), ""), remarks
    part = DEFAULT_FRACTION if request.hold_out is None else request.hold_out
    split = family.hold_out(request.rows, part, request.seed)
    return split, [*remarks, *([split.note] if split.note else [])]


# -- scores ----------------------------------------------------------------------------------------------------------


def _scored(model: SavedModel, encoded: Encoded, progress: Callable[[int, int], None]) -> Scores:
    """The task's metrics on labelled rows, with an interval."""
    config, family = model.task_config, family_of(model.task_config.kind)
    scores = example_scores(model, encoded.examples, progress)
    predictions = family.predictions(encoded, scores, config, model.head)
    return _with_interval(model, encoded, (family.score(encoded.rows, predictions, config), predictions))


def _with_interval(model: SavedModel, encoded: Encoded, judged: Judged) -> Scores:
    scores, predictions = judged
    score = functools.partial(family_of(model.task_config.kind).score, config=model.task_config)
    return with_interval(scores, encoded.rows, predictions, score)


def _of_best(model: SavedModel, encoded: Encoded, judged: Judged | None) -> Scores | None:
    return None if judged is None else _with_interval(model, encoded, judged)


def _validator(model: SavedModel, held_out: Encoded, seen: dict[float, Judged]) -> Validator:
    """Scores the validation rows after each epoch. For each value of the metric that chooses the epoch, `seen` keeps
    the scores and predictions of the first epoch that reached it."""
    config, task = model.task_config, model.head
    family = family_of(config.kind)

    def evaluate() -> dict[str, float]:
        if not held_out.rows:
            return {}
        scores = example_scores(model, held_out.examples)
        family.settle(held_out, scores, config, task)
        predictions = family.predictions(held_out, scores, config, task)
        result = family.score(held_out.rows, predictions, config)
        loss = family.loss(held_out, scores, config, task)
        merit = family.merit(result, loss, config)
        seen.setdefault(merit, (result, predictions))
        return {"main": merit, "loss": loss} | result.values

    return evaluate
