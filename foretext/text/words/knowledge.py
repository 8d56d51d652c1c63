"""What a text has taught of its words: their vectors, how often each occurs, and the text's topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretext.text.words.latent_semantics import Lsa


@dataclass(frozen=True)
class TextKnowledge:
    words: Sequence[str]  # as `split_words` gives them; what has no vector has a row of zeros
    matrix: np.ndarray  # [words, width]
    counts: np.ndarray  # [words]
    lsa: Lsa | None = None
