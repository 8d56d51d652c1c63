"""CoVe: "Learned in Translation: Contextualized Word Vectors" (McCann, Bradbury, Xiong, Socher, 2017).

Followed
    Encoder: two bidirectional LSTM layers of 300 cells a direction over fixed GloVe vectors of 300, words without one
    as zeros. Decoder: two LSTM layers of 600 with input feeding, attention and the output layer as in the paper's
    equations, dropout .2. Training: translation with the right words told, SGD from 1, halved every epoch after the
    validation perplexity has first risen (`halved_rate`). Afterwards the decoder goes: a task model reads
    [GloVe(x); CoVe(x)].

From the released code, where the paper is silent
    The decoder begins with the encoder's last states; everything starts uniform in ±.1; gradients are clipped at norm
    5; 64 pairs a step; pairs of more than 75 words are left out (WMT'17); target vectors of 300, 50,000 target words.

Deviations
    The loss is a target word's mean, where the released code divides by the sentences of a batch: its rate of 1 is here
    about a sentence's length times as much. A word is looked up as it is written, then in lower case. Lines are split
    by our rules, for Moses' and CoreNLP's tokenizers are other programs; targets keep their case (`objective.lower`
    changes that) and their spacing, so that translations are whole lines and BLEU is sacrebleu's of these. A step's
    pairs are of like length, drawn anew each epoch; the released code keeps its batches and shuffles them. There are no
    character n-gram vectors. `tiny` and `small` are not the paper's: Adam, and narrower.

There is no `System` here yet: what stands in the way is that a system has one vocabulary of pieces and one text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from foretext.nn.cove import CoveConfig, CoveTrunk
from foretext.objectives.translation import TranslationObjective
from foretext.objectives.translation_pairs import TranslationSettings
from foretext.systems.base import TrainingConfig
from foretext.text.vectors import WordVectors
from foretext.text.word_list import WordList


@dataclass(frozen=True)
class CoveSize:
    """`model.vocabulary`, `model.vectors` and `objective.vocabulary` are filled in from the vectors and the targets.
    `training` None: SGD from 1, which the loop does not have yet."""

    model: CoveConfig
    objective: TranslationSettings
    training: TrainingConfig | None


_SHORT = TrainingConfig(
    rate=2e-3, schedule="cosine", warmup=0.02, weight_decay=0.0, clip=5.0, batch_size=64, dropout=0.2
)

SIZES = {
    "tiny": CoveSize(
        CoveConfig(width=256), TranslationSettings(most_words=8_000, least_count=2, embedding=128, longest=50), _SHORT
    ),
    "small": CoveSize(
        CoveConfig(width=400), TranslationSettings(most_words=16_000, least_count=2, embedding=200, longest=50), _SHORT
    ),
    "paper": CoveSize(CoveConfig(), TranslationSettings(), None),
}


def new_cove(size: CoveSize, vectors: WordVectors, words: WordList) -> tuple[CoveTrunk, TranslationObjective]:
    """Encoder and decoder for these source vectors and target words, their weights drawn from torch's generator."""
    model = replace(size.model, vocabulary=len(vectors.words), vectors=vectors.width)
    trunk = CoveTrunk(model)
    trunk.put_vectors(vectors.matrix)
    return trunk, TranslationObjective(model, replace(size.objective, vocabulary=words.size))


def halved_rate(rate: float, perplexities: Sequence[float]) -> float:
    """The rate after epochs that ended in these validation perplexities: halved when one is higher than the one before
    it, and again after each epoch from then on. A function of what the log has, with nothing else to remember."""
    for epoch, (before, after) in enumerate(pairwise(perplexities), 2):
        if after > before:
            return rate * 0.5 ** (len(perplexities) - epoch + 1)
    return rate
