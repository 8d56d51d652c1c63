"""Fits the head over views of passages, for answers, and scores it on questions about passages that it has not seen
(`finetune_views.py` does the same for rows with one label)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from foretext.runs.machine import using_threads
from foretext.runs.model import SavedModel
from foretext.runs.report import Reporter, Work
from foretext.runs.views import units_for
from foretext.tasks.family import family_of
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.files.squad import Question
from foretext.tasks.layouts.windows import Answered, Offsets, answer_tokens
from foretext.tasks.scores.metrics import Scores, with_interval
from foretext.tasks.scores.text_metrics import best_threshold
from foretext.tasks.views.answers import AnswerNGrams, AnswerVectors
from foretext.tasks.views.base import Units, View
from foretext.tasks.views.field import FittedField, drawn_rows
from foretext.tasks.views.spans import SpanReader, fit_spans, lengths_of
from foretext.text.words.word_list import TextKnowledge

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead

MOST_WORDS = 600_000  # of the training passages, each counted once per question
_SILENT = Reporter()


def learned_questions(rows: Sequence[Question], seed: int) -> Sequence[Question]:
    """All rows, or as many as fit in memory."""
    own = drawn_rows([len(row.passage.split()) for row in rows], MOST_WORDS, seed)
    return [rows[number] for number in own.tolist()]


def fit_questions(
    model: SavedModel, rows: Sequence[Question], knowledge: TextKnowledge | None, seed: int, work: Work
) -> FittedField:
    """Fits the head over the configured views and puts it into the model."""
    assert model.finetuned.views is not None
    kinds, config = model.finetuned.views.kinds, model.task_config
    work("fitting the head", 0, 1)
    units = units_for(model, rows)
    places = family_of(config.kind).whole(rows, config, True, _SILENT.note).offsets
    answers = [_words_of(row, own) for row, own in zip(rows, places)]
    passages = {passage: number for number, passage in enumerate(dict.fromkeys(row.passage for row in rows))}
    groups = [passages[row.passage] for row in rows]
    progress = functools.partial(work, "fitting the head")
    with using_threads(1):  # as in `finetune_views`
        views = _learned(kinds, units, knowledge, seed)
        fitted = fit_spans(views, units, answers, seed, groups, config.unanswerable, progress)
    model.views = fitted.head
    if config.unanswerable and fitted.chosen.folds:
        _choose_threshold(model, rows, fitted)
    return fitted


def _learned(kinds: Sequence[str], units: Units, knowledge: TextKnowledge | None, seed: int) -> list[View]:
    views: list[View] = []
    if "ngrams" in kinds:
        views.append(AnswerNGrams.learned(units))
    if "vectors" in kinds:
        assert knowledge is not None
        views.append(AnswerVectors.learned(units, knowledge.words, knowledge.matrix, seed))
    return views


def _words_of(row: Question, places: Offsets) -> tuple[int, int] | None:
    """The first and the last word of the answer to learn."""
    if not row.answers:
        return None
    answer = row.answers[0]
    return answer_tokens(places, answer.start, answer.start + len(answer.text))


def _left_out(
    model: SavedModel, rows: Sequence[Question], fitted: FittedField, reader: SpanReader
) -> tuple[list[Question], Predictions]:
    """The questions of the folds, and the answers of a head that has not seen their passage."""
    config = model.task_config
    family = family_of(config.kind)
    asked: list[Question] = []
    said: list[Answered] = []
    for fold in fitted.chosen.folds:
        own = [rows[number] for number in fold.rows]
        lengths = lengths_of(fold.extra, float(reader.lengths.threshold[0]))
        encoded = family.whole(own, config, False, _SILENT.note)
        head = cast("TaskHead", dataclasses.replace(reader, lengths=lengths))
        said += family.predictions(encoded, fold.scores, config, head).values
        asked += own
    return asked, Predictions(config.kind, said)


def _choose_threshold(model: SavedModel, rows: Sequence[Question], fitted: FittedField) -> None:
    """The margin by which "no answer" must outscore the best span, with the highest F1 on left-out questions."""
    lengths = fitted.head.lengths
    assert lengths is not None
    asked, said = _left_out(model, rows, fitted, SpanReader(lengths))
    found = best_threshold(asked, [one.text for one in said.values], [one.margin for one in said.values])
    if math.isfinite(found):
        # The margin must not be passed, so rounding to single precision must not lower it.
        above = np.nextafter(np.array([found], dtype=np.float32), np.float32(np.inf))
        fitted.head.lengths = lengths._replace(threshold=above)


def questions_scored(model: SavedModel, rows: Sequence[Question], fitted: FittedField) -> Scores | None:
    """Scores of the folds' questions, each answered by a head that has not seen its passage; None without folds."""
    config = model.task_config
    if not fitted.chosen.folds:
        return None
    asked, said = _left_out(model, rows, fitted, cast("SpanReader", model.decoder))
    score = functools.partial(family_of(config.kind).score, config=config)
    return with_interval(score(asked, said), asked, said, score)
