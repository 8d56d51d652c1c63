"""What a translation model is worth: its loss on pairs that it has not seen, and the BLEU of what it writes.

The loss and its perplexity are a target word's, with the end. BLEU is sacrebleu's, of whole lines against the lines of
the file as they are, whatever the model's vocabulary leaves out.

Where the decoder of a translation looks for each word: α_t of the paper's equations (`nn/recurrent/cove.py`).

    α_t = softmax(H (W₁ s_t + b₁))     over the words of the source

A translation that the run writes itself is read once more after its search, alone and word by word as it stands: what
other beams looked at has no part in it, nor have the padding and the other sentences of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretext.batch import length_batches
from foretext.errors import UserError
from foretext.generate.beam_search import Hypothesis, Search, Symbols, beam_search
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Translator
from foretext.runs.model import SavedModel, mean_losses
from foretext.tasks.scores.text_metrics import bleu, bleu_metric
from foretext.text.words.word_list import END, JOINED, START, UNKNOWN, marked_text, marked_words

LOGITS = 1 << 24  # scores of words that are computed at a time
SYMBOLS = Symbols(START, END, never=(START, UNKNOWN))


@dataclass(frozen=True)
class TranslationScores:
    loss: float  # nats a target word, the end included
    perplexity: float
    bleu: float
    signature: str  # how sacrebleu counted
    pairs: int  # lines that were scored


def translator(model: SavedModel, what: str) -> tuple[Trunk, Translator]:
    """Encoder and decoder of a run that was trained to translate; UserError for any other."""
    found = None if model.objective is None else model.objective.translator()
    if found is not None:
        return model.trunk, found
    if model.task is not None:
        raise UserError(
            f"{model.where} is fine-tuned and has no decoder: {what} needs the pre-trained run it was made from"
        )
    raise UserError(
        f"{model.where} is of {model.system.name}, which does not translate: {what} needs a run of "
        "pretrain --system cove"
    )


def translate_lines(
    model: SavedModel, lines: Sequence[str], search: Search, progress: Callable[[int, int], None] | None = None
) -> list[str]:
    """A line for each line; an empty one for one without words."""
    trunk, objective = translator(model, "a translation")
    return translations(trunk, objective, source_ids(model, lines), search, progress)


def source_ids(model: SavedModel, lines: Sequence[str]) -> list[np.ndarray]:
    return [model.tokenizer.encode_array(line).astype(np.int64) for line in lines]


def score_files(
    model: SavedModel,
    source: str | Path,
    target: str | Path,
    search: Search,
    language: str = "",
    errors: str = "strict",
    progress: Callable[[int, int], None] | None = None,
) -> TranslationScores:
    """Loss and BLEU on two files, line n of one the translation of line n of the other; no pair is too long."""
    trunk, objective = translator(model, "a score of translations")
    bleu_metric(language)  # what is missing is known before everything is translated
    pairs, references = objective.pairs_in(source, target, errors)
    return score_translations(trunk, objective, pairs, references, search, language, progress)


def translations(
    trunk: Trunk,
    objective: Translator,
    sources: Sequence[np.ndarray],
    search: Search,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """A line for each source, in their order; of one without words, an empty one. One beam is greedy search."""
    found = hypotheses(trunk, objective, sources, search, progress)
    return [marked_text(objective.words.decode(one.ids)) for one in found]


@torch.no_grad()
def hypotheses(
    trunk: Trunk,
    objective: Translator,
    sources: Sequence[np.ndarray],
    search: Search,
    progress: Callable[[int, int], None] | None = None,
) -> list[Hypothesis]:
    """The best that the search finds for each source, in their order; of one without words, one without words."""
    trunk.eval()
    objective.eval()
    device = next(trunk.parameters()).device
    read = [number for number, source in enumerate(sources) if len(source)]
    found = dict.fromkeys(range(len(sources)), Hypothesis((), 0.0, ended=False))
    done = len(sources) - len(read)
    for indices in _groups(sources, read, max(1, LOGITS // (search.beams * objective.words.size))):
        pairs = [objective.pair(sources[index], np.array([END])) for index in indices]
        state = objective.start(trunk, objective.make(pairs).to(device))
        limits = search.limits(len(pair.source) for pair in pairs)
        best = [several[0] for several in beam_search(objective, state, limits, SYMBOLS, search, device)]
        done += len(indices)
        if progress is not None:
            progress(done, len(sources))
        found |= dict(zip(indices, best))
    return [found[index] for index in range(len(sources))]


def _groups(sources: Sequence[np.ndarray], read: Sequence[int], rows: int) -> Iterator[list[int]]:
    """Sources of like length, at most so many at a time."""
    for group in length_batches([len(sources[number]) for number in read]):
        for start in range(0, len(group), rows):
            yield [read[place] for place in group[start : start + rows]]


@torch.no_grad()
def score_translations(
    trunk: Trunk,
    objective: Translator,
    pairs: Sequence[Any],
    references: Sequence[str],
    search: Search | None = None,
    language: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> TranslationScores:
    """`references`: the lines of the targets' file. Without a search, the likeliest word each time."""
    assert len(pairs) == len(references) > 0
    groups = length_batches([len(pair.source) + len(pair.target) for pair in pairs])
    device = next(trunk.parameters()).device
    batches = [objective.make([pairs[index] for index in indices]).to(device) for indices in groups]
    loss = mean_losses(trunk, objective, batches)[objective.perplexity[0]]
    sources = [pair.source for pair in pairs]
    written = translations(trunk, objective, sources, search or Search(beams=1), progress)
    wanted = [line.lower() if objective.lower else line for line in references]
    score, signature = bleu(written, [[line] for line in wanted], language)
    return TranslationScores(loss, math.exp(min(loss, 700.0)), score, signature, len(pairs))


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

    def to_dict(self) -> dict[str, object]:
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
    if targets is None:
        found = hypotheses(trunk, objective, sources, search, progress)
        translated = [_written(objective, one.ids, one.ended) for one in found]
    else:
        _check(lines, sources, targets)
        translated = [_given(objective, line, number) for number, line in enumerate(targets)]
    pairs = [objective.pair(source, one.ids) for source, one in zip(sources, translated)]
    weights = _weights(trunk, objective, pairs)
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
def _weights(trunk: Trunk, objective: Translator, pairs: Sequence[Any]) -> list[np.ndarray]:
    """α of each pair, [target, source], in their order."""
    trunk.eval()
    objective.eval()
    device = next(trunk.parameters()).device
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
