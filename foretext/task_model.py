"""A fine-tuned run, as `ft.load` and `finetune` return it. It reads rows as it did in training, predicts, and computes
metrics. Runs of systems without pre-training (cvt) also give vectors.

Everything that differs between kinds of task is left to their family (`tasks/family.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foretext.errors import UserError, refuse_if
from foretext.evaluate.features import GivesVectors
from foretext.evaluate.options import Concern
from foretext.runs.model import SavedModel, encode, example_scores
from foretext.runs.report import Reporter, Warns
from foretext.runs.views import view_reasons, view_scores
from foretext.tasks.family import Encoded, Progress, Reading, family_of
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.scores.metrics import Scores, check_metric, with_main


class TaskModel(GivesVectors):
    """A fine-tuned run."""

    def __init__(self, model: SavedModel, path: Path | None, others: Sequence[TaskModel] = ()) -> None:
        """`others`: further models of the task, whose predictions are averaged with this one's."""
        self.model = model
        self.path = path
        self.others = tuple(others)
        self.task = model.task_config.kind
        self.family = family_of(self.task)

    def averaged_with(self, *others: TaskModel) -> TaskModel:
        """A model that averages its predictions with those of others, such as ULMFiT's forward and backward models."""
        refuse_if(
            not self.family.averages,
            f"predictions of {self.task} cannot be averaged: --with needs a task with one label per row; leave it out",
        )
        for number, other in enumerate(others, 2 + len(self.others)):
            if other.task != self.task or other.labels != self.labels:
                first, second = self.path or "model 1", other.path or f"model {number}"  # only runs have folders
                raise UserError(
                    f"{second} and {first} cannot be averaged: {_taught(other)} and {_taught(self)}; fine-tune both on "
                    "the same rows"
                )
        return TaskModel(self.model, self.path, (*self.others, *others))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.model.task_config.labels)

    @property
    def evaluated_on(self) -> Literal["rows"]:
        """What shows how good the model is."""
        return "rows"

    @property
    def inapplicable(self) -> dict[Concern, str]:
        """Why options of an evaluation do not apply, by what they are for."""
        reasons: dict[Concern, str] = {"text": f"is for text, but {self.path} reads labelled rows"}
        if not self.family.draws_confusion(self.model.task_config):
            reasons["classes"] = f"is for tasks with classes, but the task of {self.path} is {self.task}"
        return reasons

    def rows(
        self,
        data: Any,
        need_labels: bool = False,
        columns: dict[str, str] | None = None,
        format: str | None = None,
    ) -> list[Any]:
        """Rows of a file or of Python data. By default a file is read like the training file, or by the task's own
        column names; `columns` or `format` override that (`format="none"`: by the task's own names)."""
        reading = self.reading(need_labels, columns, format)
        if isinstance(data, str | Path):
            return self.family.read(Path(data), reading).rows
        return self.family.from_data(data, reading)

    def reading(
        self,
        need_labels: bool = False,
        columns: dict[str, str] | None = None,
        format: str | None = None,
        errors: str = "strict",
    ) -> Reading:
        """How this run reads rows. What is not given here is taken from the training file."""
        return Reading(self.task, columns, format, self.model.task_config, need_labels, errors)

    def predictions(self, data: Any, progress: Progress | None = None, reporter: Reporter | None = None) -> Predictions:
        """Predictions and probabilities for a file's rows or Python data, as in `predict`. Labels in the rows are
        ignored. `reporter` is told about progress and about rows that were cut."""
        return self._predictions(self.rows(data), False, progress, reporter)

    def _predictions(
        self, rows: Sequence[Any], labelled: bool, progress: Progress | None, reporter: Reporter | None
    ) -> Predictions:
        encoded, scores = self._scores(rows, labelled, progress, reporter)
        predictions = self.family.predictions(encoded, scores, self.model.task_config, self.model.decoder)
        if not self.others:
            return predictions
        others = [other._predictions(rows, False, progress, reporter) for other in self.others]
        return self.family.averaged([predictions, *others])

    def explain(self, data: Any) -> list[Any]:
        """One line per row that explains its prediction: what each view adds, and the most important words. For tags: a
        list of lines, one per word."""
        return view_reasons(self.model, self.rows(data))

    def predict(self, data: Any, columns: dict[str, str] | None = None, format: str | None = None) -> list[Any]:
        """Class names, choice numbers (from 1), scores, lists of tags, or answer texts. `columns` and `format` are as
        in `rows`."""
        return self.family.values(self.predictions(self.rows(data, False, columns, format)))

    def predict_proba(self, data: Any, columns: dict[str, str] | None = None, format: str | None = None) -> np.ndarray:
        """Probabilities [rows, classes], in the order of `labels`; for choices, in their own order."""
        rows = self.rows(data, False, columns, format)
        _, scores = self._scores(rows, False)
        probabilities = self.family.probabilities(scores, self.model.task_config)
        if not self.others:
            return probabilities
        return np.mean([probabilities, *(other.predict_proba(rows) for other in self.others)], axis=0)

    def evaluate(
        self,
        data: Any,
        progress: Progress | None = None,
        *,
        columns: dict[str, str] | None = None,
        format: str | None = None,
        metric: str | None = None,
        reporter: Reporter | None = None,
    ) -> Scores:
        """The task's metrics on labelled rows. `metric`: the main metric, if not that of the fine-tuning."""
        rows = self.rows(data, True, columns, format)
        if metric is not None:
            check_metric(metric, self.family.metrics(self.model.task_config))
        predictions = self._predictions(rows, True, progress, reporter)
        scores = self.family.score(rows, predictions, self.model.task_config)
        return scores if metric is None else with_main(scores, metric)

    def check_gives_vectors(self) -> None:
        """UserError unless this is a single run of a system without pre-training (cvt): others give none here."""
        refuse_if(self.others, "the vectors of several runs cannot be averaged: ask each run for its own")
        super().check_gives_vectors()

    def _scores(
        self,
        rows: Sequence[Any],
        labelled: bool,
        progress: Progress | None = None,
        reporter: Reporter | None = None,
    ) -> tuple[Encoded, list[np.ndarray]]:
        refuse_if(not rows, "there are no rows to predict")
        if self.model.views is not None:
            note = (reporter or Warns()).note
            encoded = self.family.whole(rows, self.model.task_config, labelled, note)
            return encoded, view_scores(self.model, rows, progress)
        encoded = encode(rows, self.model, reporter, labelled=labelled)
        return encoded, example_scores(self.model, encoded.examples, progress)


def _taught(model: TaskModel) -> str:
    labels = ", ".join(model.labels[:4]) + (", …" if len(model.labels) > 4 else "")
    return f"{model.task} of {labels}" if labels else model.task
