"""The heads of cross-view training on rows: prediction modules for a task and any number of others beside it.

Labelled rows are the examples that every family makes of them; a batch is of one task, or of unlabelled text, and which
one a step is about is the order's to say (`text/order.py`). Losses are named `label` for the task that is asked
for, by their names for the others, and with the view behind it for unlabelled text (`label.forward`).

A word that the labelled rows have once is read as an unknown one half of the time, in training and where it is
labelled: its vector would be of use nowhere else, and that of all unknown words would never learn. Its characters are
read all the same.

Scores are the primary module's, of the task that is asked for: [B, T, C] at every word, or [B, C].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import padded
from foretext.errors import UserError
from foretext.nn.recurrent.cvt import CvtBatch, CvtConfig
from foretext.objectives.base import Draw, Examples
from foretext.objectives.cross_view import KINDS, LABEL, CrossViewObjective, CrossViewSettings, CrossViewTask
from foretext.tasks.heads.supervised import Example
from foretext.tasks.heads.token_tasks import WordByWord, tag_targets
from foretext.text.order import LengthOrder, SampleOrder, Turns
from foretext.text.words.word_forms import WordForms


@dataclass(frozen=True)
class UnlabelledExample:
    ids: np.ndarray
    asked: np.ndarray  # whether a tag would be asked for there: at the first part of a word

    @property
    def tokens(self) -> int:
        return len(self.ids)


class UnlabelledText(Sequence[UnlabelledExample]):
    """Many of them in few bytes: all ids one after the other."""

    def __init__(self, rows: Iterable[tuple[np.ndarray, np.ndarray]] = ()) -> None:
        """`rows`: ids, and which of them are asked about."""
        found = list(rows)
        nothing = np.zeros(0, dtype=np.int32)
        self.ids = np.concatenate([nothing, *(ids for ids, _ in found)]).astype(np.int32)
        self.asked = np.concatenate([nothing, *(asked for _, asked in found)]).astype(bool)
        self.ends = np.cumsum([0, *(len(ids) for ids, _ in found)])

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, index: int) -> UnlabelledExample: ...

    @overload
    def __getitem__(self, index: slice) -> list[UnlabelledExample]: ...

    def __getitem__(self, index: int | slice) -> UnlabelledExample | list[UnlabelledExample]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        part = slice(int(self.ends[index]), int(self.ends[index + 1]))
        return UnlabelledExample(self.ids[part], self.asked[part])


@dataclass(frozen=True)
class Sourced:
    """An example and the task whose labels it has; None: unlabelled."""

    task: int | None
    example: Any
    seldom: tuple[int, ...] = ()  # the places of words that labelled rows have once

    @property
    def tokens(self) -> int:
        return int(self.example.tokens)


class ManySources:
    """`Examples` of several tasks and of unlabelled text, one source after the other."""

    def __init__(
        self,
        tasks: Sequence[Sequence[Any]],
        unlabelled: Sequence[UnlabelledExample],
        seldom: Collection[int] = (),
    ) -> None:
        """`seldom`: the ids of words that labelled rows have once."""
        self.tasks, self.unlabelled = tasks, unlabelled
        self.labelled = [
            Sourced(number, example, tuple(place for place, id in enumerate(_ids(example)) if id in seldom))
            for number, own in enumerate(tasks)
            for example in own
        ]

    @property
    def rows(self) -> Iterator[Sourced]:
        """All of them."""
        return (self.example(0, index) for index in range(len(self)))

    def __len__(self) -> int:
        return len(self.labelled) + len(self.unlabelled)

    def example(self, epoch: int, index: int) -> Sourced:
        if index < len(self.labelled):
            return self.labelled[index]
        return Sourced(None, self.unlabelled[index - len(self.labelled)])

    def epoch_tokens(self, order: SampleOrder) -> list[tuple[int, int]]:
        """The tokens of the first epoch in labelled steps, and in unlabelled ones, beside a step of that kind each."""
        kinds = 2 if len(self.unlabelled) else 1
        tokens = [0] * kinds
        for step in range(order.steps_per_epoch):
            tokens[step % kinds] += sum(self.example(0, index).tokens for index in order.batch(step)[1])
        return list(enumerate(tokens))

    def beside(self, others: Mapping[str, str]) -> list[tuple[str, str]]:
        text = [("text", f"{len(self.unlabelled):,} unlabelled sentences, a batch after each labelled one")]
        own = zip(others.items(), self.tasks[1:])
        named = ", ".join(f"{name} ({said.split()[0]}, {len(rows):,} rows)" for (name, said), rows in own)
        return (text if len(self.unlabelled) else []) + ([("beside it", named)] if named else [])

    def order(self, batch_size: int, seed: int) -> Turns:
        """Labelled and unlabelled batches in turn, each of like length."""
        tasks = [_by_length(own, batch_size, seed + number) for number, own in enumerate(self.tasks)]
        text = _by_length(self.unlabelled, batch_size, seed + len(tasks)) if len(self.unlabelled) else None
        return Turns(tasks, text, seed)


def _ids(example: Any) -> Sequence[int]:
    """Of a labelled example of either kind."""
    return example.sequences[0].ids if isinstance(example, Example) else example.ids


def _by_length(examples: Sequence[Any], batch_size: int, seed: int) -> LengthOrder:
    return LengthOrder([example.tokens for example in examples], batch_size, seed)


class CrossViewHead(WordByWord, CrossViewObjective):
    def __init__(
        self,
        kind: str,
        classes: int,
        others: dict[str, tuple[str, int]],
        config: CvtConfig,
        settings: CrossViewSettings,
        borders: Sequence[int],
        forms: WordForms | None = None,
    ) -> None:
        """`others`: further tasks by name, each with its kind and its number of classes. `borders`: ids that are no
        words. `forms`: how the trunk looks words up."""
        if LABEL in others:
            raise UserError(f"a task beside the one that is asked for cannot be called {LABEL!r}; rename its file")
        named = {LABEL: (kind, classes)} | others
        tasks = [CrossViewTask(name, KINDS[own], count) for name, (own, count) in named.items()]
        super().__init__(config, settings, tasks)
        self.kind, self.borders, self.forms = kind, tuple(borders), forms
        self.average = settings.average

    @property
    def head(self) -> nn.Linear:
        """The last layer of the primary module."""
        module = self._parts()[0].of_view["primary_view"].predict
        assert isinstance(module, nn.Linear)
        return module

    def stock(self, tasks: Sequence[Sequence[Any]], text: Sequence[tuple[np.ndarray, np.ndarray]] = ()) -> ManySources:
        unlabelled = UnlabelledText(text)
        if self.forms is None or self.forms.unknown is None:
            return ManySources(tasks, unlabelled)
        return ManySources(tasks, unlabelled, self.forms.seldom(_ids(example) for own in tasks for example in own))

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        assert isinstance(examples, ManySources)
        return examples.order(batch_size, seed)

    def make(self, examples: Sequence[Any], draw: Draw | None = None) -> CvtBatch:
        """All of one task, or all unlabelled; examples that do not say so are of the task that is asked for."""
        given = [one if isinstance(one, Sourced) else Sourced(0, one) for one in examples]
        task = given[0].task
        assert all(one.task == task for one in given), "a batch is of one source"
        found = [one.example for one in given]
        if task is None:
            batch = self._batch([one.ids for one in found], None)
            return replace(batch, asked_BT=padded([one.asked for one in found])[0].bool())
        batch = self._batch([_ids(one) for one in found], task)
        batch = replace(batch, hidden_BT=self._hidden(given, batch.ids_BT.shape, draw))
        if self.tasks[task].kind == "tagging":
            return replace(batch, targets_BT=tag_targets(found, batch.ids_BT.shape))
        return replace(batch, labels=_labels(found))

    def _hidden(self, given: Sequence[Sourced], shape: tuple[int, ...], draw: Draw | None) -> Tensor | None:
        """Which words are read as unknown; None where none are, as where nothing is drawn."""
        if draw is None or not self.settings.unknown or not any(one.seldom for one in given):
            return None
        table = np.zeros(shape, dtype=bool)
        for row, one in enumerate(given):
            table[row, list(one.seldom)] = draw.generator(row).random(len(one.seldom)) < self.settings.unknown
        return torch.from_numpy(table)

    def _batch(self, rows: Sequence[Sequence[int]], task: int | None) -> CvtBatch:
        ids_BT, real_BT = padded(rows)
        words_BT = real_BT & ~torch.isin(ids_BT, torch.tensor(self.borders, dtype=torch.int64))
        return CvtBatch(ids_BT, real_BT, words_BT=words_BT, task=task)


def _labels(examples: Sequence[Example]) -> Tensor | None:
    if any(example.label is None for example in examples):
        return None
    return torch.tensor([int(example.label or 0) for example in examples])
