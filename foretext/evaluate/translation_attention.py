"""Where the decoder of a translation looks for each word: α_t of the paper's equations (`nn/recurrent/translation.py`).

    α_t = softmax(H (W₁ s_t + b₁))     over the words of the source

A translation that the run writes itself is read once more after its search, alone and word by word as it stands: what
other beams looked at has no part in it, nor have the padding and the other sentences of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from foretext.batch import length_batches
from foretext.errors import UserError
from foretext.evaluate.translation import hypotheses, source_ids, translator
from foretext.generate.beam_search import Search
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Translator
from foretext.runs.model import SavedModel
from foretext.text.words.word_list import END, JOINED, UNKNOWN, marked_text, marked_words

ENDED = "<end>"  # the row of the end; no word is written so, for < is one by itself


@dataclass(frozen=True)
class TranslationAttention:
    """A row of `weights` is of a word of the translation, a column of a word of the text."""

    text: str
    translation: str
    source: tuple[str, ...]  # the text's words, as they are written there
    target: tuple[str, ...]  # the translation's, and `<end>` unless it was cut off at its limit
    weights: np.ndarray  # [target, source]; each row sums to 1
    unknown: tuple[str, ...]  # words of either that the vocabularies do not have

    def most(self, row: int, count: int = 3) -> list[tuple[int, float]]:
        """The places in `source` that a row looks at most, and their weights; of equal ones the first comes first."""
        places = np.argsort(-self.weights[row], kind="stable")[:count]
        return [(int(place), float(self.weights[row, place])) for place in places]

    def to_dict(self) -> dict[str, Any]:
        said = {"text": self.text, "translation": self.translation, "source": self.source, "target": self.target}
        return {**said, "weights": self.weights.tolist(), "unknown": self.unknown}


@dataclass(frozen=True)
class _Translated:
    """A translation as the decoder reads it: the words as they are shown, and their ids, the end included."""

    line: str
    words: tuple[str, ...]
    ids: np.ndarray


def translation_attention(
    model: SavedModel,
    lines: Sequence[str],
    search: Search,
    targets: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[TranslationAttention]:
    """Of the translations that the search finds, or of `targets`. A line without words has no rows and no columns."""
    trunk, objective = translator(model, "attention over a translation")
    sources = source_ids(model, lines)
    device = next(trunk.parameters()).device
    if targets is None:
        found = hypotheses(trunk, objective, sources, search, device, progress)
        translated = [_written(objective, one.ids, one.ended) for one in found]
    else:
        _check(lines, sources, targets)
        translated = [_given(objective, line, number) for number, line in enumerate(targets)]
    pairs = [objective.pair(source, one.ids) for source, one in zip(sources, translated)]
    weights = _weights(trunk, objective, pairs, device)
    return [_result(model, *parts) for parts in zip(lines, sources, translated, weights)]


def _check(lines: Sequence[str], sources: Sequence[np.ndarray], targets: Sequence[str]) -> None:
    if len(lines) != len(targets):
        raise UserError(f"{len(lines)} texts and {len(targets)} targets: give each text its own translation")
    for number, source in enumerate(sources):
        if not len(source):
            raise UserError(f"texts[{number}] has no words to look at; leave it and its target out")


def _written(objective: Translator, ids: tuple[int, ...], ended: bool) -> _Translated:
    words = objective.words.decode(ids)
    return _translated(marked_text(words), words, ids, ended)


def _given(objective: Translator, line: str, number: int) -> _Translated:
    """A translation from outside, with the words that it has in training."""
    words = marked_words((line.lower() if objective.lower else line).replace("\n", " "))
    if not words:
        raise UserError(f"targets[{number}] has no words; give a translation, or no targets for the run's own")
    return _translated(line, words, objective.words.encode(words).tolist(), True)


def _translated(line: str, words: Sequence[str], ids: Sequence[int], ended: bool) -> _Translated:
    shown = [*(word.removeprefix(JOINED) for word in words), *([ENDED] if ended else [])]
    return _Translated(line, tuple(shown), np.array([*ids, *([END] if ended else [])], dtype=np.int64))


@torch.no_grad()
def _weights(trunk: Trunk, objective: Translator, pairs: Sequence[Any], device: torch.device) -> list[np.ndarray]:
    """α of each pair, [target, source], in their order."""
    trunk.eval()
    objective.eval()
    found = [np.zeros((0, len(pair.source)), dtype=np.float32) for pair in pairs]
    read = [number for number, pair in enumerate(pairs) if len(pair.source) and len(pair.target)]
    for group in length_batches([len(pairs[number].source) + len(pairs[number].target) for number in read]):
        numbers = [read[place] for place in group]
        weights_BTS = objective.attention(trunk, objective.make([pairs[number] for number in numbers]).to(device))
        for number, weights_TS in zip(numbers, weights_BTS.cpu().numpy()):
            found[number] = weights_TS[: len(pairs[number].target), : len(pairs[number].source)].copy()
    return found


def _result(
    model: SavedModel, text: str, source: np.ndarray, translated: _Translated, weights: np.ndarray
) -> TranslationAttention:
    _, places = model.tokenizer.encode_with_offsets(text)
    words = tuple(text[start:end] for start, end in places)
    unknown = [word for word, id in zip(words, source.tolist()) if id == model.tokenizer.unknown]
    unknown += [word for word, id in zip(translated.words, translated.ids.tolist()) if id == UNKNOWN]
    return TranslationAttention(text, translated.line, words, translated.words, weights, tuple(dict.fromkeys(unknown)))
