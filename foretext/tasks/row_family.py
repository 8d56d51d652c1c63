"""Tasks with one label per row: classification, entailment, similarity, choice, regression."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretext.errors import counted, refuse_if
from foretext.plan import VIEWS, ConcatPoolingConfig, TransferPlan
from foretext.tasks.family import (
    Encoded,
    Encoding,
    Family,
    Note,
    Progress,
    Read,
    Reading,
    TaskConfig,
    read_as_trained,
    remembered_names,
)
from foretext.tasks.files.formats import find_format
from foretext.tasks.files.predictions import Predictions, prediction_table, probabilities_of
from foretext.tasks.files.rows import (
    Row,
    check_texts,
    rows_from,
    rows_of,
    table_from,
)
from foretext.tasks.labelled import LabelSet, Split, hold_out, label_warnings
from foretext.tasks.layouts.base import keeping_question
from foretext.tasks.scores.metrics import Scores, metrics_of, score
from foretext.text.corpus.tables import Table, parse_jsonl, table_kind
from foretext.text.corpus.text_files import text_lines
from foretext.text.tokenizers.base import encode_texts

if TYPE_CHECKING:
    from foretext.nn.trunk import ModelConfig
    from foretext.tasks.family import TaskHead
    from foretext.tasks.views.viewed import ViewTask

_FIELDS = {
    "entailment": "--text PREMISE --text HYPOTHESIS",
    "similarity": "--text TEXT1 --text TEXT2",
    "regression": "--text TEXT --text TEXT2",  # for pairs
    "choice": "--text CONTEXT --text CHOICE1 --text CHOICE2 …",
}
_NUMBERS = {
    "classification": ("one text", 1, 1),
    "entailment": ("two texts", 2, 2),
    "similarity": ("two texts", 2, 2),
    "choice": ("a context and its choices", 3, sys.maxsize),
}
_REGRESSION = (("one text or two", 1, 2), ("one text", 1, 1), ("two texts", 2, 2))  # unknown, single, pairs
SPREAD = "spread"  # a buffer of the head: see `settle`
LEAST_SPREAD = 0.01  # above 0, so that rows keep their order
_CLASSLESS = ("regression", "choice")  # kinds whose labels are not class names


class RowFamily(Family):
    fits_head = True
    views = VIEWS
    views_alone = True
    learn_from_text = ("classification",)
    single_texts = ("classification", "regression")
    prompts: Mapping[str, str] = {
        "classification": "Text: {text}\nLabel: {label}",
        "entailment": "Premise: {premise}\nHypothesis: {hypothesis}\nLabel: {label}",
        "similarity": "First: {text1}\nSecond: {text2}\nLabel: {label}",
        "choice": "{context} {choice}",
    }
    averages = True
    next_step = "new.csv --out predictions.csv"

    # -- rows --------------------------------------------------------------------------------------------------------

    def read(self, path: Path, reading: Reading) -> Read:
        table, names = read_as_trained(path, reading)
        return _read(table, reading, names)

    def from_data(self, data: Any, reading: Reading) -> list[Row]:
        unnamed = isinstance(data, list | tuple) and not any(isinstance(item, dict) for item in data)
        if reading.trained is None or unnamed or reading.columns:
            return rows_from(data, reading.kind, columns=reading.columns, need_labels=reading.need_labels)
        table = table_from(data, reading.kind)
        return _read(table, reading, remembered_names(table, reading)).rows

    def from_texts(self, texts: Sequence[str], reading: Reading) -> Read:
        kind, (one_text, described) = reading.kind, _shape(reading)
        if one_text:
            return _read(_named(table_from(list(texts), kind), "--text"), reading, reading.columns)
        wrong = len(texts) < 3 if kind == "choice" else len(texts) != 2
        refuse_if(wrong, f"{described} takes {_FIELDS.get(kind)}, not {counted(len(texts), 'text')}")
        row = (texts[0], texts[1:]) if kind == "choice" else tuple(texts)
        return _read(_named(table_from([row], kind), "--text"), reading, reading.columns)

    def from_lines(self, data: str, reading: Reading) -> Read:
        """One text per line, or JSON lines if the first line is a JSON object."""
        table = _table_of_lines(data, reading)
        given = reading.columns is not None or reading.format is not None
        return _read(table, reading, reading.columns if given else remembered_names(table, reading))

    # -- what is learned ---------------------------------------------------------------------------------------------

    def check(self, rows: Sequence[Row], kind: str) -> list[str]:
        for row in rows:
            refuse_if(row.label is None, f"{row.where}: no label; every row to fine-tune or validate on needs one")
        return label_warnings(rows) if rows and kind not in _CLASSLESS else []

    def hold_out(self, rows: Sequence[Row], fraction: float, seed: int) -> Split[Row]:
        return hold_out(rows, fraction=fraction, seed=seed)

    def learned(self, rows: Sequence[Row], config: TaskConfig) -> TaskConfig:
        if config.kind == "regression":
            values = [float(row.label) for row in rows if row.label is not None]
            mean, deviation = statistics.fmean(values), statistics.pstdev(values) or 1.0
            texts = len(rows[0].texts)
            return dataclasses.replace(
                config, texts=texts, both_orders=texts == 2, mean=mean, deviation=deviation, shrinks=True
            )
        if config.kind == "choice":
            return dataclasses.replace(config, choices=max(len(row.texts) - 1 for row in rows))
        return dataclasses.replace(config, labels=LabelSet.from_rows(rows).names)

    def metrics(self, config: TaskConfig) -> tuple[str, ...]:
        return metrics_of(config.kind, len(config.labels))

    def published_metric(self, format: str | None) -> str | None:
        return find_format(format).metric if format else None

    def content(self, row: Row) -> list[Any]:
        return [*row.texts, row.label]

    def texts(self, rows: Sequence[Row]) -> Iterator[str]:
        return (text for row in rows for text in row.texts)

    # -- the model ---------------------------------------------------------------------------------------------------

    def head(
        self,
        task: TaskConfig,
        model: ModelConfig,
        transfer: TransferPlan,
        dropout: float,
        pooling: ConcatPoolingConfig | None = None,
    ) -> TaskHead:
        from foretext.tasks.heads.concat_pooling import ConcatPoolingTask
        from foretext.tasks.heads.recurrent_models import RecurrentRows
        from foretext.tasks.heads.supervised import SupervisedTask, keep_factor

        kind, classes = task.kind, len(task.labels)
        head: RecurrentRows | SupervisedTask
        if transfer.model == "recurrent":
            pairs = task.texts == 2 if kind == "regression" else kind != "classification"
            head = RecurrentRows(kind, classes, pairs, model, transfer.reader, dropout)
        elif transfer.pooling == "concat":
            assert pooling is not None
            head = ConcatPoolingTask(kind, classes, model.width, pooling, transfer.lm_weight)
        else:
            head = SupervisedTask(
                kind,
                classes,
                model.width,
                transfer.lm_weight,
                dropout,
                model.init_std,
                transfer.pooling,
                hidden=transfer.head == "hidden",
            )
        if task.shrinks:
            keep_factor(head, SPREAD)
        return head

    def encode(
        self, rows: Sequence[Row], encoding: Encoding, labelled: bool, note: Note, progress: Progress
    ) -> Encoded:
        """Rows as transformed sequences with numeric labels. What had to be cut is counted and reported."""
        from foretext.tasks.heads.supervised import Example

        config, tokenizer, layout = encoding.config, encoding.tokenizer, encoding.layout
        check_texts(rows, config.texts)
        encoded = iter(encode_texts([text for row in rows for text in row.texts], tokenizer, progress))
        examples, cut, lost = [], 0, 0
        for row in rows:
            parts = [next(encoded).tolist() for _ in row.texts]
            kept = keeping_question(parts, row.texts, config.format, tokenizer.encode)
            sequences = tuple(layout.sequences(config.arrangement, kept))
            lost += sum(sequence.cut for sequence in sequences)
            cut += any(sequence.cut for sequence in sequences)
            examples.append(Example(sequences, number_of(row, config) if labelled else None))
        if cut:
            note(
                f"{cut:,} of {len(rows):,} rows are longer than the context of {layout.context} tokens: the ends of "
                f"their longest texts were cut ({lost:,} tokens)"
            )
        return Encoded(rows, examples)

    def view_task(self) -> ViewTask:
        from foretext.tasks.views.rows.viewed_rows import ViewedRows

        return ViewedRows()

    def sequences(self, texts: Sequence[str], encoding: Encoding) -> list[tuple[int, ...]]:
        config, tokenizer = encoding.config, encoding.tokenizer
        known = config.texts if config.texts in (1, 2) else 0
        wanted, least, most = _REGRESSION[known] if config.kind == "regression" else _NUMBERS[config.kind]
        refuse_if(not least <= len(texts) <= most, f"{config.kind} takes {wanted}, not {len(texts)}")
        parts = [tokenizer.encode(text) for text in texts]
        kept = keeping_question(parts, texts, config.format, tokenizer.encode)
        return [sequence.ids for sequence in encoding.layout.sequences(config.arrangement, kept)]

    # -- results -----------------------------------------------------------------------------------------------------

    def settle(self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead) -> None:
        """For regression, chooses the factor that shrinks predictions towards the mean. It minimises the squared error
        on these rows, less one standard error of the factor, since few rows show little. A weak model then predicts
        values near the mean instead of scores as far apart as the labels."""
        if not config.shrinks:
            return
        table, labels = score_table(scores, config.kind), _labels(encoded)
        size = max(float(table @ table), 1e-12)
        spread = float(table @ labels) / size
        error = math.sqrt(float(np.mean((labels - spread * table) ** 2)) / size)
        head.get_buffer(SPREAD).fill_(min(1.0, max(LEAST_SPREAD, spread - error)))

    def unsettled(self, config: TaskConfig) -> str:
        return "predictions are not shrunk towards the mean" if config.kind == "regression" else ""

    def predictions(
        self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead
    ) -> Predictions:
        table = score_table(scores, config.kind)
        if config.kind == "regression":
            table = table * spread_of(config, head)
            return Predictions(config.kind, (table * config.deviation + config.mean).tolist(), None, None)
        probabilities = probabilities_of(table)
        best = table.argmax(axis=1).tolist()
        if config.kind == "choice":
            lists = [likely[: len(row.texts) - 1].tolist() for likely, row in zip(probabilities, encoded.rows)]
            return Predictions(config.kind, best, lists, None)
        labels = tuple(config.labels)
        return Predictions(config.kind, [labels[index] for index in best], probabilities.tolist(), labels)

    def averaged(self, several: Sequence[Predictions]) -> Predictions:
        """The mean of the probabilities and the class with the highest, or the mean of the scores."""
        first = several[0]
        if first.probabilities is None:
            return dataclasses.replace(
                first, values=[statistics.fmean(values) for values in zip(*(p.values for p in several))]
            )
        tables = [each.probabilities for each in several if each.probabilities is not None]
        means = [np.mean([table[row] for table in tables], axis=0) for row in range(len(first.values))]
        best = [int(mean.argmax()) for mean in means]
        values = best if first.labels is None else [first.labels[index] for index in best]
        return dataclasses.replace(first, values=values, probabilities=[mean.tolist() for mean in means])

    def score(self, rows: Sequence[Row], predictions: Predictions, config: TaskConfig) -> Scores:
        labels = LabelSet(tuple(config.labels)) if config.labels else None
        return score(config.kind, [row.label for row in rows], predictions.values, labels, main=config.metric)

    def loss(self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead) -> float:
        table, labels = score_table(scores, config.kind), _labels(encoded)
        if config.kind == "regression":
            return float(np.mean((table * spread_of(config, head) - labels) ** 2))
        chosen = probabilities_of(table)[np.arange(len(labels)), labels.astype(int)]
        return float(-np.log(np.maximum(chosen, 1e-12)).mean())

    def merit(self, scores: Scores, loss: float, config: TaskConfig) -> float:
        """For regression: the mean of the correlation and of 1 − the squared error of standardised scores, so that both
        order and level count. Predicting the training mean has a squared error of about 1."""
        return (
            (scores.main_value + 1.0 - loss) / 2 if config.kind == "regression" else super().merit(scores, loss, config)
        )

    def values(self, predictions: Predictions) -> list[Any]:
        """Class names, choice numbers (from 1), or scores."""
        if predictions.kind == "choice":
            return [value + 1 for value in predictions.values]
        return list(predictions.values)

    def probabilities(self, scores: Sequence[np.ndarray], config: TaskConfig) -> np.ndarray:
        refuse_if(config.kind == "regression", "a regression has no probabilities; use predict")
        return probabilities_of(score_table(scores, config.kind))

    def draws_confusion(self, config: TaskConfig) -> bool:
        return bool(config.labels)

    def form(self, path: Path | None, as_json: bool) -> str:
        if path is None:
            return "jsonl" if as_json else "csv"
        return table_kind(path)

    def output(self, read: Read, predictions: Predictions, form: str, notes: list[str]) -> Table | str:
        assert read.table is not None, "rows to predict always have a table"
        return prediction_table(read.table, predictions, notes)


def score_table(scores: Sequence[np.ndarray], kind: str) -> np.ndarray:
    """The scores of all examples: [examples, classes] (choices that an example lacks are very negative), or
    [examples]."""
    if kind == "regression":
        return np.array(scores, dtype=np.float64)
    from foretext.tasks.heads.supervised import NO_CHOICE

    table = np.full((len(scores), max(len(logits) for logits in scores)), NO_CHOICE, dtype=np.float64)
    for index, logits in enumerate(scores):
        table[index, : len(logits)] = logits
    return table


def spread_of(config: TaskConfig, head: TaskHead) -> float:
    """The factor applied to standardised scores to get predictions."""
    return float(head.get_buffer(SPREAD)) if config.shrinks else 1.0


def _labels(encoded: Encoded) -> np.ndarray:
    return np.array([example.label for example in encoded.examples])


def number_of(row: Row, config: TaskConfig) -> float | int | None:
    """Class index, 0-based choice, or standardised score."""
    if row.label is None:
        return None
    if config.kind == "regression":
        return (float(row.label) - config.mean) / config.deviation
    if config.kind == "choice":
        return int(row.label)
    return LabelSet(tuple(config.labels)).index(str(row.label), row.where)


# -- texts of the command line -----------------------------------------------------------------------------------------


def _read(table: Table, reading: Reading, columns: dict[str, str] | None) -> Read:
    return Read(rows_of(table, reading.kind, columns=columns, need_labels=reading.need_labels), table)


def _shape(reading: Reading) -> tuple[bool, str]:
    """Whether its rows have one text each, and what messages call its task."""
    pairs = reading.trained is not None and reading.trained.texts == 2
    one_text = reading.kind == "classification" or (reading.kind == "regression" and not pairs)
    return one_text, "a run that was trained on pairs" if pairs else reading.kind


def _table_of_lines(data: str, reading: Reading) -> Table:
    plain, what = _shape(reading)
    lines = [line for line in text_lines(data) if line.strip()]
    brace = lines[0].lstrip().startswith("{")
    # With several texts per row, a brace can only mean JSON, and the reader reports what is wrong with it.
    if brace and (not plain or is_json_object(lines[0])):
        return parse_jsonl(data, "standard input")
    refuse_if(not plain, f"standard input: {what} has several texts per row: write JSON lines, or give a file")
    if brace:
        reading.notes.append(
            "standard input begins with { but its first line is not a JSON object: each line is read as a text"
        )
    return _named(table_from(lines, reading.kind), "standard input")


def is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _named(table: Table, name: str) -> Table:
    """The table under a name that the user knows."""
    return dataclasses.replace(table, name=name, where=[f"{name} {i}" for i in range(1, len(table.rows) + 1)])
