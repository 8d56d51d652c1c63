"""Fine-tuning with views: one head over n-grams, word vectors, topics and the states of the pre-trained trunk. There is
no loop: fitting the head (`tasks/views/viewed.py`) is a convex problem that takes seconds.

All rows train the head. Its score comes from cross-validation on the same rows: each is scored by a head that has seen
neither it nor a copy of it.

If the head reads the scores of the fine-tuned trunk, these come from trunks that have not seen the row: the rows are
split into folds, and the rows of a fold are scored by a trunk that was fine-tuned on all other folds. The scores of a
finished fold are kept in the run, so a run that was killed resumes with the next fold.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from foretext.errors import refuse_if
from foretext.plan import STATES, TUNED, ViewsConfig
from foretext.runs.commit import RunWriter
from foretext.runs.machine import using_threads
from foretext.runs.model import SavedModel, model_tensors
from foretext.runs.report import Reporter, StepReport, Work
from foretext.runs.run_config import POSITION, Position
from foretext.runs.views import units_for, view_files, view_scores, view_task_of
from foretext.tasks.family import TaskConfig, family_of, silent
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.views.base import FittedHead, Fold
from foretext.tasks.views.baselines import Baseline
from foretext.tasks.views.self_training import MOST_TEXTS, Gain
from foretext.tasks.views.viewed import Learning
from foretext.train.finetuning.finetune_knowledge import knowledge_of
from foretext.train.finetuning.finetune_request import FinetuneRequest

WORTH = 0.02  # the trunk is read or fine-tuned only if its states lower the loss by this share
FOLDS = 4
FILE = "training/folds.safetensors"


@dataclass(frozen=True)
class ViewsResult:
    scores: Scores | None
    how: str  # where the scores come from
    rivals: list[Baseline]
    gain: Gain | None = None  # from unlabelled text
    remark: str = ""  # what that text was worth


@dataclass(frozen=True)
class ViewsFitting:
    """The fitting of one head over the views of a model's configuration."""

    request: FinetuneRequest
    model: SavedModel
    rows: Sequence[Any]
    work: Work
    tuned: np.ndarray | None = None  # for each unit, the scores of a fine-tuned trunk that has not seen its row

    @property
    def views(self) -> ViewsConfig:
        views = self.model.finetuned.views
        assert views is not None
        return views

    def finish(self, valid: Sequence[Any], writer: RunWriter | None, trunk_follows: bool = False) -> ViewsResult:
        """Fits, scores, compares with the baselines, and writes the run in one commit. `valid`: the user's validation
        rows; nothing is learned from them. `trunk_follows`: the head also reads a trunk that will be fine-tuned on all
        rows, so the run is not finished."""
        since, model = time.perf_counter(), self.model
        fitted, result = self._result(valid)
        if writer is None:
            return result
        # The views may have been chosen since the configuration was written.
        files = {"config.toml": model.config.text().encode(), **view_files(fitted.head, _facts(fitted, result))}
        if not trunk_follows:
            position = Position(seconds=time.perf_counter() - since, finished=True)
            files |= {
                "tokenizer.json": model.tokenizer.to_json().encode(),
                **({"model.safetensors": model_tensors(model)} if self.views.reads_trunk else {}),
                POSITION: json.dumps(dataclasses.asdict(position)).encode(),
            }
            model.run = writer.run
        writer.commit(files)
        return result

    def _result(self, valid: Sequence[Any]) -> tuple[FittedHead, ViewsResult]:
        """The head, put into the model, its score and those of the baselines, on the same rows."""
        model, texts = self.model, self.request.unlabelled
        fitted, gain = self._fit(texts)
        task, config = view_task_of(model), model.task_config
        rivals = task.baselines(fitted, self.rows, valid, self._learning(()))
        if valid:
            how = f"{len(valid):,} validation rows"
            scores: Scores | None = scored(model, valid, view_scores(model, valid))
        else:
            how = f"{len(fitted.rows):,} rows by cross-validation"
            scores = task.cross_validated(fitted, self.rows, config, model.decoder)
        remark = str(gain or "unlabelled text: left out, there are too few rows to measure what it is worth")
        return fitted, ViewsResult(scores, how, rivals, gain, remark if texts else "")

    def _fit(self, texts: Sequence[str]) -> tuple[FittedHead, Gain | None]:
        """Fits the head, puts it into the model, and adds what unlabelled texts teach."""
        read = self.views.without(TUNED).kinds
        units = units_for(self.model, self.rows, read, lambda done, total: self.work("reading states", done, total))
        units = dataclasses.replace(units, tuned=self.tuned)
        self.work("fitting the head", 0, 1)
        with using_threads(1):  # on a busy machine small matrices take 2 threads ten times as long as 1
            fitted, gain = view_task_of(self.model).fit(self._learning(texts), units)
        self.model.views = fitted.head
        return fitted, gain

    def _learning(self, texts: Sequence[str]) -> Learning:
        request, names = self.request, self.views.kinds
        config, knowledge = self.model.task_config, knowledge_of(request)
        return Learning(self.rows, config, names, knowledge, request.seed, self.work, texts)

    # -- the trunk -----------------------------------------------------------------------------------------------------

    def worth_tuning(self, note: Callable[[str], None]) -> bool:
        """Whether to fine-tune the trunk. If it may be read as it is or left out instead, its states answer this in
        seconds: if they add little to the other views, so does the fine-tuned trunk, and fine-tuning takes minutes."""
        if len(self.views.alternatives) == 1:
            return self.views.tuned
        rest = self.views.without_trunk
        if not rest.kinds:
            return True
        without, beside = (self._loss_left_out(views) for views in (rest, self.views.without(TUNED)))
        worth = beside < (1 - WORTH) * without
        losses = f"its states change the cross-validation loss from {without:.3f} to {beside:.3f}"
        note(f"the trunk {'may be fine-tuned' if worth else 'is left out'}: {losses}")
        if not worth:
            self.model.config = dataclasses.replace(self.model.finetuned, views=rest, budget=None)
        return worth

    def choose_trunk(self) -> str:
        """Chooses by cross-validation loss: the scores of the fine-tuned trunk, the states of the pre-trained one, or
        neither. Keeps the choice in the configuration and returns a note about it."""
        config = self.model.finetuned
        losses = {views: self._loss_left_out(views) for views in self.views.alternatives}
        best = min(losses, key=lambda views: losses[views])
        self.model.config = dataclasses.replace(config, views=best, budget=config.budget if best.tuned else None)
        compared = ", ".join(f"{loss:.3f} {_TRUNK_IS[_use(views)]}" for views, loss in losses.items())
        return f"the trunk is {_TRUNK_IS[_use(best)]}: cross-validation loss {compared}"

    def _loss_left_out(self, views: ViewsConfig) -> float:
        """The mean loss of a head over these views on rows that it has not seen."""
        tried = dataclasses.replace(self.model, config=dataclasses.replace(self.model.finetuned, views=views))
        fitted, _ = dataclasses.replace(self, model=tried)._fit(())
        return fitted.chosen.losses[fitted.chosen.strength] / len(fitted.rows)

    # -- the plan ------------------------------------------------------------------------------------------------------

    def plan_lines(self) -> list[tuple[str, str]]:
        """The plan before the head is fitted."""
        return [
            ("rows", f"{len(self.rows):,}, all for training; scored by cross-validation"),
            *self.view_lines(),
            ("trunk", "not fine-tuned" if STATES in self.views.kinds else "not read"),
            ("threads", f"{torch.get_num_threads()}"),
        ]

    def view_lines(self) -> list[tuple[str, str]]:
        """What the head reads."""
        knowledge, texts = knowledge_of(self.request), self.request.unlabelled
        lines = [("views", ", ".join(self.views.kinds))]
        if knowledge is not None:
            topics = f", {knowledge.lsa.dimensions} topics" if knowledge.lsa is not None else ""
            width = knowledge.matrix.shape[1]
            lines.append(("text", f"{len(knowledge.words):,} words with vectors of {width} dimensions{topics}"))
        if self.views.tuned:
            lines.append(("folds", f"{FOLDS} fine-tunings; each leaves out some of the rows and then scores them"))
            if len(self.views.alternatives) > 1:
                lines.append(("then", "one fine-tuning on all rows, unless its states or no trunk predict better"))
        if texts:
            most = f"; at most {MOST_TEXTS:,} are drawn" if len(texts) > MOST_TEXTS else ""
            harm = "left out if cross-validation shows that they do harm"
            lines.append(("unlabelled", f"{len(texts):,} texts{most}; {harm}"))
        return lines


_TRUNK_IS = {TUNED: "fine-tuned", STATES: "as pre-trained", "": "left out"}


def _use(views: ViewsConfig) -> str:
    """How the head reads the trunk."""
    return next((kind for kind in (TUNED, STATES) if kind in views.kinds), "")


def scored(model: SavedModel, rows: Sequence[Any], scores: Sequence[np.ndarray]) -> Scores:
    """The task's metrics on labelled rows with these scores, with an interval."""
    family, config = family_of(model.task_config.kind), model.task_config
    return family.scored(family.whole(rows, config, False, silent), scores, config, model.decoder)


def _facts(fitted: FittedHead, result: ViewsResult) -> dict[str, Any]:
    """What the run records about the choice, besides the head."""
    return {
        "strength": fitted.chosen.strength,
        "relevance": fitted.relevance,
        "scored": {"rows": result.how, **(result.scores.values if result.scores else {})},
        "interval": None if result.scores is None else result.scores.interval,
        "baselines": {rival.name: rival.value for rival in result.rivals},
        **({"unlabelled": dataclasses.asdict(result.gain)} if result.gain else {}),
    }


# -- scores by trunks that have not seen the row -----------------------------------------------------------------------


def folds_for(rows: Sequence[Any], config: TaskConfig, seed: int) -> list[Fold]:
    """Folds of the rows; UserError if they cannot be split."""
    folds = family_of(config.kind).view_task().folds(rows, config, FOLDS, seed)
    refuse_if(not folds, "all rows are copies of one row and cannot be split into folds; leave tuned out of --views")
    return folds


def out_of_fold(
    folds: Sequence[Fold], fold_scores: Callable[[int, Fold], list[np.ndarray]], writer: RunWriter | None
) -> list[np.ndarray]:
    """The scores of all rows, in order. `fold_scores(number, fold)` returns the scores of one fold's rows."""
    kept = writer.run.load_tensors(FILE) if writer is not None and writer.run.has(FILE) else {}
    by_row: dict[int, np.ndarray] = {}
    for number, fold in enumerate(folds):
        names = {int(row): f"{number}.{row}" for row in fold[1]}
        if not all(name in kept for name in names.values()):
            kept |= {
                name: torch.from_numpy(np.atleast_1d(scores))
                for name, scores in zip(names.values(), fold_scores(number, fold))
            }
            if writer is not None:
                writer.commit({FILE: kept})
        by_row |= {row: kept[name].numpy() for row, name in names.items()}
    return [by_row[row] for row in sorted(by_row)]


class Counted(Reporter):
    """Shows a training as progress in steps, and nothing else."""

    def __init__(self, reporter: Reporter, title: str, steps: int) -> None:
        self.reporter, self.title, self.steps = reporter, title, steps

    def step(self, report: StepReport) -> None:
        self.reporter.work(self.title, report.step, self.steps)
