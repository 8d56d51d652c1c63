"""Fine-tuning by views: one head over n-grams, word vectors, topics and the states of the trunk, which stays as it was
pre-trained. There is no loop: the head is the minimum of a convex loss (`tasks/views/head.py`), found in seconds.

All rows teach the head. What it is worth is told by cross-validation over the same rows: each is scored by a head that
has not seen it, nor a copy of it.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from foretext.runs.directory import RunWriter
from foretext.runs.model import SavedModel, model_tensors
from foretext.runs.report import Work
from foretext.runs.run_config import POSITION, Position
from foretext.runs.views import units_for, view_files, view_scores
from foretext.tasks.families import family_of
from foretext.tasks.family import Encoded
from foretext.tasks.files.rows import Row
from foretext.tasks.row_family import number_of
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.views.base import Units, View
from foretext.tasks.views.baselines import Baseline, baselines
from foretext.tasks.views.head import Fitted, Labels, by_row, fit_views
from foretext.tasks.views.ngrams import NGrams
from foretext.tasks.views.overlap import Overlap
from foretext.tasks.views.text_knowledge import LatentSemantics, States, Vectors
from foretext.text.words.word_list import TextKnowledge


def fit_rows(
    model: SavedModel,
    rows: Sequence[Row],
    knowledge: TextKnowledge | None,
    seed: int,
    work: Work,
) -> Fitted:
    """The head over the views that the configuration names, put into the model."""
    assert model.finetuned.views is not None
    kinds, config = model.finetuned.views.kinds, model.task_config
    units = units_for(model, rows, "states" in kinds, lambda done, total: work("reading states", done, total))
    values = np.array([number_of(row, config) for row in rows])
    work("fitting the head", 0, 1)
    views = _learned(kinds, units, knowledge)
    fitted = fit_views(views, units, Labels(config.kind, values, len(config.labels)), seed, _copies(rows))
    work("fitting the head", 1, 1)
    model.views = fitted.head
    return fitted


def _learned(kinds: Sequence[str], units: Units, knowledge: TextKnowledge | None) -> list[View]:
    views: list[View] = []
    if "ngrams" in kinds:
        views += [NGrams.learned(units), *([Overlap.learned(units)] if units.pairs else [])]
    if "lsa" in kinds:
        assert knowledge is not None and knowledge.lsa is not None
        views.append(LatentSemantics(knowledge.words, knowledge.lsa))
    if "vectors" in kinds:
        assert knowledge is not None
        views.append(Vectors.learned(units, knowledge.words, knowledge.matrix, knowledge.counts))
    if "states" in kinds:
        views.append(States.learned(units))
    return views


def _copies(rows: Sequence[Row]) -> list[int]:
    """Rows with the same texts have the same number."""
    numbers: dict[tuple[str, ...], int] = {}
    return [numbers.setdefault(tuple(text.strip() for text in row.texts), len(numbers)) for row in rows]


def cross_validated(model: SavedModel, rows: Sequence[Row], fitted: Fitted) -> Scores | None:
    """On the rows of the folds, each scored by a head that has not seen it; None where there were no folds."""
    if np.isnan(fitted.chosen.outputs).any():
        return None
    own = [rows[number] for number in fitted.rows]
    kind = model.task_config.kind
    units = units_for(model, own, False)
    return scored(model, own, by_row(fitted.chosen.outputs, units, kind))


def scored(model: SavedModel, rows: Sequence[Row], scores: Sequence[np.ndarray]) -> Scores:
    """The task's metrics on labelled rows that have these scores."""
    family, config = family_of(model.task_config.kind), model.task_config
    assert model.task is not None
    return family.score(rows, family.predictions(Encoded(rows, []), scores, config, model.task), config)


@dataclasses.dataclass(frozen=True)
class ViewsResult:
    scores: Scores | None
    how: str  # what the scores are of
    rivals: list[Baseline]


def finetune_views(
    model: SavedModel,
    train: Sequence[Row],
    valid: Sequence[Row],
    knowledge: TextKnowledge | None,
    seed: int,
    work: Work,
    writer: RunWriter | None,
) -> ViewsResult:
    """Fits, scores, compares with what is cheap, and writes the run in one commit. `valid`: rows that the user has
    named for validation; they teach nothing."""
    since = time.perf_counter()
    fitted = fit_rows(model, train, knowledge, seed, work)
    scores: Scores | None
    if valid:
        scores, how = scored(model, valid, view_scores(model, valid)), f"{len(valid):,} validation rows"
    else:
        scores, how = cross_validated(model, train, fitted), f"{len(fitted.rows):,} rows by cross-validation"
    rivals = baselines(model.task_config, train, valid, seed)
    head = fitted.head
    facts = {
        "strength": fitted.chosen.strength,
        "relevance": fitted.relevance,
        "scored": {"rows": how, **(scores.values if scores else {})},
        "baselines": {rival.name: rival.value for rival in rivals},
    }
    if writer is not None:
        position = Position(seconds=time.perf_counter() - since, finished=True)
        writer.commit(
            {
                "config.toml": model.config.text().encode(),
                "tokenizer.json": model.tokenizer.to_json().encode(),
                "model.safetensors": model_tensors(model),
                POSITION: json.dumps(dataclasses.asdict(position)).encode(),
                **view_files(head, facts),
            }
        )
        model.run = writer.run
    return ViewsResult(scores, how, rivals)


def plan_lines(model: SavedModel, rows: Sequence[Any], knowledge: TextKnowledge | None) -> list[tuple[str, str]]:
    """The plan before the head is fitted."""
    assert model.finetuned.views is not None
    kinds = model.finetuned.views.kinds
    lines = [("rows", f"{len(rows):,}, all to learn from; scored by cross-validation"), ("views", ", ".join(kinds))]
    if knowledge is not None:
        topics = f", {knowledge.lsa.dimensions} topics" if knowledge.lsa is not None else ""
        lines.append(("text", f"{len(knowledge.words):,} words with vectors of {knowledge.matrix.shape[1]}{topics}"))
    lines.append(("trunk", "stays as it is" if "states" in kinds else "not read"))
    lines.append(("threads", f"{torch.get_num_threads()}"))
    return lines
