"""Cross-view training (Clark et al. 2018): labelled and unlabelled batches alternate, over one encoder for all tasks.

    labelled, task k     −Σ log p_primary(y | x)                     with labels smoothed by ε
    unlabelled, all k    Σ KL(p_primary(· | x) ‖ p_view(· | x))      for each auxiliary view

On unlabelled text the primary module's distribution is computed without dropout and is a constant. The views see less
of the sentence and learn to predict the same distribution; they also train the first layer that they share with the
primary module. The primary module and the second layer learn from labels alone. (The released code uses the
cross-entropy, which has the same gradient; the KL is 0 when a view has nothing more to learn.)

Each task and each of its views is a named loss: `label` for the main task, the other tasks by their names, and for
unlabelled text the view is appended (`label.forward`). A view's loss is divided by the number of its predictions (for a
word read in parts, only the first part counts), a task's by the number of its labels. A batch counts 0 for losses that
it does not concern. The order decides what a step's batch is: examples of one task, or unlabelled text
(`text/order.py`). What each module sees is in `nn/recurrent/cvt.py`.

In labelled training, a word that occurs once in the labelled rows is read as unknown half of the time. Its vector would
be of no use elsewhere, and the vector for unknown words would never learn. Its characters are read all the same.

Scores are those of the main task's primary module: [B, T, C] at every word, or [B, C].
"""

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
KINDS: dict[str, Kind] = {"tagging": "tagging", "classification": "sentence"}  # kind of task → kind of modules
PRIMARY = "primary"
RAMP_PART = 0.65  # share of the run by whose end the views have full weight, however short the run is


@dataclass(frozen=True)
class CrossViewSettings:
    """[objective] of cross-view training."""

    views: tuple[View, ...] = ("forward", "backward", "future", "past")  # for sentences, those among them that apply
    hidden: int = 512  # width between a module's two layers
    smoothing: float = 0.1  # share of a label that is spread over all classes
    unlabelled_weight: float = 1.0  # weight of each view's loss
    ramp: int = 0  # steps, labelled ones included, over which that weight rises from 0; at most `RAMP_PART` of the run
    unknown: float = 0.5  # how often a word that occurs once in the labelled rows is read as unknown, in training
    average: float = 0.998  # decay of the averaged weights used for prediction; 0: the last weights are used

    def check(self) -> None:
        if len(set(self.views)) != len(self.views) or not set(self.views) <= set(VIEWS["tagging"]):
            raise UserError(
                f"objective.views must be one or more of {', '.join(VIEWS['tagging'])}, each once, not "
                f"{', '.join(self.views)}"
            )
        check_range("objective", self, "at least 1", "hidden")
        check_range("objective", self, "at least 0 and below 1", "smoothing", "average")
        check_range("objective", self, "at least 0 and at most 1", "unknown")
        check_range("objective", self, "at least 0", "ramp", "unlabelled_weight")

    def loss_terms(self, kinds: Mapping[str, str]) -> dict[str, float]:
        """Each named loss and its weight, for tasks of these kinds; a weight that rises is given with its final
        value."""
        views = (f"{name}.{view}" for name, kind in kinds.items() for view in self.views if view in VIEWS[KINDS[kind]])
        return dict.fromkeys(kinds, 1.0) | dict.fromkeys(views, self.unlabelled_weight)


@dataclass(frozen=True)
class CrossViewTask:
    name: str
    kind: Kind
    classes: int


def _key(view: str) -> str:
    return f"{view}_view"  # a dictionary of modules cannot have the name `forward`


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
        """For the view's places one after the other, or for each sentence."""
        assert batch.words_BT is not None
        if self.task.kind == "tagging":
            firsts_BT = None if view == PRIMARY else batch.asked_BT
            return self.of_view[_key(view)](view_states(states, view, batch.words_BT, firsts_BT))
        return self.of_view[_key(view)](sentence_states(states, view, batch.words_BT))

    def asked(self, view: str, batch: CvtBatch) -> Tensor:
        """Which of the primary's predictions, in order, the view must make too."""
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
    asked: np.ndarray  # whether a tag would be predicted there: at the first part of a word

    @property
    def tokens(self) -> int:
        return len(self.ids)


class UnlabelledText:
    """Many texts in little memory: all ids in one array."""

    def __init__(self, rows: Iterable[tuple[np.ndarray, np.ndarray]] = ()) -> None:
        """`rows`: ids, and which of them get predictions."""
        sentences = list(rows)
        nothing = np.zeros(0, dtype=np.int32)
        self.ids = np.concatenate([nothing, *(ids for ids, _ in sentences)]).astype(np.int32)
        self.asked = np.concatenate([nothing, *(flags for _, flags in sentences)]).astype(bool)
        self.ends = np.cumsum([0, *(len(ids) for ids, _ in sentences)])

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __iter__(self) -> Iterator[UnlabelledExample]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> UnlabelledExample:
        part = slice(int(self.ends[index]), int(self.ends[index + 1]))
        return UnlabelledExample(self.ids[part], self.asked[part])


@dataclass(frozen=True)
class Sourced:
    """An example and the task of its labels; None: unlabelled."""

    task: int | None
    example: Any
    seldom: tuple[int, ...] = ()  # the places of words that occur once in the labelled rows

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
        """`seldom`: the ids of words that occur once in the labelled rows."""
        self.tasks, self.unlabelled = tasks, unlabelled
        self.labelled = [
            Sourced(number, example, tuple(place for place, id in enumerate(_ids(example)) if id in seldom))
            for number, examples in enumerate(tasks)
            for example in examples
        ]

    @property
    def rows(self) -> Iterator[Sourced]:
        """All rows."""
        return (self.example(0, index) for index in range(len(self)))

    def __len__(self) -> int:
        return len(self.labelled) + len(self.unlabelled)

    def example(self, epoch: int, index: int) -> Sourced:
        if index < len(self.labelled):
            return self.labelled[index]
        return Sourced(None, self.unlabelled[index - len(self.labelled)])

    def epoch_tokens(self, order: SampleOrder) -> list[tuple[int, int]]:
        """The tokens of the first epoch's labelled and unlabelled steps, and one example step of each kind."""
        kinds = 2 if len(self.unlabelled) else 1
        tokens = [0] * kinds
        for step in range(order.steps_per_epoch):
            tokens[step % kinds] += sum(self.example(0, index).tokens for index in order.batch(step)[1])
        return list(enumerate(tokens))

    def beside(self, others: Mapping[str, str]) -> list[tuple[str, str]]:
        text = [("text", f"{len(self.unlabelled):,} unlabelled sentences, one batch after each labelled one")]
        pairs = zip(others.items(), self.tasks[1:])
        named = ", ".join(
            f"{name} ({kind_and_classes.split()[0]}, {len(rows):,} rows)" for (name, kind_and_classes), rows in pairs
        )
        return (text if len(self.unlabelled) else []) + ([("beside it", named)] if named else [])

    def order(self, batch_size: int, seed: int) -> Turns:
        """Labelled and unlabelled batches alternate, each with examples of similar length."""
        tasks = [_by_length(examples, batch_size, seed + number) for number, examples in enumerate(self.tasks)]
        text = _by_length(self.unlabelled, batch_size, seed + len(tasks)) if len(self.unlabelled) else None
        return Turns(tasks, text, seed)


def _ids(example: Any) -> Sequence[int]:
    """The ids of a labelled example of either kind."""
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
        """`others`: further tasks by name, each with its kind and number of classes. `borders`: ids that are not words.
        `forms`: how the trunk looks words up."""
        super().__init__()
        settings.check()
        refuse_if(LABEL in others, f"an additional task cannot be called {LABEL!r}; rename its file")
        dotted = [name for name in others if "." in name]
        refuse_if(dotted, f"task names must not contain a full stop: {', '.join(dotted)}")
        named = {LABEL: (kind, classes)} | others
        self.tasks = tuple(CrossViewTask(name, KINDS[its_kind], count) for name, (its_kind, count) in named.items())
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
        return ManySources(
            tasks, unlabelled, self.forms.seldom(_ids(example) for examples in tasks for example in examples)
        )

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        assert isinstance(examples, ManySources)
        return examples.order(batch_size, seed)

    def make(self, examples: Sequence[Any], draw: Draw | None = None) -> CvtBatch:
        """A batch of one task, or of unlabelled text. Examples without a source belong to the main task."""
        given = [item if isinstance(item, Sourced) else Sourced(0, item) for item in examples]
        task = given[0].task
        assert all(item.task == task for item in given), "a batch is of one source"
        unwrapped = [item.example for item in given]
        if task is None:
            batch = self._batch([item.ids for item in unwrapped], None)
            return replace(batch, asked_BT=padded([item.asked for item in unwrapped])[0].bool())
        batch = self._batch([_ids(item) for item in unwrapped], task)
        batch = replace(batch, hidden_BT=self._hidden(given, batch.ids_BT.shape, draw))
        if self.tasks[task].kind == "tagging":
            return replace(batch, targets_BT=tag_targets(unwrapped, batch.ids_BT.shape))
        return replace(batch, labels=_labels(unwrapped))

    def _hidden(self, given: Sequence[Sourced], shape: tuple[int, ...], draw: Draw | None) -> Tensor | None:
        """Which words are read as unknown; None if none are, or if nothing is drawn."""
        if draw is None or not self.settings.unknown or not any(sourced.seldom for sourced in given):
            return None
        table = np.zeros(shape, dtype=bool)
        for row, sourced in enumerate(given):
            table[row, list(sourced.seldom)] = draw.generator(row).random(len(sourced.seldom)) < self.settings.unknown
        return torch.from_numpy(table)

    def _batch(self, rows: Sequence[Sequence[int]], task: int | None) -> CvtBatch:
        ids_BT, real_BT = padded(rows)
        words_BT = real_BT & ~torch.isin(ids_BT, torch.tensor(self.borders, dtype=torch.int64))
        return CvtBatch(ids_BT, real_BT, words_BT=words_BT, task=task)

    # -- what losses are divided by, and their weights

    def begin_step(self, step: int, progress: float) -> None:
        """The views' weight rises slowly: while the primary module knows nothing, it cannot teach."""
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
            pairs = ((part, view) for part in self._parts() for view in part.views)
            counted = {part.name(view): float(part.asked(view, batch).sum()) for part, view in pairs}
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
        upper = any("full" in part.views for part in self._parts())  # the other views see the first layer only
        states = trunk.states(batch, self.config.unlabelled_dropout if self.training else 0.0, upper)
        losses: dict[str, LossSum] = {}
        for part, teacher_NC in zip(self._parts(), self.teachers(trunk, batch)):
            losses |= part.view_losses(teacher_NC, states, batch)
        return Outcome(losses)

    @torch.no_grad()
    def teachers(self, trunk: CvtEncoder, batch: CvtBatch) -> list[Tensor]:
        """The primaries' log-probabilities for each task, at all words or all sentences, without dropout."""
        assert batch.words_BT is not None
        states = trunk.states(batch, 0.0)
        return [torch.log_softmax(part.logits(states, PRIMARY, batch), dim=1) for part in self._parts()]


def _labels(examples: Sequence[Example]) -> Tensor | None:
    if any(example.label is None for example in examples):
        return None
    return torch.tensor([int(example.label or 0) for example in examples])
