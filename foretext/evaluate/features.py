"""Contextual vectors of texts and of words, from any layer or a mix of layers, for every system: from its pre-trained
runs, or from fine-tuned ones if the system has no pre-training (cross-view training).

A text's vector is the mean of its tokens' states, without the special tokens that a masked system adds (a causal
system's end-of-text counts), unless the objective does it differently (`text_vectors`: word vectors are weighted by how
rare the words are). A word's vector is the mean of its pieces' states. Layers are numbered from 0, the embeddings, to
the number of blocks; "top" is what the model's own head reads, after the final norm if there is one.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from foretext.batch import Batch
from foretext.errors import UserError, refuse_if
from foretext.runs.model import SavedModel
from foretext.runs.reading import Progress, Reading, given_texts, read_as, states_of
from foretext.runs.report import Reporter, Warns
from foretext.text.tokenizers.base import encode_texts

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class LayerMix:
    """Layers and their weights; none: the top."""

    layers: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()  # empty: equal weights
    each: bool = False  # layers side by side, not added up; without `layers`, all of them

    @classmethod
    def of(cls, layers: Sequence[int], weights: Sequence[float], each: bool) -> LayerMix:
        """From any sequences of numbers that a Python user gives."""
        try:
            return cls(tuple(map(operator.index, layers)), tuple(map(float, weights)), each)
        except (TypeError, ValueError):
            raise UserError(
                f"layers and weights are lists of numbers, as layers=[0, 4] and weights=[.5, .5], not {layers!r} and "
                f"{weights!r}"
            ) from None

    def chosen(self, count: int) -> tuple[int, ...]:
        """The layers to read; by default all layers and the embeddings if `each`, otherwise the top."""
        return self.layers or (tuple(range(count + 1)) if self.each else ())

    def widths(self, model: SavedModel) -> tuple[int, ...]:
        """The width of a vector, or of each layer's if they are side by side; UserError if the model has no such
        mix."""
        config = model.model_config
        refuse_if(
            self.each and self.weights,
            "weights are for layers that are added up, but each layer is given by itself; leave them out",
        )
        for layer in self.layers:
            refuse_if(
                not 0 <= layer <= config.layers,
                f"there is no layer {layer}: layers are 0 (the embeddings) to {config.layers}",
            )
        refuse_if(
            self.weights and len(self.weights) != len(self.layers),
            f"{len(self.weights)} weights for {len(self.layers)} layers; give one for each",
        )
        for weight in self.weights:
            refuse_if(not math.isfinite(weight), f"{weight} is not a valid weight of a layer; give a finite number")
        layers = self.chosen(config.layers)
        widths = tuple(config.layer_widths[layer] for layer in layers) or (config.width,)
        if self.each:
            return widths
        if len(set(widths)) > 1:
            sizes = ", ".join(f"layer {layer} has {width}" for layer, width in zip(layers, widths))
            raise UserError(
                f"layers of different widths cannot be added up ({sizes} dimensions); take one at a time, or each by "
                "itself (--each, in Python each=True)"
            )
        return widths[:1]

    def parts(self, model: SavedModel, vectors: np.ndarray) -> list[np.ndarray]:
        """[rows, width] of each layer, from vectors that hold them side by side; without `each`, the vectors."""
        return np.split(vectors, np.cumsum(self.widths(model))[:-1], axis=1)

    def arranged(self, model: SavedModel, vectors: np.ndarray) -> np.ndarray:
        """[rows, width]; with `each` [rows, layers, width], or, if layers differ in width, an array of vectors [rows,
        layers]. In both cases [row, layer] is a row's vector from that layer."""
        if not self.each:
            return vectors
        parts = self.parts(model, vectors)
        if len(set(self.widths(model))) == 1:
            return np.stack(parts, axis=1)
        apart = np.empty((len(vectors), len(parts)), dtype=object)
        for layer, part in enumerate(parts):
            for row, vector in enumerate(part):
                apart[row, layer] = vector
        return apart

    def states(self, model: SavedModel, batch: Batch) -> Tensor:
        """[B, T, D]."""
        layers = self.chosen(model.model_config.layers)
        if not layers:
            return model.trunk(batch).top
        states = model.trunk(batch, keep_layers=True).layers
        if self.each:
            return torch.cat([states[layer] for layer in layers], dim=-1)
        weights = self.weights or (1.0 / len(self.layers),) * len(self.layers)
        return torch.stack([weight * states[layer] for weight, layer in zip(weights, self.layers)]).sum(0)


TOP = LayerMix()


@dataclass(frozen=True)
class WordVectors:
    """The words of one text, their character offsets in it, and a vector for each: float32 [words, width], or as in
    `LayerMix.arranged`."""

    words: list[str]
    places: list[tuple[int, int]]
    vectors: np.ndarray


class GivesVectors:
    """The methods of `LanguageModel` and `TaskModel` that give vectors."""

    model: SavedModel

    def check_gives_vectors(self) -> None:
        """UserError for a fine-tuned run if its system has pre-trained ones: its layers have been trained for the
        task."""
        refuse_if(
            self.model.task is not None and self.model.system.learns_from != "rows",
            f"{self.model.where} is fine-tuned, but vectors need a pre-trained run: use the one that it was made from",
        )

    def features(
        self,
        texts: str | Sequence[str],
        progress: Progress | None = None,
        reporter: Reporter | None = None,
        layers: Sequence[int] = (),
        weights: Sequence[float] = (),
        each: bool = False,
    ) -> np.ndarray:
        """One vector per text, the mean of its tokens' states: float32 [texts, width]. `layers`: the layers to add up
        with `weights` (default: their mean); 0 is the embeddings; default: the top. `each`: layers are not added up,
        [texts, layers, width]; without `layers`, all of them. If layers differ in width, `each` gives an array of
        vectors [texts, layers], where `np.stack(vectors[:, 1])` is [texts, width] of the second layer."""
        mix = self._mix(layers, weights, each)
        return mix.arranged(self.model, text_vectors(self.model, given_texts(texts, "texts"), progress, reporter, mix))

    def word_features(
        self,
        texts: str | Sequence[str],
        progress: Progress | None = None,
        reporter: Reporter | None = None,
        layers: Sequence[int] = (),
        weights: Sequence[float] = (),
        each: bool = False,
    ) -> list[WordVectors]:
        """For each text its words, their character offsets, and a vector for each, the mean of its pieces' states; with
        `each` [words, layers, width], or vectors [words, layers], as in `features`."""
        mix = self._mix(layers, weights, each)
        of_texts = word_vectors(self.model, given_texts(texts, "texts"), progress, reporter, mix)
        return [replace(words, vectors=mix.arranged(self.model, words.vectors)) for words in of_texts]

    def _mix(self, layers: Sequence[int], weights: Sequence[float], each: bool) -> LayerMix:
        self.check_gives_vectors()
        return LayerMix.of(layers, weights, each)

    def vector_widths(self, mix: LayerMix) -> tuple[int, ...]:
        """The width of a vector, or of each layer's if they are side by side; UserError if the run gives no such
        vectors."""
        self.check_gives_vectors()
        return mix.widths(self.model)

    def vector_table(
        self,
        texts: Sequence[str],
        words: bool = False,
        mix: LayerMix = TOP,
        progress: Progress | None = None,
        reporter: Reporter | None = None,
    ) -> polars.DataFrame:
        """A table with a row for each text, or for each word with the number of its text (from 1) and its character
        offsets there. Layers that are not added up have columns of their own."""
        import polars

        self.check_gives_vectors()
        about: dict[str, list[str] | list[int]]
        if words:
            of_texts = word_vectors(self.model, texts, progress, reporter, mix)
            vectors, about = np.concatenate([one.vectors for one in of_texts]), _places_of_words(of_texts)
        else:
            vectors, about = text_vectors(self.model, texts, progress, reporter, mix), {"text": list(texts)}
        layers = mix.chosen(self.model.model_config.layers)
        names = [f"layer_{layer}" for layer in layers] if mix.each else ["vector"]
        numbers = polars.List(polars.Float32)
        columns = [
            polars.Series(part, dtype=polars.Array(polars.Float32, part.shape[1])).cast(numbers)
            for part in mix.parts(self.model, vectors)
        ]
        return polars.DataFrame({**about, **dict(zip(names, columns))})


def _places_of_words(of_texts: Sequence[WordVectors]) -> dict[str, list[str] | list[int]]:
    """For each word the number of its text, itself, and its character offsets."""
    return {
        "text": [number for number, words in enumerate(of_texts, 1) for _ in words.words],
        "word": [word for words in of_texts for word in words.words],
        "start": [start for words in of_texts for start, _ in words.places],
        "end": [end for words in of_texts for _, end in words.places],
    }


def text_vectors(
    model: SavedModel,
    texts: Sequence[str],
    progress: Progress | None = None,
    reporter: Reporter | None = None,
    mix: LayerMix = TOP,
) -> np.ndarray:
    """One float32 vector for each text, layers side by side; of a text longer than the context only the beginning
    counts. `progress` gets the number of vectors; `reporter` gets the progress of encoding and notes about texts that
    were cut (without one, these are Python warnings)."""
    width = sum(mix.widths(model))
    reporter = reporter or Warns()
    arrays = encode_texts(texts, model.tokenizer, functools.partial(reporter.work, "encoding"))
    whole = None if model.objective is None else model.objective.text_vectors(model.trunk, arrays)
    if whole is not None:
        return whole
    readings = _readings(model, [ids.tolist() for ids in arrays], reporter)
    vectors = np.zeros((len(texts), width), dtype=np.float32)
    for number, states in states_of(model, readings, functools.partial(mix.states, model), progress):
        reading = readings[number]
        of_reading = states if model.system.causal else states[reading.first : reading.first + reading.count]
        if len(of_reading):
            vectors[number] = of_reading.mean(0)
    return vectors


def word_vectors(
    model: SavedModel,
    texts: Sequence[str],
    progress: Progress | None = None,
    reporter: Reporter | None = None,
    mix: LayerMix = TOP,
) -> list[WordVectors]:
    """The words of each text that fit the context completely. In scripts without spaces a word is a piece, or a
    character. `progress` and `reporter`: as in `text_vectors`."""
    width = sum(mix.widths(model))
    encoded = [model.tokenizer.encode_with_offsets(text) for text in texts]
    readings = _readings(model, [ids for ids, _ in encoded], reporter or Warns())
    of_texts: list[WordVectors | None] = [None] * len(texts)
    for number, states in states_of(model, readings, functools.partial(mix.states, model), progress):
        reading = readings[number]
        of_reading = states[reading.first : reading.first + reading.count]
        if model.info.direction == "backward":
            of_reading = of_reading[::-1]
        of_texts[number] = _by_word(model, texts[number], *encoded[number], of_reading, width)
    return [words for words in of_texts if words is not None]


def _readings(model: SavedModel, encoded: Sequence[Sequence[int]], reporter: Reporter) -> list[Reading]:
    readings = [read_as(model, ids) for ids in encoded]
    cut = sum(reading.count < len(ids) for reading, ids in zip(readings, encoded))
    if cut:
        context = model.model_config.context if model.system.causal else model.model_config.reads
        reporter.note(
            f"{cut:,} of {len(readings):,} texts are longer than the context of {context} tokens: only their beginning "
            "is used"
        )
    return readings


def _by_word(
    model: SavedModel, text: str, ids: list[int], offsets: list[tuple[int, int]], states: np.ndarray, width: int
) -> WordVectors:
    """The words whose pieces all have a state; `states` may be shorter than `ids`."""
    starts = np.flatnonzero(model.tokenizer.word_starts(np.array(ids, dtype=np.int64)))
    words, places, vectors = [], [], []
    for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(ids)]):
        if last > len(states):
            break
        start, stop = offsets[first][0], offsets[last - 1][1]
        word = text[start:stop]
        if word.strip():
            start += len(word) - len(word.lstrip())
            words.append(word.strip())
            places.append((start, start + len(word.strip())))
            vectors.append(states[first:last].mean(0))
    return WordVectors(words, places, np.array(vectors, dtype=np.float32).reshape(len(words), width))
