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
order's to say (`text/order.py`). What modules see is in `nn/recurrent/cvt.py`, how rows and text become batches
in `tasks/heads/cross_view_head.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, LossSum, Outcome
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
from foretext.objectives.base import Objective

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


class CrossViewObjective(Objective):
    def __init__(self, config: CvtConfig, settings: CrossViewSettings, tasks: Sequence[CrossViewTask]) -> None:
        super().__init__()
        settings.check()
        names = [task.name for task in tasks]
        refuse_if(
            not tasks or len(set(names)) != len(names) or any("." in name for name in names),
            f"tasks need names of their own without a full stop, not {', '.join(names) or 'none'}",
        )
        self.config, self.settings, self.tasks = config, settings, tuple(tasks)
        self.parts = nn.ModuleList(TaskModules(task, config, settings) for task in tasks)
        self.weights = dict.fromkeys(names, 1.0)
        self.begin_step(settings.ramp, 1.0)

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

    # -- losses ------------------------------------------------------------------------------------------------------

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
