"""What tokens a state predicts, whatever a trunk's output layer is: tied to its embeddings (most), with a bias
(`output_bias`), or an adaptive softmax (`adaptive`).

Losses are exact and never hold all logits (`nn/softmax/tied_softmax.py`). A trunk says what it has by attributes of
these names, and need have neither.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foretext.nn.softmax.adaptive_softmax import AdaptiveVocabulary
from foretext.nn.softmax.tied_softmax import tied_softmax_loss, tied_token_losses


def token_loss(trunk: Any, h_ND: Tensor, targets_N: Tensor, weights_N: Tensor | None = None) -> Tensor:
    """The (weighted) sum over n of −log P(target_n | h_n)."""
    adaptive = _adaptive(trunk)
    if adaptive is not None:
        return adaptive.loss(h_ND, targets_N, weights_N)
    return tied_softmax_loss(h_ND, trunk.output_table(), targets_N, weights_N, _bias(trunk))


def token_losses(trunk: Any, h_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """−log P of each target, and the most likely token at each place, without gradients: for scoring."""
    adaptive = _adaptive(trunk)
    if adaptive is not None:
        return adaptive.token_losses(h_ND, targets_N)
    return tied_token_losses(h_ND, trunk.output_table(), targets_N, _bias(trunk))


def token_logits(trunk: Any, h_ND: Tensor) -> Tensor:
    """[N, V], whose softmax is P(token | h_n)."""
    adaptive = _adaptive(trunk)
    if adaptive is not None:
        return adaptive.logits(h_ND)
    table, bias = trunk.output_table(), _bias(trunk)
    return h_ND @ table.t() if bias is None else torch.addmm(bias, h_ND, table.t())


def _adaptive(trunk: Any) -> AdaptiveVocabulary | None:
    own: AdaptiveVocabulary | None = getattr(trunk, "adaptive", None)
    return own


def _bias(trunk: Any) -> Tensor | None:
    own: Tensor | None = getattr(trunk, "output_bias", None)
    return own
