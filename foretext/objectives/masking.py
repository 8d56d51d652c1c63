"""Which tokens of a sequence are masked, and what is put in their place.

A part (15 %) of the tokens is chosen, at least one in every sequence and never a special token: single pieces (BERT,
RoBERTa), whole words, or runs of up to three words (ALBERT: a run of n with a probability ∝ 1/n). Of the chosen ones
80 % become the mask, 10 % a random ordinary piece, 10 % stay as they are. A unit that would go beyond the number is
passed over, as in BERT's released code; if that leaves none, a shortest word is taken, whole as all are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from foretext.errors import UserError
from foretext.nn.model_config import check_range
from foretext.objectives.growing import GrowingConfig
from foretext.text.tokenizers.base import Tokenizer

MOST_WORDS = 100  # in a run


@dataclass(frozen=True)
class MaskingConfig(GrowingConfig):
    """[objective] of a masked system."""

    part: float = 0.15  # of the tokens that are chosen
    masked: float = 0.8  # of the chosen, that become the mask
    random: float = 0.1  # of the chosen, that become a random piece; the rest stay
    unit: Literal["piece", "word", "n-gram"] = "piece"
    longest: int = 3  # words in a run, for n-grams
    short: float = 0.1  # of the pairs of spans, that are shorter than the others

    def check(self) -> None:
        super().check()
        check_range("objective", self, "above 0 and at most 1", "part")
        check_range("objective", self, "at least 0 and at most 1", "masked", "random", "short")
        check_range("objective", self, f"at least 1 and at most {MOST_WORDS}", "longest")
        if self.masked + self.random > 1.0 + 1e-9:
            raise UserError(f"objective.masked={self.masked} and objective.random={self.random} are more than 1")


class Masker:
    def __init__(self, config: MaskingConfig, tokenizer: Tokenizer, mask: int) -> None:
        config.check()
        self.config, self.tokenizer, self.mask_id = config, tokenizer, mask
        special = np.zeros(tokenizer.size, dtype=bool)
        special[list(tokenizer.specials.values())] = True
        self.special = special
        self.ordinary = np.flatnonzero(~special)
        chances = 1.0 / np.arange(1, config.longest + 1)
        self.chances = chances / chances.sum()

    def mask(self, ids: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Places of `ids` that are to be told, rising, and what is put there."""
        places = np.flatnonzero(~self.special[ids])
        if not len(places):
            return places, places
        wanted = max(1, round(self.config.part * len(places)))
        if self.config.unit == "piece":
            chosen = draw.choice(places, wanted, replace=False)
        else:
            chosen = self._units(ids, places, wanted, draw)
        chosen = np.sort(chosen)
        fate = draw.random(len(chosen))
        other = draw.choice(self.ordinary, len(chosen))
        put = np.where(fate < self.config.masked, self.mask_id, ids[chosen])
        swapped = (fate >= self.config.masked) & (fate < self.config.masked + self.config.random)
        return chosen, np.where(swapped, other, put)

    def _units(self, ids: np.ndarray, places: np.ndarray, wanted: int, draw: np.random.Generator) -> np.ndarray:
        """Whole words, or runs of them. If none is small enough, the first of the shortest words is taken."""
        starts = self.tokenizer.word_starts(ids)[places]
        starts[0] = True
        starts[1:] |= np.diff(places) > 1  # a special token lies between
        words = np.split(places, np.flatnonzero(starts)[1:])
        taken = np.zeros(len(words), dtype=bool)
        found: list[np.ndarray] = []
        count = 0
        order = draw.permutation(len(words))
        for first in order:
            if count >= wanted:
                break
            run = self._run(words, int(first), draw)
            while run > 1 and sum(len(words[i]) for i in range(first, first + run)) > wanted - count:
                run -= 1
            pieces = [words[i] for i in range(first, first + run)]
            size = sum(map(len, pieces))
            if size > wanted - count or taken[first : first + run].any():
                continue
            taken[first : first + run] = True
            found += pieces
            count += size
        return np.concatenate(found) if found else min((words[i] for i in order), key=len)

    def _run(self, words: list[np.ndarray], first: int, draw: np.random.Generator) -> int:
        """Words from `first` on that are masked together; no run goes across a special token."""
        if self.config.unit == "word":
            return 1
        length = int(draw.choice(len(self.chances), p=self.chances)) + 1
        run = 1
        while run < length and first + run < len(words) and words[first + run][0] == words[first + run - 1][-1] + 1:
            run += 1
        return run
