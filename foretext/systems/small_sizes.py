"""How transformers learn in runs of minutes, which no paper gives: the sizes `tiny` and `small`. Chosen on validation
rows of GPT; docs/results.md has the rounds."""

from __future__ import annotations

from dataclasses import replace

from foretext.nn.relative.transformer_xl_block import TransformerXLConfig
from foretext.nn.relative.xlnet import XLNetConfig
from foretext.nn.transformer.causal_trunk import TransformerConfig
from foretext.nn.transformer.encoder import EncoderConfig
from foretext.objectives.factorisation import PermutationConfig
from foretext.objectives.masking import MaskingConfig
from foretext.plan import TransferPlan
from foretext.systems.base import Size, TokenizerConfig, TrainingConfig

_PRETRAINING = TrainingConfig(
    optimizer="muon", rate=5e-3, warmup=0.03, weight_decay=0.01, beta2=0.95, batch_size=16, dropout=0.0
)
_FINETUNING = TrainingConfig(rate=5e-4, schedule="linear", warmup=0.1, batch_size=16, dropout=0.1)
_LEAST_UPDATES = 100  # six epochs of a hundred rows would be 42
_TRANSFER = TransferPlan(lm_weight=0.5, pooling="mean", head="probe")
# A mask says nothing of its own, so a masked model first has to find out where its neighbours are, and minutes go by
# before it knows more than how frequent words are. It finds them sooner in short sequences, and with more to tell.
_PART, _EARLY, _EARLY_LENGTH, _GROWN = 0.4, 0.15, 0.125, 0.3


def short_size(model: TransformerConfig | TransformerXLConfig, pieces: int) -> Size:
    """A size for minutes on a CPU, with a byte-level vocabulary of so many pieces."""
    return Size(
        model,
        TokenizerConfig("byte-bpe", pieces),
        _PRETRAINING,
        _FINETUNING,
        epochs=6,
        least_updates=_LEAST_UPDATES,
        transfer=_TRANSFER,
        rates={"ulmfit": 2e-3},  # not tuned
    )


def short_masked_size(model: EncoderConfig, tokenizer: TokenizerConfig, objective: MaskingConfig) -> Size:
    """The same for a masked system: more masks than it has by itself, and short sequences first."""
    more = replace(objective, part=_PART, early=_EARLY, early_length=_EARLY_LENGTH, grown=_GROWN)
    return short_two_sided_size(model, tokenizer, more)


def short_two_sided_size(
    model: EncoderConfig | XLNetConfig, tokenizer: TokenizerConfig, objective: MaskingConfig | PermutationConfig
) -> Size:
    """The same without an auxiliary loss in fine-tuning, for a system that sees both sides."""
    return Size(
        model,
        tokenizer,
        _PRETRAINING,
        _FINETUNING,
        epochs=6,
        least_updates=_LEAST_UPDATES,
        transfer=TransferPlan(lm_weight=0.0, pooling="mean", head="probe"),
        objective=objective,
    )
