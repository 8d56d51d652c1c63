"""The quality of a translation model: its loss on unseen pairs, and the BLEU of its translations. Also its attention.

Loss and perplexity are per target word, end symbol included. BLEU is sacrebleu's, on whole lines against the unchanged
lines of the file, whatever the model's vocabulary leaves out.

Where the decoder attends for each word of a translation is α_t in the paper's equations (`nn/recurrent/cove.py`):

    α_t = softmax(H (W₁ s_t + b₁))     over the words of the source

A translation that the run writes itself is read once more after the search, alone and word by word, so that neither
other beams nor padding nor the other sentences of a batch affect it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretext.batch import length_batches
from foretext.errors import UserError, refuse_if
from foretext.generate.many import Hypothesis, Rules, search_translations
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Translator
from foretext.runs.model import SavedModel, mean_losses
from foretext.tasks.scores.text_metrics import bleu, bleu_metric
from foretext.text.words.word_list import END, JOINED, UNKNOWN, marked_text, marked_words

LOGITS = 1 << 24  # logits computed at a time
BEAMS = 5
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class TranslationScores:
    loss: float  # nats per target word, end included
    perplexity: float
    bleu: float
    signature: str  # sacrebleu's settings
    pairs: int  # lines that were scored

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"pairs       {self.pairs:,}",
            f"loss        {self.loss:.4f}  (nats per target word, end of sentence included)",
            f"perplexity  {self.perplexity:.2f}",
            f"BLEU        {self.bleu:.2f}  ({self.signature})",
        ]


def translator(model: SavedModel, what: str) -> tuple[Trunk, Translator]:
    """Encoder and decoder of a run that was trained to translate; UserError for any other."""
    objective = None if model.objective is None else model.objective.translator()
    if objective is not None:
        return model.trunk, objective
    refuse_if(
        model.task is not None,
        f"{model.where} is fine-tuned and has no decoder, but {what} needs the pre-trained run it was made from",
    )
    raise UserError(
        f"{model.where} is of {model.system.name}, which does not translate, but {what} needs a run of pretrain "
        "--system cove"
    )


def translate_lines(
    model: SavedModel, lines: Sequence[str], beams: int = BEAMS, progress: Progress | None = None
) -> list[str]:
    """A line for each line; empty for a line without words."""
    trunk, objective = translator(model, "a translation")
    return _lines(objective, translations(trunk, objective, source_ids(model, lines), beams, progress))


def source_ids(model: SavedModel, lines: Sequence[str]) -> list[np.ndarray]:
    return [model.tokenizer.encode_array(line).astype(np.int64) for line in lines]


def _lines(objective: Translator, hypotheses: Sequence[Hypothesis]) -> list[str]:
    return [marked_text(objective.words.decode(hypothesis.ids)) for hypothesis in hypotheses]


def score_files(
    model: SavedModel,
    source: str | Path,
    target: str | Path,
    beams: int = BEAMS,
    language: str = "",
    errors: str = "strict",
    progress: Progress | None = None,
) -> TranslationScores:
    """Loss and BLEU on two files; line n of the one is the translation of line n of the other. No pair is too long."""
    trunk, objective = translator(model, "a score of translations")
    bleu_metric(language)  # check that BLEU is available before translating
    pairs, references = objective.pairs_in(source, target, errors)
    return score_translations(trunk, objective, pairs, references, beams, language, progress)


@torch.no_grad()
def translations(
    trunk: Trunk,
    objective: Translator,
    sources: Sequence[np.ndarray],
    beams: int,
    progress: Progress | None = None,
) -> list[Hypothesis]:
    """The best translation of each source that the search finds, in order; empty for a source without words. The
    translation of a sentence of S words has at most 2 S + 10 words. One beam is greedy search."""
    rules = Rules(beams, END)
    trunk.eval()
    objective.eval()
    device = next(trunk.parameters()).device
    hypotheses = [Hypothesis((), 0.0)] * len(sources)
    read = [number for number, source in enumerate(sources) if len(source)]
    done, rows = len(sources) - len(read), max(1, LOGITS // (beams * objective.words.size))
    for group in length_batches([len(sources[number]) for number in read]):
        for start in range(0, len(group), rows):
            numbers = [read[place] for place in group[start : start + rows]]
            pairs = [objective.pair(sources[number], np.array([END])) for number in numbers]
            state = objective.start(trunk, objective.make(pairs).to(device))
            limits = [2 * len(sources[number]) + 10 for number in numbers]
            best = search_translations(objective.decode_step, state, limits, rules, device)
            for number, several in zip(numbers, best):
                hypotheses[number] = several[0]
            done += len(numbers)
            if progress is not None:
                progress(done, len(sources))
    return hypotheses


@torch.no_grad()
def score_translations(
    trunk: Trunk,
    objective: Translator,
    pairs: Sequence[Any],
    references: Sequence[str],
    beams: int,
    language: str = "",
    progress: Progress | None = None,
) -> TranslationScores:
    """`references`: the lines of the target file."""
    assert len(pairs) == len(references) > 0
    groups = length_batches([len(pair.source) + len(pair.target) for pair in pairs])
    device = next(trunk.parameters()).device
    batches = [objective.make([pairs[index] for index in indices]).to(device) for indices in groups]
    loss = mean_losses(trunk, objective, batches)[objective.perplexity[0]]
    written = _lines(objective, translations(trunk, objective, [pair.source for pair in pairs], beams, progress))
    wanted = [line.lower() if objective.lower else line for line in references]
    score, signature = bleu(written, [[line] for line in wanted], language)
    return TranslationScores(loss, math.exp(min(loss, 700.0)), score, signature, len(pairs))


ENDED = "<end>"  # label of the end's row; no word can be written like this, since < is always a word by itself


@dataclass(frozen=True)
class TranslationAttention:
    """A row of `weights` belongs to a word of the translation, a column to a word of the text."""

    text: str
    translation: str
    source: tuple[str, ...]  # the text's words, as written there
    target: tuple[str, ...]  # the translation's words, and `<end>` unless it was cut off at its limit
    weights: np.ndarray  # [target, source]; each row sums to 1
    unknown: tuple[str, ...]  # words of either that are not in the vocabularies

    def most(self, row: int, count: int = 3) -> list[tuple[int, float]]:
        """The positions in `source` with the largest weights in a row, and these weights; ties: first position
        first."""
        places = np.argsort(-self.weights[row], kind="stable")[:count]
        return [(int(place), float(self.weights[row, place])) for place in places]

    def to_dict(self) -> dict[str, object]:
        return asdict(self) | {"weights": self.weights.tolist()}


def translation_attention(
    model: SavedModel,
    lines: Sequence[str],
    beams: int = BEAMS,
    targets: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[TranslationAttention]:
    """Attention for the translations that the search finds, or for `targets`. A line without words has no rows and no
    columns."""
    trunk, objective = translator(model, "attention of a translation")
    sources = source_ids(model, lines)
    if targets is None:
        hypotheses = translations(trunk, objective, sources, beams, progress)
        targets, words = (
            _lines(objective, hypotheses),
            [objective.words.decode(hypothesis.ids) for hypothesis in hypotheses],
        )
        ended = [hypothesis.ended for hypothesis in hypotheses]
    else:
        words, ended = _given(objective, sources, targets), [True] * len(targets)
    ids = [[*objective.words.encode(target), *([END] * whole)] for target, whole in zip(words, ended)]
    pairs = [objective.pair(source, np.array(target, dtype=np.int64)) for source, target in zip(sources, ids)]
    results = []
    for line, target, of_target, pair, weights in zip(lines, targets, words, pairs, _weights(trunk, objective, pairs)):
        source = tuple(line[start:end] for start, end in model.tokenizer.encode_with_offsets(line)[1])
        rows = (*(word.removeprefix(JOINED) for word in of_target), *([ENDED] * (len(pair.target) - len(of_target))))
        unknown = [word for word, id in zip(source, pair.source) if id == model.tokenizer.unknown]
        unknown += [word for word, id in zip(rows, pair.target) if id == UNKNOWN]
        results.append(TranslationAttention(line, target, source, rows, weights, tuple(dict.fromkeys(unknown))))
    return results


def _given(objective: Translator, sources: Sequence[np.ndarray], targets: Sequence[str]) -> list[list[str]]:
    """The words of given translations, split as in training."""
    refuse_if(
        len(sources) != len(targets),
        f"{len(sources)} texts but {len(targets)} targets: give each text one translation",
    )
    of_lines = []
    for number, (source, line) in enumerate(zip(sources, targets)):
        refuse_if(not len(source), f"texts[{number}] has no words; leave out this text and its target")
        words = marked_words((line.lower() if objective.lower else line).replace("\n", " "))
        refuse_if(not words, f"targets[{number}] has no words; give a translation, or no targets to use the run's own")
        of_lines.append(words)
    return of_lines


@torch.no_grad()
def _weights(trunk: Trunk, objective: Translator, pairs: Sequence[Any]) -> list[np.ndarray]:
    """α of each pair, [target, source], in order."""
    trunk.eval()
    objective.eval()
    device = next(trunk.parameters()).device
    of_pairs = [np.zeros((0, len(pair.source)), dtype=np.float32) for pair in pairs]
    read = [number for number, pair in enumerate(pairs) if len(pair.source) and len(pair.target)]
    for group in length_batches([len(pairs[number].source) + len(pairs[number].target) for number in read]):
        numbers = [read[place] for place in group]
        weights_BTS = objective.attention(trunk, objective.make([pairs[number] for number in numbers]).to(device))
        for number, weights_TS in zip(numbers, weights_BTS.cpu().numpy()):
            of_pairs[number] = weights_TS[: len(pairs[number].target), : len(pairs[number].source)].copy()
    return of_pairs
