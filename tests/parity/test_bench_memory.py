"""Both sides of the benchmark of memory score the same tokens alike, and each moves on by one."""

from __future__ import annotations

import math

import pytest
from tolerance import close, terms_of
from transformer_terms import forward_terms

from bench.memory_reuse import Remembering, Rereading, agree, model_of, text_of

SPECIFICATION = {"context": 12, "size": "tiny", "quick": True}


@pytest.mark.usefixtures("in_float64")
def test_both_ways_agree() -> None:
    """One layer, 64 wide; losses are about the logarithm of the vocabulary's 500."""
    terms = terms_of(forward_terms(1, 64, 256, 2 * 12), 500)
    close(agree(SPECIFICATION), 0.0, terms=terms, size=math.log(500))


@pytest.mark.parametrize("kind", [Remembering, Rereading])
def test_each_token_is_scored_once_after_a_full_context(kind: type) -> None:
    model = model_of(SPECIFICATION)
    assert model.config.reads == 12, "all of it is read at once where it is read again"
    reader = kind(model, text_of(SPECIFICATION, model, 3), 12)
    assert reader.place == 11
    scores = [*reader.score(2), *reader.score(1)]
    assert reader.place == 14 and len(set(scores)) == 3
