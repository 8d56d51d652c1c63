"""Beam search over a step function, for many texts at once; with one beam it is greedy search.

`grow` is asked by rows: which rows of the last step go on, and with which word each. It gives the log-probabilities of
the words after them. Rows that are done leave at once: each step works on the hypotheses that still grow, and on no
others. Two things use it: translation (`search_translations`, over the model of `nn/recurrent/cove.py`), and the
continuation of a prompt (`generate/many.py`).

Beam search keeps for each text the best `beams` unfinished hypotheses by the sum of their log-probabilities. One that
ends is put aside if it is among the `beams` best of its step. A text is done when `beams` have ended, or at its limit
of words. A `patient` search puts every end aside that comes before the last that is kept, and goes on until nothing
that grows can come among the best.

The ended hypotheses of a text are compared by (Σ log p) / n, where n counts its words and the end symbol. What was cut
off at the limit (n: its words) comes after everything that has ended, for a translation that does not end mostly
repeats itself; in a patient search it counts like the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from foretext.errors import refuse_if
from foretext.text.words.word_list import START, UNKNOWN


@dataclass(frozen=True)
class Hypothesis:
    """A text without its end symbol. `log_probability` is of all its words and, if it `ended` by that symbol, of the
    end; `stopped`: by a stop string. `gains`: each word's log-probability by the model itself, where that is known.
    `row`: of the last step, that it comes from."""

    ids: tuple[int, ...]
    log_probability: float
    ended: bool = False
    stopped: bool = False
    gains: tuple[float, ...] = ()
    row: int = 0

    @property
    def score(self) -> float:
        """The mean log-probability of a word, the end symbol counted."""
        return self.log_probability / max(1, len(self.ids) + self.ended)


@dataclass(frozen=True)
class Rules:
    """`end`: the end symbol, if there is one. `stops`: whether a text ends with these words."""

    beams: int
    end: int | None
    patient: bool = False
    stops: Callable[[tuple[int, ...]], bool] = lambda ids: False

    def __post_init__(self) -> None:
        whole = isinstance(self.beams, int) and not isinstance(self.beams, bool)
        refuse_if(not whole or self.beams < 1, f"beams must be a whole number, at least 1, not {self.beams!r}")

    def rank(self, one: Hypothesis) -> tuple[bool, float]:
        """For sorting: what has ended before what has not, unless the search is patient, then by score, the best
        first."""
        return not self.patient and not one.ended, -one.score


# Rows that go on and their words (none at the start) → log-probabilities [rows, V] that are searched, −∞ for what is
# never written, and those of the model itself, if they are to be kept.
Grow = Callable[[list[int], list[int]], tuple[Tensor, Tensor | None]]


def search(grow: Grow, limits: Sequence[int], rules: Rules) -> list[list[Hypothesis]]:
    """The best hypotheses of each text, at most `beams`, the best first."""
    done: list[list[Hypothesis]] = [[] for _ in limits]
    live = {number: [Hypothesis((), 0.0, row=number)] for number in range(len(limits))}
    while live:
        beams = [one for beam in live.values() for one in beam]
        scores, own = grow([one.row for one in beams], [one.ids[-1] for one in beams if one.ids])
        # Of one hypothesis no more than `beams` continuations can be kept; the others may end.
        values, words = (part.tolist() for part in scores.topk(min(2 * rules.beams, scores.shape[1]), dim=1))
        rows = itertools.count()
        for number, beam in list(live.items()):
            grown = [new for one, row in zip(beam, rows) for new in _grown(one, row, values[row], words[row])]
            live[number] = _sort_out(grown, done[number], own, rules)
            if not _goes_on(live[number], done[number], limits[number], rules):
                del live[number]
    return [sorted(found, key=rules.rank)[: rules.beams] for found in done]


def _grown(one: Hypothesis, row: int, gains: list[float], words: list[int]) -> list[Hypothesis]:
    """A hypothesis with each of the words that may follow it."""
    return [
        replace(one, ids=(*one.ids, word), log_probability=one.log_probability + gain, row=row)
        for gain, word in zip(gains, words)
        if gain > -torch.inf
    ]


def _sort_out(grown: list[Hypothesis], done: list[Hypothesis], own: Tensor | None, rules: Rules) -> list[Hypothesis]:
    """The best `beams` that go on, of hypotheses with their next word; what ends goes to `done`."""
    kept: list[Hypothesis] = []
    best = sorted(grown, key=lambda one: -one.log_probability)[: 2 * rules.beams]
    for place, one in enumerate(best):
        if one.ids[-1] == rules.end:
            if rules.patient or place < rules.beams:
                done.append(replace(one, ids=one.ids[:-1], ended=True))
            continue
        if own is not None:
            one = replace(one, gains=(*one.gains, float(own[one.row, one.ids[-1]])))
        if rules.stops(one.ids):
            done.append(replace(one, stopped=True))
            continue
        kept.append(one)
        if len(kept) == rules.beams:
            break
    return kept


def _goes_on(kept: list[Hypothesis], done: list[Hypothesis], limit: int, rules: Rules) -> bool:
    """Whether a text is searched on: until as many have ended as are wanted; a patient search until nothing that grows
    can come among them any more. What is cut off at its limit goes to `done`."""
    if not kept:
        return False
    if len(kept[0].ids) >= limit:
        done += kept
        return False
    if len(done) < rules.beams or not rules.patient:
        return len(done) < rules.beams
    worst = sorted((one.score for one in done), reverse=True)[rules.beams - 1]
    # The sum of the best that grows can only fall, and is divided by `limit` words at most.
    return kept[0].log_probability / limit > worst


@torch.no_grad()
def search_translations(
    step: Callable[[Tensor, Any], tuple[Tensor, Any]],
    state: Any,
    limits: Sequence[int],
    rules: Rules,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, the best first, by `Translator.decode_step`; `state` is the model's
    before the first word."""
    there = len(limits)

    def grow(rows: list[int], words: list[int]) -> tuple[Tensor, None]:
        nonlocal state, there
        if rows != list(range(there)):
            state = state.pick(torch.tensor(rows, device=device))
        there = len(rows)
        logits_BV, state = step(torch.tensor(words or [START] * there, device=device), state)
        gains_BV = torch.log_softmax(logits_BV, dim=1)
        gains_BV[:, [START, UNKNOWN]] = -torch.inf  # which are never written
        return gains_BV.cpu(), None

    return search(grow, limits, rules)
