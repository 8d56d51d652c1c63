"""Cross-view training: "Semi-Supervised Sequence Modeling with Cross-View Training" (Clark, Luong, Manning, Le, 2018).

Followed
    Encoder: word vectors and a convolution over characters, two bidirectional LSTM layers. Modules: the primary reads
    both layers, softmax(U relu(W [h₁; h₂]) + b). Tagging has four auxiliary views: forward →h₁(t), backward ←h₁(t),
    future →h₁(t − 1), past ←h₁(t + 1). Labelled and unlabelled batches alternate. On unlabelled ones the views of all
    tasks are pulled towards the primary's prediction (KL), which is computed without dropout and is a constant, so only
    the views and the first layer learn. Several tasks share the encoder; a labelled batch has one task. Averaged
    weights predict. Labels are smoothed.

From the released code, where the paper is silent
    1024 and 512 cells, projected to 512; character vectors of 50, 100 filters each of widths 2, 3 and 4; dropout .5 on
    labelled and .2 on unlabelled text, on word vectors, character features and the output of each layer; smoothing .1;
    average of .998; words in lower case with digits as 0, vectors that are trained, with a learned scale; a begin and
    an end token around each sentence; the future view makes no prediction for the first word, nor the past view for the
    last; a task's share of the batches is proportional to the root of its size; sentences of up to 100 words; 64 per
    step; SGD with momentum .9 at .5, 5,000 steps of warm-up, then 1 / (1 + .005 √step) (`training.schedule=root`),
    gradients clipped at norm 1.

Deviations
    Whole sentences (`kind="sentence"`: maxima over the words, views forward and backward) are our extension; parsing
    and translation are left out. The released code has a fifth view, full, which the paper does not mention; it is off
    (`objective.views`). The second layer has no projection, which would not make it narrower. Tasks have exact shares
    in each epoch; the released code draws each batch's task. Characters are UTF-8 bytes. The average's decay starts
    small. All sentences of a step count equally; the released code puts fewer long ones into a batch. Tags are learned
    as IOB2, not as IOBES. Words are split as in BERT, labelled ones too; a split word's tag is predicted at its first
    part, and the past view reads from the next word's first part on. The begin and end tokens are the same border
    token. Words that occur once in the labelled rows are read as unknown half of the time in training, so that the
    unknown vector is trained. Word vectors start random unless a file or a word2vec run is given (`--vectors`); the
    released code starts with GloVe's.
    `tiny` and `small` are not the paper's: Adam, narrower, and the weight of the views' losses rises over the first
    steps (`objective.ramp`; at most over .65 of a run). Otherwise, in a run of minutes, the views would spend much of
    it learning from a primary that knows nothing yet.
"""

from foretext.errors import UserError
from foretext.nn.recurrent.cvt import CvtConfig, CvtEncoder
from foretext.objectives.base import Objective
from foretext.plan import TransferPlan
from foretext.systems.base import ObjectiveParts, Size, System, TokenizerConfig, TrainingConfig, TrunkParts
from foretext.tasks.family import TaskConfig
from foretext.tasks.heads.cross_view_head import KINDS, CrossViewHead, CrossViewSettings
from foretext.tasks.layouts.base import FramedLayout, end_of_document
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.word_forms import WordForms

_PLAN = TransferPlan(lm_weight=0.0)
_RAMP = 1000  # steps; chosen on training sentences that were neither labelled nor read, docs/log.md
_SHORT = TrainingConfig(
    rate=2e-3, schedule="cosine", warmup=0.05, weight_decay=0.0, clip=1.0, batch_size=32, micro_batch=32, dropout=0.3
)
_PAPER = TrainingConfig(
    optimizer="sgd",
    rate=0.5,
    schedule="root",
    warmup_steps=5_000,
    weight_decay=0.0,
    beta1=0.9,
    clip=1.0,
    batch_size=64,
    micro_batch=64,
    dropout=0.5,
)


def _short_size(cells: int, filters: int, embedding: int) -> Size:
    model = CvtConfig(
        0,
        vectors=100,
        char_filters=filters,
        char_embedding=embedding,
        cells=cells,
        upper_cells=cells,
        direction=cells,
        dropout=0.3,
    )
    return Size(
        model,
        TokenizerConfig("words", 50_000, lower=False),
        _SHORT,
        _SHORT,
        epochs=15,
        least_updates=600,
        transfer=_PLAN,
        objective=CrossViewSettings(hidden=cells, average=0.99, ramp=_RAMP),
    )


SIZES = {
    "tiny": _short_size(128, 25, 16),
    "small": _short_size(256, 50, 25),
    "paper": Size(
        CvtConfig(0),
        TokenizerConfig("words", 200_000, lower=False),
        _PAPER,
        _PAPER,
        epochs=100,
        transfer=_PLAN,
        objective=CrossViewSettings(),
    ),
}


def build_trunk(parts: TrunkParts) -> CvtEncoder:
    if parts.tokenizer is None:
        return CvtEncoder(parts.model)
    if isinstance(parts.tokenizer, Words):
        parts.tokenizer.number_unknown()
    forms = WordForms(parts.tokenizer, parts.model.char_length)
    return CvtEncoder(parts.model, forms.read, forms.unknown)


def build_objective(parts: ObjectiveParts) -> Objective:
    raise UserError("cvt is not pre-trained: it learns a task from labelled rows and unlabelled text together")


def build_layout(ids: dict[str, int], context: int, direction: str) -> FramedLayout:
    """`border text border`."""
    border = end_of_document(ids)
    return FramedLayout(border, (border,), context, segments=False)


def build_head(task: TaskConfig, model: CvtConfig, settings: CrossViewSettings, tokenizer: Tokenizer) -> CrossViewHead:
    parts = {name: text.split(" ") for name, text in task.also.items()}
    others = {name: (kind, int(classes)) for name, (kind, classes) in parts.items()}
    borders = [id for id in tokenizer.specials.values() if id != tokenizer.unknown]
    forms = WordForms(tokenizer, model.char_length)
    return CrossViewHead(task.kind, len(task.labels), others, model, settings, borders, forms)


CVT = System(
    name="cvt",
    paper="Clark et al. 2018, Semi-Supervised Sequence Modeling with Cross-View Training",
    base="two bidirectional LSTM layers over words and their characters",
    objective="the task's labels; on unlabelled text, views that see less learn to agree with the full view",
    direction="both, separately",
    tokenizer="words, also read by their characters",
    transfer="none: labelled rows and unlabelled text alternate, averaged weights",
    specials=(),
    sizes=SIZES,
    config=CvtConfig,
    build_trunk=build_trunk,
    build_objective=build_objective,
    build_layout=build_layout,
    causal=False,
    objective_config=CrossViewSettings,
    learns_from="rows",
    tasks=tuple(KINDS),
    build_head=build_head,
)
