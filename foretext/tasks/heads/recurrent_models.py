"""Task models of their own over the layers of a trunk (`transfer.model` "recurrent"), as ELMo's and CoVe's tasks have
them: the heads of `tagging.py`, `supervised.py` and `span.py` exchanged for networks that read whole sequences.

    tags          biLSTM → scores of tags → CRF (`nn/task_models/sentence_models.py`)
    a text        biLSTM → maximum, mean, minimum and attentive mean → scores (`nn/task_models/sentence_models.py`)
    two texts     biattentive network (`nn/task_models/sentence_models.py`); a choice is a pair with its context
    spans         biLSTM over question and passage → start and end scores of each token

All read x of `trunk_words.py`: texts and pairs the tokens that stand between special ones, tags and spans the special
ones too; the tags of words are asked at their first pieces. A pair is read by the trunk as the system's layout joins
it, and by the task model as two texts. A sentence that is longer than the context is read in windows: tags are chosen
together inside a window, and only the window that begins the sentence begins the CRF.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, LossSum, Outcome
from foretext.nn.recurrent.lstm_layer import BiLstm
from foretext.nn.task_models.crf import LinearChainCrf, iob2_allowed
from foretext.nn.task_models.sentence_models import (
    BiattentiveClassifier,
    BiattentiveConfig,
    BiLstmTagger,
    ClassifierConfig,
    SentenceClassifier,
    TaggerConfig,
)
from foretext.nn.task_models.word_inputs import WordReader
from foretext.nn.trunk import ModelConfig, Trunk
from foretext.objectives.base import Draw, Objective
from foretext.plan import ReaderPlan
from foretext.tasks.files.rows import UNORDERED
from foretext.tasks.heads.span import SpanExample, SpanTask
from foretext.tasks.heads.supervised import (
    NO_SCORE,
    Example,
    arranged,
    both_orders,
    loss_of_labels,
    row_batch,
)
from foretext.tasks.heads.tagging import TaggedExample, WordByWord, tag_batch
from foretext.tasks.heads.trunk_words import TrunkWords


@dataclass(frozen=True)
class WindowBatch(Batch):
    begins_B: Tensor | None = None  # whether a row begins its sentence; None: all do


class RecurrentTagging(WordByWord, Objective):
    """A biLSTM tagger, with a CRF unless the plan says otherwise; chunk tags (IOB2) follow each other as they may."""

    kind = "tagging"

    def __init__(
        self, labels: Sequence[str], chunks: bool, model: ModelConfig, plan: ReaderPlan, dropout: float
    ) -> None:
        super().__init__()
        self.words = TrunkWords(plan, model, dropout)
        config = TaggerConfig(len(labels), plan.cells, plan.layers, dropout, self.words.inputs, plan.crf)
        self.model = BiLstmTagger(config, iob2_allowed(labels) if plan.crf and chunks else None)
        self.weights = {"label": 1.0}

    @property
    def head(self) -> nn.Linear:
        return self.model.scores

    def check(self, trunk: Trunk) -> None:
        self.words.check(trunk)

    def put_vectors(self, matrix_VE: np.ndarray) -> None:
        self.words.put_vectors(matrix_VE)

    def meet(self, examples: Sequence[TaggedExample]) -> None:
        self.words.meet(example.ids for example in examples)

    def make(self, examples: Sequence[TaggedExample], draw: Draw | None = None) -> Batch:
        known = plain_fields(tag_batch(examples))
        return WindowBatch(**known, begins_B=torch.tensor([example.begins for example in examples]))

    def counts(self, batch: Batch) -> dict[str, float]:
        assert batch.targets_BT is not None
        return {"label": float((batch.targets_BT != IGNORE).sum())}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        """`scores` is [B, T, C] at every real token; what they mean at the words of an example `best` and the others
        say."""
        assert isinstance(batch, WindowBatch)
        words = self.words(trunk, batch)
        scores_BTC = self.model(words)
        losses: dict[str, LossSum] = {}
        if batch.targets_BT is not None:
            losses["label"] = self.model.loss_of(scores_BTC, words.mask_BT, batch.targets_BT, batch.begins_B)
        return Outcome(losses, None, scores_BTC.masked_fill(~words.mask_BT[..., None], NO_SCORE))

    # -- what the scores [words, C] of an example mean

    def best(self, scores_WC: np.ndarray, begins: bool = True) -> np.ndarray:
        if self.model.crf is None:
            return super().best(scores_WC)
        return self.model.crf.viterbi(*self._alone(scores_WC, begins))[0][0].cpu().numpy()

    def probabilities(self, scores_WC: np.ndarray, begins: bool = True) -> np.ndarray:
        if self.model.crf is None:
            return super().probabilities(scores_WC)
        return self.model.crf.marginals(*self._alone(scores_WC, begins))[0].cpu().numpy()

    def surprise(self, scores_WC: np.ndarray, tags_W: np.ndarray, begins: bool = True) -> float:
        if self.model.crf is None:
            return super().surprise(scores_WC, tags_W)
        scores, _, begins_B = self._alone(scores_WC, begins)
        tags_BT = torch.as_tensor(tags_W, device=scores.device)[None]
        with torch.no_grad():
            return float(self.model.crf.loss(scores, tags_BT, tags_BT != IGNORE, begins_B).total)

    def _alone(self, scores_WC: np.ndarray, begins: bool) -> tuple[Tensor, Tensor, Tensor]:
        """As a batch of one sequence."""
        assert isinstance(self.model.crf, LinearChainCrf)
        scores = torch.as_tensor(scores_WC, device=self.model.crf.starts.device)[None]
        every = torch.ones(scores.shape[:2], dtype=torch.bool, device=scores.device)
        return scores, every, torch.tensor([begins], device=scores.device)


def plain_fields(batch: Batch) -> dict[str, Any]:
    """What every batch has."""
    return {field.name: getattr(batch, field.name) for field in fields(Batch)}


@dataclass(frozen=True)
class TextsBatch(Batch):
    parts_BT: Tensor | None = None  # which text a token is of, from 1; 0: a special token, or padding


class RecurrentRows(Objective):
    """A label for a text or for a pair of them. Where a layout reads a pair in both orders, the scores are averaged."""

    def __init__(
        self, kind: str, classes: int, pairs: bool, model: ModelConfig, plan: ReaderPlan, dropout: float
    ) -> None:
        super().__init__()
        self.kind, self.pairs = kind, pairs
        self.words = TrunkWords(plan, model, dropout)
        outputs = 1 if kind in ("choice", "regression") else classes
        inputs, cells, layers = self.words.inputs, plan.cells, plan.layers
        self.model: BiattentiveClassifier | SentenceClassifier
        if pairs:
            config = BiattentiveConfig(outputs, cells, layers, dropout, inputs, projection=cells, hidden=cells)
            self.model = BiattentiveClassifier(config)
        else:
            self.model = SentenceClassifier(ClassifierConfig(outputs, cells, layers, dropout=dropout, inputs=inputs))
        self.weights = {"label": 1.0}

    @property
    def head(self) -> nn.Linear:
        return self.model.scores

    def check(self, trunk: Trunk) -> None:
        self.words.check(trunk)

    def put_vectors(self, matrix_VE: np.ndarray) -> None:
        self.words.put_vectors(matrix_VE)

    def meet(self, examples: Sequence[Example]) -> None:
        self.words.meet(sequence.ids for example in examples for sequence in example.sequences)

    def make(self, examples: Sequence[Example], draw: Draw | None = None) -> Batch:
        batch = row_batch(examples, self.kind)
        parts = np.zeros(batch.ids_BT.shape, dtype=np.int64)
        sequences = [sequence for example in examples for sequence in example.sequences]
        for row, sequence in enumerate(sequences):
            for number, (start, length) in enumerate(sequence.parts, 1):
                parts[row, start : start + length] = number
        return TextsBatch(**plain_fields(batch), parts_BT=torch.from_numpy(parts))

    def counts(self, batch: Batch) -> dict[str, float]:
        assert batch.labels is not None
        return {"label": float(len(batch.labels))}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        assert isinstance(batch, TextsBatch) and batch.parts_BT is not None and batch.group_B is not None
        words = self.words(trunk, batch)
        texts = [replace(words, mask_BT=batch.parts_BT == number) for number in ((1, 2) if self.pairs else (1,))]
        outputs_BC = self.model(*texts)
        if self.kind in UNORDERED:
            outputs_BC = both_orders(outputs_BC, batch).mean(1)
        assert batch.group_B is not None
        scores = arranged(outputs_BC, batch.group_B, self.kind)
        losses: dict[str, LossSum] = {}
        if batch.labels is not None:
            count = float(len(batch.labels))
            total = loss_of_labels(scores, batch.labels, self.kind) + count * self.model.read.penalty()
            losses["label"] = LossSum(total, count)
        return Outcome(losses, None, scores)


class RecurrentSpan(SpanTask):
    """A biLSTM under the two vectors."""

    def __init__(self, model: ModelConfig, plan: ReaderPlan, dropout: float) -> None:
        words = TrunkWords(plan, model, dropout)
        super().__init__(2 * plan.cells + words.inputs.output_width, 0.0, dropout, model.init_std)
        self.words, self.read = words, WordReader(words.inputs)
        self.recurrent = BiLstm(words.inputs.width, plan.cells, plan.layers, dropout)

    def check(self, trunk: Trunk) -> None:
        self.words.check(trunk)

    def put_vectors(self, matrix_VE: np.ndarray) -> None:
        self.words.put_vectors(matrix_VE)

    def meet(self, examples: Sequence[SpanExample]) -> None:
        self.words.meet(example.ids for example in examples)

    def states(self, trunk: Trunk, batch: Batch) -> Tensor:
        words = self.words(trunk, batch)
        return self.read.beside(self.recurrent(self.read(words), words.mask_BT), words)

    def label_loss(self, scores_BT2: Tensor, labels_B2: Tensor) -> Tensor:
        return super().label_loss(scores_BT2, labels_B2) + len(labels_B2) * self.read.penalty()
