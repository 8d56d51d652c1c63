"""Sentences of words as a trunk over characters reads them: places in a table of their distinct words, whose first row
is no word. Rows 1 and 2 are a sentence's begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.nn.recurrent.bilm import Bilm, SpelledBatch
from foretext.text.words.characters import BEGIN, END, NO_WORD, WORD_LENGTH, word_characters


@dataclass(frozen=True)
class WordTable:
    characters_UC: Tensor
    places_BT: Tensor  # rows of the table; 0 where a sentence has ended

    @property
    def mask_BT(self) -> Tensor:
        return self.places_BT > 0

    def batch(self) -> SpelledBatch:
        """For both directions to read."""
        return SpelledBatch(self.places_BT, self.mask_BT, characters_UC=self.characters_UC)

    def encoded(self, bilm: Bilm) -> Tensor:
        return F.embedding(self.places_BT, bilm.words(self.characters_UC))


def word_table(sentences: Sequence[Sequence[str]], length: int = WORD_LENGTH, borders: bool = True) -> WordTable:
    """With (or without) a begin and an end round each sentence."""
    rows: dict[str, int] = {BEGIN: 1, END: 2}
    before, after = ([1], [2]) if borders else ([], [])
    placed = [[*before, *(rows.setdefault(word, len(rows) + 1) for word in words), *after] for words in sentences]
    places = torch.zeros(len(placed), max(map(len, placed)), dtype=torch.int64)
    for number, row in enumerate(placed):
        places[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
    none = np.full((1, length), NO_WORD, dtype=np.int64)
    return WordTable(torch.from_numpy(np.concatenate([none, word_characters(list(rows), length)])), places)
