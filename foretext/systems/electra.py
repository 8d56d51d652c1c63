"""ELECTRA: "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators" (Clark, Luong, Le, Manning,
2020).

Followed
    Two encoders: a generator, which is a masked language model on 15 % of the tokens, and a discriminator. The
    discriminator reads the text with the generator's samples in place of the masked tokens, and predicts for every
    token whether it was replaced; a token that the generator restored counts as original. The loss is the generator's
    plus 50 times the discriminator's, without a gradient through the samples. They share the embeddings of tokens and
    positions. The generator, a quarter as wide (base: a third), reads them through its own layer, and its output layer
    is tied to them. Only the discriminator is transferred. `paper` is the base model: 12 blocks of width 768, 12 heads,
    context 512, dropout .1, Adam at 2e-4 (β₂ .999, ε 1e-6, decay .01), 10,000 updates of warm-up, then linear to 0,
    batch 256. Fine-tuning: 1e-4, each layer at .8 of the rate of the one above, no decay, 10 % warm-up, linear, batch
    32, 3 epochs; the state of `[CLS]` through dropout and one new layer.

From the released code, where the paper is silent
    Of the chosen tokens 85 % become `[MASK]` and the rest stay; segments and the norm of the embeddings are shared too;
    special tokens count as original. Heads: dense, GELU, norm for the generator; dense, GELU and one number for the
    discriminator. Gradients are clipped at norm 1.

Deviations
    A sequence is contiguous text, as in RoBERTa, not one or two segments. Masks are drawn anew whenever a sequence is
    seen. The generator's samples are drawn by inverting its distribution, with random numbers from seed, epoch and
    sequence, while the released code adds Gumbel noise. `tiny` and `small` are not the paper's: see `systems/base.py`;
    nothing about them was tuned for ELECTRA. Weights cannot be imported or exported yet.
"""

from foretext.nn.transformer.encoder import Encoder, EncoderConfig
from foretext.objectives.replaced import ReplacedConfig, ReplacedObjective
from foretext.plan import TransferPlan
from foretext.systems.base import ObjectiveParts, Size, System, TokenizerConfig, TrainingConfig, short_two_sided_size
from foretext.tasks.layouts.base import FramedLayout

SPECIALS = ("[CLS]", "[SEP]", "[MASK]")  # first, separator, mask
_GROWING = ReplacedConfig(early=0.15, early_length=0.125, grown=0.3)

SIZES = {
    "tiny": short_two_sided_size(
        EncoderConfig(0, 4, 192, 3, 256, pooler=False), TokenizerConfig("wordpiece", 8000), _GROWING
    ),
    "small": short_two_sided_size(
        EncoderConfig(0, 6, 384, 6, 256, pooler=False), TokenizerConfig("wordpiece", 16000), _GROWING
    ),
    "paper": Size(
        EncoderConfig(0, 12, 768, 12, 512, pooler=False),
        TokenizerConfig("wordpiece", 30522),
        TrainingConfig(rate=2e-4, schedule="linear", warmup_steps=10_000, epsilon=1e-6, batch_size=256, dropout=0.1),
        TrainingConfig(
            rate=1e-4, schedule="linear", warmup=0.1, weight_decay=0.0, epsilon=1e-6, batch_size=32, dropout=0.1
        ),
        epochs=3,
        transfer=TransferPlan(lm_weight=0.0, rate_decay=1.25),
        objective=ReplacedConfig(generator=1 / 3),
    ),
}


def build_objective(parts: ObjectiveParts) -> ReplacedObjective:
    return ReplacedObjective(parts.model, parts.settings, SPECIALS, parts.tokenizer)


ELECTRA = System(
    name="electra",
    paper="Clark et al. 2020, ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
    base="transformer encoder, post-norm",
    objective="replaced-token detection on the output of a small masked model",
    direction="bidirectional",
    tokenizer="WordPiece",
    transfer="fine-tune everything except the generator, lower layers at lower rates",
    specials=(),
    sizes=SIZES,
    config=EncoderConfig,
    build_trunk=lambda parts: Encoder(parts.model),
    build_objective=build_objective,
    build_layout=lambda ids, context, direction: FramedLayout(ids["[CLS]"], (ids["[SEP]"],), context, segments=True),
    causal=False,
    fills=True,
    objective_config=ReplacedConfig,
    vocabulary=SPECIALS,
    piece_rows=("trunk.tokens.weight", "task.head.bias"),
)
