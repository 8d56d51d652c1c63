"""Modern: a causal decoder for small budgets on a CPU, put together from findings after GPT-2.

It follows no single paper. Each choice is one key of [model], [objective] or [training].
`experiments/modern_parts.py` measures each part by leaving it out.

Block
    RMSNorm before each part and at the end (Zhang and Sennrich 2019), no biases, rotary positions (Su et al. 2021),
    normed queries and keys (Henry et al. 2020), ReLU² (So et al. 2021). Projections onto the residual stream start at
    zero (Zhang et al. 2019). Every block reads the embeddings beside the states, by learned scalars, as in the records
    of modded-nanogpt (Jordan et al. 2024). Embeddings are normed and tied to the output layer.

    Two parts are off, because one run of 256,000 tokens each showed no gain: soft-capped logits (`model.soft_cap`) took
    8 % longer per step for 0.0009 bits per byte, and value tables (`model.values=embeddings`) gained nothing.

Training
    Muon for the matrices of the blocks, Adam for the rest.

Size
    With a budget in minutes and without --size, the size follows from the minutes and the machine's speed. It is the
    largest of `LADDER` that can read `TOKENS_A_WEIGHT` tokens per weight in this time. The size sets layers, width,
    vocabulary and batch. nanochat (Karpathy 2025) has one dial too: the depth.

Export
    As Qwen3, or as Llama without query-key norm, if the run has their settings: SwiGLU, no skips, no normed embeddings.

Fine-tuning
    GPT's way (L3 = L2 + λ·L1).
"""

from dataclasses import replace

from foretext.nn.transformer.block import TransformerConfig
from foretext.nn.transformer.transformer import Transformer
from foretext.objectives.causal import CausalObjective
from foretext.plan import TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, short_size
from foretext.tasks.layouts.base import DelimitedLayout

TOKENS_A_WEIGHT = 0.3  # not measured: it gives two cores `tiny` from about five minutes to two hours
BUSY = 0.5  # training's share of the machine's measured FLOP/s
PASSES = 6  # operations per weight and token: a multiplication and an addition, once forward and twice backward


def shape(layers: int, width: int, heads: int, context: int = 256) -> TransformerConfig:
    return TransformerConfig(
        *(0, layers, width, heads, context),
        norm="pre",
        norm_kind="rms",
        bias=False,
        positions="rotary",
        query_key_norm=True,
        activation="squared-relu",
        embedding_norm=True,
        embedding_skips=True,
        zero_residuals=True,
    )


def _size(layers: int, width: int, heads: int, pieces: int, batch: int) -> Size:
    size = short_size(shape(layers, width, heads), pieces)
    return replace(size, pretraining=replace(size.pretraining, batch_size=batch))


LADDER = ("nano", "tiny", "small", "medium")
SIZES = {
    "nano": _size(2, 128, 2, 4000, 16),
    "tiny": _size(4, 192, 3, 8000, 16),
    "small": _size(6, 384, 6, 16000, 16),
    "medium": _size(8, 512, 8, 16000, 32),
    "paper": Size(  # there is no paper: this is the shape of the smallest GPT-2, for machines with a GPU
        shape(12, 768, 12, 1024),
        TokenizerConfig("byte-bpe", 32000),
        TrainingConfig(optimizer="muon", rate=2e-3, warmup=0.03, beta2=0.95, batch_size=256, dropout=0.0),
        TrainingConfig(rate=6.25e-5, schedule="linear", warmup=0.002, batch_size=32, dropout=0.1),
        epochs=3,
        transfer=TransferPlan(lm_weight=0.5),
    ),
}


def weights_at_work(size: Size) -> int:
    """The weights that compute with every token: those of the blocks and the output layer."""
    model = size.model
    assert isinstance(model, TransformerConfig)
    return sum(map(model.block_parameters, range(model.layers))) + size.tokenizer.size * model.width


def tokens_in(size: Size, products: float, minutes: float) -> float:
    """How many tokens training reads in these minutes; `products`: the machine's FLOP/s."""
    return 60.0 * minutes * BUSY * products / (PASSES * weights_at_work(size))


def size_for(products: float, minutes: float) -> str:
    """The largest size that can read enough tokens in this time; if none can, the smallest."""
    for name in reversed(LADDER):
        size = SIZES[name]
        if tokens_in(size, products, minutes) >= TOKENS_A_WEIGHT * weights_at_work(size):
            return name
    return LADDER[0]


MODERN = System(
    name="modern",
    paper="none: findings after Radford et al. 2019, each part with its own paper",
    base="transformer decoder, RMSNorm, rotary positions, ReLU², skips from the embeddings",
    objective="causal language model (L1)",
    direction="left to right, or right to left",
    tokenizer="byte-level BPE",
    transfer="fine-tune everything GPT's way: L3 = L2 + λ·L1, input transformations",
    finetuned=False,
    specials=DelimitedLayout.specials,
    sizes=SIZES,
    config=TransformerConfig,
    build_trunk=lambda parts: Transformer(parts.model),
    build_objective=lambda parts: CausalObjective(parts.direction, parts.settings),
    build_layout=DelimitedLayout,
    piece_rows=("trunk.tokens.weight", "trunk.value_tables.", "trunk.output."),
    size_for=size_for,
)
