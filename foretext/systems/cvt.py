"""Cross-view training: "Semi-Supervised Sequence Modeling with Cross-View Training" (Clark, Luong, Manning, Le, 2018).

Followed
    Encoder: word vectors and a convolution over characters, two bidirectional LSTM layers. Modules: the primary reads
    both layers, softmax(U relu(W [h₁; h₂]) + b); of tagging the four auxiliary views forward →h₁(t), backward ←h₁(t),
    future →h₁(t − 1), past ←h₁(t + 1). Labelled and unlabelled batches in turn; on unlabelled ones the primary's
    prediction, without dropout and as a constant, is what the views of all tasks are pulled to (KL), so that only views
    and first layer learn from it. Several tasks share the encoder, a labelled batch is of one. Averaged weights
    predict. Labels are smoothed.

From the released code, where the paper is silent
    1024 and 512 cells, projected to 512; characters: 50 numbers, 100 filters of 2, 3 and 4 each; dropout .5 on labelled
    and .2 on unlabelled text, on the words' vectors, characters and what each layer gives; smoothing .1; average of
    .998; words in lower case with digits as 0, vectors that go on learning, times a scale that is learned; a begin and
    an end round each sentence; the future view is not asked about the first word, the past one not about the last; a
    task's share of the batches goes by the root of its size; sentences of up to 100 words; 64 a step; SGD with momentum
    .9 at .5, 5,000 steps of warm-up, then 1 / (1 + .005 √step) (`released_rate`), gradients clipped at norm 1.

Deviations
    Whole sentences (`kind="sentence"`: maxima over the words, views forward and backward) are our extension; parsing
    and translation are left out. The released code has a fifth view, full, which the paper does not name: it is off
    (`objective.views`). The second layer, which its projection would not make narrower, has none. Shares of tasks are
    exact in each epoch where the released code draws each batch's task. Characters are UTF-8 bytes. The average's decay
    begins small. All sentences of a step count alike; the released code puts fewer long ones into a batch. Tags are
    learned as they come, not as IOBES. `tiny` and `small` are not the paper's: Adam, and narrower.

There is no `System` here yet: what stands in the way is that fine-tuning wants a pre-trained run, one task and no text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretext.nn.cvt import CvtConfig, CvtEncoder
from foretext.objectives.cross_view import CrossViewObjective, CrossViewSettings, CrossViewTask
from foretext.systems.base import TrainingConfig
from foretext.text.vectors import WordVectors
from foretext.text.word_list import WordList


@dataclass(frozen=True)
class CvtSize:
    """`model.vocabulary` is filled in from the words, `model.vectors` from the vectors where there are any. `training`
    None: SGD with momentum, which the loop does not have yet."""

    model: CvtConfig
    objective: CrossViewSettings
    training: TrainingConfig | None


_SHORT = TrainingConfig(rate=2e-3, schedule="cosine", warmup=0.05, weight_decay=0.0, clip=1.0, batch_size=32)

SIZES = {
    "tiny": CvtSize(
        CvtConfig(0, vectors=100, char_filters=25, char_embedding=16, cells=128, upper_cells=128, direction=128),
        CrossViewSettings(hidden=128, average=0.99),
        _SHORT,
    ),
    "small": CvtSize(
        CvtConfig(0, vectors=100, char_filters=50, char_embedding=25, cells=256, upper_cells=256, direction=256),
        CrossViewSettings(hidden=256, average=0.99),
        _SHORT,
    ),
    "paper": CvtSize(CvtConfig(0), CrossViewSettings(), None),
}


def new_cvt(
    size: CvtSize, words: WordList, tasks: Sequence[CrossViewTask], vectors: WordVectors | None = None
) -> tuple[CvtEncoder, CrossViewObjective]:
    """Encoder and modules for these words and tasks, their weights drawn from torch's generator; words that have a
    vector start with it."""
    model = replace(size.model, vocabulary=words.size)
    if vectors is not None:
        model = replace(model, vectors=vectors.width)
    trunk = CvtEncoder(model)
    if vectors is not None:
        trunk.put_vectors(words.vectors(vectors))
    return trunk, CrossViewObjective(model, size.objective, tasks, words)


def released_rate(step: int, rate: float = 0.5, warmup: int = 5_000, decay: float = 0.005) -> float:
    """The rate of a step, counted from 0."""
    return rate * min(step, warmup) / warmup / (1.0 + decay * math.sqrt(step))
