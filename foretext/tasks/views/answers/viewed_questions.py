"""Views of questions about passages: their units, how the views are learned, and the head that chooses answers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from foretext.tasks.family import Note, TaskConfig, family_of, silent
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.files.squad import Question
from foretext.tasks.layouts.windows import Answered, Offsets, answer_tokens
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.scores.text_metrics import best_threshold
from foretext.tasks.views.answers.answer_views import AnswerNGrams, AnswerVectors, question_units
from foretext.tasks.views.answers.spans import SpanReader, fit_spans, lengths_of
from foretext.tasks.views.base import Tensors, Units, View
from foretext.tasks.views.explain import answer_reasons
from foretext.tasks.views.field import FittedField, drawn_rows
from foretext.tasks.views.head import Lengths, ViewHead
from foretext.tasks.views.viewed import FittedHead, Learning, Progress, Reads, ViewTask, numbered

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead

MOST_WORDS = 600_000  # of the training passages, each counted once per question
SPANS = "spans."  # before the names of the tensors of lengths


class ViewedQuestions(ViewTask):
    views: Mapping[str, type[View]] = {view.name: view for view in (AnswerNGrams, AnswerVectors)}
    at_a_time = 64  # each has all words of its passage

    # -- rows ----------------------------------------------------------------------------------------------------------

    def drawn(self, rows: Sequence[Question], seed: int, note: Note) -> Sequence[Question]:
        """All rows, or as many as fit in memory."""
        numbers = drawn_rows([len(row.passage.split()) for row in rows], MOST_WORDS, seed)
        if len(numbers) < len(rows):
            note(f"{len(numbers):,} of {len(rows):,} questions are drawn for the views to learn from")
        return [rows[number] for number in numbers.tolist()]

    def groups(self, rows: Sequence[Question]) -> list[int]:
        """Questions about one passage stay together."""
        return numbered(row.passage for row in rows)

    def units(
        self,
        rows: Sequence[Question],
        kind: str,
        names: Collection[str] = (),
        trunk: Reads | None = None,
        progress: Progress | None = None,
    ) -> Units:
        return question_units((row.question, row.passage) for row in rows)

    # -- the head ------------------------------------------------------------------------------------------------------

    def fit(self, learning: Learning, units: Units) -> tuple[FittedField, None]:
        config, rows, seed = learning.config, learning.rows, learning.seed
        places = family_of(config.kind).whole(rows, config, True, silent).offsets
        answers = [_words_of(row, offsets) for row, offsets in zip(rows, places)]
        progress = functools.partial(learning.work, "fitting the head")
        views = _learned(learning, units)
        fitted = fit_spans(views, units, answers, seed, self.groups(rows), config.unanswerable, progress)
        if config.unanswerable and fitted.chosen.folds:
            _choose_threshold(fitted, rows, config)
        return fitted, None

    def decoder(self, head: ViewHead, config: TaskConfig) -> TaskHead:
        assert head.lengths is not None
        return cast("TaskHead", SpanReader(head.lengths, config.unanswerable, config.metric == "exact_match"))

    def cross_validated(
        self, fitted: FittedHead, rows: Sequence[Question], config: TaskConfig, decoder: TaskHead
    ) -> Scores | None:
        fitted = cast("FittedField", fitted)
        if not fitted.chosen.folds:
            return None
        left_out, predictions = _left_out(fitted, rows, config, cast("SpanReader", decoder))
        return family_of(config.kind).with_interval(left_out, predictions, config)

    def reasons(self, head: ViewHead, units: Units, rows: Sequence[Question], config: TaskConfig) -> list[str]:
        family = family_of(config.kind)
        encoded = family.whole(rows, config, False, silent)
        predictions = family.predictions(encoded, head.scores(units), config, self.decoder(head, config))
        return answer_reasons(head, units, predictions.values, encoded.offsets)

    # -- files ---------------------------------------------------------------------------------------------------------

    def extra(self, head: ViewHead) -> Tensors:
        assert head.lengths is not None
        return {SPANS + name: scores for name, scores in head.lengths._asdict().items()}

    def with_extra(self, head: ViewHead, tensors: Tensors) -> ViewHead:
        lengths = Lengths(**{name: tensors[SPANS + name] for name in Lengths._fields})
        shapes = [(max(1, len(lengths.lengths)),), (1,), (1,)]
        if [scores.shape for scores in lengths] != shapes or len(head.bias) != 3:
            raise ValueError("lengths of answers")
        return dataclasses.replace(head, lengths=lengths)

    def empty(self, kind: str, texts: int, stored: Mapping[str, Tensors]) -> Units:
        return question_units([("", "")])


def _learned(learning: Learning, units: Units) -> list[View]:
    views: list[View] = []
    if AnswerNGrams.name in learning.names:
        views.append(AnswerNGrams.learned(units))
    if AnswerVectors.name in learning.names:
        views.append(AnswerVectors.learned(units, learning.known.words, learning.known.matrix, learning.seed))
    return views


def _words_of(row: Question, places: Offsets) -> tuple[int, int] | None:
    """The first and the last word of the answer to learn."""
    if not row.answers:
        return None
    answer = row.answers[0]
    return answer_tokens(places, answer.start, answer.start + len(answer.text))


def _left_out(
    fitted: FittedField, rows: Sequence[Question], config: TaskConfig, reader: SpanReader
) -> tuple[list[Question], Predictions]:
    """The questions of the folds, and the answers of a head that has not seen their passage."""
    family = family_of(config.kind)
    left_out: list[Question] = []
    answers: list[Answered] = []
    for fold in fitted.chosen.folds:
        questions = [rows[number] for number in fold.rows]
        lengths = lengths_of(fold.extra, float(reader.lengths.threshold[0]))
        encoded = family.whole(questions, config, False, silent)
        head = cast("TaskHead", dataclasses.replace(reader, lengths=lengths))
        answers += family.predictions(encoded, fold.scores, config, head).values
        left_out += questions
    return left_out, Predictions(config.kind, answers)


def _choose_threshold(fitted: FittedField, rows: Sequence[Question], config: TaskConfig) -> None:
    """The margin by which "no answer" must outscore the best span, with the highest F1 on left-out questions."""
    lengths = fitted.head.lengths
    assert lengths is not None
    left_out, predictions = _left_out(fitted, rows, config, SpanReader(lengths))
    answers: Sequence[Answered] = predictions.values
    threshold = best_threshold(left_out, [answer.text for answer in answers], [answer.margin for answer in answers])
    if math.isfinite(threshold):
        # The margin must not be passed, so rounding to single precision must not lower it.
        above = np.nextafter(np.array([threshold], dtype=np.float32), np.float32(np.inf))
        fitted.head.lengths = lengths._replace(threshold=above)
