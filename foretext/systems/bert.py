"""BERT: "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (Devlin, Chang, Lee,
Toutanova, 2018).

Followed
    Trunk: a transformer encoder; token, learned position and segment embeddings, with norm and dropout after their sum;
    norm after each residual addition, ε 1e-12, exact (erf) GELU, truncated normal .02. WordPiece, 30,522 pieces. Masked
    language model: 15 % of the tokens, never a special one, at least one per sequence; 80 % become `[MASK]`, 10 % a
    random piece, 10 % stay; the head is dense, GELU and norm, tied to W_e, with its own bias. Next sentence: B follows
    A in its document half of the time, otherwise it comes from another document; the label is read from `[CLS]` through
    the tanh pooler; a tenth of the sequences is shorter. For the first 90 % of the updates sequences have a quarter of
    the context. `paper` is the base model: 12 blocks of width 768, 12 heads, context 512, dropout .1, Adam at 1e-4 (β₂
    .999, ε 1e-6, decay .01 except on biases and norms), 10,000 updates of warm-up, then linear to 0, batch 256.
    Fine-tuning: `[CLS] A [SEP] B [SEP]` with segments, the pooled `[CLS]` through dropout and one new layer, everything
    trained, 3e-5, batch 32, 3 epochs, 10 % warm-up, linear decay.

From the released code, where the paper is silent
    Gradients are clipped at norm 1; segment B begins after the first `[SEP]`.

Deviations
    Masks and spans are drawn anew whenever a sequence is seen, as in RoBERTa; the released code draws them ten times
    and keeps these. With a single document, "another document" is another stretch of it. A second span from another
    document is as long as the one that it replaces, and is at the end of its document if that one is. The label is
    drawn before the document is looked at; in the released code, documents of one sentence bias it. Random pieces are
    never special tokens. A Greek capital sigma at a word's end becomes σ, not ς, in lower case
    (`text/tokenizers/wordpiece.py`). Adam corrects its bias. An update of short sequences has as many tokens as one of
    long sequences, so four times as many sequences. `tiny` and `small` are not the paper's: see `systems/base.py`.
    Whole-word masks: `--set objective.unit=word`.
"""

from foretext.nn.transformer.encoder import Encoder, EncoderConfig
from foretext.objectives.masked import MaskedObjective, MaskingConfig
from foretext.plan import TransferPlan
from foretext.systems.base import ObjectiveParts, Size, System, TokenizerConfig, TrainingConfig, short_masked_size
from foretext.tasks.layouts.base import FramedLayout

SPECIALS = ("[CLS]", "[SEP]", "[MASK]")  # first, separator, mask

SIZES = {
    "tiny": short_masked_size(EncoderConfig(0, 4, 192, 3, 256), TokenizerConfig("wordpiece", 8000), MaskingConfig()),
    "small": short_masked_size(EncoderConfig(0, 6, 384, 6, 256), TokenizerConfig("wordpiece", 16000), MaskingConfig()),
    "paper": Size(
        EncoderConfig(0, 12, 768, 12, 512),
        TokenizerConfig("wordpiece", 30522),
        TrainingConfig(rate=1e-4, schedule="linear", warmup_steps=10_000, epsilon=1e-6, batch_size=256, dropout=0.1),
        TrainingConfig(rate=3e-5, schedule="linear", warmup=0.1, epsilon=1e-6, batch_size=32, dropout=0.1),
        epochs=3,
        transfer=TransferPlan(lm_weight=0.0, pooling="pooler"),
        objective=MaskingConfig(early=0.9),
    ),
}


def build_objective(parts: ObjectiveParts) -> MaskedObjective:
    return MaskedObjective(parts.model, parts.settings, "next sentence", SPECIALS, parts.tokenizer)


BERT = System(
    name="bert",
    paper="Devlin et al. 2018, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    base="transformer encoder, post-norm",
    objective="masked language model, next sentence",
    direction="bidirectional",
    tokenizer="WordPiece",
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
