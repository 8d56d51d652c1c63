"""Learns a unigram vocabulary (Kudo, 2018): start with far too many pieces, then drop those that matter least.

The `tokenizers` library has a trainer for this, but its result changes from run to run: it adds up probabilities in the
random order of a hash table, over all available threads, and breaks ties arbitrarily. This one uses arrays in one fixed
order: the same text gives the same vocabulary.

Words are split into runs that no piece may cross: letters, digits, symbols, and stretches of a script without spaces;
the mark `▁` belongs to the first run. The lattice of a run (every way to cut it) is a row of numbers, one per stretch
of it: the piece that the stretch spells, or -1. Runs of one length are stored together, so that a step over all of them
takes a few array operations.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import regex
from scipy.special import digamma

from foretext.text.tokenizers.base import UNSPACED

LONGEST_PIECE = 16
_LONGEST_RUN = 24  # longer runs are cut
_LETTERS = 1_000_000  # of distinct runs to learn from, most frequent first
_ALPHABET_SHARE = 2  # at most 1/this of the vocabulary goes to single characters; Chinese has thousands
_SEEDS = 16  # initial pieces, as a multiple of the final number
_KEPT = 0.75  # share of the pieces that one round of dropping keeps
_SPARE = 1.1  # pieces before the last selection, which is by probability alone, as a multiple of the final number
_LEAST = 0.5  # a piece with fewer expected occurrences is dropped at once
_EVERY = 20_000  # words or runs between two calls of `tell`

_RUN = regex.compile(
    rf"▁?(?:[{UNSPACED}][{UNSPACED}\p{{M}}]*|(?:(?![{UNSPACED}])[\p{{L}}\p{{M}}])+|\p{{N}}+|[^\p{{L}}\p{{M}}\p{{N}}▁]+)|▁"
)

_Alive = tuple[str, int, Sequence[int]]  # a run, its count, and the places where a frequent stretch can begin
Tell = Callable[[], None]  # called several times a second; if it raises, the work ends


@dataclass(frozen=True)
class _Runs:
    """Runs of one length. The stretches of a run are sorted by their end, and for one end by length, shortest first."""

    length: int
    counts_N: np.ndarray
    ids_NS: np.ndarray  # the piece of each stretch, or -1

    def of_end(self, end: int) -> slice:
        """The stretches that end at `end`."""
        first = _before(end)
        return slice(first, first + min(end, LONGEST_PIECE))

    def of_start(self, start: int) -> list[int]:
        """The stretches that begin at `start`, shortest first."""
        ends = range(start + 1, min(start + LONGEST_PIECE, self.length) + 1)
        return [_before(end) + end - start - 1 for end in ends]


def _before(end: int) -> int:
    """How many stretches end before `end`."""
    full = max(0, end - 1 - LONGEST_PIECE)
    short = end - 1 - full
    return short * (short + 1) // 2 + full * LONGEST_PIECE


def learn_unigram(words: Mapping[str, int], size: int, tell: Tell) -> list[tuple[str, float]]:
    """At most `size` pieces with their log probabilities, most probable first, from words and their counts."""
    letters, runs = _runs(words, size // _ALPHABET_SHARE, tell)
    pieces, weights = _seeds(runs, letters, size * _SEEDS, tell)
    lattices = _lattices(runs, pieces, tell)
    piece_lattices = _lattices(dict.fromkeys(pieces[len(letters) :], 1), pieces, tell)
    scores = np.log(weights) - np.log(weights.sum())
    wanted, singles = int(size * _SPARE), len(letters)
    while True:
        for _ in range(2):
            tell()
            scores, kept = _improved(lattices, scores, singles)
            pieces, lattices, piece_lattices = _only(kept, pieces, lattices, piece_lattices)
        if len(pieces) <= wanted:
            break
        tell()
        kept = _missed_most(lattices, piece_lattices, scores, singles, max(wanted, int(len(pieces) * _KEPT)))
        pieces, lattices, piece_lattices = _only(kept, pieces, lattices, piece_lattices)
        scores = scores[kept]
    ranked = sorted(zip(scores[singles:].tolist(), pieces[singles:]), key=lambda entry: (-entry[0], entry[1]))
    chosen = [*zip(scores[:singles].tolist(), pieces[:singles]), *ranked[: size - singles]]
    # Rounded, so that the last bit of a processor's logarithm cannot change the vocabulary.
    return sorted(((piece, round(score, 6)) for score, piece in chosen), key=lambda entry: (-entry[1], entry[0]))


# -- where to begin ----------------------------------------------------------------------------------------------------


def _runs(words: Mapping[str, int], most_letters: int, tell: Tell) -> tuple[dict[str, int], dict[str, int]]:
    """Single characters with their counts, sorted, and runs with theirs."""
    letters: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for number, (word, count) in enumerate(words.items()):
        if number % _EVERY == 0:
            tell()
        for run in _RUN.findall("▁" + word):
            for start in range(0, len(run), _LONGEST_RUN):
                cut[run[start : start + _LONGEST_RUN]] += count
    for run, count in cut.items():
        for letter in run:
            letters[letter] += count
    common = sorted(sorted(letters), key=lambda letter: -letters[letter])[:most_letters]
    allowed = set(common)
    runs: dict[str, int] = {}
    total = 0
    for run in sorted(cut, key=lambda run: (-cut[run], _shuffled(run))):
        if total > _LETTERS:
            break
        if allowed.issuperset(run):
            runs[run] = cut[run]
            total += len(run)
    return {letter: letters[letter] for letter in sorted(common)}, runs


def _shuffled(run: str) -> bytes:
    """A key that orders runs of equal count independently of the alphabet."""
    return hashlib.blake2b(run.encode("utf-8"), digest_size=8).digest()


def _seeds(runs: Mapping[str, int], letters: Mapping[str, int], most: int, tell: Tell) -> tuple[list[str], np.ndarray]:
    """The single characters, then the stretches that occur at least twice and cover the most text, with weights.

    A stretch is frequent only if it is frequent without its first and without its last character. So lengths are
    processed one by one, keeping for each run only the places where that still holds.
    """
    candidates: list[tuple[int, str]] = []
    alive: list[_Alive] = [(run, count, range(len(run))) for run, count in runs.items()]
    for length in range(2, LONGEST_PIECE + 1):
        counts: Counter[str] = Counter()
        for number, (run, count, starts) in enumerate(alive):
            if number % _EVERY == 0:
                tell()
            for start, following in pairwise(starts):
                if following == start + 1:
                    counts[run[start : start + length]] += count
        frequent = {piece: count for piece, count in counts.items() if count > 1}
        candidates += [(count * length, piece) for piece, count in frequent.items()]
        alive = _still_frequent(alive, length, frequent)
    best = sorted(heapq.nlargest(max(0, most - len(letters)), candidates), key=lambda entry: entry[1])
    weights = [*letters.values(), *(weight for weight, _ in best)]
    return [*letters, *(piece for _, piece in best)], np.array(weights, dtype=np.float64)


def _still_frequent(alive: list[_Alive], length: int, frequent: Mapping[str, int]) -> list[_Alive]:
    """For each run, the places where a frequent stretch of this length begins; runs without one are dropped."""
    going: list[_Alive] = []
    for run, count, starts in alive:
        begins = (start for start, following in pairwise(starts) if following == start + 1)
        left = [start for start in begins if run[start : start + length] in frequent]
        if len(left) > 1:
            going.append((run, count, left))
    return going


def _lattices(runs: Mapping[str, int], pieces: Sequence[str], tell: Tell) -> list[_Runs]:
    ids = {piece: id for id, piece in enumerate(pieces)}
    lattices = []
    for length, group in groupby(sorted(runs, key=len), key=len):
        tell()
        texts = list(group)
        stretches = [
            (end - size, end) for end in range(1, length + 1) for size in range(1, min(end, LONGEST_PIECE) + 1)
        ]
        rows = [[ids.get(text[start:end], -1) for start, end in stretches] for text in texts]
        counts = np.array([runs[text] for text in texts], dtype=np.float64)
        lattices.append(_Runs(length, counts, np.array(rows, dtype=np.int32)))
    return lattices


# -- expectation and maximisation --------------------------------------------------------------------------------------


def _improved(lattices: Sequence[_Runs], scores: np.ndarray, singles: int) -> tuple[np.ndarray, np.ndarray]:
    """New scores for the pieces that are kept, and which these are; single characters are always kept."""
    expected = sum((_expected(runs, scores) for runs in lattices), np.zeros(len(scores)))
    kept = expected >= _LEAST
    kept[:singles] = True
    counts = np.maximum(expected[kept], _LEAST)
    return digamma(counts) - digamma(counts.sum(keepdims=True)), kept  # makes rare pieces rarer still


def _expected(runs: _Runs, scores: np.ndarray) -> np.ndarray:
    """The expected count of each piece over all ways to cut the runs: forward pass, backward pass, both combined."""
    weights_NS = np.append(scores, -np.inf)[runs.ids_NS]  # -1 indexes the last entry
    forward_NL = np.zeros((len(runs.counts_N), runs.length + 1))
    backward_NL = np.zeros_like(forward_NL)
    for end in range(1, runs.length + 1):
        forward_NL[:, end] = _log_sum(_ways(runs, weights_NS, forward_NL, end))
    for start in range(runs.length - 1, -1, -1):
        stretches = runs.of_start(start)
        after = backward_NL[:, start + 1 : start + 1 + len(stretches)]
        backward_NL[:, start] = _log_sum(weights_NS[:, stretches] + after)
    total = np.zeros(len(scores) + 1)
    for end in range(1, runs.length + 1):
        ways = _ways(runs, weights_NS, forward_NL, end) + (backward_NL[:, end] - forward_NL[:, -1])[:, None]
        counted = np.exp(ways) * runs.counts_N[:, None]
        ids = runs.ids_NS[:, runs.of_end(end)] + 1
        total += np.bincount(ids.ravel(), weights=counted.ravel(), minlength=len(total))
    return total[1:]


def _ways(runs: _Runs, weights_NS: np.ndarray, reached_NL: np.ndarray, end: int) -> np.ndarray:
    """The score of each way to reach `end` with one more stretch, shortest first."""
    weights = weights_NS[:, runs.of_end(end)]
    return weights + reached_NL[:, end - weights.shape[1] : end][:, ::-1]


def _log_sum(ways: np.ndarray) -> np.ndarray:
    top = ways.max(axis=1, keepdims=True)  # finite: a single character is always possible
    return (top + np.log(np.exp(ways - top).sum(axis=1, keepdims=True)))[:, 0]


# -- dropping ----------------------------------------------------------------------------------------------------------


def _missed_most(
    lattices: Sequence[_Runs], piece_lattices: Sequence[_Runs], scores: np.ndarray, singles: int, most: int
) -> np.ndarray:
    """The `most` pieces to keep: those whose removal would lower the text's probability the most.

    Without a piece, each of its occurrences would be cut as the other pieces cut the piece itself.
    """
    used = np.zeros(len(scores))
    for runs in lattices:
        for rows, ids in _best_cut(runs, scores, whole=True):
            used += np.bincount(ids, weights=runs.counts_N[rows], minlength=len(scores))
    total = used.sum()
    loss = np.full(len(scores), -np.inf)
    for runs in piece_lattices:
        ids_N = runs.ids_NS[:, -1]  # the last stretch is the whole run, which is a piece
        times = np.maximum(used[ids_N], 1e-12)
        parts, instead = np.zeros((2, len(ids_N)))
        for rows, ids in _best_cut(runs, scores, whole=False):
            parts[rows] += 1
            instead[rows] += np.log(used[ids] + times[rows])
        instead -= parts * np.log(total + times * (parts - 1))
        loss[ids_N] = np.where(used[ids_N] > 0, times * (np.log(times) - np.log(total) - instead), -np.inf)
    order = singles + np.argsort(-loss[singles:], kind="stable")
    kept = np.zeros(len(scores), dtype=bool)
    kept[:singles] = True
    kept[order[: most - singles]] = True
    return kept


def _best_cut(runs: _Runs, scores: np.ndarray, whole: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The most probable cut of every run, from its end: rows, and the piece of each. `whole`: a run may be one
    piece."""
    weights_NS = np.append(scores, -np.inf)[runs.ids_NS]
    if not whole:
        weights_NS[:, -1] = -np.inf
    rows_N = np.arange(len(runs.counts_N))
    reached_NL = np.zeros((len(rows_N), runs.length + 1))
    sizes_NL = np.zeros((len(rows_N), runs.length + 1), dtype=np.int64)
    for end in range(1, runs.length + 1):
        ways = _ways(runs, weights_NS, reached_NL, end)
        best = ways.argmax(axis=1)
        reached_NL[:, end] = ways[rows_N, best]
        sizes_NL[:, end] = best + 1
    before = np.array([0, *(_before(end) for end in range(1, runs.length + 1))])
    rows, places = rows_N, np.full(len(rows_N), runs.length)
    while len(rows):
        sizes = sizes_NL[rows, places]
        yield rows, runs.ids_NS[rows, before[places] + sizes - 1]
        places = places - sizes
        rows, places = rows[places > 0], places[places > 0]


def _only(
    kept: np.ndarray, pieces: Sequence[str], lattices: Sequence[_Runs], piece_lattices: Sequence[_Runs]
) -> tuple[list[str], list[_Runs], list[_Runs]]:
    """Pieces and lattices restricted to the kept pieces, renumbered."""
    if kept.all():
        return list(pieces), list(lattices), list(piece_lattices)
    new = np.full(len(kept) + 1, -1, dtype=np.int32)  # -1 stays -1
    new[:-1][kept] = np.arange(kept.sum(), dtype=np.int32)
    left = [_Runs(runs.length, runs.counts_N, new[runs.ids_NS]) for runs in lattices]
    mine = []
    for runs in piece_lattices:
        rows = new[runs.ids_NS[:, -1]] >= 0
        if rows.any():
            mine.append(_Runs(runs.length, runs.counts_N[rows], new[runs.ids_NS[rows]]))
    return [piece for piece, keep in zip(pieces, kept.tolist()) if keep], left, mine
