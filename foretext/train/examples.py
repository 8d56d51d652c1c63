"""Rows as what a task learns from and is asked about, by a model's tokenizer, layout and context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretext.nn.model_config import reads
from foretext.tasks.families import family_of
from foretext.tasks.family import Encoded, Encoding
from foretext.train.report import Reporter, Warns, Work
from foretext.train.saved import SavedModel


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
    specials = dict(model.tokenizer.specials)
    layout = model.system.build_layout(specials, reads(model.model_config), model.info.direction)
    encoding = Encoding(model.task_config, model.tokenizer, layout)
    return family_of(model.task_config.kind).encode(
        rows, encoding, labelled, reporter.note, lambda done, total: tell("encoding", done, total)
    )


def encode_rows(
    rows: Sequence[Any], model: SavedModel, reporter: Reporter | None = None, work: Work | None = None
) -> list[Any]:
    """The examples alone."""
    return encode(rows, model, reporter, work).examples
