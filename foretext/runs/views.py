"""The views of a fine-tuned run: their files, and what they say of rows.

views/views.json            which views there are, what each is worth, how the head was chosen
views/NAME.safetensors      what a view has learned: terms, vectors, topics
views/head.safetensors      the weights for each block of each view, and the bias
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from foretext.errors import UserError
from foretext.nn.task_models.crf import Chain
from foretext.runs.directory import RunDirectory
from foretext.runs.model import SavedModel, encode, example_scores
from foretext.runs.reading import sentence_units, text_states
from foretext.runs.report import Reporter
from foretext.tasks.family import family_of
from foretext.tasks.files.rows import UNORDERED, Row
from foretext.tasks.views.answers import AnswerNGrams, AnswerVectors, question_units
from foretext.tasks.views.base import Tensors, Units, View, units_of, word_units
from foretext.tasks.views.chain import tagger
from foretext.tasks.views.explain import answer_reasons, reasons, word_reasons
from foretext.tasks.views.head import Lengths, ViewHead, read_blocks
from foretext.tasks.views.ngrams import NGrams
from foretext.tasks.views.overlap import Overlap
from foretext.tasks.views.taught import Taught
from foretext.tasks.views.text_knowledge import LatentSemantics, States, Vectors
from foretext.tasks.views.tuned import Tuned
from foretext.tasks.views.words import WordNGrams, WordStates, WordVectors

VIEWS: dict[str, type[View]] = {
    view.name: view for view in (NGrams, Overlap, LatentSemantics, Vectors, States, Taught, Tuned)
}
ANSWER_VIEWS: dict[str, type[View]] = {view.name: view for view in (AnswerNGrams, AnswerVectors)}
WORD_VIEWS: dict[str, type[View]] = {view.name: view for view in (WordNGrams, WordVectors, WordStates)}
INDEX = "views/views.json"
HEAD = "views/head.safetensors"
WEIGHT, BIAS, LIMITS, CHAIN, SPANS = "weight.", "bias", "limits", "chain.", "spans."
CHAIN_PARTS = ("transitions", "starts", "ends")
TAGGING, SPAN = "tagging", "span"
ROWS, QUESTIONS = 4096, 64  # scored at a time
Progress = Callable[[int, int], None]


def units_for(
    model: SavedModel, rows: Sequence[Any], kinds: Collection[str] = (), progress: Progress | None = None
) -> Units:
    """The rows as views read them. If a view reads the trunk, its states for each text or its scores for each row are
    included."""
    kind = model.task_config.kind
    if kind == TAGGING:
        return sentence_units(model, rows, States.name in kinds, progress)
    if kind == SPAN:
        return question_units((row.question, row.passage) for row in rows)
    units = units_of([row.texts for row in rows], kind, kind not in UNORDERED)
    if Tuned.name in kinds:
        examples = encode(rows, model, Reporter(), labelled=False).examples
        units = replace(units, tuned=unit_outputs(example_scores(model, examples, progress), rows, kind))
    if States.name not in kinds:
        return units
    texts = [text for row in rows for text in row.texts]
    distinct = list(dict.fromkeys(texts))
    found = text_states(model, distinct, progress)
    place = {text: number for number, text in enumerate(distinct)}
    sides = [[place[own[side]] for own in _unit_texts(rows, kind)] for side in range(len(units.words[0]))]
    return replace(units, states=tuple(found[own] for own in sides))


def unit_outputs(scores: Sequence[np.ndarray], rows: Sequence[Row], kind: str) -> np.ndarray:
    """Scores from a trunk's head as [units, outputs]. The mean is subtracted from each row's logits, since adding a
    constant to them means nothing."""
    if kind == "regression":
        return np.asarray(scores, dtype=np.float64).reshape(-1, 1)
    if kind != "choice":
        table = np.asarray(scores, dtype=np.float64)
        return np.asarray(table - table.mean(1, keepdims=True))
    own = [np.asarray(said[: len(row.texts) - 1], dtype=np.float64) for said, row in zip(scores, rows)]
    return np.concatenate([said - said.mean() for said in own])[:, None]


def _unit_texts(rows: Sequence[Row], kind: str) -> list[tuple[str, ...]]:
    if kind != "choice":
        return [row.texts for row in rows]
    return [(row.texts[0], choice) for row in rows for choice in row.texts[1:]]


def view_scores(model: SavedModel, rows: Sequence[Any], progress: Progress | None = None) -> list[np.ndarray]:
    """The views' scores for each row: logits of its classes or choices, or its score; for tags and answers, those of
    each word. Rows are scored in batches to bound the memory."""
    assert model.views is not None
    found: list[np.ndarray] = []
    for first, own in _parts(model, rows):
        part = None if progress is None else partial(_part, progress, first, len(own), len(rows))
        found += model.views.scores(units_for(model, own, model.views.names, part))
        if part is not None:
            part(1, 1)
    return found


def _parts(model: SavedModel, rows: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    size = QUESTIONS if model.task_config.kind == SPAN else ROWS
    for first in range(0, len(rows), size):
        yield first, rows[first : first + size]


def _part(progress: Progress, first: int, count: int, rows: int, done: int, total: int) -> None:
    """Overall progress of all rows when `done` of `total` in one part are finished."""
    progress(first + count * done // max(1, total), rows)


def view_reasons(model: SavedModel, rows: Sequence[Any]) -> list[Any]:
    """One line per row on why the views score it so; for tags, one line per word."""
    if model.views is None:
        raise UserError("--explain needs a run whose head reads views; fine-tune with --views, or leave it out")
    return [line for _, own in _parts(model, rows) for line in _reasons(model, model.views, own)]


def _reasons(model: SavedModel, head: ViewHead, rows: Sequence[Any]) -> list[Any]:
    units = units_for(model, rows, head.names)
    if head.lengths is not None:
        encoded = family_of(SPAN).whole(rows, model.task_config, False, Reporter().note)
        scores = head.scores(units)
        said = family_of(SPAN).predictions(encoded, scores, model.task_config, model.decoder)
        return answer_reasons(head, units, said.values, encoded.offsets)
    if head.chain is None:
        return reasons(head, units)
    told = tagger(head.chain, model.task_config.labels).told(head.scores(units), [True] * len(rows))
    return word_reasons(head, units, [best for best, _ in told])


# -- files -------------------------------------------------------------------------------------------------------------


def view_files(head: ViewHead, facts: Mapping[str, Any]) -> dict[str, bytes | dict[str, torch.Tensor]]:
    """The files that a commit writes."""
    state = views_state(head)
    files: dict[str, bytes | dict[str, torch.Tensor]] = {
        INDEX: (json.dumps(state["index"] | facts, indent=1, ensure_ascii=False) + "\n").encode(),
        HEAD: _torch(state["head"]),
    }
    return files | {_file(name): _torch(tensors) for name, tensors in state["read"].items()}


def views_state(head: ViewHead) -> dict[str, Any]:
    """The head as plain data for `views_of`."""
    index = {"views": head.names, "shares": head.shares, "texts": head.texts}
    weights = {BIAS: head.bias} | {WEIGHT + name: weight for name, weight in head.weights.items()}
    if head.limits is not None:
        weights |= {LIMITS: head.limits}
    if head.chain is not None:
        weights |= {CHAIN + name: own for name, own in zip(CHAIN_PARTS, head.chain)}
    if head.lengths is not None:
        weights |= {SPANS + name: own for name, own in head.lengths._asdict().items()}
    return {"index": index, "read": {view.name: view.tensors() for view in head.views}, "head": weights}


def load_views(run: RunDirectory, kind: str) -> ViewHead | None:
    """None if the run has no views. UserError if its files do not fit together."""
    if not run.has(INDEX):
        return None
    index = read_index(run)
    names = [name for name in index.get("views", ()) if name in _views_of(kind)]
    read = {name: _numpy(run.load_tensors(_file(name))) for name in names}
    return views_of(index, read, _numpy(run.load_tensors(HEAD)), kind, str(run.path / "views"))


def views_of(index: Mapping[str, Any], read: Mapping[str, Tensors], head: Tensors, kind: str, where: str) -> ViewHead:
    """The head. It is tried on one empty row, to find files that do not fit together before a user's row is read."""
    try:
        views = [_views_of(kind)[name].of_tensors(tensors) for name, tensors in read.items()]
        weights = {name.removeprefix(WEIGHT): own for name, own in head.items() if name.startswith(WEIGHT)}
        made = ViewHead(
            views,
            weights,
            head[BIAS],
            kind,
            dict(index.get("shares", {})),
            int(index.get("texts", 1)),
            _chain_of(head) if kind == TAGGING else None,
            head.get(LIMITS),
            _lengths_of(head) if kind == SPAN else None,
        )
        empty = _empty(kind, made.texts, read)
        blocks = read_blocks(views, empty)
        if {name: block.shape[1] for name, block in blocks.items()} != {
            name: len(own) for name, own in weights.items()
        }:
            raise ValueError("widths")
        made.scores(empty)
    except (KeyError, ValueError, IndexError, TypeError, AssertionError, UnicodeDecodeError) as error:
        raise UserError(f"{where}: its files do not fit together ({error}); restore them from a copy") from None
    return made


def _views_of(kind: str) -> dict[str, type[View]]:
    return {TAGGING: WORD_VIEWS, SPAN: ANSWER_VIEWS}.get(kind, VIEWS)


def _chain_of(head: Tensors) -> Chain:
    """ValueError if its classes differ from those of the bias."""
    chain = Chain(*(head[CHAIN + name] for name in CHAIN_PARTS))
    classes = len(head[BIAS])
    if [own.shape for own in chain] != [(classes, classes), (classes,), (classes,)]:
        raise ValueError("classes of the chain")
    return chain


def _lengths_of(head: Tensors) -> Lengths:
    """ValueError for what no head has."""
    lengths = Lengths(**{name: head[SPANS + name] for name in Lengths._fields})
    if [own.shape for own in lengths] != [(max(1, len(lengths.lengths)),), (1,), (1,)] or len(head[BIAS]) != 3:
        raise ValueError("lengths of answers")
    return lengths


def _empty(kind: str, texts: int, read: Mapping[str, Tensors]) -> Units:
    if kind == TAGGING:
        means = [own for name, own in read.get(States.name, {}).items() if name.startswith("mean.")]
        return replace(word_units([("",)]), states=tuple(np.zeros((1, len(own)), dtype=np.float32) for own in means))
    if kind == SPAN:
        return question_units([("", "")])
    sides = 2 if kind == "choice" else texts
    units = units_of([("",) * sides], "" if kind == "choice" else kind, kind not in UNORDERED)
    if Tuned.name in read:
        units = replace(units, tuned=np.zeros((1, len(read[Tuned.name]["mean"]))))
    if States.name not in read:
        return units
    width = len(read[States.name]["mean"])
    return replace(units, states=(np.zeros((1, width), dtype=np.float32),) * sides)


def read_index(run: RunDirectory) -> dict[str, Any]:
    try:
        index = json.loads(run.read(INDEX))
        if isinstance(index, dict) and isinstance(index.get("views"), list):
            return index
    except (ValueError, RecursionError):
        pass
    raise UserError(f"{run.path / INDEX}: not a list of views; restore it from a copy")


def _file(name: str) -> str:
    return f"views/{name}.safetensors"


def _torch(tensors: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(own)) for name, own in tensors.items()}


def _numpy(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    return {name: own.numpy() for name, own in tensors.items()}
