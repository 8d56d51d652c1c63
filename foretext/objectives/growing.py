"""Short sequences first: how long examples are in each part of the budget.

A model that is asked about places first has to find out where its neighbours are, which it does sooner, and cheaper, in
short sequences. BERT's paper has one such stage; here lengths may also double from it on until they are whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretext.nn.model_config import check_range


@dataclass(frozen=True, kw_only=True)
class GrowingConfig:
    """The keys of [objective] that say so, of each objective whose sequences may grow."""

    early: float = 0.0  # part of the budget in which sequences are shorter than later
    early_length: float = 0.25  # of the later length, that they have in it
    grown: float = 0.0  # part of the budget after which they have the full length; from `early` on, lengths double

    def check(self) -> None:
        check_range("objective", self, "at least 0 and below 1", "early", "grown")
        check_range("objective", self, "above 0 and at most 1", "early_length")


def growing_lengths(config: GrowingConfig, whole: int, least: int) -> list[tuple[float, int]]:
    """(part of the budget that is spent when it ends, tokens), one after the other; no sequence is shorter than
    `least`."""
    shortest = max(least, round(config.early_length * whole))
    if not config.early or shortest >= whole:
        return [(1.0, whole)]
    found = [(config.early, shortest)]
    between = []
    while config.grown > config.early and 2 * shortest < whole:
        shortest *= 2
        between.append(shortest)
    for number, length in enumerate(between, 1):
        found.append((config.early + (config.grown - config.early) * number / len(between), length))
    return [*found, (1.0, whole)]
