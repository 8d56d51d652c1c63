"""CoVe: "Learned in Translation: Contextualized Word Vectors" (McCann, Bradbury, Xiong, Socher, 2017).

Followed
    Encoder: two bidirectional LSTM layers of 300 cells a direction over fixed GloVe vectors of 300, words without one
    as zeros. Decoder: two LSTM layers of 600 with input feeding, attention and the output layer as in the paper's
    equations, dropout .2. Training: translation with the right words told, SGD from 1, halved every epoch after the
    validation perplexity has first risen (`training.schedule=halving`). Afterwards the decoder goes: a task model reads
    [GloVe(x); CoVe(x)].

From the released code, where the paper is silent
    The decoder begins with the encoder's last states; everything starts uniform in ±.1; gradients are clipped at norm
    5; 64 pairs a step; pairs of more than 75 words are left out (WMT'17); target vectors of 300, 50,000 target words.

Deviations
    The loss is a target word's mean, where the released code divides by the sentences of a batch: its rate of 1 is here
    about a sentence's length times as much. Task models have one biLSTM and its pooling, or the biattentive network for
    pairs, where the paper has that for single sentences too; tags a biLSTM and a CRF. The biattentive network has layer
    norm where the paper's maxout network has batch norm, so that a row's scores do not depend on the other rows of its
    batch, and the last of its three layers is linear (`nn/task_models/sentence_models.py`). A word is looked up as it
    is written, then in lower case. Lines are split by our rules: Moses' and CoreNLP's tokenizers are other programs;
    targets keep their case (`objective.lower` changes that) and their spacing, so that translations are whole lines and
    BLEU is sacrebleu's of these. A step's pairs are of like length, drawn anew each epoch; the released code keeps its
    batches and shuffles them. There are no character n-gram vectors. The vocabulary is the sources' words that have a
    vector and the first words of the vectors' file, as many as [tokenizer] says: what a task reads besides is unknown,
    where the paper has all of GloVe's words. `tiny` and `small` are not the paper's: Adam, and narrower.
"""

from __future__ import annotations

from foretext.nn.recurrent.cove import CoveConfig, CoveTrunk
from foretext.objectives.translation import TranslationObjective, TranslationSettings
from foretext.plan import ReaderPlan, TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig
from foretext.tasks.layouts.base import PlainLayout

_READER = ReaderPlan(mix=False, beside="ends")  # [GloVe(x); CoVe(x)]
_FROZEN = TransferPlan(thaw="never", lm_weight=0.0, pooling="mean", model="recurrent", reader=_READER)
_SHORT = TrainingConfig(
    rate=2e-3,
    schedule="cosine",
    warmup=0.02,
    weight_decay=0.0,
    clip=5.0,
    batch_size=64,
    micro_batch=64,
    dropout=0.2,
)
_FEATURES = TrainingConfig(rate=1e-3, schedule="linear", warmup=0.1, weight_decay=0.0, batch_size=16, dropout=0.1)


def _short_size(width: int, words: int, targets: TranslationSettings) -> Size:
    return Size(
        CoveConfig(width=width),
        TokenizerConfig("word-list", words),
        _SHORT,
        _FEATURES,
        epochs=10,
        least_updates=200,
        transfer=_FROZEN,
        objective=targets,
    )


SIZES = {
    "tiny": _short_size(256, 20_000, TranslationSettings(most_words=8_000, least_count=2, embedding=128, longest=50)),
    "small": _short_size(400, 50_000, TranslationSettings(most_words=16_000, least_count=2, embedding=200, longest=50)),
    "paper": Size(
        CoveConfig(),
        TokenizerConfig("word-list", 200_000),
        TrainingConfig(
            optimizer="sgd",
            rate=1.0,
            schedule="halving",
            warmup=0.0,
            weight_decay=0.0,
            beta1=0.0,
            clip=5.0,
            batch_size=64,
            micro_batch=64,
            dropout=0.2,
        ),
        TrainingConfig(rate=1e-3, schedule="constant", warmup=0.0, weight_decay=0.0, batch_size=32, dropout=0.1),
        epochs=20,
        transfer=_FROZEN,
        objective=TranslationSettings(),
    ),
}


COVE = System(
    name="cove",
    paper="McCann et al. 2017, Learned in Translation: Contextualized Word Vectors",
    base="two bidirectional LSTM layers over fixed word vectors",
    objective="translation, by a decoder with attention",
    direction="both, each by itself",
    tokenizer="whole words that have a vector",
    transfer="frozen features: the words' vectors and states into a task model",
    specials=(),
    sizes=SIZES,
    config=CoveConfig,
    build_trunk=lambda parts: CoveTrunk(parts.model),
    build_objective=lambda parts: TranslationObjective(parts.model, parts.settings, parts.tokenizer),
    build_layout=lambda ids, context, direction: PlainLayout(ids, context),
    causal=False,
    objective_config=TranslationSettings,
    reads="pairs",
)
