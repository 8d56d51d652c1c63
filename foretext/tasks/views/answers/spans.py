"""The head over views that answers questions: it chooses among all spans of the passage up to a number of words.

    score(i, j) = first_i + last_j + Σ_{i ≤ t ≤ j} inside_t + length_{j−i}
    (first, last, inside)_t = bias + Σ_v (X_v W_v)_t         of word t, read with the question

So each span has its own score, although only three numbers per word are computed from the views. p is the softmax over
a question's spans. If questions may have no answer, that is one more candidate. Its score is `nothing` plus the
logarithm of the number of spans, so that it is as likely in a short passage as in a long one. `field.py` fits the head.

The answer is the span with the highest expected F1 under p: if several overlapping spans are likely, what they share is
a better answer than each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretext.tasks.layouts.windows import N_BEST, Answered, Candidate, Offsets, with_probabilities
from foretext.tasks.views.base import Units, View
from foretext.tasks.views.field import Extra, FieldTask, FittedField, Progress, fit_field
from foretext.tasks.views.head import Lengths

OUTPUTS = 3  # per word: as the first, as the last, and as any word of a span
LONGEST = 40  # words per answer, at most; otherwise as many as nearly all answers of the training rows have
SHORTER = 0.98  # the share of them that is not longer
ANSWERS = FieldTask("span", texts=2, most_words=60_000, strengths=(0.1, 0.3, 1.0, 3.0))
WEIGHED = 60  # the most likely spans, whose expected F1 is computed


class Spans:
    """Questions with the words of their answers, in the form that `field.py` learns from."""

    def __init__(
        self, words: np.ndarray, answers: Sequence[tuple[int, int] | None], longest: int, unanswerable: bool
    ) -> None:
        """`words`: of each question's passage. `answers`: the first and the last word; None: no answer, which is
        learned from only if it is possible (`unanswerable`)."""
        self.outputs, self.unanswerable = OUTPUTS, unanswerable
        self.shapes: Sequence[tuple[int, ...]] = ((longest,), (1,))
        self.starts, self.longest = np.cumsum(words) - words, longest
        self.rows = np.repeat(np.arange(len(words)), words)
        left = (words + self.starts)[self.rows] - np.arange(len(self.rows))  # words from here to the end
        self.real = np.arange(longest) < left[:, None]  # [words, longest]
        spans = np.add.reduceat(self.real.sum(1), self.starts)
        self.offset = np.log(spans)
        known = [(row, *span) for row, span in enumerate(answers) if span is not None and span[1] - span[0] < longest]
        silent = [row for row, span in enumerate(answers) if span is None] if unanswerable else []
        rows, firsts, lasts = np.array(known, dtype=np.int64).reshape(-1, 3).T
        self.gold = firsts + self.starts[rows], lasts - firsts
        self.silent = np.array(silent, dtype=np.int64)
        self.taught = np.isin(np.arange(len(words)), [*rows, *silent])
        self.labels = int(self.taught.sum())

    def scores(self, scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """[words, longest]: the score of the span that begins at a word and has so many more words; −∞ if there is
        none."""
        first, last, inside = scores.T
        sums = np.cumsum(inside)
        ends = np.concatenate([last + sums, np.zeros(self.longest - 1)]).astype(scores.dtype)
        spans = np.lib.stride_tricks.sliding_window_view(ends, self.longest) + (first - sums + inside)[:, None]
        spans += lengths
        spans[~self.real] = -np.inf
        return np.asarray(spans)

    def loss(self, scores: np.ndarray, extra: Extra) -> tuple[float, np.ndarray, Extra]:
        lengths, nothing = extra
        spans = self.scores(scores, lengths)
        none = self.offset + nothing if self.unanswerable else np.full(len(self.starts), -np.inf)
        total = -float(spans[self.gold].sum() + none[self.silent].sum())
        highest = np.maximum(np.maximum.reduceat(spans.max(1), self.starts), none)
        spans -= highest[self.rows, None]
        slope, of_none = np.exp(spans, out=spans), np.exp(none - highest)
        whole = np.add.reduceat(slope.sum(1), self.starts) + of_none
        total += float((np.log(whole) + highest)[self.taught].sum())
        weight = self.taught / whole
        slope *= weight[self.rows, None]
        of_none *= weight
        slope[self.gold] -= 1
        of_none[self.silent] -= 1
        firsts, lasts = slope.sum(1), np.zeros(len(slope) + self.longest - 1)
        for more, column in enumerate(slope.T):
            lasts[more : more + len(column)] += column
        lasts = lasts[: len(slope)]
        inside = np.cumsum(firsts) - np.cumsum(lasts) + lasts  # spans that have begun minus those that have ended
        return total, np.column_stack([firsts, lasts, inside]), (slope.sum(0), of_none.sum(keepdims=True))


def fit_spans(
    views: Sequence[View],
    units: Units,
    answers: Sequence[tuple[int, int] | None],
    seed: int,
    groups: Sequence[int] = (),
    unanswerable: bool = False,
    progress: Progress | None = None,
) -> FittedField:
    """`answers`: the first and the last word for each row. `groups`: rows with the same number (questions about one
    passage) stay together in folds; empty: each by itself."""
    words = np.unique(units.rows, return_counts=True)[1]
    longest = longest_of([span[1] - span[0] + 1 for span in answers if span is not None])

    def spans_of(rows: np.ndarray) -> Spans:
        return Spans(words[rows], [answers[row] for row in rows], longest, unanswerable)

    fitted, extra = fit_field(ANSWERS, views, units, spans_of, seed, groups, progress)
    fitted.head.lengths = lengths_of(extra)
    return fitted


def lengths_of(extra: Extra, threshold: float = 0.0) -> Lengths:
    return Lengths(*(np.asarray(scores, dtype=np.float32) for scores in (*extra, [threshold])))


def longest_of(lengths: Sequence[int]) -> int:
    return int(min(LONGEST, np.quantile(lengths, SHORTER, method="higher"))) if len(lengths) else 1


# -- answers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpanReader:
    """Turns the scores of words into the answer."""

    lengths: Lengths
    unanswerable: bool = False
    exact: bool = False  # whether to choose the most likely span, for exact match, instead of the best one for F1
    kind: str = "span"

    def answered(self, passage: str, places: Offsets, scores: np.ndarray) -> Answered:
        """`places`: the characters of each word; `scores`: [words, 3]."""
        spans = Spans(np.array([len(places)]), [None], len(self.lengths.lengths), self.unanswerable)
        table = spans.scores(scores.astype(np.float64), self.lengths.lengths)
        order = np.argsort(-table, axis=None, kind="stable")[:WEIGHED]
        firsts, more = np.divmod(order[np.isfinite(table.ravel()[order])], table.shape[1])
        likely = np.exp(table[firsts, more] - table.max())
        chosen = 0 if self.exact else int(np.argmax(expected_f1(firsts, firsts + more + 1, likely)))
        texts: dict[str, Candidate] = {}
        for first, count in [(firsts[chosen], more[chosen]), *zip(firsts, more)]:
            start, end = places[first][0], places[first + count][1]
            texts.setdefault(passage[start:end], Candidate(passage[start:end], start, end, float(table[first, count])))
        texts.pop("", None)
        candidates = [*texts.values()][:N_BEST]
        none = float(spans.offset[0] + self.lengths.nothing[0])
        margin = none - max((candidate.score for candidate in candidates), default=-np.inf)
        silent = not candidates or (self.unanswerable and margin > self.lengths.threshold[0])
        likely_first = with_probabilities(candidates, none if self.unanswerable else None)
        return Answered("" if silent else candidates[0].text, likely_first, margin)


def expected_f1(firsts: np.ndarray, ends: np.ndarray, likely: np.ndarray) -> np.ndarray:
    """For each span: the expected F1 of its words if each other span is right with its probability."""
    shared = np.minimum(ends[:, None], ends) - np.maximum(firsts[:, None], firsts)
    sizes = ends - firsts
    return np.asarray(2 * np.maximum(shared, 0) / (sizes[:, None] + sizes) @ likely)
