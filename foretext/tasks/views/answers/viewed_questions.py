"""Views of questions about passages: their units, how the views are learned, and the head that chooses answers, among
all spans of the passage up to a number of words.

    score(i, j) = first_i + last_j + Σ_{i ≤ t ≤ j} inside_t + length_{j−i}
    (first, last, inside)_t = bias + Σ_v (X_v W_v)_t         of word t, read with the question

So each span has its own score, although only three numbers per word are computed from the views. p is the softmax over
a question's spans. If questions may have no answer, that is one more candidate. Its score is `nothing` plus the
logarithm of the number of spans, so that it is as likely in a short passage as in a long one. `field.py` fits the head.

The answer is the span with the highest expected F1 under p: if several overlapping spans are likely, what they share is
a better answer than each of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from foretext.tasks.family import Note, Progress, TaskConfig, family_of, silent
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.files.squad import Question
from foretext.tasks.layouts.windows import N_BEST, Answered, Candidate, Offsets, with_probabilities
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.span_family import answer_place, threshold_of
from foretext.tasks.views.answers.answer_views import AnswerNGrams, AnswerVectors, question_units
from foretext.tasks.views.base import FittedHead, Lengths, Tensors, Units, View, ViewHead
from foretext.tasks.views.explain import answer_reasons
from foretext.tasks.views.field import Extra, FieldTask, FittedField, drawn_rows, fit_field
from foretext.tasks.views.viewed import Learning, Reads, ViewTask, numbered, views_to_read

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead


OUTPUTS = 3  # per word: as the first, as the last, and as any word of a span
LONGEST = 40  # words per answer, at most; otherwise as many as nearly all answers of the training rows have
SHORTER = 0.98  # the share of them that is not longer
ANSWERS = FieldTask("span", texts=2, most_words=60_000, strengths=(0.1, 0.3, 1.0, 3.0))
WEIGHED = 60  # the most likely spans, whose expected F1 is computed
MOST_WORDS = 600_000  # of the training passages, each counted once per question
SPANS = "spans."  # before the names of the tensors of lengths


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


class ViewedQuestions(ViewTask):
    views: Mapping[str, type[View]] = {view.name: view for view in (AnswerNGrams, AnswerVectors)}
    at_a_time = 64  # each has all words of its passage

    # -- rows ----------------------------------------------------------------------------------------------------------

    def drawn(self, rows: Sequence[Question], seed: int, note: Note) -> Sequence[Question]:
        """All rows, or as many as fit in memory."""
        numbers = drawn_rows([len(row.passage.split()) for row in rows], MOST_WORDS, seed)
        if len(numbers) < len(rows):
            note(f"{len(numbers):,} of {len(rows):,} questions are drawn for the views to learn from")
        return [rows[number] for number in numbers.tolist()]

    def groups(self, rows: Sequence[Question]) -> list[int]:
        """Questions about one passage stay together."""
        return numbered(row.passage for row in rows)

    def units(
        self,
        rows: Sequence[Question],
        kind: str,
        names: Collection[str] = (),
        trunk: Reads | None = None,
        progress: Progress | None = None,
    ) -> Units:
        return question_units((row.question, row.passage) for row in rows)

    # -- the head ------------------------------------------------------------------------------------------------------

    def fit(self, learning: Learning, units: Units) -> tuple[FittedField, None]:
        config, rows, seed = learning.config, learning.rows, learning.seed
        places = family_of(config.kind).whole(rows, config, True, silent).offsets
        answers = [answer_place(row, offsets) for row, offsets in zip(rows, places)]
        progress = functools.partial(learning.work, "fitting the head")
        views = _learned(learning, units)
        fitted = fit_spans(views, units, answers, seed, self.groups(rows), config.unanswerable, progress)
        if config.unanswerable and fitted.chosen.folds:
            _choose_threshold(fitted, rows, config)
        return fitted, None

    def decoder(self, head: ViewHead, config: TaskConfig) -> TaskHead:
        assert head.lengths is not None
        return cast("TaskHead", SpanReader(head.lengths, config.unanswerable, config.metric == "exact_match"))

    def cross_validated(
        self, fitted: FittedHead, rows: Sequence[Question], config: TaskConfig, decoder: TaskHead
    ) -> Scores | None:
        fitted = cast("FittedField", fitted)
        if not fitted.chosen.folds:
            return None
        left_out, predictions = _left_out(fitted, rows, config, cast("SpanReader", decoder))
        return family_of(config.kind).with_interval(left_out, predictions, config)

    def reasons(self, head: ViewHead, units: Units, rows: Sequence[Question], config: TaskConfig) -> list[str]:
        family = family_of(config.kind)
        encoded = family.whole(rows, config, False, silent)
        predictions = family.predictions(encoded, head.scores(units), config, self.decoder(head, config))
        return answer_reasons(head, units, predictions.values, encoded.offsets)

    # -- files ---------------------------------------------------------------------------------------------------------

    def extra(self, head: ViewHead) -> Tensors:
        assert head.lengths is not None
        return {SPANS + name: scores for name, scores in head.lengths._asdict().items()}

    def with_extra(self, head: ViewHead, tensors: Tensors) -> ViewHead:
        lengths = Lengths(**{name: tensors[SPANS + name] for name in Lengths._fields})
        shapes = [(max(1, len(lengths.lengths)),), (1,), (1,)]
        if [scores.shape for scores in lengths] != shapes or len(head.bias) != 3:
            raise ValueError("lengths of answers")
        return dataclasses.replace(head, lengths=lengths)

    def empty(self, kind: str, texts: int, stored: Mapping[str, Tensors]) -> Units:
        return question_units([("", "")])


def _learned(learning: Learning, units: Units) -> list[View]:
    ways: dict[str, Callable[[], View]] = {
        AnswerNGrams.name: lambda: AnswerNGrams.learned(units),
        AnswerVectors.name: lambda: AnswerVectors.learned(
            units, learning.known.words, learning.known.matrix, learning.seed
        ),
    }
    return views_to_read(ways, learning.names)


def _left_out(
    fitted: FittedField, rows: Sequence[Question], config: TaskConfig, reader: SpanReader
) -> tuple[list[Question], Predictions]:
    """The questions of the folds, and the answers of a head that has not seen their passage."""
    family = family_of(config.kind)
    left_out: list[Question] = []
    answers: list[Answered] = []
    for fold in fitted.chosen.folds:
        questions = [rows[number] for number in fold.rows]
        lengths = lengths_of(fold.extra, float(reader.lengths.threshold[0]))
        encoded = family.whole(questions, config, False, silent)
        head = cast("TaskHead", dataclasses.replace(reader, lengths=lengths))
        answers += family.predictions(encoded, fold.scores, config, head).values
        left_out += questions
    return left_out, Predictions(config.kind, answers)


def _choose_threshold(fitted: FittedField, rows: Sequence[Question], config: TaskConfig) -> None:
    """The margin by which "no answer" must outscore the best span, with the highest F1 on left-out questions."""
    lengths = fitted.head.lengths
    assert lengths is not None
    left_out, predictions = _left_out(fitted, rows, config, SpanReader(lengths))
    threshold = threshold_of(left_out, predictions.values)
    if threshold is not None:
        fitted.head.lengths = lengths._replace(threshold=np.array([threshold]))
