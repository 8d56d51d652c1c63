"""GPT-2: "Language Models are Unsupervised Multitask Learners" (Radford, Wu, Child, Luan, Amodei, Sutskever, 2019).

Followed
    Trunk: GPT's, with the norm moved to the input of each sub-block and one more after the last block; weights of the
    residual projections (attention's and the feed-forward part's output) drawn with 1/√N of the others' deviation,
    N = 2 × blocks; N(0, .02) otherwise; tanh-GELU, learned positions, head tied to W_e. Context 1,024, batch 512.
    Byte-level BPE with the published splitting pattern, 50,257 ids: 256 bytes, 50,000 merges, end-of-text. Sizes as in
    the paper's table 2, by their true numbers of parameters: 124M, 355M, 774M, 1.5B (the paper prints 117M, 345M, 762M,
    1542M). Documents are joined by end-of-text.

From the released code, where the paper is silent
    ε 1e-5; dropout .1 at GPT's three places.

Deviations
    The paper tunes the rate for each size on held-out text and does not give it: here 6e-4 (124M) falling with size,
    and β₂ .95, after GPT-3's table, with 2,000 updates of warm-up and GPT's cosine. The paper does not fine-tune; here
    GPT-2 is fine-tuned GPT's way (L3 = L2 + λ·L1, start, delimiter and extract tokens, GPT's fine-tuning settings).
    `tiny` and `small` are not the paper's: see `systems/base.py`.
"""

from foretext.nn.transformer.block import TransformerConfig
from foretext.nn.transformer.transformer import Transformer
from foretext.objectives.causal import CausalObjective
from foretext.plan import TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, short_size
from foretext.tasks.layouts.base import DelimitedLayout


def _shape(layers: int, width: int, heads: int, context: int = 1024) -> TransformerConfig:
    return TransformerConfig(0, layers, width, heads, context, norm="pre", scale_residuals=True)


def _published(model: TransformerConfig, rate: float) -> Size:
    return Size(
        model,
        TokenizerConfig("byte-bpe", 50257),
        TrainingConfig(rate=rate, schedule="cosine", warmup_steps=2000, beta2=0.95, batch_size=512, dropout=0.1),
        TrainingConfig(rate=6.25e-5, schedule="linear", warmup=0.002, batch_size=32, dropout=0.1),
        epochs=3,
        transfer=TransferPlan(lm_weight=0.5),
    )


SIZES = {
    "tiny": short_size(_shape(4, 192, 3, 256), 8000),
    "small": short_size(_shape(6, 384, 6, 256), 16000),
    "paper": _published(_shape(12, 768, 12), 6e-4),  # the smallest of the paper's four
    "124M": _published(_shape(12, 768, 12), 6e-4),
    "355M": _published(_shape(24, 1024, 16), 3e-4),
    "774M": _published(_shape(36, 1280, 20), 2.5e-4),
    "1.5B": _published(_shape(48, 1600, 25), 2e-4),
}

GPT2 = System(
    name="gpt2",
    paper="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    base="transformer decoder, pre-norm, final norm",
    objective="causal language model (L1)",
    direction="left to right, or right to left",
    tokenizer="byte-level BPE",
    transfer="prompt it, without training; or fine-tune everything like GPT: L3 = L2 + λ·L1, input transformations",
    finetuned=False,
    specials=DelimitedLayout.specials,
    sizes=SIZES,
    config=TransformerConfig,
    build_trunk=lambda parts: Transformer(parts.model),
    build_objective=lambda parts: CausalObjective(parts.direction, parts.settings),
    build_layout=DelimitedLayout,
    piece_rows=("trunk.tokens.weight", "trunk.value_tables.", "trunk.output."),
)
