"""XLNet: "XLNet: Generalized Autoregressive Pretraining for Language Understanding" (Yang, Dai, Yang, Carbonell,
Salakhutdinov, Le, 2019).

Followed
    Trunk: two streams that share all weights, the query stream starting as one learned vector w; relative positions
    and a memory as in Transformer-XL; relative segments (the same, another) with a bias of their own; norm after each
    residual addition, ε 1e-12, GELU, N(0, .02). Permutation language model: a factorisation order is drawn for each
    sequence, which is not moved; the last 1/K of it, K = 6, is predicted through W_e with a bias, in runs of n = 1 to 5
    tokens, each within n·K tokens of context. Half of each batch is read from the right, with its own memory. Half of a
    sequence continues the text and is remembered, half is two segments, `A <sep> B <sep> <cls>`, with B following A or
    not; there is no next-sentence label, which the paper found useless. Unigram (SentencePiece) vocabulary of 32,000,
    cased. `paper` is the base model: 12 blocks of width 768, 12 heads, sequences of 512; Adam at 4e-4, ε 1e-6, decay
    .01, 40,000 updates of warm-up, then linear to 0, batch 8,192, dropout .1, as the paper trains the large one.
    Fine-tuning: `A <sep> B <sep> <cls>` by the content stream, which sees everything; the state of `<cls>`, at the end,
    through a tanh layer, dropout and one new layer; everything trained, 2e-5, ε 1e-6, linear decay. The side of the
    padding (the left, there) changes nothing here.

From the released code, where the paper is silent or says otherwise
    The length of a run has p(n) ∝ 1/n, and a run begins with a word (the paper samples a length and a span, and says no
    more of either). Given tokens all see each other (`--set objective.context=ordered`: the paper's
    order). The remembered half and the two segments after it are drawn separately, and it sees nothing of them,
    since the next window reads and predicts them. Memory of 384; for text read from the right, relative
    positions have the opposite sign. `<cls>` is a segment of its own. Sinusoids have dropout too; gradients are clipped
    at 1.

Deviations
    A ends and B begins between words, not between sentences; B ends where the room does. `<sep>` also separates
    documents, where the released code has `<eod>`. Targets are drawn anew whenever a sequence is seen; the
    released code draws them once. Without pairs an order is drawn over everything read at once; in the released code
    orders always cover 256 tokens, half of a sequence. In one sequence (or half) of twenty, targets
    are drawn token by token and not in runs, so that every order is possible. Dropout of the sinusoids is the same
    for all rows of a batch, not drawn for each. A query that may see nothing attends to nothing;
    there it attends to everything. GELU is exact (erf), as `transformers` has it, so that its folders are the same
    model here; the released code, which the published weights were trained by, has the tanh form (`--set
    model.gelu=tanh`). There is no dropout between the two layers of the feed-forward part. A row's first real token
    comes right after the last that it remembers, whatever the padding; in `transformers` padding on the left is between
    the two, counts in distances, and is seen once it is remembered. A question comes before its passage,
    as in every system here; the released code has the passage first. A span's start and end have one vector each,
    and no answer is `<cls>`; the paper has a separate loss for whether there is an answer, and the released head
    finds the end from the start. No rate by depth in fine-tuning (SQuAD's .75: `--set transfer.rate_decay=1.333`). Adam
    corrects its bias. `tiny` and `small` are not the paper's: see `systems/base.py`; they are lower-cased and
    read plain text (no pairs of segments, so that relative segments and `<cls>` are new in fine-tuning) a quarter of a
    context at a time, after a memory of as much; half of the tokens are predicted (K = 2), weights begin at N(0, 1/√D).
"""

from dataclasses import replace

from foretext.nn.relative.xlnet import XLNet, XLNetConfig
from foretext.objectives.permutation import SEPARATOR, SPEAKER, PermutationConfig, PermutationObjective
from foretext.plan import TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, short_two_sided_size
from foretext.tasks.layouts.base import FramedLayout
from foretext.text.tokenizers.unigram import XLNET_SPECIALS


def _short(layers: int, width: int, heads: int, pieces: int) -> Size:
    """A query initially knows only its position, and takes minutes to find its neighbours. It finds them sooner in
    short sequences, with more targets, in many small updates, and with initial weights that let distances matter at
    once. Chosen on held-out reviews: docs/log.md."""
    model = XLNetConfig(0, layers, width, heads, 256, memory=64, init_std=round(width**-0.5, 2))
    size = short_two_sided_size(model, TokenizerConfig("unigram", pieces), PermutationConfig(predicted=2, length=0.25))
    return replace(size, pretraining=replace(size.pretraining, batch_size=8))


SIZES = {
    "tiny": _short(4, 192, 3, 8000),
    "small": _short(6, 384, 6, 16000),
    "paper": Size(
        XLNetConfig(0, 12, 768, 12, 512, memory=384),
        TokenizerConfig("unigram", 32000, lower=False),
        TrainingConfig(
            rate=4e-4,
            schedule="linear",
            warmup_steps=40_000,
            epsilon=1e-6,
            batch_size=8192,
            dropout=0.1,
        ),
        TrainingConfig(rate=2e-5, schedule="linear", warmup=0.1, epsilon=1e-6, batch_size=32, dropout=0.1),
        epochs=3,
        transfer=TransferPlan(lm_weight=0.0, head="hidden"),
        objective=PermutationConfig(pairs=True),
    ),
}


XLNET = System(
    name="xlnet",
    paper="Yang et al. 2019, XLNet: Generalized Autoregressive Pretraining for Language Understanding",
    base="two-stream transformer, relative positions, memory, post-norm",
    objective="permutation language model",
    direction="every order of the factorisation; bidirectional for tasks",
    tokenizer="unigram (SentencePiece)",
    transfer="fine-tune everything: the last token <cls> through a dense layer for texts, each token's state for "
    "tags and spans",
    specials=(),
    sizes=SIZES,
    config=XLNetConfig,
    build_trunk=lambda parts: XLNet(parts.model),
    build_objective=lambda parts: PermutationObjective(parts.model, parts.settings, parts.tokenizer),
    build_layout=lambda ids, context, direction: FramedLayout(
        ids[SPEAKER], (ids[SEPARATOR],), context, segments=True, at_end=True
    ),
    causal=False,
    fills=True,
    goes_on=True,
    objective_config=PermutationConfig,
    vocabulary=XLNET_SPECIALS,
    piece_rows=("trunk.tokens.weight", "task.head.bias"),
)
