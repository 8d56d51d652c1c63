"""Explains the head's prediction for a row in one line:

    vectors +1.21, ngrams +0.64, lsa −0.10; gorgeous +0.41, witty +0.22, film −0.05

Each figure is what a view adds to the score of the prediction, minus the mean of what it adds to the others
(regression: what it adds to the score). So the figures and the bias add up to the deciding margin. The most important
n-grams follow. For tags there is one line per word: the views, and `neighbours`, what the adjacent tags add. For an
answer: what each view, and `length`, adds to its score, minus what it adds to that of the next candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foretext.nn.task_models.crf import Chain
from foretext.tasks.layouts.windows import Answered, Candidate, Offsets
from foretext.tasks.views.base import Units, ViewHead, by_row
from foretext.tasks.views.rows.ngrams import NGrams, terms_of

TERMS = 5


def reasons(head: ViewHead, units: Units) -> list[str]:
    """One line per row."""
    scores = head.scores(units)
    best = [int(np.argmax(logits)) if np.ndim(logits) else 0 for logits in scores]
    views = {
        view: [_margin(of_row, place) for of_row, place in zip(by_row(added, units, head.kind), best)]
        for view, added in _by_view(head, units).items()
    }
    lines = []
    for row in range(len(scores)):
        of_row = _sorted({view: margins[row] for view, margins in views.items()})
        lines.append("; ".join(filter(None, (_listed(of_row), _listed(_terms(head, units, row, best[row]))))))
    return lines


def word_reasons(head: ViewHead, units: Units, chosen: Sequence[np.ndarray]) -> list[list[str]]:
    """For each word of each sentence: what each view adds to its tag, and what the adjacent tags add."""
    assert head.chain is not None
    best = np.concatenate(chosen)
    views = {view: _word_margins(added, best) for view, added in _by_view(head, units).items()}
    views["neighbours"] = _word_margins(np.concatenate([_beside(head.chain, tags) for tags in chosen]), best)
    every = ({view: float(margins[word]) for view, margins in views.items()} for word in range(len(best)))
    lines = [_listed(_sorted(of_word)) for of_word in every]
    ends = np.cumsum([len(tags) for tags in chosen])
    return [lines[end - len(tags) : end] for tags, end in zip(chosen, ends.tolist())]


def answer_reasons(head: ViewHead, units: Units, answers: Sequence[Answered], places: Sequence[Offsets]) -> list[str]:
    """One line per question; empty if there is no answer."""
    assert head.lengths is not None
    starts = np.flatnonzero(np.diff(units.rows, prepend=-1))
    contributions = _by_view(head, units)
    lines = []
    for first, answer, words in zip(starts.tolist(), answers, places, strict=True):
        candidates = [candidate for candidate in answer.candidates if candidate.text]
        spans = [_span_of(candidate, words) for candidate in candidates]
        if not answer.text:
            lines.append("")
            continue
        chosen = next(number for number, candidate in enumerate(candidates) if candidate.text == answer.text)
        others = [span for number, span in enumerate(spans) if number != chosen][:1]
        views: dict[str, float] = {}
        for factor, (begin, end) in zip((1.0, -1.0), (spans[chosen], *others)):
            length = float(head.lengths.lengths[end - begin] + head.bias[2] * (end - begin + 1))
            views["length"] = views.get("length", 0.0) + factor * length
            for view, table in contributions.items():
                part = table[first + begin : first + end + 1]
                added = float(part[0, 0] + part[-1, 1] + part[:, 2].sum())
                views[view] = views.get(view, 0.0) + factor * added
        lines.append(_listed(_sorted(views)))
    return lines


def _by_view(head: ViewHead, units: Units) -> dict[str, np.ndarray]:
    """What each view adds to the units' outputs, all of its blocks together."""
    views: dict[str, np.ndarray] = {}
    for block, added in head.contributions(units).items():
        view = block.partition(".")[0]
        views[view] = views.get(view, 0.0) + added
    return views


def _span_of(candidate: Candidate, places: Offsets) -> tuple[int, int]:
    """Its first and last word."""
    first = next(number for number, (start, _) in enumerate(places) if start == candidate.start)
    return first, next(number for number, (_, end) in enumerate(places) if end == candidate.end)


def _word_margins(added: np.ndarray, best: np.ndarray) -> np.ndarray:
    """For each word: the chosen tag minus the mean of the others."""
    chosen = added[np.arange(len(best)), best]
    return np.asarray(chosen - (added.sum(1) - chosen) / max(1, added.shape[1] - 1))


def _beside(chain: Chain, tags: np.ndarray) -> np.ndarray:
    """[words, classes]: what the previous and the next tag add to each possible tag of a word."""
    before = np.vstack([chain.starts_C[None], chain.transitions_CC[tags[:-1]]])
    return np.asarray(before + np.vstack([chain.transitions_CC[:, tags[1:]].T, chain.ends_C[None]]))


def _margin(added: np.ndarray, place: int) -> float:
    """The predicted class or choice minus the mean of the others; of a regression, the score."""
    if np.ndim(added) == 0:
        return float(added)
    others = np.delete(added, place)
    return float(added[place] - (others.mean() if len(others) else 0.0))


def _terms(head: ViewHead, units: Units, row: int, best: int) -> list[tuple[str, float]]:
    """The most important n-grams of a row of single texts."""
    view = next((view for view in head.views if isinstance(view, NGrams)), None)
    if view is None or units.pairs:
        return []
    weights = head.weights["ngrams.words"]
    terms, matrix = list(view.terms), view.matrix([units.words[row][0]])
    added = [
        (terms[column], value * (_margin(weights[column], best) if weights.shape[1] > 1 else weights[column, 0]))
        for column, value in zip(matrix.indices, matrix.data)
    ]
    order = {term: place for place, term in enumerate(terms_of(units.words[row][0]))}
    return sorted(added, key=lambda term: (-abs(term[1]), order[term[0]]))[:TERMS]


def _sorted(views: Mapping[str, float]) -> list[tuple[str, float]]:
    """The largest first."""
    return sorted(views.items(), key=lambda view: -abs(view[1]))


def _listed(added: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {'+' if value >= 0 else '−'}{abs(value):.2f}" for name, value in added)
