"""What can be asked of word vectors once they are learned: vectors of texts, and the latent semantic analysis that is
kept beside them. No token is predicted and no text scored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretext.nn.static_vectors import StaticVectors
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Objective, Scored
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.words.knowledge import TextKnowledge
from foretext.text.words.latent_semantics import Lsa
from foretext.text.words.sif import sif_means


class StaticObjective(Objective):
    scored: Scored = "not at all"  # type: ignore[misc]
    lacks = "anything that predicts words"

    def __init__(self) -> None:
        super().__init__()
        self.weights = {}

    def text_vectors(self, trunk: Trunk, texts: Sequence[np.ndarray]) -> np.ndarray | None:
        """Means of the words' vectors, weighted by how rare they are."""
        assert isinstance(trunk, StaticVectors)
        return sif_means(trunk.matrix(), trunk.counts(), texts)

    def knowledge(self, trunk: Trunk, tokenizer: Tokenizer) -> TextKnowledge | None:
        assert isinstance(trunk, StaticVectors)
        return known_words(trunk, tokenizer)

    def word_rows(self, trunk: Trunk) -> tuple[np.ndarray, np.ndarray] | None:
        assert isinstance(trunk, StaticVectors)
        counts_V = trunk.counts()
        ids = np.argsort(-counts_V, kind="stable")
        ids = ids[counts_V[ids] > 0]
        return ids, trunk.matrix()[ids]


def known_words(trunk: StaticVectors, tokenizer: Tokenizer) -> TextKnowledge:
    words = [tokenizer.piece(id) for id in range(tokenizer.size)]
    return TextKnowledge(words, trunk.matrix(), trunk.counts(), lsa_of(trunk))


def lsa_of(trunk: StaticVectors) -> Lsa | None:
    """The latent semantic analysis that a trunk keeps, if it does."""
    if not trunk.config.lsa_dimensions:
        return None
    tensors = (trunk.lsa_pairs_P, trunk.lsa_idf_T, trunk.lsa_components_TK)
    return Lsa(trunk.config.vocabulary, *(tensor.cpu().numpy() for tensor in tensors))
