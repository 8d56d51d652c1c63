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

from __future__ import annotations

from foretext.nn.transformer.encoder import Encoder, EncoderConfig
from foretext.objectives.masked import MaskedObjective, MaskingConfig
from foretext.plan import TransferPlan
from foretext.systems.base import ObjectiveParts, Size, System, TokenizerConfig, TrainingConfig, short_masked_size
from foretext.systems.hub_names import (
    EMBEDDINGS,
    ENCODER_BLOCK,
    ENCODER_DEFAULTS,
    ENCODER_DROPOUTS,
    ENCODER_EMPTY,
    ENCODER_ONLY,
    ENCODER_SHAPE,
    MAY_LACK,
    OF_LABELS,
    OLD_NORMS,
    HubHead,
    HubNames,
    both,
    token_heads,
)
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


_READS = "the first one through a tanh layer"
HUB = HubNames(
    model_type="roberta",
    language_model="RobertaForMaskedLM",
    heads={
        **dict.fromkeys(
            OF_LABELS,
            HubHead(
                "RobertaForSequenceClassification",
                both({"dense": "classifier.dense", "head": "classifier.out_proj"}),
                "extract",
                _READS,
                hidden=True,
            ),
        ),
        # Their pooler is the tanh layer here.
        "choice": HubHead(
            "RobertaForMultipleChoice",
            both({"dense": "roberta.pooler.dense", "head": "classifier"}),
            "extract",
            _READS,
            hidden=True,
        ),
        **token_heads("Roberta"),
    },
    prefix="roberta.",
    outside=EMBEDDINGS,
    block="encoder.layer.{}.",
    inside=ENCODER_BLOCK,
    copies={"lm_head.decoder.weight": "tokens.weight", "lm_head.decoder.bias": "task.head.bias"},
    empty=ENCODER_EMPTY,
    shape=ENCODER_SHAPE,
    dropouts=ENCODER_DROPOUTS,
    defaults=ENCODER_DEFAULTS | {"vocab_size": 50265, "pad_token_id": 1},
    ids={"pad_token_id": "pad", "bos_token_id": "cls", "eos_token_id": "sep"},
    only=ENCODER_ONLY,
    worded={"gelu": ("hidden_act", {"gelu": "erf"})},  # their head supports no other, whatever the blocks have
    least={"intermediate_size": 1, "type_vocab_size": 1},
    fixed=("embedding", "shared", "pooler"),
    after_padding=True,
    pretraining={
        **both({"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm"}),
        "head.bias": "lm_head.bias",
    },
    bare="RobertaModel",
    absent=MAY_LACK,
    ignored=("pooler.",),  # never trained
    endings=OLD_NORMS,
    needs=SPECIALS,
)

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
    hub=HUB,
)
