"""Tagging: sentences with one tag per word, from column files.

Chunk tags of any scheme are learned as IOB2. Predictions are written and scored as the training file has them, IOB1 or
IOB2: the entities are the same, but the accuracy of words differs (`tasks/files/conll.py` and
`tasks/scores/tag_metrics.py` say more). A sentence longer than the context is read in windows. A tag that does not
occur in training can only be predicted wrongly, and counts as an error.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from foretext.errors import UserError, refuse_if
from foretext.plan import ConcatPoolingConfig, TransferPlan
from foretext.tasks.family import Encoded, Encoding, Family, Note, Progress, Read, Reading, TaskConfig
from foretext.tasks.files.conll import ColumnsError, TaggedSentence, conll_text, read_conll, sentences_from
from foretext.tasks.files.predictions import Predictions, written_probability
from foretext.tasks.labelled import LabelSet, Split, hold_out_by, order_names
from foretext.tasks.layouts.base import Frame
from foretext.tasks.layouts.windows import OUTSIDE, TagWindow, by_word, fallback_tag, running_words, tag_windows
from foretext.tasks.row_family import is_json_object
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.scores.tag_metrics import (
    are_chunk_tags,
    metrics_of_tags,
    scheme_of,
    score_tags,
    split_tag,
    to_iob1,
    to_iob2,
)
from foretext.text.corpus.tables import Table, parse_jsonl
from foretext.text.corpus.text_files import TABLES, ending, text_lines
from foretext.text.tokenizers.base import encode_texts

if TYPE_CHECKING:
    from foretext.nn.trunk import ModelConfig
    from foretext.tasks.family import TaskHead
    from foretext.tasks.heads.token_tasks import WordByWord
    from foretext.tasks.views.viewed import ViewTask

_NO_COLUMNS = (".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".pq")  # endings of files that are not column files


class TagFamily(Family):
    next_step = "new.txt --out predicted.txt"
    views = ("ngrams", "vectors", "states")
    views_beside = ("ngrams", "vectors")  # better than fine-tuning a GPT of 20 minutes (docs/results.md)

    # -- rows --------------------------------------------------------------------------------------------------------

    def read(self, path: Path, reading: Reading) -> Read:
        refuse_if(
            ending(path) in _NO_COLUMNS,
            f"{path}: not a column file; tagging reads one word and its tag per line and a blank line after each "
            "sentence; give such a file",
        )
        columns, format = reading.naming
        try:
            return Read(
                read_conll(
                    path,
                    format=format,
                    column=_tag_column(columns),
                    errors=reading.errors,
                    need_tags=reading.need_labels,
                    need_column=bool(reading.columns),  # given, not remembered: otherwise it is a slip
                    notes=reading.notes,
                )
            )
        except ColumnsError as error:
            if reading.remembered is None or not (format or columns):
                raise
            by = format or f"columns tag={columns['tag']}"
            raise UserError(
                f"{error} (read by {by}, as in the fine-tuning; for another layout give --format or --columns)",
                error.code,
            ) from None

    def from_data(self, data: Any, reading: Reading) -> list[TaggedSentence]:
        return sentences_from(data, need_tags=reading.need_labels)

    def from_texts(self, texts: Sequence[str], reading: Reading) -> Read:
        """Each text is a sentence; its words are separated by white space."""
        return Read(sentences_from(list(texts), need_tags=False, name="--text"))

    def from_lines(self, data: str, reading: Reading) -> Read:
        """One sentence per line, words separated by white space; or JSON lines with `words`, a list."""
        refuse_if(reading.columns, "--columns needs a file of sentences; give one, or leave it out")
        items: list[Any] = [line for line in text_lines(data) if line.strip()]
        if is_json_object(items[0]):
            table = parse_jsonl(data, "standard input")
            items = [dict(zip(table.columns, row)) for row in table.rows]
        return Read(sentences_from(items, need_tags=False, name="standard input"))

    # -- what is learned ---------------------------------------------------------------------------------------------

    def check(self, rows: Sequence[TaggedSentence], kind: str) -> list[str]:
        for row in rows:
            refuse_if(row.tags is None, f"{row.where}: no tags; every sentence to fine-tune or validate on needs them")
        tags = [tag for row in rows for tag in _tags(row)]
        odd = next((tag for tag in tags if split_tag(tag)[0] not in ("B", "I", "O")), None)
        if odd is None or not are_chunk_tags(set(tags)):
            return []
        return [f"chunk tags are in a scheme other than IOB ({odd!r}): they are learned, scored and written as IOB2"]

    def hold_out(self, rows: Sequence[TaggedSentence], fraction: float, seed: int) -> Split[TaggedSentence]:
        return hold_out_by(rows, [" ".join(row.words) for row in rows], fraction=fraction, seed=seed)

    def learned(self, rows: Sequence[TaggedSentence], config: TaskConfig) -> TaskConfig:
        tags = [_tags(row) for row in rows]
        chunks = are_chunk_tags({tag for of_row in tags for tag in of_row})
        turned = [_turned(of_row, chunks) for of_row in tags]
        names = order_names(tag for of_row in turned for tag in of_row)
        refuse_if(
            len(names) < 2,
            f"all {sum(map(len, tags)):,} words to train on have the tag {names[0]!r} (first in {rows[0].where}); "
            "give sentences with at least two tags, or name the tag's column with --columns tag=NUMBER",
        )
        scheme = scheme_of(tags) if chunks else ""
        return dataclasses.replace(config, labels=names, scheme=scheme, fallback=fallback_tag(turned))

    def metrics(self, config: TaskConfig) -> tuple[str, ...]:
        return metrics_of_tags(config.labels)

    def content(self, row: TaggedSentence) -> list[Any]:
        return [list(row.words), None if row.tags is None else list(row.tags)]

    def texts(self, rows: Sequence[TaggedSentence]) -> Iterator[str]:
        return ("".join(running_words(row.words)) for row in rows)

    # -- the model ---------------------------------------------------------------------------------------------------

    def head(
        self,
        task: TaskConfig,
        model: ModelConfig,
        transfer: TransferPlan,
        dropout: float,
        pooling: ConcatPoolingConfig | None = None,
    ) -> TaskHead:
        from foretext.tasks.heads.recurrent_models import RecurrentTagging
        from foretext.tasks.heads.token_tasks import TaggingTask

        labels = task.labels
        if transfer.model == "recurrent":
            return RecurrentTagging(labels, are_chunk_tags(labels), model, transfer.reader, dropout)
        return TaggingTask(len(labels), model.width, transfer.lm_weight, dropout, model.init_std)

    def encode(
        self, rows: Sequence[TaggedSentence], encoding: Encoding, labelled: bool, note: Note, progress: Progress
    ) -> Encoded:
        from foretext.tasks.heads.token_tasks import TaggedExample, tagged_example

        config, layout = encoding.config, encoding.layout
        classes = _classes(rows, config, note) if labelled else None
        running = [running_words(row.words) for row in rows]
        different = list(dict.fromkeys(word for words in running for word in words))
        pieces = {
            word: ids.tolist() for word, ids in zip(different, encode_texts(different, encoding.tokenizer, progress))
        }
        examples: list[TaggedExample] = []
        windows: list[TagWindow] = []
        silent = longer = 0
        for number, words in enumerate(running):
            ids = [pieces[word] for word in words]
            silent += sum(not of_word for of_word in ids)
            longer += sum(map(len, ids)) + layout.overhead(1) > layout.context
            of_row = tag_windows(ids, layout, number)
            windows += of_row
            examples += [tagged_example(window, None if classes is None else classes[number]) for window in of_row]
        if longer:
            note(
                f"{longer:,} of {len(rows):,} sentences are longer than the context of {layout.context} tokens: they "
                f"are read in overlapping windows ({len(windows):,} in all)"
            )
        if silent:
            note(f"{silent:,} words have no piece in the vocabulary: they get the tag {config.fallback!r}")
        return Encoded(rows, examples, windows)

    def view_task(self) -> ViewTask:
        from foretext.tasks.views.words.viewed_sentences import ViewedSentences

        return ViewedSentences()

    def whole(self, rows: Sequence[TaggedSentence], config: TaskConfig, labelled: bool, note: Note) -> Encoded:
        from foretext.tasks.heads.token_tasks import TaggedExample

        classes = _classes(rows, config, note) if labelled else None
        examples, windows = [], []
        for number, row in enumerate(rows):
            every = tuple(range(len(row.words)))
            windows.append(TagWindow(number, every, every, Frame((), (), 0)))
            examples.append(TaggedExample((), every, None if classes is None else tuple(classes[number])))
        return Encoded(rows, examples, windows)

    def sequences(self, texts: Sequence[str], encoding: Encoding) -> list[tuple[int, ...]]:
        refuse_if(len(texts) != 1, f"tagging takes one sentence with spaces between its words, not {len(texts)} texts")
        (row,) = sentences_from(list(texts), need_tags=False, name="TEXT")
        pieces = [encoding.tokenizer.encode(word) for word in running_words(row.words)]
        windows = tag_windows(pieces, encoding.layout)
        refuse_if(
            not windows,
            f"{row.where}: none of its words has a piece in the vocabulary, so there is nothing to read; give others",
        )
        return [window.frame.ids for window in windows]

    # -- results: the scores of an example are [words that are asked about, classes] ---------------------------------

    def predictions(
        self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead
    ) -> Predictions:
        lengths = [len(row.words) for row in encoded.rows]
        tagged = _tagger(head).told(scores, [example.begins for example in encoded.examples])
        chosen = by_word(lengths, encoded.windows, [best.tolist() for best, _ in tagged])
        probabilities = by_word(lengths, encoded.windows, [likely.tolist() for _, likely in tagged])
        tags = [
            _written([config.fallback if index is None else config.labels[index] for index in of_row], config)
            for of_row in chosen
        ]
        return Predictions(config.kind, tags, probabilities, tuple(config.labels))

    def score(self, rows: Sequence[TaggedSentence], predictions: Predictions, config: TaskConfig) -> Scores:
        chunks = are_chunk_tags(config.labels)
        gold, predicted = ([_written(tags, config) for tags in side] for side in (map(_tags, rows), predictions.values))
        return score_tags(gold, predicted, chunks=chunks, main=config.metric)

    def loss(self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead) -> float:
        total, count = 0.0, 0
        for example, logits in zip(encoded.examples, scores):
            tags = np.array(example.tags)
            total += _tagger(head).surprise(logits, tags, example.begins)
            count += int((tags >= 0).sum())  # the others do not occur in training
        return total / max(1, count)

    def values(self, predictions: Predictions) -> list[Any]:
        """A list of tags for each sentence."""
        return [list(tags) for tags in predictions.values]

    def probabilities(self, scores: Sequence[np.ndarray], config: TaskConfig) -> np.ndarray:
        raise UserError("tags have one probability per word: predictions(data).probabilities has them")

    def draws_confusion(self, config: TaskConfig) -> bool:
        return not are_chunk_tags(config.labels)

    def form(self, path: Path | None, as_json: bool) -> str:
        """Columns, unless the file's ending is that of a table."""
        if path is None:
            return "jsonl" if as_json else "columns"
        refuse_if(
            ending(path) in _NO_COLUMNS and ending(path) not in TABLES,
            f"{path}: tags are written as columns (.txt), .csv, .tsv, .jsonl or .parquet; give another ending",
        )
        return TABLES.get(ending(path), "columns")

    def explained(
        self, read: Read, predictions: Predictions, why: Sequence[Any], form: str
    ) -> tuple[Read, Predictions]:
        refuse_if(form == "columns", "--explain needs a table: give a file with --out FILE.csv, or --json")
        return read, dataclasses.replace(predictions, why=why)

    def output(self, read: Read, predictions: Predictions, form: str, notes: list[str]) -> Table | str:
        """Columns of word, tag (if known) and prediction; or a table with one row per word (JSON lines: per
        sentence)."""
        rows: list[TaggedSentence] = read.rows
        if form == "columns":
            return conll_text(rows, predictions.values)
        assert predictions.probabilities is not None
        tagged = all(row.tags is not None for row in rows)
        lines: list[tuple[Any, ...]] = []
        for number, (row, tags, likely) in enumerate(zip(rows, predictions.values, predictions.probabilities), 1):
            columns: list[Sequence[Any]] = [row.words, *([row.tags or ()] if tagged else []), tags]
            columns.append([written_probability(probability) for probability in likely])
            columns += [predictions.why[number - 1]] if predictions.why is not None else []
            if form == "jsonl":
                lines.append(tuple(list(column) for column in columns))
            else:
                lines += [(number, *cells) for cells in zip(*columns)]
        names = ["words", "tags"] if form == "jsonl" else ["sentence", "word", "tag"]
        names = [*(names if tagged else names[:-1]), "prediction", "probability"]
        names += ["why"] if predictions.why is not None else []
        return Table("predictions", tuple(names), lines, [""] * len(lines))


def _tagger(head: TaskHead) -> WordByWord:
    assert head.kind == "tagging"
    return cast("WordByWord", head)


def _tag_column(columns: dict[str, str]) -> int | None:
    """The number of the tag's column, from `--columns tag=4`."""
    for field in columns:
        refuse_if(
            field != "tag", f"--columns {field}=…: for tagging, give only the tag's column by number: --columns tag=4"
        )
    given = columns.get("tag")
    if given is None:
        return None
    refuse_if(
        not str(given).isascii() or not str(given).isdigit(),
        f"--columns tag={given}: the columns have no names; give a number, counted from 1",
    )
    return int(given)


def _tags(row: TaggedSentence) -> tuple[str, ...]:
    assert row.tags is not None, f"{row.where}: no tags"
    return row.tags


def _turned(tags: Sequence[str], chunks: bool) -> tuple[str, ...]:
    """Tags in the scheme used for training."""
    return to_iob2(tags) if chunks else tuple(tags)


def _written(tags: Sequence[str], config: TaskConfig) -> tuple[str, ...]:
    """Tags in the scheme used for predictions and scores."""
    chunks = are_chunk_tags(config.labels)
    return to_iob1(tags) if chunks and config.scheme == "iob1" else _turned(tags, chunks)


def _classes(rows: Sequence[TaggedSentence], config: TaskConfig, note: Note) -> list[list[int]]:
    """The class of each word's tag; IGNORE if it does not occur in training. UserError if no tag that marks anything
    does."""
    from foretext.batch import IGNORE

    chunks = are_chunk_tags(config.labels)
    known = {tag: number for number, tag in enumerate(config.labels)}
    turned = [_turned(_tags(row), chunks) for row in rows]
    counts = Counter(tag for of_row in turned for tag in of_row)
    unknown = order_names(counts.keys() - known.keys())
    if unknown and not (counts.keys() - {OUTSIDE}) & known.keys():
        here = order_names(tag for row in rows for tag in _tags(row))
        raise UserError(
            f"{rows[0].where}: none of the tags here occurs in training; here are {LabelSet(here).listing()}, the "
            f"model has {LabelSet(tuple(config.labels)).listing()}; name the tag's column (--columns tag=NUMBER) or "
            "another file"
        )
    if unknown:
        note(
            f"{sum(counts[tag] for tag in unknown):,} words have a tag that does not occur in training and can only be "
            f"predicted wrongly: {LabelSet(unknown).listing()}"
        )
    return [[known.get(tag, IGNORE) for tag in of_row] for of_row in turned]
