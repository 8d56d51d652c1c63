"""Fine-tuning: labelled rows and a pre-trained run in, a task model out. It uses the same loop as pre-training.

hold out rows                       split_rows
the model to start from, and        with_base: load or make it; word vectors and text beside it
what it knows besides
the configuration                   resolve, from the request, the rows and a run that is resumed
the model                           build_finetuned
a head over views, or the loop      _fit_head, _fit_trunk
its score                           Finetuned.scores
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foretext.config import Change
from foretext.errors import Interrupted, refuse_if
from foretext.runs.commit import RunWriter
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import choose_device, out_of_memory_as_user_error, tune_allocator
from foretext.runs.model import SavedModel, encode, example_scores, facing, load_model, pretrained_model
from foretext.runs.report import Reporter, StopRequest, Warns
from foretext.runs.run_config import FinetuneConfig, has_begun, is_finished, read_config
from foretext.runs.views import view_scores
from foretext.tasks.family import Encoded, Family, family_of
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.labelled import Split
from foretext.tasks.scores.confusion_picture import confusion_matrix_png
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.views.base import Fold
from foretext.tasks.views.baselines import Baseline, baselines
from foretext.train.finetuning.finetune_knowledge import (
    views_of,
    with_own_text,
    with_own_words,
    with_vectors_beside,
)
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest, split_rows
from foretext.train.finetuning.finetune_settings import not_followed, resolve, unused_head
from foretext.train.finetuning.finetune_trunk import (
    Validator,
    build_finetuned,
    job_of,
    make_ready,
    open_run,
    stage_of,
    stock_of,
)
from foretext.train.finetuning.finetune_views import Counted, ViewsFitting, ViewsResult, folds_for, out_of_fold, scored
from foretext.train.finetuning.views_alone import (
    as_begun,
    check_views_alone,
    forget_learning,
    is_learning,
    with_views_learned,
)
from foretext.train.loop import Loop
from foretext.train.planning import SMALLER_RUN, Memory, check_memory, describe_finetuning
from foretext.train.resume import draw_missing_curve, finished, going_on, starts_over, write_curve, writing
from foretext.train.untrained import new_base

CONFUSION = "confusion.png"


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
        model, rows = self.model, self.held_out
        if self.validated is None and rows and model.views is not None:
            self.validated = scored(model, rows, view_scores(model, rows))
        elif self.validated is None and rows:
            encoded = encode(rows, model, Reporter())  # rows that were cut have been reported already
            scores = example_scores(model, encoded.examples, functools.partial(reporter.work, "validating"))
            self.validated = family_of(model.task_config.kind).scored(encoded, scores, model.task_config, model.head)
        return self.validated


def finetune(
    request: FinetuneRequest, reporter: Reporter | None = None, stopping: StopRequest | None = None
) -> Finetuned:
    """Fine-tunes, and returns the model with the weights of its best epoch on the validation rows."""
    family = family_of(request.kind)
    split, notes = split_rows(request, family)
    tune_allocator()
    training = _Finetuning(
        request, family, split, reporter or Reporter(), reporter or Warns(), stopping or StopRequest()
    )
    training = replace(training, request=training.with_base())
    if request.out is None:
        return training.train(None, notes)
    run = RunDirectory(request.out)
    refuse_if(
        request.resume and run.has("config.toml") and not isinstance(read_config(run), FinetuneConfig),
        f"{run.path} is a pre-trained run, which finetune cannot resume; choose another --out",
    )
    over = starts_over(run, request.resume)
    if request.resume and is_finished(run):
        return training.finished(run)
    with writing(run, training.reporter.note, over) as writer:
        result = training.train(writer, notes)
        if result.model.finetuned.trains:
            write_curve(run)
        _draw_confusion(result.validated, run)
        if request.views_alone:
            forget_learning(run)
    return result


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
        sources = [model for model in (request.knowledge, request.base_model) if model is not None]
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
            request = replace(request, base=facing(request.base_model, base.direction))
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
        result = Finetuned(load_model(run.path), self.split.valid, learned=self.split.train)
        if result.model.views is not None:
            return replace(result, held_out=self.request.valid or ())
        draw_missing_curve(run, self.reporter.note)
        if self.family.draws_confusion(result.model.task_config) and not (run.path / CONFUSION).exists():
            _draw_confusion(result.scores(self.reporter), run)
        return result

    def train(self, writer: RunWriter | None, notes: Sequence[str]) -> Finetuned:
        """Resolves the configuration, builds the model, and fits a head over views or trains the trunk."""
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
        return self._fit_trunk(model, writer) if config.views is None else self._fit_head(model, writer)

    def _fit_head(self, model: SavedModel, writer: RunWriter | None) -> Finetuned:
        """Fits a head over the views, and the trunk if one of them reads it fine-tuned."""
        request, reporter = self.request, self.reporter
        named = self.split.valid if request.valid is not None else []
        rows = self.split.train if named else request.rows
        rows = self.family.view_task().drawn(rows, request.seed, reporter.note)
        fitting = ViewsFitting(request, model, rows, functools.partial(self.work, None))
        if fitting.views.tuned and fitting.worth_tuning(reporter.note):
            result = replace(self, split=Split(list(rows), [], ""))._fit_trunk(model, writer)
            if named:
                result = replace(result, held_out=named, validated=None, how=f"{len(named):,} validation rows")
                result.scores(reporter)
            return result
        reporter.plan(f"a head over views for {request.kind}", fitting.plan_lines())
        work = functools.partial(self.work, writer.run if writer and is_learning(writer.run) else None)
        return self._with_views(model, named, replace(fitting, work=work).finish(named, writer))

    def _fit_trunk(self, model: SavedModel, writer: RunWriter | None) -> Finetuned:
        """Runs the loop. With views, first fits their head."""
        request, reporter, run = self.request, self.reporter, writer.run if writer else None
        config, resumed = model.finetuned, run is not None and has_begun(run)
        work = functools.partial(self.work, run if resumed else None)
        learned = encode(self.split.train, model, self.about_rows, work)
        held_out = encode(self.split.valid, model, self.about_rows, work)
        refuse_if(
            not learned.examples,
            "this run's vocabulary has no piece for any word of the rows; use another run, or --system",
        )
        stock = stock_of(model, request, learned.examples, self.about_rows.note, work)
        validations: dict[float, Predictions] = {}
        stage = stage_of(model, request, stock, held_out, _validator(model, held_out, validations))
        make_ready(model, request, learned, stage, None if resumed else functools.partial(work, "fitting the head"))
        with out_of_memory_as_user_error(stage.micro_batch):
            loop = Loop(job_of(model, request, stage, bool(self.split.valid)), writer, reporter, self.stopping)
            if writer is not None:
                open_run(writer, model, loop)
            plan = describe_finetuning(loop, model.finetuned, learned, held_out, stock)
            if config.views is not None:
                plan += ViewsFitting(request, model, learned.rows, work).view_lines()
            reporter.plan(f"fine-tuning for {request.kind}", plan)
            stacked = None if config.views is None else self._stack(config, model, learned, writer)
            begun = loop.position.step
            if model.finetuned.trains:
                loop.run()
        model.trunk.eval()
        model.head.eval()
        if stacked is not None:
            return self._with_views(model, [], stacked)
        result = Finetuned(model, self.split.valid, learned=self.split.train)
        # otherwise an earlier process had the best
        if loop.position.best is not None and loop.position.best_step > begun:
            best = validations.get(loop.position.best)
            result.validated = None if best is None else self.family.with_interval(held_out.rows, best, config.task)
        result.scores(reporter)
        return result

    def _stack(
        self, config: FinetuneConfig, model: SavedModel, learned: Encoded, writer: RunWriter | None
    ) -> ViewsResult:
        """The head over the views. It is fitted on scores by trunks that have not seen the row; then the trunk of the
        run learns all rows."""
        request, rows = self.request, learned.rows
        folds = folds_for(rows, config.task, request.seed)

        def scores_of(number: int, fold: Fold) -> list[np.ndarray]:
            return self._left_out(config, learned, fold, f"fold {number + 1} of {len(folds)}")

        scores = out_of_fold(folds, scores_of, writer)
        tuned = self.family.view_task().outputs(scores, rows, request.kind)
        work = functools.partial(self.work, None if writer is None else writer.run)
        fitting = ViewsFitting(request, model, rows, work, tuned)
        if len(fitting.views.alternatives) > 1:
            self.reporter.note(fitting.choose_trunk())
        if not model.finetuned.trains:
            return replace(fitting, tuned=None).finish((), writer)
        return fitting.finish((), writer, trunk_follows=True)

    def _left_out(self, config: FinetuneConfig, learned: Encoded, fold: Fold, title: str) -> list[np.ndarray]:
        """The scores of a fold's rows by a trunk that was fine-tuned on the other folds."""
        request = self.request
        others, left_out = (
            Encoded([learned.rows[row] for row in part], [learned.examples[row] for row in part]) for part in fold
        )
        model = build_finetuned(request, config)
        stage = stage_of(model, request, model.head.stock([others.examples], []), Encoded([], []), dict)
        make_ready(model, request, others, stage, lambda done, total: None)
        counted = Counted(self.reporter, f"fine-tuning, {title}", model.finetuned.updates)
        Loop(job_of(model, request, stage, bool(self.split.valid)), None, counted, self.stopping).run()
        return example_scores(model, left_out.examples)

    def _with_views(self, model: SavedModel, held_out: Sequence[Any], result: ViewsResult) -> Finetuned:
        if result.remark:
            self.reporter.note(result.remark)
        return Finetuned(model, held_out, result.scores, result.how, result.rivals)

    def work(self, checkpoint: RunDirectory | None, title: str, done: int, total: int) -> None:
        """Before training a signal ends the work at once: everything worth saving has been saved."""
        self.reporter.work(title, done, total)
        if self.stopping.requested is not None:
            raise Interrupted(self.stopping.requested, None if checkpoint is None else str(checkpoint.path))


# -- scores ------------------------------------------------------------------------------------------------------------


def _validator(model: SavedModel, held_out: Encoded, seen: dict[float, Predictions]) -> Validator:
    """Scores the validation rows after each epoch. For each value of the metric that chooses the epoch, `seen` keeps
    the predictions of the first epoch that reached it."""
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
        seen.setdefault(merit, predictions)
        return {"main": merit, "loss": loss} | result.values

    return evaluate
