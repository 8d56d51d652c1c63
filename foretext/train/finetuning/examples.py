"""Rows as what a task learns from and is asked about, by a model's tokenizer, layout and context; and what else is
learned from, where a system learns from more than rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretext.objectives.base import Stock
from foretext.runs.model import SavedModel
from foretext.runs.report import Reporter, Warns, Work
from foretext.tasks.families import family_of
from foretext.tasks.family import Encoded, Encoding
from foretext.tasks.layouts.base import Layout
from foretext.tasks.layouts.windows import running_words
from foretext.text.tokenizers.base import Tokenizer, is_unspaced
from foretext.train.finetuning.finetune_request import FinetuneRequest
from foretext.train.finetuning.finetune_settings import learned_of


def encode(
    rows: Sequence[Any],
    model: SavedModel,
    reporter: Reporter | None = None,
    work: Work | None = None,
    labelled: bool = True,
) -> Encoded:
    """Rows as examples, with labels if `labelled`; what had to be cut or was not understood is counted and said. `work`
    hears of the progress, if not the reporter; without one, Python's warnings say it."""
    reporter = reporter or Warns()
    tell = work or reporter.work
    encoding = Encoding(model.task_config, model.tokenizer, _layout(model))
    return family_of(model.task_config.kind).encode(
        rows, encoding, labelled, reporter.note, lambda done, total: tell("encoding", done, total)
    )


def _layout(model: SavedModel) -> Layout:
    specials = dict(model.tokenizer.specials)
    return model.system.build_layout(specials, model.model_config.reads, model.info.direction)


def encode_rows(
    rows: Sequence[Any], model: SavedModel, reporter: Reporter | None = None, work: Work | None = None
) -> list[Any]:
    """The examples alone."""
    return encode(rows, model, reporter, work).examples


# -- more than rows --------------------------------------------------------------------------------------------------


def all_examples(
    request: FinetuneRequest, model: SavedModel, examples: Sequence[Any], reporter: Reporter, work: Work
) -> Stock:
    """What is learned from: the examples of the rows and, where the system has heads that ask for it, those of other
    tasks and of unlabelled text."""
    layout, tasks = _layout(model), [examples]
    for other in request.also:
        encoding = Encoding(learned_of(other), model.tokenizer, layout)
        found = family_of(other.kind).encode(
            other.rows, encoding, True, reporter.note, lambda done, total: work("encoding", done, total)
        )
        tasks.append(found.examples)
    assert model.task is not None
    return model.task.stock(tasks, _unlabelled(request.unlabelled, model, layout, reporter, work))


def _unlabelled(
    texts: Sequence[str], model: SavedModel, layout: Layout, reporter: Reporter, work: Work
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sentences, word by word as labelled ones are encoded; what is longer than the context is read in parts, and what
    has no word is left out."""
    room = layout.context - layout.overhead(1)
    pieces = _PiecesOfWords(model.tokenizer)
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    longer = 0
    for number, text in enumerate(texts):
        if number % 1024 == 0:
            work("encoding text", number, len(texts))
        ids, asked = pieces.read(text)
        longer += len(ids) > room
        for start in range(0, len(ids), room):
            frame = layout.frame(ids[start : start + room])
            framed = np.zeros(len(frame.ids), dtype=bool)
            first, length = frame.parts[0]
            framed[first : first + length] = asked[start : start + room]
            rows.append((np.array(frame.ids, dtype=np.int32), framed))
    if longer:
        reporter.note(
            f"{longer:,} of {len(texts):,} unlabelled lines are longer than {room} words and are read in parts; give a "
            "sentence a line"
        )
    return rows


class _PiecesOfWords:
    """The ids of running text, and which of them a tag would be asked at: a word's first, and each character of a
    script without spaces, whose words nobody has told apart."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.known: dict[str, tuple[list[int], list[bool]]] = {}

    def read(self, text: str) -> tuple[list[int], list[bool]]:
        ids: list[int] = []
        asked: list[bool] = []
        for word in running_words(text.split()):
            if word not in self.known:
                own = self.tokenizer.encode(word)
                unspaced = [is_unspaced(self.tokenizer.piece(id)) for id in own]
                self.known[word] = own, [place == 0 or unspaced[place] for place in range(len(own))]
            ids += self.known[word][0]
            asked += self.known[word][1]
        return ids, asked
