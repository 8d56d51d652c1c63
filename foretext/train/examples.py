"""Labelled rows as what a task learns from and is asked about: transformed token sequences and numeric labels."""

from __future__ import annotations

from collections.abc import Sequence

from foretext.tasks.layout import keeping_question
from foretext.tasks.rows import Row, check_texts
from foretext.tasks.supervised import Example
from foretext.text.encoding import encode_texts
from foretext.train.report import Reporter, Warns, Work
from foretext.train.saved import SavedModel, TaskConfig


def encode_rows(
    rows: Sequence[Row], model: SavedModel, reporter: Reporter | None = None, work: Work | None = None
) -> list[Example]:
    """Rows as transformed sequences with numeric labels; what had to be cut is counted and said. `work` hears of the
    progress, if not the reporter; without one, Python's warnings say it."""
    reporter = reporter or Warns()
    work = work or reporter.work
    config: TaskConfig = model.task_config
    context = model.model_config.context
    layout = model.system.build_layout(dict(model.tokenizer.specials), context, model.info.direction)
    check_texts(rows, config.texts)
    texts = [text for row in rows for text in row.texts]
    encoded = iter(encode_texts(texts, model.tokenizer, lambda done, total: work("encoding", done, total)))
    examples, cut, lost = [], 0, 0
    for row in rows:
        parts = [next(encoded).tolist() for _ in row.texts]
        kept = keeping_question(parts, row.texts, config.format, model.tokenizer.encode)
        sequences = tuple(layout.sequences(config.kind, kept))
        lost += sum(sequence.cut for sequence in sequences)
        cut += any(sequence.cut for sequence in sequences)
        examples.append(Example(sequences, numeric_label(row, model)))
    if cut:
        reporter.note(
            f"{cut:,} of {len(rows):,} rows are longer than the context of {context} tokens: "
            f"the ends of their longest texts were cut ({lost:,} tokens)"
        )
    return examples


def numeric_label(row: Row, model: SavedModel) -> float | int | None:
    """Class index, 0-based choice, or standardised score."""
    config: TaskConfig = model.task_config
    if row.label is None:
        return None
    if config.kind == "regression":
        return (float(row.label) - config.mean) / config.deviation
    if config.kind == "choice":
        return int(row.label)
    labels = model.labels
    assert labels is not None
    return labels.index(str(row.label), row.where)
