"""Cross-view training (Clark et al. 2018): labelled and unlabelled batches in turn, over one encoder for all tasks.

    labelled, task k     −Σ log p_primary(y | x)                     with labels smoothed by ε
    unlabelled, all k    Σ KL(p_primary(· | x) ‖ p_view(· | x))      for each auxiliary view

The primary's distribution on unlabelled text is taken without dropout and is a constant: the views, which see less of
the sentence, learn to predict what it predicts, and with them the first layer that they share with it. The primary
module and the second layer learn from labels alone. (The released code has the cross-entropy, whose gradient is the
same; KL is 0 where a view has nothing more to learn.)

Each task and each of its views is a named loss: `chunk` for labels, `chunk.forward` and so on for views. A view's loss
is divided by the places that it is asked about (of a word that is read in parts the first, where its label would
stand), a task's by its labels; a batch that is not about a loss counts 0 for it. Which batch a step is about is the
order's to say (`text/order.py`). What modules see is in `nn/recurrent/cvt.py`.

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
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, LossSum, Outcome, padded
from foretext.errors import UserError, check_range, refuse_if
from foretext.nn.recurrent.cvt import (
    VIEWS,
    CvtBatch,
    CvtConfig,
    CvtEncoder,
    CvtStates,
    Kind,
    PredictionModule,
    View,
    sentence_states,
    view_places,
    view_states,
    view_width,
)
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Draw, Examples, Objective
from foretext.tasks.heads.supervised import Example
from foretext.tasks.heads.token_tasks import WordByWord, tag_targets
from foretext.text.order import LengthOrder, SampleOrder, Turns
from foretext.text.words.word_forms import WordForms

LABEL = "label"
KINDS: dict[str, Kind] = {"tagging": "tagging", "classification": "sentence"}  # of task → of modules
PRIMARY = "primary"
RAMP_PART = 0.65  # of a run, over which the views have come in however short it is


@dataclass(frozen=True)
class CrossViewSettings:
    """[objective] of cross-view training."""

    views: tuple[View, ...] = ("forward", "backward", "future", "past")  # sentences: those of them that they have
    hidden: int = 512  # numbers between a module's two layers
    smoothing: float = 0.1  # part of a label that is spread over all classes
    unlabelled_weight: float = 1.0  # of each view's loss
    ramp: int = 0  # steps, labelled ones too, over which that weight rises from 0; at most `RAMP_PART` of the run
    unknown: float = 0.5  # how often a word that the labelled rows have once is read as an unknown one, in training
    average: float = 0.998  # decay of the averaged weights that predict; 0: the last ones predict

    def check(self) -> None:
        if len(set(self.views)) != len(self.views) or not set(self.views) <= set(VIEWS["tagging"]):
            raise UserError(
                f"objective.views must be some of {', '.join(VIEWS['tagging'])}, each once, not {', '.join(self.views)}"
            )
        check_range("objective", self, "at least 1", "hidden")
        check_range("objective", self, "at least 0 and below 1", "smoothing", "average")
        check_range("objective", self, "at least 0 and at most 1", "unknown")
        check_range("objective", self, "at least 0", "ramp", "unlabelled_weight")

    def loss_terms(self, kinds: Mapping[str, str]) -> dict[str, float]:
        """Each named loss and its weight, of tasks of these kinds; a weight that rises is given as it ends."""
        views = (f"{name}.{view}" for name, kind in kinds.items() for view in self.views if view in VIEWS[KINDS[kind]])
        return dict.fromkeys(kinds, 1.0) | dict.fromkeys(views, self.unlabelled_weight)


@dataclass(frozen=True)
class CrossViewTask:
    name: str
    kind: Kind
    classes: int


def _key(view: str) -> str:
    return f"{view}_view"  # `forward` is the name of something else in a dictionary of modules


class TaskModules(nn.Module):
    """The prediction modules of one task."""

    def __init__(self, task: CrossViewTask, config: CvtConfig, settings: CrossViewSettings) -> None:
        super().__init__()
        self.task = task
        self.views = tuple(view for view in settings.views if view in VIEWS[task.kind])
        self.of_view = nn.ModuleDict(
            {
                _key(view): PredictionModule(view_width(config, view), settings.hidden, task.classes, view != "full")
                for view in (PRIMARY, *self.views)
            }
        )

    def logits(self, states: CvtStates, view: str, batch: CvtBatch) -> Tensor:
        """Of the view's places one after the other, or of each sentence."""
        assert batch.words_BT is not None
        if self.task.kind == "tagging":
            firsts_BT = None if view == PRIMARY else batch.asked_BT
            return self.of_view[_key(view)](view_states(states, view, batch.words_BT, firsts_BT))
        return self.of_view[_key(view)](sentence_states(states, view, batch.words_BT))

    def asked(self, view: str, batch: CvtBatch) -> Tensor:
        """Which of the primary's predictions, in its order, the view is to make too."""
        assert batch.words_BT is not None
        if self.task.kind == "tagging":
            return view_places(batch.words_BT, view, batch.asked_BT)[batch.words_BT]
        return batch.words_BT.any(dim=1)

    def view_losses(self, teacher_NC: Tensor, states: CvtStates, batch: CvtBatch) -> dict[str, LossSum]:
        """KL of each view to the primary's log-probabilities."""
        losses = {}
        for view in self.views:
            asked_N = self.asked(view, batch)
            student_NC = torch.log_softmax(self.logits(states, view, batch), dim=1)
            if self.task.kind == "sentence":
                student_NC = student_NC[asked_N]
            total = F.kl_div(student_NC, teacher_NC[asked_N], reduction="sum", log_target=True)
            losses[self.name(view)] = LossSum(total, float(asked_N.sum()))
        return losses

    def name(self, view: str) -> str:
        return f"{self.task.name}.{view}"


# -- rows and text -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnlabelledExample:
    ids: np.ndarray
    asked: np.ndarray  # whether a tag would be asked for there: at the first part of a word

    @property
    def tokens(self) -> int:
        return len(self.ids)


class UnlabelledText:
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

    def __iter__(self) -> Iterator[UnlabelledExample]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> UnlabelledExample:
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
        unlabelled: UnlabelledText,
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


def _by_length(examples: Iterable[Any], batch_size: int, seed: int) -> LengthOrder:
    return LengthOrder([example.tokens for example in examples], batch_size, seed)


# -- the head ----------------------------------------------------------------------------------------------------------


class CrossViewHead(WordByWord, Objective):
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
        super().__init__()
        settings.check()
        if LABEL in others:
            raise UserError(f"a task beside the one that is asked for cannot be called {LABEL!r}; rename its file")
        dotted = [name for name in others if "." in name]
        refuse_if(dotted, f"tasks need names without a full stop, not {', '.join(dotted)}")
        named = {LABEL: (kind, classes)} | others
        self.tasks = tuple(CrossViewTask(name, KINDS[own], count) for name, (own, count) in named.items())
        self.config, self.settings, self.kind = config, settings, kind
        self.borders, self.forms, self.average = tuple(borders), forms, settings.average
        self.parts = nn.ModuleList(TaskModules(task, config, settings) for task in self.tasks)
        self.weights = dict.fromkeys(named, 1.0)
        self.begin_step(settings.ramp, 1.0)

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

    # -- what losses are divided by, and their weights

    def begin_step(self, step: int, progress: float) -> None:
        """While the primary knows nothing yet, there is nothing to be learned from it."""
        ramp = self.settings.ramp
        risen = min(1.0, max(step / ramp, progress / RAMP_PART)) if ramp else 1.0
        for part in self._parts():
            self.weights |= dict.fromkeys(map(part.name, part.views), self.settings.unlabelled_weight * risen)

    def _parts(self) -> list[TaskModules]:
        return [part for part in self.parts if isinstance(part, TaskModules)]

    def counts(self, batch: Batch) -> dict[str, float]:
        assert isinstance(batch, CvtBatch) and batch.words_BT is not None
        counted = {}
        if batch.task is not None:
            wanted = batch.labels if batch.targets_BT is None else batch.targets_BT
            assert wanted is not None
            counted = {self.tasks[batch.task].name: float((wanted != IGNORE).sum())}
        else:
            asked = ((part, view) for part in self._parts() for view in part.views)
            counted = {part.name(view): float(part.asked(view, batch).sum()) for part, view in asked}
        return dict.fromkeys(self.weights, 0.0) | counted

    # -- losses

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        assert isinstance(trunk, CvtEncoder) and isinstance(batch, CvtBatch)
        return self._unlabelled(trunk, batch) if batch.task is None else self._labelled(trunk, batch)

    def _labelled(self, trunk: CvtEncoder, batch: CvtBatch) -> Outcome:
        """`scores`: the primary's logits, [B, T, C] (zeros where there is no word), or [B, C]."""
        assert batch.task is not None and batch.words_BT is not None
        part, words_BT = self._parts()[batch.task], batch.words_BT
        logits_NC = part.logits(trunk.states(batch, self.config.dropout if self.training else 0.0), PRIMARY, batch)
        scores, labels_N = logits_NC, batch.labels
        if part.task.kind == "tagging":
            scores = logits_NC.new_zeros(*words_BT.shape, part.task.classes).masked_scatter(
                words_BT[..., None], logits_NC
            )
            labels_N = None if batch.targets_BT is None else batch.targets_BT[words_BT]
        if labels_N is None:
            return Outcome({}, None, scores)
        smoothing = self.settings.smoothing if self.training else 0.0
        total = F.cross_entropy(logits_NC, labels_N, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
        return Outcome({part.task.name: LossSum(total, float((labels_N != IGNORE).sum()))}, None, scores)

    def _unlabelled(self, trunk: CvtEncoder, batch: CvtBatch) -> Outcome:
        assert batch.words_BT is not None
        upper = any("full" in part.views for part in self._parts())  # the others see the first layer alone
        states = trunk.states(batch, self.config.unlabelled_dropout if self.training else 0.0, upper)
        losses: dict[str, LossSum] = {}
        for part, teacher_NC in zip(self._parts(), self.teachers(trunk, batch)):
            losses |= part.view_losses(teacher_NC, states, batch)
        return Outcome(losses)

    @torch.no_grad()
    def teachers(self, trunk: CvtEncoder, batch: CvtBatch) -> list[Tensor]:
        """The primaries' log-probabilities of each task, of all words or all sentences, nothing dropped."""
        assert batch.words_BT is not None
        states = trunk.states(batch, 0.0)
        return [torch.log_softmax(part.logits(states, PRIMARY, batch), dim=1) for part in self._parts()]


def _labels(examples: Sequence[Example]) -> Tensor | None:
    if any(example.label is None for example in examples):
        return None
    return torch.tensor([int(example.label or 0) for example in examples])
