"""Transformer-XL: "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context" (Dai, Yang, Yang,
Carbonell, Le, Salakhutdinov, 2019).

Followed
    Segment-level recurrence: while segment τ+1 is read, every layer n also sees the previous segment's states h_τ^{n−1}
    as keys and values, without gradient. Batches are contiguous streams. The length of the memory is set separately
    for training (`model.memory`) and for evaluation (`model.evaluation_memory`, `evaluate --memory`). Relative
    positions: score = q·k + q·r + u·k + v·r, r the projected sinusoid of the distance, u and v learned, computed for
    all distances at once and shifted. Norm after each residual addition, ReLU, no biases in attention. Adaptive
    embeddings and softmax for vocabularies of words (`model.cutoffs`), tied. `paper` is the base model of WikiText-103
    (table 1, 151M parameters): 16 layers of width 410, 10 heads, inner width 2100, segments and memory of 150, dropout
    .1, words, Adam at 2.5e-4 with a cosine to 0, batch 60, 200,000 updates.

From the released code, where the paper is silent or differs
    Embeddings are multiplied by √width; sines come before cosines; dropout is on embeddings, sinusoids, inner units,
    residual branches and the top states, not on attention weights (`model.attention_dropout`). The softmax has a bias,
    and is tied to the embeddings otherwise. u and v are shared by all layers (`model.untied` gives each its own, as the
    large models and transformers' default have it). In evaluation each token sees as many tokens as any other
    (`same_length`), itself and `evaluation_memory` before it (the script's 640 includes itself), and distances above
    400 count as 400 (`clamp_len`). So evaluation uses distances beyond the 299 that training sees, up to 400;
    these were never trained, there as here. Gradients are clipped at .25. The
    memory is empty at the start, not full of zeros as in transformers.

Deviations
    In evaluation the memory holds keys and values, which follow from the states. A memory continues over the end of a
    document in pre-training, and starts empty for each scored document. Norms start at 1, not at N(1, .02).
    `paper` makes its own list of words, the 267,735 most frequent, split by our rules and not WikiText's. The paper has
    no transfer: tasks are learned like GPT's, in sequences of at most `context` + `memory` tokens, read at once and
    without memory. `tiny` and `small` are not the paper's: byte-level BPE, a plain softmax, untied u and v, Muon and
    the other choices for short runs (`systems/base.py`); a quarter of the rows of a step start without a memory, so
    that
    tasks and scored texts, which have none, are familiar (`objectives/stream.py`); other vocabularies by
    `tokenizer.kind`.
"""

from dataclasses import replace

from foretext.nn.relative.transformer_xl import TransformerXL, TransformerXLConfig
from foretext.objectives.stream import ForgettingConfig, StreamConfig, StreamObjective
from foretext.plan import TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, short_size
from foretext.tasks.layouts.base import DelimitedLayout

STREAMS = StreamConfig(activation=0.0, temporal=0.0, length_spread=0.0, length_half=0.0)  # the language model alone
FORGETTING = ForgettingConfig(forget=0.25)  # so that texts without anything before them, as in tasks, are familiar
WORDS = 267_735  # of WikiText-103


def _short(layers: int, width: int, heads: int) -> TransformerXLConfig:
    """Segments and memory that together are as long as other systems' context."""
    return TransformerXLConfig(
        vocabulary=0,
        layers=layers,
        width=width,
        heads=heads,
        context=128,
        memory=128,
        evaluation_memory=256,
        clamp=256,
        untied=True,
    )


_TINY = short_size(_short(4, 192, 3), 8000)

SIZES = {
    # As many tokens per update as GPT's 16 rows of a full context: better than half of them in twenty minutes.
    "tiny": replace(_TINY, objective=FORGETTING, pretraining=replace(_TINY.pretraining, batch_size=32)),
    "small": replace(short_size(_short(6, 384, 6), 16000), objective=FORGETTING),
    "paper": Size(
        TransformerXLConfig(vocabulary=0, inner=2100, cutoffs=(20_000, 40_000, 200_000)),
        TokenizerConfig("word-list", WORDS, sample_megabytes=1000),
        TrainingConfig(rate=2.5e-4, schedule="cosine", warmup=0.0, weight_decay=0.0, clip=0.25, batch_size=60),
        TrainingConfig(rate=6.25e-5, schedule="linear", warmup=0.002, batch_size=32, dropout=0.1),  # GPT's
        epochs=3,
        transfer=TransferPlan(lm_weight=0.5),
        objective=ForgettingConfig(),
    ),
}


TRANSFORMER_XL = System(
    name="transformer_xl",
    paper="Dai et al. 2019, Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
    base="transformer with a memory and relative positions, post-norm",
    objective="causal language model over streams, with carried memory",
    direction="left to right, or right to left",
    tokenizer="words (paper), byte-level BPE (tiny, small)",
    transfer="fine-tune everything: L3 = L2 + λ·L1, input transformations",
    finetuned=False,
    specials=DelimitedLayout.specials,
    sizes=SIZES,
    config=TransformerXLConfig,
    build_trunk=lambda parts: TransformerXL(parts.model),
    build_objective=lambda parts: StreamObjective(parts.model, STREAMS, parts.direction, parts.settings.forget),
    build_layout=DelimitedLayout,
    objective_config=ForgettingConfig,
    piece_rows=("trunk.tokens.weight", "trunk.output_bias"),
)
