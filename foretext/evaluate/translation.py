"""What a translation model is worth: its loss on pairs that it has not seen, and the BLEU of what it writes.

The loss and its perplexity are a target word's, with the end. BLEU is sacrebleu's, of whole lines against the lines of
the file as they are, whatever the model's vocabulary leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from foretext.evaluate.text_metrics import bleu
from foretext.generate.translate import Search, Symbols, beam_search, greedy
from foretext.nn.cove import CoveTrunk
from foretext.objectives.translation import NAME, TranslationObjective
from foretext.objectives.translation_pairs import Pair
from foretext.text.word_list import END, START, UNKNOWN, WordList, marked_text
from foretext.train.scoring import length_batches, mean_losses

SYMBOLS = Symbols(START, END, never=(START, UNKNOWN))


@dataclass(frozen=True)
class TranslationScores:
    loss: float  # nats a target word, the end included
    perplexity: float
    bleu: float
    signature: str  # how sacrebleu counted


@torch.no_grad()
def translations(
    trunk: CoveTrunk,
    objective: TranslationObjective,
    sources: Sequence[np.ndarray],
    words: WordList,
    search: Search,
    device: torch.device | None = None,
) -> list[str]:
    """A line for each source, in their order; of one without words, an empty one. One beam is greedy search."""
    trunk.eval()
    objective.eval()
    read = [number for number, source in enumerate(sources) if len(source)]
    found = dict.fromkeys(range(len(sources)), "")
    for group in length_batches([len(sources[number]) for number in read]):
        indices = [read[place] for place in group]
        pairs = [Pair(sources[index], np.array([END])) for index in indices]
        batch = objective.make(pairs)
        state = objective.start(trunk, batch if device is None else batch.to(device))
        limits = search.limits(len(pair.source) for pair in pairs)
        if search.beams == 1:
            best = greedy(objective, state, limits, SYMBOLS, device)
        else:
            best = [several[0] for several in beam_search(objective, state, limits, SYMBOLS, search, device)]
        found |= {index: marked_text(words.decode(one.ids)) for index, one in zip(indices, best)}
    return [found[index] for index in range(len(sources))]


@torch.no_grad()
def score_translations(
    trunk: CoveTrunk,
    objective: TranslationObjective,
    pairs: Sequence[Pair],
    references: Sequence[str],
    words: WordList,
    search: Search | None = None,
    language: str = "",
    device: torch.device | None = None,
) -> TranslationScores:
    """`references`: the lines of the targets' file. Without a search, the likeliest word each time."""
    assert len(pairs) == len(references) > 0
    batches = []
    for indices in length_batches([len(pair.source) + len(pair.target) for pair in pairs]):
        batch = objective.make([pairs[index] for index in indices])
        batches.append(batch if device is None else batch.to(device))
    loss = mean_losses(trunk, objective, batches)[NAME]
    sources = [pair.source for pair in pairs]
    written = translations(trunk, objective, sources, words, search or Search(beams=1), device)
    wanted = [line.lower() if objective.settings.lower else line for line in references]
    score, signature = bleu(written, [[line] for line in wanted], language)
    return TranslationScores(loss, math.exp(min(loss, 700.0)), score, signature)
