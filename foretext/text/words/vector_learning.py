"""Word vectors by negative sampling (Mikolov et al. 2013), learned by gensim's compiled code from token shards.

A step is a chunk of text. Its ids are written as lines of numbers into small files, one per thread, and gensim's
file-based trainer reads them without Python's lock (`gensim.models.word2vec_corpusfile`). While the threads learn, the
next chunk is written. So memory and disk do not grow with the text, and training can stop between two steps.

The result of a step depends only on the current vectors, (seed, step number) and the rates: the generator is seeded
anew for each chunk. With one thread the same steps give the same vectors, bit for bit. Several threads write to one
matrix without locks (Hogwild), as in word2vec itself, so no two runs are alike.

A document is a line. Unknown words are left out, so that the window closes over them, as in gensim. A chunk may cut its
last document.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foretext.errors import check_range
from foretext.text.corpus.shards import TokenShards

PROBE_WORDS = 20_000
COUNTED = 4_000_000  # ids at a time


@dataclass(frozen=True)
class VectorSettings:
    """[objective] of word vectors."""

    kind: Literal["cbow", "skipgram"] = "cbow"
    window: int = 10  # words on each side, at most: the number is drawn for each word
    negatives: int = 5  # negative samples per word
    sample: float = 1e-4  # words with a larger share of the text are randomly left out; 0: none
    epochs: int = 10  # passes over the text, unless the budget ends earlier
    lsa: int = 300  # dimensions of a latent semantic analysis of the same text, beside the vectors; 0: none

    def check(self) -> None:
        check_range("objective", self, "at least 1 and at most 1,000", "window", "negatives", "epochs")
        check_range("objective", self, "at least 0 and below 1", "sample")
        check_range("objective", self, "at least 0 and at most 10,000", "lsa")


def whole_text(splits: Sequence[TokenShards]) -> TokenShards:
    """Several splits as one: nothing is held out, since there is no loss to validate."""
    first = splits[0]
    return TokenShards(first.folder, "all", first.manifest, [array for split in splits for array in split.arrays])


def id_counts(text: TokenShards, size: int) -> np.ndarray:
    """How often each id occurs, int64 [size]."""
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(text), COUNTED):
        counts += np.bincount(text.window(start, min(COUNTED, len(text) - start)), minlength=size)
    return counts


class VectorLearning:
    """`vectors_VD` and `outputs_VD`: the word vectors, and the output vectors that predict words. `end`: the id after
    each document. `folder`: a place for the chunk files; it belongs to this object and is emptied."""

    def __init__(
        self,
        text: TokenShards,
        end: int,
        counts_V: np.ndarray,
        settings: VectorSettings,
        width: int,
        step_words: int,
        seed: int,
        threads: int,
        folder: Path,
    ) -> None:
        self.text, self.end, self.settings, self.seed, self.threads = text, end, settings, seed, threads
        self.step_words = max(1, min(step_words, len(text)))
        self.folder = folder
        self.words = np.flatnonzero(counts_V)  # ids that have vectors
        self.size, self.width = len(counts_V), width
        self._known_V = counts_V > 0
        self._written = [b""] * self.size  # how each id is written in a line
        for id in self.words.tolist():
            self._written[id] = b"%d" % id
        self._written[end] = b"\n"
        self._model, self._vocabulary = self._new_model(counts_V)
        self._ready: dict[int, list[_Part]] = {}
        self.close()
        folder.mkdir(parents=True, exist_ok=True)
        self.draw()

    def _new_model(self, counts_V: np.ndarray) -> tuple[Any, Any]:
        from gensim.models import Word2Vec
        from gensim.models.word2vec_corpusfile import CythonVocab

        model = Word2Vec(
            vector_size=self.width,
            window=self.settings.window,
            min_count=1,
            sample=self.settings.sample,
            workers=1,  # for each file that is read
            sg=int(self.settings.kind == "skipgram"),
            negative=self.settings.negatives,
            epochs=1,
            sorted_vocab=0,  # keeps the order of the ids
        )
        model.build_vocab_from_freq({str(id): int(counts_V[id]) for id in self.words.tolist()})
        return model, CythonVocab(model.wv)

    # -- the matrices --------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """The initial vectors: uniform in ±.5 / width; output vectors start at 0."""
        drawn = np.random.default_rng([self.seed, 0]).random((len(self.words), self.width), dtype=np.float32)
        self._model.wv.vectors = (drawn - np.float32(0.5)) / np.float32(self.width)
        self._model.syn1neg = np.zeros_like(drawn)

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """Both matrices with one row per id, [size, width]; zeros for ids that are not words."""
        vectors, outputs = np.zeros((2, self.size, self.width), dtype=np.float32)
        vectors[self.words], outputs[self.words] = self._model.wv.vectors, self._model.syn1neg
        return vectors, outputs

    def put(self, vectors_VD: np.ndarray, outputs_VD: np.ndarray) -> None:
        """Continues from these matrices."""
        self._model.wv.vectors = np.ascontiguousarray(vectors_VD[self.words])
        self._model.syn1neg = np.ascontiguousarray(outputs_VD[self.words])

    # -- steps ---------------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """The number of steps in all epochs."""
        return self.settings.epochs * self.steps_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.text) // self.step_words)

    def step(self, number: int, rates: tuple[float, float]) -> int:
        """Learns from the chunk of this step, with a rate that falls from the first to the second value; returns the
        number of words in it."""
        parts = self._ready.pop(number, None) or self._prepare(number)
        self._ready = {}
        self._model.random = np.random.RandomState(_mixed(self.seed, number))
        with ThreadPoolExecutor(len(parts)) as threads:
            work = self._started(threads, parts, rates)
            if number + 1 < self.steps:
                self._ready[number + 1] = self._prepare(number + 1)
        for part in work:
            part.result()
        return sum(part.words for part in parts)

    def _started(self, threads: ThreadPoolExecutor, parts: list[_Part], rates: tuple[float, float]) -> list[Future]:
        """Starts each part of a step in its own thread."""
        self._model.alpha, self._model.min_alpha = rates
        return [threads.submit(self._learn, part) for part in parts if part.known]

    def _learn(self, part: _Part) -> None:
        from gensim.matutils import zeros_aligned
        from gensim.models.word2vec_corpusfile import train_epoch_cbow, train_epoch_sg

        work, inner = (zeros_aligned(self.width, dtype=np.float32) for _ in range(2))
        train = train_epoch_sg if self.settings.kind == "skipgram" else train_epoch_cbow
        # From the beginning of the file: epoch 0 of 1; the rate falls with the number of words read, out of this total.
        train(self._model, str(part.path), 0, self._vocabulary, 0, None, part.known, work, inner, False)

    def _prepare(self, number: int) -> list[_Part]:
        """Writes the chunk of a step into files, one per thread."""
        start = number % self.steps_per_epoch * self.step_words
        return self._write(start, min(self.step_words, len(self.text) - start), str(number % 2))

    def _write(self, start: int, length: int, name: str) -> list[_Part]:
        ids = self.text.window(start, length)
        parts = []
        for thread, share in enumerate(np.array_split(ids, self.threads)):
            path = self.folder / f"{name}.{thread}"
            # gensim would lose a line that ends at the end of the file when its buffer is full.
            path.write_bytes(b" ".join(map(self._written.__getitem__, share.tolist())) + b"\n")
            parts.append(_Part(path, int(self._known_V[share].sum()), int((share != self.end).sum())))
        return parts

    def speed(self) -> float:
        """Words per second, measured; the vectors are drawn anew afterwards."""
        parts = self._write(0, min(PROBE_WORDS * self.threads, len(self.text)), "probe")
        begun = time.perf_counter()
        with ThreadPoolExecutor(len(parts)) as threads:
            self._started(threads, parts, (0.0, 0.0))  # at rate 0 everything is computed but nothing is learned
        took = time.perf_counter() - begun
        self.draw()
        return sum(part.words for part in parts) / max(took, 1e-6)

    def close(self) -> None:
        self._ready = {}
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class _Part:
    path: Path
    known: int  # words in it that have vectors
    words: int  # all its words


def _mixed(seed: int, number: int) -> int:
    """32 bits from (seed, step number)."""
    return int(np.random.SeedSequence([seed, number, 1]).generate_state(1)[0])
