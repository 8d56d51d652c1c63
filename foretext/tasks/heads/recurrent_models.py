"""Task models over the layers of a trunk (`transfer.model` "recurrent"), as for ELMo and CoVe: instead of the heads in
`supervised.py` and `token_tasks.py`, networks that read whole sequences.

    tags          biLSTM → scores of tags → CRF (`nn/task_models/sentence_models.py`)
    a text        biLSTM → maximum, mean, minimum and attentive mean → scores (`nn/task_models/sentence_models.py`)
    two texts     biattentive network (`nn/task_models/sentence_models.py`); a choice is a pair with its context
    spans         biLSTM over question and passage → start and end scores of each token

All read the x of `TrunkWords`. Texts and pairs read only the tokens between special ones; tags and spans read the
special ones too. A word's tag is predicted at its first piece. The trunk reads a pair as the system's layout joins it;
the task model reads it as two texts. A sentence longer than the context is read in windows: tags are chosen together
within a window, and only the first window starts the CRF.

`TrunkWords` is the task model's input for each token: γ Σ s_l h_l over the layers, a learned vector, and its
characters.

Only layers as wide as the top are mixed, since others cannot be added (for an AWD-LSTM the embeddings and the top, for
most trunks all layers). Layers may also be read unmixed, beside the vector: the lowest, or the lowest and the top
(CoVe's [GloVe; CoVe]).

The learned word vectors come from the training rows alone. A word that does not occur there would have a random vector,
so all such words share one, the last row (`meet` counts the rows' tokens). It is trained by reading words as unknown
during training, rare ones more often, with probability α / (α + count) (Kiperwasser and Goldberg 2016). Without dropout
this is off, and the vector stays 0.

Given word vectors (`finetune --vectors`: published ones, or a word2vec run's) are read beside the mixture and do not
learn: [word vector; ELMo's mixture], as in Peters et al. (2018). A word without a vector gets zeros.

The mixture's weights belong to the task model (`nn/task_models/sentence_models.py`). A fully frozen trunk
(`transfer.thaw` "never": ELMo, CoVe) gives features: it is read without gradients and without its own dropout, in
training too. A trunk that learns is read as usual. A task model that takes nothing from the trunk (`reader.mix` false)
is the baseline for features; it uses only the trunk's characters, if these are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, LossSum, Outcome
from foretext.errors import refuse_if
from foretext.nn.recurrent.lstm_layer import BiLstm
from foretext.nn.task_models.crf import iob2_allowed
from foretext.nn.task_models.sentence_models import (
    BiattentiveClassifier,
    BiLstmTagger,
    SentenceClassifier,
    WordInput,
    WordInputConfig,
    WordReader,
)
from foretext.nn.trunk import ModelConfig, Trunk
from foretext.objectives.base import Draw
from foretext.plan import ReaderPlan
from foretext.tasks.files.rows import UNORDERED
from foretext.tasks.heads.supervised import (
    NO_SCORE,
    Example,
    LabelledTask,
    arranged,
    both_orders,
    loss_of_labels,
    real_places,
    row_batch,
)
from foretext.tasks.heads.token_tasks import ChainTagger, SpanExample, SpanTask, TaggedExample, WordByWord, tag_batch
from foretext.text.words.characters import WORD_LENGTH


@dataclass(frozen=True)
class WindowBatch(Batch):
    begins_B: Tensor | None = None  # whether a row begins its sentence; None: all do


class OverWords:
    """What all models over a trunk's words share."""

    words: TrunkWords

    def check(self, trunk: Trunk) -> None:
        self.words.check(trunk)

    def put_vectors(self, matrix_VE: np.ndarray) -> None:
        self.words.put_vectors(matrix_VE)

    def meet(self, examples: Sequence[TaggedExample | SpanExample]) -> None:
        self.words.meet(example.ids for example in examples)


class RecurrentTagging(OverWords, WordByWord, LabelledTask):
    """A biLSTM tagger, with a CRF unless the plan says otherwise. The CRF allows only valid sequences of chunk tags
    (IOB2)."""

    kind = "tagging"

    def __init__(
        self, labels: Sequence[str], chunks: bool, model: ModelConfig, plan: ReaderPlan, dropout: float
    ) -> None:
        super().__init__()
        self.words = TrunkWords(plan, model, dropout)
        allowed = iob2_allowed(labels) if plan.crf and chunks else None
        inputs, cells, layers = self.words.inputs, plan.cells, plan.layers
        self.model = BiLstmTagger(inputs, len(labels), cells, layers, dropout, plan.crf, allowed)

    @property
    def head(self) -> nn.Linear:
        return self.model.scores

    def make(self, examples: Sequence[TaggedExample], draw: Draw | None = None) -> Batch:
        batch = extended(tag_batch(examples), WindowBatch)
        return replace(batch, begins_B=torch.tensor([example.begins for example in examples]))

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        """`scores` is [B, T, C] at every real token; `best` and the others turn them into predictions for the words of
        an example."""
        assert isinstance(batch, WindowBatch)
        words = self.words(trunk, batch)
        scores_BTC = self.model(words)
        losses: dict[str, LossSum] = {}
        if batch.targets_BT is not None:
            losses["label"] = self.model.loss_of(scores_BTC, words.mask_BT, batch.targets_BT, batch.begins_B)
        return Outcome(losses, None, scores_BTC.masked_fill(~words.mask_BT[..., None], NO_SCORE))

    # -- what the scores [words, C] of an example mean

    @property
    def _tagger(self) -> WordByWord:
        return WordByWord() if self.model.crf is None else ChainTagger(self.model.crf)

    def best(self, scores_WC: np.ndarray, begins: bool = True) -> np.ndarray:
        """The class of each word."""
        return self._tagger.best(scores_WC, begins)

    def probabilities(self, scores_WC: np.ndarray, begins: bool = True) -> np.ndarray:
        """The probability of each class at each word."""
        return self._tagger.probabilities(scores_WC, begins)

    def told(self, scores: Sequence[np.ndarray], begins: Sequence[bool]) -> list[tuple[np.ndarray, np.ndarray]]:
        return self._tagger.told(scores, begins)

    def surprise(self, scores_WC: np.ndarray, tags_W: np.ndarray, begins: bool = True) -> float:
        """The loss of these classes, summed over the words; those that are IGNORE do not count."""
        return self._tagger.surprise(scores_WC, tags_W, begins)


BatchKind = TypeVar("BatchKind", bound=Batch)


def extended(batch: Batch, kind: type[BatchKind]) -> BatchKind:
    """The batch as one of a kind with more fields, which are not set yet."""
    return kind(**{field.name: getattr(batch, field.name) for field in fields(Batch)})


@dataclass(frozen=True)
class TextsBatch(Batch):
    parts_BT: Tensor | None = None  # which text a token belongs to, from 1; 0: a special token, or padding


class RecurrentRows(OverWords, LabelledTask):
    """A label for a text or for a pair. If a layout reads a pair in both orders, the scores are averaged."""

    def __init__(
        self, kind: str, classes: int, pairs: bool, model: ModelConfig, plan: ReaderPlan, dropout: float
    ) -> None:
        super().__init__()
        self.kind, self.pairs = kind, pairs
        self.words = TrunkWords(plan, model, dropout)
        outputs = 1 if kind in ("choice", "regression") else classes
        shape = self.words.inputs, outputs, plan.cells, plan.layers, dropout
        self.model: BiattentiveClassifier | SentenceClassifier
        if pairs:
            self.model = BiattentiveClassifier(*shape, projection=plan.cells, hidden=plan.cells)
        else:
            self.model = SentenceClassifier(*shape)

    @property
    def head(self) -> nn.Linear:
        return self.model.scores

    def meet(self, examples: Sequence[Any]) -> None:
        self.words.meet(sequence.ids for example in examples for sequence in example.sequences)

    def make(self, examples: Sequence[Example], draw: Draw | None = None) -> Batch:
        batch = row_batch(examples, self.kind)
        parts = np.zeros(batch.ids_BT.shape, dtype=np.int64)
        for row, sequence in enumerate([sequence for example in examples for sequence in example.sequences]):
            for number, (start, length) in enumerate(sequence.parts, 1):
                parts[row, start : start + length] = number
        return replace(extended(batch, TextsBatch), parts_BT=torch.from_numpy(parts))

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        assert isinstance(batch, TextsBatch) and batch.parts_BT is not None and batch.group_B is not None
        words = self.words(trunk, batch)
        texts = [replace(words, mask_BT=batch.parts_BT == number) for number in ((1, 2) if self.pairs else (1,))]
        outputs_BC = self.model(*texts)
        if self.kind in UNORDERED:
            outputs_BC = both_orders(outputs_BC, batch).mean(1)
        scores = arranged(outputs_BC, batch.group_B, self.kind)
        losses: dict[str, LossSum] = {}
        if batch.labels is not None:
            count = float(len(batch.labels))
            total = loss_of_labels(scores, batch.labels, self.kind) + count * self.model.read.penalty()
            losses["label"] = LossSum(total, count)
        return Outcome(losses, None, scores)


class RecurrentSpan(OverWords, SpanTask):
    """A biLSTM below the start and end vectors."""

    def __init__(self, model: ModelConfig, plan: ReaderPlan, dropout: float) -> None:
        words = TrunkWords(plan, model, dropout)
        super().__init__(2 * plan.cells + words.inputs.output_width, 0.0, dropout, model.init_std)
        self.words, self.read = words, WordReader(words.inputs)
        self.recurrent = BiLstm(words.inputs.width, plan.cells, plan.layers, dropout)

    def states(self, trunk: Trunk, batch: Batch) -> Tensor:
        words = self.words(trunk, batch)
        return self.read.beside(self.recurrent(self.read(words), words.mask_BT), words)

    def label_loss(self, scores_BT2: Tensor, labels_B2: Tensor) -> Tensor:
        return super().label_loss(scores_BT2, labels_B2) + len(labels_B2) * self.read.penalty()


ALPHA = 0.25  # sets how often words are read as unknown in training


class TrunkWords(nn.Module):
    """`inputs`: the shape of its result."""

    def __init__(self, plan: ReaderPlan, model: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.beside = plan.beside
        fixed = {"none": 0, "lowest": model.lowest, "ends": model.lowest + model.width}[plan.beside]
        self.mixed = [layer for layer, width in enumerate(model.layer_widths) if plan.mix and width == model.width]
        self.inputs = WordInputConfig(
            vectors=plan.vectors + plan.given + fixed,
            layers=len(self.mixed),
            layer_width=model.width if plan.mix else 0,
            at_output=plan.twice,
            mix_norm=plan.norm,
            mix_penalty=plan.penalty,
            characters=plan.characters,
            word_length=model.word_length or WORD_LENGTH,
            dropout=dropout,
        )
        # The last row is for words that do not occur in the training rows, or whose id is outside the vocabulary.
        self.vectors = nn.Embedding(model.vocabulary + 1, plan.vectors) if plan.vectors else None
        if self.vectors is not None:
            most = math.sqrt(3.0 / plan.vectors)  # so that their variance is 1/width (Lample et al. 2016)
            nn.init.uniform_(self.vectors.weight, -most, most)
            nn.init.zeros_(self.vectors.weight[-1])
            self.counts_V: Tensor
            self.register_buffer("counts_V", torch.zeros(model.vocabulary + 1))
        self.given_VE: Tensor | None
        self.register_buffer("given_VE", torch.zeros(model.vocabulary + 1, plan.given) if plan.given else None)

    def put_vectors(self, matrix_VE: np.ndarray) -> None:
        """Sets the vectors of the vocabulary's words; zeros for words without one."""
        assert self.given_VE is not None and matrix_VE.shape[1] == self.given_VE.shape[1]
        self.given_VE[: len(matrix_VE)].copy_(torch.from_numpy(matrix_VE))

    def meet(self, sequences: Iterable[Sequence[int]]) -> None:
        """Counts the tokens of the training rows."""
        if self.vectors is None:
            return
        last = self.vectors.num_embeddings - 1
        ids = torch.tensor([id for sequence in sequences for id in sequence], dtype=torch.long).clamp(max=last)
        self.counts_V.copy_(torch.bincount(ids, minlength=last + 1))

    def check(self, trunk: Trunk) -> None:
        """UserError if it would read the characters of a trunk that has none."""
        refuse_if(
            self.inputs.characters and not trunk.spells,
            "transfer.reader.characters: this model reads token ids and has no characters; set it to 0",
        )

    def forward(self, trunk: Trunk, batch: Batch) -> WordInput:
        layers = self._layers(trunk, batch)
        vectors = [*layers[:1], *(layers[-1:] if self.beside == "ends" else ())] if self.beside != "none" else []
        if self.vectors is not None:
            vectors.append(self.vectors(self._rows(batch.ids_BT)))
        if self.given_VE is not None:
            vectors.append(F.embedding(batch.ids_BT.clamp(max=len(self.given_VE) - 1), self.given_VE))
        vectors_BTD = torch.cat(vectors, dim=-1) if vectors else None
        characters_UC, places_BT = trunk.spelled(batch) if self.inputs.characters else (None, None)
        mixed = tuple(layers[layer] for layer in self.mixed)
        return WordInput(real_places(batch), vectors_BTD, mixed, characters_UC, places_BT)

    def _rows(self, ids_BT: Tensor) -> Tensor:
        """The row of the vector table for each token."""
        last = len(self.counts_V) - 1
        ids_BT = ids_BT.clamp(max=last)
        counts_BT = self.counts_V[ids_BT]
        unknown_BT = counts_BT == 0
        if self.training and self.inputs.dropout:
            unknown_BT = torch.rand_like(counts_BT) < ALPHA / (ALPHA + counts_BT)  # always, where the count is 0
        return ids_BT.masked_fill(unknown_BT, last)

    def _layers(self, trunk: Trunk, batch: Batch) -> tuple[Tensor, ...]:
        if not self.inputs.layers and self.beside == "none":
            return ()
        learns = any(parameter.requires_grad for parameter in trunk.parameters())
        if not learns:
            trunk.eval()
        with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
            return trunk(batch, keep_layers=True).layers
