"""word2vec: "Efficient Estimation of Word Representations in Vector Space" (Mikolov, Chen, Corrado, Dean, 2013) and
"Distributed Representations of Words and Phrases and their Compositionality" (Mikolov, Sutskever, Chen, Corrado, Dean,
2013). With it, of the same text: latent semantic analysis (Deerwester, Dumais, Furnas, Landauer, Harshman, 1990), and
means of vectors as texts (Arora, Liang, Ma, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", 2017).

Followed
    CBOW, a word from the mean of its neighbours, and skip-gram, its neighbours from a word (`objective.kind`); negative
    sampling by counts to the power of .75; frequent words left out at random; windows of a drawn size; plain SGD from
    .025 falling linearly to the end of the budget. Words that occur fewer than five times are left out. LSA: the
    strongest directions of a matrix of documents and weighted terms. SIF: weights a / (a + p(w)), a = .001.

From the released code, where the papers are silent
    Vectors start uniform in ±.5 / width, output vectors at 0. The context's mean, not its sum. The share
    of a word that is kept is √(t / f) + t / f; the paper has √(t / f).

Deviations
    The vectors are learned by gensim's implementation (`text/words/vector_learning.py`), one chunk of text per step.
    Words
    are in lower case, with contractions split and scripts without spaces as characters (`text/words/splitting.py`); the
    papers' tokens are those of Google's news. No hierarchical softmax, and no phrases. All text is used for training,
    including the validation shards: there is no loss to validate. LSA weighs terms by (1 + log tf) · idf and
    has 2-grams, where the paper has words and raw counts (`text/words/latent_semantics.py`). SIF without the removal of
    the first component (`text/words/latent_semantics.py`). Tasks with one label per row or word are learned by one head
    over views (`tasks/views/`), spans by the biLSTM that ELMo and CoVe have, over the frozen vectors. `tiny` and
    `small` read the text ten times with CBOW and a window of 10: on few millions of words that is
    what serves tasks best.

A trained run gives vectors of texts and the latent semantic analysis; it predicts no tokens and scores no text.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretext.errors import refuse_if
from foretext.nn.static_vectors import StaticVectors, StaticVectorsConfig
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Objective, Scored
from foretext.plan import ReaderPlan, TransferPlan
from foretext.systems.base import Size, System, TokenizerConfig, TrainingConfig
from foretext.tasks.layouts.base import PlainLayout
from foretext.text.corpus.shards import TokenShards
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.words.latent_semantics import MOST_WORDS, Lsa, learn_lsa, sif_means
from foretext.text.words.vector_learning import VectorLearning, VectorSettings, id_counts, whole_text
from foretext.text.words.word_list import TextKnowledge


class StaticObjective(Objective):
    scored: Scored = "not at all"  # type: ignore[misc]
    lacks = "anything that predicts words"

    def __init__(self) -> None:
        super().__init__()
        self.weights = {}

    def text_vectors(self, trunk: Trunk, texts: Sequence[np.ndarray]) -> np.ndarray | None:
        """Means of the words' vectors, with more weight on rare words."""
        assert isinstance(trunk, StaticVectors)
        return sif_means(trunk.matrix(), trunk.counts(), texts)

    def knowledge(self, trunk: Trunk, tokenizer: Tokenizer) -> TextKnowledge | None:
        assert isinstance(trunk, StaticVectors)
        words = [tokenizer.piece(id) for id in range(tokenizer.size)]
        return TextKnowledge(words, trunk.matrix(), trunk.counts(), lsa_of(trunk))

    def word_rows(self, trunk: Trunk) -> tuple[np.ndarray, np.ndarray] | None:
        assert isinstance(trunk, StaticVectors)
        counts_V = trunk.counts()
        ids = np.argsort(-counts_V, kind="stable")
        ids = ids[counts_V[ids] > 0]
        return ids, trunk.matrix()[ids]


def lsa_of(trunk: StaticVectors) -> Lsa | None:
    """The latent semantic analysis stored in a trunk, if there is one."""
    if not trunk.config.lsa_dimensions:
        return None
    tensors = (trunk.lsa_pairs_P, trunk.lsa_idf_T, trunk.lsa_components_TK)
    return Lsa(trunk.config.vocabulary, *(tensor.cpu().numpy() for tensor in tensors))


# -- what can be asked of the vectors ----------------------------------------------------------------------------------


FEW_DOCUMENTS = 100  # if there are fewer, they are cut into pieces for LSA, which compares documents
PIECE = 300  # words
# The share of a budget in minutes for LSA: so many words of text and 300 dimensions take a fifth of a minute.
LSA_WORDS_PER_MINUTE = 3_000_000


class VectorLearner(VectorLearning):
    """Counts, LSA, then vectors."""

    def __init__(
        self,
        model: StaticVectorsConfig,
        settings: VectorSettings,
        tokenizer: Tokenizer,
        texts: tuple[TokenShards, ...],
        step_words: int,
        seed: int,
        threads: int,
        folder: Path,
    ) -> None:
        self.model = model
        assert tokenizer.end is not None
        text = whole_text(texts)
        self.counts_V = id_counts(text, tokenizer.size)
        self.counts_V[list(tokenizer.specials.values())] = 0
        if tokenizer.unknown is not None:
            self.counts_V[tokenizer.unknown] = 0
        known = int((self.counts_V > 0).sum())
        refuse_if(
            known < 2, f"the text has {known} words of the vocabulary, but vectors need at least two; give more text"
        )
        self.lsa: Lsa | None = None
        super().__init__(text, tokenizer.end, self.counts_V, settings, model.width, step_words, seed, threads, folder)

    @property
    def tokens(self) -> int:
        return len(self.text)

    @property
    def memory(self) -> int:
        vectors = 4 * 4 * len(self.counts_V) * self.model.width  # both matrices, and copies of them while saving
        return vectors + 3 * self._lsa_bytes() + (16 * min(self.tokens, MOST_WORDS) if self.settings.lsa else 0)

    @property
    def disk(self) -> int:
        return 2 * (2 * 4 * len(self.counts_V) * self.model.width + self._lsa_bytes())

    def _lsa_bytes(self) -> int:
        """An estimate, since the pairs are not known yet: half as many as there are words."""
        return 4 * 3 * len(self.counts_V) // 2 * self.settings.lsa

    def describe(self) -> list[tuple[str, str]]:
        settings, alike = self.settings, "no two runs are alike; --threads 1 makes a run reproducible"
        drawn = (
            f"{settings.negatives} negatives, window {settings.window}, sample {settings.sample:g}, at most "
            f"{settings.epochs} epochs"
        )
        threads = f"{self.threads}: {'the same vectors each time' if self.threads == 1 else alike}"
        return [("learns", f"{settings.kind}: {drawn}"), ("threads", threads)]

    # -- before the first step

    def begin(self, minutes: float | None, progress: Any) -> list[str]:
        """Computes the LSA. Its shape then becomes part of `model`."""
        wanted = self.settings.lsa
        if not wanted:
            return []
        affordable = MOST_WORDS if minutes is None else int(LSA_WORDS_PER_MINUTE * minutes * 300 / wanted)
        self.lsa = learn_lsa(
            self._documents(),
            len(self.counts_V),
            wanted,
            ignored=np.flatnonzero(self.counts_V == 0).tolist(),
            most_words=max(10_000, min(MOST_WORDS, affordable)),
            seed=self.seed,
            threads=self.threads,
            progress=lambda done, total: progress("latent semantic analysis", done, total),
        )
        if self.lsa is None:
            return ["no LSA: too few words occur in at least ten documents; --set objective.lsa=0 turns it off"]
        self.model = dataclasses.replace(self.model, lsa_dimensions=self.lsa.dimensions, lsa_pairs=len(self.lsa.pairs))
        terms = f"{int((self.lsa.idf > 0).sum()):,} words and pairs of words"
        fewer = "" if self.lsa.dimensions == wanted else f" (not {wanted}: the text has no more)"
        return [f"LSA: {self.lsa.dimensions} dimensions{fewer} over {terms}"]

    def _documents(self) -> Iterator[np.ndarray]:
        """The documents of the text; pieces of them if there are few."""
        few = sum(split.documents for split in self.text.manifest.splits.values()) < FEW_DOCUMENTS
        rest = np.zeros(0, dtype=np.int64)
        for start in range(0, len(self.text), 1 << 20):
            ids = np.concatenate([rest, self.text.window(start, min(1 << 20, len(self.text) - start))])
            *whole, rest = np.split(ids, np.flatnonzero(ids == self.end) + 1)
            for document in whole:
                yield from self._pieces(document[:-1], few)
        yield from self._pieces(rest, few)

    def _pieces(self, ids: np.ndarray, few: bool) -> Iterator[np.ndarray]:
        if len(ids):
            yield from np.array_split(ids, -(-len(ids) // PIECE)) if few else [ids]

    def weights(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The trunk's tensors by name, and the state for the next step."""
        vectors_VD, outputs_VD = self.matrices()
        tensors = {"vectors": vectors_VD, "counts_V": self.counts_V}
        if self.lsa is not None:
            names = ("lsa_pairs_P", "lsa_idf_T", "lsa_components_TK")
            tensors |= zip(names, (self.lsa.pairs, self.lsa.idf, self.lsa.components))
        return tensors, outputs_VD

    def restore(self, trunk: Any, outputs_VD: np.ndarray) -> None:
        assert isinstance(trunk, StaticVectors)
        self.lsa = lsa_of(trunk)
        self.put(trunk.matrix(), outputs_VD)


# -- the system --------------------------------------------------------------------------------------------------------

_SGD = TrainingConfig(
    optimizer="sgd",
    rate=0.025,
    schedule="linear",
    warmup=0.0,
    final_rate=0.004,
    weight_decay=0.0,
    beta1=0.0,
    clip=0.0,
    batch_size=200_000,  # words per step
    micro_batch=1,
    dropout=0.0,
    evaluations=0,
)
_FEATURES = TrainingConfig(rate=1e-3, schedule="linear", warmup=0.1, weight_decay=0.0, batch_size=16, dropout=0.1)
_FROZEN = TransferPlan(
    thaw="never", lm_weight=0.0, pooling="mean", model="recurrent", reader=ReaderPlan(mix=False, beside="lowest")
)


def _size(width: int, words: int, settings: VectorSettings, least_updates: int = 200) -> Size:
    return Size(
        StaticVectorsConfig(width=width),
        TokenizerConfig("words", words, split="contractions", least=5),
        _SGD,
        _FEATURES,
        epochs=10,
        least_updates=least_updates,
        transfer=_FROZEN,
        objective=settings,
    )


SIZES = {
    "tiny": _size(300, 100_000, VectorSettings()),
    "small": _size(500, 400_000, VectorSettings(lsa=500)),
    "paper": _size(300, 692_000, VectorSettings("skipgram", window=5, sample=1e-5, epochs=1, lsa=0), least_updates=0),
}


WORD2VEC = System(
    name="word2vec",
    paper="Mikolov et al. 2013, Efficient Estimation of Word Representations in Vector Space",
    base="a vector for each word",
    objective="a word from its neighbours, or the other way round, against negative samples",
    direction="none: a word's vector does not depend on context",
    tokenizer="whole words",
    transfer="frozen vectors, read by a task model; texts as means of vectors, LSA",
    specials=(),
    sizes=SIZES,
    config=StaticVectorsConfig,
    build_trunk=lambda parts: StaticVectors(parts.model),
    build_objective=lambda parts: StaticObjective(),
    build_layout=lambda ids, context, direction: PlainLayout(ids, context),
    causal=False,
    objective_config=VectorSettings,
    learn=VectorLearner,
    learns_words=True,
)
