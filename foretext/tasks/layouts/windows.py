"""Input longer than the context, for tags and answer spans, where every token counts: overlapping windows, and how
their scores are combined.

A window begins `stride` tokens after the previous one: 128, as in BERT's released code, or half of the room for text if
that is less. (BERT calls this step the stride; others use that name for the overlap.) So a token is in several windows.
The one with the most context counts: min(tokens to its left, tokens to its right) + 0.01 · the window's length.

- **Spans**: in each window, the candidates are spans of at most 30 tokens whose first token has its best window there,
  as in BERT's released code; the last may be any token of the passage. Scores are logits and comparable across the
  windows of a question. "No answer" has the score of the extract position, the lowest over the windows.
- **Tags**: a word's tag is predicted once, at its first piece, in that piece's best window, in training too. (A trunk
  that reads from left to right predicts at the word's last piece, where it has read the whole word.) A word without
  any piece gets the fallback tag.
- **Unlabelled text** beside tagged sentences is read in parts that do not overlap: each word once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from foretext.errors import UserError, refuse_if
from foretext.tasks.layouts.base import Frame, Layout
from foretext.text.tokenizers.base import Tokenizer, is_unspaced

STRIDE = 128
LONGEST_ANSWER = 30  # tokens
LONGEST_QUESTION = 64  # tokens; or half of the room, if that is less
N_BEST = 20
OUTSIDE = "O"

Progress = Callable[[int, int], None]
Offsets = Sequence[tuple[int, int]]  # for each token of a text: its first character and the one after its last
Pieces = tuple[list[int], list[bool]]  # ids, and at which of them a tag would be predicted


@dataclass(frozen=True)
class Window:
    """Tokens from `start` up to, but not including, `end`."""

    start: int
    end: int


def cut(length: int, room: int, stride: int | None = None) -> list[Window]:
    """Windows of at most `room` tokens over `length`; the last ends with the text. A text without tokens has one
    window."""
    step = min(room, stride or max(1, min(STRIDE, room // 2)))
    windows = []
    start = 0
    while True:
        end = min(start + room, length)
        windows.append(Window(start, end))
        if end == length:
            return windows
        start += step


def best_windows(windows: Sequence[Window | SpanWindow], length: int) -> list[int]:
    """For each token, the number of the window where it has the most context; ties go to the first."""
    best, scores = [-1] * length, [-math.inf] * length
    for number, window in enumerate(windows):
        size = 0.01 * (window.end - window.start)
        for token in range(window.start, window.end):
            score = min(token - window.start, window.end - 1 - token) + size
            if score > scores[token]:
                best[token], scores[token] = number, score
    return best


# -- spans -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpanWindow:
    """A question with the passage's tokens `start` to `end`; `question` is its number among the questions."""

    question: int
    start: int
    end: int
    frame: Frame


def span_windows(
    question: Sequence[int], passage: Sequence[int], layout: Layout, number: int = 0, stride: int | None = None
) -> tuple[list[SpanWindow], int]:
    """The windows of one question, and how many tokens of the question had to be cut."""
    total = layout.context - layout.overhead(2)
    if total < 2:
        raise UserError(
            f"a context with room for {max(0, total)} tokens cannot hold a question and a passage; use a longer context"
        )
    kept = list(question[: min(LONGEST_QUESTION, total // 2)])
    windows = [
        SpanWindow(number, window.start, window.end, layout.frame(kept, passage[window.start : window.end]))
        for window in cut(len(passage), total - len(kept), stride)
    ]
    return windows, len(question) - len(kept)


def answer_tokens(offsets: Offsets, start: int, end: int) -> tuple[int, int] | None:
    """The first and the last token with a character in [start, end); None if there is none."""
    touching = [number for number, (first, behind) in enumerate(offsets) if max(first, start) < min(behind, end)]
    return (touching[0], touching[-1]) if touching else None


def is_whole(answer: tuple[int, int], window: SpanWindow) -> bool:
    """Whether a window holds all tokens of an answer."""
    return window.start <= answer[0] and answer[1] < window.end


def answer_place(passage: str, offsets: Offsets, first: int, last: int) -> tuple[int, int]:
    """The characters [start, end) of the tokens `first` to `last`, without surrounding white space."""
    start, end = offsets[first][0], max(offsets[first][0], offsets[last][1])
    while start < end and passage[start].isspace():
        start += 1
    while start < end and passage[end - 1].isspace():
        end -= 1
    return start, end


@dataclass(frozen=True)
class Candidate:
    """A possible answer: its text, its characters [start, end), the sum of its start and end scores, and its
    probability among the candidates. "No answer" is the empty text at (0, 0)."""

    text: str
    start: int
    end: int
    score: float
    probability: float = 0.0


@dataclass(frozen=True)
class Answered:
    """The answer (none: ""), the candidates, best first, and the margin by which "no answer" outscores the best
    span."""

    text: str
    candidates: tuple[Candidate, ...]
    margin: float


def best_answer(
    passage: str,
    offsets: Offsets,
    windows: Sequence[SpanWindow],
    scores: Sequence[np.ndarray],
    *,
    threshold: float | None = None,
    n_best: int = N_BEST,
    longest: int = LONGEST_ANSWER,
) -> Answered:
    """The answer to one question, from the scores [T, 2] of each of its windows. With a `threshold`, the answer is
    empty if "no answer" outscores the best span by more than that. Without one, the best span is the answer."""
    assert len(windows) == len(scores) > 0
    best = best_windows(windows, len(offsets))
    candidates: dict[str, Candidate] = {}
    null = math.inf
    for number, (window, table) in enumerate(zip(windows, scores)):
        null = min(null, float(table[window.frame.extract, 0]) + float(table[window.frame.extract, 1]))
        here = [best[token] == number for token in range(window.start, window.end)]
        for score, first, last in _spans(window, table, here, n_best, longest):
            start, end = answer_place(passage, offsets, first, last)
            text = passage[start:end]
            if text and (text not in candidates or score > candidates[text].score):
                candidates[text] = Candidate(text, start, end, score)
    ranked = sorted(candidates.values(), key=_rank)[:n_best]
    margin = null - ranked[0].score if ranked else math.inf
    text = ranked[0].text if ranked and (threshold is None or margin <= threshold) else ""
    return Answered(text, with_probabilities(ranked, None if threshold is None else null), margin)


def with_probabilities(candidates: Iterable[Candidate], null: float | None) -> tuple[Candidate, ...]:
    """The candidates, best first, with their probabilities; `null`: the score of "no answer" where that is one."""
    ranked = sorted([*candidates, *([] if null is None else [Candidate("", 0, 0, null)])], key=_rank)
    weights = [math.exp(candidate.score - ranked[0].score) for candidate in ranked]
    total = sum(weights)
    return tuple(replace(candidate, probability=weight / total) for candidate, weight in zip(ranked, weights))


def _rank(candidate: Candidate) -> tuple[float, int, int]:
    return -candidate.score, candidate.start, candidate.end


def _spans(
    window: SpanWindow, scores: np.ndarray, here: Sequence[bool], n_best: int, longest: int
) -> list[tuple[float, int, int]]:
    """The best spans of a window as (score, first token, last token) of the passage; `here`: which tokens may be the
    first."""
    length = window.end - window.start
    if not length:
        return []
    places = [window.frame.place(1, token) for token in range(length)]
    starts, ends = scores[places, 0].astype(np.float64), scores[places, 1].astype(np.float64)
    totals = np.full((min(longest, length), length), -np.inf)  # [length of the span − 1, first token]
    for more in range(len(totals)):
        totals[more, : length - more] = starts[: length - more] + ends[more:]
    totals[:, ~np.array(here)] = -np.inf
    order = np.argsort(-totals, axis=None, kind="stable")[:n_best]
    places_of = (divmod(flat, length) for flat in order.tolist())
    return [
        (float(totals[more, first]), window.start + first, window.start + first + more)
        for more, first in places_of
        if np.isfinite(totals[more, first])
    ]


# -- tags --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TagWindow:
    """A part of a sentence: the words tagged in it, and the index in `frame.ids` where each is predicted."""

    sentence: int
    words: tuple[int, ...]
    places: tuple[int, ...]
    frame: Frame


def running_words(words: Sequence[str]) -> list[str]:
    """Words as they appear in running text, to be encoded one by one: each with the space before it, except the first,
    and except between two words of a script without spaces. (A unigram vocabulary begins every text with its space
    mark, so there these words have one each.)"""
    joined = [is_unspaced(before[-1:]) and is_unspaced(word) for before, word in pairwise(words)]
    return [word if whole else f" {word}" for word, whole in zip(words, [True, *joined])]


def tag_windows(
    pieces: Sequence[Sequence[int]], layout: Layout, number: int = 0, stride: int | None = None
) -> list[TagWindow]:
    """The windows of one sentence, given the pieces of each word; none if no word has a piece."""
    room = layout.context - layout.overhead(1)
    refuse_if(room < 1, "the context has no room for tokens of a sentence; use a longer context")
    flat: list[int] = []
    predicted: list[tuple[int, int]] = []  # word, and the number of the piece where it is predicted
    for word, ids in enumerate(pieces):
        if len(ids):
            predicted.append((word, len(flat) + (len(ids) - 1 if layout.asked_piece == "last" else 0)))
            flat.extend(ids)
    windows = cut(len(flat), room, stride)
    best = best_windows(windows, len(flat))
    filled = []
    for place, window in enumerate(windows):
        here = [(word, piece) for word, piece in predicted if best[piece] == place]
        if here:
            frame = layout.frame(flat[window.start : window.end])
            places = tuple(frame.place(0, piece - window.start) for _, piece in here)
            filled.append(TagWindow(number, tuple(word for word, _ in here), places, frame))
    return filled


def by_word(
    lengths: Sequence[int], windows: Iterable[TagWindow], values: Iterable[Sequence[Any]]
) -> list[list[Any | None]]:
    """Predictions for the words of sentences with so many words each, from those for the windows' words; None for a
    word that no window predicts."""
    predictions: list[list[Any | None]] = [[None] * length for length in lengths]
    for window, of_window in zip(windows, values):
        for word, value in zip(window.words, of_window):
            predictions[window.sentence][word] = value
    return predictions


def fallback_tag(sentences: Iterable[Sequence[str]]) -> str:
    """The tag for a word without a piece: `O` if that is a tag, otherwise the most frequent one."""
    counts = Counter(tag for sentence in sentences for tag in sentence)
    assert counts, "no tags"
    return OUTSIDE if OUTSIDE in counts else min(counts, key=lambda tag: (-counts[tag], tag))


# -- unlabelled text ---------------------------------------------------------------------------------------------------


def unlabelled_rows(
    texts: Sequence[str], tokenizer: Tokenizer, layout: Layout, note: Callable[[str], None], progress: Progress
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ids of sentences, encoded word by word like labelled ones, and where a tag would be predicted. Sentences
    longer than the context are read in parts; those without words are left out."""
    room = layout.context - layout.overhead(1)
    known: dict[str, Pieces] = {}
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    longer = 0
    for number, text in enumerate(texts):
        if number % 1024 == 0:
            progress(number, len(texts))
        ids, flags = _pieces_of(text, known, tokenizer)
        longer += len(ids) > room
        for window in cut(len(ids), room, stride=room) if ids else ():
            frame = layout.frame(ids[window.start : window.end])
            framed = np.zeros(len(frame.ids), dtype=bool)
            first, length = frame.parts[0]
            framed[first : first + length] = flags[window.start : window.end]
            rows.append((np.array(frame.ids, dtype=np.int32), framed))
    if longer:
        note(
            f"{longer:,} of {len(texts):,} unlabelled lines are longer than {room} words and are read in parts; put "
            "one sentence on each line"
        )
    return rows


def _pieces_of(text: str, known: dict[str, Pieces], tokenizer: Tokenizer) -> Pieces:
    """The ids of running text, and where a tag would be predicted: at a word's first piece, and at each character of a
    script without spaces, whose words are not separated. `known`: cache of the words so far."""
    words = running_words(text.split())
    for word in words:
        if word not in known:
            ids = tokenizer.encode(word)
            known[word] = ids, [not place or is_unspaced(tokenizer.piece(id)) for place, id in enumerate(ids)]
    return [id for word in words for id in known[word][0]], [flag for word in words for flag in known[word][1]]
