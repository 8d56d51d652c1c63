"""The views of a fine-tuned run: their files, and what they say of rows. What the kind of task says of views it says in
`tasks/views/viewed.py`.

views/views.json            which views there are, what each is worth, how the head was chosen
views/NAME.safetensors      what a view has learned: terms, vectors, topics
views/head.safetensors      the weights for each block of each view, and the bias
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from foretext.errors import UserError
from foretext.runs.directory import RunDirectory
from foretext.runs.model import SavedModel, encode, example_scores
from foretext.runs.reading import text_states, word_states
from foretext.runs.report import Reporter
from foretext.tasks.family import Progress, family_of
from foretext.tasks.views.base import Tensors, Units, ViewHead, read_blocks
from foretext.tasks.views.viewed import Reads, ViewTask

INDEX = "views/views.json"
HEAD = "views/head.safetensors"
WEIGHT, BIAS = "weight.", "bias"


@dataclass(frozen=True)
class TrunkRead(Reads):
    """What views read of a model's trunk."""

    model: SavedModel

    def text_states(self, texts: Sequence[str], progress: Progress | None) -> np.ndarray:
        return text_states(self.model, texts, progress)

    def word_states(self, rows: Sequence[Any], progress: Progress | None) -> tuple[np.ndarray, ...]:
        return word_states(self.model, rows, progress)

    def row_scores(self, rows: Sequence[Any], progress: Progress | None) -> list[np.ndarray]:
        examples = encode(rows, self.model, Reporter(), labelled=False).examples
        return example_scores(self.model, examples, progress)


def view_task_of(model: SavedModel) -> ViewTask:
    """What the model's kind of task says of views."""
    return family_of(model.task_config.kind).view_task()


def units_for(
    model: SavedModel, rows: Sequence[Any], names: Collection[str] = (), progress: Progress | None = None
) -> Units:
    """The rows as views read them. If one of these views reads the trunk, its states or its scores are included."""
    return view_task_of(model).units(rows, model.task_config.kind, names, TrunkRead(model), progress)


def view_scores(model: SavedModel, rows: Sequence[Any], progress: Progress | None = None) -> list[np.ndarray]:
    """The views' scores for each row: logits of its classes or choices, or its score; for tags and answers, those of
    each word. Rows are scored in batches to bound the memory."""
    assert model.views is not None
    scores: list[np.ndarray] = []
    for first, batch in _batches(model, rows):
        part = None if progress is None else partial(_part, progress, first, len(batch), len(rows))
        scores += model.views.scores(units_for(model, batch, model.views.names, part))
        if part is not None:
            part(1, 1)
    return scores


def _batches(model: SavedModel, rows: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    size = view_task_of(model).at_a_time
    for first in range(0, len(rows), size):
        yield first, rows[first : first + size]


def _part(progress: Progress, first: int, count: int, rows: int, done: int, total: int) -> None:
    """Overall progress of all rows when `done` of `total` in one part are finished."""
    progress(first + count * done // max(1, total), rows)


def view_reasons(model: SavedModel, rows: Sequence[Any]) -> list[Any]:
    """One line per row on why the views score it so; for tags, one line per word."""
    head = model.views
    if head is None:
        raise UserError("--explain needs a run whose head reads views; fine-tune with --views, or leave it out")
    task, config = view_task_of(model), model.task_config
    return [
        line
        for _, batch in _batches(model, rows)
        for line in task.reasons(head, units_for(model, batch, head.names), batch, config)
    ]


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
    weights |= family_of(head.kind).view_task().extra(head)
    return {"index": index, "read": {view.name: view.tensors() for view in head.views}, "head": weights}


def load_views(run: RunDirectory, kind: str) -> ViewHead | None:
    """None if the run has no views. UserError if its files do not fit together."""
    if not run.has(INDEX):
        return None
    index, known = read_index(run), family_of(kind).view_task().views
    stored = {name: _numpy(run.load_tensors(_file(name))) for name in index.get("views", ()) if name in known}
    return views_of(index, stored, _numpy(run.load_tensors(HEAD)), kind, str(run.path / "views"))


def views_of(index: Mapping[str, Any], read: Mapping[str, Tensors], head: Tensors, kind: str, where: str) -> ViewHead:
    """The head. It is tried on one empty row, to find files that do not fit together before a user's row is read."""
    task = family_of(kind).view_task()
    try:
        views = [task.views[name].of_tensors(tensors) for name, tensors in read.items()]
        weights = {name.removeprefix(WEIGHT): table for name, table in head.items() if name.startswith(WEIGHT)}
        shares, texts = dict(index.get("shares", {})), int(index.get("texts", 1))
        loaded = task.with_extra(ViewHead(views, weights, head[BIAS], kind, shares, texts), head)
        empty = task.empty(kind, texts, read)
        widths = {name: block.shape[1] for name, block in read_blocks(views, empty).items()}
        if widths != {name: len(table) for name, table in weights.items()}:
            raise ValueError("widths")
        loaded.scores(empty)
    except (KeyError, ValueError, IndexError, TypeError, AssertionError, UnicodeDecodeError) as error:
        raise UserError(f"{where}: its files do not fit together ({error}); restore them from a copy") from None
    return loaded


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
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}


def _numpy(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
