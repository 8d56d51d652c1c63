"""ELMo: "Deep contextualized word representations" (Peters, Neumann, Iyyer, Gardner, Clark, Lee, Zettlemoyer, 2018).

Followed
    Trunk: words by their characters (bytes, 50 a word), convolutions of 1 to 7 characters with 2,048 filters in all,
    two highways, a projection; two layers of LSTM a direction with a residual between them. Language model: each word
    from those before it and from those after it, both at once, with one character encoder and one softmax for both;
    their losses count alike; either direction writes and scores text by itself (`objectives/bidirectional.py`).
    Transfer: the language model learns no more, a task model reads γ Σ s_l h_l of all layers
    (`nn/task_models/sentence_models.py`). `paper`:
    4,096 cells projected to 512, dropout .1; the task model has the shape of the tagger of names: two biLSTM layers of
    200 cells, over vectors, the mixture and 128 filters of three characters.

From the released code, where the paper is silent
    Cells and states within ±3; dropout on each layer's input and before the softmax; gradients through 20 words, the
    state carried on; 8,192 words drawn for each batch to tell the right one from, log-uniformly, and the full softmax
    for scores; batches of 128 streams; gradients clipped at norm 10; initial values.

Deviations
    Words are split as BERT splits them (`text/tokenizers/word_vocabulary.py`); what the vocabulary does not have is
    read as unknown in pre-training, which reads ids, and by its characters everywhere else. `tiny` and `small` read
    more words than they predict. Any other kind of vocabulary works too: a piece is then read and told as a word is.
    Documents are joined by one border, `</S>`, where the paper has a begin and an end round each sentence; a text is
    read between two of it. Imported weights have both borders. The backward direction reads the text from its end, as
    the forward one does from its beginning, so that the state that it carries is that of the text to the right
    (`objectives/bidirectional.py`). Tasks and features begin every text with an empty state and read at most
    `model.reads` tokens of it at once, where the released code carries the state from sentence to sentence when it
    makes features. The biLM reads the two texts of a pair as one sequence, a border between them, where the paper's
    tasks have it read each by itself; the task model reads two texts. One shape of task model for all kinds of task.
    Its vectors are learned with the task, or given (`--vectors`: published ones, or those of a word2vec run), and then
    do not learn; the paper begins with published ones. Adam where the released code
    has Adagrad (rate .2). `tiny` and `small` are not the paper's: fewer cells and filters and one highway for minutes
    on a CPU, more words for the gradients to flow through, no dropout (a short run sees no text twice), layers
    normalised before they are mixed (after minutes their sizes are far apart), and no vectors of the task's own beside
    the mixture, whose lowest layer is one. `small` has the cells and the projection of the published small model.
"""

from __future__ import annotations

from foretext.nn.recurrent.bilm import BilmTrunk, BilmTrunkConfig
from foretext.nn.recurrent.char_cnn import CharEncoderConfig
from foretext.objectives.bidirectional import BilmObjective, BilmObjectiveConfig, spelling
from foretext.plan import ReaderPlan, TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, TrunkParts
from foretext.tasks.layouts.base import FramedLayout, end_of_document
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.characters import BEGIN


def _frozen(reader: ReaderPlan) -> TransferPlan:
    """The biLM as it is under a task model of its own."""
    return TransferPlan(thaw="never", lm_weight=0.0, pooling="mean", model="recurrent", reader=reader)


_SHORT = TrainingConfig(
    rate=2e-3, warmup=0.03, weight_decay=0.0, beta2=0.99, clip=1.0, batch_size=32, micro_batch=32, dropout=0.0
)
_FEATURES = TrainingConfig(rate=1e-3, schedule="linear", warmup=0.1, weight_decay=0.0, batch_size=16, dropout=0.1)


def _short_size(cells: int, words: CharEncoderConfig, read: int, told: int) -> Size:
    """`read`, `told`: how many words are read and predicted."""
    return Size(
        BilmTrunkConfig(vocabulary=0, cells=cells, context=64, words=words),
        TokenizerConfig("words", read, lower=False),
        _SHORT,
        _FEATURES,
        epochs=10,
        least_updates=200,
        transfer=_frozen(ReaderPlan(norm=True, penalty=1e-3)),
        objective=BilmObjectiveConfig(samples=2048, targets=told),
    )


SIZES = {
    "tiny": _short_size(
        512, CharEncoderConfig(128, (1, 2, 3, 4, 5), (16, 32, 64, 128, 128), highways=1), 50_000, 16_000
    ),
    "small": _short_size(
        1024, CharEncoderConfig(128, (1, 2, 3, 4, 5, 6), (32, 32, 64, 128, 128, 128), highways=1), 100_000, 32_000
    ),
    "paper": Size(
        BilmTrunkConfig(vocabulary=0),
        TokenizerConfig("words", 793_471, lower=False, sample_megabytes=1000),
        TrainingConfig(
            rate=1e-3, schedule="constant", warmup=0.0, weight_decay=0.0, clip=10.0, batch_size=128, dropout=0.1
        ),
        TrainingConfig(rate=1e-3, schedule="constant", warmup=0.0, weight_decay=0.0, batch_size=32, dropout=0.5),
        epochs=20,
        transfer=_frozen(ReaderPlan(penalty=1e-3, vectors=100, characters=128, layers=2)),
        objective=BilmObjectiveConfig(),
    ),
}


def build_trunk(parts: TrunkParts) -> BilmTrunk:
    if parts.tokenizer is None:
        return BilmTrunk(parts.model)
    if isinstance(parts.tokenizer, Words):
        parts.tokenizer.number_unknown()
    tokenizer, length = parts.tokenizer, parts.model.words.length
    spelled, backward = lambda ids: spelling(tokenizer, ids, length), parts.direction == "backward"
    return BilmTrunk(parts.model, spelled, parts.words, tokenizer.unknown, backward)


def build_layout(ids: dict[str, int], context: int, direction: str) -> FramedLayout:
    """`border text border`, a pair as `border a border b border`; the first border is a begin if there is one."""
    border = end_of_document(ids)
    return FramedLayout(ids.get(BEGIN, border), (border,), context, segments=False)


ELMO = System(
    name="elmo",
    paper="Peters et al. 2018, Deep contextualized word representations",
    base="character convolutions, two projected LSTMs",
    objective="bidirectional language model",
    direction="both, each by itself",
    tokenizer="words, read by their characters",
    transfer="frozen features: a learned mixture of the layers into a task model",
    specials=(),
    sizes=SIZES,
    config=BilmTrunkConfig,
    build_trunk=build_trunk,
    build_objective=lambda parts: BilmObjective(parts.model, parts.settings, parts.tokenizer),
    build_layout=build_layout,
    causal=False,
    softmax_apart=True,
    goes_on=True,
    objective_config=BilmObjectiveConfig,
)
