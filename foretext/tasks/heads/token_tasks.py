"""Heads that predict at tokens: tags of words, and answers that are spans of a passage.

Tagging: one class per word, from the state of one of its pieces through dropout and one linear layer.

It is the first piece, as in BERT, or the last if the trunk reads from left to right, since only then has the whole word
been read. The loss counts words, not pieces or sentences: the cross-entropy at these pieces, summed. A causal trunk may
add λ·L1 as in `supervised.py`. It sees nothing after the word, which limits the quality of its tags.

Answer spans: a start vector and an end vector are compared with each token's state.

P(start = i) is the softmax over all real tokens of the sequence, and so is P(end = i). The loss of an example is the
mean of the two −log P, as in BERT's released code. A window without the answer, and a question that has none, point at
the extract position. A causal trunk may add λ·L1 as in `supervised.py`; it must choose the start before reading what
follows, which limits the quality of its answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.batch import IGNORE, Batch, LossSum, Outcome, length_batches, padded, padded_segments
from foretext.nn.fused import dropout
from foretext.nn.task_models.crf import LinearChainCrf
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Draw
from foretext.tasks.files.predictions import probabilities_of
from foretext.tasks.heads.supervised import LabelledTask, new_layer, next_tokens, real_places, sequence_lm_loss, spread
from foretext.tasks.layouts.windows import SpanWindow, TagWindow, is_whole


@dataclass(frozen=True)
class TaggedExample:
    """A window of a sentence: its ids, the words tagged in it, the position where each is predicted, and its class
    (IGNORE: a tag unknown from training). `tags` is None if there are none."""

    ids: tuple[int, ...]
    places: tuple[int, ...]
    tags: tuple[int, ...] | None
    segments: tuple[int, ...] = ()
    begins: bool = True  # whether its first word is the sentence's first

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def asked(self, scores: np.ndarray) -> np.ndarray:
        """[words, C] from [T, C]."""
        return scores[list(self.places)]


def tagged_example(window: TagWindow, tags: Sequence[int] | None) -> TaggedExample:
    """`tags`: the classes of all words of the window's sentence."""
    classes = None if tags is None else tuple(tags[word] for word in window.words)
    return TaggedExample(window.frame.ids, window.places, classes, window.frame.segments, window.words[0] == 0)


class WordByWord:
    """Turns the scores [words, C] of an example into tags, each word by itself."""

    def best(self, scores_WC: np.ndarray, begins: bool = True) -> np.ndarray:
        """The class of each word."""
        return scores_WC.argmax(axis=1)

    def probabilities(self, scores_WC: np.ndarray, begins: bool = True) -> np.ndarray:
        """The probability of each class at each word."""
        return probabilities_of(scores_WC)

    def told(self, scores: Sequence[np.ndarray], begins: Sequence[bool]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each example, the classes of its words and the probability of each."""
        predictions = []
        for logits, first in zip(scores, begins):
            best = self.best(logits, first)
            predictions.append((best, self.probabilities(logits, first)[np.arange(len(best)), best]))
        return predictions

    def surprise(self, scores_WC: np.ndarray, tags_W: np.ndarray, begins: bool = True) -> float:
        """The loss of these classes, Σ −log softmax(scores)[tag]; words with the tag IGNORE do not count."""
        known = np.flatnonzero(tags_W != IGNORE)
        chosen = probabilities_of(scores_WC.astype(np.float64))[known, tags_W[known]]
        return -float(np.log(np.maximum(chosen, 1e-12)).sum())


class ChainTagger(WordByWord):
    """Turns scores into tags with a CRF that chooses the tags of a sentence together."""

    kind = "tagging"

    def __init__(self, crf: LinearChainCrf) -> None:
        self.crf = crf

    def best(self, scores_WC: np.ndarray, begins: bool = True) -> np.ndarray:
        return self.crf.viterbi(*self._rows([scores_WC], [begins]))[0][0].cpu().numpy()

    def probabilities(self, scores_WC: np.ndarray, begins: bool = True) -> np.ndarray:
        return self.crf.marginals(*self._rows([scores_WC], [begins]))[0].cpu().numpy()

    def told(self, scores: Sequence[np.ndarray], begins: Sequence[bool]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Many examples at once: one step of a CRF is a few small operations, however many sentences there are."""
        predictions: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for group in length_batches([len(logits) for logits in scores]):
            rows = self._rows([scores[number] for number in group], [begins[number] for number in group])
            path_BT = self.crf.viterbi(*rows)[0]
            likely_BT = self.crf.marginals(*rows).gather(2, path_BT.clamp(min=0)[..., None])[..., 0]
            for row, number in enumerate(group):
                length = len(scores[number])
                predictions[number] = path_BT[row, :length].cpu().numpy(), likely_BT[row, :length].cpu().numpy()
        return [predictions[number] for number in range(len(scores))]

    def surprise(self, scores_WC: np.ndarray, tags_W: np.ndarray, begins: bool = True) -> float:
        scores, _, begins_B = self._rows([scores_WC], [begins])
        tags_BT = torch.as_tensor(tags_W, device=scores.device)[None]
        with torch.no_grad():
            return float(self.crf.loss(scores, tags_BT, tags_BT != IGNORE, begins_B).total)

    def _rows(self, scores: Sequence[np.ndarray], begins: Sequence[bool]) -> tuple[Tensor, Tensor, Tensor]:
        """Examples as a batch: [B, T, C], which places are real, and which rows begin their sentences."""
        device = self.crf.starts.device
        rows = [torch.as_tensor(row, device=device) for row in scores]
        lengths_B = torch.tensor([len(row) for row in rows], device=device)
        scores_BTC = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask_BT = torch.arange(scores_BTC.shape[1], device=device) < lengths_B[:, None]
        return scores_BTC, mask_BT, torch.tensor(begins, device=device)


class TaggingTask(WordByWord, LabelledTask):
    """Tagging on any trunk."""

    kind = "tagging"

    def __init__(self, classes: int, width: int, lm_weight: float, p: float, init_std: float = 0.02) -> None:
        super().__init__(lm_weight)
        self.p = p
        self.head = new_layer(width, classes, init_std)

    def make(self, examples: Sequence[TaggedExample], draw: Draw | None = None) -> Batch:
        return tag_batch(examples)

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        """`scores` is [B, T, C]: with targets only at their places, without targets at every real token."""
        hidden = trunk(batch)
        targets_BT = batch.targets_BT
        asked_BT = real_places(batch) if targets_BT is None else targets_BT != IGNORE
        # Dropout is applied only to the states that are used, so that padding cannot change what is drawn.
        scores_NC = self.head(dropout(hidden.top[asked_BT], self.p, self.training))
        losses: dict[str, LossSum] = {}
        if targets_BT is not None:
            total = F.cross_entropy(scores_NC, targets_BT[asked_BT], reduction="sum")
            losses["label"] = LossSum(total, float(len(scores_NC)))
            if "lm" in self.weights and torch.is_grad_enabled():  # not needed for scoring
                losses["lm"] = sequence_lm_loss(trunk, hidden.top, next_tokens(batch.ids_BT, real_places(batch)))
        return Outcome(losses, None, spread(scores_NC, asked_BT))


def tag_batch(examples: Sequence[TaggedExample]) -> Batch:
    ids, real = padded([example.ids for example in examples])
    segments = padded_segments([example.segments for example in examples], ids.shape[1])
    return Batch(ids, real, segments_BT=segments, targets_BT=tag_targets(examples, ids.shape))


def tag_targets(examples: Sequence[TaggedExample], shape: tuple[int, ...]) -> Tensor | None:
    """[B, T] classes at the positions of words, IGNORE elsewhere; None if an example has no tags."""
    if any(example.tags is None for example in examples):
        return None
    table = np.full(shape, IGNORE, dtype=np.int64)
    for row, example in enumerate(examples):
        for place, tag in zip(example.places, example.tags or ()):
            table[row, place] = tag
    return torch.from_numpy(table)


@dataclass(frozen=True)
class SpanExample:
    """A question with a window of its passage: the ids, the indices of the passage's leftmost and rightmost token, and
    of the tokens where the answer starts and ends (None if unknown)."""

    ids: tuple[int, ...]
    passage: tuple[int, int]
    start: int | None
    end: int | None
    segments: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def asked(self, scores: np.ndarray) -> np.ndarray:
        """The scores without padding."""
        return scores[: len(self.ids)]


def span_example(window: SpanWindow, answer: tuple[int, int] | None, known: bool = True) -> SpanExample:
    """`answer`: the first and last token of the answer in the whole passage; None if there is none. If the window does
    not hold the whole answer, it has none. Without `known`, the answer is to be predicted."""
    frame = window.frame
    first, length = frame.parts[1]
    places: tuple[int | None, int | None] = (None, None)
    if known:
        places = (frame.extract, frame.extract)
        if answer is not None and is_whole(answer, window):
            places = (frame.place(1, answer[0] - window.start), frame.place(1, answer[1] - window.start))
    return SpanExample(frame.ids, (first, first + length - 1), *places, frame.segments)


class SpanTask(LabelledTask):
    """Answer spans on any trunk."""

    kind = "span"
    threshold: Tensor  # the margin by which "no answer" must outscore the best span; chosen on validation rows

    def __init__(self, width: int, lm_weight: float, p: float, init_std: float = 0.02) -> None:
        super().__init__(lm_weight)
        self.p = p
        self.head = new_layer(width, 2, init_std)  # row 0 is the start vector, row 1 the end vector
        self.register_buffer("threshold", torch.zeros(()))

    def make(self, examples: Sequence[SpanExample], draw: Draw | None = None) -> Batch:
        """`labels` is [B, 2], start and end; None if an example has none."""
        ids, real = padded([example.ids for example in examples])
        places = [(example.start, example.end) for example in examples]
        known = all(place is not None for pair in places for place in pair)
        return Batch(
            ids,
            real,
            segments_BT=padded_segments([example.segments for example in examples], ids.shape[1]),
            labels=torch.tensor(places, dtype=torch.int64) if known else None,
        )

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        """`scores` is [B, T, 2], start and end of each real token."""
        states_BTD = self.states(trunk, batch)
        real_BT = real_places(batch)
        scores_BT2 = spread(self.head(dropout(states_BTD[real_BT], self.p, self.training)), real_BT)
        losses: dict[str, LossSum] = {}
        if batch.labels is not None:
            losses["label"] = LossSum(self.label_loss(scores_BT2, batch.labels), float(len(batch.labels)))
            if "lm" in self.weights and torch.is_grad_enabled():  # not needed for scoring
                losses["lm"] = sequence_lm_loss(trunk, states_BTD, next_tokens(batch.ids_BT, real_BT))
        return Outcome(losses, None, scores_BT2)

    def states(self, trunk: Trunk, batch: Batch) -> Tensor:
        """The states that the two vectors are compared with."""
        return trunk(batch).top

    def label_loss(self, scores_BT2: Tensor, labels_B2: Tensor) -> Tensor:
        """The mean of −log P(start) and −log P(end), summed over the examples."""
        logs_BT2 = scores_BT2.log_softmax(1)
        return -logs_BT2.gather(1, labels_B2[:, None]).sum() / 2
