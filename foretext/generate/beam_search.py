"""Greedy and beam search with a model that reads one word more at a time, for many sentences at once.

The model is asked by `decode_step(words, state)` for the logits of the next word, and its state has `pick(rows)`; the
encoder–decoder of `nn/recurrent/translation.py` is one such model. Rows that are done leave the batch at once: each
step works on the hypotheses that still grow, and on no others.

Beam search keeps for each sentence the best `beams` unfinished hypotheses by the sum of their log-probabilities. One
that ends is put aside if it is among the `beams` best of its step. A sentence is done when `beams` have ended, or at
its limit of words. With one beam this is greedy search.

Length normalisation: the ended hypotheses of a sentence are compared by (Σ log p) / n^power, where n counts its words
and the end symbol; power 1 is the mean, 0 the plain sum. What was cut off at the limit (n: its words) comes after
everything that has ended, for a translation that does not end mostly repeats itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from foretext.errors import UserError


class SteppingModel(Protocol):
    def decode_step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits [B, V] of the word after these, and the state with them read."""


@dataclass(frozen=True)
class Symbols:
    """Ids with a meaning: what every target begins after, what ends it, and what is never written."""

    start: int
    end: int
    never: tuple[int, ...] = ()


@dataclass(frozen=True)
class Search:
    """A sentence of S words may have up to `ratio` · S + `extra` words in its translation."""

    beams: int = 5
    power: float = 1.0  # of the length, for its normalisation
    ratio: float = 2.0
    extra: int = 10

    def __post_init__(self) -> None:
        if isinstance(self.beams, bool) or not isinstance(self.beams, int) or self.beams < 1:
            raise UserError(f"beams must be a whole number, at least 1, not {self.beams!r}")
        if not self.power >= 0:
            raise UserError(f"the power of the length must be 0 or more, not {self.power!r}")
        if self.ratio < 0 or self.extra < 0 or self.ratio + self.extra < 1:
            raise UserError(f"the limit {self.ratio} · words + {self.extra} leaves no room for a translation")

    def limits(self, lengths: Iterable[int]) -> list[int]:
        return [max(1, int(self.ratio * length + self.extra)) for length in lengths]


@dataclass(frozen=True)
class Hypothesis:
    """A translation without its end symbol. `log_probability` is of all its words and, if it `ended`, of the end."""

    ids: tuple[int, ...]
    log_probability: float
    ended: bool

    def score(self, power: float) -> float:
        return self.log_probability / max(1, len(self.ids) + self.ended) ** power

    def rank(self, power: float) -> tuple[bool, float]:
        """For sorting: what has ended before what has not, then by score, the best first."""
        return not self.ended, -self.score(power)


@torch.no_grad()
def greedy(
    model: SteppingModel, state: Any, limits: Sequence[int], symbols: Symbols, device: torch.device | None = None
) -> list[Hypothesis]:
    """The likeliest word at each step, for as many sentences as `limits` has; `state` is the model's before the first
    word."""
    words: list[list[int]] = [[] for _ in limits]
    totals = [0.0] * len(limits)
    ended = [False] * len(limits)
    live, last = list(range(len(limits))), [symbols.start] * len(limits)
    while live:
        gains, state = _next(model, last, state, symbols, device)
        best = gains.max(dim=1)
        going: list[int] = []
        for place, (gain, word) in enumerate(zip(best.values.tolist(), best.indices.tolist())):
            sentence = live[place]
            totals[sentence] += gain
            if word == symbols.end:
                ended[sentence] = True
                continue
            words[sentence].append(word)
            if len(words[sentence]) < limits[sentence]:
                going.append(place)
        if len(going) < len(live) and going:
            state = state.pick(torch.tensor(going, device=device))
        live = [live[place] for place in going]
        last = [words[sentence][-1] for sentence in live]
    return [Hypothesis(tuple(row), total, done) for row, total, done in zip(words, totals, ended)]


@dataclass(frozen=True)
class _Growing:
    """An unfinished hypothesis, and the row of the model's state that has read it but for its last word."""

    row: int
    ids: tuple[int, ...]
    total: float


@torch.no_grad()
def beam_search(
    model: SteppingModel,
    state: Any,
    limits: Sequence[int],
    symbols: Symbols,
    search: Search,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, at most `beams`, the best first."""
    done: list[list[Hypothesis]] = [[] for _ in limits]
    beams: dict[int, list[_Growing]] = {number: [_Growing(number, (), 0.0)] for number in range(len(limits))}
    while beams:
        last = [one.ids[-1] if one.ids else symbols.start for beam in beams.values() for one in beam]
        gains, state = _next(model, last, state, symbols, device)
        # Of one hypothesis no more than `beams` continuations can be kept, and one can end.
        values, words = (part.tolist() for part in gains.topk(min(search.beams + 1, gains.shape[1]), dim=1))
        row = 0
        for sentence, beam in list(beams.items()):
            rows = range(row, row + len(beam))
            row += len(beam)
            grown = [
                _Growing(number, (*one.ids, word), one.total + gain)
                for number, one in zip(rows, beam)
                for gain, word in zip(values[number], words[number])
                if gain > -torch.inf
            ]
            kept = _sort_out(grown, done[sentence], symbols.end, search.beams)
            if len(done[sentence]) >= search.beams or not kept:
                del beams[sentence]
            elif len(kept[0].ids) >= limits[sentence]:
                done[sentence] += [Hypothesis(one.ids, one.total, ended=False) for one in kept]
                del beams[sentence]
            else:
                beams[sentence] = kept
        if beams:
            picked = [one.row for beam in beams.values() for one in beam]
            if picked != list(range(row)):
                state = state.pick(torch.tensor(picked, device=device))
    return [sorted(found, key=lambda one: one.rank(search.power))[: search.beams] for found in done]


def _sort_out(grown: list[_Growing], done: list[Hypothesis], end: int, beams: int) -> list[_Growing]:
    """The best `beams` that go on; of those that end, the ones among the best `beams` of all are added to `done`."""
    kept: list[_Growing] = []
    for place, one in enumerate(sorted(grown, key=lambda one: -one.total)):
        if one.ids[-1] != end:
            kept.append(one)
            if len(kept) == beams:
                break
        elif place < beams:
            done.append(Hypothesis(one.ids[:-1], one.total, ended=True))
    return kept


def _next(
    model: SteppingModel, last: Sequence[int], state: Any, symbols: Symbols, device: torch.device | None
) -> tuple[Tensor, Any]:
    """Log-probabilities of each row's next word, −∞ for what is never written, on the CPU; and the state after."""
    logits_BV, state = model.decode_step(torch.tensor(last, device=device), state)
    gains_BV = torch.log_softmax(logits_BV, dim=1)
    if symbols.never:
        gains_BV[:, list(symbols.never)] = -torch.inf
    return gains_BV.cpu(), state
