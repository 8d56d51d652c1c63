"""Translations as lines and their scores: what a model that is never wrong gets, and what one that is random gets."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretext.evaluate.translation import score_translations, translations
from foretext.nn.recurrent.cove import CoveConfig, CoveTrunk
from foretext.objectives.parallel_text import Pair, TranslationSettings
from foretext.objectives.translation import TranslationObjective
from foretext.text.tokenizers.word_tokenizer import word_tokenizer
from foretext.text.words.word_list import END, START, WordList, marked_text, marked_words

LINES = ["Ein Mann schläft, er träumt.", "Zwei Hunde laufen im Gras.", "Ein Mann träumt."]
WORDS = WordList.of_counts(Counter(word for line in LINES for word in marked_words(line)), 100)
CONFIG = CoveConfig(vocabulary=4, vectors=3, width=4, dropout=0.5)
SOURCES = [np.array([0, 1]), np.array([1, 2, 3]), np.array([2])]


class Knowing(TranslationObjective):
    """Writes the line that the first word of a source stands for; its state is (line, place) of each row."""

    def start(self, trunk: Any, batch: Any) -> Any:
        return State(batch.ids_BT[:, 0], torch.zeros(len(batch.ids_BT), dtype=torch.int64))

    def decode_step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits = torch.zeros(len(ids_B), WORDS.size)
        logits[:, END] = -50.0  # only the right line ends
        for row, (line, place) in enumerate(zip(state.lines.tolist(), state.places.tolist())):
            target = [*WORDS.encode(marked_words(LINES[line])).tolist(), END]
            right = place < len(target) and int(ids_B[row]) == ([START, *target])[place]
            if right:
                logits[row, target[place]] = 9.0
        return logits, State(state.lines, state.places + 1)


class State:
    def __init__(self, lines: Tensor, places: Tensor) -> None:
        self.lines, self.places = lines, places

    def pick(self, rows: Tensor) -> State:
        return State(self.lines[rows], self.places[rows])


def parts(kind: type[TranslationObjective]) -> tuple[CoveTrunk, TranslationObjective]:
    return CoveTrunk(CONFIG), kind(CONFIG, TranslationSettings(embedding=3), word_tokenizer("ab", WORDS))


@pytest.mark.parametrize("beams", [1, 3])
def test_lines_come_back_in_order_as_people_write_them(beams: int) -> None:
    trunk, objective = parts(Knowing)
    sources = [*SOURCES, np.array([], dtype=np.int64), np.array([0])]
    found = translations(trunk, objective, sources, beams)
    assert [marked_text(WORDS.decode(one.ids)) for one in found] == [*LINES, "", LINES[0]]


def test_scores() -> None:
    pytest.importorskip("sacrebleu")
    trunk, objective = parts(Knowing)
    pairs = [Pair(source, np.array([*WORDS.encode(marked_words(line)), END])) for source, line in zip(SOURCES, LINES)]
    right = score_translations(trunk, objective, pairs, LINES, beams=1)
    assert right.bleu == pytest.approx(100.0) and "tok:13a" in right.signature
    trunk, objective = parts(TranslationObjective)
    wrong = score_translations(trunk, objective, pairs, LINES, beams=2)
    assert wrong.bleu < 30 and wrong.perplexity == pytest.approx(math.exp(wrong.loss))
    assert wrong.loss == pytest.approx(math.log(WORDS.size), abs=0.3), "it knows nothing yet"
    trunk.train()
    objective.train()
    assert score_translations(trunk, objective, pairs, LINES, beams=2) == wrong, "nothing is dropped"
