"""Fine-tuning with views: one head over n-grams, word vectors, topics and the states of the pre-trained trunk. There is
no loop: fitting the head (`tasks/views/head.py`) is a convex problem that takes seconds.

All rows train the head. Its score comes from cross-validation on the same rows: each is scored by a head that has seen
neither it nor a copy of it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from foretext.plan import STATES, TUNED, ViewsConfig
from foretext.runs.commit import RunWriter
from foretext.runs.machine import using_threads
from foretext.runs.model import SavedModel, model_tensors
from foretext.runs.report import Reporter, Work
from foretext.runs.run_config import POSITION, Position
from foretext.runs.views import SPAN, TAGGING, units_for, view_files, view_scores
from foretext.tasks.family import family_of
from foretext.tasks.files.rows import Row
from foretext.tasks.row_family import number_of
from foretext.tasks.scores.metrics import Scores, with_interval
from foretext.tasks.views.base import Units, View
from foretext.tasks.views.baselines import Baseline, tag_baseline, watched_baselines
from foretext.tasks.views.field import FittedField
from foretext.tasks.views.head import Fitted, Labels, by_row, fit_views
from foretext.tasks.views.ngrams import NGrams
from foretext.tasks.views.overlap import Overlap
from foretext.tasks.views.self_training import MOST_TEXTS, Gain, text_units, with_text
from foretext.tasks.views.text_knowledge import LatentSemantics, States, Vectors
from foretext.tasks.views.tuned import Tuned
from foretext.text.words.word_list import TextKnowledge
from foretext.train.finetuning.finetune_questions import fit_questions, questions_scored
from foretext.train.finetuning.finetune_sentences import fit_sentences, sentences_scored
from foretext.train.finetuning.out_of_fold import FOLDS

# metrics that are 0 or near it for predicting only the most frequent class
OF_RARE_CLASSES = ("matthews", "f1", "f1_macro")
PARTS = (0.0, 0.25, 0.5, 0.75, 1.0)
WORTH = 0.02  # the trunk is read or fine-tuned only if its states lower the loss by this share
SILENT = Reporter()


def fit_rows(
    model: SavedModel,
    rows: Sequence[Any],
    knowledge: TextKnowledge | None,
    seed: int,
    work: Work,
    tuned: np.ndarray | None = None,
    unlabelled: Sequence[str] = (),
) -> tuple[Fitted | FittedField, Gain | None]:
    """Fits the head over the configured views, puts it into the model, and adds what unlabelled text teaches. `tuned`:
    for each row, the scores of a fine-tuned trunk that has not seen it."""
    if model.task_config.kind == TAGGING:
        return fit_sentences(model, rows, knowledge, seed, work), None
    if model.task_config.kind == SPAN:
        return fit_questions(model, rows, knowledge, seed, work), None
    assert model.finetuned.views is not None
    kinds, config = model.finetuned.views.kinds, model.task_config
    read = [kind for kind in kinds if kind != TUNED]
    units = units_for(model, rows, read, lambda done, total: work("reading states", done, total))
    units = dataclasses.replace(units, tuned=tuned)
    labels = Labels(config.kind, np.array([number_of(row, config) for row in rows]), len(config.labels))
    groups = copies(rows)
    with using_threads(1):  # on a busy machine small matrices take 2 threads ten times as long as 1
        work("fitting the head", 0, 1)
        views = _learned(kinds, units, knowledge)
        fitted, gain = fit_views(views, units, labels, seed, groups), None
        work("fitting the head", 1, 1)
        if unlabelled:
            # Reading all the text with a trunk would take hours.
            teaching = [view for view in views if view.name not in (States.name, Tuned.name)]
            text = text_units(unlabelled, teaching, seed)
            fitted, gain = with_text(fitted, teaching, units, labels, text, seed, groups, work)
    if config.metric in OF_RARE_CLASSES and config.labels and not np.isnan(fitted.chosen.outputs).any():
        fitted = _for_rare_classes(model, rows, fitted, labels.values)
    model.views = fitted.head
    return fitted, gain


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
    if STATES in kinds:
        views.append(States.learned(units))
    if TUNED in kinds:
        views.append(Tuned.learned(units))
    return views


def _for_rare_classes(model: SavedModel, rows: Sequence[Row], fitted: Fitted, values: np.ndarray) -> Fitted:
    """Subtracts a share of the classes' log frequencies from the head's bias. Cross-validation chooses the share with
    the best score. A weak head predicts the most frequent class for every row, which scores badly on metrics that count
    rare classes too."""
    config, own = model.task_config, [rows[number] for number in fitted.rows]
    frequency = np.bincount(values.astype(int), minlength=len(config.labels)) / len(values)
    logarithms = np.log(np.maximum(frequency, 1 / (2 * len(values))))
    outputs = {part: fitted.chosen.outputs - part * logarithms for part in PARTS}
    best = max(PARTS, key=lambda part: scored(model, own, list(outputs[part])).main_value)
    fitted.head.bias = fitted.head.bias - (best * logarithms).astype(fitted.head.bias.dtype)
    return dataclasses.replace(fitted, chosen=dataclasses.replace(fitted.chosen, outputs=outputs[best]))


def copies(rows: Sequence[Row]) -> list[int]:
    """Numbers the rows; rows with the same texts get the same number."""
    numbers: dict[tuple[str, ...], int] = {}
    return [numbers.setdefault(tuple(text.strip() for text in row.texts), len(numbers)) for row in rows]


def cross_validated(model: SavedModel, rows: Sequence[Any], fitted: Fitted | FittedField) -> Scores | None:
    """Scores of the folds' rows, each from a head that has not seen it; None without folds."""
    if isinstance(fitted, FittedField):
        score = sentences_scored if model.task_config.kind == TAGGING else questions_scored
        return score(model, rows, fitted)
    if np.isnan(fitted.chosen.outputs).any():
        return None
    own = [rows[number] for number in fitted.rows]
    kind = model.task_config.kind
    units = units_for(model, own)
    return scored(model, own, by_row(fitted.chosen.outputs, units, kind))


def scored(model: SavedModel, rows: Sequence[Any], scores: Sequence[np.ndarray]) -> Scores:
    """The task's metrics on labelled rows with these scores, with an interval."""
    family, config = family_of(model.task_config.kind), model.task_config
    encoded = family.whole(rows, config, False, SILENT.note)
    predictions = family.predictions(encoded, scores, config, model.decoder)
    score = functools.partial(family.score, config=config)
    return with_interval(score(rows, predictions), rows, predictions, score)


@dataclasses.dataclass(frozen=True)
class ViewsResult:
    scores: Scores | None
    how: str  # where the scores come from
    rivals: list[Baseline]
    gain: Gain | None = None  # from unlabelled text
    remark: str = ""  # what that text was worth

    def with_text(self, gain: Gain | None, unlabelled: Sequence[str]) -> ViewsResult:
        """Adds the remark on unlabelled text, if some was given."""
        if not unlabelled:
            return self
        lost = "unlabelled text: left out, there are too few rows to measure what it is worth"
        return dataclasses.replace(self, gain=gain, remark=str(gain) if gain else lost)


def finetune_views(
    model: SavedModel,
    train: Sequence[Any],
    valid: Sequence[Any],
    knowledge: TextKnowledge | None,
    seed: int,
    work: Work,
    writer: RunWriter | None,
    unlabelled: Sequence[str] = (),
) -> ViewsResult:
    """Fits, scores, compares with the baselines, and writes the run in one commit. `valid`: the user's validation rows;
    nothing is learned from them. `unlabelled`: further texts to learn from."""
    since = time.perf_counter()
    fitted, gain = fit_rows(model, train, knowledge, seed, work, unlabelled=unlabelled)
    result = _result(model, train, valid, fitted, seed, work).with_text(gain, unlabelled)
    views = model.finetuned.views
    assert views is not None
    if writer is not None:
        position = Position(seconds=time.perf_counter() - since, finished=True)
        writer.commit(
            {
                "config.toml": model.config.text().encode(),
                "tokenizer.json": model.tokenizer.to_json().encode(),
                **({"model.safetensors": model_tensors(model)} if views.reads_trunk else {}),
                POSITION: json.dumps(dataclasses.asdict(position)).encode(),
                **view_files(fitted.head, _facts(fitted, result)),
            }
        )
        model.run = writer.run
    return result


def stack_views(
    model: SavedModel,
    train: Sequence[Row],
    tuned: np.ndarray,
    knowledge: TextKnowledge | None,
    seed: int,
    work: Work,
    writer: RunWriter | None,
    unlabelled: Sequence[str] = (),
) -> ViewsResult:
    """The head over the views and a trunk that will be fine-tuned on all rows; `tuned` as in `fit_rows`."""
    fitted, gain = fit_rows(model, train, knowledge, seed, work, tuned, unlabelled)
    result = _result(model, train, (), fitted, seed, work).with_text(gain, unlabelled)
    if writer is not None:
        config = model.config.text().encode()  # the views may have been chosen since it was written
        writer.commit({"config.toml": config, **view_files(fitted.head, _facts(fitted, result))})
    return result


def loss_left_out(
    model: SavedModel,
    views: ViewsConfig,
    train: Sequence[Row],
    knowledge: TextKnowledge | None,
    seed: int,
    work: Work,
    tuned: np.ndarray | None = None,
) -> float:
    """The mean loss of a head over these views on rows that it has not seen; `tuned` as in `fit_rows`."""
    tried = dataclasses.replace(model, config=dataclasses.replace(model.finetuned, views=views))
    fitted, _ = fit_rows(tried, train, knowledge, seed, work, tuned)
    assert isinstance(fitted, Fitted)
    return fitted.chosen.losses[fitted.chosen.strength] / len(fitted.rows)


def worth_reading(
    model: SavedModel, train: Sequence[Row], knowledge: TextKnowledge | None, seed: int, work: Work
) -> tuple[bool, str]:
    """Whether the trunk adds anything to the other views, and a note about it. Its states answer this in seconds. If
    they add little, so does the fine-tuned trunk, and fine-tuning takes minutes."""
    views = model.finetuned.views
    assert views is not None
    rest = views.without_trunk
    if not rest.kinds:
        return True, ""
    both = (rest, views.without(TUNED))
    without, beside = (loss_left_out(model, kinds, train, knowledge, seed, work) for kinds in both)
    worth = beside < (1 - WORTH) * without
    told = f"its states change the cross-validation loss from {without:.3f} to {beside:.3f}"
    return worth, f"the trunk {'may be fine-tuned' if worth else 'is left out'}: {told}"


def choose_trunk(
    model: SavedModel, train: Sequence[Row], tuned: np.ndarray, knowledge: TextKnowledge | None, seed: int, work: Work
) -> str:
    """Chooses by cross-validation loss: the scores of the fine-tuned trunk, the states of the pre-trained one, or
    neither. Keeps the choice in the configuration and returns a note about it."""
    config = model.finetuned
    assert config.views is not None
    losses = {
        views: loss_left_out(model, views, train, knowledge, seed, work, tuned) for views in config.views.alternatives
    }
    best = min(losses, key=lambda views: losses[views])
    model.config = dataclasses.replace(config, views=best, budget=config.budget if best.tuned else None)
    told = ", ".join(f"{loss:.3f} {_TRUNK_IS[_use(views)]}" for views, loss in losses.items())
    return f"the trunk is {_TRUNK_IS[_use(best)]}: cross-validation loss {told}"


_TRUNK_IS = {TUNED: "fine-tuned", STATES: "as pre-trained", "": "left out"}


def _use(views: ViewsConfig) -> str:
    """How the head reads the trunk."""
    return next((kind for kind in (TUNED, STATES) if kind in views.kinds), "")


def _result(
    model: SavedModel, train: Sequence[Any], valid: Sequence[Any], fitted: Fitted | FittedField, seed: int, work: Work
) -> ViewsResult:
    """The head's score and those of the baselines, on the same rows."""
    rivals: list[Baseline] = []
    if model.task_config.kind == TAGGING:
        assert isinstance(fitted, FittedField)
        rivals = tag_baseline(model.task_config, train, valid, [fold.rows for fold in fitted.chosen.folds])
    elif isinstance(fitted, Fitted):
        rivals = watched_baselines(model.task_config, train, valid, seed, work)
    if valid:
        return ViewsResult(scored(model, valid, view_scores(model, valid)), f"{len(valid):,} validation rows", rivals)
    how = f"{len(fitted.rows):,} rows by cross-validation"
    return ViewsResult(cross_validated(model, train, fitted), how, rivals)


def _facts(fitted: Fitted | FittedField, result: ViewsResult) -> dict[str, Any]:
    """What the run records about the choice, besides the head."""
    return {
        "strength": fitted.chosen.strength,
        "relevance": fitted.relevance,
        "scored": {"rows": result.how, **(result.scores.values if result.scores else {})},
        "interval": None if result.scores is None else result.scores.interval,
        "baselines": {rival.name: rival.value for rival in result.rivals},
        **({"unlabelled": dataclasses.asdict(result.gain)} if result.gain else {}),
    }


def plan_lines(
    model: SavedModel, rows: Sequence[Any], knowledge: TextKnowledge | None, unlabelled: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """The plan before the head is fitted."""
    assert model.finetuned.views is not None
    kinds = model.finetuned.views.kinds
    return [
        ("rows", f"{len(rows):,}, all for training; scored by cross-validation"),
        *view_lines(model, knowledge, unlabelled),
        ("trunk", "not fine-tuned" if STATES in kinds else "not read"),
        ("threads", f"{torch.get_num_threads()}"),
    ]


def view_lines(
    model: SavedModel, knowledge: TextKnowledge | None, unlabelled: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """What the head reads."""
    assert model.finetuned.views is not None
    lines = [("views", ", ".join(model.finetuned.views.kinds))]
    if knowledge is not None:
        topics = f", {knowledge.lsa.dimensions} topics" if knowledge.lsa is not None else ""
        lines.append(
            ("text", (f"{len(knowledge.words):,} words with vectors of {knowledge.matrix.shape[1]} dimensions{topics}"))
        )
    if model.finetuned.views.tuned:
        lines.append(("folds", f"{FOLDS} fine-tunings; each leaves out some of the rows and then scores them"))
        if len(model.finetuned.views.alternatives) > 1:
            lines.append(("then", "one fine-tuning on all rows, unless its states or no trunk predict better"))
    if unlabelled:
        most = f"; at most {MOST_TEXTS:,} are drawn" if len(unlabelled) > MOST_TEXTS else ""
        lines.append(
            ("unlabelled", f"{len(unlabelled):,} texts{most}; left out if cross-validation shows that they do harm")
        )
    return lines
