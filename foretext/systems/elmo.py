"""ELMo: "Deep contextualized word representations" (Peters, Neumann, Iyyer, Gardner, Clark, Lee, Zettlemoyer, 2018).

Followed
    Trunk: words by their characters (bytes, 50 a word), convolutions of 1 to 7 characters with 2,048 filters in all,
    two highways, a projection; two layers of LSTM a direction with a residual between them. Language model: each word
    from those before it and from those after it, both at once, with one character encoder and one softmax for both;
    their losses count alike. Transfer: the language model learns no more, a task model reads γ Σ s_l h_l of all layers
    (`nn/scalar_mix.py`, `nn/task_models.py`, `nn/biattention.py`). `paper`: 4,096 cells projected to 512, dropout .1.

From the released code, where the paper is silent
    Cells and states within ±3; dropout on each layer's input and before the softmax; gradients through 20 words, the
    state carried on; 8,192 words drawn for each batch to tell the right one from, log-uniformly, and the full softmax
    for scores; batches of 128 streams; gradients clipped at norm 10; initial values.

Deviations
    Tokens are pieces of words where the paper has 793,471 words: a vocabulary of words is there
    (`text/word_vocabulary.py`), but [tokenizer] cannot ask for it yet. A piece is read by its characters and told as a
    word would be; with vocabularies of tens of thousands most words are one piece.
    Documents are joined by one border, `</S>`, where the paper has a begin and an end round each sentence; a text is
    read between two of it.
    The backward direction reads the text from its end, as the forward one does from its beginning, so that the state
    that it carries is that of the text to the right (`objectives/bilm.py`).
    Adam where the released code has Adagrad (rate .2). `tiny` and `small` are not the paper's: fewer cells and filters
    and one highway for minutes on a CPU, more words for the gradients to flow through, no dropout (a short run sees no
    text twice). `small` has the cells and the projection of the published small model.
"""

from __future__ import annotations

from foretext.nn.bilm_trunk import BilmTrunk, BilmTrunkConfig
from foretext.nn.char_cnn import CharEncoderConfig
from foretext.objectives.bilm import BilmObjective, BilmObjectiveConfig
from foretext.plan import TransferPlan
from foretext.systems.base import ObjectiveParts, Size, System, TokenizerConfig, TrainingConfig
from foretext.tasks.framed import FramedLayout
from foretext.text.tokenizer import END

LONGEST = 512  # tokens of a text that a task reads; the context is how far gradients flow, which binds no text
_BORDERS = ("[SEP]", "<sep>", "</s>", END)  # the first of these that a vocabulary has stands after each document

_FROZEN = TransferPlan(thaw="never", lm_weight=0.0, pooling="mean")
_SHORT = TrainingConfig(
    rate=2e-3, warmup=0.03, weight_decay=0.0, beta2=0.99, clip=1.0, batch_size=32, micro_batch=32, dropout=0.0
)
_FEATURES = TrainingConfig(rate=1e-3, schedule="linear", warmup=0.1, weight_decay=0.0, batch_size=16, dropout=0.1)


def _short_size(cells: int, words: CharEncoderConfig, pieces: int) -> Size:
    return Size(
        BilmTrunkConfig(vocabulary=0, cells=cells, context=64, words=words),
        TokenizerConfig("wordpiece", pieces, lower=False),
        _SHORT,
        _FEATURES,
        epochs=10,
        least_updates=200,
        transfer=_FROZEN,
        objective=BilmObjectiveConfig(samples=2048),
    )


SIZES = {
    "tiny": _short_size(512, CharEncoderConfig(128, (1, 2, 3, 4, 5), (16, 32, 64, 128, 128), highways=1), 8000),
    "small": _short_size(
        1024, CharEncoderConfig(128, (1, 2, 3, 4, 5, 6), (32, 32, 64, 128, 128, 128), highways=1), 16000
    ),
    "paper": Size(
        BilmTrunkConfig(vocabulary=0),
        TokenizerConfig("wordpiece", 50_000, lower=False),
        TrainingConfig(
            rate=1e-3, schedule="constant", warmup=0.0, weight_decay=0.0, clip=10.0, batch_size=128, dropout=0.1
        ),
        TrainingConfig(rate=1e-3, schedule="constant", warmup=0.0, weight_decay=0.0, batch_size=32, dropout=0.5),
        epochs=20,
        transfer=_FROZEN,
        objective=BilmObjectiveConfig(),
    ),
}


def build_objective(parts: ObjectiveParts) -> BilmObjective:
    return BilmObjective(parts.model, parts.settings, parts.tokenizer)


def build_layout(ids: dict[str, int], context: int, direction: str) -> FramedLayout:
    """`border text border`, a pair as `border a border b border`."""
    border = next(ids[name] for name in _BORDERS if name in ids)
    return FramedLayout(border, (border,), max(context, LONGEST), segments=False)


ELMO = System(
    name="elmo",
    paper="Peters et al. 2018, Deep contextualized word representations",
    base="character convolutions, two projected LSTMs",
    objective="bidirectional language model",
    direction="both, each by itself",
    tokenizer="WordPiece, read by characters",
    transfer="frozen features: a learned mixture of the layers into a task model",
    specials=(),
    sizes=SIZES,
    config=BilmTrunkConfig,
    build_trunk=lambda parts: BilmTrunk(parts.model),
    build_objective=build_objective,
    build_layout=build_layout,
    causal=False,
    objective_config=BilmObjectiveConfig,
)
