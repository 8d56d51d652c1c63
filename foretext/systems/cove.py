"""CoVe: "Learned in Translation: Contextualized Word Vectors" (McCann, Bradbury, Xiong, Socher, 2017).

Followed
    Encoder: two bidirectional LSTM layers of 300 cells per direction over fixed GloVe vectors of 300; words without a
    vector have zeros. Decoder: two LSTM layers of 600 with input feeding, attention and the output layer as in the
    paper's equations, dropout .2. Training: translation with teacher forcing, SGD from 1, halved every epoch once the
    validation perplexity has risen (`training.schedule=halving`). Afterwards the decoder is discarded: a task model
    reads [GloVe(x); CoVe(x)].

From the released code, where the paper is silent
    The decoder starts from the encoder's last states; all weights start uniform in ±.1; gradients are clipped at norm
    5; 64 pairs per step; pairs of more than 75 words are left out (WMT'17); target vectors of 300, 50,000 target words.

Deviations
    The loss is the mean per target word. The released code divides by the sentences of a batch, so its rate of 1
    corresponds to a rate of about a sentence's length here. Task models have one biLSTM and pooling for single
    sentences, and the biattentive network for pairs; the paper uses that network for both. Tags have a biLSTM and a
    CRF. The biattentive network has layer norm instead of the batch norm in the paper's maxout network, so that a row's
    scores do not depend on the other rows of its batch, and the last of its three layers is linear
    (`nn/task_models/sentence_models.py`). A word is looked up as written, then in lower case. Lines are split by our
    rules, since Moses' and CoreNLP's tokenizers are other programs. Targets keep their case (`objective.lower` changes
    that) and their spacing, so that translations are whole lines, on which sacrebleu computes BLEU. A step's pairs have
    similar length and are drawn anew each epoch; the released code keeps its batches and shuffles them. There are no
    character n-gram vectors. The vocabulary has the source's words with a vector and the first words of the vector
    file, as many as [tokenizer] says; other words of a task are unknown, while the paper has all of GloVe's words.
    `tiny` and `small` are not the paper's: Adam, and narrower.
"""

from foretext.nn.recurrent.cove import CoveConfig, CoveTrunk
from foretext.objectives.parallel_text import TranslationSettings
from foretext.objectives.translation import TranslationObjective
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
    direction="both, separately",
    tokenizer="whole words with a vector",
    transfer="frozen features: the words' vectors and states, read by a task model",
    specials=(),
    sizes=SIZES,
    config=CoveConfig,
    build_trunk=lambda parts: CoveTrunk(parts.model),
    build_objective=lambda parts: TranslationObjective(parts.model, parts.settings, parts.tokenizer),
    build_layout=lambda ids, context, direction: PlainLayout(ids, context),
    causal=False,
    objective_config=TranslationSettings,
    learns_from="pairs",
)
