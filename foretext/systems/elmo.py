"""ELMo: "Deep contextualized word representations" (Peters, Neumann, Iyyer, Gardner, Clark, Lee, Zettlemoyer, 2018).

Followed
    Trunk: words by their characters (bytes, 50 per word), convolutions of 1 to 7 characters with 2,048 filters in all,
    two highways, a projection; two LSTM layers per direction with a residual between them. Language model: each word
    from those before it and, separately, from those after it, with one character encoder and one softmax for both;
    their losses have equal weight; either direction can write and score text by itself (`objectives/bidirectional.py`).
    Transfer: the language model is frozen, and a task model reads γ Σ s_l h_l over all layers
    (`nn/task_models/sentence_models.py`). `paper`: 4,096 cells projected to 512, dropout .1; the task model has the
    shape of the name tagger: two biLSTM layers of 200 cells, over vectors, the mixture and 128 filters of three
    characters.

From the released code, where the paper is silent
    Cells and states clipped at ±3; dropout on each layer's input and before the softmax; gradients through 20 words,
    with carried state; 8,192 log-uniform candidates per batch in training, and the full softmax for scores; batches of
    128 streams; gradients clipped at norm 10; initial values.

Deviations
    Words are split as in BERT (`text/tokenizers/word_vocabulary.py`). A word outside the vocabulary is read as unknown
    in pre-training, which reads ids, and by its characters everywhere else. `tiny` and `small` read more words than
    they predict. Any other kind of vocabulary works too: pieces are then read and predicted like words. Documents are
    separated by one border, `</S>`, while the paper has a begin and an end around each sentence; a text is read between
    two borders. Imported weights have both kinds of border. The backward direction reads the text from its end, as the
    forward one does from its beginning, so that its carried state is that of the text to the right
    (`objectives/bidirectional.py`). Tasks and features start every text with an empty state and read at most
    `model.reads` tokens of it at once; the released code carries the state from sentence to sentence when it makes
    features. The biLM reads the two texts of a pair as one sequence with a border between them, while the paper's tasks
    read each separately; the task model reads two texts. All kinds of task have the same shape of task model. Its
    vectors are learned with the task, or given and fixed (`--vectors`: published ones, or those of a word2vec run); the
    paper starts with published ones. Adam instead of the released code's Adagrad (rate .2). `tiny` and `small` are not
    the paper's: fewer cells and filters and one highway for minutes on a CPU, gradients through more words, no dropout
    (a short run sees no text twice), layers normalised before the mixture (after minutes their sizes differ widely),
    and no learned vectors beside the mixture, whose lowest layer serves as such. `small` has the cells and the
    projection of the published small model.
"""

from foretext.nn.recurrent.bilm import BilmTrunk, BilmTrunkConfig
from foretext.nn.recurrent.char_cnn import CharEncoderConfig
from foretext.objectives.bidirectional import BilmObjective, BilmObjectiveConfig, spelling
from foretext.plan import ReaderPlan, TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, TrunkParts
from foretext.tasks.layouts.base import FramedLayout, end_of_document
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.characters import BEGIN


def _frozen(reader: ReaderPlan) -> TransferPlan:
    """The frozen biLM under a task model."""
    return TransferPlan(thaw="never", lm_weight=0.0, pooling="mean", model="recurrent", reader=reader)


_SHORT = TrainingConfig(
    rate=2e-3, warmup=0.03, weight_decay=0.0, beta2=0.99, clip=1.0, batch_size=32, micro_batch=32, dropout=0.0
)
_FEATURES = TrainingConfig(rate=1e-3, schedule="linear", warmup=0.1, weight_decay=0.0, batch_size=16, dropout=0.1)


def _short_size(cells: int, words: CharEncoderConfig, read: int, predicted: int) -> Size:
    """`read`, `predicted`: how many words are read and predicted."""
    return Size(
        BilmTrunkConfig(vocabulary=0, cells=cells, context=64, words=words),
        TokenizerConfig("words", read, lower=False),
        _SHORT,
        _FEATURES,
        epochs=10,
        least_updates=200,
        transfer=_frozen(ReaderPlan(norm=True, penalty=1e-3)),
        objective=BilmObjectiveConfig(samples=2048, targets=predicted),
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
    """`border text border`; a pair as `border a border b border`. The first border is a begin token if there is one."""
    border = end_of_document(ids)
    return FramedLayout(ids.get(BEGIN, border), (border,), context, segments=False)


ELMO = System(
    name="elmo",
    paper="Peters et al. 2018, Deep contextualized word representations",
    base="character convolutions, two projected LSTMs",
    objective="bidirectional language model",
    direction="both, separately",
    tokenizer="words, by their characters",
    transfer="frozen features: a learned mixture of the layers, read by a task model",
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
