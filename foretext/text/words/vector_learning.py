"""Word vectors by negative sampling (Mikolov et al. 2013), learned by gensim's compiled code from token shards.

A step is a chunk of text: its ids are written as lines of numbers into small files, one for each thread, and gensim's
file-based trainer reads them without Python's lock (`gensim.models.word2vec_corpusfile`). While the threads learn, the
next chunk is written. So memory and disk do not grow with the text, and whoever counts steps can stop between two.

What a step does depends on the vectors so far, (seed, number of the step) and the rates alone: the generator is seeded
anew for each chunk. With one thread the same steps give the same vectors, bit for bit. Several threads write to one
matrix without waiting for each other (Hogwild), as in word2vec itself, and no two runs are alike.

A document is a line; unknown words are left out of it, so that the window closes over them, as gensim has it. A chunk
cuts the document that it ends in.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foretext.errors import UserError
from foretext.text.corpus.token_shards import TokenShards

PROBE_WORDS = 20_000


@dataclass(frozen=True)
class VectorSettings:
    """[objective] of word vectors."""

    kind: Literal["cbow", "skipgram"] = "cbow"
    window: int = 10  # words on each side, at most: how many is drawn for each word
    negatives: int = 5  # words drawn for each word, to tell it from
    sample: float = 1e-4  # words with a larger share of the text are left out at random; 0: none are
    epochs: int = 10  # times that the text is read, where the budget does not end before
    lsa: int = 300  # dimensions of a latent semantic analysis of the same text, beside the vectors; 0: none

    def check(self) -> None:
        for name in ("window", "negatives", "epochs"):
            if not 1 <= getattr(self, name) <= 1_000:
                raise UserError(f"objective.{name} must be from 1 to 1000, not {getattr(self, name)}")
        if not 0.0 <= self.sample < 1.0:
            raise UserError(f"objective.sample must be at least 0 and below 1, not {self.sample}")
        if not 0 <= self.lsa <= 10_000:
            raise UserError(f"objective.lsa must be from 0 to 10000 dimensions, not {self.lsa}")


class TextStream:
    """Several splits of token shards as one: nothing is held back for validation, as there is no loss to validate."""

    def __init__(self, splits: Sequence[TokenShards]) -> None:
        self.splits = [split for split in splits if len(split)]

    def __len__(self) -> int:
        return sum(map(len, self.splits))

    def window(self, start: int, length: int) -> np.ndarray:
        parts = []
        for split in self.splits:
            taken = min(len(split), start + length) - start
            if start < len(split) and taken > 0:
                parts.append(split.window(start, taken))
                start, length = start + taken, length - taken
            start -= len(split)
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def counts(self, size: int, at_a_time: int = 4_000_000) -> np.ndarray:
        """How often each id stands there, int64 [size]."""
        found = np.zeros(size, dtype=np.int64)
        for start in range(0, len(self), at_a_time):
            found += np.bincount(self.window(start, min(at_a_time, len(self) - start)), minlength=size)
        return found


class VectorLearning:
    """`vectors_VD` and `outputs_VD`: the vectors of words, and those that words are told by. `folder`: a place for the
    files of chunks, which is this object's own and is emptied."""

    def __init__(
        self,
        text: TextStream,
        counts_V: np.ndarray,
        end: int,
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
        self._written = [b""] * self.size  # what stands for an id in a line
        for id in self.words.tolist():
            self._written[id] = b"%d" % id
        self._written[end] = b"\n"
        self._model, self._vocabulary = self._new_model(counts_V)
        self._ready: dict[int, list[_Part]] = {}
        self._clear()
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
            workers=1,  # of each file that is read
            sg=int(self.settings.kind == "skipgram"),
            negative=self.settings.negatives,
            epochs=1,
            sorted_vocab=0,  # the order of the ids
        )
        model.build_vocab_from_freq({str(id): int(counts_V[id]) for id in self.words.tolist()})
        return model, CythonVocab(model.wv)

    # -- the matrices --------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Vectors before the first step: uniform in ±.5 / width; those that words are told by begin at 0."""
        draw = np.random.default_rng([self.seed, 0])
        drawn = draw.random((len(self.words), self.width), dtype=np.float32)
        self._model.wv.vectors = (drawn - np.float32(0.5)) / np.float32(self.width)
        self._model.syn1neg = np.zeros((len(self.words), self.width), dtype=np.float32)

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """Both matrices with a row for each id, [size, width]; zeros for ids that are no words."""
        found = []
        for rows in (self._model.wv.vectors, self._model.syn1neg):
            found.append(np.zeros((self.size, self.width), dtype=np.float32))
            found[-1][self.words] = rows
        return found[0], found[1]

    def put(self, vectors_VD: np.ndarray, outputs_VD: np.ndarray) -> None:
        """Goes on from these."""
        self._model.wv.vectors = np.ascontiguousarray(vectors_VD[self.words])
        self._model.syn1neg = np.ascontiguousarray(outputs_VD[self.words])

    # -- steps ---------------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return self.settings.epochs * self.steps_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.text) // self.step_words)

    def step(self, number: int, rates: tuple[float, float]) -> int:
        """Learns from the chunk of this step, at rates that fall from one to the other; returns how many words it
        has."""
        parts = self._ready.pop(number, None) or self._prepare(number)
        self._ready = {}
        work = [_Work(self, part, rates) for part in parts if part.known]
        self._model.random = np.random.RandomState(_mixed(self.seed, number))
        for one in work:
            one.start()
        try:
            if number + 1 < self.steps:
                self._ready[number + 1] = self._prepare(number + 1)
        finally:
            for one in work:
                one.join()
        for one in work:
            if one.failure is not None:
                raise one.failure
        return sum(part.words for part in parts)

    def _prepare(self, number: int) -> list[_Part]:
        """The chunk of a step in files, one for each thread."""
        start = number % self.steps_per_epoch * self.step_words
        return self._write(start, min(self.step_words, len(self.text) - start), str(number % 2))

    def _write(self, start: int, length: int, name: str) -> list[_Part]:
        ids = self.text.window(start, length)
        parts = []
        for thread, own in enumerate(np.array_split(ids, self.threads)):
            path = self.folder / f"{name}.{thread}"
            # A line that ends at the end of the file would be lost where gensim's buffer is full.
            path.write_bytes(b" ".join(map(self._written.__getitem__, own.tolist())) + b"\n")
            parts.append(_Part(path, int(self._known_V[own].sum()), int((own != self.end).sum())))
        return parts

    def speed(self) -> float:
        """Words a second, measured; the vectors are drawn anew afterwards."""
        parts = self._write(0, min(PROBE_WORDS * self.threads, len(self.text)), "probe")
        rate = 0.0  # nothing is learned, and everything is computed
        begun = time.perf_counter()
        work = [_Work(self, part, (rate, rate)) for part in parts if part.known]
        for one in work:
            one.start()
        for one in work:
            one.join()
        took = time.perf_counter() - begun
        self.draw()
        return sum(part.words for part in parts) / max(took, 1e-6)

    def close(self) -> None:
        self._ready = {}
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class _Part:
    path: Path
    known: int  # words in it that have vectors
    words: int  # all of them


class _Work(threading.Thread):
    """One thread's part of a step."""

    def __init__(self, learning: VectorLearning, part: _Part, rates: tuple[float, float]) -> None:
        super().__init__(daemon=True)
        self.learning, self.part, self.rates = learning, part, rates
        self.failure: BaseException | None = None

    def run(self) -> None:
        from gensim.matutils import zeros_aligned
        from gensim.models.word2vec_corpusfile import train_epoch_cbow, train_epoch_sg

        model, learning = self.learning._model, self.learning
        model.alpha, model.min_alpha = self.rates  # the same for all threads of a step
        work, inner = (zeros_aligned(learning.width, dtype=np.float32) for _ in range(2))
        train = train_epoch_sg if learning.settings.kind == "skipgram" else train_epoch_cbow
        try:
            # Of the file from its beginning: epoch 0 of 1; the rate falls with the words read, of so many.
            train(model, str(self.part.path), 0, learning._vocabulary, 0, None, self.part.known, work, inner, False)
        except BaseException as error:
            self.failure = error


def _mixed(seed: int, number: int) -> int:
    """32 bits of (seed, number of a step)."""
    return int(np.random.SeedSequence([seed, number, 1]).generate_state(1)[0])
