"""GPT: "Improving Language Understanding by Generative Pre-Training" (Radford, Narasimhan, Salimans, Sutskever, 2018).

Followed
    Trunk: a transformer decoder without cross-attention; h_0 = U W_e + W_p, h_l = block(h_{l-1}), P(u) = softmax(h_n
    W_eᵀ). Norm after each residual addition, ε 1e-5, tanh-GELU, N(0, .02), learned positions, no final norm, head
    tied to W_e. `paper`: 12 blocks of width 768, 12 heads, context 512, dropout .1 (embeddings, attention weights,
    residuals), character BPE with 40,000 merges, Adam at 2.5e-4 with 2,000 updates of linear warm-up then cosine to
    0, batch 64, decay .01 on matrices and embeddings only. Fine-tuning: L3 = L2 + λ·L1, λ = .5; start, delimiter and
    extract tokens drawn from N(0, .02); W_y after dropout .1 on the state at the extract token; similarity in both
    orders, states added before W_y; 3 epochs, batch 32, 6.25e-5, linear decay, .2 % warm-up.

    The cosine starts where the warm-up ends, as the paper has it; in the released code it falls from the first update.

From the released code, where the paper is silent or differs
    L1 is the mean over each sequence's tokens, then over sequences; gradients are clipped at norm 1.

Deviations
    Documents are joined by an end-of-text token; the paper's BooksCorpus windows lie inside one book.
    W_y has a bias, as in the released code. The softmax covers W_e only, not the rows of W_p that the released code
    keeps in the same matrix. `tiny` and `small` are not the paper's: byte-level BPE (no unknown symbol in any
    language), Muon on the blocks' matrices, no dropout while pre-training (a short run sees no text twice), higher
    rates and more epochs when fine-tuning (up to 20 where there are few rows); W_y reads the mean of all states beside
    the extract token's, which is new to a model and takes many labels to learn, and starts from a logistic regression
    on those states (`--plan paper` is the paper's way, head, rates and all). A score for a pair (STS-B) is learned
    standardised, by squared error; the paper does not say by which loss.
"""

from foretext.nn.transformer.block import TransformerConfig
from foretext.nn.transformer.transformer import Transformer
from foretext.objectives.causal import CausalObjective
from foretext.plan import TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig, short_size
from foretext.tasks.layouts.base import DelimitedLayout

SIZES = {
    "tiny": short_size(TransformerConfig(vocabulary=0, layers=4, width=192, heads=3, context=256), 8000),
    "small": short_size(TransformerConfig(vocabulary=0, layers=6, width=384, heads=6, context=256), 16000),
    "paper": Size(
        TransformerConfig(vocabulary=0, layers=12, width=768, heads=12, context=512),
        TokenizerConfig("char-bpe", 40478),
        TrainingConfig(rate=2.5e-4, schedule="cosine", warmup_steps=2000, batch_size=64, dropout=0.1),
        TrainingConfig(rate=6.25e-5, schedule="linear", warmup=0.002, batch_size=32, dropout=0.1),
        epochs=3,
        transfer=TransferPlan(lm_weight=0.5),
    ),
}

GPT = System(
    name="gpt",
    paper="Radford et al. 2018, Improving Language Understanding by Generative Pre-Training",
    base="transformer decoder, post-norm",
    objective="causal language model (L1)",
    direction="left to right, or right to left",
    tokenizer="character BPE (paper), byte-level BPE (tiny, small)",
    transfer="fine-tune everything: L3 = L2 + λ·L1, input transformations",
    specials=DelimitedLayout.specials,
    sizes=SIZES,
    config=TransformerConfig,
    build_trunk=lambda parts: Transformer(parts.model),
    build_objective=lambda parts: CausalObjective(parts.direction, parts.settings),
    build_layout=DelimitedLayout,
    piece_rows=("trunk.tokens.weight", "trunk.value_tables.", "trunk.output."),
)
