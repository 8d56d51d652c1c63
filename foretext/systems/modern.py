"""Modern: a causal decoder for small budgets on a CPU, put together from what others found after GPT-2.

It follows no single paper. Each choice is one key of [model], [objective] or [training]; `experiments/modern_parts.py`
measures what each is worth, left out one at a time.

Block
    RMSNorm in front of each part and at the end (Zhang and Sennrich 2019), no biases, rotary positions (Su et al.
    2021), queries and keys normed (Henry et al. 2020), ReLU² (So et al. 2021), projections onto the residual stream
    zero at the start. Embeddings are normed, tied to the output layer. Every block reads them beside the states, by
    learned scalars, as in the records of modded-nanogpt (Jordan et al. 2024).

    What is there and off, since one run of 256,000 tokens each showed no gain that counts: soft-capped logits
    (model.soft_cap; 0.0009 bits a byte for 8 % of a step's time) and tables of values (model.values=embeddings; none,
    for nearly as many weights again as the rest has).

Learning
    Muon for the blocks' matrices, Adam for the rest.

One dial
    Without --size and with a budget in minutes, width, layers, vocabulary and batch follow from the minutes and from
    how many products this machine makes a second: the largest of `LADDER` that reads `TOKENS_A_WEIGHT` tokens for each
    of its weights in the time. nanochat (Karpathy 2025) sets everything by the depth likewise.

Exported as Qwen3, or without query-key norm as Llama, where the choices are theirs: SwiGLU, no skips, no normed
embeddings. Fine-tuned GPT's way (L3 = L2 + λ·L1).
"""

from __future__ import annotations

from dataclasses import replace

from foretext.nn.transformer.transformer import Transformer, TransformerConfig
from foretext.objectives.base import CausalObjective
from foretext.plan import TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, short_size
from foretext.systems.hub_names import LLAMA, QWEN3
from foretext.tasks.layouts.base import DelimitedLayout

TOKENS_A_WEIGHT = 0.3  # not measured: so that two cores have `tiny` from some five minutes to two hours
BUSY = 0.5  # of the products that a machine can make, that training makes
PASSES = 6  # products for each weight and token: one forward and two backward, a multiplication and an addition each


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
    "paper": Size(  # no paper's: GPT-2's smallest shape, for a machine with more than a CPU
        shape(12, 768, 12, 1024),
        TokenizerConfig("byte-bpe", 32000),
        TrainingConfig(optimizer="muon", rate=2e-3, warmup=0.03, beta2=0.95, batch_size=256, dropout=0.0),
        TrainingConfig(rate=6.25e-5, schedule="linear", warmup=0.002, batch_size=32, dropout=0.1),
        epochs=3,
        transfer=TransferPlan(lm_weight=0.5),
    ),
}


def weights_at_work(size: Size) -> int:
    """That each token is multiplied by: those of the blocks, and the output layer."""
    model = size.model
    assert isinstance(model, TransformerConfig)
    return sum(map(model.block_parameters, range(model.layers))) + size.tokenizer.size * model.width


def tokens_in(size: Size, products: float, minutes: float) -> float:
    """That training reads, on a machine that makes so many products a second."""
    return 60.0 * minutes * BUSY * products / (PASSES * weights_at_work(size))


def size_for(products: float, minutes: float) -> str:
    """The largest size that has read enough in the time, else the smallest."""
    for name in reversed(LADDER):
        size = SIZES[name]
        if tokens_in(size, products, minutes) >= TOKENS_A_WEIGHT * weights_at_work(size):
            return name
    return LADDER[0]


MODERN = System(
    name="modern",
    paper="none of its own: what was found after Radford et al. 2019, each part by its paper",
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
    written_as=(QWEN3, LLAMA),
    size_for=size_for,
)
