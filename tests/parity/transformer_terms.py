"""How many roundings lie on the longest way through a Transformer, for `tolerance.close`."""

from __future__ import annotations

from tolerance import terms_of


def forward_terms(layers: int, width: int, inner: int, tokens: int) -> int:
    """To a logit. In each layer: two norms, the projections before attention and after it, scores, their softmax, the
    mix of values, both sides of the feed-forward part; then the output layer."""
    norms, attention, softmax, feed_forward = 2 * width, 3 * width, 2 * tokens, width + inner
    return terms_of(layers * (norms + attention + softmax + feed_forward), width)


def gradient_terms(layers: int, width: int, inner: int, tokens: int, classes: int, batch: int) -> int:
    """There, through the loss over so many classes, twice as many back, and the sum over all tokens of a batch."""
    return terms_of(3 * forward_terms(layers, width, inner, tokens), classes, batch)
