"""ALBERT: "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations" (Lan, Chen, Goodman, Gimpel,
Sharma, Soricut, 2019).

Followed
    BERT's encoder with a factorised embedding (V×E, then E×H; the masked head returns to E), one set of block weights
    for all layers, tanh-GELU. Masked n-grams of up to three words, p(n) ∝ 1/n. Sentence order in place of next
    sentence: two consecutive spans, swapped half of the time. Unigram (SentencePiece) vocabulary of 30,000. `paper` is
    the base model: 12 layers of width 768, 12 heads, E = 128, context 512, dropout .1, LAMB at 1.76e-3, batch 4,096,
    3,125 updates of warm-up, then linear to 0. Fine-tuning as BERT's: `[CLS] A [SEP] B [SEP]`, pooled `[CLS]`.

Deviations
    Sentence ends are recognised by punctuation; a stretch of text without two sentences is cut between words. A run of
    words that goes beyond the 15 % is shortened. Random pieces are never special ones. LAMB corrects its bias, as its
    paper does and the released code does not. `tiny` and `small` are not the paper's: see `systems/base.py`; they stay
    longer with shorter sequences than the other masked systems.
"""

from dataclasses import replace

from foretext.nn.transformer.encoder import Encoder, EncoderConfig
from foretext.objectives.masked import MaskedObjective, MaskingConfig
from foretext.plan import TransferPlan
from foretext.systems.base import ObjectiveParts, Size, System, TokenizerConfig, TrainingConfig, short_masked_size
from foretext.tasks.layouts.base import FramedLayout

SPECIALS = ("[CLS]", "[SEP]", "[MASK]")  # first, separator, mask
MASKING = MaskingConfig(unit="n-gram")


def _shape(layers: int, width: int, heads: int, context: int, embedding: int) -> EncoderConfig:
    return EncoderConfig(0, layers, width, heads, context, embedding=embedding, shared=True, gelu="tanh")


def _short(shape: EncoderConfig, pieces: int) -> Size:
    """Half of the budget uses 16 tokens. Through a narrow embedding, the blocks take long to find out which tokens are
    adjacent; with so few positions they find it, and keep it when sequences grow."""
    size = short_masked_size(shape, TokenizerConfig("unigram", pieces), MASKING)
    return replace(size, objective=replace(size.objective, early=0.5, early_length=0.0625, grown=0.8))


SIZES = {
    "tiny": _short(_shape(4, 256, 4, 256, 128), 8000),
    "small": _short(_shape(6, 512, 8, 256, 128), 16000),
    "paper": Size(
        _shape(12, 768, 12, 512, 128),
        TokenizerConfig("unigram", 30000),
        TrainingConfig(
            optimizer="lamb",
            rate=1.76e-3,
            schedule="linear",
            warmup_steps=3125,
            epsilon=1e-6,
            batch_size=4096,
            dropout=0.1,
        ),
        TrainingConfig(rate=3e-5, schedule="linear", warmup=0.1, epsilon=1e-6, batch_size=32, dropout=0.1),
        epochs=3,
        transfer=TransferPlan(lm_weight=0.0, pooling="pooler"),
        objective=MASKING,
    ),
}


def build_objective(parts: ObjectiveParts) -> MaskedObjective:
    return MaskedObjective(parts.model, parts.settings, "sentence order", SPECIALS, parts.tokenizer)


ALBERT = System(
    name="albert",
    paper="Lan et al. 2019, ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
    base="transformer encoder, post-norm, one block for all layers, factorised embedding",
    objective="masked language model on n-grams, sentence order",
    direction="bidirectional",
    tokenizer="unigram (SentencePiece)",
    transfer="fine-tune everything: [CLS] through the pooler for texts, each token's state for tags and spans",
    specials=(),
    sizes=SIZES,
    config=EncoderConfig,
    build_trunk=lambda parts: Encoder(parts.model),
    build_objective=build_objective,
    build_layout=lambda ids, context, direction: FramedLayout(ids["[CLS]"], (ids["[SEP]"],), context, segments=True),
    causal=False,
    fills=True,
    objective_config=MaskingConfig,
    vocabulary=SPECIALS,
    piece_rows=("trunk.tokens.weight", "task.head.bias"),
)
