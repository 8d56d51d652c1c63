"""Explains the head's prediction for a row in one line:

    vectors +1.21, ngrams +0.64, lsa −0.10; gorgeous +0.41, witty +0.22, film −0.05

Each figure is what a view adds to the score of the prediction, minus the mean of what it adds to the others
(regression: what it adds to the score). So the figures and the bias add up to the deciding margin. The most important
n-grams follow. For tags there is one line per word: the views, and `neighbours`, what the adjacent tags add. For an
answer: what each view, and `length`, adds to its score, minus what it adds to that of the next candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretext.nn.task_models.crf import Chain
from foretext.tasks.layouts.windows import Answered, Candidate, Offsets
from foretext.tasks.views.base import Units
from foretext.tasks.views.head import ViewHead, by_row
from foretext.tasks.views.ngrams import NGrams, terms_of

TERMS = 5


def reasons(head: ViewHead, units: Units) -> list[str]:
    """One line per row."""
    scores = head.scores(units)
    best = [int(np.argmax(own)) if np.ndim(own) else 0 for own in scores]
    views: dict[str, list[float]] = {}
    for block, said in head.contributions(units).items():
        margins = _margins(by_row(said, units, head.kind), best)
        view = block.partition(".")[0]
        before = views.get(view, [0.0] * len(margins))
        views[view] = [old + new for old, new in zip(before, margins)]
    lines = []
    for row in range(len(scores)):
        own = sorted(((view, said[row]) for view, said in views.items()), key=lambda one: -abs(one[1]))
        lines.append("; ".join(filter(None, (_listed(own), _listed(_terms(head, units, row, best[row]))))))
    return lines


def word_reasons(head: ViewHead, units: Units, chosen: Sequence[np.ndarray]) -> list[list[str]]:
    """For each word of each sentence: what each view adds to its tag, and what the adjacent tags add."""
    assert head.chain is not None
    best = np.concatenate(chosen)
    views: dict[str, np.ndarray] = {}
    for block, said in head.contributions(units).items():
        view = block.partition(".")[0]
        views[view] = views.get(view, 0.0) + _word_margins(said, best)
    views["neighbours"] = _word_margins(np.concatenate([_beside(head.chain, own) for own in chosen]), best)
    found = []
    for word in range(len(best)):
        own = [(view, float(said[word])) for view, said in views.items()]
        found.append(_listed(sorted(own, key=lambda one: -abs(one[1]))))
    ends = np.cumsum([len(own) for own in chosen])
    return [found[end - len(own) : end] for own, end in zip(chosen, ends.tolist())]


def answer_reasons(head: ViewHead, units: Units, answers: Sequence[Answered], places: Sequence[Offsets]) -> list[str]:
    """One line per question; empty if there is no answer."""
    assert head.lengths is not None
    starts = np.flatnonzero(np.diff(units.rows, prepend=-1))
    said = head.contributions(units)
    lines = []
    for first, own, words in zip(starts.tolist(), answers, places, strict=True):
        spans = [_span_of(one, words) for one in own.candidates if one.text]
        if not own.text:
            lines.append("")
            continue
        chosen = next(number for number, one in enumerate(own.candidates) if one.text == own.text)
        chosen -= sum(not one.text for one in own.candidates[:chosen])
        others = [span for number, span in enumerate(spans) if number != chosen][:1]
        views: dict[str, float] = {}
        for factor, (begin, end) in zip((1.0, -1.0), (spans[chosen], *others)):
            length = float(head.lengths.lengths[end - begin] + head.bias[2] * (end - begin + 1))
            views["length"] = views.get("length", 0.0) + factor * length
            for block, table in said.items():
                part = table[first + begin : first + end + 1]
                view = block.partition(".")[0]
                added = float(part[0, 0] + part[-1, 1] + part[:, 2].sum())
                views[view] = views.get(view, 0.0) + factor * added
        lines.append(_listed(sorted(views.items(), key=lambda one: -abs(one[1]))))
    return lines


def _span_of(candidate: Candidate, places: Offsets) -> tuple[int, int]:
    """Its first and last word."""
    first = next(number for number, (start, _) in enumerate(places) if start == candidate.start)
    return first, next(number for number, (_, end) in enumerate(places) if end == candidate.end)


def _word_margins(said: np.ndarray, best: np.ndarray) -> np.ndarray:
    """For each word: the chosen tag minus the mean of the others."""
    own = said[np.arange(len(best)), best]
    return np.asarray(own - (said.sum(1) - own) / max(1, said.shape[1] - 1))


def _beside(chain: Chain, tags: np.ndarray) -> np.ndarray:
    """[words, classes]: what the previous and the next tag add to each possible tag of a word."""
    before = np.vstack([chain.starts_C[None], chain.transitions_CC[tags[:-1]]])
    return np.asarray(before + np.vstack([chain.transitions_CC[:, tags[1:]].T, chain.ends_C[None]]))


def _margins(said: Sequence[np.ndarray], best: Sequence[int]) -> list[float]:
    """For each row: the predicted class or choice minus the mean of the others."""
    return [float(own) if np.ndim(own) == 0 else _margin(own, place) for own, place in zip(said, best)]


def _margin(own: np.ndarray, place: int) -> float:
    others = np.delete(own, place)
    return float(own[place] - (others.mean() if len(others) else 0.0))


def _terms(head: ViewHead, units: Units, row: int, best: int) -> list[tuple[str, float]]:
    """The most important n-grams of a row of single texts."""
    view = next((view for view in head.views if isinstance(view, NGrams)), None)
    if view is None or units.pairs:
        return []
    weights = head.weights["ngrams.words"]
    matrix = view.matrix([units.words[row][0]])
    added = [
        (view.terms[column], value * (_margin(weights[column], best) if weights.shape[1] > 1 else weights[column, 0]))
        for column, value in zip(matrix.indices, matrix.data)
    ]
    order = {term: place for place, term in enumerate(terms_of(units.words[row][0]))}
    return sorted(added, key=lambda one: (-abs(one[1]), order[one[0]]))[:TERMS]


def _listed(added: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {'+' if value >= 0 else '−'}{abs(value):.2f}" for name, value in added)
