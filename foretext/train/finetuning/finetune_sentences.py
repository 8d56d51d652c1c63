"""Fits the head over views of words, for sentences with one tag per word, and scores it on sentences that it has not
seen (`finetune_views.py` does the same for rows with one label)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from foretext.nn.task_models.crf import Chain
from foretext.runs.machine import using_threads
from foretext.runs.model import SavedModel
from foretext.runs.report import Reporter, Work
from foretext.runs.views import units_for
from foretext.tasks.family import family_of
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.views.base import Units, View
from foretext.tasks.views.chain import Tags, allowed_of, fit_chain, tagger
from foretext.tasks.views.field import FittedField
from foretext.tasks.views.words import WordNGrams, WordStates, WordVectors
from foretext.text.words.word_list import TextKnowledge

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead

_SILENT = Reporter()


def fit_sentences(
    model: SavedModel, rows: Sequence[TaggedSentence], knowledge: TextKnowledge | None, seed: int, work: Work
) -> FittedField:
    """Fits the head over the configured views and puts it into the model."""
    assert model.finetuned.views is not None
    kinds, config = model.finetuned.views.kinds, model.task_config
    encoded = family_of(config.kind).whole(rows, config, True, _SILENT.note)
    units = units_for(model, rows, kinds, lambda done, total: work("reading states", done, total))
    work("fitting the head", 0, 1)
    classes = np.array([tag for example in encoded.examples for tag in example.tags])
    tags = Tags(classes, len(config.labels), allowed_of(config.labels))
    with using_threads(1):  # as in `finetune_views`
        views = _learned(kinds, units, knowledge, seed)
        fitted = fit_chain(views, units, tags, seed, _copies(rows), functools.partial(work, "fitting the head"))
    model.views = fitted.head
    return fitted


def _learned(kinds: Sequence[str], units: Units, knowledge: TextKnowledge | None, seed: int) -> list[View]:
    views: list[View] = []
    if "ngrams" in kinds:
        views.append(WordNGrams.learned(units))
    if "vectors" in kinds:
        assert knowledge is not None
        views.append(WordVectors.learned(units, knowledge.words, knowledge.matrix, seed))
    if "states" in kinds:
        views.append(WordStates.learned(units))
    return views


def _copies(rows: Sequence[TaggedSentence]) -> list[int]:
    """Numbers the sentences; sentences with the same words get the same number."""
    numbers: dict[tuple[str, ...], int] = {}
    return [numbers.setdefault(row.words, len(numbers)) for row in rows]


def sentences_scored(model: SavedModel, rows: Sequence[TaggedSentence], fitted: FittedField) -> Scores | None:
    """Scores of the folds' sentences, each tagged by a head that has not seen it; None without folds."""
    config = model.task_config
    family = family_of(config.kind)
    asked: list[TaggedSentence] = []
    values: list[tuple[str, ...]] = []
    for fold in fitted.chosen.folds:
        own = [rows[number] for number in fold.rows]
        encoded = family.whole(own, config, False, _SILENT.note)
        chain = cast("TaskHead", tagger(Chain(*fold.extra), config.labels))
        values += family.predictions(encoded, fold.scores, config, chain).values
        asked += own
    return family.score(asked, Predictions(config.kind, values, None, config.labels), config) if asked else None
