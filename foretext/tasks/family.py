"""The seam between kinds of task and everything above this room: fine-tuning, prediction, evaluation, the command line
and the Python interface call a `Family` and know no kind by name.

There are three families, each in one module: rows of one or more texts with one label (`row_family.py`), sentences with
one tag per word (`tag_family.py`), and questions whose answer is a span of a passage (`span_family.py`). `family_of`
finds the family of a kind. In the order of a run:

    read, from_data, from_texts, from_lines     files, Python data, --text, standard input → rows
    check, hold_out, learned, metrics           what training needs to know of its rows
    head, encode                                the module on top of a trunk; rows → examples of token ids
    settle, predictions, score, loss, merit     scores of the examples → predictions for the rows, and their quality
    view_task, whole, scored                    the same for a head over views, which reads rows without tokens
    values, probabilities, form, output         predictions as Python data, as a file

A long sentence or passage gives several examples, its windows. Training counts examples, everything else counts rows.
Nothing here loads torch before `head`, `encode` or `view_task` is called, so that a mistake in a file is found at once.

A fine-tuned run reads further files as it read the training file, unless the user or the file says otherwise.

1. The user's options win: `--columns` overrides a remembered layout, `--format` overrides remembered columns, and
   `--format none` overrides both, for a file with the task's own column names.
2. Without either, a file whose header has the task's own text columns (`text`; `premise`, `hypothesis`; …; for scored
   pairs also `text1`, `text2`) is read by its header, unless it has the remembered columns too.
3. Otherwise it is read like the training file.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from foretext.errors import UserError, did_you_mean, refuse_if
from foretext.plan import ConcatPoolingConfig, TransferPlan
from foretext.tasks.files.predictions import Predictions, with_column
from foretext.tasks.files.rows import KINDS as ROW_KINDS
from foretext.tasks.files.rows import has_own_names, read_task_table, text_fields
from foretext.tasks.labelled import Split
from foretext.tasks.layouts.base import Layout
from foretext.tasks.scores.metrics import Scores, merit, with_interval
from foretext.text.corpus.tables import Table, table_header
from foretext.text.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from foretext.nn.trunk import ModelConfig
    from foretext.tasks.heads.recurrent_models import RecurrentRows, RecurrentTagging
    from foretext.tasks.heads.supervised import SupervisedTask
    from foretext.tasks.heads.token_tasks import SpanTask, TaggingTask
    from foretext.tasks.views.viewed import ViewTask

    # An objective with a `kind` and a `head`.
    TaskHead = SupervisedTask | TaggingTask | SpanTask | RecurrentRows | RecurrentTagging

# kind of task → the module of this room with its family, and the class
FAMILIES = dict.fromkeys(ROW_KINDS, ("row_family", "RowFamily")) | {
    "tagging": ("tag_family", "TagFamily"),
    "span": ("span_family", "SpanFamily"),
}
KINDS = tuple(FAMILIES)
NO_FORMAT = "none"
_LABELS = ("label", "score")

Note = Callable[[str], None]  # gets a note for the user
Progress = Callable[[int, int], None]  # gets how much is done, and the total


def silent(text: str) -> None:
    """The `Note` of those who do not want any."""


@dataclass(frozen=True)
class TaskConfig:
    """[task]: what a fine-tuned run has learned."""

    kind: str = ""
    labels: tuple[str, ...] = ()  # classes, or tags (chunk tags in IOB2)
    choices: int = 0  # the largest number of choices seen
    texts: int = 0  # regression: texts per row, 1 or 2 (pairs); 0: unknown, in runs of earlier versions
    # regression of pairs: read in both orders, like a similarity; false in runs of earlier versions
    both_orders: bool = False
    mean: float = 0.0  # regression: scores are standardised for training
    deviation: float = 1.0
    # regression: predictions are shrunk towards the mean by a factor; false in runs of earlier versions
    shrinks: bool = False
    scheme: str = ""  # tagging: the scheme of chunk tags in the training file; empty: the tags are not chunk tags
    fallback: str = ""  # tagging: the tag of a word without any piece
    unanswerable: bool = False  # span: whether a question may have no answer
    softmax: int = 0  # vocabulary of λ·L1 if the trunk has no output layer of its own (elmo)
    columns: dict[str, str] = field(default_factory=dict)
    format: str | None = None
    metric: str | None = None  # chooses the best epoch; None: the kind's own
    base: str | None = None
    from_scratch: bool = False
    epochs: int = 0
    also: dict[str, str] = field(default_factory=dict)  # tasks trained together with it: name → kind and classes
    sentences: int = 0  # number of unlabelled texts that are learned from too
    unlabelled: str = ""  # fingerprint of the unlabelled text and of the other tasks' rows
    rows: str = ""  # fingerprint of the labelled rows; a resume with other rows is refused

    @property
    def arrangement(self) -> str:
        """The kind of task whose input transformation is used: a scored pair has no order, like a similarity."""
        return "similarity" if self.both_orders else self.kind


@dataclass(frozen=True)
class Reading:
    """How rows are to be read. `columns` and `format` are the user's; `trained`, the run's task, supplies what the user
    did not give. `notes` collects notes for the user."""

    kind: str
    columns: dict[str, str] | None = None
    format: str | None = None
    trained: TaskConfig | None = None
    need_labels: bool = True
    errors: str = "strict"
    notes: list[str] = field(default_factory=list)

    @property
    def remembered(self) -> TaskConfig | None:
        """The run's task, if the user gave nothing that overrides it."""
        return self.trained if not self.columns and self.format is None else None

    @property
    def naming(self) -> tuple[dict[str, str], str | None]:
        """The columns and the layout, given or remembered."""
        if self.remembered is not None:
            return self.remembered.columns, self.remembered.format
        return self.columns or {}, layout_name(self.format)


@dataclass(frozen=True)
class Read:
    """Rows and, if they came from a table, that table, to write predictions beside."""

    rows: list[Any]
    table: Table | None = None


@dataclass(frozen=True)
class Encoding:
    """What turns rows into token ids."""

    config: TaskConfig
    tokenizer: Tokenizer
    layout: Layout


@dataclass(frozen=True)
class Encoded:
    """Rows as examples, in order. If a row can have several, `windows` says which row and part each example is."""

    rows: Sequence[Any]
    examples: list[Any]
    windows: Sequence[Any] = ()
    offsets: Sequence[Any] = ()  # per row: the character offsets of its passage's tokens, if there is a passage


class Family(Protocol):
    """Kinds of task that are read, encoded and scored alike; the base of the three families. See the module's
    docstring."""

    fits_head: bool = False  # whether the head can be fitted to the states before training (transfer.head=probe)
    averages: bool = False  # whether predictions of several models can be averaged (--with)
    views: tuple[str, ...] = ()  # the views that one head can read for its rows (--views)
    views_alone: bool = False  # whether views do without a trunk (--system views)
    # Without --views, what is read if a model has word vectors beside it. None: all views if `views_alone`, else none.
    views_beside: tuple[str, ...] | None = None
    learn_from_text: tuple[str, ...] = ()  # the kinds whose views can learn from unlabelled text (--unlabelled)
    single_texts: tuple[str, ...] = ()  # the kinds whose rows can be one text
    # How a row asks for its answer in a prompt, by kind; the last field is the answer. Other kinds cannot be prompted.
    prompts: Mapping[str, str] = {}
    next_step: str  # example arguments for `foretext predict RUN`

    # -- rows

    def read(self, path: Path, reading: Reading) -> Read:
        """The rows of a file."""

    def from_data(self, data: Any, reading: Reading) -> list[Any]:
        """The rows in Python data; existing row objects pass through."""

    def from_texts(self, texts: Sequence[str], reading: Reading) -> Read:
        """Unlabelled rows from `--text`."""

    def from_lines(self, data: str, reading: Reading) -> Read:
        """Unlabelled rows from standard input that is not blank."""

    # -- what is learned

    def check(self, rows: Sequence[Any], kind: str) -> list[str]:
        """UserError if a row has nothing to learn from; returns notes that the user should see before training."""

    def hold_out(self, rows: Sequence[Any], fraction: float, seed: int) -> Split[Any]:
        """Rows to train on and rows to validate on; copies of a row stay on one side."""

    def learned(self, rows: Sequence[Any], config: TaskConfig) -> TaskConfig:
        """`config` with what follows from the training rows, such as labels."""

    def metrics(self, config: TaskConfig) -> tuple[str, ...]:
        """The metrics that can be the main one, the task's own first."""

    def published_metric(self, format: str | None) -> str | None:
        """The metric of a published layout, if it is not the task's own."""
        return None

    def content(self, row: Any) -> list[Any]:
        """Everything in a row that affects training, as plain data."""

    def texts(self, rows: Sequence[Any]) -> Iterator[str]:
        """The rows' texts, to learn a vocabulary from."""

    # -- the model

    def head(
        self,
        task: TaskConfig,
        model: ModelConfig,
        transfer: TransferPlan,
        dropout: float,
        pooling: ConcatPoolingConfig | None = None,
    ) -> TaskHead:
        """The head on a trunk, if the system has none of its own. `pooling`: its settings, if the plan asks for pooling
        and the family does it."""

    def encode(
        self, rows: Sequence[Any], encoding: Encoding, labelled: bool, note: Note, progress: Progress
    ) -> Encoded:
        """Examples, with labels if `labelled`. `note` gets what had to be cut or could not be read."""

    def view_task(self) -> ViewTask:
        """What the family says of views."""

    def whole(self, rows: Sequence[Any], config: TaskConfig, labelled: bool, note: Note) -> Encoded:
        """Rows for views, without tokens; with labels if `labelled` and the family asks for them."""
        return Encoded(rows, [])

    def sequences(self, texts: Sequence[str], encoding: Encoding) -> list[tuple[int, ...]]:
        """The ids of each sequence that a model reads for one row, given the row's texts."""

    # -- results; `scores` has an array for each example, what its `asked` gave

    def settle(self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead) -> None:
        """Makes the choices that need validation rows, and keeps them in the head. By default there are none."""
        return

    def unsettled(self, config: TaskConfig) -> str:
        """What it means that there are no validation rows for such a choice, as words for the plan; "" if there is no
        choice."""
        return ""

    def predictions(
        self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead
    ) -> Predictions: ...

    def averaged(self, several: Sequence[Predictions]) -> Predictions:
        """The average of several models' predictions for the same rows; only for families that have one."""
        raise AssertionError("predictions of this task cannot be averaged")

    def score(self, rows: Sequence[Any], predictions: Predictions, config: TaskConfig) -> Scores: ...

    def scored(self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead) -> Scores:
        """The metrics on labelled rows, with an interval."""
        return self.with_interval(encoded.rows, self.predictions(encoded, scores, config, head), config)

    def with_interval(self, rows: Sequence[Any], predictions: Predictions, config: TaskConfig) -> Scores:
        """The metrics of these predictions, with an interval."""
        score = functools.partial(self.score, config=config)
        return with_interval(score(rows, predictions), rows, predictions, score)

    def loss(self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead) -> float:
        """The mean loss of the labels."""

    def merit(self, scores: Scores, loss: float, config: TaskConfig) -> float:
        """What chooses the best epoch: higher is better."""
        return merit(scores, loss)

    def values(self, predictions: Predictions) -> list[Any]:
        """The result of `TaskModel.predict`: one plain value per row."""

    def probabilities(self, scores: Sequence[np.ndarray], config: TaskConfig) -> np.ndarray:
        """The result of `TaskModel.predict_proba`: [rows, classes]; UserError if there is no such table."""

    def draws_confusion(self, config: TaskConfig) -> bool:
        """Whether the scores have a confusion matrix to draw."""
        return False

    def explained(
        self, read: Read, predictions: Predictions, why: Sequence[Any], form: str
    ) -> tuple[Read, Predictions]:
        """Predictions and the explanation of each row, for `output` in this form."""
        return dataclasses.replace(read, table=with_column(read.table, "why", why)), predictions

    def form(self, path: Path | None, as_json: bool) -> str:
        """How predictions are written to this file (None: standard output); UserError for an unknown ending."""

    def output(self, read: Read, predictions: Predictions, form: str, notes: list[str]) -> Table | str:
        """The predictions as written: a table or a text."""


@functools.cache
def family_of(kind: str) -> Family:
    refuse_if(
        kind not in FAMILIES, f"unknown task {kind!r}{did_you_mean(kind, KINDS)}; the tasks are {', '.join(KINDS)}"
    )
    module, name = FAMILIES[kind]
    family: Family = getattr(importlib.import_module(f"foretext.tasks.{module}"), name)()
    return family


# -- columns of further files ------------------------------------------------------------------------------------------


def layout_name(format: str | None) -> str | None:
    """The layout that `--format` names; None for `none`."""
    return None if format == NO_FORMAT else format


def read_as_trained(path: Path, reading: Reading) -> tuple[Table, dict[str, str] | None]:
    """The table of a file, and the column names to make rows with."""

    def table(format: str | None, columns: dict[str, str] | None = None) -> Table:
        return read_task_table(
            path, reading.kind, columns=columns, format=format, errors=reading.errors, notes=reading.notes
        )

    trained = reading.remembered
    if trained is None:
        return table(layout_name(reading.format), reading.columns), reading.columns
    if trained.format is None or has_own_names(table_header(path), reading.kind, trained.texts):
        by_header = table(None)
        return by_header, remembered_names(by_header, reading)
    try:
        return table(trained.format), None
    except UserError as error:
        if not path.exists():
            raise
        fields = text_fields(reading.kind, trained.texts)
        naming = ",".join(f"{field}=…" for field in fields)
        raise UserError(
            f"{path}: it has no header with {', '.join(fields)}, and cannot be read as {trained.format}, as in the "
            f'fine-tuning ({error}); name its columns by --columns "{naming}", or another layout by --format',
            error.code,
        ) from None


def remembered_names(table: Table, reading: Reading) -> dict[str, str] | None:
    """The column names of the training file (without the label's, if labels are not needed). None means the task's own
    names: nothing was trained, or the table lacks one of the text columns and has the task's own."""
    if reading.trained is None:
        return None
    remembered = reading.trained.columns.items()
    names = {field: name for field, name in remembered if reading.need_labels or field not in _LABELS}
    of_texts = {name for field, name in names.items() if field not in _LABELS}
    if not of_texts <= set(table.columns) and has_own_names(table.columns, reading.kind, reading.trained.texts):
        return None
    return names or None
