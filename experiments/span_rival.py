"""The strongest cheap reader of passages that we could write: it scores runs of words by scikit-learn.

A run of words within one of the three sentences that have most of the question is right or wrong. It has some numbers
(how much of the question its sentence has, how near rare words of the question stand on each side, how long and how
rare it is) and indicators (what stands in it and beside it, and which frequent words the question has, alone and
together with the shape of the run). Of each training question the model sees the right run and some wrong ones, the
ones that overlap it among them. The model is a logistic regression over all of this, or boosted trees over the
numbers: the better one on a third of the training passages, which the others have not seen. Nothing here is the
package's own but the reader of files and the score.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.token_baselines import NEAR, Rarity, Words, rarity, words_of
from foretext.tasks.files.squad import Question
from foretext.tasks.scores.text_metrics import answer_score

WRONG, KEYS, SENTENCES = 40, 60, 3
LONGEST = 0.9  # the part of the answers that are no longer than runs are
_STOP = re.compile(r"[.!?。！？]")
Run = tuple[int, int]  # of words, the second behind its last
Features = tuple[list[float], set[str]]


def sentences(passage: str, words: Words) -> list[int]:
    """The number of each word's sentence: a stop behind a word of more than two letters ends one."""
    found, number = [], 0
    for place, (word, _, end) in enumerate(words):
        found.append(number)
        between = passage[end : words[place + 1][1]] if place + 1 < len(words) else ""
        number += bool(_STOP.search(between)) and (len(word) > 2 or "." not in between)
    return found


def shape(text: str) -> str:
    letters = re.sub(r"[A-Z]", "X", re.sub(r"[a-z]", "x", re.sub(r"[0-9]", "d", text)))
    return re.sub(r"(.)\1+", r"\1", letters) if not re.fullmatch("d{1,4}", letters) else letters


class Rival:
    def __init__(self, train: Sequence[Question]) -> None:
        self.rare: Rarity = rarity(one.passage for one in train)
        counts = Counter(key for one in train for key in self._terms(one))
        self.keys = {key for key, _ in counts.most_common(KEYS)}
        lengths = [end - start for start, end in (_gold(one) for one in train)]
        self.longest = int(np.quantile(lengths, LONGEST))

    def _terms(self, one: Question) -> set[str]:
        words = [word for word, _, _ in words_of(one.question)]
        return {*words, *map(" ".join, itertools.pairwise(words))}

    def runs(self, one: Question) -> list[Run]:
        words = words_of(one.passage)
        number, covers = sentences(one.passage, words), self._covers(one, words)
        best = set(sorted(range(len(covers)), key=lambda own: -covers[own])[:SENTENCES])
        return [
            (start, end)
            for start in range(len(number))
            if number[start] in best
            for end in range(start + 1, min(len(number), start + self.longest) + 1)
            if number[end - 1] == number[start]
        ]

    def _covers(self, one: Question, words: Words) -> list[float]:
        """How much of the question each sentence has."""
        asked, number = {word for word, _, _ in words_of(one.question)}, sentences(one.passage, words)
        has: list[set[str]] = [set() for _ in range(number[-1] + 1)]
        for (word, _, _), place in zip(words, number):
            has[place] |= {word} & asked
        return [sum(map(self.rare.of, own)) / sum(map(self.rare.of, asked)) for own in has]

    def features(self, one: Question, runs: Sequence[Run]) -> list[Features]:
        words = words_of(one.passage)
        low, number = [word for word, _, _ in words], sentences(one.passage, words)
        written = [one.passage[first:end] for _, first, end in words]
        shapes, asked = [shape(word) for word in written], {word for word, _, _ in words_of(one.question)}
        pulls = np.array([self.rare.of(word) if word in asked else 0.0 for word in low])
        whole = sum(map(self.rare.of, asked))
        covers = self._covers(one, words)
        keys = [*sorted(self._terms(one) & self.keys), "any"]
        found = []
        for start, end in runs:
            left = sum(pulls[at] / (start - at) for at in range(max(0, start - NEAR), start))
            right = sum(pulls[at] / (at - end + 1) for at in range(end, min(len(low), end + NEAR)))
            cover = covers[number[start]]
            numbers = [cover, cover / max(max(covers), 1e-9), left / whole, right / whole, max(left, right) / whole]
            numbers += [
                pulls[start:end].sum() / whole,
                end - start,
                float(np.mean([*map(self.rare.of, low[start:end])])),
            ]
            numbers += [
                float(np.mean([test(word) for word in written[start:end]])) for test in (str.isdigit, str.istitle)
            ]
            before = low[start - 1] if start else "<"
            behind = low[end] if end < len(low) else ">"
            beside = one.passage[max(0, words[start][1] - 1) : words[start][1]] + "_"
            beside += one.passage[words[end - 1][2] : words[end - 1][2] + 1]
            own = {
                f"first {low[start]}",
                f"last {low[end - 1]}",
                f"before {before}",
                f"behind {behind}",
                f"signs {beside}",
            }
            for key in keys:
                own |= {f"{key} {' '.join(shapes[start:end])[:12]}", f"{key} length {min(end - start, 6)}"}
                own |= {f"{key} first {shapes[start]}", f"{key} last {shapes[end - 1]}", f"{key} before {before}"}
            found.append((numbers, own))
        return found


def _gold(one: Question) -> Run:
    answer = one.answers[0]
    here = [
        place
        for place, (_, first, end) in enumerate(words_of(one.passage))
        if first < answer.start + len(answer.text) and end > answer.start
    ]
    return (here[0], here[-1] + 1) if here else (0, 1)


class _Table:
    """Runs of questions as rows that models take."""

    def __init__(self, learn: Sequence[Question]) -> None:
        from sklearn.feature_extraction import FeatureHasher
        from sklearn.preprocessing import StandardScaler

        self.rival, self.hasher = Rival(learn), FeatureHasher(2**18, input_type="string", alternate_sign=False)
        rows: list[Features] = []
        right: list[bool] = []
        for one in learn:
            gold, draw = _gold(one), random.Random(one.id)
            every = [run for run in self.rival.runs(one) if run != gold]
            close = [run for run in every if run[0] < gold[1] and run[1] > gold[0]]
            wrong = {*draw.sample(close, min(WRONG // 4, len(close))), *draw.sample(every, min(WRONG, len(every)))}
            rows += self.rival.features(one, [gold, *sorted(wrong)])
            right += [True] + [False] * len(wrong)
        self.scaler = StandardScaler().fit([numbers for numbers, _ in rows])
        self.rows, self.right = self.matrices(rows), right

    def matrices(self, rows: Sequence[Features]) -> tuple[Any, Any]:
        """Numbers alone, and numbers and indicators."""
        import scipy.sparse as sp

        numbers = self.scaler.transform([numbers for numbers, _ in rows])
        names = self.hasher.transform([own for _, own in rows])
        return numbers, sp.hstack([sp.csr_matrix(numbers), names]).tocsr()

    def answers(self, models: Sequence[tuple[Any, int]], questions: Sequence[Question]) -> list[list[str]]:
        """By each model; its number says which of the matrices it reads."""
        found: list[list[str]] = [[] for _ in models]
        for one in questions:
            words, runs = words_of(one.passage), self.rival.runs(one)
            tables = self.matrices(self.rival.features(one, runs))
            for own, (model, which) in zip(found, models):
                start, end = runs[int(np.argmax(model.predict_proba(tables[which])[:, 1]))]
                own.append(one.passage[words[start][1] : words[end - 1][2]])
        return found


def rival_answers(train: Sequence[Question], test: Sequence[Question]) -> list[str]:
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    kinds: list[tuple[Any, int]] = [(LogisticRegression(C=c, solver="liblinear"), 1) for c in (0.03, 0.3)]
    kinds.append((HistGradientBoostingClassifier(learning_rate=0.05, max_leaf_nodes=8), 0))
    passages = list(dict.fromkeys(one.passage for one in train))
    held = set(random.Random(0).sample(passages, len(passages) // 3))
    learn, asked = ([one for one in train if (one.passage in held) == own] for own in (False, True))
    table = _Table(learn)
    fitted = [(clone(model).fit(table.rows[which], table.right), which) for model, which in kinds]
    said = table.answers(fitted, asked)
    f1s = [sum(answer_score(one, text, False)[1] for one, text in zip(asked, own)) for own in said]
    model, which = kinds[int(np.argmax(f1s))]
    table = _Table(train)
    return table.answers([(model.fit(table.rows[which], table.right), which)], test)[0]
