"""What a kind of task says of views: `ViewTask`. It is reached through the family (`Family.view_task`).

There are three, one for each family: rows with one label (`rows/viewed_rows.py`), sentences with tags
(`words/viewed_sentences.py`), questions about passages (`answers/viewed_questions.py`). By this protocol alone
fine-tuning fits views, and runs load and score them. In the order of a fine-tuning:

    drawn            the rows to learn from, if there are too many
    folds, outputs   for the scores of a fine-tuned trunk: which rows leave each other out, and the scores of units
    units            rows → units, with what the named views read of the trunk
    fit              units → views, and the head over them
    decoder          the head → what turns its scores into predictions
    cross_validated, baselines    what the head is worth, and what is cheap
    extra, with_extra, empty      the head's own tensors, to and from files; the row on which a loaded head is tried
    reasons          why the head predicts what it does

The trunk is read through `Reads`, which `runs/views.py` supplies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from foretext.tasks.family import Note, Progress, TaskConfig
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.views.base import FittedHead, Fold, Tensors, Units, View, ViewHead
from foretext.text.words.word_list import TextKnowledge

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead
    from foretext.tasks.views.baselines import Baseline
    from foretext.tasks.views.self_training import Gain

ROWS = 4096  # scored at a time

Work = Callable[[str, int, int], None]


class Reads(Protocol):
    """What views read of a trunk."""

    def text_states(self, texts: Sequence[str], progress: Progress | None) -> np.ndarray:
        """The mean state of each text: [texts, width]."""

    def word_states(self, rows: Sequence[Any], progress: Progress | None) -> tuple[np.ndarray, ...]:
        """The states of the words of sentences, one table per layer that is read: [words, width]."""

    def row_scores(self, rows: Sequence[Any], progress: Progress | None) -> list[np.ndarray]:
        """The scores that the trunk's own head gives to each row."""


@dataclass(frozen=True)
class Learning:
    """What a head over views is fitted from."""

    rows: Sequence[Any]
    config: TaskConfig
    names: Sequence[str]  # of the views to read
    knowledge: TextKnowledge | None  # of a word2vec run
    seed: int
    work: Work
    unlabelled: Sequence[str] = ()  # further texts

    @property
    def known(self) -> TextKnowledge:
        """The knowledge that a view needs."""
        assert self.knowledge is not None
        return self.knowledge


def views_to_read(ways: Mapping[str, Callable[[], View]], names: Collection[str]) -> list[View]:
    """The views of these names, given how each is learned."""
    return [learned() for name, learned in ways.items() if name in names]


class ViewTask(Protocol):
    """See the module's docstring."""

    views: Mapping[str, type[View]]  # all that a head can have, by name
    at_a_time: int = ROWS  # rows that are scored together, to bound the memory

    # -- rows

    def drawn(self, rows: Sequence[Any], seed: int, note: Note) -> Sequence[Any]:
        """The rows that views learn from; `note` is told if these are not all."""
        return rows

    def groups(self, rows: Sequence[Any]) -> list[int]:
        """Numbers the rows; those with the same number, such as copies, stay together in folds."""

    def folds(self, rows: Sequence[Any], config: TaskConfig, count: int, seed: int) -> list[Fold]:
        """At most `count` folds, each left out by a fine-tuning of the trunk; only for a family with the view `tuned`.
        None if all rows are one group."""
        raise AssertionError("the scores of a fine-tuned trunk are no view of these rows")

    def outputs(self, scores: Sequence[np.ndarray], rows: Sequence[Any], kind: str) -> np.ndarray:
        """Scores of the rows by a trunk's head as [units, outputs]; only for a family with the view `tuned`."""
        raise AssertionError("the scores of a fine-tuned trunk are no view of these rows")

    def units(
        self,
        rows: Sequence[Any],
        kind: str,
        names: Collection[str] = (),
        trunk: Reads | None = None,
        progress: Progress | None = None,
    ) -> Units:
        """The rows as views read them, with what the views of these names read of the trunk."""

    # -- the head

    def fit(self, learning: Learning, units: Units) -> tuple[FittedHead, Gain | None]:
        """Learns the views and fits the head over them; also what unlabelled text taught, if some was given and it
        could be measured."""

    def decoder(self, head: ViewHead, config: TaskConfig) -> TaskHead | None:
        """What turns the head's scores into predictions; None: the trunk's own head does."""
        return None

    def cross_validated(
        self, fitted: FittedHead, rows: Sequence[Any], config: TaskConfig, decoder: TaskHead
    ) -> Scores | None:
        """Scores of the folds' rows, each predicted by a head that has not seen it; None without folds."""

    def baselines(
        self, fitted: FittedHead, train: Sequence[Any], valid: Sequence[Any], learning: Learning
    ) -> list[Baseline]:
        """What is cheap, on the validation rows, or on the rows of the folds; by default there is none."""
        return []

    def reasons(self, head: ViewHead, units: Units, rows: Sequence[Any], config: TaskConfig) -> list[Any]:
        """One line per row on why the head predicts what it does; for tags, one line per word."""

    # -- files

    def extra(self, head: ViewHead) -> Tensors:
        """The head's tensors besides bias and weights, as its file names them."""

    def with_extra(self, head: ViewHead, tensors: Tensors) -> ViewHead:
        """The head with its extra tensors. ValueError or KeyError if they do not fit."""

    def empty(self, kind: str, texts: int, stored: Mapping[str, Tensors]) -> Units:
        """The units of one row without words, for a head whose views have stored these tensors. `texts`: per unit."""


def numbered(keys: Iterable[Hashable]) -> list[int]:
    """A number for each key, the same for equal ones."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
