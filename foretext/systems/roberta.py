"""RoBERTa: "RoBERTa: A Robustly Optimized BERT Pretraining Approach" (Liu, Ott, Goyal, Du, Joshi, Chen, Levy, Lewis,
Zettlemoyer, Stoyanov, 2019).

Followed
    BERT's trunk and masked language model without next sentence and without segments. Masks are drawn anew whenever a
    sequence is seen. Sequences are full sentences across documents, with a separator between documents, as many as fit,
    from the first update on. Byte-level BPE, 50,265 ids in the released model. Positions begin after the padding's
    index (2), ε 1e-5, as released. `paper` is the base model: 12 blocks of width 768, 12 heads, context 512, Adam at
    6e-4 (β₂ .98, ε 1e-6, decay .01), 24,000 updates of warm-up, then linear to 0, batch 8,192, no clipping.
    Fine-tuning: `<s> A </s></s> B </s>`; the state of `<s>` through dropout, a dense tanh layer, dropout and one more
    layer; 2e-5, batch 32, 10 epochs, 6 % warm-up, linear decay of the rate, weight decay .1 (GLUE's settings).

Deviations
    Sentences are recognised by punctuation and lines (`objectives/spans.py`); the paper does not say how. All batches
    have the same number of sequences; the paper adds some if they are shorter. Random pieces are never special tokens.
    `tiny` and `small` are not the paper's: see `systems/base.py`.
"""

from foretext.nn.transformer.encoder import Encoder, EncoderConfig
from foretext.objectives.masked import MaskedObjective, MaskingConfig
from foretext.plan import TransferPlan
from foretext.systems.base import ObjectiveParts, Size, System, TokenizerConfig, TrainingConfig, short_masked_size
from foretext.tasks.layouts.base import FramedLayout
from foretext.text.tokenizers.byte_bpe import ROBERTA_SPECIALS

SPECIALS = ("<s>", "</s>", "<mask>")  # first, separator, mask


def _shape(layers: int, width: int, heads: int, context: int) -> EncoderConfig:
    return EncoderConfig(0, layers, width, heads, context, segments=1, first_position=2, pooler=False, epsilon=1e-5)


SIZES = {
    "tiny": short_masked_size(_shape(4, 192, 3, 256), TokenizerConfig("byte-bpe", 8000), MaskingConfig()),
    "small": short_masked_size(_shape(6, 384, 6, 256), TokenizerConfig("byte-bpe", 16000), MaskingConfig()),
    "paper": Size(
        _shape(12, 768, 12, 512),
        TokenizerConfig("byte-bpe", 50265),
        TrainingConfig(
            rate=6e-4,
            schedule="linear",
            warmup_steps=24_000,
            beta2=0.98,
            epsilon=1e-6,
            clip=0.0,
            batch_size=8192,
            dropout=0.1,
        ),
        TrainingConfig(
            rate=2e-5,
            schedule="linear",
            warmup=0.06,
            weight_decay=0.1,
            beta2=0.98,
            epsilon=1e-6,
            clip=0.0,
            batch_size=32,
            dropout=0.1,
        ),
        epochs=10,
        transfer=TransferPlan(lm_weight=0.0, head="hidden"),
        objective=MaskingConfig(),
    ),
}


def build_objective(parts: ObjectiveParts) -> MaskedObjective:
    return MaskedObjective(parts.model, parts.settings, "none", SPECIALS, parts.tokenizer)


ROBERTA = System(
    name="roberta",
    paper="Liu et al. 2019, RoBERTa: A Robustly Optimized BERT Pretraining Approach",
    base="transformer encoder, post-norm",
    objective="masked language model",
    direction="bidirectional",
    tokenizer="byte-level BPE",
    transfer="fine-tune everything: <s> through a dense layer for texts, each token's state for tags and spans",
    specials=(),
    sizes=SIZES,
    config=EncoderConfig,
    build_trunk=lambda parts: Encoder(parts.model),
    build_objective=build_objective,
    build_layout=lambda ids, context, direction: FramedLayout(
        ids["<s>"], (ids["</s>"], ids["</s>"]), context, segments=False
    ),
    causal=False,
    fills=True,
    objective_config=MaskingConfig,
    vocabulary=ROBERTA_SPECIALS,
    piece_rows=("trunk.tokens.weight", "task.head.bias"),
)
